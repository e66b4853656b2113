"""The database as the background processes of a server use it."""

from __future__ import annotations

import time
from collections.abc import Generator
from pathlib import Path

import pytest

from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import encode_request
from memtrace_otel.serve.arrivals import LiveStore
from memtrace_otel.sources import SqliteStore
from memtrace_otel.testing import contract_span


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[LiveStore]:
    """A store that decodes one request at a time."""
    monkeypatch.setattr("memtrace_otel.serve.arrivals._BATCH_BYTES", 1)
    with LiveStore.open(tmp_path / "a.db") as store:
        yield store


def send(store: LiveStore, count: int) -> None:
    for number in range(1, count + 1):
        store.add_request(encode_request([contract_span(number, number, number)]))


def decode_all(store: LiveStore) -> None:
    while store.decode_batch():
        pass


def test_in_a_burst_more_requests_wait_than_were_decoded(store: LiveStore) -> None:
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


def test_what_waited_when_decoding_began_is_no_burst(store: LiveStore) -> None:
    send(store, 5)
    store.decode_batch()
    store.decode_batch()
    store.decode_batch()
    assert not store.is_in_burst()


def test_past_ten_seconds_decoding_makes_no_pauses_until_nothing_waits(
    store: LiveStore, monkeypatch: pytest.MonkeyPatch
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


def judged(trace: int, label: str = "fail", start: int = 5) -> OperationSpan:
    """An answer with an evaluation."""
    attributes = {"gen_ai.evaluation.score.label": label}
    return OperationSpan(f"{trace:032x}", "1" * 16, kind="respond", start=start, attributes=attributes)


def test_failing_evaluations_are_found_once_by_arrival_whichever_process_decoded_them(tmp_path: Path) -> None:
    with LiveStore.open(tmp_path / "a.db") as store, SqliteStore.open(tmp_path / "a.db") as other:
        other.add_request(encode_request([judged(1), judged(2, "pass")]))
        other.decode()
        assert store.failing(since=10**18) == [f"{1:032x}"]  # an old span that arrived lately
        store.add_request(encode_request([judged(3)]))
        assert store.failing(0) == []  # not yet decoded
        assert store.decode_batch()
        other.add_request(encode_request([judged(4), contract_span(9, 9)]))
        other.decode()
        assert store.failing(0) == [f"{3:032x}", f"{4:032x}"]
        assert store.failing(0) == []


def test_a_passing_evaluation_is_found_when_the_answer_has_a_verdict(tmp_path: Path) -> None:
    with LiveStore.open(tmp_path / "a.db") as store:
        assert store.failing(0) == []
        store.save_verdict(judged(1).origin, "id", "{}")
        store.add_request(encode_request([judged(1, "pass"), judged(2, "pass")]))
        assert store.decode_batch()
        assert store.failing(0) == [f"{1:032x}"]


def test_after_a_prune_new_evaluations_are_found(tmp_path: Path) -> None:
    with LiveStore.open(tmp_path / "a.db") as store, SqliteStore.open(tmp_path / "a.db") as other:
        for number in (1, 2, 3):
            other.add_request(encode_request([judged(number, start=number)]))
            other.decode()
            assert store.failing(0) == [f"{number:032x}"]
            assert other.prune(before=number + 1)
