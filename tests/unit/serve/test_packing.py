"""The idle server packs, and nothing that it meets in a file ends the process."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from memtrace_otel.otlp import encode_request
from memtrace_otel.serve.arrivals import WatchedStore
from memtrace_otel.serve.packing import Packing
from memtrace_otel.sources import StoreError
from tests.leaves import break_leaf
from tests.unit.sources.test_growing import growing, said, version


def filled(path: Path) -> WatchedStore:
    store = WatchedStore.open(path)
    store.add_request(encode_request(growing(20)))
    while store.decode_batch():
        pass
    return store


def work(packing: Packing, store: WatchedStore) -> None:
    """As an idle process does until all spans are old enough."""
    for _ in range(3):
        packing._due = 0
        while packing.step(store):
            pass


def corrupt(path: Path) -> StoreError:
    """The error of a damaged page."""
    error = StoreError(path, "database disk image is malformed")
    cause = sqlite3.DatabaseError()
    cause.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    error.__cause__ = cause
    return error


def test_an_error_of_any_kind_is_waited_out_without_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    packing = Packing(0.01)

    def fail(last: int) -> int:
        raise TypeError("walnut harbour")

    with filled(tmp_path / "a.db") as store:
        with monkeypatch.context() as patch:
            patch.setattr(store, "pack", fail)
            work(packing, store)
        assert "TypeError" in caplog.text
        assert "walnut" not in caplog.text
        work(packing, store)
        assert packing.packed == 20


def test_a_damaged_page_ends_packing_for_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packing = Packing(0.01)
    tried: list[int] = []

    def fail(last: int) -> int:
        tried.append(last)
        raise corrupt(tmp_path)

    with filled(tmp_path / "a.db") as store:
        monkeypatch.setattr(store, "pack", fail)
        work(packing, store)
        work(packing, store)
        assert len(tried) == 1


def test_packing_goes_on_where_a_damaged_page_keeps_free_ones_from_being_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packing = Packing(0.01)

    def fail() -> bool:
        raise corrupt(tmp_path)

    with filled(tmp_path / "a.db") as store:
        monkeypatch.setattr(store, "give_back", fail)
        work(packing, store)
        assert packing.packed == 20


def test_a_damaged_page_of_the_streams_is_packed_past_and_named(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    spans = growing(300)
    with WatchedStore.open(path) as store:
        store.add_request(encode_request(spans))
        while store.decode_batch():
            pass
        while store.pack(store.newest()):
            pass
        store.settle()
    break_leaf(path, "piece", -1)
    new = [version(1000 + n, spans[-1].outputs[0].content + said(n)) for n in range(5)]
    packing = Packing(0.01)
    with WatchedStore.open(path) as store:
        store.add_request(encode_request(new))
        while store.decode_batch():
            pass
        work(packing, store)
        assert packing.packed == 5
        assert [store.trace(span.trace_id) for span in new] == [[span] for span in new]
        with pytest.raises(StoreError, match=f"{spans[-1].origin} cannot be decoded"):
            store.trace(spans[-1].trace_id)
        assert f"span {spans[-1].origin}" in {damage.place for damage in store.check()}
