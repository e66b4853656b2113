"""The replayer of Mem0: recorded writes give the memory that Mem0 would hold, and no chat model is called."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from memtrace_otel.attribution.replay import Search, Write
from memtrace_otel.attribution.replay.mem0 import Mem0Replayer
from tests.integration.model_stub import ModelStub

WRITES = [
    Write("job", "Works as a lawyer", 1),
    Write("pool", "The pool opens at 6", 2),
    Write("gone", "Works as a lawyer at night", 3),
    Write("job", "Works as a pilot", 4),
    Write("gone", "", 5),
    Write("never", "", 6),
]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelStub]:
    with ModelStub() as stub:
        monkeypatch.setenv("OPENAI_BASE_URL", stub.url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        yield stub


def test_writes_are_applied_in_order_and_searched(server: ModelStub) -> None:
    replayer = Mem0Replayer()
    search = Search("Works as", limit=5, threshold=0.0, embedding_model="recorded")
    assert replayer.search(WRITES, search)[0] == "Works as a pilot"
    assert sorted(replayer.search(WRITES, search)) == ["The pool opens at 6", "Works as a pilot"]  # a store of its own
    assert len(replayer.search(WRITES, Search("Works as", limit=1, threshold=0.0))) == 1
    assert server.prompts == []
