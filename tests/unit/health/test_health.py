"""Each measure is raised by its fault, and by no healthy memory; recorded as the instrumentors record."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint

from memtrace_otel.bench.generate import Plan, make_case
from memtrace_otel.bench.recorder import Op, Recorder
from memtrace_otel.cli import main
from memtrace_otel.graph import build_graph
from memtrace_otel.health import MEASURES, Finding, ThresholdError, examine, read_thresholds, record_health
from memtrace_otel.model import OperationSpan, content_digest
from memtrace_otel.otlp import decode_request, encode_request
from memtrace_otel.semconv import Action, Incomplete, OpKind, Role
from memtrace_otel.sources import SqliteStore

OWNER, OTHER = "a" * 16, "b" * 16
BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
TOLD = ("My train leaves at 9:40 tomorrow.", "I keep my bicycle in the cellar.", "The dentist is Doctor Silva.")


class Program:
    """A small memory; a record is (ref, text, origin)."""

    def __init__(self) -> None:
        self.recorder = Recorder(Random(1), "mem0")
        self.days = 0
        self.records: dict[str, tuple[str, str]] = {}
        self.incomplete: dict[str, tuple[str, ...]] = {}

    def turn(self) -> Op:
        self.days += 1
        return self.recorder.trace(BEGUN + timedelta(days=self.days), "ana")

    def tell(self, text: str, writes: Sequence[tuple[str, str]], scope: str = OWNER, incomplete: str = "") -> None:
        """Take in a message, and write these (record, text); a known record is updated."""
        root = self.turn()
        ingest = root.step("", OpKind.INGEST, scope)
        message = f"message:{content_digest(text)}.{self.days}"
        ingest.read(message, Role.MESSAGE, text)
        extract = ingest.step("", OpKind.EXTRACT)
        extract.read(message, Role.MESSAGE, text)
        reply = f"completion:{content_digest(text)}"
        extract.read(reply, Role.OTHER, "not JSON" if incomplete else "[...]")
        if incomplete:
            self.incomplete[extract.span_id] = (incomplete,)
        facts = [f"fact:{content_digest(new)}" for _, new in writes]
        for fact, (_, new) in zip(facts, writes, strict=True):
            extract.wrote(fact, new, Action.DERIVE, fed_by=[0])
        extract.close()
        for fact, (ref, new) in zip(facts, writes, strict=True):
            self.write(ingest, ref, new, [(fact, Role.OTHER, "", extract.origin)])
        ingest.close()
        root.close()

    def write(self, parent: Op, ref: str, text: str, sources: Sequence[tuple[str, Role, str, str]]) -> None:
        known = self.records.get(ref)
        step = parent.step("", OpKind.UPDATE if known else OpKind.CREATE)
        for source, role, content, origin in sources:
            step.read(source, role, content, origin=origin)
        if known:
            step.read(ref, Role.PREVIOUS, known[0], origin=known[1])
        step.wrote(ref, text, Action.UPDATE if known else Action.ADD)
        self.records[ref] = text, step.close().origin

    def forget(self, ref: str) -> None:
        """Delete a record."""
        root = self.turn()
        step = root.step("", OpKind.DELETE, OWNER)
        text, origin = self.records.pop(ref)
        step.read(ref, Role.PREVIOUS, text, origin=origin)
        step.wrote(ref, "", Action.DELETE)
        step.close()
        root.close()

    def ask(
        self,
        question: str,
        hits: Sequence[str],
        shown: Sequence[str] | None = None,
        scope: str = OWNER,
        in_context: bool = False,
    ) -> Op:
        """Search and answer; returns the answering span. The answer reads the hits, `shown`, or the context of hits."""
        root = self.turn()
        search = root.step("", OpKind.RETRIEVE, scope)
        query = f"query:{content_digest(question)}"
        search.read(query, Role.QUERY, question)
        for ref in hits:
            search.read(ref, Role.HIT, self.records[ref][0], origin=self.records[ref][1])
        search.wrote(f"context:{search.span_id}", "...", Action.DERIVE, Role.CONTEXT)
        search.close()
        answer = root.step("chat", OpKind.RESPOND, scope)
        answer.system = "openai"
        answer.read(query, Role.QUERY, question)
        if in_context:
            answer.read(f"context:{search.span_id}", Role.CONTEXT, "...", origin=search.origin)
        for ref in hits if shown is None else shown:
            answer.read(ref, Role.CONTEXT, self.records[ref][0], origin=self.records[ref][1])
        answer.wrote(f"answer:{answer.span_id}", "At 9:40.", Action.DERIVE, Role.ANSWER)
        root.close()
        return answer.close()

    def spans(self) -> list[OperationSpan]:
        spans = self.recorder.spans()
        return [replace(span, incomplete=self.incomplete.get(span.span_id, ())) for span in spans]


def healthy() -> Program:
    """Three facts told, asked for and answered; one is corrected."""
    program = Program()
    for number, text in enumerate(TOLD):
        program.tell(text, [(f"memory:{number}", text)])
    program.tell("The train leaves at 10:15 instead.", [("memory:0", "My train leaves at 10:15.")])
    program.ask("When does my train leave?", ["memory:0", "memory:1"])
    program.ask("Who is the dentist?", ["memory:2"])
    return program


def measured(program: Program, until: timedelta = timedelta(days=60)) -> dict[str, Finding]:
    graph = build_graph(program.spans())
    end = int((BEGUN + until).timestamp()) * 10**9
    return {found.measure: found for found in examine(graph, 0, end, read_thresholds()) if found.scope == OWNER}


def nothing_learnt(program: Program) -> None:
    for number in range(9):
        program.tell(f"The plant number {number} needs much water", [])


def no_json(program: Program) -> None:
    program.tell("My shoe size is 41 since May.", [], incomplete=Incomplete.UNPARSED)


def only_written(program: Program) -> None:
    for number in range(40):
        program.tell(f"Colleague {number} sits in room {number}", [(f"memory:c{number}", f"Room {number} of {number}")])


def no_hits(program: Program) -> None:
    program.ask("What is my cat called today?", [])
    program.ask("Which tea is it?", [])


def words_missed(program: Program) -> None:
    program.ask("In which cellar is it?", [])


def back_and_forth(program: Program) -> None:
    for text in ("The dentist is Doctor Costa.", "The dentist is Doctor Silva."):
        program.tell(text, [("memory:2", text)])


def stored_twice(program: Program) -> None:
    program.tell("Once more: the bicycle.", [("memory:9", "I keep my bicycle in the cellar")])


def same_text(program: Program) -> None:
    for _ in range(2):
        program.tell("The dentist is Doctor Silva.", [("memory:2", TOLD[2])])


def from_its_answer(program: Program) -> None:
    answer = program.ask("When does my train leave?", ["memory:0"])
    root = program.turn()
    ingest = root.step("", OpKind.INGEST, OWNER)
    program.write(
        ingest, "memory:8", "The train is at 9:40.", [(f"answer:{answer.span_id}", Role.OTHER, "", answer.origin)]
    )
    ingest.close()
    root.close()


def without_the_hour(program: Program) -> None:
    program.tell("The plumber comes on the 14th at 8:30.", [("memory:7", "The plumber comes.")])


def left_out(program: Program) -> None:
    for question in ("Who is the dentist now?", "Who was the dentist?"):
        program.ask(question, ["memory:2", "memory:1", "memory:0"], shown=[])


def many_records(program: Program) -> None:
    program.tell("A long list of things", [(f"memory:m{n}", f"{chr(97 + n)}{n} {n}{chr(98 + n)}") for n in range(25)])


def from_nowhere(program: Program) -> None:
    root = program.turn()
    create = root.step("", OpKind.CREATE, OWNER)
    create.wrote("memory:x", "The sky is green.", Action.ADD)
    create.close()
    root.close()


def of_another(program: Program) -> None:
    program.tell("Bob earns 5,200 euros a month.", [("memory:bob", "Bob earns 5,200 euros.")], scope=OTHER)
    program.ask("What do I earn?", ["memory:bob"])


FAULTS: dict[str, Callable[[Program], None]] = {
    "no_write": nothing_learnt,
    "unparsed": no_json,
    "never_read": only_written,
    "zero_hits": no_hits,
    "missed_words": words_missed,
    "rewritten": back_and_forth,
    "duplicates": stored_twice,
    "empty_updates": same_text,
    "self_fed": from_its_answer,
    "lost_values": without_the_hour,
    "unshown": left_out,
    "growth": many_records,
    "no_source": from_nowhere,
    "leaks": of_another,
}


def test_a_healthy_memory_raises_nothing() -> None:
    found = measured(healthy())
    assert {name for name, finding in found.items() if finding.raised} == set()
    assert set(found) == {measure.name for measure in MEASURES}


@pytest.mark.parametrize("number", range(4))
def test_a_healthy_case_of_the_benchmark_raises_nothing(number: int) -> None:
    case = make_case(Plan(7, 4, faults=("healthy",)), number)
    findings = list(examine(build_graph(decode_request(case.request)), 0, 2**62, read_thresholds()))
    assert [finding for finding in findings if finding.raised] == []
    assert len(findings) > 10


@pytest.mark.parametrize("measure", [measure.name for measure in MEASURES])
def test_each_fault_raises_its_measure(measure: str) -> None:
    program = healthy()
    FAULTS[measure](program)
    finding = measured(program)[measure]
    assert finding.raised
    assert finding.count < finding.total or measure == "growth"
    known = {span.origin for span in program.recorder.spans()}
    assert finding.examples
    assert {example.operation for example in finding.examples} <= known
    assert all(example.text for example in finding.examples)


def told(*turns: tuple[str, str]) -> Callable[[Program], None]:
    """Each message and its record."""

    def tell(program: Program) -> None:
        for number, (text, record) in enumerate(turns):
            program.tell(text, [(f"memory:t{number}", record)] if record else [])

    return tell


def rewrote(old: str, new: str) -> Callable[[Program], None]:
    """One record with another text."""

    def tell(program: Program) -> None:
        for text in (old, new):
            program.tell(text, [("memory:t", text)])

    return tell


def in_a_context(program: Program) -> None:
    for question in ("Who is the dentist now?", "Who was the dentist?"):
        program.ask(question, ["memory:2", "memory:1", "memory:0"], shown=[], in_context=True)


def asked_after_deletion(program: Program) -> None:
    program.forget("memory:1")
    program.ask("In which cellar is it?", [])


def asked_after_all_deletions(program: Program) -> None:
    for ref in list(program.records):
        program.forget(ref)
    for question in ("Who is the dentist?", "Where is my bicycle?", "Which train?"):
        program.ask(question, [])


def asked_with_common_words(program: Program) -> None:
    program.tell("Mia went to Rome with Tom.", [("memory:6", "Mia went to Rome with Tom.")])
    program.ask("Who lives with you?", [])


STAMP = "\n(sent at 1:56 pm on 8 May, 2023)"
CHINESE = (
    ("我看牙的预约是2025年5月24日", "看牙的预约是2025年5月24日"),
    ("妹妹在上海工作，月薪8000元", "妹妹月薪8000元"),
)
HEALTHY: dict[str, tuple[str, Callable[[Program], None]]] = {
    "hits in a context": ("unshown", in_a_context),
    "deleted record": ("missed_words", asked_after_deletion),
    "no record left": ("zero_hits", asked_after_all_deletions),
    "common words": ("missed_words", asked_with_common_words),
    "time stamp": ("lost_values", told((f"I saw my aunt{STAMP}", "Ana saw her aunt."))),
    "Chinese": ("lost_values", told(*CHINESE)),
    "German": ("lost_values", told(("Ich bin am 3. Mai 1990 geboren.", "Geboren am 03.05.1990"))),
    "date": ("lost_values", told(("I was born on 3rd May 1990.", "Born 1990-05-03"))),
    "time of day": ("lost_values", told(("Der Zug geht um 9:40 Uhr ab.", "Zug: 9.40"))),
    "groups of digits": ("lost_values", rewrote("She earns 1,200 euros, 5 days a week.", "1200 for five days")),
    "relative date": ("lost_values", told(("The exam is in 5 days", "The exam is on 14 May 2023"))),
}
RAISING: dict[str, tuple[str, Callable[[Program], None]]] = {
    "Chinese": ("lost_values", told(*((text, "看牙的预约") for text, _ in CHINESE))),
    "German": (
        "lost_values",
        told(("Ich bin am 3. Mai 1990 geboren.", "Geboren"), ("Die Miete ist 900 Euro", "Miete")),
    ),
    "beside a stamp": ("lost_values", told((f"I pay 900 euros{STAMP}", "Ana pays."), (f"Room 5{STAMP}", "A room."))),
    "update": ("lost_values", rewrote("I was born on 3 May 1990 in room 5.", "I was born on 3 May 1990.")),
    "Chinese turns": ("no_write", told(*((f"我的第{n}只猫很喜欢喝水", "") for n in range(9)))),
}


@pytest.mark.parametrize("case", HEALTHY)
def test_a_healthy_run_stays_silent(case: str) -> None:
    measure, run = HEALTHY[case]
    before, program = measured(healthy())[measure], healthy()
    run(program)
    finding = measured(program)[measure]
    assert (finding.count, finding.raised) == (before.count, False)


@pytest.mark.parametrize("case", RAISING)
def test_a_fault_in_any_language_raises_its_measure(case: str) -> None:
    measure, run = RAISING[case]
    program = healthy()
    run(program)
    assert measured(program)[measure].raised


@pytest.mark.parametrize("role", [Role.HIT, Role.CANDIDATE])
def test_neighbours_of_a_write_are_not_read(role: Role) -> None:
    program = healthy()
    only_written(program)
    root = program.turn()
    ingest = root.step("", OpKind.INGEST, OWNER)
    search = ingest.step("", OpKind.RETRIEVE)
    for ref, (text, origin) in program.records.items():
        search.read(ref, role, text, origin=origin)
    search.close()
    ingest.close()
    root.close()
    assert measured(program)["never_read"].raised


@pytest.mark.parametrize("searches", [1, 3])
def test_the_gauge_is_above_0_for_raised_findings_only(searches: int) -> None:
    program = Program()
    program.tell(TOLD[2], [("memory:2", TOLD[2])])
    for _ in range(searches):
        program.ask("What is my cat called today?", [])
    finding = measured(program)["zero_hits"]
    assert (finding.count, finding.total, finding.raised) == (searches, searches, searches == 3)
    reader = InMemoryMetricReader()
    record_health([finding], MeterProvider([reader]))
    data = reader.get_metrics_data()
    assert data is not None
    (point,) = data.resource_metrics[0].scope_metrics[0].metrics[0].data.data_points
    assert isinstance(point, NumberDataPoint)
    assert (point.value > 0) == finding.raised


@pytest.mark.parametrize("item", ["zero_hits=nan", "zero_hits=-1", "unread_days=-3", "growth=inf"])
def test_a_threshold_is_a_number_from_0(monkeypatch: pytest.MonkeyPatch, item: str) -> None:
    monkeypatch.setenv("MEMTRACE_HEALTH_THRESHOLDS", item)
    with pytest.raises(ThresholdError, match=item):
        read_thresholds()


def test_thresholds_are_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    program = healthy()
    stored_twice(program)
    monkeypatch.setenv("MEMTRACE_HEALTH_THRESHOLDS", "duplicates=0.9, unread_days=100")
    found = measured(program)
    assert not found["duplicates"].raised
    assert "never_read" not in found  # no record is a hundred days old
    monkeypatch.setenv("MEMTRACE_HEALTH_THRESHOLDS", "duplicate=1")
    with pytest.raises(ThresholdError, match="duplicate=1"):
        read_thresholds()


def test_the_command_prints_few_lines_and_fails_above_a_threshold(tmp_path: Path) -> None:
    def run(program: Program, *options: str) -> tuple[int, list[str]]:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.db"
        with SqliteStore.open(path) as store:
            store.add_request(encode_request(program.spans()))
        done = CliRunner().invoke(main, ["health", "--db", str(path), *options])
        return done.exit_code, done.stdout.splitlines()

    assert run(healthy())[0] == 0
    ill = healthy()
    for fault in FAULTS.values():
        fault(ill)
    status, lines = run(ill)
    assert status == 1
    assert 5 < len(lines) <= 20
    assert any("leaks" in line and "filter the search by the owner" in line for line in lines)
    strict = ["(threshold 0)" in line for line in lines if "(threshold " in line]
    assert strict == sorted(strict, reverse=True)
    assert run(ill, "--since", "1h") == (3, [])
    rows = [json.loads(line) for line in run(ill, "--json")[1]]
    assert {row["measure"] for row in rows} == {measure.name for measure in MEASURES}
