"""`memtrace-otel store`: its words, its exit statuses, what it asks before."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from memtrace_otel.cli.store import store
from memtrace_otel.model import Variable
from memtrace_otel.otlp import encode_request
from memtrace_otel.sources import SqliteStore
from memtrace_otel.testing import contract_span

SCOPE = "a" * 16


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "a.db"
    said = Variable("memory:1", content="a secret", action="ADD", store="s3://contents/1")
    now = time.time_ns() // 10**9
    with SqliteStore.open(path) as opened:
        opened.add_request(encode_request([contract_span(1, 1, 1, kind="create", scope=SCOPE, outputs=(said,))]))
        opened.add_request(encode_request([contract_span(2, 2, now, kind="create", scope="b" * 16)]))
    return path


def run(database: Path, *arguments: str, answer: str = "") -> Result:
    return CliRunner().invoke(store, [*arguments, "--db", str(database)], input=answer, catch_exceptions=False)


def test_stats_name_the_scopes(database: Path) -> None:
    assert f"scope {SCOPE}: 1 spans, 1 traces, last 1970-01-01T00:00:01+00:00" in run(database, "stats").stdout
    counts = json.loads(run(database, "stats", "--json").stdout)
    assert (counts["spans"], counts["free"] >= 0, counts["used"] > 0) == (2, True, True)
    assert [scope["scope"] for scope in counts["by_scope"]] == [SCOPE, "b" * 16]


def test_a_closed_pipe_ends_the_command_silently(database: Path) -> None:
    """As `| head -1` does; more than a pipe holds need not be written for that."""
    with subprocess.Popen(
        [sys.executable, "-m", "memtrace_otel", "store", "stats", "--db", str(database)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (1, b"")


def test_check_ends_with_one_when_something_is_damaged(database: Path) -> None:
    with SqliteStore.open(database) as opened:
        opened.decode()
    sound = run(database, "check")
    assert (sound.exit_code, sound.stdout) == (0, f"{database} is sound\n")
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("UPDATE span SET body = x'ff' WHERE id = 1")
    connection.close()
    damaged = run(database, "check", "--json")
    assert damaged.exit_code == 1
    assert json.loads(damaged.stdout)["kind"] == "undecodable"
    assert "1 damage in" in damaged.stderr
    assert run(database.with_name("none.db"), "check").exit_code == 2


def test_forget_deletes_the_text_from_the_file(database: Path) -> None:
    done = run(database, "forget", SCOPE, "--yes")
    assert (done.exit_code, done.stdout) == (0, "deleted: 1 spans, 0 verdicts, 0 quarantined requests\n")
    assert b"a secret" not in database.read_bytes()


def test_forget_says_that_a_reader_keeps_the_text_in_the_file(database: Path) -> None:
    with SqliteStore.open(database) as opened:
        opened.decode()
    reader = sqlite3.connect(database, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM span").fetchone()
    for deleted in (1, 0):  # also where nothing is left to delete
        done = run(database, "forget", SCOPE, "--yes")
        assert (done.exit_code, f"deleted: {deleted} spans" in done.stdout) == (0, True)
        assert f"bytes of {database}-wal still hold deleted text" in done.stderr
    reader.close()
    assert "still hold" not in run(database, "compact").stderr
    assert run(database, "forget", SCOPE, "--yes").exit_code == 1


@pytest.mark.parametrize("arguments", [("forget", SCOPE), ("prune", "--older-than", "1.5d")])
def test_nothing_is_deleted_without_confirmation(database: Path, arguments: tuple[str, ...]) -> None:
    assert run(database, *arguments, answer="n\n").exit_code == 1
    with SqliteStore.open(database) as opened:
        assert opened.trace(f"{1:032x}")[0].outputs[0].content == "a secret"
    assert run(database, *arguments, answer="y\n").exit_code == 0


def test_prune_by_age_and_compact(database: Path) -> None:
    assert run(database, "prune", "--older-than", "1.5d", "--yes").stdout == "deleted 1 spans of 1 traces\n"
    assert run(database, "prune", "--max-size", "1GiB", "--yes").stdout == "deleted 0 spans of 0 traces\n"
    assert run(database, "prune", "--scope", "b" * 16, "--yes").stdout == "deleted 1 spans of 1 traces\n"
    assert "bytes given back" in run(database, "compact").stdout


def test_quarantined_requests_are_deleted_before_traces(database: Path) -> None:
    with SqliteStore.open(database) as opened:
        opened.add_request(b"\xff" * 1_000_000)
    done = run(database, "prune", "--max-size", "500KB", "--yes")
    assert done.stdout == "deleted 0 spans of 0 traces, 1 quarantined requests\n"


def test_prune_says_that_the_size_is_not_reached(database: Path) -> None:
    done = run(database, "prune", "--max-size", "1KB", "--scope", SCOPE, "--yes")
    assert (done.exit_code, done.stdout) == (0, "deleted 1 spans of 1 traces\n")
    assert "bytes are still used" in done.stderr


def test_prune_and_forget_say_that_they_wait(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SqliteStore, "turn", lambda store, *, wait=True: nullcontext(wait))
    for arguments in (("prune", "--older-than", "1.5d"), ("forget", SCOPE)):
        done = run(database, *arguments, "--yes")
        assert (done.exit_code, "waiting for another process" in done.stderr) == (
            0 if "prune" in arguments else 1,
            True,
        )


@pytest.mark.parametrize("arguments", [(), ("--older-than", "soon"), ("--older-than", "30"), ("--max-size", "nanGB")])
def test_prune_refuses_a_missing_or_wrong_limit(database: Path, arguments: tuple[str, ...]) -> None:
    assert run(database, "prune", *arguments, "--yes").exit_code == 2


def test_prune_by_age_deletes_nothing_when_the_clock_may_have_jumped(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    future = time.time_ns() + 40 * 365 * 86400 * 10**9
    monkeypatch.setattr("time.time_ns", lambda: future)
    refused = run(database, "prune", "--older-than", "30d", "--yes")
    assert refused.exit_code == 2
    assert "nothing deleted" in refused.stderr
    assert "this clock says" in refused.stderr
    with SqliteStore.open(database) as opened:
        assert opened.stats().spans == 2
    assert run(database, "prune", "--older-than", "30d", "--all", "--yes").stdout.startswith("deleted 2 spans")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["prune"], "give --older-than"),
        (["prune", "--older-than", "1d", "--scope", ""], "give a scope"),
        (["forget", ""], "give a scope"),
    ],
)
def test_missing_arguments_are_named_before_the_confirmation(database: Path, arguments: list[str], said: str) -> None:
    done = run(database, *arguments, answer="y\n")
    assert (done.exit_code, said in done.stderr) == (2, True)
    assert "cannot be restored" not in done.output


@pytest.mark.parametrize("arguments", [["forget"], ["prune", "--scope"], ["prune", "--older-than", "1d", "--scope"]])
def test_an_unknown_scope_is_named(database: Path, arguments: list[str]) -> None:
    unknown = run(database, *arguments, "c" * 16, "--yes")
    assert (unknown.exit_code, unknown.stdout, "store stats" in unknown.stderr) == (1, "", True)


def test_a_scope_with_young_traces_only_is_known(database: Path) -> None:
    done = run(database, "prune", "--older-than", "1d", "--scope", "b" * 16, "--yes")
    assert (done.exit_code, done.stdout) == (0, "deleted 0 spans of 0 traces\n")


@pytest.mark.parametrize("arguments", [["forget", "\udcff"], ["prune", "--scope", "\udcff"]])
def test_a_scope_that_is_no_utf_8_is_refused(database: Path, arguments: list[str]) -> None:
    done = run(database, *arguments, "--yes")
    assert (done.exit_code, "no UTF-8 text" in done.stderr) == (2, True)


def test_an_age_before_1970_deletes_nothing(database: Path) -> None:
    done = run(database, "prune", "--older-than", "999999999d", "--yes")
    assert (done.exit_code, done.stdout) == (0, "deleted 0 spans of 0 traces\n")
