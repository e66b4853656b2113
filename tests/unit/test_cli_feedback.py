"""`memtrace-otel feedback`: a trace that nobody judged fails after the fact."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from memtrace_otel.graph import load_graph, load_graphs
from memtrace_otel.otlp.sdk import encode_sdk_spans
from memtrace_otel.pipeline import diagnose as diagnosis
from memtrace_otel.sources import SqliteStore
from tests.conftest import Recording
from tests.unit.test_cli import rows, run, tell

UNKNOWN = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture
def told(recording: Recording, content_on: None) -> list[ReadableSpan]:
    """A story whose wrong answer nobody judged."""
    tell(recording)
    return [span for span in recording.spans() if span.name != "memtrace.judge"]


@pytest.fixture
def trace_id(recording: Recording, told: list[ReadableSpan]) -> str:
    context = recording.named("turn")[0].context
    assert context is not None
    return f"{context.trace_id:032x}"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    SqliteStore.open(tmp_path / "run.db").close()
    return tmp_path / "run.db"


def add(database: Path, spans: Sequence[ReadableSpan]) -> None:
    with SqliteStore.open(database) as store:
        store.add_request(encode_sdk_spans(spans))


def verdicts(database: Path, trace_id: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("attribute", trace_id, "--db", database, "--json").stdout.splitlines()]


def failures(database: Path, trace_id: str) -> list[str]:
    return [verdict["failure_type"] for verdict in verdicts(database, trace_id)]


def test_feedback_makes_a_trace_failing(database: Path, told: list[ReadableSpan], trace_id: str) -> None:
    add(database, told)
    assert failures(database, trace_id) == []
    done = run("feedback", trace_id.upper(), "--label", "fail", "--expected", "At 9:40", "--db", database)
    assert (done.exit_code, done.stderr) == (0, "")
    assert failures(database, trace_id) == ["update"]


def test_thumbs_down_pressed_twice_gives_the_same_verdict(
    database: Path, told: list[ReadableSpan], trace_id: str
) -> None:
    add(database, told)
    run("feedback", trace_id, "--label", "fail", "--db", database)
    (guessed,) = verdicts(database, trace_id)
    assert "what is nearest to the question" in guessed["reason"]
    run("feedback", trace_id, "--label", "fail", "--expected", "At 9:40", "--db", database)
    (first,) = verdicts(database, trace_id)
    assert "what is nearest to the question" not in first["reason"]
    run("feedback", trace_id, "--label", "fail", "--db", database)
    assert verdicts(database, trace_id) == [first]


def test_feedback_reads_the_answer_and_goes_out_and_in_again_with_it(
    database: Path, tmp_path: Path, told: list[ReadableSpan], trace_id: str
) -> None:
    add(database, told)
    run("feedback", trace_id, "--label", "fail", "--expected", "At 9:40", "--db", database)
    with SqliteStore.open(database) as store:
        graph = load_graph(store, trace_id)
    (judge,) = graph.operations("judge")
    (answer,) = (version for version in graph.outputs(graph.judged(judge.origin)) if version.ref.startswith("answer:"))
    assert judge.origin in run("graph", "readers", answer.ref, "--json", "--db", database).stdout
    assert judge.origin in run("graph", "descendants", answer.ref, "--json", "--db", database).stdout
    out, again = tmp_path / "run.smartcomment", tmp_path / "again.db"
    run("graph", trace_id, "--format", "smartcomment", "-o", out, "--db", database)
    run("import", out, "--db", again)
    found = [json.loads(line) for line in run("attribute", "--all", "--json", "--db", again).stdout.splitlines()]
    assert [verdict["failure_type"] for verdict in found] == ["update"]


def test_what_is_said_last_decides(database: Path, told: list[ReadableSpan], trace_id: str) -> None:
    add(database, told)
    run("feedback", trace_id, "--score", "0.2", "--expected", "At 9:40", "--db", database)
    assert failures(database, trace_id) == ["update"]
    run("feedback", trace_id, "--label", "pass", "--db", database)
    assert failures(database, trace_id) == []
    run("feedback", trace_id, "--score", "0.2", "--expected", "At 9:40", "--db", database)
    assert failures(database, trace_id) == ["update"]


def kept(database: Path) -> tuple[list[str], int]:
    """The failure types of the verdicts in a database, and how many marker spans it holds."""
    with SqliteStore.open(database) as store:
        types = [json.loads(verdict.document)["failure_type"] for verdict in store.verdicts()]
        return types, sum(span.name.startswith("memtrace.attribution ") for span in store.spans())


def test_a_verdict_goes_when_the_answer_no_longer_fails_and_comes_back_as_it_was(
    database: Path, told: list[ReadableSpan], trace_id: str
) -> None:
    add(database, told)
    run("feedback", trace_id, "--label", "fail", "--expected", "At 9:40", "--db", database)
    failures(database, trace_id)
    types, markers = kept(database)
    assert types == ["update"]
    run("feedback", trace_id, "--label", "pass", "--db", database)
    run("report", "--db", database, "-o", database.with_suffix(".html"))
    assert kept(database) == (["update"], markers)  # who only looks changes nothing
    assert run("attribute", "--all", "--db", database).exit_code == 1
    assert kept(database) == ([], markers)
    run("feedback", trace_id, "--label", "fail", "--expected", "At 9:40", "--db", database)
    failures(database, trace_id)
    assert kept(database) == (["update"], markers)
    run("feedback", trace_id, "--label", "pass", "--db", database)
    failures(database, trace_id)  # of this trace alone
    assert kept(database) == ([], markers)


def test_a_verdict_stays_where_not_all_was_loaded(
    database: Path, told: list[ReadableSpan], trace_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(database, told)
    run("feedback", trace_id, "--label", "fail", "--expected", "At 9:40", "--db", database)
    failures(database, trace_id)
    monkeypatch.setattr(diagnosis, "load_graphs", partial(load_graphs, max_spans=0))
    assert failures(database, trace_id) == []
    assert kept(database)[0] == ["update"]


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ((("fail", 5), ("pass", 5)), []),
        ((("pass", 5), ("fail", 5)), ["update"]),
        ((("fail", 5), ("pass", 5), ("fail", 5)), ["update"]),
        ((("fail", 6), ("pass", 5)), ["update"]),  # given later, said earlier
        ((("pass", 6), ("fail", 5)), []),
    ],
)
def test_with_a_time_the_last_time_decides_and_at_one_time_who_comes_later(
    database: Path, told: list[ReadableSpan], trace_id: str, said: Sequence[tuple[str, int]], found: list[str]
) -> None:
    add(database, told)
    now = datetime.now(UTC)
    for label, seconds in said:
        time = (now + timedelta(seconds=seconds)).isoformat()
        arguments = ("--label", label, "--expected", "At 9:40", "--time", time, "--db", database)
        assert run("feedback", trace_id, *arguments).exit_code == 0
    assert failures(database, trace_id) == found


def test_texts_are_redacted(
    database: Path, told: list[ReadableSpan], trace_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(database, told)
    monkeypatch.setenv("MEMTRACE_REDACT_PATTERNS", "email")
    run("feedback", trace_id, "--label", "fail", "--expected", "At 9:40, ana@example.org", "--db", database)
    with SqliteStore.open(database) as store:
        (judge,) = [span for span in store.trace(trace_id) if span.kind == "judge"]
    assert judge.inputs[0].content == "At 9:40, [redacted: email]"
    assert failures(database, trace_id) == ["update"]


def test_the_digest_alone_of_a_text_is_kept_if_the_trace_was_recorded_with_contents_off(
    database: Path, recording: Recording
) -> None:
    tell(recording)
    add(database, recording.spans())
    context = recording.named("turn")[0].context
    assert context is not None
    trace_id = f"{context.trace_id:032x}"
    run("feedback", trace_id, "--label", "fail", "--expected", "At 9:40", "--db", database)
    with SqliteStore.open(database) as store:
        judge = [span for span in store.trace(trace_id) if span.kind == "judge"][-1]
    assert (judge.inputs[0].content, judge.inputs[0].digest != "") == ("", True)


def test_an_unknown_trace_is_kept_until_its_spans_arrive(
    database: Path, recording: Recording, content_on: None
) -> None:
    done = run("feedback", UNKNOWN, "--label", "fail", "--expected", "At 9:40", "--db", database)
    assert "waits for its spans" in done.stderr
    assert failures(database, UNKNOWN) == []
    tell(recording)  # the answer is younger than the feedback
    request = encode_sdk_spans([span for span in recording.spans() if span.name != "memtrace.judge"])
    context = recording.named("turn")[0].context
    assert context is not None
    with SqliteStore.open(database) as store:
        store.add_request(request.replace(context.trace_id.to_bytes(16, "big"), bytes.fromhex(UNKNOWN)))
    assert run("feedback", UNKNOWN, "--label", "fail", "--expected", "At 9:40", "--db", database).stderr == ""
    assert len(failures(database, UNKNOWN)) == 1


def test_it_is_left_to_a_server(database: Path) -> None:
    for _ in range(2):
        run("feedback", UNKNOWN, "--label", "fail", "--db", database)
    with sqlite3.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM inbox").fetchone() == (2,)
    with SqliteStore.open(database) as store:
        assert [span.kind for span in store.trace(UNKNOWN)] == ["judge", "judge"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("xyz", "--label", "fail"), "no trace id"),
        (("0" * 32, "--label", "fail"), "not all of them 0"),
        ((UNKNOWN,), "a label or a score is needed"),
        ((UNKNOWN, "--label", "meh"), "must be one of fail"),
        ((UNKNOWN, "--score", "nan"), "finite"),
        ((UNKNOWN, "--label", "fail", "--expected", "x" * 20_000), "longer than 16384 bytes"),
        ((UNKNOWN, "--label", "fail", "--time", "soon"), "RFC 3339"),
    ],
)
def test_bad_input_is_named_and_changes_nothing(database: Path, arguments: tuple[str, ...], reason: str) -> None:
    before = rows(database)
    done = run("feedback", *arguments, "--db", database)
    assert done.exit_code == 2
    assert reason in done.stderr
    assert rows(database) == before


def test_a_missing_database_is_named_and_not_made(tmp_path: Path) -> None:
    done = run("feedback", UNKNOWN, "--label", "fail", "--db", tmp_path / "none.db")
    assert done.exit_code == 2
    assert "none.db" in done.stderr
    assert not (tmp_path / "none.db").exists()
