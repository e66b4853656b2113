"""The doctor as a whole: the probe runs in a real interpreter; the last run is judged with the set-up."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from memtrace_otel.doctor import Finding, State, examine
from tests.unit.doctor.conftest import one


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment that records with contents into `tmp_path`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "MEMTRACE_"))}
    return kept | {
        "OTEL_TRACES_EXPORTER": "memtrace",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
        "MEMTRACE_DB": str(tmp_path / "memtrace.db"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }


@pytest.fixture
def web_page() -> Iterator[str]:
    """A web server that answers every request with an HTML page."""

    class Page(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<html>welcome</html>")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def by_state(findings: list[Finding], state: State) -> set[str]:
    return {finding.check for finding in findings if finding.state == state}


def test_a_right_set_up_lacks_only_a_recorded_run(environ: dict[str, str], tmp_path: Path) -> None:
    findings = examine(Path(sys.executable), environ)
    assert by_state(findings, State.PROBLEM) == set()
    assert by_state(findings, State.WARNING) == {"recorded"}
    assert one(findings, "exporter").found == str(tmp_path / "memtrace.db")
    assert not (tmp_path / "memtrace.db").exists()


def test_a_web_page_at_the_endpoint_is_no_receiver(environ: dict[str, str], web_page: str) -> None:
    changes = {
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_ENDPOINT": web_page,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_TRACES_SAMPLER": "traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": "0.25",
        "OTEL_SPAN_LINK_COUNT_LIMIT": "4",
    }
    findings = examine(Path(sys.executable), environ | changes)
    assert by_state(findings, State.PROBLEM) == {"endpoint", "sampler", "limits"}
    assert "a web page" in one(findings, "endpoint").found


def test_a_python_that_does_not_start_is_named(tmp_path: Path) -> None:
    [found] = examine(tmp_path / "python", {})
    assert (found.check, found.state) == ("python", State.PROBLEM)
