"""The store as the background processes see it."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from memtrace_otel.otlp import encode_request
from memtrace_otel.serve.arrivals import WatchedStore
from memtrace_otel.testing import contract_span


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[WatchedStore]:
    """A store that decodes one request at a time."""
    monkeypatch.setattr("memtrace_otel.serve.arrivals._BATCH_BYTES", 1)
    with WatchedStore.open(tmp_path / "a.db") as store:
        yield store


def send(store: WatchedStore, count: int) -> None:
    for number in range(1, count + 1):
        store.add_request(encode_request([contract_span(number, number, number)]))


def test_a_burst_is_more_requests_waiting_after_a_batch_than_before(store: WatchedStore) -> None:
    assert not store.is_in_burst()
    send(store, 3)
    store.decode_batch()
    assert store.is_in_burst()  # two, where none waited
    store.decode_batch()
    assert not store.is_in_burst()  # one
    send(store, 1)
    store.decode_batch()
    assert not store.is_in_burst()  # one came, one went
    send(store, 2)
    store.decode_batch()
    assert store.is_in_burst()


def test_requests_that_have_waited_long_are_decoded_without_pauses(
    store: WatchedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memtrace_otel.serve.arrivals._BURST_SECONDS", 0.0)
    send(store, 3)
    store.decode_batch()
    assert not store.is_in_burst()
