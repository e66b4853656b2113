"""A loopback model server with scripted replies, called by the real `openai` package."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import zip_longest
from typing import Any

import openai
import pytest

from memtrace_otel.instrumentation.openai import OpenAIInstrumentor
from tests.conftest import Recording


class ModelServer(ThreadingHTTPServer):
    """Replies with `replies` in order, or with what `says` makes of a request; an int is an HTTP error status, a dict
    (name, arguments) a tool call, a list the items of a response, a tuple the choices of a completion, bytes a body as
    it is."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.replies: list[str | int | dict[str, str] | tuple[str, ...] | list[str | dict[str, str]] | bytes] = []
        self.responses = 0
        self.says: Callable[[dict[str, Any]], str] | None = None
        self.echo = False  # say what was said instead; "fail" fails, "hang" is not answered
        self.url = f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ModelServer

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        reply = self.server.says(asked) if self.server.says else None
        reply = reply or (_echo(asked) if self.server.echo else self.server.replies.pop(0))
        if isinstance(reply, int):
            return self._send(json.dumps({"error": {"message": "scripted"}}), "application/json", reply)
        if isinstance(reply, bytes):
            return self._send(reply.decode(), "text/event-stream" if reply.startswith(b"data:") else "application/json")
        if self.path.endswith("/responses"):
            return self._respond(reply if isinstance(reply, list) else [reply], bool(asked.get("stream")))
        if isinstance(reply, dict):
            return self._send_call(reply, bool(asked.get("stream")))
        texts = reply if isinstance(reply, tuple) else (reply,)
        if asked.get("stream"):
            rounds = zip_longest(*(text.split(" ") for text in texts))
            words = [(index, word) for said in rounds for index, word in enumerate(said) if word is not None]
            chunks = [{"choices": [{"index": index, "delta": {"content": word}}]} for index, word in words]
            lines = [json.dumps(_envelope("chat.completion.chunk") | chunk) for chunk in chunks]
            return self._send("".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]), "text/event-stream")
        said = [{"role": "assistant", "content": text} for text in texts]
        choices = [{"index": i, "finish_reason": "stop", "message": message} for i, message in enumerate(said)]
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        return self._send(json.dumps(_envelope("chat.completion") | {"choices": choices, "usage": usage}))

    def _respond(self, parts: Sequence[str | dict[str, str]], stream: bool) -> None:
        self.server.responses += 1
        output = [_item(f"{self.server.responses}-{number}", part) for number, part in enumerate(parts)]
        usage = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
        response = _envelope("response") | {"output": output, "usage": usage, "id": f"reply-{self.server.responses}"}
        if not stream:
            return self._send(json.dumps(response))
        events: list[dict[str, Any]] = [{"type": "response.created", "response": response | {"output": []}}]
        for number, (item, part) in enumerate(zip(output, parts, strict=True)):
            place = {"output_index": number, "item_id": item["id"]}
            begun = item | ({"content": []} if isinstance(part, str) else {"arguments": ""})
            events.append(place | {"type": "response.output_item.added", "item": begun})
            if isinstance(part, str):
                opened = {
                    "type": "response.content_part.added",
                    "content_index": 0,
                    "part": item["content"][0] | {"text": ""},
                }
                events.append(place | opened)
                events.append(place | {"type": "response.output_text.delta", "content_index": 0, "delta": part})
            else:
                delta = {"type": "response.function_call_arguments.delta", "delta": part["arguments"]}
                events.append(place | delta)
                done = {"type": "response.function_call_arguments.done", "arguments": part["arguments"]}
                events.append(place | done)
            events.append(place | {"type": "response.output_item.done", "item": item})
        events.append({"type": "response.completed", "response": response})
        lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]
        return self._send("".join(lines), "text/event-stream")

    def _send_call(self, function: dict[str, str], stream: bool) -> None:
        call = {"index": 0, "id": "call-1", "type": "function", "function": function}
        if not stream:
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
            choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
            return self._send(json.dumps(_envelope("chat.completion") | {"choices": [choice]}))
        half = len(function["arguments"]) // 2
        parts = [
            call | {"function": function | {"arguments": function["arguments"][:half]}},
            {"index": 0, "function": {"arguments": function["arguments"][half:]}},
        ]
        chunks = [{"choices": [{"index": 0, "delta": {"tool_calls": [part]}}]} for part in parts]
        lines = [json.dumps(_envelope("chat.completion.chunk") | chunk) for chunk in chunks]
        return self._send("".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]), "text/event-stream")

    def _send(self, body: str, kind: str = "application/json", status: int = 200) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


def completion(message: dict[str, Any]) -> bytes:
    """A chat completion of one message."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": None} | message}
    return json.dumps(_envelope("chat.completion") | {"choices": [choice]}).encode()


def chunks(*deltas: dict[str, Any]) -> bytes:
    """A chat completion as stream chunks."""
    bodies = [_envelope("chat.completion.chunk") | {"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    return events(*bodies) + b"data: [DONE]\n\n"


def events(*bodies: dict[str, Any]) -> bytes:
    """A stream of server-sent events."""
    return "".join(f"data: {json.dumps(body)}\n\n" for body in bodies).encode()


def response(*items: dict[str, Any], kind: str = "response") -> bytes:
    """A response of these items."""
    return json.dumps(_envelope(kind) | {"output": items}).encode()


def _echo(asked: dict[str, Any]) -> str | int:
    said = asked["messages"][-1]["content"]
    if said == "hang":
        time.sleep(5)
    return 503 if said == "fail" else f"You said: {said}"


def _item(id: str, part: str | dict[str, str]) -> dict[str, Any]:
    if isinstance(part, dict):
        return {"id": f"fc-{id}", "type": "function_call", "call_id": f"call-{id}", "status": "completed"} | part
    content = [{"type": "output_text", "text": part, "annotations": []}]
    return {"id": f"msg-{id}", "type": "message", "role": "assistant", "status": "completed", "content": content}


def _envelope(kind: str) -> dict[str, Any]:
    return {"id": "reply-1", "object": kind, "created": 0, "created_at": 0, "model": "scripted-1"}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    server = ModelServer()
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def client(server: ModelServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=server.url, api_key="none", max_retries=0)


@pytest.fixture
def async_client(server: ModelServer) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=server.url, api_key="none", max_retries=0)


@pytest.fixture(autouse=True)
def instrumented(recording: Recording) -> Iterator[OpenAIInstrumentor]:
    instrumentor = OpenAIInstrumentor()
    instrumentor.instrument(tracer_provider=recording.provider, skip_dep_check=True)
    yield instrumentor
    instrumentor.uninstrument()
