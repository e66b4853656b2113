"""An OpenAI-compatible model server on loopback that plays the scripted model of the demo.

    python -m memtrace_otel.demo.model_server [--journal FILE] [--faultless]

The server prints its base URL on the first line of standard output. It exits when standard input closes, so the server
stops with the program that started it. Served are `/v1/chat/completions` and `/v1/embeddings`.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import struct
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol, cast

from memtrace_otel.demo.embedding import embed
from memtrace_otel.demo.model import Journal, ScriptedModel, UnknownRequest
from memtrace_otel.demo.script import load_faults, load_script

_EMBEDDING_SIZE = 1536
_MAX_BODY = 1 << 22
_STORY_TIME = 1_772_409_600  # 2 March 2026: replies carry no clock of their own


class ChatModel(Protocol):
    """A model that replies to chat requests."""

    def reply(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Return the content of the assistant message that follows `messages`."""
        ...


class ModelServer(ThreadingHTTPServer):
    """Serves a scripted model on a free loopback port. A text of `aliases` is embedded as another text."""

    request_queue_size = 128
    daemon_threads = True

    def __init__(self, model: ChatModel, aliases: Mapping[str, str] | None = None) -> None:
        self.model = model
        self.aliases = aliases or {}
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes as its base URL."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


@contextmanager
def serving(model: ChatModel, aliases: Mapping[str, str] | None = None) -> Generator[ModelServer]:
    """Serve `model` from a thread of this process while the context lasts; see `ModelServer.aliases`."""
    with ModelServer(model, aliases) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        if not 0 < length <= _MAX_BODY:
            return self._send(413, _error("a body of 1 byte to 4 MiB is needed"))
        try:
            request = json.loads(self.rfile.read(length))
            if self.path == "/v1/chat/completions":
                return self._send(
                    200, _completion(request, cast(ModelServer, self.server).model.reply(request["messages"]))
                )
            if self.path == "/v1/embeddings":
                return self._send(200, _embeddings(request, cast(ModelServer, self.server).aliases))
        except (UnknownRequest, KeyError, TypeError, ValueError) as error:
            return self._send(400, _error(f"{type(error).__name__}: {error}"))
        return self._send(404, _error(f"no such path: {self.path}"))

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent: requests hold contents."""

    def _send(self, status: int, reply: Mapping[str, Any]) -> None:
        body = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _completion(request: Mapping[str, Any], content: str) -> dict[str, Any]:
    read = sum(len(message["content"].split()) for message in request["messages"])
    written = len(content.split())
    digest = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
    return {
        "id": f"chatcmpl-{digest[:24]}",
        "object": "chat.completion",
        "created": _STORY_TIME,
        "model": request["model"],
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}],
        "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
    }


def _embeddings(request: Mapping[str, Any], aliases: Mapping[str, str]) -> dict[str, Any]:
    texts: list[str] = [request["input"]] if isinstance(request["input"], str) else request["input"]
    size = int(request.get("dimensions") or _EMBEDDING_SIZE)
    packed = request.get("encoding_format") == "base64"
    vectors = [embed(aliases.get(text, text), size) for text in texts]
    read = sum(len(text.split()) for text in texts)
    return {
        "object": "list",
        "model": request["model"],
        "data": [
            {"object": "embedding", "index": i, "embedding": _base64(vector) if packed else vector}
            for i, vector in enumerate(vectors)
        ],
        "usage": {"prompt_tokens": read, "total_tokens": read},
    }


def _base64(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error"}}


def _journal(path: Path | None) -> Journal:
    """Return a journal that appends to a file, with the time in nanoseconds, or goes nowhere."""
    lock = threading.Lock()

    def write(entry: Mapping[str, Any]) -> None:
        if path:
            with lock, path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({**entry, "time": time.time_ns()}) + "\n")

    return write


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(description="Scripted OpenAI-compatible model server of the demo.")
    parser.add_argument("--journal", type=Path, help="JSON lines file: each planted reply, when it was given")
    parser.add_argument("--faultless", action="store_true", help="play the story without the planted faults")
    options = parser.parse_args()
    script = load_script(() if options.faultless else load_faults())
    with serving(ScriptedModel(script, _journal(options.journal))) as server:
        print(server.base_url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
