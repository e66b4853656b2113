"""What is printed after a run whose outcome is known. The whole of it is seen in tests/integration and tests/e2e."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from memtrace_otel.demo import show
from memtrace_otel.demo.run import DemoRun
from memtrace_otel.pages import NO_PAGE
from memtrace_otel.store import SqliteStore


def test_without_a_page_that_answers_no_address_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = tmp_path / "run.db"
    SqliteStore.open(database).close()
    monkeypatch.setattr(show, "run_demo", lambda *_, **__: DemoRun(tmp_path, database, [], [], tmp_path))
    monkeypatch.setattr(show, "find_page", lambda endpoint: None)
    output = StringIO()
    show.show_demo(tmp_path, Console(file=output), environ={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://backend:4317"})
    told = output.getvalue().partition("In your backend")[2]
    assert NO_PAGE in told
    assert "went to" in told
