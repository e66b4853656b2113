"""Which answers failed, by which evaluation, and what was asked, given and expected."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memtrace_otel.attribution import find_failures
from memtrace_otel.graph import OperationKey, VersionKey, build_graph
from memtrace_otel.model import Event, OperationSpan, Variable, judged_traces

TRACE, OTHER = "a" * 32, "b" * 32
RIGHT = {"gen_ai.evaluation.name": "correctness", "gen_ai.evaluation.score.label": "correct"}
OWN = {"gen_ai.evaluation.name": "memtrace.attribution", "gen_ai.evaluation.score.label": "update"}
WRONG = {"gen_ai.evaluation.name": "correctness", "gen_ai.evaluation.score.label": "incorrect"}


def span(number: int, kind: str, parent: int = 0, trace: str = TRACE, **more: object) -> OperationSpan:
    return OperationSpan(
        trace, f"{number:016x}", f"{parent:016x}" if parent else "", f"memtrace.{kind}", kind, "test",
        start=number * 100, end=number * 100 + 50, **more,  # type: ignore[arg-type]
    )  # fmt: skip


ANSWER = span(
    1, "respond",
    inputs=(Variable("query:q", "query", content="Where?"),),
    outputs=(Variable("answer:a", "answer", content="Here"),),
)  # fmt: skip


def judge(number: int = 2, verdict: dict[str, str] | None = None, **more: object) -> OperationSpan:
    inputs = (Variable("answer:a", "answer", ANSWER.origin), Variable("expected:e", "expected", content="There"))
    return span(number, "judge", inputs=inputs, attributes=verdict or WRONG, **more)


def test_judge_span_joined_by_the_origin_of_the_answer() -> None:
    (failure,) = find_failures(build_graph([ANSWER, judge(trace=OTHER, evidence=("message:m",))]))
    assert failure.answer_span.origin == ANSWER.origin
    assert (failure.question, failure.answer, failure.expected) == ("Where?", "Here", "There")
    assert failure.evidence == ("message:m",)


@pytest.mark.parametrize("parent", [1, 0], ids=["below the answer", "after the last answer of the trace"])
def test_judge_span_without_an_origin(parent: int) -> None:
    bare = span(2, "judge", parent, inputs=(Variable("answer:a", "answer"),), attributes=WRONG)
    assert [f.answer_span.origin for f in find_failures(build_graph([ANSWER, bare]))] == [ANSWER.origin]


@pytest.mark.parametrize("trace", [TRACE, OTHER], ids=["in its trace", "from another"])
@pytest.mark.parametrize("told", ["role and origin", "ref and origin", "role and ref", "ref"])
def test_a_judge_names_its_answer_by_role_or_ref(told: str, trace: str) -> None:
    """Not the newest one, nor one that it read as history."""
    answers = [span(n, "respond", 9, outputs=(Variable(f"answer:{n:016x}", content=f"{n}"),)) for n in (1, 2, 3)]
    origins = [answer.origin if "origin" in told or trace == OTHER else "" for answer in answers]
    inputs = (
        Variable(f"answer:{1:016x}", "history", origins[0]),
        Variable(f"answer:{2:016x}", "answer" if "role" in told else "other", origins[1]),
    )
    judging = span(4, "judge", 9, trace, inputs=inputs, attributes=WRONG)
    graph = build_graph([span(9, ""), *answers, judging])
    assert [failure.answer_span.origin for failure in find_failures(graph)] == [answers[1].origin]


OLD = span(1, "respond", trace=OTHER, outputs=(Variable("answer:1", content="Rome"),))
FIRST, SECOND = (span(n, "respond", outputs=(Variable(f"answer:{n}", content=f"{n}"),)) for n in (2, 3))


def reading(role: str, *named: OperationSpan | str, parent: int = 0, kind: str = "judge") -> OperationSpan:
    """An evaluation that read answers by origin or, where a text is given, by that ref alone."""
    read = (
        Variable(one, role) if isinstance(one, str) else Variable(one.outputs[0].ref, role, one.origin) for one in named
    )
    return span(5, kind, parent, inputs=tuple(read), attributes=WRONG)


@pytest.mark.parametrize(
    ("evaluation", "about"),
    [
        pytest.param(reading("answer", OLD, parent=3), OLD, id="role and origin, within another"),
        pytest.param(reading("answer", OLD, FIRST), OLD, id="the first of several of that role"),
        pytest.param(reading("answer", "answer:2", parent=3), FIRST, id="role and ref, within another"),
        pytest.param(reading("other", OLD, parent=3), SECOND, id="within an answer, another read beside it"),
        pytest.param(reading("other", "answer:2", parent=3), SECOND, id="within an answer, another read by its ref"),
        pytest.param(reading("other", OLD), OLD, id="the only one that was read"),
        pytest.param(reading("other", "answer:2"), FIRST, id="the only one that was read, by its ref"),
        pytest.param(reading("other", OLD, FIRST), FIRST, id="that of its own trace"),
        pytest.param(reading("other", OLD, "answer:2"), FIRST, id="that of its own trace, by its ref"),
        pytest.param(reading("other", FIRST, OLD, "answer:3"), SECOND, id="several of its own trace: the newest"),
        pytest.param(reading("history", OLD), SECOND, id="read as something else"),
        pytest.param(reading("other", OLD, kind="respond"), None, id="an answer, about itself"),
        pytest.param(reading("answer", OLD, kind="respond"), None, id="an answer, about itself, whatever the role"),
    ],
)
def test_other_inputs_of_a_judge_are_not_the_judged_answer(
    evaluation: OperationSpan, about: OperationSpan | None
) -> None:
    """In the graph; and whoever looks for failing traces looks at that one."""
    about = about or evaluation
    graph = build_graph([OLD, FIRST, SECOND, evaluation])
    assert [failure.answer_span.origin for failure in find_failures(graph)] == [about.origin]
    assert about.trace_id in judged_traces(evaluation)


@pytest.mark.parametrize("number", [1, 5, 9], ids=["before", "between", "after"])
def test_a_judge_that_names_no_answer_reads_the_newest_before_it(number: int) -> None:
    answers = [span(n, "respond", outputs=(Variable(f"answer:{n}", content=f"{n}"),)) for n in (2, 4, 6)]
    feedback = span(number, "judge", inputs=(Variable("expected:e", "expected", content="7"),), attributes=WRONG)
    expected = {1: 6, 5: 4, 9: 6}[number]  # before all of them its clock is behind
    graph = build_graph([feedback, *answers])
    (failure,) = find_failures(graph)
    assert failure.answer_span.span_id == f"{expected:016x}"
    read = graph.inputs(feedback.origin)[-1]
    assert (read.version, read.role, read.inferred) == (
        VersionKey(f"answer:{expected}", failure.answer_span.origin), "answer", True
    )  # fmt: skip
    assert read in graph.readers(read.version)
    assert OperationKey(feedback.origin) in graph.descendants(read.version)


def test_span_event_on_the_answer_and_above_it() -> None:
    event = Event("gen_ai.evaluation.result", 500, {"gen_ai.evaluation.score.value": 0.2})
    assert len(find_failures(build_graph([replace(ANSWER, events=(event,))]))) == 1
    above = span(9, "other", events=(event,))
    assert len(find_failures(build_graph([above, replace(ANSWER, parent_id=above.span_id)]))) == 1


def test_an_evaluation_in_the_context_of_a_run_is_about_the_answer_in_it() -> None:
    run = span(9, "")
    answer = replace(ANSWER, parent_id=run.span_id)
    named = Variable(f"answer:{run.span_id}", "answer", run.origin)
    logged = span(10, "judge", 9, inputs=(named, Variable("expected:e", "expected")), attributes=WRONG)
    graph = build_graph([run, answer, logged])
    assert [failure.answer_span.origin for failure in find_failures(graph)] == [ANSWER.origin]
    assert [read.version.ref for read in graph.inputs(logged.origin)] == ["expected:e", "answer:a"]


@pytest.mark.parametrize("outer", ["ingest", "extract", "judge", "respond"])
def test_a_model_reply_inside_an_operation_is_not_the_answer_of_the_trace(outer: str) -> None:
    step = span(5, "respond", 4, outputs=(Variable("answer:step", "answer"),))
    feedback = span(9, "judge", attributes=WRONG)
    answer = replace(ANSWER, span_id=f"{4:016x}") if outer == "respond" else ANSWER
    spans = [answer, *([] if outer == "respond" else [span(4, outer)]), step, feedback]
    assert [failure.answer_span.origin for failure in find_failures(build_graph(spans))] == [answer.origin]


def test_an_answer_inside_a_turn_is_the_answer_without_another() -> None:
    turn, feedback = span(9, "ingest"), span(11, "judge", attributes=WRONG)
    inner = replace(ANSWER, parent_id=turn.span_id)
    assert [f.answer_span.origin for f in find_failures(build_graph([turn, inner, feedback]))] == [ANSWER.origin]


def test_a_label_beats_a_score() -> None:
    good = judge(verdict={**RIGHT, "gen_ai.evaluation.score.value": 0.0})  # type: ignore[dict-item]
    bad = judge(verdict={**WRONG, "gen_ai.evaluation.score.value": 1.0})  # type: ignore[dict-item]
    assert find_failures(build_graph([ANSWER, good])) == []
    assert len(find_failures(build_graph([ANSWER, bad]))) == 1


def test_scores_are_compared_with_the_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    scored = judge(verdict={"gen_ai.evaluation.score.value": 0.6})  # type: ignore[dict-item]
    assert find_failures(build_graph([ANSWER, scored])) == []
    monkeypatch.setenv("MEMTRACE_EVALUATION_THRESHOLD", "0.7")
    assert len(find_failures(build_graph([ANSWER, scored]))) == 1


def test_the_latest_evaluation_of_a_name_decides_and_an_answer_fails_once() -> None:
    assert find_failures(build_graph([ANSWER, judge(2, WRONG), judge(3, RIGHT)])) == []
    again = judge(4, {**WRONG, "gen_ai.evaluation.name": "groundedness"})
    assert len(find_failures(build_graph([ANSWER, judge(2, WRONG), again]))) == 1


@pytest.mark.parametrize("said", [{2: "", 3: "There"}, {2: "There", 3: ""}, {2: "Here", 3: "There"}])
def test_the_expected_answer_is_the_last_from_any_evaluation(said: dict[int, str]) -> None:
    judges = [
        span(
            number,
            "judge",
            inputs=(
                Variable("answer:a", "answer", ANSWER.origin),
                *([Variable(f"expected:{number}", "expected", content=expected)] if expected else []),
            ),
            attributes={**WRONG, "gen_ai.evaluation.name": f"{number}"},
            evidence=(f"message:{number}",),
        )
        for number, expected in said.items()
    ]
    (failure,) = find_failures(build_graph([ANSWER, *judges]))
    assert (failure.expected, set(failure.evidence)) == ("There", {"message:2", "message:3"})
    assert failure.judge_span == judges[list(said.values()).index("There")]


def test_a_passing_judge_gives_no_expected_answer() -> None:
    right = judge(3, RIGHT)
    wrong = span(2, "judge", 1, attributes={**WRONG, "gen_ai.evaluation.name": "quality"})
    (failure,) = find_failures(build_graph([ANSWER, wrong, right]))
    assert (failure.expected, failure.evaluation) == ("", "quality")


def told(number: int, expected: str = "", **verdict: str) -> OperationSpan:
    inputs = (Variable(f"expected:{number}", "expected", content=expected),) if expected else ()
    explained = {"gen_ai.evaluation.explanation": verdict["why"]} if "why" in verdict else {}
    return span(number, "judge", 1, inputs=inputs, attributes={**WRONG, **explained}, evidence=(f"message:{number}",))


def test_a_second_failure_keeps_the_expected_answer() -> None:
    first, again = told(2, "There", why="not here"), told(3)
    (before,) = find_failures(build_graph([ANSWER, first]))
    (failure,) = find_failures(build_graph([ANSWER, first, again, told(4)]))
    assert (failure.expected, failure.explanation) == ("There", "not here")
    assert failure.judge_span == before.judge_span
    assert failure.evidence == ("message:2", "message:4")
    (explained,) = find_failures(build_graph([ANSWER, first, told(3, why="nor there")]))
    assert (explained.expected, explained.explanation) == ("There", "nor there")


def test_the_expected_answer_is_replaced_by_a_failure_and_withdrawn_by_a_pass() -> None:
    (anew,) = find_failures(build_graph([ANSWER, told(2, "There"), told(3), told(4, "Elsewhere"), told(5)]))
    assert (anew.expected, anew.evidence) == ("Elsewhere", ("message:4", "message:5"))
    unread = span(3, "judge", 1, inputs=(Variable("expected:3", "expected", digest="d"),), attributes=WRONG)
    (off,) = find_failures(build_graph([ANSWER, told(2, "There"), unread]))
    assert off.expected == ""
    passed = span(3, "judge", 1, attributes=RIGHT)
    assert find_failures(build_graph([ANSWER, told(2, "There"), passed])) == []
    (withdrawn,) = find_failures(build_graph([ANSWER, told(2, "There"), passed, told(4)]))
    assert withdrawn.expected == ""


def test_our_own_verdict_is_no_evaluation() -> None:
    own = Event("gen_ai.evaluation.result", 500, {**WRONG, "gen_ai.evaluation.name": "memtrace.attribution"})
    assert find_failures(build_graph([replace(ANSWER, events=(own,))])) == []


def test_only_the_trace_asked_for() -> None:
    graph = build_graph([ANSWER, judge()])
    assert len(find_failures(graph, TRACE)) == 1
    assert find_failures(graph, OTHER) == []


def test_an_answer_whose_span_was_lost_is_still_a_failure() -> None:
    (failure,) = find_failures(build_graph([judge()]))
    assert failure.answer_span.origin == ANSWER.origin
    assert failure.answer_span.incomplete
