"""The JSON form of a verdict, as `memtrace-otel attribute --json` prints it."""

from __future__ import annotations

from typing import Any

from memtrace_otel.model import Verdict


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    """Return the verdict as a JSON object: the keys of the contract (wire.md section 6) and a few more."""
    failure = verdict.failure
    return {
        "trace_id": failure.answer_span.trace_id,
        "span_id": failure.answer_span.span_id,
        "failure_type": str(verdict.failure_type),
        "operation": {
            "trace_id": verdict.trace_id,
            "span_id": verdict.span_id,
            "name": verdict.operation,
            "kind": str(verdict.operation_kind),
        },
        "variable": verdict.variable,
        "confidence": verdict.confidence,
        "reason": verdict.reason,
        "alternatives": [
            {
                "failure_type": str(a.failure_type),
                "trace_id": a.trace_id,
                "span_id": a.span_id,
                "confidence": a.confidence,
            }
            for a in verdict.alternatives
        ],
        "evidence": [str(step) for step in verdict.evidence],
        "complete": verdict.complete,
        "method": verdict.method,
        "version": verdict.version,
        "attribution_id": verdict.attribution_id,
    }
