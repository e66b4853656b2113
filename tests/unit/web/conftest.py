"""A database of recorded stories with their verdicts, and the pages on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import encode_request
from memtrace_otel.pipeline.diagnose import diagnose, record
from memtrace_otel.web.app import Pages
from memtrace_otel.web.store import PageStore
from tests.unit.report.stories import ALL, Story

HOST = "http://127.0.0.1"
SAME_SITE = {"origin": HOST}


def told(change: Callable[[OperationSpan], OperationSpan] = lambda span: span) -> list[OperationSpan]:
    """Every story in a memory of its own, and one right answer."""
    story = Story()
    for number, tell in enumerate(ALL):
        story.scope = f"{number:016x}"
        tell(story)
    healthy = [replace(span, trace_id=span.trace_id[::-1]) for span in story.spans[-4:] if span.kind == "respond"]
    return [change(span) for span in (*story.spans, *healthy)]


def filled(path: Path, spans: list[OperationSpan]) -> PageStore:
    store = PageStore.open(path)
    store.add_request(encode_request(spans))
    for diagnosis in diagnose(store, store):
        record(store, diagnosis)
    return store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PageStore]:
    with filled(tmp_path / "run.db", told()) as store:
        yield store


@pytest.fixture
def client(store: PageStore) -> TestClient:
    """Ada, on loopback."""
    return TestClient(
        Pages(store, {}).app(), HOST, headers=SAME_SITE, cookies={"memtrace_annotator": "ada"}, follow_redirects=False
    )
