"""The command line: what it prints, its exit status, and that bad input leaves a database as it was."""

from __future__ import annotations

import gzip
import hashlib
import json
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from memtrace_otel.annotate import SendError, publish
from memtrace_otel.annotate.target import Target
from memtrace_otel.capture import feedback, operation, scope_id
from memtrace_otel.cli import main
from memtrace_otel.model import OperationSpan, content_digest
from memtrace_otel.otlp import decode_request, encode_request
from memtrace_otel.semconv import EVALUATION_LABEL
from memtrace_otel.sources import SqliteStore
from memtrace_otel.sources.exporter import MemtraceSpanExporter
from memtrace_otel.sources.http import ReplyError
from tests.conftest import Recording
from tests.contract.planted import Fault, System, record
from tests.contract.story import STORY
from tests.otlp_json import request_to_json
from tests.unit.sources.backend_api import Reply, answering
from tests.unit.sources.listed_source import ListedSource

SCOPE = scope_id("store", user="ana")
COMMANDS = (
    "answers",
    "attribute",
    "completion",
    "config",
    "demo",
    "doctor",
    "feedback",
    "graph",
    "import",
    "report",
    "run",
    "serve",
    "version",
    "watch",
)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)


def tell(recording: Recording) -> None:
    """A fact is stored, overwritten and asked for; the answer is judged wrong."""
    said = "My train leaves at 9:40"
    ref = f"message:{content_digest(said)}"
    with operation("upsert_memory", kind="ingest", system="t", scope=SCOPE, tracer=recording.tracer) as add:
        add.read(ref, role="message", content=said)
        with operation(kind="extract", system="t", scope=SCOPE, tracer=recording.tracer) as extract:
            extract.read(ref, role="message", content=said)
            extract.wrote("fact:train", content="Ana's train leaves at 9:40")
        with operation("create_memory", kind="create", system="t", scope=SCOPE, tracer=recording.tracer) as create:
            create.read("fact:train", content="Ana's train leaves at 9:40")
            create.wrote("memory:train", action="ADD", content="Ana's train leaves at 9:40")
    with operation("update_memory", kind="update", system="t", scope=SCOPE, tracer=recording.tracer) as update:
        update.read("memory:train", role="previous", content="Ana's train leaves at 9:40")
        update.wrote("memory:train", action="UPDATE", content="Ana takes the train")
    with recording.tracer.start_as_current_span("turn"):
        question = "When does my train leave?"
        with operation("search_memory", kind="retrieve", system="t", scope=SCOPE, tracer=recording.tracer) as search:
            search.read("query:q", role="query", content=question)
            search.read("memory:train", role="hit", content="Ana takes the train", score=0.9)
            search.wrote("context:c", role="context", content="Ana takes the train")
        with operation("chat", kind="respond", system="t", scope=SCOPE, tracer=recording.tracer) as chat:
            chat.read("query:q", role="query", content=question)
            chat.read("context:c", role="context", origin=search.origin)
            chat.wrote("answer:a", role="answer", content="I do not know.")
        feedback("fail", expected="At 9:40", answer=chat.origin, tracer=recording.tracer)


@pytest.fixture
def database(tmp_path: Path, recording: Recording, content_on: None) -> Path:
    tell(recording)
    exporter = MemtraceSpanExporter(path=str(tmp_path / "memtrace.db"))
    exporter.export(recording.spans())
    exporter.shutdown()
    return tmp_path / "memtrace.db"


@pytest.fixture
def failing_trace(recording: Recording, database: Path) -> str:
    context = recording.named("turn")[0].context
    assert context is not None
    return f"{context.trace_id:032x}"


def held(database: Path) -> list[OperationSpan]:
    with SqliteStore.open(database) as store:
        return list(store.spans())


