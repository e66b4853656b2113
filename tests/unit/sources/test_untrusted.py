"""A database file of a stranger: refused, or read within bounds of memory; and files that strangers cannot read."""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from memtrace_otel.model import Variable
from memtrace_otel.otlp import encode_request
from memtrace_otel.sources import SourceError, SqliteStore
from memtrace_otel.sources.compression import DICTIONARY, MAX_BODY_BYTES, BodyError, compress, decompress
from memtrace_otel.sources.exporter import MemtraceSpanExporter
from memtrace_otel.testing import contract_span

MIB = 1 << 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.db"
    with SqliteStore.open(path) as store:
        store.add_request(encode_request([contract_span(1, 1, kind="respond"), contract_span(1, 2)]))
        store.decode()
    return path


def change(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    "statements",
    [
        ("DROP TABLE span", "CREATE VIEW span AS SELECT 1 AS id, randomblob(1000000) AS body"),
        ("DROP TABLE inbox", "CREATE VIEW inbox AS SELECT 1 AS id, zeroblob(1000000000) AS body, 0 AS received"),
        ("CREATE VIEW more AS SELECT 1",),
        ("CREATE TRIGGER deleting AFTER INSERT ON span BEGIN DELETE FROM span; END",),
        ("ALTER TABLE span ADD COLUMN large AS (zeroblob(1000000000))",),
        ("DROP INDEX span_start",),
        ("CREATE TABLE more (id)",),
    ],
)
def test_a_file_with_other_tables_is_refused(path: Path, statements: tuple[str, ...]) -> None:
    change(path, *statements)
    for create in (True, False):
        with pytest.raises(SourceError, match="not those of schema version 1"):
            SqliteStore.open(path, create=create)


def bomb(size: int) -> bytes:
    """A span body of a few kilobytes that decompresses to `size` bytes."""
    deflate = zlib.compressobj(9, zdict=DICTIONARY)
    return deflate.compress(b"\x52\xff\xff\xff\x7f" + bytes(size)) + deflate.flush()


def test_a_body_that_grows_too_much_is_not_decompressed(path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE span SET body = ? WHERE id = 2", (bomb(100 * MIB),))
    connection.close()
    with SqliteStore.open(path) as store:
        assert [span.span_id for span in store.trace(f"{1:032x}")] == [f"{1:016x}"]
        (sentence,) = store.incomplete
        assert f"{1:032x}-{2:016x} cannot be decoded" in sentence
        with store.session() as session:
            assert session.incomplete == []
            list(session.spans())
            assert session.incomplete == [sentence]
        (damage,) = store.check()
        assert (damage.kind, damage.place) == ("undecodable", f"span {1:032x}-{2:016x}")


def test_a_small_file_full_of_such_bodies_takes_little_memory(path: Path) -> None:
    connection = sqlite3.connect(path)
    query = (
        'INSERT INTO span (trace, span, parent, part, kind, scope, start, "end", evaluates, resource, body)'
        " VALUES (?, ?, x'', 0, 'judge', '', 1, 1, 1, 1, ?)"
    )
    body = bomb(32 * MIB)
    connection.executemany(query, [(bytes(15) + b"\x01", n.to_bytes(8, "big"), body) for n in range(3, 100)])
    connection.commit()
    connection.close()
    assert path.stat().st_size < 6 * MIB
    for command in (["store", "check"], ["attribute", "--all", "--no-annotate"]):
        ran = subprocess.run(
            [sys.executable, "-m", "memtrace_otel", *command, "--db", str(path)],
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ran.returncode in (0, 1), ran.stderr
        assert "MemoryError" not in ran.stderr


def test_a_trace_larger_than_the_bound_is_read_in_part(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memtrace_otel.sources.sqlite._TRACE_BYTES", 10)
    with SqliteStore.open(path) as store:
        assert len(store.trace(f"{1:032x}")) == 1
        assert "only the first" in store.incomplete[0]


def test_compression_gives_every_body_back() -> None:
    for body in (
        b"",
        b"\n\x10",
        b"\n" + os.urandom(1000),
        b"\n" + b"x" * 5 * MIB,
        encode_request([contract_span(1, 1)]),
    ):
        assert decompress(compress(body)) == body
    large = encode_request([contract_span(n, n, outputs=(Variable("memory:1", content="tea"),)) for n in range(1, 9)])
    assert len(compress(large)) < len(large) / 2
    with pytest.raises(BodyError):
        decompress(bomb(MAX_BODY_BYTES + 1))


def test_the_dictionary_is_a_part_of_the_file_format() -> None:
    """Another dictionary needs another schema version: bodies of older files could not be read."""
    assert zlib.crc32(DICTIONARY) == 2117859969


def test_a_name_that_looks_like_a_uri_is_a_file_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("file:x?mode=memory", ":memory:"):
        with SqliteStore.open(name) as store:
            store.add_request(encode_request([contract_span(1, 1)]))
        with SqliteStore.open(tmp_path / name, create=False) as store:
            assert len(list(store.spans())) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="no modes of files")
def test_the_files_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "b.db"
    MemtraceSpanExporter(path).export_request(encode_request([contract_span(1, 1)]))
    with SqliteStore.open(path) as store, store.turn():
        store.decode()
        modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.glob("b.db*")}
    assert modes == dict.fromkeys(["b.db", "b.db-wal", "b.db-shm", "b.db-lock"], 0o600)
