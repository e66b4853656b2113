"""Files that cannot be written, are damaged or are not ours: everything is there, or is refused by its name."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from click.testing import CliRunner

from memtrace_otel.cli import main as memtrace_otel
from memtrace_otel.sources import SqliteStore, StoreError
from tests.integration.sources.commands import COMMANDS
from tests.integration.sources.works import HERE, THERE, filled, life, request

ROOT = Path(__file__).parents[3]
PAGE = 4096
TRACES = range(1, 9)
"""What `filled` acknowledges."""


@pytest.fixture
def path() -> Iterator[Path]:
    """A file of some pages with an empty log, in a folder that everybody may enter."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "a.db"
        filled(path)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("VACUUM")
        path.chmod(0o666)
        yield path
        Path(folder).chmod(0o755)


def unprivileged(path: Path) -> dict[str, tuple[int, str]]:
    command = [sys.executable, "-m", "tests.integration.sources.commands", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def command(*words: str) -> tuple[int, str]:
    """Exit status and output; a traceback fails the test."""
    result = CliRunner().invoke(memtrace_otel, words)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result.exit_code, result.output


@pytest.mark.parametrize(("file", "folder"), [(0o444, 0o777), (0o444, 0o555), (0o666, 0o555), (0o000, 0o777)])
def test_without_the_right_to_write_everything_is_shown_or_refused(path: Path, file: int, folder: int) -> None:
    before = path.read_bytes()
    path.chmod(file)
    path.parent.chmod(folder)
    outcomes = unprivileged(path)
    assert outcomes.keys() == COMMANDS.keys()
    for name, (status, output) in outcomes.items():
        if status == 0:
            assert name in ("stats", "check")
            assert "24 spans" in output or "is sound" in output
        else:
            assert (status, output.startswith(f"memtrace-otel: {path}: ")) == (2, True), output
            assert "have to be writable" in output
    assert path.read_bytes() == before


def readable(path: Path) -> set[str]:
    """The spans that can be read; what cannot be is refused, never left out."""
    found: set[str] = set()
    with SqliteStore.open(path) as store:
        for n in TRACES:
            with suppress(StoreError):
                spans = store.trace(life(n)[0].trace_id)
                assert [span.origin for span in spans] == [span.origin for span in life(n)]
                found |= {span.origin for span in spans}
    return found


EVERYTHING = {span.origin for n in TRACES for span in life(n)}


def test_a_page_of_garbage_is_found_and_spans_in_it_are_named(path: Path) -> None:
    content = path.read_bytes()
    partly = 0
    for page in range(1, len(content) // PAGE):
        path.write_bytes(content[: page * PAGE] + b"\xaa" * PAGE + content[(page + 1) * PAGE :])
        status, output = command("store", "check", "--db", str(path))
        assert status == 1
        assert "integrity: " in output
        lost = EVERYTHING - readable(path)
        if lost != EVERYTHING:
            partly += bool(lost)
            traces = {origin[:32] for origin in lost}
            assert {words[1][:32] for words in named(output)} >= traces, output
    assert partly > 1


def test_a_table_or_index_that_cannot_be_read_is_named(path: Path) -> None:
    content = path.read_bytes()
    query = "SELECT type, name, rootpage FROM sqlite_master WHERE type IN ('table', 'index')"
    with closing(sqlite3.connect(path)) as connection:
        parts = connection.execute(query).fetchall()
    assert ("index", "span_start") in {part[:2] for part in parts}
    for type, name, page in parts:
        path.write_bytes(content[: (page - 1) * PAGE] + b"\xaa" * PAGE + content[page * PAGE :])
        status, output = command("store", "check", "--db", str(path))
        found = re.findall(r"integrity: ((?:table|index) \w+): ", output)
        assert (status, found) == (1, [f"{type} {name}"]), output
    path.write_bytes(content)
    assert command("store", "check", "--db", str(path))[0] == 0


def test_what_can_be_read_of_a_damaged_file_goes_into_another_one(path: Path) -> None:
    with SqliteStore.open(path) as store:
        store.compact()
        store.add_request(request(11))
    content = path.read_bytes()
    assert command("import", str(path), "--db", str(path.with_name("whole.db")))[0] == 0
    with SqliteStore.open(path.with_name("whole.db")) as store:
        assert {span.origin for span in store.spans()} == EVERYTHING | {span.origin for span in life(11)}
    lost = 0
    for page in range(1, len(content) // PAGE):
        path.write_bytes(content[: page * PAGE] + b"\xaa" * PAGE + content[(page + 1) * PAGE :])
        new = path.with_name(f"{page}.db")
        status, output = command("import", str(path), "--db", str(new))
        assert status == 0, output
        with SqliteStore.open(new) as store:
            assert store.check() == []
            found = {span.origin for span in store.spans()}
            for n in TRACES:
                if life(n)[0].origin in found:
                    assert store.trace(life(n)[0].trace_id)[0] == life(n, HERE if n % 2 else THERE, n * 100)[0]
        assert found >= readable(path)
        missing = len(EVERYTHING - found)
        assert (f"spans that cannot be read: {missing}" in output) == bool(missing), output
        lost += bool(missing)
    assert 0 < lost < len(content) // PAGE / 2


def named(output: str) -> list[list[str]]:
    """Kind and origin of the spans that `check` names."""
    found = [line.split(": ") for line in output.splitlines()]
    return [
        [words[0], words[1].removeprefix("span ")] for words in found if len(words) > 1 and words[1].startswith("span ")
    ]


def test_a_cut_off_file_is_refused_with_what_can_be_done(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-1000])  # its last page is damaged, no more
    assert command("store", "check", "--db", str(path))[0] == 1
    readable(path)
    for size in (PAGE, len(content) // 2, len(content) - PAGE):
        path.write_bytes(content[:size])
        status, output = command("store", "check", "--db", str(path))
        assert (status, output.startswith(f"memtrace-otel: {path}: the file was cut off")) == (2, True), output
        assert "store check" not in output


@pytest.mark.parametrize(("at", "garbage"), [(0, bytes(100)), (0, b"\xff" * PAGE), (20, b"\xff" * 40), (28, bytes(12))])
def test_a_damaged_header_is_refused_or_harmless(path: Path, at: int, garbage: bytes) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:at] + garbage + content[at + len(garbage) :])
    status, output = command("store", "stats", "--db", str(path))
    if status:
        assert (status, output.startswith(f"memtrace-otel: {path}: ")) == (2, True), output
    else:
        assert readable(path) == EVERYTHING


def test_a_span_whose_bytes_were_changed_is_refused_by_its_name(path: Path) -> None:
    span = life(2)[1]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "UPDATE span SET body = substr(body, 1, length(body) / 2) WHERE span_id = ?", (span.span_id,)
        )
        connection.commit()
    with SqliteStore.open(path) as store:
        with pytest.raises(StoreError, match=f"span {span.origin} cannot be decoded"):
            store.trace(span.trace_id)
        assert store.trace(life(1)[0].trace_id) == life(1, size=100)
    status, output = command("store", "check", "--db", str(path))
    assert status == 1
    assert named(output) == [["undecodable", span.origin]]


