"""`serve --ui`: pages on what the server receives, in a process that ends with the server."""

from __future__ import annotations

import socket
from contextlib import suppress
from urllib.error import URLError
from urllib.request import urlopen

from memtrace_otel.otlp import encode_request
from memtrace_otel.serve.progress import Process
from tests.integration.serve.conftest import Start
from tests.unit.report.stories import Story, deleted


def test_the_pages_show_what_the_server_attributes(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = start("--ui", str(port), MEMTRACE_QUIET_SECONDS="0.2")

    def shows(text: str) -> bool:
        with suppress(URLError, ConnectionError), urlopen(f"http://127.0.0.1:{port}/failures", timeout=10) as page:
            return text in page.read().decode()
        return False

    server.until(lambda: shows("No failure matches."))
    story = Story()
    deleted(story)
    assert server.post("/v1/traces", encode_request(story.spans))[0] == 200
    server.until(lambda: shows('href="/failure/'))
    assert server.child(Process.SHOWING)
    assert server.terminate() == 0
    assert not shows("")
