"""Identity of verdicts across versions of the program, and rules that raise."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from memtrace_otel.attribution import apply_rules, attribute_trace
from memtrace_otel.attribution.evidence import Evidence
from memtrace_otel.graph import build_graph
from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import encode_request
from memtrace_otel.pipeline.diagnose import diagnose, record
from memtrace_otel.semconv import EVALUATION_EXPLANATION, EVALUATION_LABEL, Action, FailureType, OpKind, Role
from memtrace_otel.sources import SqliteStore
from tests.unit.graph.conftest import ALICE, put, seen, span

SECRET = "the cat is called Minka"


def failing_trace() -> list[OperationSpan]:
    message = put("message:1", "My cat is called Minka.", role=Role.MESSAGE)
    fact = put("memory:1", SECRET, action=Action.ADD)
    create = span(1, 1, OpKind.CREATE, at=1, scope=ALICE, inputs=[message], outputs=[fact])
    question, answer = put("query:2", "What is my cat called?", role=Role.QUERY), put("answer:2", "I do not know")
    respond = span(2, 1, OpKind.RESPOND, at=2, scope=ALICE, inputs=[question], outputs=[answer])
    judge = span(2, 2, OpKind.JUDGE, parent=1, at=3, attributes={EVALUATION_LABEL: "fail", EVALUATION_EXPLANATION: ""},
                 inputs=[seen("answer:2", respond.origin, role=Role.ANSWER),
                         put("expected:2", "Minka", role=Role.EXPECTED)])  # fmt: skip
    return [create, respond, judge]


def test_the_next_version_sends_and_counts_no_verdict_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SqliteStore.open(tmp_path / "memtrace.db") as store:
        store.add_request(encode_request(failing_trace()))
        (first,) = (annotation for diagnosis in diagnose(store, store) for annotation in record(store, diagnosis))
        ids = [span.span_id for span in first.spans]
        store.mark_sent("traces backend", ids)
        stored = sorted(span.origin for span in store.spans())
        monkeypatch.setattr(apply_rules, "__version__", "99.0")
        (second,) = (annotation for diagnosis in diagnose(store, store) for annotation in record(store, diagnosis))
        assert first.is_new
        assert not second.is_new
        assert second.new == 0
        assert second.verdict.version == "99.0"
        assert second.verdict.attribution_id == first.verdict.attribution_id
        assert store.unsent("traces backend", [span.span_id for span in second.spans]) == []
        assert sorted(span.origin for span in store.spans()) == stored


def test_a_rule_that_raises_is_logged_once_with_its_traceback_and_without_contents(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(evidence: Evidence) -> None:
        raise ValueError(SECRET)

    monkeypatch.setattr(apply_rules, "RULES", (broken,))
    monkeypatch.setattr(apply_rules, "_logged", set[str]())
    graph = build_graph(failing_trace())
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            (verdict,) = attribute_trace(graph)
            assert (verdict.failure_type, verdict.complete) == (FailureType.UNKNOWN, False)
    (logged,) = caplog.messages
    assert "test_apply_rules" in logged
    assert "in broken" in logged
    assert "ValueError" in logged
    assert SECRET not in logged
