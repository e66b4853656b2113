"""Baselines without lineage: constant answers and the lexical first-loss rule, shown beside every result."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from memtrace_otel.model import OperationSpan, has_failing_evaluation
from memtrace_otel.semconv import Action, FailureType, OpKind, RefKind, Role

_WORD = re.compile(r"[a-z0-9]+|[^\W_]", re.IGNORECASE)
_EXTRACTED, _KEPT, _RETURNED = 0.5, 0.5, 0.34


def first_loss(spans: Sequence[OperationSpan]) -> str | None:
    """Return where most words of the expected answer are lost first; None without a failing evaluation or its words.

    The cuts are those of the published rule: 0.5 of the words extracted, at most 0.5 fewer kept, 0.34 returned.
    """
    judge = next((span for span in spans if span.kind == OpKind.JUDGE and has_failing_evaluation(span, 0.5)), None)
    if judge is None:
        return None
    wanted = _words(variable.content for variable in judge.inputs if variable.role == Role.EXPECTED)
    if not wanted:
        return None
    by_origin = {(v.ref, span.origin): v.content for span in spans for v in span.outputs}
    extracted = [v.content for span in spans for v in span.outputs if span.kind == OpKind.EXTRACT]
    live: dict[str, str] = {}
    for span in sorted(spans, key=lambda span: span.start):
        for variable in span.outputs:
            if variable.ref.startswith(f"{RefKind.MEMORY}:") and variable.action != Action.NONE:
                live[variable.ref] = variable.content
    returned = [by_origin.get((v.ref, v.origin), "") for span in spans if span.trace_id == judge.trace_id
                for v in span.inputs if v.role == Role.HIT]  # fmt: skip

    def share(texts: Iterable[str]) -> float:
        return max((len(wanted & _words((text,))) / len(wanted) for text in texts), default=0.0)

    if (found := share(extracted)) < _EXTRACTED:
        return FailureType.EXTRACTION
    if share(live.values()) < found - _KEPT:
        return FailureType.UPDATE
    return FailureType.RETRIEVAL if share(returned) < _RETURNED else FailureType.RESPONSE


def _words(texts: Iterable[str]) -> set[str]:
    return {word.lower() for text in texts for word in _WORD.findall(text)}
