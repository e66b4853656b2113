"""What `compact` makes of spans: smaller, the same when read, gone when forgotten."""

from __future__ import annotations

import random
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from memtrace_otel.model import OperationSpan, Variable
from memtrace_otel.otlp import encode_request
from memtrace_otel.otlp.encode import encode_span
from memtrace_otel.serve.arrivals import WatchedStore
from memtrace_otel.sources import SqliteStore, StoreError
from memtrace_otel.sources.bodies import UNDECODABLE, Bodies
from memtrace_otel.sources.packing import (
    NAMES,
    Packer,
    PackingError,
    is_packed,
    make_dictionary,
    make_sample,
    take_apart,
    unpack,
)
from memtrace_otel.testing import contract_span
from tests.unit.otlp.spans import random_span

HERE, THERE = "a" * 16, "b" * 16
SECRET = "walnut harbour 4711"


def no_stream(stream: int, size: int) -> bytes:
    raise AssertionError("nothing was cut out")


def test_random_spans_come_back_to_the_byte() -> None:
    rng = random.Random(5)
    spans = [random_span(rng) for _ in range(150)]
    bodies = [encode_span(span).SerializeToString() for span in spans]
    dictionary = make_dictionary(make_sample(bodies[::3]))
    packer = Packer(7, dictionary)
    for span, body in zip(spans, bodies, strict=True):
        packed = packer.pack(body)
        if (parts := take_apart(packed)) is None:
            assert packed == body
        else:
            assert parts.dictionary == 7
            assert unpack(parts, dictionary, span.trace_id, span.span_id, no_stream) == body


@pytest.mark.parametrize(
    "rest", [b"", b"\xff" * 50, b"0123456789abcdef\xff" * 20, b"\xff\x00abcdef0123456789a" * 9, b"f" * 999]
)
def test_what_looks_like_packed_comes_back_as_well(rest: bytes) -> None:
    ids = "12" * 16, "34" * 8
    body = b"\x0a\x10" + bytes.fromhex(ids[0]) + b"\x12\x08" + bytes.fromhex(ids[1]) + rest
    packed = Packer(NAMES, make_dictionary(b"")).pack(body)
    assert len(packed) <= len(body)
    assert (unpack(parts, make_dictionary(b""), *ids, no_stream) if (parts := take_apart(packed)) else packed) == body


def test_a_damaged_or_cut_off_body_is_an_error() -> None:
    span = talk(1)
    packed = Packer(NAMES, make_dictionary(b"")).pack(encode_span(span).SerializeToString())
    for damaged in (packed[:-3], packed[:9], packed[:5] + b"\xff\xff" + packed[7:]):
        with pytest.raises(PackingError):
            take_apart(damaged)


def test_any_byte_of_a_packed_body_that_became_another_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    spans = filled(path)
    with closing(sqlite3.connect(path)) as connection:
        bodies = Bodies(connection)
        for at, body in ((100, stored(path)[0][100]), (410, stored(path)[0][410])):
            ids = spans[at].trace_id, spans[at].span_id
            assert is_packed(body)
            assert Span.FromString(bodies.read(body, *ids)).name == spans[at].name
            for place in range(len(body)):
                for bit in range(8 if place else 3):
                    damaged = bytearray(body)
                    damaged[place] ^= 1 << bit
                    with pytest.raises(UNDECODABLE):
                        Span.FromString(bodies.read(bytes(damaged), *ids))


def talk(n: int, scope: str = HERE) -> OperationSpan:
    said = Variable(f"memory:{n}", content=f"{SECRET} was said the {n}th time, and nothing else", action="ADD")
    return contract_span(n, n, n, kind="create", scope=scope, outputs=(said,))


def filled(path: Path) -> list[OperationSpan]:
    spans = [talk(n, HERE if n % 2 else THERE) for n in range(1, 401)]
    spans += [contract_span(n, n, n, attributes={"text": SECRET * 3}) for n in range(401, 420)]
    with SqliteStore.open(path) as store:
        store.add_request(encode_request(spans))
        assert list(store.spans()) == spans
        before = store.size().used
        store.compact()
        assert store.size().used < before * 0.7
    return spans


def stored(path: Path) -> tuple[list[bytes], list[bytes]]:
    """The bodies as they are in the file, and the dictionaries."""
    with closing(sqlite3.connect(path)) as connection:
        bodies = [body for (body,) in connection.execute("SELECT body FROM span ORDER BY id")]
        samples = connection.execute("SELECT sample FROM dictionary").fetchall()
        return bodies, [zlib.decompress(sample) for (sample,) in samples]


