"""Read-only tools on the graph of one case. Every operation and version that a tool shows gets a short id."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from memtrace_otel.attribution.endpoint import shown
from memtrace_otel.attribution.evidence import Evidence
from memtrace_otel.attribution.lineage import Version
from memtrace_otel.attribution.replay.prompt import recorded_prompt
from memtrace_otel.attribution.text import terms
from memtrace_otel.graph import VersionKey
from memtrace_otel.model import OperationSpan, Variable, parse_time, rfc3339
from memtrace_otel.semconv import OpKind, Role

FOUND, LISTED = 8, 24
"""Most texts that a search and that another tool returns."""
_TEXT, _WHOLE = 240, 1200
"""Longest text in a list, and alone (characters)."""
Document = dict[str, Any]


class UnknownIdError(ValueError):
    """The id was never shown; the message names it."""


class Tools:
    """The tools, and what they showed. Nothing outside of the graph is read."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence, self._lineage = evidence, evidence.lineage
        self._ids: dict[str | VersionKey, str] = {}
        self._operations: dict[str, OperationSpan] = {}
        self._versions: dict[str, VersionKey] = {}
        self._by_name: Mapping[str, Callable[[str, str], Document]] = {
            "search": self._search,
            "open": self._open,
            "history": self._history,
            "readers": self._readers,
            "candidates": self._candidates,
            "prompt": self._prompt,
            "compare": self._compare,
            "state": self._state,
        }

    def call(self, name: str, id: str, text: str) -> Document:
        """Return what a tool shows. Raises UnknownIdError, ValueError for other useless arguments."""
        if name not in self._by_name:
            raise ValueError(f"there is no tool {shown(name, 40)}")
        return self._by_name[name](id, text)

    # --- ids -----------------------------------------------------------------------------------------------------
    def operation(self, id: str) -> OperationSpan:
        """Return a shown operation."""
        if id not in self._operations:
            raise UnknownIdError(f"no operation {shown(id, 40)} was shown")
        return self._operations[id]

    def version(self, id: str) -> VersionKey:
        """Return a shown version of a message, fact or record."""
        if id not in self._versions:
            raise UnknownIdError(f"no version {shown(id, 40)} was shown")
        return self._versions[id]

    def id_of(self, span: OperationSpan) -> str:
        """Return the short id of an operation, a new one when it is shown for the first time."""
        if span.origin not in self._ids:
            self._ids[span.origin] = f"o{len(self._operations) + 1}"
            self._operations[self._ids[span.origin]] = span
        return self._ids[span.origin]

    def id_of_version(self, version: VersionKey) -> str:
        """Return the short id of a version."""
        if version not in self._ids:
            self._ids[version] = f"v{len(self._versions) + 1}"
            self._versions[self._ids[version]] = version
        return self._ids[version]

    # --- what the tools show -------------------------------------------------------------------------------------
    def _search(self, id: str, text: str) -> Document:
        """The messages, facts and records with most of the words, in time order."""
        wanted = terms(text)
        share = self._evidence.compare.lexicon.share
        scored = [(share(wanted, terms(version.content)), version) for version in self._all()]
        best = sorted((one for one in scored if one[0] > 0), key=lambda one: -one[0])[:FOUND]
        found = sorted((version for _, version in best), key=lambda version: version.span.start)
        return {"found": [self._row(version) for version in found]}

    def _open(self, id: str, text: str) -> Document:
        """An operation: what it read and what it wrote."""
        span = self.operation(id)
        reads = [(variable, version) for variable, version in self._lineage.reads(span) if variable.role != Role.PROMPT]
        below = [one for one in self._lineage.subtree(span)[1:] if one.outputs]
        return {
            **self._described(span),
            "reads": [self._variable(variable, version) for variable, version in islice(reads, LISTED)],
            "writes": [
                {**self._variable(output, VersionKey(output.ref, span.origin)), "action": output.action}
                for output in islice(span.outputs, LISTED)
            ],
            "inside": [self._described(one) for one in islice(below, FOUND)],
        }

    def _history(self, id: str, text: str) -> Document:
        """The versions of a record in causal order."""
        ref = self.version(id).ref
        history = next((h for h in self._evidence.records if h[-1].ref == ref), ())
        return {"versions": [self._row(version) for version in history[-LISTED:]]}

    def _readers(self, id: str, text: str) -> Document:
        """The operations that read a version."""
        readers = self._lineage.readers_of(self.version(id))
        return {"readers": [self._described(span) for span in readers[:LISTED]]}

    def _candidates(self, id: str, text: str) -> Document:
        """The hits of a search and the candidates that the search left out, in order."""
        span = self.operation(id)
        rows = [
            {"role": variable.role, "score": variable.score, **self._variable(variable, version)}
            for variable, version in self._lineage.reads(span)
            if variable.role in (Role.HIT, Role.CANDIDATE)
        ]
        return {**self._described(span), "ranked": rows[:LISTED], "left_off": max(0, len(rows) - LISTED)}

    def _prompt(self, id: str, text: str) -> Document:
        """The request of the judged answer as sent."""
        prompt = recorded_prompt(self._evidence)
        if prompt is None:
            raise ValueError("the prompt is not recorded")
        return {"messages": [{**m, "content": shown(m["content"], 2 * _WHOLE)} for m in prompt.messages]}

    def _compare(self, id: str, text: str) -> Document:
        """Two texts whole, and the words that only one of them has."""
        (one, first), (two, second) = ((i, self._content(self.version(i))) for i in (id, text))
        only = [sorted(terms(a) - terms(b))[:LISTED] for a, b in ((first, second), (second, first))]
        return {one: shown(first, _WHOLE), two: shown(second, _WHOLE), f"only {one}": only[0], f"only {two}": only[1]}

    def _state(self, id: str, text: str) -> Document:
        """The records that the memory held at a time, RFC 3339; '' for when the question came. Nearest to the question
        first."""
        at = parse_time(text) if text.strip() else self._evidence.results.asked_at
        held = [[v for v in history if v.span.start <= at] for history in self._evidence.records]
        live = [versions[-1] for versions in held if versions and not versions[-1].deleted]
        live.sort(key=lambda version: -self._evidence.compare.about(version.content))
        return {"held": [self._row(version) for version in live[:LISTED]], "left_off": max(0, len(live) - LISTED)}

    # --- rows ----------------------------------------------------------------------------------------------------
    def _all(self) -> Iterable[Version]:
        found = {v.key: v for source in self._evidence.messages for v in (source.message, *source.facts)}
        found |= {version.key: version for history in self._evidence.records for version in history}
        return found.values()

    def _row(self, version: Version) -> Document:
        text = "deleted" if version.deleted else shown(version.content, _TEXT)
        kind = version.ref.partition(":")[0]
        row = {"id": self.id_of_version(version.key), "kind": kind, "when": rfc3339(version.span.start), "text": text}
        writer = self._lineage.span(version.span.origin)
        return {**row, "operation": self.id_of(writer)} if writer else row

    def _described(self, span: OperationSpan) -> Document:
        kind = span.kind or OpKind.OTHER
        return {"id": self.id_of(span), "kind": kind, "name": shown(span.name, 60), "when": rfc3339(span.start)}

    def _variable(self, variable: Variable, version: VersionKey) -> Document:
        text = self._lineage.content(variable, version)
        return {"id": self.id_of_version(version), "role": variable.role, "text": shown(text, _TEXT)}

    def _content(self, version: VersionKey) -> str:
        known = (found.content for found in self._all() if found.key == version)
        return next(known, "") or self._lineage.content(Variable(version.ref), version)
