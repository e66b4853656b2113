"""Texts that grow: kept once, read alone, gone with the last version that says them."""

from __future__ import annotations

import json
import random
import sqlite3
import threading
import zlib
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtrace_otel.model import Link, OperationSpan, Variable
from memtrace_otel.otlp import encode_request
from memtrace_otel.otlp.encode import encode_span
from memtrace_otel.serve.arrivals import WatchedStore
from memtrace_otel.sources import SqliteStore, StoreError
from memtrace_otel.sources import growing as growing_texts
from memtrace_otel.sources.bodies import Bodies
from memtrace_otel.sources.packing import ReadStream
from memtrace_otel.sources.rows import read_row
from memtrace_otel.sources.streams import PIECE
from memtrace_otel.sources.texts import LONG, long_texts
from memtrace_otel.testing import contract_span

HERE, THERE = "a" * 16, "b" * 16


def said(number: int, size: int = 200) -> str:
    """A message; each is different."""
    return f"{number}: " + "".join(random.Random(number).choices("abcdefgh ", k=size))


def version(number: int, text: str, scope: str = HERE) -> OperationSpan:
    """A span that writes a version of a buffer."""
    buffer = Variable("state:buffer", content=text, action="UPDATE")
    return contract_span(number, number, number, kind="update", scope=scope, outputs=(buffer,))


def growing(messages: int, scope: str = HERE, first: int = 1, size: int = 200) -> list[OperationSpan]:
    """Versions of a buffer of so many messages."""
    text = ""
    spans: list[OperationSpan] = []
    for number in range(first, first + messages):
        text += said(number, size)
        spans.append(version(number, text, scope))
    return spans


def filled(path: Path, *spans: OperationSpan) -> None:
    with SqliteStore.open(path) as store:
        for begin in range(0, len(spans), 20):
            store.add_request(encode_request(spans[begin : begin + 20]))
        store.compact()
        assert store.check() == []


def bytes_of_streams(path: Path) -> bytes:
    """Everything that the streams say, and only that the file says so."""
    with closing(sqlite3.connect(path)) as connection:
        pieces = connection.execute("SELECT text FROM piece ORDER BY id").fetchall()
        return b"".join(zlib.decompress(text) for (text,) in pieces)


