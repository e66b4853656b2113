"""Ids of verdicts and of their spans: the same verdict always has the same ids, another verdict never has them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from memtrace_otel import semconv
from memtrace_otel.model import OperationSpan, Verdict

_HUMAN, _RULES = "human", "rules"
_WITH_MODEL = frozenset({"rules+model", "agent"})


class _Link(NamedTuple):
    replaces: str
    failure_type: str
    complete: bool


def succeed(verdict: Verdict, trace: Iterable[OperationSpan]) -> Verdict:
    """Return `verdict` with its attribution id, the id it replaces and the types of those before it, given the failing
    trace as stored.

    The markers of one answer form a chain: each names the one before it. A verdict equal to the newest marker gets
    that marker's ids, so that nothing new arises, unless it is complete now and was not; any other verdict becomes its
    successor under a new id, even when an older link of the chain said the same (A, then B, then A again are three).
    """
    chain = _chain(verdict.failure.answer_span.origin, trace)
    kept = verdict.attribution_id in chain  # that id has what came before it in it
    claim = (not kept and verdict.attribution_id) or verdict.claim
    newest = min(chain.keys() - {link.replaces for link in chain.values()}, default="")
    is_equal = newest and newest in (verdict.attribution_id, _successor(claim, chain[newest].replaces))
    if is_equal and chain[newest].complete >= verdict.complete:
        id, replaces = newest, chain[newest].replaces
    else:
        id, replaces = _successor(claim, newest), newest
    earlier = frozenset(link.failure_type for other, link in chain.items() if other != id)
    return replace(verdict, attribution_id=id, replaces=replaces, earlier_types=earlier)


def reason_to_keep(
    method: str, complete: bool, later: Verdict, *, replayed: bool = False, lost: bool = False, partial: bool = False
) -> str:
    """Return why the earlier verdict on an answer holds against a later one, '' when the later one replaces it.

    `method` and `complete` are those of the earlier verdict. `replayed`: running again verified the earlier verdict, or
    tried the same verdict (`is_proof`).
    `lost`: an operation that the earlier verdict rests on is no longer there, so the later verdict was made of less.
    `partial`: the later verdict was made while a source could not read everything.

    | earlier verdict | later verdict                          | holds                 |
    |-----------------|----------------------------------------|-----------------------|
    | of a person     | not of a person                        | earlier (wire.md 7)   |
    | of a model      | of rules alone, not more complete      | earlier               |
    | replayed        | not replayed, not more complete        | earlier               |
    | any             | made after its evidence was lost       | earlier               |
    | complete        | made of a part of the spans            | earlier               |
    | any             | any other                              | later                 |
    """
    if method == _HUMAN and later.method != _HUMAN:
        return "made by rules"
    if method in _WITH_MODEL and later.method == _RULES and complete >= later.complete:
        return "made by rules alone"
    if replayed and later.replay is None and complete >= later.complete:
        return "made without a replay"
    if lost:
        return "made without the operations that the earlier verdict names"
    return "made when not everything could be read" if complete and partial else ""


def is_proof(outcome: str, *, same: bool) -> bool:
    """Return whether a replay makes a verdict hold against one without a replay that says the same, or another."""
    return outcome == semconv.ReplayOutcome.VERIFIED or (bool(outcome) and same)


def trace_id(verdict: Verdict) -> str:
    """Return the id of the attribution trace."""
    return _digest(verdict.attribution_id, "trace", size=32)


def span_id(verdict: Verdict, part: str) -> str:
    """Return the id of one span of the verdict; `part` names it: a target's origin, `root` or a step."""
    return _digest(verdict.attribution_id, part, size=16)


def root_of(span: OperationSpan) -> str:
    """Return the id of the root of the attribution that a span of ours belongs to."""
    id = str(span.attributes.get(semconv.ATTRIBUTION_ID, ""))
    return _digest(id, "root", size=16) if id else span.parent_id


def _successor(claim: str, previous: str) -> str:
    return _digest(claim, previous, size=32) if previous else claim


def _chain(answer: str, trace: Iterable[OperationSpan]) -> dict[str, _Link]:
    """Return the attributions of `answer` that the stored trace holds, by id."""
    return {
        str(span.attributes[semconv.ATTRIBUTION_ID]): _Link(
            str(span.attributes.get(semconv.ATTRIBUTION_REPLACES, "")),
            str(span.attributes.get(semconv.FAILURE_TYPE, "")),
            span.attributes.get(semconv.FAILURE_COMPLETE) is not False,
        )
        for span in trace
        if span.instrumentation_scope == semconv.ATTRIBUTION_SCOPE
        and span.attributes.get(semconv.FAILURE_ANSWER) == answer
        and semconv.ATTRIBUTION_ID in span.attributes
    }


def _digest(*parts: str, size: int) -> str:
    """Return `size` hex digits, never all zero (an invalid id)."""
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:size]
    return digest if digest.strip("0") else "1" * size