def rows(database: Path) -> str:
    """Digest of everything a database holds."""
    with sqlite3.connect(database) as connection:
        return hashlib.sha256("\n".join(connection.iterdump()).encode()).hexdigest()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_most_have_examples(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert command == "version" or "Examples:" in result.output
    assert command in run("--help").output


def test_attribute_prints_one_json_object_per_failing_trace(database: Path, failing_trace: str) -> None:
    result = run("attribute", "--all", "--db", database, "--json")
    assert result.exit_code == 0
    [line] = result.stdout.splitlines()
    verdict = json.loads(line)
    assert verdict["trace_id"] == failing_trace
    assert verdict["failure_type"] == "update"
    contents = [verdict[name] for name in ("question", "answer", "expected")]
    assert contents == ["When does my train leave?", "I do not know.", "At 9:40"]
    assert verdict["operation"]["name"] == "update_memory"
    assert verdict["operation"]["kind"] == "update"
    assert verdict["variable"] == "memory:train"
    assert set(verdict) >= {
        *("trace_id", "span_id", "failure_type", "operation", "variable", "confidence", "reason"),
        *("alternatives", "evidence", "complete", "method"),
    }
    assert run("attribute", failing_trace.upper(), "--db", database, "--json").stdout == result.stdout


def test_without_contents_the_verdict_names_the_switch(tmp_path: Path, recording: Recording) -> None:
    tell(recording)
    MemtraceSpanExporter(path=str(tmp_path / "off.db")).export(recording.spans())
    verdict = json.loads(run("attribute", "--all", "--db", tmp_path / "off.db", "--json").stdout)
    assert verdict["failure_type"] == "unknown"
    assert verdict["complete"] is False
    assert "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT" in verdict["reason"]


def test_answers_lists_the_recorded_answers_with_their_judgement(
    database: Path, failing_trace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    result = run("answers", "--db", database, "--json")
    assert result.exit_code == 0
    [answer] = map(json.loads, result.stdout.splitlines())
    assert answer.pop("span_id")
    assert answer == {
        "trace_id": failing_trace,
        "question": "When does my train leave?",
        "answer": "I do not know.",
        "judged_by": "user_feedback",
        "label": "fail",
    }
    table = run("answers", "--db", database).stdout
    assert failing_trace in table
    assert "user_feedback fail" in table


def test_answers_of_a_database_without_answers_finds_nothing(tmp_path: Path) -> None:
    with SqliteStore.open(tmp_path / "empty.db"):
        pass
    assert run("answers", "--db", tmp_path / "empty.db").exit_code == 1


def test_attribute_shows_a_table_to_people(database: Path) -> None:
    result = run("attribute", "--all", "--db", database)
    assert result.exit_code == 0
    assert "update_memory" in result.stdout
    assert "When does my train leave?" in result.stdout


def test_verdicts_are_written_once_and_only_when_wanted(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def state() -> str:
        with SqliteStore.open(database, create=False) as store:
            store.decode()
        return rows(database)

    before = state()
    run("attribute", "--all", "--db", database, "--no-annotate")
    assert state() == before
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4317")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "carrier pigeon")
    assert run("attribute", "--all", "--db", database, "--no-annotate").exit_code == 0
    assert run("attribute", "--all", "--db", database).exit_code == 2
    assert state() == before
    monkeypatch.undo()
    run("attribute", "--all", "--db", database)
    annotated = state()
    assert annotated != before
    run("attribute", "--all", "--db", database)
    assert state() == annotated


@pytest.mark.parametrize(
    ("form", "start"), [("json", "{"), ("dot", "digraph"), ("graphml", "<graphml"), ("smartcomment", "{")]
)
def test_graph_formats(database: Path, failing_trace: str, form: str, start: str, tmp_path: Path) -> None:
    printed = run("graph", failing_trace, "--db", database, "--format", form)
    assert printed.exit_code == 0
    assert printed.stdout.lstrip().startswith(start)
    assert "memory:train" in printed.stdout or "memory-unit-train" in printed.stdout
    written = run("graph", failing_trace, "--db", database, "--format", form, "-o", tmp_path / "graph")
    assert written.exit_code == 0
    assert (tmp_path / "graph").stat().st_size > 100


def test_report_is_one_self_contained_file(database: Path, tmp_path: Path) -> None:
    result = run("report", "--db", database, "-o", tmp_path / "r.html")
    assert result.exit_code == 0
    page = (tmp_path / "r.html").read_text()
    assert "When does my train leave?" in page
    assert 'src="http' not in page


def test_version_and_completion() -> None:
    assert "wire 0.2" in run("version").stdout
    for shell in ("bash", "zsh", "fish"):
        assert "_MEMTRACE_OTEL_COMPLETE" in run("completion", shell).stdout


# --- import ------------------------------------------------------------------------------------------------------
@pytest.fixture
def request_json(database: Path) -> str:
    with sqlite3.connect(database) as connection:
        [(body,)] = connection.execute("SELECT body FROM inbox").fetchall()
    return json.dumps(request_to_json(body))


def test_import_reads_lines_files_and_gzip_and_knows_duplicates(request_json: str, tmp_path: Path) -> None:
    lines, zipped, db = tmp_path / "spans.jsonl", tmp_path / "spans.json.gz", tmp_path / "new.db"
    lines.write_text(request_json + "\n")
    zipped.write_bytes(gzip.compress(request_json.encode()))
    assert "8 new spans" in run("import", lines, "--db", db).stdout
    assert "0 new spans" in run("import", zipped, lines, "--db", db).stdout
    assert run("attribute", "--all", "--db", db, "--json").exit_code == 0


def test_import_takes_evaluations_among_logs_and_counts_what_it_skips(
    request_json: str, database: Path, tmp_path: Path
) -> None:
    """What a Collector's file exporter writes that is in the pipelines of all three signals."""
    [answer] = [span for span in held(database) if span.kind == "respond"]
    at = {"traceId": answer.trace_id, "spanId": answer.span_id, "timeUnixNano": str(answer.end)}
    label = {"key": "gen_ai.evaluation.score.label", "value": {"stringValue": "fail"}}
    evaluation = at | {"eventName": "gen_ai.evaluation.result", "attributes": [label]}
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": "started"}}, evaluation]}]}]}
    mixed, db = tmp_path / "mixed.jsonl", tmp_path / "new.db"
    mixed.write_text("\n".join([request_json, json.dumps(logs), '{"resourceMetrics": []}']))
    result = run("import", mixed, "--db", db)
    assert (result.exit_code, "9 new spans" in result.stdout) == (0, True)
    assert "skipped log records other than gen_ai.evaluation.result" in result.stderr
    assert "of a span: 1; requests of metrics: 1" in result.stderr
    [judge] = [span for span in held(db) if span.parent_id == answer.span_id and span.system == "evaluation"]
    assert judge.kind == "judge"


def bad_files(request_json: str, folder: Path) -> Iterator[tuple[Path, str]]:
    contents = {
        "truncated.jsonl": (f"{request_json}\n{request_json[:-40]}\n".encode(), ":2"),
        "empty.jsonl": (b"", "empty"),
        "other.json": (b'{"hello": "world"}', "resourceSpans"),
        "noise.bin": (bytes(range(256)), "OTLP"),
        "cut.gz": (gzip.compress(request_json.encode())[:-30], "gzip"),
        "graph.json": (b'{"graph_id": "g", "data": {"nodes": 3}}', "nodes"),
    }
    for name, (content, said) in contents.items():
        path = folder / name
        path.write_bytes(content)
        yield path, said


def test_a_bad_file_is_named_with_the_reason_and_changes_nothing(
    request_json: str, database: Path, tmp_path: Path
) -> None:
    good = tmp_path / "good.jsonl"
    good.write_text(request_json)
    before = rows(database)
    for path, said in bad_files(request_json, tmp_path):
        result = run("import", good, path, "--db", database)
        assert result.exit_code == 2, path
        assert path.name in result.stderr
        assert said in result.stderr, result.stderr
        assert rows(database) == before
        assert run("import", good, path, "--db", tmp_path / "fresh.db").exit_code == 2
        assert not (tmp_path / "fresh.db").exists()


# --- refusals ----------------------------------------------------------------------------------------------------
def test_an_unknown_trace_is_told_from_a_healthy_one_in_which_no_failure_is_found(
    database: Path, recording: Recording
) -> None:
    unknown = "ab" * 16
    for command, status in (("attribute", 2), ("graph", 1), ("report", 2)):
        result = run(command, unknown, "--db", database)
        assert result.exit_code == status
        assert unknown in result.stderr
    context = recording.named("update_memory")[0].context
    assert context is not None
    result = run("attribute", f"{context.trace_id:032x}", "--db", database)
    assert result.exit_code == 1
    assert "no failing answer" in result.stderr


def test_arguments_that_make_no_sense_are_refused(database: Path) -> None:
    assert "32 hex digits" in run("attribute", "xyz", "--db", database).stderr
    for arguments in ((), ("ab" * 16, "--all")):
        result = run("attribute", *arguments, "--db", database)
        assert (result.exit_code, "--all" in result.stderr) == (2, True)


_FIRST = "0001-01-01T00:00:00+14:00"
"""A time before the first one."""


def test_a_source_that_cannot_be_is_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    for arguments, said in (
        (("attribute", "--all", "--source", "zipkin+http://x"), "must begin with jaeger+http://"),
        (("attribute", "--all", "--source", "tempo+http://127.0.0.1:1"), "Connection refused"),
        (("attribute", "--all", "--since", "2h"), "--since goes with --source"),
        (("attribute", "--all", "--source", "tempo+http://x", "--since", "soon"), "neither a duration"),
        (("attribute", "--all", "--source", "tempo+http://x", "--since", _FIRST), "neither a duration"),
        (("attribute", "f" * 32, "--source", "tempo+http://x", "--since", "2h"), "--since goes with"),
        (("attribute", "--all", "--source", "tempo+http://x", "--db", "x.db"), "either --db or --source"),
        (("watch",), "--source is needed"),
    ):
        result = run(*arguments)
        assert result.exit_code == 2
        assert said in result.output


def test_a_trace_that_a_source_does_not_hold_is_bad_input_and_no_failure_is_nothing_found() -> None:
    def answer(path: str, query: dict[str, str]) -> Reply:
        return (200, b"{}") if path == "/api/search" else (404, b"")

    with answering(answer) as asked:
        source = f"tempo+{asked.url}"
        unknown = run("attribute", "f" * 32, "--source", source)
        nothing = run("attribute", "--all", "--since", "2026-11-24T08:00:00Z", "--source", source)
    assert (unknown.exit_code, nothing.exit_code) == (2, 1)
    assert f"no such trace: {'f' * 32}" in unknown.output
    assert (
        f"no failing answer in {source}; a backend's search finds spans some seconds after they were sent"
        in nothing.output
    )


@pytest.mark.parametrize("kind", ["tempo", "jaeger"])
def test_a_trace_is_not_unknown_where_the_address_is_wrong(kind: str) -> None:
    with answering(lambda path, query: (404, b"404 page not found")) as asked:
        result = run("attribute", "f" * 32, "--source", f"{kind}+{asked.url}/wrong")
    assert (result.exit_code, "no such trace" in result.output) == (2, False)
    assert "(is this the port of the HTTP API" in result.output


def test_verdicts_are_printed_though_the_receiver_takes_none(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    result = run("attribute", "--all", "--json", "--db", database)
    assert result.exit_code == 2
    assert json.loads(result.stdout)["failure_type"] == "update"
    assert "cannot send traces to http://127.0.0.1:1" in result.stderr


def test_what_another_database_may_have_sent_is_told_of_once(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run on another machine, with the same spans in a file of its own."""
    monkeypatch.setattr(publish, "send", lambda target, body: None)
    monkeypatch.setattr("memtrace_otel.sources.open_source", lambda url: ListedSource())
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    asked = "attribute", "--all", "--json", "--db", database
    assert "twice" not in run(*asked, "--no-annotate").stderr
    assert "twice" not in run(*asked, "--look-in", "tempo+http://x").stderr
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:2")
    result = run(*asked)
    told = f"first verdicts from {database} to http://127.0.0.1:2: verdicts already sent from another database"
    assert (result.exit_code, result.stderr.count(told), result.stderr.count("--look-in URL")) == (0, 1, 1)
    assert json.loads(result.stdout)["failure_type"] == "update"
    assert "twice" not in run(*asked).stderr


@pytest.mark.parametrize(("failing", "refused", "tries"), [(1, False, 1), (2, False, 2), (1, True, 2)])
def test_a_receiver_that_fails_loses_no_verdict_of_a_source(
    failing: int, refused: bool, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, sent = ListedSource(), list[bytes]()
    first = record(System.ADDITIVE, Fault.GARBLED, STORY[0], STORY[3]).spans
    second = record(System.ADDITIVE, Fault.GARBLED, STORY[1], STORY[3]).spans
    source.tell(first, [replace(span, scope=span.scope and "b" * 16) for span in second])

    def send(target: Target, body: bytes) -> None:
        sent.append(body)
        if len(sent) == failing:
            raise SendError(target, "it is down", refused=refused)

    monkeypatch.setattr("memtrace_otel.sources.open_source", lambda url: source)
    monkeypatch.setattr(publish, "send", send)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_LOGS_EXPORTER", "none")
    result = run("attribute", "--all", "--since", "2020-01-01T00:00:00Z", "--json", "--source", "tempo+http://x")
    assert (result.exit_code, len(sent), len(result.stdout.splitlines())) == (2, tries, 2)
    assert "it is down" in result.stderr


@pytest.mark.parametrize("where", ["backend", "database"])
def test_what_a_receiver_rejects_keeps_no_other_verdict_back_and_is_told(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hosted backend rejects a marker in a trace of long ago."""
    traces = [record(System.ADDITIVE, Fault.GARBLED, STORY[number], STORY[3]).spans for number in (0, 1)]
    spans = [replace(one, scope=one.scope and f"{number:016x}") for number in (0, 1) for one in traces[number]]
    old = traces[0][-1].trace_id
    source, database, sent = ListedSource().tell(spans), tmp_path / "memtrace.db", list[OperationSpan]()
    with SqliteStore.open(database) as store:
        store.add_request(encode_request(spans))
        store.decode()

    def send(target: Target, body: bytes) -> None:
        asked = decode_request(body)
        taken = [span for span in asked if span.trace_id != old]
        sent.extend(taken)
        source.tell(taken)
        if rejected := len(asked) - len(taken):
            raise SendError(target, "older than 1 hour", partial=True, rejected=rejected)

    monkeypatch.setattr("memtrace_otel.sources.open_source", lambda url: source)
    monkeypatch.setattr(publish, "send", send)
    monkeypatch.setattr(publish, "_PER_REQUEST", 4)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_LOGS_EXPORTER", "none")
    backend = ("--since", "2020-01-01T00:00:00Z", "--source", "tempo+http://x")
    place = backend if where == "backend" else ("--db", database)
    for status in (2, 2 if where == "backend" else 0):  # a backend does not show that it has rejected something
        result = run("attribute", "--all", "--json", *place)
        assert (result.exit_code, len(result.stdout.splitlines())) == (status, 2)
        told = "cannot send traces to http://127.0.0.1:1 (grpc): 1 spans rejected: older than 1 hour"
        assert (told in result.stderr) == (status == 2)
    ids = [span.span_id for span in sent]
    assert sorted(ids) == sorted(set(ids))
    assert traces[1][-1].trace_id in {span.trace_id for span in sent}


@pytest.mark.parametrize(("requests", "sent"), [(10, 1)])
def test_past_what_reading_may_cost_a_verdict_is_printed_and_sent_where_looking_first_may_cost_less(
    requests: int, sent: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spans = record(System.ADDITIVE, Fault.GARBLED, STORY[0], STORY[3]).spans
    source = ListedSource(requests=requests)
    source.tell(spans, [replace(spans[0], trace_id=f"{n:032x}") for n in range(1, 100)])
    bodies = list[bytes]()
    monkeypatch.setattr("memtrace_otel.sources.open_source", lambda url: source)
    monkeypatch.setattr(publish, "send", lambda target, body: bodies.append(body))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_LOGS_EXPORTER", "none")
    failing = next(span for span in spans if span.kind == "respond").trace_id
    result = run("attribute", failing, "--json", "--source", "tempo+http://x")
    assert (result.exit_code, json.loads(result.stdout)["complete"], len(bodies)) == (0, False, sent)
    assert ("1 verdicts are not sent" in caplog.text) == (not sent)


@pytest.mark.parametrize("where", ["backend", "database"])
def test_a_verdict_without_its_answering_span_is_printed_and_not_written(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = record(System.ADDITIVE, Fault.GARBLED, STORY[0], STORY[3]).spans
    answer = next(span for span in spans if span.kind == "respond")
    spans.remove(answer)
    source, database, sent = ListedSource().tell(spans), tmp_path / "memtrace.db", list[bytes]()
    with SqliteStore.open(database) as store:
        store.add_request(encode_request(spans))
        store.decode()
    monkeypatch.setattr("memtrace_otel.sources.open_source", lambda url: source)
    monkeypatch.setattr(publish, "send", lambda target, body: sent.append(body))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    before = rows(database)
    place = ("--source", "tempo+http://x") if where == "backend" else ("--db", database)
    result = run("attribute", answer.trace_id, "--json", *place)
    assert (result.exit_code, json.loads(result.stdout)["complete"], sent) == (0, False, [])
    assert f"nothing was written for a verdict: the answering span is not in {place[1]}: {answer.origin}" in (
        result.stderr
    )
    assert rows(database) == before
    assert "nothing was written" not in run("attribute", answer.trace_id, "--no-annotate", *place).stderr


def test_a_trace_id_may_lack_the_zeros_it_begins_with(database: Path) -> None:
    """Searches of Tempo leave them out."""
    span = OperationSpan(f"{0xAB << 96:032x}", "1" * 16, kind="respond", start=1, attributes={EVALUATION_LABEL: "fail"})
    with SqliteStore.open(database) as store:
        store.add_request(encode_request([span]))
    done = run("attribute", span.trace_id.lstrip("0"), "--db", database, "--json")
    assert (done.exit_code, span.trace_id in done.stdout) == (0, True)


@pytest.mark.parametrize("reads", [0, 2])
def test_a_trace_that_the_backend_fails_at_takes_no_other_verdict_away(
    reads: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = record(System.ADDITIVE, Fault.GARBLED, STORY[0], STORY[3]).spans
    second = record(System.ADDITIVE, Fault.GARBLED, STORY[1], STORY[3]).spans
    damaged = next(span for span in first if span.kind == "respond").trace_id

    class Failing(ListedSource):
        def _read(self, trace_id: str) -> list[OperationSpan]:
            if trace_id == damaged and self.asked[damaged] == reads:
                raise ReplyError("HTTP 500", 500)
            return super()._read(trace_id)

    source, sent = Failing(), list[bytes]()
    source.tell(first, [replace(span, scope=span.scope and "b" * 16) for span in second])
    monkeypatch.setattr("memtrace_otel.sources.open_source", lambda url: source)
    monkeypatch.setattr(publish, "send", lambda target, body: sent.append(body))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_LOGS_EXPORTER", "none")
    result = run("attribute", "--all", "--since", "2020-01-01T00:00:00Z", "--json", "--source", "tempo+http://x")
    assert (result.exit_code, len(result.stdout.splitlines()), len(sent)) == (0, 1 + bool(reads), 1)
    assert ("1 verdicts are not sent" if reads else f"trace {damaged} cannot be read") in caplog.text


def test_a_database_that_is_missing_foreign_or_of_another_version_is_refused(database: Path, tmp_path: Path) -> None:
    missing, text, newer = tmp_path / "missing.db", tmp_path / "notes.txt", tmp_path / "newer.db"
    text.write_text("not a database " * 500)
    newer.write_bytes(database.read_bytes())
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version = 99")
    for path, said in ((missing, "missing.db"), (text, "not a"), (newer, "99")):
        before = path.read_bytes() if path.exists() else None
        result = run("attribute", "--all", "--db", path)
        assert result.exit_code == 2
        assert path.name in result.stderr
        assert said in result.stderr
        assert (path.read_bytes() if path.exists() else None) == before


@pytest.mark.parametrize("fault", [KeyError("role"), LookupError("list"), ValueError("Value out of range")])
def test_a_fault_of_ours_is_not_dressed_as_bad_input(
    database: Path, fault: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise fault

    monkeypatch.setattr("memtrace_otel.pipeline.diagnose.find_failures", broken)
    with pytest.raises(type(fault)):
        run("attribute", "--all", "--db", database)


def test_a_malformed_setting_is_one_line(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "soon")
    result = run("attribute", "--all", "--db", database)
    assert (result.exit_code, "TIMEOUT is 'soon'" in result.stderr) == (2, True)


@pytest.mark.parametrize("command", ["watch", "canary", "serve"])
def test_a_setting_that_cannot_be_used_is_named_at_the_start(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMTRACE_INBOX_BYTES", "1GB")
    monkeypatch.setenv("MEMTRACE_QUIET_SECONDS", "5s")
    place = ("--db", tmp_path / "no" / "a.db") if command == "serve" else ("--source", "zipkin+http://x")
    result = run(command, *place, *(["--otlp-endpoint", "http://127.0.0.1:1"] if command == "canary" else []))
    *told, last = result.stderr.splitlines()
    assert told == [
        "memtrace-otel: inbox_bytes (MEMTRACE_INBOX_BYTES) takes a whole number of at least 1, not '1GB'; "
        "1073741824 is used",
        "memtrace-otel: quiet_seconds (MEMTRACE_QUIET_SECONDS) takes a number of at least 0, not '5s'; 5.0 is used",
    ]
    assert (result.exit_code, last.startswith("memtrace-otel: ")) == (2, True)


@pytest.mark.parametrize("command", ["watch", "attribute", "serve"])
def test_a_malformed_setting_of_logs_is_told_at_the_start(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_LOGS_TIMEOUT", "soon")
    monkeypatch.setattr("memtrace_otel.sources.open_source", lambda url: pytest.fail("it has started"))
    place = ("--db", tmp_path / "memtrace.db") if command == "serve" else ("--source", "tempo+http://x")
    result = run(command, *place, *(["--all"] if command == "attribute" else []))
    assert result.exit_code == 2
    assert "memtrace-otel: OTEL_EXPORTER_OTLP_LOGS_TIMEOUT is 'soon'" in result.stderr
    assert not (tmp_path / "memtrace.db").exists()


@pytest.mark.parametrize(("named", "status"), [(True, 0), (False, 1)])
def test_a_demo_that_misses_a_planted_fault_fails(
    named: bool, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memtrace_otel.demo.show.show_demo", lambda directory, console, **more: named)
    assert run("demo", "--dir", tmp_path / "demo").exit_code == status


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--ui", "zipkin=http://localhost:9411"), "names no page"),
        (("--otlp-endpoint", "ftp://backend"), "--otlp-endpoint ftp://backend is no URL"),
        (("--otlp-endpoint", "localhost"), "names no port; for example: http://localhost:4317"),
    ],
)
def test_a_backend_of_the_demo_that_cannot_be_is_told_before_it_runs(
    options: tuple[str, str], told: str, tmp_path: Path
) -> None:
    done = run("demo", "--dir", tmp_path / "demo", *options)
    assert (done.exit_code, told in done.stderr) == (2, True)
    assert not (tmp_path / "demo").exists()


def test_the_demo_goes_to_the_backend_and_page_that_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr("memtrace_otel.annotate.send.send", lambda target, body: given.update(target=target, body=body))
    monkeypatch.setattr(
        "memtrace_otel.demo.show.show_demo", lambda directory, console, **more: bool(given.update(more))
    )
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=1")
    page = ("--ui", "tempo=https://grafana/base?datasource=T1")
    run("demo", "--dir", tmp_path / "demo", "--otlp-endpoint", "http://backend:4318", *page)
    assert (given["target"].endpoint, given["body"]) == ("http://backend:4318/v1/traces", b"")
    assert given["target"].headers == {"api-key": "1"}
    assert given["environ"]["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://backend:4318"
    assert given["page"].trace("a" * 32).startswith("https://grafana/base/explore?")


@pytest.mark.parametrize("command", [("report",), ("graph", "a" * 32, "--format", "dot")])
def test_an_output_file_never_replaces_a_database(command: tuple[str, ...], database: Path) -> None:
    before = database.read_bytes()
    result = run(*command, "--db", database, "-o", database)
    assert (result.exit_code, database.read_bytes()) == (2, before)
    assert "is a database and would be lost" in result.stderr
