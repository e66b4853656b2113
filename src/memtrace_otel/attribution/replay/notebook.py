"""A home-made notebook: a text that a model rewrites call by call, and that the prompt of the answer quotes whole.

The calls are found by their words: each request has the reply before on lines of its own, under the same instructions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from memtrace_otel.attribution.evidence import Evidence
from memtrace_otel.attribution.replay.repair import Repair, sentences, told_texts
from memtrace_otel.attribution.replay.replayer import Write
from memtrace_otel.attribution.text import terms
from memtrace_otel.model import OperationSpan, ref_kind
from memtrace_otel.semconv import FailureType, OpKind, RefKind, Role

_ITEM = re.compile(r"^\s*(?:[-*•]|\d{1,3}[.)])\s+")
_FIRST = 0
"""Time of a corrected line: before the others, because a line that should be gone may hold an older value."""
_MESSAGES = 50
"""Most messages that a model reads in place of a notebook, to show that the model can answer."""


@dataclass(frozen=True, slots=True)
class Notebook:
    """The calls that wrote a notebook, oldest first, and the lines that each call left."""

    calls: tuple[OperationSpan, ...]
    pages: tuple[tuple[str, ...], ...]

    def writes(self, change: Repair | None = None) -> list[Write]:
        """Return the writes of the lines, as recorded or with a repair; each line is a record.

        A later line that holds a recorded line holds the corrected text in its place.
        """
        corrected = dict(change.corrected) if change else {}
        writes = [Write(f"added {i}", text, _FIRST) for i, text in enumerate(change.added if change else ())]
        texts: dict[str, str] = {}
        for call, gone, new in self.changes():
            if corrected.get(("", call.origin), "") is None:
                continue
            writes += [Write(line, "", call.end) for line in gone]
            for line in new:
                text = corrected.get((line, call.origin))
                carried = (line.replace(old, texts[old]) for old in gone if old in texts and old in line)
                texts[line] = text or next(carried, line)
                writes.append(Write(line, texts[line], _FIRST if text else call.end))
        return writes

    def repair(self, evidence: Evidence, failure_type: str, operation: OperationSpan) -> Repair | None:
        """Return how a fault is undone, None where the operation wrote nothing of the notebook.

        An update that took out a line about the question never happens; one that left an outdated line is an
        extraction done right.
        """
        if failure_type == FailureType.RETRIEVAL:
            return Repair(self.pages[-1])
        if failure_type == FailureType.RESPONSE:
            needs, compare = evidence.wish.needs, evidence.compare
            right = tuple(line for line in self.pages[-1] if any(compare.supports(line, n, None) for n in needs))
            return Repair(right or self.told(evidence))
        calls = {operation.origin, *(v.origin for v in operation.inputs if v.role == Role.ANSWER)}
        held: tuple[str, ...] = ()
        for (call, gone, new), page in zip(self.changes(), self.pages, strict=True):
            if call.origin in calls:
                if failure_type == FailureType.EXTRACTION:
                    return self._extracted(evidence, call, new)
                if not any(terms(line) & evidence.wish.question_terms for line in gone):
                    done = self._extracted(evidence, call, new)
                    return done and replace(done, left=())
                every = frozenset(line for page in self.pages for line in page)
                return Repair(held, page, every, ((("", call.origin), None),))
            held = page
        return None

    def _extracted(self, evidence: Evidence, call: OperationSpan, new: list[str]) -> Repair | None:
        """Return the repair that stores each sentence of the messages that a call was given."""
        given = _told(evidence, call)
        facts = tuple(part for text in given for part in sentences(text))
        if not facts:
            return None
        nearest = {line: max(facts, key=lambda part: len(terms(part) & terms(line))) for line in new}
        nearest = {line: part for line, part in nearest.items() if terms(part) & terms(line)}
        corrected = tuple(((line, call.origin), text) for line, text in nearest.items())
        added = tuple(part for part in facts if part not in nearest.values())
        return Repair(given, tuple(new), frozenset(new), corrected, added)

    def told(self, evidence: Evidence) -> tuple[str, ...]:
        """Return the messages: first those with the words of the missing pieces, then the others, newest first."""
        texts = (text for call in reversed(self.calls) for text in _told(evidence, call))
        return tuple(dict.fromkeys((*told_texts(evidence), *islice(texts, _MESSAGES))))

    def changes(self) -> Iterator[tuple[OperationSpan, list[str], list[str]]]:
        """Yield each call with the lines that the call took out, and those that the call put in."""
        held: tuple[str, ...] = ()
        for call, page in zip(self.calls, self.pages, strict=True):
            yield call, [line for line in held if line not in page], [line for line in page if line not in held]
            held = page


def _told(evidence: Evidence, call: OperationSpan) -> tuple[str, ...]:
    """Return the messages of its trace that the request of a call quotes."""
    lineage = evidence.lineage
    request = _request(evidence, call)
    spans = [span for span in lineage.in_trace(call.trace_id) if span is not call and span.start <= call.start]
    reads = ((v, lineage.content(v, read)) for span in spans for v, read in lineage.reads(span))
    told = (text for v, text in reads if v.role in (Role.QUERY, Role.MESSAGE) and text.strip() and text in request)
    return tuple(dict.fromkeys(told))


def _request(evidence: Evidence, call: OperationSpan) -> str:
    """Return the instructions and the request of a call."""
    reads = evidence.lineage.reads(call)
    return "\n".join(evidence.lineage.content(v, read) for v, read in reads if v.role in (Role.PROMPT, Role.QUERY))


def notebook_of(evidence: Evidence) -> Notebook | None:
    """Return the notebook that the prompt of the answer quotes, None without one and where memory was searched."""
    if evidence.results.searches:
        return None
    replies = [
        (span, output.content.strip())
        for span in evidence.lineage.spans
        for output in span.outputs
        if span.kind == OpKind.RESPOND and ref_kind(output.ref) == RefKind.ANSWER and output.content.strip()
    ]
    found: list[tuple[OperationSpan, str]] = []
    reader = evidence.answer_span
    while True:
        request = f"\n{_request(evidence, reader)}\n"
        earlier = [(s, reply) for s, reply in replies if s.start < reader.start and f"\n{reply}\n" in request]
        if found:
            earlier = [(s, reply) for s, reply in earlier if _instructions(s) == _instructions(reader)]
        if not earlier:
            break
        found.append(max(earlier, key=lambda one: (len(one[1]), one[0].start)))
        reader = found[-1][0]
    found.reverse()
    return Notebook(tuple(span for span, _ in found), tuple(_lines(reply) for _, reply in found)) if found else None


def _lines(reply: str) -> tuple[str, ...]:
    lines = (_ITEM.sub("", line).strip() for line in reply.splitlines())
    return tuple(dict.fromkeys(filter(None, lines)))


def _instructions(call: OperationSpan) -> list[str]:
    return [v.ref for v in call.inputs if v.role == Role.PROMPT]
