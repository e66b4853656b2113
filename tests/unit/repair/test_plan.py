"""The plan: planted faults point to the component that has them; periods are compared; nothing is written."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.table import Table

from memtrace_otel.attribution import attribute_trace
from memtrace_otel.attribution.endpoint import Endpoint
from memtrace_otel.bench.generate import Plan, case_files, generate, read_truths
from memtrace_otel.bench.run import read_spans
from memtrace_otel.cli import main
from memtrace_otel.cli.output import print_table
from memtrace_otel.demo.model_server import serving
from memtrace_otel.graph import EvolutionGraph, build_graph
from memtrace_otel.model import OperationSpan, Verdict
from memtrace_otel.repair.components import Component, Information, component_of, information_of
from memtrace_otel.repair.narrative import narrate
from memtrace_otel.repair.page import write_plan
from memtrace_otel.repair.plan import Pointed, make_plan, markdown, plan_of_source
from memtrace_otel.semconv import GEN_AI_RETRIEVAL_TOP_K, RETRIEVAL_THRESHOLD, FailureType, OpKind, Role
from memtrace_otel.sources import SqliteStore

Diagnosed = list[tuple[Verdict, EvolutionGraph]]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("cases")
    faults = ("E1", "U3", "D1", "R1", "R2", "R3", "M1", "A1", "N2")
    generate(Plan(5, 3 * len(faults), faults=faults, messages=(12, 20)), directory, processes=1)
    return directory


@pytest.fixture(scope="module")
def by_fault(cases: Path) -> dict[str, Diagnosed]:
    """The verdicts of right type, by planted fault."""
    found: dict[str, Diagnosed] = {}
    truths = {truth["file"]: truth for truth in read_truths(cases)}
    for path in case_files(cases):
        truth = truths[path.name.partition(".")[0]]
        graph = build_graph(list(read_spans(path)))
        right = [v for v in attribute_trace(graph) if v.failure_type == truth["failure_type"]]
        found.setdefault(truth["fault"], []).extend((verdict, graph) for verdict in right)
    return found


@pytest.fixture(scope="module")
def pointed(by_fault: dict[str, Diagnosed]) -> list[Pointed]:
    return [Pointed.of(verdict, graph) for some in by_fault.values() for verdict, graph in some]


@pytest.mark.parametrize(
    ("fault", "component"),
    [
        ("E1", Component.EXTRACTION),
        ("U3", Component.UPDATE),
        ("D1", Component.UPDATE),
        ("R1", Component.K),
        ("R2", Component.FILTER),
        ("R3", Component.CONTENT_LIMIT),
        ("M1", Component.ANSWERING),
        ("A1", Component.ANSWERING),
        ("N2", None),
    ],
)
def test_a_planted_fault_points_to_its_component(
    by_fault: dict[str, Diagnosed], fault: str, component: Component | None
) -> None:
    assert by_fault[fault]
    assert {component_of(verdict, graph) for verdict, graph in by_fault[fault]} == {component}


def test_a_record_below_the_threshold_points_to_the_threshold(by_fault: dict[str, Diagnosed]) -> None:
    verdict, graph = by_fault["R1"][0]

    def with_threshold(span: OperationSpan) -> OperationSpan:
        inputs = tuple(replace(v, score=0.2) if v.role == Role.CANDIDATE else v for v in span.inputs)
        return replace(span, inputs=inputs, attributes={**span.attributes, RETRIEVAL_THRESHOLD: 0.5})

    spans = [with_threshold(s) if s.kind == OpKind.RETRIEVE else s for s in graph.operations()]
    assert component_of(verdict, build_graph(spans)) is Component.THRESHOLD


def test_a_search_that_records_neither_k_nor_candidates_points_to_k(by_fault: dict[str, Diagnosed]) -> None:
    verdict, graph = by_fault["R1"][0]

    def without_k(span: OperationSpan) -> OperationSpan:
        attributes = {name: value for name, value in span.attributes.items() if name != GEN_AI_RETRIEVAL_TOP_K}
        return replace(span, inputs=tuple(v for v in span.inputs if v.role != Role.CANDIDATE), attributes=attributes)

    spans = [without_k(s) if s.kind == OpKind.RETRIEVE else s for s in graph.operations()]
    assert component_of(verdict, build_graph(spans)) is Component.K


@pytest.mark.parametrize("failure_type", [FailureType.JUDGE, FailureType.ANNOTATION, FailureType.UNKNOWN])
def test_no_component_is_blamed_for_what_no_component_did(
    by_fault: dict[str, Diagnosed], failure_type: FailureType
) -> None:
    verdict, graph = by_fault["R1"][0]
    assert component_of(replace(verdict, failure_type=failure_type), graph) is None


@pytest.mark.parametrize(
    ("question", "expected", "information"),
    [
        ("When is the trip?", "12 May 2026", Information.DATE),
        ("When does it start?", "8:40", Information.DATE),
        ("How many chairs are there?", "fourteen", Information.QUANTITY),
        ("Is the shop open?", "No", Information.NEGATION),
        ("Why is the shop closed?", "The owner does not work on Mondays", Information.NEGATION),
        ("Which book lies there?", '"Nothing Ventured"', Information.OTHER),
        ("Where is the key?", "under the pot", Information.OTHER),
    ],
)
def test_the_expected_answer_tells_the_kind_of_information(
    by_fault: dict[str, Diagnosed], question: str, expected: str, information: Information
) -> None:
    verdict, _ = by_fault["A1"][0]
    failure = replace(verdict.failure, question=question, expected=expected)
    assert information_of(replace(verdict, failure=failure, evidence=())) is information


def test_a_period_is_compared_with_the_one_before(pointed: list[Pointed], tmp_path: Path) -> None:
    def at(time: int, one: Pointed) -> Pointed:
        answer = replace(one.verdict.failure.answer_span, start=time)
        failure = replace(one.verdict.failure, answer_span=answer, judge_span=None)
        return replace(one, verdict=replace(one.verdict, failure=failure))

    lost = [one for one in pointed if one.component is Component.EXTRACTION][:1]
    before, after = [at(150, one) for one in lost], [at(250, one) for one in lost * 20]
    plan = make_plan([*before, *after], [150] * 40 + [250] * 40, since=200, now=300)
    assert (plan["answers"]["hits"], plan["answers"]["count"]) == (20, 40)
    assert plan["trend"]["before"]["hits"] == 1
    assert plan["trend"]["change"] == plan["trend"]["by_type"]["extraction"]["change"] == "more"
    write_plan(plan, "run.db", tmp_path / "plan.html")
    page = " ".join((tmp_path / "plan.html").read_text("utf-8").split())
    assert "Failed answers: 20 of 40, 50.0% [35%, 65%]. Before: 1 of 40, 2.5% [0%, 13%]; more." in page
    assert make_plan(before, [150, 250], since=200, now=300)["trend"]["change"] == "no clear change"


class Writer:
    """A model that gives one reply after the other, with VERDICT as the id of a verdict of the plan."""

    def __init__(self, *replies: list[tuple[str, list[str]]]) -> None:
        self.replies = list(replies)

    def reply(self, messages: Sequence[Mapping[str, str]]) -> str:
        known = json.loads(messages[-1]["content"])["patterns"][0]["examples"][0]["verdict"]
        sentences = [
            {"text": text, "verdicts": [known if id == "VERDICT" else id for id in ids]}
            for text, ids in self.replies.pop(0)
        ]
        return json.dumps({"sentences": sentences})


GOOD, INVENTED, UNCITED = ("A is lost.", ["VERDICT"]), ("B is lost.", ["VERDICT", "f" * 32]), ("C is lost.", [])
TWO = ("A is lost. B, too, without a verdict.", ["VERDICT"])


@pytest.mark.parametrize(
    ("replies", "kept", "dropped", "problem"),
    [
        ([[GOOD, INVENTED, UNCITED, TWO]], ["A is lost."], 3, ""),
        ([[UNCITED], [GOOD]], ["A is lost."], 1, ""),
        ([[UNCITED], [INVENTED]], [], 2, "no sentence"),
    ],
)
def test_every_sentence_of_a_narrative_cites_verdicts_that_exist(
    pointed: list[Pointed],
    replies: list[list[tuple[str, list[str]]]],
    kept: list[str],
    dropped: int,
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    with serving(Writer(*replies)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.setenv("MEMTRACE_MODEL", "m")
        monkeypatch.chdir(tmp_path)
        plan = make_plan(pointed)
        plan["narrative"] = narrate(plan, Endpoint())
    narrative = plan["narrative"]
    assert [one["text"] for one in narrative["sentences"]] == kept
    assert narrative["dropped"] == dropped
    assert narrative["problem"].startswith(problem)
    write_plan(plan, "run.db", tmp_path / "plan.html")
    for page in (markdown(plan), (tmp_path / "plan.html").read_text("utf-8")):
        assert all(text.removesuffix(".") in page for text in (kept or ["No narrative"]))


def test_the_texts_of_a_trace_are_inert_in_pages(pointed: list[Pointed], tmp_path: Path) -> None:
    one = next(one for one in pointed if one.component)
    failure = replace(one.verdict.failure, question="<script>a</script> | ![x](http://y)")
    plan = make_plan([replace(one, verdict=replace(one.verdict, failure=failure))])
    page = markdown(plan)
    assert "script" in page
    assert not re.search(r"(?<!\\)(?:<|!\[)", page)
    write_plan(plan, "run.db", tmp_path / "plan.html")
    assert "&lt;script&gt;" in (page := (tmp_path / "plan.html").read_text("utf-8"))
    assert "<script" not in page


@pytest.mark.parametrize("question", ["What is [/b] this?", "[bold]Which[/bold] :smile:?"])
def test_the_texts_of_a_trace_are_inert_in_a_table(
    pointed: list[Pointed], question: str, capsys: pytest.CaptureFixture[str]
) -> None:
    one = next(one for one in pointed if one.component)
    failure = replace(one.verdict.failure, question=question)
    found = make_plan([replace(one, verdict=replace(one.verdict, failure=failure))])
    print_table(*(Table(pattern["examples"][0]["question"], title=question) for pattern in found["patterns"]))
    assert capsys.readouterr().out.count(question) == 2


def test_the_command_counts_what_was_planted_and_writes_nothing(cases: Path, tmp_path: Path) -> None:
    database = tmp_path / "run.db"

    def done(*arguments: object) -> str:
        result = CliRunner().invoke(main, [*map(str, arguments), "--db", str(database)])
        assert result.exit_code == 0, result.output
        return result.stdout

    files = case_files(cases)[:8]
    named = {path.name.partition(".")[0] for path in files}
    done("import", *files)
    plan = json.loads(done("repair", "plan", "--json"))
    planted = Counter(truth["failure_type"] for truth in read_truths(cases) if truth["file"] in named)
    assert plan["answers"]["hits"] == sum(planted.values())
    assert sum(one["hits"] for one in plan["by_type"].values()) == sum(planted.values())
    assert sum(one["failures"] for one in plan["patterns"]) == sum(planted.values())
    blamed = sum(one["failures"]["hits"] for one in plan["components"])
    assert blamed == sum(
        plan["by_type"][t]["hits"] for t in plan["by_type"] if t not in ("judge", "annotation", "unknown")
    )
    page = tmp_path / "page.html"
    for form in ((), ("--markdown",), ("--html", page)):
        assert plan["components"][0]["component"] in done("repair", "plan", *form).lower()
    blamed = plan["components"][0]["examples"][0]
    assert blamed["trace_id"] in page.read_text("utf-8")
    with SqliteStore.open(database, create=False) as store:
        assert store.verdicts() == []
        seen = plan_of_source(store, 1)  # as from a backend, which does not tell of right answers
    assert [seen[part] for part in ("by_type", "components", "patterns", "trend")] == [
        *(plan[part] for part in ("by_type", "components", "patterns")),
        None,
    ]
    assert f"Failed answers: {plan['answers']['hits']}." in markdown(seen | {"period": plan["period"]})
    done("report", "-o", page)
    cards = dict(re.findall(r'<a href="#failure-(\d+)">(.+?)</a>', page.read_text("utf-8").partition('"index"')[0]))
    assert unescape(blamed["question"]) in map(unescape, cards.values())


def test_a_period_without_failures_finds_nothing(cases: Path, tmp_path: Path) -> None:
    database = str(tmp_path / "run.db")
    CliRunner().invoke(main, ["import", *map(str, case_files(cases)[:1]), "--db", database])
    result = CliRunner().invoke(main, ["repair", "plan", "--since", "1h", "--db", database])
    assert result.exit_code == 1
    assert "no failing answer" in result.stderr
    assert "in this period" in result.stderr
