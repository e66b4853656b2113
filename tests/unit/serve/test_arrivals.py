"""The store as the background processes see it."""

from __future__ import annotations

import time
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


def test_in_a_burst_more_than_twice_as_many_requests_come_as_are_decoded(store: WatchedStore) -> None:
    assert not store.is_in_burst()  # nothing ever came
    send(store, 3)
    store.decode_batch()
    assert store.is_in_burst()
    store.decode_batch()
    assert not store.is_in_burst()  # none came
    send(store, 2)
    store.decode_batch()
    assert not store.is_in_burst()  # more wait than before, but decoding without pauses may follow
    send(store, 3)
    store.decode_batch()
    assert store.is_in_burst()
    while store.decode_batch():
        pass
    assert not store.is_in_burst()
    send(store, 2)
    store.decode_batch()
    store.decode_batch()
    assert not store.is_in_burst()  # all are decoded


def test_past_ten_seconds_decoding_makes_no_pauses_until_nothing_waits(
    store: WatchedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    send(store, 5)
    store.decode_batch()
    assert store.is_in_burst()
    now += 11
    send(store, 3)
    store.decode_batch()
    assert not store.is_in_burst()
    while store.decode_batch():
        pass
    assert not store.is_in_burst()
    send(store, 5)
    store.decode_batch()
    assert store.is_in_burst()
