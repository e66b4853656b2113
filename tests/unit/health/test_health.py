"""Each measure is raised by its fault, and by no healthy memory; recorded as the instrumentors record."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint

from memtrace_otel.bench.generate import Plan, make_case
from memtrace_otel.bench.health import BEGUN, FAULTS, OWNER, TOLD, Program, faulty, healthy
from memtrace_otel.cli import main
from memtrace_otel.graph import build_graph
from memtrace_otel.health import MEASURES, Finding, ThresholdError, examine, read_thresholds, record_health
from memtrace_otel.otlp import decode_request, encode_request
from memtrace_otel.semconv import OpKind, Role
from memtrace_otel.sources import SqliteStore


def measured(program: Program, until: timedelta = timedelta(days=60)) -> dict[str, Finding]:
    graph = build_graph(program.recorder.spans())
    end = int((BEGUN + until).timestamp()) * 10**9
    return {found.measure: found for found in examine(graph, 0, end, read_thresholds()) if found.scope == OWNER}


def test_a_healthy_memory_raises_nothing() -> None:
    found = measured(healthy())
    assert {name for name, finding in found.items() if finding.raised} == set()
    assert set(found) == {measure.name for measure in MEASURES} == set(FAULTS)


@pytest.mark.parametrize("number", range(4))
def test_a_healthy_case_of_the_benchmark_raises_nothing(number: int) -> None:
    case = make_case(Plan(7, 4, faults=("healthy",)), number)
    findings = list(examine(build_graph(decode_request(case.request)), 0, 2**62, read_thresholds()))
    assert [finding for finding in findings if finding.raised] == []
    assert len(findings) > 10


@pytest.mark.parametrize("measure", [measure.name for measure in MEASURES])
def test_each_fault_raises_its_measure(measure: str) -> None:
    program = faulty(measure)
    finding = measured(program)[measure]
    assert finding.raised
    assert finding.count < finding.total or measure == "growth"
    known = {span.origin for span in program.recorder.spans()}
    assert finding.examples
    assert {example.operation for example in finding.examples} <= known
    assert all(example.text for example in finding.examples)


def test_each_story_raises_its_measure_and_no_other(tmp_path: Path) -> None:
    written = CliRunner().invoke(main, ["bench", "health", "--out", str(tmp_path / "stories")])
    assert written.exit_code == 0, written.output
    for name in ("healthy", *FAULTS):
        db = str(tmp_path / f"{name}.db")
        assert CliRunner().invoke(main, ["import", "--db", db, str(tmp_path / f"stories/{name}.pb.gz")]).exit_code == 0
        done = CliRunner().invoke(main, ["health", "--db", db, "--json"])
        raised = {row["measure"] for row in map(json.loads, done.stdout.splitlines()) if row["raised"]}
        assert (raised, done.exit_code) == ((set(), 0) if name == "healthy" else ({name}, 1))


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
    program = faulty("never_read")
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
    program = faulty("duplicates")
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
            store.add_request(encode_request(program.recorder.spans()))
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
