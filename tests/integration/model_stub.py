"""A scripted model server on loopback that speaks enough of the OpenAI API for Mem0: chat completions and embeddings.

Deterministic: a chat call gets the next scripted reply, without one the reply that a plain model would give (each
sentence of the messages is a fact; each fact is added). Embeddings are hashed bags of words.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = str | int | dict[str, Any] | Callable[[str], Any]
"""A text, an HTTP error status, an object sent as JSON, or a function of the prompt that gives one of them."""

DIMENSIONS = 64


class ModelStub(ThreadingHTTPServer):
    """`with ModelStub() as model:` serves until the block ends. `script` holds the replies to come, `prompts` the
    prompts seen; `traceparents` what came with each request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        self.script: list[Reply] = []
        self.prompts: list[str] = []
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> ModelStub:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()

    def reply(self, prompt: str) -> str | int:
        """The reply to one prompt: text, or an HTTP status."""
        self.prompts.append(prompt)
        reply: Any = self.script.pop(0) if self.script else plain_reply
        if callable(reply):
            reply = reply(prompt)
        return json.dumps(reply) if isinstance(reply, dict) else reply


def plain_reply(prompt: str) -> Any:
    """What a model without a script answers, by the kind of prompt."""
    if "## New Messages" in prompt:  # extraction of Mem0 2.x
        given = prompt.split("## New Messages")[-1].split("## Observation Date")[0]
        return {"memory": [{"id": str(i), "text": text} for i, text in enumerate(sentences(given))]}
    if "new retrieved facts" in prompt.lower() and "Input:" not in prompt.split("Below is")[-1]:  # decision of 1.x
        facts = ast.literal_eval(re.findall(r"```\s*(\[.*?\])\s*```", prompt, re.DOTALL)[-1])
        return {"memory": [{"id": str(100 + i), "text": fact, "event": "ADD"} for i, fact in enumerate(facts)]}
    if "Input:" in prompt:  # extraction of 1.x
        return {"facts": sentences(prompt.split("Input:")[-1])}
    return "0.5"


def sentences(text: str) -> list[str]:
    """The sentences of the lines that a user said."""
    said = [line.split(":", 1)[1] for line in text.splitlines() if line.startswith("user:")]
    return [sentence.strip() for line in said for sentence in re.split(r"(?<=[.!])\s", line) if sentence.strip()]


def embedding(text: str, dimensions: int = DIMENSIONS) -> list[float]:
    """A unit vector; texts that share words are near."""
    vector = [0.0] * dimensions
    for word in re.findall(r"[a-z0-9]+", text.lower()) or [""]:
        place = int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big")
        vector[place % dimensions] += 1.0
    norm = math.sqrt(sum(value * value for value in vector))
    return [value / norm for value in vector]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # header and body are two writes: without this each reply waits 40 ms
    server: ModelStub
    asked: dict[str, Any]

    def do_POST(self) -> None:
        asked = self.asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path.endswith("/embeddings"):
            texts = [asked["input"]] if isinstance(asked["input"], str) else asked["input"]
            data = [
                {"object": "embedding", "index": number, "embedding": embedding(text)}
                for number, text in enumerate(texts)
            ]
            usage = {"prompt_tokens": 1, "total_tokens": 1}
            self._send({"object": "list", "model": asked["model"], "data": data, "usage": usage})
            return
        try:
            reply = self.server.reply("\n".join(str(message.get("content")) for message in asked["messages"]))
        except Exception as error:  # a mistake in a script must not look like a lost connection, which is retried
            self._send({"error": {"message": f"the script failed: {error!r}"}}, 400)
            return
        if isinstance(reply, int):
            self._send({"error": {"message": "scripted failure"}}, reply)
            return
        message = {"role": "assistant", "content": reply}
        completion = {"id": "stub", "object": "chat.completion", "created": 0, "model": asked["model"]}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        self._send(completion | {"choices": [choice], "usage": usage})

    def _send(self, value: dict[str, Any], status: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class StreamingHandler(_Handler):
    """Sends the reply of a chat call word by word when the call asks for a stream. A reply
    `{"calls": [[name, arguments], ...]}` is a list of tool calls, which a stream has in its first chunk."""

    def _send(self, value: dict[str, Any], status: int = 200) -> None:
        if status != 200 or "choices" not in value:
            super()._send(value, status)
            return
        choice = value["choices"][0]
        reply = choice["message"]["content"]
        if reply.startswith('{"calls"'):
            calls = [_tool_call(n, *call) for n, call in enumerate(json.loads(reply)["calls"])]
            choice |= {"message": {"role": "assistant", "content": None, "tool_calls": calls}}
            choice["finish_reason"] = "tool_calls"
        if self.asked.get("stream"):
            self._send_chunks(choice)
        else:
            super()._send(value)

    def _send_chunks(self, choice: dict[str, Any]) -> None:
        message, end = choice["message"], choice["finish_reason"]
        words = (message["content"] or "").split(" ")
        texts = [word if number == 0 else f" {word}" for number, word in enumerate(words)]
        deltas = [{"role": "assistant", "content": text} for text in texts]
        deltas[0] |= {"tool_calls": message["tool_calls"]} if "tool_calls" in message else {}
        chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": end}]})
        head = {"id": "stub", "object": "chat.completion.chunk", "created": 0, "model": "stub"}
        body = "".join(f"data: {json.dumps(head | chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())


def _tool_call(number: int, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"index": number, "id": f"call{number}", "type": "function", "function": function}
