"""What `compact` makes of spans: smaller, the same when read, gone when forgotten."""

from __future__ import annotations

import random
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

import pytest

from memtrace_otel.model import OperationSpan, Variable
from memtrace_otel.otlp import encode_request
from memtrace_otel.otlp.encode import encode_span
from memtrace_otel.store import SqliteStore
from memtrace_otel.store.bodies import Bodies
from memtrace_otel.store.packing import NAMES, Packer, PackingError, dictionary_of, make_sample, unpack
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
    sample = make_sample(bodies[::3])
    packer = Packer(7, sample)
    for span, body in zip(spans, bodies, strict=True):
        packed = packer.pack(body)
        if dictionary_of(packed) is None:
            assert packed == body
        else:
            assert dictionary_of(packed) == 7
            assert unpack(packed, sample, span.trace_id, span.span_id, no_stream) == body


@pytest.mark.parametrize(
    "rest", [b"", b"\xff" * 50, b"0123456789abcdef\xff" * 20, b"\xff\x00abcdef0123456789a" * 9, b"f" * 999]
)
def test_what_looks_like_packed_comes_back_as_well(rest: bytes) -> None:
    ids = "12" * 16, "34" * 8
    body = b"\x0a\x10" + bytes.fromhex(ids[0]) + b"\x12\x08" + bytes.fromhex(ids[1]) + rest
    packed = Packer(NAMES, b"").pack(body)
    assert len(packed) <= len(body)
    assert (packed if dictionary_of(packed) is None else unpack(packed, b"", *ids, no_stream)) == body


def test_a_damaged_or_cut_off_body_is_an_error() -> None:
    span = talk(1)
    packed = Packer(NAMES, b"").pack(encode_span(span).SerializeToString())
    for damaged in (packed[:-3], packed[:9], packed[:5] + b"\xff\xff" + packed[7:]):
        with pytest.raises(PackingError):
            unpack(damaged, b"", span.trace_id, span.span_id, no_stream)


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
    assert all(dictionary_of(body) is not None for body in stored(path)[0])
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
        assert not any(dictionary_of(body) == 1 for body in stored(path)[0])
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
