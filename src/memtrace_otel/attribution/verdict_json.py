"""The JSON form of a verdict, as `memtrace-otel attribute --json` prints it."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

from memtrace_otel.model import Alternative, Failure, ModelCall, Replay, Step, Verdict
from memtrace_otel.semconv import FailureType


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
        "advice": verdict.advice,
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
        "model": verdict.model,
        "tokens": verdict.tokens,
        "model_problem": verdict.model_problem,
        **({"calls": [asdict(call) for call in verdict.calls]} if verdict.calls else {}),
        **({"replay": asdict(verdict.replay)} if verdict.replay else {}),
        "version": verdict.version,
        "attribution_id": verdict.attribution_id,
    }


def contents_json(verdict: Verdict) -> dict[str, str]:
    """Return question, answer and expected answer, each where its content was captured."""
    failure = verdict.failure
    contents = {"question": failure.question, "answer": failure.answer, "expected": failure.expected}
    return {name: content for name, content in contents.items() if content}


def verdict_document(verdict: Verdict, scope: str) -> dict[str, Any]:
    """Return the JSON object that a log stores: the verdict, its contents, and what pages filter by.

    `scope` is the memory scope that the verdict is about, '' when unknown. `answered` is ns since the epoch.
    """
    answer = verdict.failure.answer_span
    members = {"answered": answer.start, "system": answer.system, "service": answer.service, "scope": scope}
    return verdict_json(verdict) | contents_json(verdict) | members


def read_verdict(text: str, failure: Failure) -> Verdict:
    """Return the verdict on `failure` that `verdict_json` wrote as `text`, without the notes of its evidence.

    Raises ValueError, KeyError, TypeError.
    """
    said = json.loads(text)
    operation = said["operation"]
    return Verdict(
        failure=failure,
        failure_type=FailureType(said["failure_type"]),
        trace_id=operation["trace_id"],
        span_id=operation["span_id"],
        operation=operation["name"],
        operation_kind=operation["kind"],
        variable=said["variable"],
        confidence=said["confidence"],
        reason=said["reason"],
        advice=said.get("advice", ""),
        evidence=tuple(_read_step(step) for step in said["evidence"]),
        alternatives=tuple(Alternative(**one) for one in said["alternatives"]),
        complete=said["complete"],
        method=said["method"],
        model=said.get("model", ""),
        tokens=said.get("tokens", 0),
        model_problem=said.get("model_problem", ""),
        calls=tuple(ModelCall(**call) for call in said.get("calls", ())),
        replay=_read_replay(said["replay"]) if "replay" in said else None,
        version=said["version"],
        attribution_id=said["attribution_id"],
    )


def _read_replay(said: dict[str, Any]) -> Replay:
    replay = Replay(**said)
    return replace(replay, removed=tuple(replay.removed), added=tuple(replay.added))


def _read_step(text: str) -> Step:
    """Return the step of the wire form; a ref may hold anything."""
    role, _, rest = text.partition("|")
    ref, _, origin = rest.rpartition("|")
    return Step(role, ref, origin)
