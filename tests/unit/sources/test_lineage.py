"""Who read and who wrote what is found in every part of a file, and under its own name only."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from memtrace_otel.model import OperationSpan, Variable
from memtrace_otel.otlp import encode_request
from memtrace_otel.sources import SqliteStore, lineage
from memtrace_otel.testing import contract_span
from tests.leaves import break_leaf

SCOPE, OTHER = "a" * 16, "b" * 16
ROWS_OF_A_PART = 1 << lineage.PART_BITS


def writing(number: int, *inputs: Variable) -> OperationSpan:
    """A span in a trace of its own that writes a record."""
    outputs = (Variable("memory:1", action="UPDATE"),)
    return contract_span(number, number, number, kind="update", scope=SCOPE, inputs=inputs, outputs=outputs)


FIRST = writing(1)
LATER = [writing(number, Variable("memory:1", "previous", FIRST.origin)) for number in range(2, 12)]


def add(path: Path, span: OperationSpan) -> None:
    with SqliteStore.open(path) as store:
        store.add_request(encode_request([span]))
        assert store.decode() == 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file whose first writer is in the first part, its readers in later ones, some parts being without any."""
    path = tmp_path / "store.db"
    add(path, FIRST)
    for number, span in enumerate(LATER):
        filler = contract_span(100 + number, 1)
        add(path, filler)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(
                "UPDATE span SET id = id + ? WHERE trace_id = ?", (ROWS_OF_A_PART * (number % 3), filler.trace_id)
            )
            connection.commit()
        add(path, span)
    return path


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with SqliteStore.open(path) as store:
        yield store


def test_readers_and_writers_are_found_in_every_part(store: SqliteStore) -> None:
    assert store.check() == []
    assert store.readers(FIRST.origin) == LATER
    assert sorted(store.writers("memory:1")) == [span.trace_id for span in (FIRST, *LATER)]


@pytest.mark.parametrize("most", [1, 3, 8, 100])
def test_writers_before_a_trace_are_the_last_ones_before_it(store: SqliteStore, most: int) -> None:
    before = [span.trace_id for span in (FIRST, *LATER[:-2])]
    assert sorted(store.writers_before("memory:1", LATER[-2].trace_id, most)) == before[-most:]


def test_parts_in_front_that_were_pruned_are_not_looked_into(store: SqliteStore) -> None:
    store.prune(before=LATER[-2].start)
    assert store.check() == []
    assert store.readers(FIRST.origin) == LATER[-2:]
    assert store.writers_before("memory:1", LATER[-1].trace_id, 9) == [LATER[-2].trace_id]


def test_a_damaged_page_of_the_first_spans_keeps_no_other_from_being_found(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    long = {"long": "x" * 3000}
    with SqliteStore.open(path) as store:
        first = [contract_span(number, 1, attributes=long) for number in range(100, 110)]
        store.add_request(encode_request([*first, FIRST, *LATER]))
        store.decode()
    break_leaf(path, "span", 0)
    with SqliteStore.open(path) as store:
        assert store.readers(FIRST.origin) == LATER
        assert {*store.writers("memory:1")} == {span.trace_id for span in (FIRST, *LATER)}
        assert store.writers_before("memory:1", LATER[1].trace_id, 1) == [LATER[0].trace_id]


def test_an_empty_store_has_no_readers_and_no_writers(tmp_path: Path) -> None:
    with SqliteStore.open(tmp_path / "empty.db") as store:
        assert (store.readers(FIRST.origin), store.writers("memory:1")) == ([], [])
        assert store.writers_before("memory:1", FIRST.trace_id, 9) == []


@pytest.fixture
def one_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every name has the hash of every other."""

    def same(name: str) -> int:
        return 7

    monkeypatch.setattr(lineage, "_hash_of", same)


@pytest.mark.usefixtures("one_hash")
def test_names_that_share_a_number_are_told_apart(tmp_path: Path) -> None:
    mine, others = writing(1), contract_span(2, 2, 2, kind="update", scope=OTHER, outputs=(Variable("memory:2"),))
    judge = contract_span(3, 3, 3, kind="judge", inputs=(Variable("memory:1", "answer", mine.origin),))
    strangers = [
        contract_span(4, 4, 4, kind="judge", inputs=(Variable("memory:2", "answer", others.origin, content="kept"),)),
        contract_span(5, 5, 5, kind="retrieve", scope="c" * 16, inputs=(Variable("memory:2", "hit", others.origin),)),
        contract_span(6, 6, 6, kind="judge", inputs=(Variable("answer:7", "answer", f"{7:032x}-{7:016x}"),)),
    ]
    with SqliteStore.open(tmp_path / "store.db") as store:
        store.add_request(encode_request([mine, others, judge, *strangers]))
        assert store.readers(mine.origin) == [judge]
        forgotten = store.forget(SCOPE, compact=False)
        assert (forgotten.spans, forgotten.readers) == (2, 0)
        assert [span for stranger in strangers for span in store.trace(stranger.trace_id)] == strangers
        pruned = store.prune(scope=SCOPE)
        assert (pruned.spans, pruned.traces) == (2, 2)
        assert list(store.spans()) == [others, *strangers]
        assert store.check() == []