def test_for_the_texts_of_one_span_the_one_before_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when there are more of them than are remembered: each reading of that one would take as long as it is."""
    monkeypatch.setattr(growing_texts, "_CACHED_BYTES", 0)
    texts = [said(number, LONG) for number in range(20)]
    spans = [
        contract_span(n, n, n, attributes={f"message.{i}": text + said(n, 50 * n) for i, text in enumerate(texts)})
        for n in (1, 2)
    ]
    path = tmp_path / "a.db"
    with SqliteStore.open(path) as store:
        store.add_request(encode_request(spans))
        store.decode()
    reads: list[str] = []
    read = Bodies.read

    def counted(self: Bodies, stored: bytes, trace_id: str, span_id: str, *more: ReadStream) -> bytes:
        reads.append(span_id)
        return read(self, stored, trace_id, span_id, *more)

    monkeypatch.setattr(Bodies, "read", counted)
    with WatchedStore.open(path) as store:
        while store.pack(store.newest()):
            pass
    assert 1 <= reads.count(spans[0].span_id) <= 3
    monkeypatch.undo()
    with SqliteStore.open(path) as store:
        assert [store.trace(span.trace_id) for span in spans] == [[span] for span in spans]


def test_the_bytes_of_a_scope_are_with_its_streams(tmp_path: Path) -> None:
    shared = growing(60)
    filled(
        tmp_path / "a.db", *shared, version(61, shared[-1].outputs[0].content, THERE), version(62, "short", "c" * 16)
    )
    with SqliteStore.open(tmp_path / "a.db") as store, closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        (streams,) = connection.execute("SELECT sum(length(text)) FROM piece").fetchone()
        bodies = dict(connection.execute("SELECT scope, sum(length(body)) FROM span GROUP BY scope"))
        assert streams > LONG
        assert {stats.scope: stats.bytes - bodies[stats.scope] for stats in store.scopes()} == {
            HERE: streams,
            THERE: streams,
            "c" * 16: 0,
        }


def test_long_texts_are_found_wherever_a_span_has_values() -> None:
    texts = [str(number) * LONG for number in range(5)]
    span = contract_span(
        1,
        1,
        1,
        attributes={"one": texts[0], "short": "short", "several": ("short", texts[1], texts[2])},
        links=(Link("1" * 32, "2" * 16, {"linked": texts[3]}),),
        outputs=(Variable("state:1", content=texts[4], action="ADD"),),
    )
    body = encode_span(span).SerializeToString()
    assert sorted(body[begin:end].decode() for begin, end in long_texts(body)) == sorted(texts)


@given(st.binary(max_size=200), st.integers(0, 300))
def test_bytes_that_are_no_span_have_no_texts_and_raise_nothing(garbage: bytes, cut: int) -> None:
    body = encode_span(version(1, "x" * 9000)).SerializeToString()
    assert long_texts(garbage * 50) == [] or garbage
    for begin, end in long_texts(body[:cut] + garbage + body[cut:]):
        assert LONG <= end - begin <= len(body) + len(garbage)


def edited(rng: random.Random, text: str, number: int) -> str:
    """The next version: added to, with a closing bracket, cut at its beginning, changed in the middle, or another."""
    new = said(number, rng.randrange(1, 2000))
    at = rng.randrange(len(text) + 1)
    if rng.random() < 0.6:
        return text + new
    return rng.choice([text[:-1] + new + "]", text[at:] + new, text[:at] + new + text[at:], text[:at], new * 5])


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_whatever_a_text_becomes_every_version_comes_back(seed: int) -> None:
    rng = random.Random(seed)
    texts = [said(n, 5000) for n in range(3)]
    spans: list[OperationSpan] = []
    for number in range(1, 60):
        which = rng.randrange(3)
        texts[which] = edited(rng, texts[which], number)
        spans.append(version(number, texts[which], rng.choice([HERE, THERE, ""])))
    arriving = sorted(spans, key=lambda span: span.start + rng.choice([0, 0, 0, 5]))
    with TemporaryDirectory() as folder, WatchedStore.open(Path(folder) / "a.db") as store:
        while arriving:
            some = [arriving.pop(0) for _ in range(min(len(arriving), rng.randrange(1, 15)))]
            store.add_request(encode_request(some))
            while store.decode_batch():
                pass
            if rng.random() < 0.2:
                store._packer = None  # as another process would, which remembers nothing
            while store.pack(store.newest()):
                pass
        assert list(store.spans()) == spans
        assert store.check() == []
        store.forget(HERE)
        left = [span for span in spans if span.scope != HERE]
        kept = [span for span in store.spans() if span.scope != HERE]
        assert kept == left
        assert store.check() == []
        store.prune(before=rng.randrange(60) * 10**9)
        assert store.check() == []
        store.prune(before=1 << 62)
        assert tables(Path(folder) / "a.db") == (0, 0, 0)


def tables(path: Path) -> tuple[int, ...]:
    with closing(sqlite3.connect(path)) as connection:
        return tuple(
            connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
            for name in ("stream", "piece", "stream_use")
        )


@pytest.mark.parametrize("messages", [100, 400])
@pytest.mark.parametrize("end", ["", "]"])
def test_versions_that_grow_cost_what_they_add(tmp_path: Path, end: str, messages: int) -> None:
    path = tmp_path / "a.db"
    spans = [version(n, span.outputs[0].content + end) for n, span in enumerate(growing(messages), 1)]
    filled(path, *spans)
    sizes = [len(span.outputs[0].content) for span in spans]
    assert sum(sizes) > messages / 2.1 * sizes[-1]
    assert bytes_of_texts(path) < 2 * sizes[-1]


def bytes_of_texts(path: Path) -> int:
    """What spans and streams take without rows and indexes."""
    sums = [f"(SELECT sum(length({column})) FROM {table})" for table, column in (("span", "body"), ("piece", "text"))]
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT {' + '.join(sums)}").fetchone()[0]


@pytest.mark.parametrize("shared", [0, 3000, 18_000])
@pytest.mark.parametrize("cached", [0, 8 << 20])
def test_many_that_grow_at_once_cost_what_they_add(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: int, cached: int
) -> None:
    monkeypatch.setattr("memtrace_otel.sources.growing._CACHED_BYTES", cached)
    path = tmp_path / "a.db"
    texts = [said(9999, shared)] * 12
    spans: list[OperationSpan] = []
    for number in range(1, 1200):
        texts[number % 12] += said(number)
        spans.append(version(number, texts[number % 12] + "]"))
    filled(path, *spans)
    assert bytes_of_texts(path) < 2.5 * sum(map(len, texts))


def test_a_version_is_read_without_the_others(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    spans = growing(300)
    filled(path, *spans)
    statements: list[str] = []
    with SqliteStore.open(path) as store:
        store._connection.set_trace_callback(statements.append)
        assert store.trace(spans[-1].trace_id) == [spans[-1]]
    pieces = -(-len(spans[-1].outputs[0].content) // PIECE)
    assert sum("FROM piece" in statement for statement in statements) == pieces
    assert sum("FROM span" in statement for statement in statements) == 1


def test_long_spans_come_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.db"
    spans = growing(30, size=2000)
    filled(path, *spans)
    read: list[OperationSpan] = []
    monkeypatch.setattr("memtrace_otel.sources.sqlite._PAGE_BYTES", 50_000)
    monkeypatch.setattr("memtrace_otel.sources.sqlite.read_row", lambda *row: read.append(read_row(*row)) or read[-1])
    with SqliteStore.open(path) as store:
        found = store.spans()
        last = [next(found) for _ in range(27)][-1]
        assert last == spans[26]
        assert len(read) == 27
        assert [last, *found] == spans[26:]


def test_what_only_a_forgotten_memory_said_is_in_no_stream(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    common = growing(40)
    more = [
        version(n, common[-1].outputs[0].content + "".join(said(m) for m in range(100, n + 20)), scope)
        for n, scope in [*((n, HERE) for n in range(100, 120)), *((n, THERE) for n in range(120, 125))]
    ]
    last = version(200, more[-1].outputs[0].content + "the secret is 4711", HERE)
    filled(path, *common, *more, last, version(201, last.outputs[0].content + "!", HERE))
    assert b"4711" in bytes_of_streams(path)
    with SqliteStore.open(path) as store:
        store.forget(HERE, compact=False)
        assert b"4711" not in bytes_of_streams(path)
        assert said(110).encode() in bytes_of_streams(path)  # the other memory says it
        assert [span for span in store.spans() if span.scope == THERE] == [s for s in more if s.scope == THERE]
        assert store.check() == []
        store.forget(THERE)
        assert bytes_of_streams(path) == b""
        assert tables(path) == (0, 0, 0)


def test_what_a_memory_read_from_a_forgotten_one_is_in_no_stream(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    writers = growing(40)
    readers = [
        contract_span(
            500 + n,
            500 + n,
            500 + n,
            kind="retrieve",
            scope=THERE,
            inputs=(Variable("state:buffer", origin=w.origin, content=w.outputs[0].content),),
        )
        for n, w in enumerate(writers)
    ]
    filled(path, *writers, *readers)
    with SqliteStore.open(path) as store:
        store.forget(HERE)
        assert bytes_of_streams(path) == b""
        assert not any(span.inputs[0].content for span in store.spans() if span.scope == THERE)
        assert store.check() == []


def test_what_was_pruned_is_in_no_stream_and_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    spans = growing(60)
    filled(path, *spans)
    with SqliteStore.open(path) as store:
        store.prune(before=spans[50].start)
        assert list(store.spans()) == spans[50:]
        assert store.check() == []
        with closing(sqlite3.connect(path)) as connection:  # as a prune by size does when clocks were wrong
            connection.execute("UPDATE span SET start = 1 WHERE id = (SELECT max(id) FROM span)")
            connection.commit()
        store.prune(before=2)
        assert said(60)[:150].encode() not in bytes_of_streams(path)
        assert list(store.spans()) == spans[50:-1]
        assert store.check() == []
        store.add_request(encode_request([spans[-1]]))  # its row is given again
        store.compact()
        assert list(store.spans()) == spans[50:]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(
            "SELECT count(*) FROM span WHERE substr(body, 1, 1) NOT IN (x'03', x'04', x'05')"
        ).fetchone() == (0,)


def test_a_row_that_was_given_again_says_nothing_of_what_went(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memtrace_otel.sources.growing._CACHED_BYTES", 0)
    old = f'["{said(1, 5000)}"]'
    grown = f'{old[:-1]}, "{said(2, 400)}"]'
    spans = [version(1, old), version(2, old), version(3, old, THERE)]
    with WatchedStore.open(tmp_path / "a.db") as store:
        for batch in ([*spans], [version(4, grown)]):
            store.add_request(encode_request(batch))
            while store.decode_batch():
                pass
            while store.pack(store.newest()):  # by one packer, which remembers the row of the third version
                pass
            store.prune(scope=THERE)
        assert list(store.spans()) == [*spans[:2], version(4, grown)]


def test_a_damaged_piece_is_named_by_the_spans_that_need_it_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    spans = growing(200)
    filled(path, *spans)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE piece SET text = x'00' WHERE id & 0xFFFFFF = 1")
        connection.commit()
    with SqliteStore.open(path) as store:
        damages = store.check()
        broken = {f"span {span.origin}" for span in spans if len(span.outputs[0].content) > PIECE}
        assert {damage.place for damage in damages} == broken
        assert "piece 1 of its stream 1 is damaged" in damages[0].reason
        assert store.trace(spans[10].trace_id) == [spans[10]]
        with pytest.raises(StoreError, match=f"{spans[-1].origin} cannot be decoded"):
            store.trace(spans[-1].trace_id)
        added = version(999, spans[-1].outputs[0].content + "and more")
        store.add_request(encode_request([added]))  # is packed all the same
        store.compact()
        assert store.trace(added.trace_id) == [added]


@pytest.mark.parametrize("how", ["forget", "prune"])
def test_what_needs_a_damaged_piece_goes_all_the_same(tmp_path: Path, how: str) -> None:
    path = tmp_path / "a.db"
    common = growing(100, THERE)
    more = [version(n, common[-1].outputs[0].content + "the secret is 4711" * n) for n in range(200, 205)]
    filled(path, *common, *more)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE piece SET text = x'00' WHERE id & 0xFFFFFF = 1")
        connection.commit()
    with SqliteStore.open(path) as store:
        if how == "forget":
            store.forget(HERE)
        else:
            store.prune(scope=HERE)
        assert not any(variable.content for span in store.trace(more[0].trace_id) for variable in span.outputs)
        assert store.trace(common[20].trace_id) == [common[20]]
        assert f"span {common[-1].origin}" in {damage.place for damage in store.check()}


def test_of_a_stream_a_short_text_is_compared_with_as_much(tmp_path: Path) -> None:
    spans = growing(42, size=20_000)
    statements: list[str] = []
    with WatchedStore.open(tmp_path / "a.db") as store:
        store.add_request(encode_request(spans))
        while store.decode_batch():
            pass
        while store.pack(len(spans)):
            pass
        short = version(999, spans[-1].outputs[0].content[: 48 * PIECE + 100])
        store.add_request(encode_request([short]))
        while store.decode_batch():
            pass
        store._packer = None
        store._connection.set_trace_callback(statements.append)
        assert store.pack(len(spans) + 1) == 1
        assert sum("FROM piece" in statement for statement in statements) == 49
        assert store.trace(short.trace_id) == [short]


def test_check_names_a_stream_that_is_not_as_long_as_needed(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    spans = growing(60)
    filled(path, *spans)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM stream_use WHERE span > 50")
        connection.execute("INSERT INTO stream_use VALUES (777, 1, 5)")
        connection.commit()
    with SqliteStore.open(path) as store:
        found = [(damage.kind, damage.place) for damage in store.check()]
        assert found[:2] == [("dangling", "stream 1")] * 2
        assert found[2:] == [("mismatch", f"span {span.origin}") for span in spans[50:]]


def test_check_names_pieces_without_a_stream(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    filled(path, *growing(60))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO piece VALUES (7 << 24, x'00')")
        connection.commit()
    with SqliteStore.open(path) as store:
        assert [(damage.kind, damage.place) for damage in store.check()] == [("dangling", "stream 7")]


def test_several_pack_one_file_at_once_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    spans = growing(150)
    with SqliteStore.open(path) as store:
        store.add_request(encode_request(spans))
        store.decode()

    def pack() -> None:
        with WatchedStore.open(path) as store:
            while store.pack(len(spans)):
                pass

    packing = [threading.Thread(target=pack) for _ in range(3)]
    for thread in packing:
        thread.start()
    with SqliteStore.open(path) as store:
        while any(thread.is_alive() for thread in packing):
            assert list(store.spans()) == spans
        assert list(store.spans()) == spans
        assert store.check() == []
        assert tables(path)[0] == 1


def test_a_run_that_fails_leaves_the_file_and_the_next_one_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    spans = growing(200)

    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with WatchedStore.open(path) as store:
        store.add_request(encode_request(spans))
        while store.decode_batch():
            pass
        for _ in range(3):
            with monkeypatch.context() as patch:
                patch.setattr("memtrace_otel.sources.runs.use_streams", fail)
                with pytest.raises(StoreError, match="full"):
                    store.pack(len(spans))
            store.pack(len(spans))
        while store.pack(len(spans)):
            pass
        assert list(store.spans()) == spans
        assert store.check() == []


def test_the_middle_of_json_is_no_special_case(tmp_path: Path) -> None:
    """Messages of a model call, without a memory scope: nobody's dictionary, but a stream."""
    path = tmp_path / "a.db"
    messages: list[dict[str, str]] = []
    spans: list[OperationSpan] = []
    for number in range(1, 120):
        messages.append({"role": "user", "content": said(number)})
        spans.append(contract_span(number, number, number, attributes={"gen_ai.input.messages": json.dumps(messages)}))
    filled(path, *spans)
    with SqliteStore.open(path) as store:
        assert list(store.spans()) == spans
    whole = sum(len(str(span.attributes)) for span in spans)
    assert path.stat().st_size < whole / 8
