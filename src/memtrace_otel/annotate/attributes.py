"""The attributes every span of a verdict carries (wire contract, section 5)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import cast

from memtrace_otel import semconv
from memtrace_otel.model import Alternative, AttributeValue, Verdict, make_origin, rfc3339
from memtrace_otel.version import __version__

REASON_BYTES = 1900
"""Longest reason on a span: Tempo cuts string attributes at 2048 bytes, possibly inside a character."""
EXPLANATION_BYTES = 512
"""Longest copy of the reason under other conventions' keys."""
LIST_BYTES = 1536
"""Most bytes of one list attribute: with the lengths above, every span stays within the budget of 8 KiB."""


def verdict_attributes(verdict: Verdict) -> dict[str, AttributeValue]:
    """Return the attributes of the marker and of the attribution root. What is not known is left out.

    A reason or list that is too long for a span ends early; `incomplete` tells.
    """
    attributes: dict[str, AttributeValue] = {
        semconv.FAILURE_TYPE: verdict.failure_type,
        semconv.FAILURE_ANSWER: verdict.failure.answer_span.origin,
        semconv.FAILURE_CONFIDENCE: verdict.confidence,
        semconv.FAILURE_REASON: clip(verdict.reason, REASON_BYTES),
        semconv.FAILURE_COMPLETE: verdict.complete,
        semconv.ATTRIBUTION_ID: verdict.attribution_id,
        semconv.ATTRIBUTION_METHOD: verdict.method,
        semconv.ATTRIBUTION_VERSION: verdict.version or __version__,
    }
    optional = {
        semconv.FAILURE_TRACE_ID: verdict.trace_id,
        semconv.FAILURE_SPAN_ID: verdict.span_id,
        semconv.FAILURE_OPERATION: verdict.operation,
        semconv.FAILURE_VARIABLE: verdict.variable,
        semconv.FAILURE_WHEN: rfc3339(verdict.when) if verdict.when else "",
        semconv.ATTRIBUTION_REPLACES: verdict.replaces,
        semconv.FAILURE_ADVICE: clip(verdict.advice, EXPLANATION_BYTES),
        semconv.FAILURE_REPLAY: verdict.replay.outcome if verdict.replay else "",
    }
    attributes.update({name: value for name, value in optional.items() if value})
    lists = {
        semconv.FAILURE_EVIDENCE: _leading([str(step) for step in verdict.evidence]),
        semconv.FAILURE_ALTERNATIVES: _leading([_alternative(other) for other in verdict.alternatives]),
    }
    return attributes | lists


def incomplete(verdict: Verdict, attributes: Mapping[str, AttributeValue]) -> tuple[str, ...]:
    """Return `memtrace.incomplete` of a span with these attributes: whether a list or the reason was cut short."""
    whole = (
        (semconv.FAILURE_EVIDENCE, len(verdict.evidence)),
        (semconv.FAILURE_ALTERNATIVES, len(verdict.alternatives)),
        (semconv.FAILURE_REASON, len(verdict.reason)),
    )
    cut = any(len(cast("str | list[str]", attributes.get(name, ""))) < size for name, size in whole)
    return (semconv.Incomplete.TRUNCATED,) if cut else ()


def clip(text: str, size: int) -> str:
    """Return the longest beginning of `text` that is at most `size` UTF-8 bytes and ends between characters."""
    data = text.encode("utf-8", "replace")
    return data.decode() if len(data) <= size else data[:size].decode("utf-8", "ignore")


def _alternative(other: Alternative) -> str:
    origin = make_origin(other.trace_id, other.span_id) if other.span_id else ""
    return f"{other.failure_type}|{origin}|{other.confidence:g}"


def _leading(items: list[str]) -> list[str]:
    """Return the leading items that fit `LIST_BYTES` together."""
    ends = accumulate(len(item.encode("utf-8", "replace")) for item in items)
    return items[: sum(end <= LIST_BYTES for end in ends)]
