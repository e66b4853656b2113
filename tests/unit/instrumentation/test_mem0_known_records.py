"""What is known of records: which are forgotten, and which go with a store. No Mem0 needed."""

from __future__ import annotations

import tracemalloc

import pytest

from memtrace_otel.instrumentation.mem0 import known_records
from memtrace_otel.instrumentation.mem0.known_records import KnownRecord, KnownRecords


def test_what_was_seen_longest_ago_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_records, "MOST", 2)
    first, second, third = (KnownRecord("memories", f"of {id}", id) for id in ("1", "2", "3"))
    records = KnownRecords()
    for record in (first, second, first, third):
        records.saw(record)
    assert [record in records for record in (first, second, third)] == [True, False, True]
    assert [records.scope_of(id) for id in ("1", "2", "3")] == ["of 1", "", "of 3"]


def test_a_store_takes_its_own_records_only() -> None:
    mine, other = (KnownRecord("memories", "of ann", id, place) for id, place in (("1", 1), ("2", 2)))
    records = KnownRecords()
    records.saw(mine)
    records.saw(other)
    assert records.take("memories", place=1) == [mine]
    assert other in records


def test_what_was_added_for_two_agents_goes_with_the_second() -> None:
    one, other = (frozenset({("agent_id", id)}) for id in "ab")
    run = one | {("run_id", "r")}
    shared, alone, seen_only = (KnownRecord("memories", "of ann", id) for id in ("1", "2", "3"))
    records = KnownRecords()
    records.saw(shared, one)
    records.saw(shared, other)
    records.saw(alone, run)
    records.saw(seen_only)
    assert records.take("memories", scope="of ann", ids=one) == [alone]
    assert records.take("memories", scope="of ann", ids=one) == []
    assert records.take("memories", scope="of ann", ids=other) == [shared]
    assert records.take("memories", scope="of ann") == [seen_only]


@pytest.mark.parametrize(("runs", "goes"), [(16, True), (17, False), (1000, False)])
def test_what_was_added_for_many_stays_until_all_of_its_owner_goes(runs: int, goes: bool) -> None:
    record = KnownRecord("memories", "of ann", "1")
    all_ids = [frozenset({("run_id", str(number))}) for number in range(runs)]
    records = KnownRecords()
    for ids in all_ids:
        records.saw(record, ids)
    taken = [records.take("memories", scope="of ann", ids=ids) for ids in all_ids]
    assert taken == [[]] * (runs - 1) + [[record] if goes else []]
    assert records.take("memories", scope="of ann") == ([] if goes else [record])


def test_what_was_added_for_many_takes_little_memory() -> None:
    records = KnownRecords()
    tracemalloc.start()
    try:
        for number in range(10_000):
            records.saw(KnownRecord("memories", "of ann", "1"), frozenset({("run_id", str(number))}))
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()