def test_a_compacted_store_says_the_same_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    spans = filled(path)
    assert all(is_packed(body) for body in stored(path)[0])
    with SqliteStore.open(path) as store:
        assert list(store.spans()) == spans
        assert store.trace(spans[7].trace_id) == [spans[7]]
        store.add_request(encode_request([spans[0], talk(1001)]))
        assert store.decode() == 1
        assert store.check() == []
        store.compact()
        assert list(store.spans()) == [*spans, talk(1001)]
        assert store.check() == []
        assert store.prune(scope=HERE).spans == 201
        store.compact()
        assert store.check() == []
    assert len(stored(path)[1]) == 1  # nobody needs that of the pruned scope


def test_a_forgotten_scope_leaves_nothing_in_a_dictionary(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    spans = filled(path)
    read = Variable("memory:1", origin=spans[0].origin, content=SECRET)
    reader = contract_span(900, 900, 900, kind="retrieve", scope=THERE, inputs=(read,))
    with SqliteStore.open(path) as store:
        store.add_request(encode_request([reader]))
        store.compact()
        assert any(SECRET.encode() in sample for sample in stored(path)[1])
        store.forget(HERE, compact=False)
        assert not any(parts.dictionary == 1 for body in stored(path)[0] if (parts := take_apart(body)))
        assert stored(path)[1] == []  # the other scope had read it
        store.compact()
        assert store.check() == []
        assert [span for span in store.spans() if span.scope == THERE][:-1] == [s for s in spans if s.scope == THERE]
        forgotten = [span for span in store.spans() if span.scope == HERE]
        assert not any(span.outputs[0].content for span in forgotten)
    with closing(sqlite3.connect(path)) as connection:
        bodies = Bodies(connection)
        rows = connection.execute("SELECT body, trace_id, span_id FROM span WHERE scope = ?", (HERE,)).fetchall()
        assert not any(SECRET.encode() in bodies.read(*row) for row in rows)


def test_a_missing_dictionary_is_named_and_its_spans_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    spans = filled(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM dictionary WHERE scope = ?", (HERE,))
        connection.commit()
    with SqliteStore.open(path) as store:
        damages = store.check()
        assert {damage.place for damage in damages} == {f"span {span.origin}" for span in spans if span.scope == HERE}
        assert "dictionary" in damages[0].reason
        with pytest.raises(Exception, match=f"{spans[0].origin} cannot be decoded"):
            store.trace(spans[0].trace_id)


def unpacked(store: SqliteStore) -> int:
    query = "SELECT count(*) FROM span WHERE substr(body, 1, 1) NOT IN (x'03', x'04', x'05')"
    return int(store._connection.execute(query).fetchone()[0])


def put(store: WatchedStore, spans: list[OperationSpan]) -> None:
    store.add_request(encode_request(spans))
    while store.decode_batch():
        pass


def pack(store: WatchedStore, last: int) -> int:
    """Pack all up to a row; return in how many runs."""
    runs = 0
    while store.pack(last):
        runs += 1
    return runs


def test_what_comes_after_a_prune_is_packed(tmp_path: Path) -> None:
    with WatchedStore.open(tmp_path / "a.db") as store:
        put(store, [talk(n, HERE if n <= 50 else THERE) for n in range(1, 101)])
        pack(store, 100)
        store.prune(scope=THERE)
        pack(store, 100)  # what the server knew as the newest
        put(store, [talk(n, HERE) for n in range(101, 151)])
        pack(store, store.newest())
        assert unpacked(store) == 0


def test_a_run_makes_one_dictionary(tmp_path: Path) -> None:
    scopes = [f"{n:016x}" for n in range(6)]
    with WatchedStore.open(tmp_path / "a.db") as store:
        put(store, [talk(n, scopes[n % 6]) for n in range(1, 61)])
        counts = [0]
        while store.pack(60):
            counts.append(len(stored(tmp_path / "a.db")[1]))
        assert counts[-1] == 6
        assert max(after - before for before, after in pairwise(counts)) == 1
        assert unpacked(store) == 0
        assert store.check() == []


def test_of_many_spans_a_dictionary_takes_some() -> None:
    taken = 0

    def bodies() -> Iterator[bytes]:
        nonlocal taken
        for n in range(1, 5000):
            taken += 1
            yield encode_span(talk(n)).SerializeToString()

    assert 20_000 < len(make_sample(bodies())) <= 24_000
    assert taken < 1000


def test_rows_that_hold_nothing_are_left_and_the_others_packed(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    spans = [talk(n) for n in range(1, 101)]
    with WatchedStore.open(path) as store:
        put(store, spans)
    with closing(sqlite3.connect(path)) as connection:  # as a damaged page does
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = replace(sql, 'body BLOB NOT NULL', 'body BLOB')")
        connection.commit()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE span SET body = NULL WHERE id IN (1, 7, 8, 70, 71)")
        connection.commit()
    with WatchedStore.open(path) as store:
        pack(store, 100)
        assert unpacked(store) == 0
        assert store.trace(spans[8].trace_id) == [spans[8]]
        assert len(store.check()) >= 5
        store.compact()
        assert store.prune(before=spans[7].start).spans == 7


def test_what_packing_cannot_make_sense_of_is_an_error_of_the_store(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with WatchedStore.open(path) as store:
        put(store, [talk(n) for n in range(1, 101)])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO dictionary VALUES (1, ?, 'x', x'00')", (HERE,))
        connection.commit()
    with SqliteStore.open(path) as store, pytest.raises(StoreError, match="damaged row"):
        store.compact()


def test_forgetting_goes_past_a_damaged_body_of_another_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    writer = talk(1)
    read = Variable("memory:1", origin=writer.origin, content=SECRET)
    reader = contract_span(100, 100, 100, kind="retrieve", scope=THERE, inputs=(read,))
    with SqliteStore.open(path) as store:
        store.add_request(encode_request([writer, reader, *(talk(n, THERE) for n in range(200, 220))]))
        store.compact()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE span SET body = substr(body, 1, length(body) - 4) WHERE id = 10")
        connection.commit()
    with SqliteStore.open(path) as store:
        assert store.forget(HERE, compact=False).readers == 1
        assert stored(path)[1] == []
        assert [damage.kind for damage in store.check()] == ["undecodable"]


def test_the_dictionary_of_a_pruned_memory_goes_with_it(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with SqliteStore.open(path) as store:
        store.add_request(encode_request([talk(n, HERE if n % 2 else THERE) for n in range(1, 61)]))
        store.compact()
        store.prune(scope=HERE)
        with closing(sqlite3.connect(path)) as connection:
            assert {scope for (scope,) in connection.execute("SELECT scope FROM dictionary")} == {THERE}
        assert store.check() == []


def test_dictionaries_of_pruned_memories_make_room_for_traces(tmp_path: Path) -> None:
    texts = [random.Random(n).randbytes(60).hex() for n in range(1, 801)]  # whose dictionaries cannot be small
    said = [(Variable(f"memory:{n}", content=text, action="ADD"),) for n, text in enumerate(texts, 1)]
    spans = [contract_span(n, n, n, scope=f"{n // 40:016x}", outputs=each) for n, each in enumerate(said, 1)]
    with SqliteStore.open(tmp_path / "a.db") as store:
        store.add_request(encode_request(spans))
        store.compact()
        limit = store.size().used * 2 // 3
        store.prune(max_bytes=limit)
        assert limit - 16_000 < store.size().used <= limit
        assert store.check() == []


def test_some_free_pages_are_kept(tmp_path: Path) -> None:
    with WatchedStore.open(tmp_path / "a.db") as store:
        store._connection.execute("CREATE TABLE junk AS SELECT zeroblob(100000) AS text")
        store._connection.execute("DROP TABLE junk")
        while store.give_back():
            pass
        assert store._connection.execute("PRAGMA freelist_count").fetchone() == (16,)


def test_a_row_that_is_given_again_is_erased_by_a_forget_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    spans = [talk(n) for n in range(1, 41)]

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with SqliteStore.open(path) as store:
        store.add_request(encode_request(spans))
        store.decode()
        with monkeypatch.context() as patch:
            patch.setattr("memtrace_otel.sources.forgetting.drop_dictionaries", stop)
            with pytest.raises(KeyboardInterrupt):
                store.forget(HERE)
        store._connection.execute("UPDATE span SET start = 0 WHERE id = 40")
        store._connection.execute("UPDATE erasing SET note = '[\"kept\"]' WHERE span = 40")
        assert store.prune(before=1).spans == 1
        store.add_request(encode_request([talk(77)]))
        assert store.forget(HERE).references == ("kept",)
        assert store.trace(talk(77).trace_id)[0].outputs[0].content == ""
        assert store.check() == []
