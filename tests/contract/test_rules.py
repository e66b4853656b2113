"""Every planted fault is named with its type and its operation, in every kind of system; correct runs give no failure."""

from __future__ import annotations

import pytest

from memtrace_otel.attribution import attribute, find_failures
from memtrace_otel.graph import build_graph
from memtrace_otel.model import Verdict

from .planted import FAULTS_OF, Fault, System, record
from .story import STORY

CASES = [
    pytest.param(system, fault, index, id=f"{system}-{fault}-{told.key}")
    for system in System
    for fault in Fault
    for index, told in enumerate(STORY)
    if fault in FAULTS_OF[system] and fault is not Fault.NONE
    if told.outdated or fault not in (Fault.NOT_RENEWED, Fault.STORED_BESIDE)
]


def verdicts(system: System, fault: Fault, index: int, **options: bool) -> tuple[list[Verdict], str, str | None]:
    recording = record(system, fault, STORY[index], STORY[(index + 3) % len(STORY)], **options)
    graph = build_graph(recording.spans)
    found = [attribute(graph, failure) for failure in find_failures(graph)]
    return found, recording.origin, recording.failure_type


@pytest.mark.parametrize("evidence", [False, True], ids=["gold_answer", "gold_evidence"])
@pytest.mark.parametrize(("system", "fault", "index"), CASES)
def test_planted_fault_is_found(system: System, fault: Fault, index: int, evidence: bool) -> None:
    found, origin, failure_type = verdicts(system, fault, index, evidence=evidence)
    assert [v.failure_type for v in found] == [failure_type]
    assert f"{found[0].trace_id}-{found[0].span_id}" == origin
