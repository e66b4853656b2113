"""A server that speaks as much of Jaeger's and Tempo's HTTP APIs as a test tells it to say."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

Reply = tuple[int, bytes]
Answer = Callable[[str, dict[str, str]], Reply]


@dataclass
class Asked:
    """Requests in order: path, query, headers."""

    port: int = 0
    requests: list[tuple[str, dict[str, str], dict[str, str]]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def answering(answer: Answer) -> Iterator[Asked]:
    """Run a server on loopback that answers with (status, body) of `answer(path, query)`."""
    asked = Asked()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            asked.requests.append((parts.path, query, {k.lower(): v for k, v in self.headers.items()}))
            status, body = answer(parts.path, query)
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    asked.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