def test_a_byte_of_a_packed_text_that_became_another_is_found(path: Path) -> None:
    with SqliteStore.open(path) as store:
        store.compact()
    span = life(2)[0]
    query = "SELECT body FROM span WHERE span_id = ?"
    with closing(sqlite3.connect(path)) as connection:
        (body,) = connection.execute(query, (span.span_id,)).fetchone()
    content = path.read_bytes()
    assert content.count(body) == 1
    for at in range(content.index(body) + len(body) // 2, content.index(body) + len(body), 5):
        path.write_bytes(content[:at] + bytes((content[at] ^ 1,)) + content[at + 1 :])
        with SqliteStore.open(path) as store, pytest.raises(StoreError, match=f"span {span.origin} cannot be decoded"):
            store.trace(span.trace_id)
        assert readable(path) == EVERYTHING - {each.origin for each in life(2)}
        status, output = command("store", "check", "--db", str(path))
        assert (status, named(output)) == (1, [["undecodable", span.origin]])


def test_a_torn_body_in_the_inbox_is_set_aside_and_counted(path: Path) -> None:
    with SqliteStore.open(path) as store:
        store.add_requests([request(11), request(12)])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE inbox SET body = substr(body, 1, length(body) / 2) WHERE id % 2 = 0")
        connection.commit()
    with SqliteStore.open(path) as store:
        found = [store.trace(life(n)[0].trace_id) == life(n) for n in (11, 12)]
        assert sorted(found) == [False, True]
        assert store.stats().quarantined == 2  # one was there before
        assert "OTLP" in store.quarantined()[-1]


def copy_in_use(path: Path) -> list[int]:
    """Make a file whose log holds ten requests, as a killed process leaves it; return where each was in the log."""
    log = path.with_name("a.db-wal")
    ends: list[int] = []
    with SqliteStore.open(path) as store:
        for n in range(20, 30):
            store.add_request(request(n))
            ends.append(log.stat().st_size)
        kept = path.read_bytes(), log.read_bytes()
    path.write_bytes(kept[0])
    log.write_bytes(kept[1])
    return ends


@pytest.mark.parametrize("first", [0, 4, 8])
def test_a_log_that_is_damaged_in_its_middle_is_kept_and_named(path: Path, first: int) -> None:
    ends = copy_in_use(path)
    log = path.with_name("a.db-wal")
    damaged = bytearray(log.read_bytes())
    damaged[ends[first] - 2000] ^= 1
    log.write_bytes(damaged)
    with SqliteStore.open(path) as store:  # what SQLite takes over is there, and the rest lost
        assert [bool(store.trace(life(n)[0].trace_id)) for n in range(20, 30)] == [n < first for n in range(10)]
        assert [(damage.kind, damage.place) for damage in store.check()] == [("integrity", "log")]
    assert path.with_name("a.db-wal.damaged").read_bytes() == damaged
    assert command("store", "check", "--db", str(path))[0] == 1
    with SqliteStore.open(path) as store:
        assert store.forget(HERE).finished
    assert list(path.parent.glob("*.damaged")) == []  # contents were in it


def test_a_log_that_ends_in_the_middle_of_a_write_is_no_damage(path: Path) -> None:
    ends = copy_in_use(path)
    log = path.with_name("a.db-wal")
    for cut in (ends[-2], ends[-2] + 10, ends[-1] - 4100, ends[-1] - 1):
        saved = path.read_bytes(), log.read_bytes()
        log.write_bytes(saved[1][:cut])
        with SqliteStore.open(path) as store:
            assert store.trace(life(28)[0].trace_id) == life(28)
            assert not path.with_name("a.db-wal.damaged").exists()
        path.write_bytes(saved[0])
        log.write_bytes(saved[1])
