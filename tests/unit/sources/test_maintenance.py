"""Maintenance of the database file: check, prune, forget, compact, statistics."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from memtrace_otel import semconv
from memtrace_otel.model import Link, OperationSpan, Variable, split_origin
from memtrace_otel.otlp import encode_request
from memtrace_otel.sources import SqliteStore, StoreStats
from memtrace_otel.sources.maintenance import Pruned
from memtrace_otel.testing import contract_span

SECOND = 1_000_000_000
HERE, THERE = "a" * 16, "b" * 16
SECRET = "the secret is 4711"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore.open(tmp_path / "a.db") as store:
        yield store


def test_an_empty_database_has_nothing(store: SqliteStore) -> None:
    assert store.stats() == StoreStats(0, 0, 0, 0, 0, 0, 0, 0)
    assert store.scopes() == []
    assert store.check() == []


def test_statistics_count_by_scope(store: SqliteStore) -> None:
    spans = [contract_span(1, 1, 1, kind="create", scope=HERE), contract_span(2, 2, 5, kind="update", scope=HERE)]
    store.add_request(encode_request([*spans, contract_span(2, 3)]))
    (stats,) = store.scopes()
    assert (stats.scope, stats.spans, stats.traces) == (HERE, 2, 2)
    assert (stats.first, stats.last) == (SECOND, 5 * SECOND)
    assert store.stats().spans == 3


# --- check -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("body", [b"\xff", b"\x78not zlib", b"\x78", b"", "text", None])
def test_check_names_a_span_that_cannot_be_decoded(store: SqliteStore, tmp_path: Path, body: object) -> None:
    store.add_request(encode_request([contract_span(1, 1), contract_span(1, 2)]))
    assert store.check() == []
    store.decode()
    with sqlite3.connect(tmp_path / "a.db", isolation_level=None) as connection:
        if body is None:
            connection.execute("UPDATE span SET resource = 99 WHERE id = 2")
        else:
            connection.execute("UPDATE span SET body = ? WHERE id = 2", (body,))
    connection.close()
    damages = store.check()
    if body == b"":  # an empty protobuf message decodes
        assert damages == []
        return
    place = "span 2" if body is None else f"span {contract_span(1, 2).origin}"
    assert [(damage.kind, damage.place) for damage in damages] == [
        ("dangling" if body is None else "undecodable", place)
    ]


def test_check_reports_a_damaged_page(store: SqliteStore, tmp_path: Path) -> None:
    store.add_requests(encode_request([contract_span(n, n, n, name="x" * 200)]) for n in range(1, 200))
    store.decode()
    store.compact()
    store.close()
    with (tmp_path / "a.db").open("r+b") as file:
        file.seek(20 * 4096)
        file.write(b"\xa5" * 4096)
    with SqliteStore.open(tmp_path / "a.db") as store:
        damages = store.check()
    assert damages
    assert {damage.kind for damage in damages} == {"integrity"}


# --- prune -----------------------------------------------------------------------------------------------------------
def test_prune_by_age_deletes_whole_traces_whose_last_span_is_old(store: SqliteStore) -> None:
    old = [contract_span(1, 1, 1), contract_span(1, 2, 9)]
    half = [contract_span(2, 3, 1), contract_span(2, 4, 10)]
    store.add_request(encode_request([*old, *half]))
    store.save_verdict(old[0].origin, "id1", "{}")
    store.save_verdict(half[0].origin, "id2", "{}")
    store.mark_sent("jaeger", ["marker"])
    assert store.prune(before=10 * SECOND) == Pruned(1, 2)
    assert list(store.spans()) == half
    assert [verdict.attribution_id for verdict in store.verdicts()] == ["id2"]
    assert store.unsent("jaeger", ["marker"]) == []
    assert store.check() == []


def test_prune_by_scope_leaves_traces_of_other_memories(store: SqliteStore) -> None:
    mixed = [
        contract_span(2, 3, 3, kind="create", scope=HERE),
        contract_span(2, 4, 4, kind="create", scope=THERE),
        contract_span(2, 5, 5, name="without a scope"),
    ]
    own = [contract_span(1, 1, 1, kind="create", scope=HERE), contract_span(1, 2, 2, name="without a scope")]
    young = contract_span(3, 6, 20, kind="create", scope=HERE)
    store.add_request(encode_request([*own, *mixed, young]))
    assert store.prune(before=10 * SECOND, scope=HERE) == Pruned(1, 2)
    assert list(store.spans()) == [*mixed, young]
    assert store.prune(scope=HERE) == Pruned(1, 1)
    assert list(store.spans()) == mixed


def test_prune_by_size_deletes_quarantined_requests_then_the_oldest_traces(store: SqliteStore) -> None:
    store.add_requests(
        encode_request([contract_span(n, n, n, attributes={"text": f"{n}" * 10_000})]) for n in range(1, 301)
    )
    store.add_request(b"\xff" * 1_000_000)
    store.decode()
    limit = store.size().used - 900_000
    assert store.prune(max_bytes=limit) == Pruned(0, 0, 1)
    limit = store.size().used // 2
    pruned = store.prune(max_bytes=limit)
    assert 0 < pruned.traces < 300
    assert store.trace_ids() == [f"{n:032x}" for n in range(pruned.traces + 1, 301)]
    assert store.size().used <= limit


@pytest.mark.parametrize("limits", [{}, {"scope": ""}, {"before": 1, "scope": ""}])
def test_prune_without_a_limit_is_refused(store: SqliteStore, limits: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="scope"):
        store.prune(**limits)  # type: ignore[arg-type]


def test_a_pruned_span_may_be_delivered_again(store: SqliteStore) -> None:
    writer = contract_span(1, 1, 1, kind="create", outputs=(Variable("memory:1", action="ADD"),))
    reader = contract_span(2, 2, 2, kind="retrieve", inputs=(Variable("memory:1", origin=writer.origin),))
    store.add_request(encode_request([writer, reader]))
    store.prune(before=3 * SECOND)
    assert store.readers(writer.origin) == []
    store.add_request(encode_request([reader]))
    assert store.readers(writer.origin) == [reader]


def test_prune_waits_for_an_attribution_that_runs(store: SqliteStore, tmp_path: Path) -> None:
    store.add_request(encode_request([contract_span(1, 1)]))
    with SqliteStore.open(tmp_path / "a.db") as other, other.turn():
        pruning = threading.Thread(target=store.prune, kwargs={"before": 2**62})
        pruning.start()
        pruning.join(0.2)
        assert pruning.is_alive()
        assert len(list(other.spans())) == 1
    pruning.join()
    assert list(store.spans()) == []


# --- forget ----------------------------------------------------------------------------------------------------------
def secret_trace(number: int = 1, scope: str = HERE) -> list[OperationSpan]:
    """A memory is written and an answer without a scope made of it."""
    write = contract_span(
        number, 1, 1, kind="create", scope=scope, outputs=(Variable("memory:1", action="ADD", content=SECRET),)
    )
    answer = contract_span(
        number, 2, 2, kind="respond", inputs=(Variable("memory:1", "hit", write.origin),), attributes={"text": SECRET}
    )
    return [write, answer]


def test_forget_deletes_the_scope_and_the_spans_without_a_scope_around_it(store: SqliteStore, tmp_path: Path) -> None:
    write, answer = secret_trace()
    read = (Variable("answer:1", "answer", answer.origin),)
    judge = contract_span(2, 3, 9, kind="judge", inputs=read, attributes={"text": SECRET})
    around = contract_span(2, 4, 9, name="turn", attributes={"text": SECRET})
    other = contract_span(3, 5, 9, kind="retrieve", scope=THERE, inputs=(Variable("memory:1", "hit", write.origin),))
    beside = contract_span(1, 6, 9, kind="create", scope=THERE)
    plain = contract_span(4, 7, 9, name="nothing to do with it")
    store.add_request(encode_request([write, answer, judge, around, other, beside, plain]))
    forgotten = store.forget(HERE)
    assert (forgotten.spans, forgotten.log_bytes) == (4, 0)
    assert sorted(store.spans(), key=lambda span: span.span_id) == [other, beside, plain]
    assert store.check() == []
    assert_gone(tmp_path)


def test_forget_deletes_attributions_that_name_the_memory(store: SqliteStore, tmp_path: Path) -> None:
    spans, stranger = secret_trace(), secret_trace(9, THERE)
    own = [
        replace(contract_span(number, number, 9), instrumentation_scope=semconv.ATTRIBUTION_SCOPE, links=links)
        for number, links in ((20, (Link(*split_origin(spans[1].origin)),)), (21, ()))
    ]
    step = replace(
        contract_span(20, 22, 9, attributes={semconv.STEP_NOTE: SECRET}),
        instrumentation_scope=semconv.ATTRIBUTION_SCOPE,
    )
    store.add_request(encode_request([*spans, *own, step]))
    store.save_verdict(spans[1].origin, "id1", f'{{"reason": "{SECRET}"}}')
    store.save_verdict(own[1].origin, "id2", f'{{"trace_id": "{spans[0].trace_id}", "reason": "{SECRET}"}}')
    store.save_verdict(stranger[1].origin, "id3", "{}")
    assert (store.forget(HERE).spans, store.forget(HERE).verdicts) == (4, 0)
    assert list(store.spans()) == [own[1]]
    assert [verdict.attribution_id for verdict in store.verdicts()] == ["id3"]
    assert_gone(tmp_path)


def test_forget_deletes_quarantined_requests_that_name_the_scope(store: SqliteStore) -> None:
    store.add_request(encode_request(secret_trace())[:-1])
    assert store.forget(THERE).quarantined == 0
    assert store.forget(HERE).quarantined == 1
    assert store.stats().quarantined == 0


def test_forget_of_an_unknown_scope_deletes_nothing(store: SqliteStore) -> None:
    store.add_request(encode_request(secret_trace()))
    assert store.forget(THERE).spans == 0
    assert list(store.spans()) == secret_trace()
    with pytest.raises(ValueError, match="scope"):
        store.forget("")


def test_forget_says_what_is_left_while_a_reader_keeps_the_text_in_the_file(store: SqliteStore, tmp_path: Path) -> None:
    store.add_request(encode_request(secret_trace()))
    store.decode()
    reader = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM span").fetchone()
    assert store.forget(HERE).log_bytes > 0
    assert store.forget(HERE).log_bytes > 0  # also where nothing is left to delete
    reader.close()
    assert store.compact().log_bytes == 0
    assert_gone(tmp_path)


def assert_gone(folder: Path) -> None:
    assert not [path.name for path in folder.iterdir() if SECRET.encode() in path.read_bytes()]


# --- compact ---------------------------------------------------------------------------------------------------------
def test_compact_gives_back_the_space_of_deleted_spans(store: SqliteStore) -> None:
    spans = [contract_span(n, n, n, attributes={"text": f"{n}" * 10_000}) for n in range(1, 101)]
    store.add_request(encode_request(spans))
    store.decode()
    store.prune(before=91 * SECOND)
    before = store.size()
    assert before.free > 0
    assert store.compact().bytes >= before.free
    assert store.size().free == 0
    assert list(store.spans()) == spans[90:]


def test_maintenance_does_not_disturb_a_reader(store: SqliteStore) -> None:
    store.add_request(encode_request([contract_span(n, n, n) for n in range(1, 601)]))
    reading = store.spans()
    seen = [next(reading).span_id]
    store.prune(before=100 * SECOND)
    store.compact()
    store.add_request(encode_request([contract_span(9, 9999, 1000)]))
    seen += [span.span_id for span in reading]
    assert seen[-1] == f"{9999:016x}"
    assert set(seen) >= {f"{n:016x}" for n in range(100, 601)}
