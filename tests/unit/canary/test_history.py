"""The history holds the named fault, in traces and a memory scope of its own."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise

import pytest

from memtrace_otel.attribution import attribute_trace
from memtrace_otel.canary import History, write_history
from memtrace_otel.graph import build_graph
from memtrace_otel.otlp import decode_request, encode_request

NOW = time.time_ns()


def without_contents(history: History) -> History:
    def emptied(variables: tuple) -> tuple:  # type: ignore[type-arg]
        return tuple(replace(variable, content="") for variable in variables)

    spans = [replace(s, inputs=emptied(s.inputs), outputs=emptied(s.outputs)) for s in history.spans]
    return replace(history, spans=spans)


@pytest.mark.parametrize("contents", [True, False])
def test_attribution_names_the_fault_with_contents_and_without(contents: bool) -> None:
    history = write_history(NOW)
    sent = decode_request(encode_request((history if contents else without_contents(history)).spans))
    (verdict,) = attribute_trace(build_graph(sent))
    assert (verdict.failure_type, verdict.span_id) == (history.failure_type, history.fault.span_id)
    assert verdict.failure.answer_span.origin == history.answer.origin
    assert verdict.complete == contents


def test_two_histories_share_no_memory_and_no_trace() -> None:
    first, second = write_history(NOW), write_history(NOW)
    assert {span.scope for span in first.spans} & {span.scope for span in second.spans} == {""}
    assert not first.traces().keys() & second.traces().keys()
    assert {span.service for span in (*first.spans, *second.spans)} == {"memtrace-canary"}


def test_spans_are_in_order_and_in_the_past() -> None:
    spans = write_history(NOW).spans
    assert all(earlier.start < later.start for earlier, later in pairwise(spans))
    assert max(span.end for span in spans) <= NOW
    assert len(write_history(NOW).traces()) == 3


def test_spans_lie_inside_their_parents() -> None:
    spans = {span.span_id: span for span in write_history(NOW).spans}
    inner = [(span, spans[span.parent_id]) for span in spans.values() if span.parent_id]
    assert len(inner) == 5
    assert all(parent.start < span.start < span.end <= parent.end for span, parent in inner)
