"""The attribution trace: its links and the keys other readers look for."""

from __future__ import annotations

import json

from memtrace_otel.annotate.attribution_trace import MAX_STEPS, attribution_trace
from memtrace_otel.annotate.marker import marker
from memtrace_otel.model import Step
from tests.unit.annotate.conftest import ANSWER, ASKED, TOLD, UPDATE, verdict_on


def test_root_links_to_the_answer_alone_and_children_to_the_evidence() -> None:
    root, *children = attribution_trace(verdict_on(UPDATE, attribution_id="1"), 500, 900)
    assert (root.name, root.parent_id, root.start, root.end) == ("memtrace.attribute", "", 500, 900)
    assert root.service == "memtrace-attribution"
    assert [(link.trace_id, link.span_id) for link in root.links] == [(ASKED, ANSWER.span_id)]
    assert [child.name for child in children] == [
        "memtrace.evidence source",
        "memtrace.evidence loss",
        "memtrace.evidence decisive",
    ]
    source, loss, decisive = children
    assert source.links == ()
    for child, kind in ((loss, "considered"), (decisive, "attributed_to")):
        assert [(link.trace_id, link.span_id) for link in child.links] == [(TOLD, UPDATE.span_id)]
        assert child.links[0].attributes == {"memtrace.link.type": kind, "memtrace.link.refs": ["memory:m-1"]}
    assert loss.attributes["memtrace.step.note"] == "Lisbon is gone"
    assert {child.parent_id for child in children} == {root.span_id}
    assert {child.trace_id for child in children} == {root.trace_id}
    assert all(root.start <= child.start < child.end <= root.end for child in children)
    assert {span.instrumentation_scope for span in (root, *children)} == {"memtrace_otel.attribution"}


def test_root_carries_the_verdict_and_the_openinference_annotation() -> None:
    verdict = verdict_on(UPDATE, attribution_id="1")
    root = attribution_trace(verdict, 1, 2)[0]
    assert marker(verdict, UPDATE).attributes.items() <= root.attributes.items()
    prefix = "annotations.0.annotation."
    annotation = {key.removeprefix(prefix): value for key, value in root.attributes.items() if key.startswith(prefix)}
    assert json.loads(str(annotation.pop("metadata"))) == {
        "attribution_id": "1",
        "method": "rules",
        "variable": "memory:m-1",
        "operation": UPDATE.origin,
    }
    assert annotation == {
        "name": "memtrace.attribution",
        "score": 0.875,
        "label": "update",
        "explanation": "The update replaced Lisbon by Porto.",
        "annotator_kind": "CODE",
        "identifier": "memtrace_otel.attribution",
    }
    assert root.attributes["openinference.span.kind"] == "EVALUATOR"


def test_root_holds_the_standard_event() -> None:
    (event,) = attribution_trace(verdict_on(UPDATE, attribution_id="1"), 500, 900)[0].events
    assert (event.name, event.time) == ("gen_ai.evaluation.result", 900)
    assert event.attributes == {
        "gen_ai.evaluation.name": "memtrace.attribution",
        "gen_ai.evaluation.score.value": 0.875,
        "gen_ai.evaluation.score.label": "update",
        "gen_ai.evaluation.explanation": "The update replaced Lisbon by Porto.",
        "gen_ai.response.id": "reply-7",
        "memtrace.attribution.id": "1",
    }


def test_a_long_path_keeps_its_ends() -> None:
    steps = tuple(Step(f"r{n}", "memory:m", UPDATE.origin) for n in range(100))
    _, *children = attribution_trace(verdict_on(UPDATE, attribution_id="1", evidence=steps), 1, 2)
    assert len(children) == MAX_STEPS + 1
    assert [children[0].name, children[-2].name] == ["memtrace.evidence r0", "memtrace.evidence r99"]


def test_an_attribution_that_took_no_time_still_has_a_duration() -> None:
    root = attribution_trace(verdict_on(None), 7, 7)[0]
    assert (root.start, root.end) == (7, 8)
