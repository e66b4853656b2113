"""What is printed after a run whose outcome is known. The whole of it is seen in tests/integration and tests/e2e."""

from __future__ import annotations

import time
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from memtrace_otel.annotate import Delivery
from memtrace_otel.annotate.target import Target
from memtrace_otel.canary.history import write_history
from memtrace_otel.demo import show
from memtrace_otel.demo.run import DemoRun
from memtrace_otel.otlp import encode_request
from memtrace_otel.pages import NO_PAGE, UNSURE, FoundPage, JaegerPage
from memtrace_otel.sources import SqliteStore

ENDPOINT = "http://backend:4317"
PAGE = JaegerPage("http://backend:16686")


@pytest.mark.parametrize(
    ("found", "said", "unsaid"),
    [
        (None, NO_PAGE, PAGE.base),
        (None, '{ span.memtrace.failure.type = "update" }', PAGE.base),
        (FoundPage(PAGE, False), UNSURE, NO_PAGE),
        (FoundPage(PAGE, True), f"{PAGE.base}/trace/", UNSURE),
    ],
)
def test_addresses_are_printed_as_sure_as_they_are(
    found: FoundPage | None, said: str, unsaid: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = tmp_path / "run.db"
    history = write_history(time.time_ns())
    with SqliteStore.open(database) as store:
        store.add_request(encode_request(history.spans))
    asked: list[tuple[str, str]] = []

    def find_page(endpoint: str, trace_id: str) -> FoundPage | None:
        asked.append((endpoint, trace_id))
        return found

    monkeypatch.setattr(show, "run_demo", lambda *_, **__: DemoRun(tmp_path, database, [], [], tmp_path))
    monkeypatch.setattr(show, "deliver", lambda *_, **__: Delivery(Target("traces", "grpc", ENDPOINT), 1))
    monkeypatch.setattr(show, "find_page", find_page)
    output = StringIO()
    show.show_demo(tmp_path, Console(file=output), environ={"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT})
    places, _, told = output.getvalue().partition("In your backend")
    assert "the same into your backend" not in places
    assert said in told
    assert history.answer.trace_id in told
    assert unsaid not in told
    assert "went to" in told
    assert asked == [(ENDPOINT, history.answer.trace_id)]
