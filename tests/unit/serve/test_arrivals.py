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


def decode_all(store: WatchedStore) -> None:
    while store.decode_batch():
        pass


def test_in_a_burst_more_requests_wait_than_were_decoded(store: WatchedStore) -> None:
    decode_all(store)
    send(store, 5)
    store.decode_batch()
    assert store.is_in_burst()
    store.decode_batch()
    assert store.is_in_burst()  # three, since that was looked at first one was decoded
    store.decode_batch()
    assert not store.is_in_burst()  # two and two
    send(store, 1)
    store.decode_batch()
    assert not store.is_in_burst()
    decode_all(store)
    send(store, 2)
    store.decode_batch()
    assert store.is_in_burst()
    store.decode_batch()
    assert not store.is_in_burst()  # none waits


def test_what_waited_when_decoding_began_is_no_burst(store: WatchedStore) -> None:
    send(store, 5)
    store.decode_batch()
    store.decode_batch()
    store.decode_batch()
    assert not store.is_in_burst()


def test_past_ten_seconds_decoding_makes_no_pauses_until_nothing_waits(
    store: WatchedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    decode_all(store)
    send(store, 5)
    store.decode_batch()
    assert store.is_in_burst()
    now += 11
    send(store, 3)
    store.decode_batch()
    assert not store.is_in_burst()
    decode_all(store)
    send(store, 5)
    store.decode_batch()
    assert store.is_in_burst()
