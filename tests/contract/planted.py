"""Plants one fault into an otherwise correct run of a small memory system and records the run as operation spans.

Every later step works on what the faulty one left, so the recording is consistent by itself. Nothing in the spans
tells the fault: type and place are returned beside them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from memtrace_otel.model import OperationSpan, Variable, content_digest
from memtrace_otel.semconv import Action, FailureType, OpKind, Role

from .story import NOISE, Told

START = datetime(2024, 2, 12, 9, tzinfo=UTC)
HITS = 5


class System(StrEnum):
    """Shapes of memory systems that the wire contract covers."""

    DECIDING = "deciding"  # extraction, decision, one span per write
    REWRITING = "rewriting"  # the decision puts the facts in words of its own, the writes read those
    ADDITIVE = "additive"  # extraction and writes, no decision step; corrections by explicit update
    OPAQUE = "opaque"  # upsert with the writes below it, nothing in between
    CHUNKS = "chunks"  # documents cut into chunks, no extraction
    LONG_CONTEXT = "long_context"  # every message in the prompt


class Fault(StrEnum):
    """What goes wrong, once, at one operation."""

    NONE = "none"
    DROPPED = "dropped"
    VAGUE = "vague"
    GARBLED = "garbled"
    MERGED_AWAY = "merged_away"
    NOT_RENEWED = "not_renewed"
    STORED_BESIDE = "stored_beside"
    DELETED = "deleted"
    RANKED_OUT = "ranked_out"
    WRONG_SCOPE = "wrong_scope"
    IGNORED = "ignored"
    MISREAD = "misread"
    WRONG_GOLD = "wrong_gold"
    WRONG_JUDGE = "wrong_judge"


TYPE_OF = {
    Fault.DROPPED: FailureType.EXTRACTION,
    Fault.VAGUE: FailureType.EXTRACTION,
    Fault.GARBLED: FailureType.EXTRACTION,
    Fault.MERGED_AWAY: FailureType.UPDATE,
    Fault.NOT_RENEWED: FailureType.UPDATE,
    Fault.STORED_BESIDE: FailureType.UPDATE,
    Fault.DELETED: FailureType.DELETION,
    Fault.RANKED_OUT: FailureType.RETRIEVAL,
    Fault.WRONG_SCOPE: FailureType.RETRIEVAL,
    Fault.IGNORED: FailureType.RESPONSE,
    Fault.MISREAD: FailureType.RESPONSE,
    Fault.WRONG_GOLD: FailureType.ANNOTATION,
    Fault.WRONG_JUDGE: FailureType.JUDGE,
}

_READING_FAULTS = {Fault.IGNORED, Fault.MISREAD, Fault.WRONG_GOLD, Fault.WRONG_JUDGE, Fault.NONE}
FAULTS_OF = {
    System.DECIDING: set(Fault),
    System.REWRITING: set(Fault),
    System.ADDITIVE: set(Fault) - {Fault.NOT_RENEWED},
    # Without an extraction step nobody can tell what was extracted and then not written.
    System.OPAQUE: set(Fault) - {Fault.NOT_RENEWED},
    System.CHUNKS: _READING_FAULTS | {Fault.RANKED_OUT, Fault.WRONG_SCOPE, Fault.DROPPED},
    System.LONG_CONTEXT: _READING_FAULTS,
}
"""Faults that a system has an operation for."""


@dataclass
class Recording:
    """The spans of one run, and what was planted."""

    spans: list[OperationSpan]
    failure_type: FailureType | None
    origin: str
    """Origin of the faulty operation: of the judge or the answer where memory did nothing wrong."""
    source: str
    """Ref of the message that told the fact."""


@dataclass
class _Run:
    system: System
    fault: Fault
    told: Told
    other: Told
    captured: bool
    evidence: bool
    spans: list[OperationSpan] = field(default_factory=list)
    clock: datetime = START
    store: dict[str, tuple[str, str, str]] = field(default_factory=dict)  # ref -> (text, origin, key)
    culprit: str = ""
    source: str = ""

    scope = "a1b2c3d4e5f60718"

    def add(self, trace: str, name: str, kind: OpKind, parent: str = "", **more: object) -> OperationSpan:
        def bare(variables: tuple[Variable, ...]) -> tuple[Variable, ...]:
            return tuple(_sealed(v, self.captured) for v in variables)

        self.clock += timedelta(seconds=2)
        span_id = hashlib.sha256(f"{trace}{len(self.spans)}".encode()).hexdigest()[:16]
        start = int(self.clock.timestamp() * 1e9)
        scope = str(more.pop("scope", self.scope))
        inputs, outputs = bare(more.pop("inputs", ())), bare(more.pop("outputs", ()))  # type: ignore[arg-type]
        span = OperationSpan(trace, span_id, parent, name, kind, "story", scope, len(self.spans), start=start,
                             end=start + 10**9, inputs=inputs, outputs=outputs, **more)  # type: ignore[arg-type]  # fmt: skip
        self.spans.append(span)
        return span

    def trace(self) -> str:
        return hashlib.sha256(f"trace{len(self.spans)}{self.told.key}{self.system}{self.fault}".encode()).hexdigest()[
            :32
        ]

    # --- writing -------------------------------------------------------------------------------------------------

    def tell(
        self,
        message: str,
        fact: str,
        key: str = "",
        *,
        action: Action = Action.ADD,
        text: str = "",
        faulty: Fault | None = None,
    ) -> None:
        """One turn: `fact` is what should be kept; `text` what the write makes of the record when it differs."""
        self.clock += timedelta(days=1)
        trace, planted = self.trace(), faulty is not None and faulty == self.fault
        said = Variable(f"message:{content_digest(message)}", Role.MESSAGE, content=message)
        if key == self.told.key and message == self.told.message:
            self.source = said.ref
        if self.system is System.LONG_CONTEXT:
            self.store[said.ref] = (f"[{self.clock:%Y-%m-%d}] {message}", "", key)
            return
        if self.system is System.CHUNKS:
            self._index(trace, said, message, key, planted and faulty is Fault.DROPPED)
            return
        top = self.add(trace, "upsert_memory", OpKind.INGEST, inputs=(said,))
        facts: tuple[Variable, ...] = (
            (Variable(f"fact:{content_digest(fact)}", content=fact, action=Action.DERIVE),) if fact else ()
        )
        origin, parent, sources = "", top, ()
        if self.system is not System.OPAQUE:
            step = self.add(trace, "memtrace.extract", OpKind.EXTRACT, top.span_id, inputs=(said,), outputs=facts)
            origin = step.origin
            sources = tuple(Variable(f.ref, origin=origin) for f in facts)
            if planted and faulty in (Fault.DROPPED, Fault.VAGUE, Fault.GARBLED):
                self.culprit = origin
        elif planted and faulty in (Fault.DROPPED, Fault.VAGUE, Fault.GARBLED):
            self.culprit = top.origin
        if self.system is System.REWRITING and fact:
            text = f"noted: {text or fact}"
        if self.system in (System.DECIDING, System.REWRITING) and fact:
            known = tuple(Variable(ref, Role.CANDIDATE, o) for ref, (_, o, k) in self.store.items() if k == key)
            kept = tuple(Variable(v.ref, action=Action.NONE) for v in known) if action == Action.NONE else ()
            if self.system is System.REWRITING and action != Action.NONE:
                kept = (Variable(f"fact:{content_digest(text)}", content=text, action=action),)
            parent = self.add(
                trace, "memtrace.decide", OpKind.DECIDE, top.span_id, inputs=(*sources, *known), outputs=kept
            )
            if self.system is System.REWRITING:
                sources = tuple(Variable(v.ref, origin=parent.origin) for v in kept)
            if planted and faulty in (Fault.NOT_RENEWED, Fault.STORED_BESIDE):
                self.culprit = parent.origin
        if fact and action != Action.NONE:
            written = self._write(trace, parent, sources, action, text or fact, key)
            if planted and not self.culprit:
                self.culprit = written.origin

    def _write(
        self, trace: str, parent: OperationSpan, sources: tuple[Variable, ...], action: Action, text: str, key: str
    ) -> OperationSpan:
        old = next((ref for ref, (_, _, k) in reversed(self.store.items()) if k == key and key), "")
        ref = old if action != Action.ADD and old else f"memory:{hashlib.sha256(trace.encode()).hexdigest()[:12]}"
        previous = (Variable(ref, Role.PREVIOUS, self.store[ref][1]),) if ref in self.store else ()
        name = {Action.ADD: "create_memory", Action.UPDATE: "update_memory", Action.DELETE: "delete_memory"}[action]
        kind = {Action.ADD: OpKind.CREATE, Action.UPDATE: OpKind.UPDATE, Action.DELETE: OpKind.DELETE}[action]
        content = "" if action == Action.DELETE else text
        span = self.add(trace, name, kind, parent.span_id, inputs=(*sources, *previous),
                        outputs=(Variable(ref, content=content, action=action),))  # fmt: skip
        self.store.pop(ref, None)
        if content:
            self.store[ref] = (content, span.origin, key)
        return span

    def _index(self, trace: str, said: Variable, message: str, key: str, planted: bool) -> None:
        document = Variable(f"document:{content_digest(message)}", content=message)
        if said.ref == self.source:
            self.source = document.ref
        chunks = () if planted else (Variable(f"chunk:{content_digest(message)}", content=message, action=Action.ADD),)
        span = self.add(trace, "memtrace.index", OpKind.INDEX, inputs=(document,), outputs=chunks)
        if planted:
            self.culprit = span.origin
        self.store.update({c.ref: (message, span.origin, key) for c in chunks})

    # --- reading -------------------------------------------------------------------------------------------------

    def ask(self) -> None:
        self.clock += timedelta(days=30)
        trace, told, fault = self.trace(), self.told, self.fault
        query = Variable(f"query:{told.key}", Role.QUERY, content=told.question)
        hits = self._search()
        parent = self.add(trace, "ask", OpKind.OTHER, scope="")
        read: tuple[Variable, ...]
        if self.system is System.LONG_CONTEXT:
            read = tuple(Variable(ref, Role.CONTEXT, content=text) for ref, (text, _, _) in self.store.items())
        else:
            name = "retrieval" if self.system is System.CHUNKS else "search_memory"
            found = tuple(Variable(ref, Role.HIT, origin, score=0.9 - 0.1 * i) for i, (ref, origin) in enumerate(hits))
            scope = "ffff0000ffff0000" if fault is Fault.WRONG_SCOPE else self.scope
            text = "\n".join(self.store[ref][0] for ref, _ in hits)
            context = Variable(f"context:{trace[:16]}", content=text, action=Action.DERIVE)
            search = self.add(
                trace, name, OpKind.RETRIEVE, parent.span_id, scope=scope, inputs=(query, *found), outputs=(context,)
            )
            if fault in (Fault.RANKED_OUT, Fault.WRONG_SCOPE):
                self.culprit = search.origin
            read = (Variable(context.ref, Role.CONTEXT, search.origin),)
        given = self._answer([self.store[ref][0] for ref, _ in hits])
        answer = Variable("answer:a", Role.ANSWER, content=given)
        responded = self.add(
            trace, "chat", OpKind.RESPOND, parent.span_id, scope="", inputs=(query, *read), outputs=(answer,)
        )
        gold = told.wrong if fault is Fault.WRONG_GOLD else told.answer
        right = fault is not Fault.WRONG_JUDGE and gold == told.answer and given in (told.answer, told.reworded)
        label = {
            "gen_ai.evaluation.name": "correctness",
            "gen_ai.evaluation.score.label": "correct" if right else "incorrect",
        }
        expected = Variable("expected:e", Role.EXPECTED, content=gold)
        judge = self.add(
            trace, "memtrace.judge", OpKind.JUDGE, parent.span_id, scope="", attributes=label,
            evidence=(self.source,) if self.evidence else (),
            inputs=(query, Variable(answer.ref, Role.ANSWER, responded.origin), expected),
        )  # fmt: skip
        if fault in (Fault.IGNORED, Fault.MISREAD, Fault.WRONG_GOLD):
            self.culprit = responded.origin
        if fault is Fault.WRONG_JUDGE:
            self.culprit = judge.origin

    def _search(self) -> list[tuple[str, str]]:
        """Records of the asked key first, then the others, newest first."""
        if self.fault is Fault.WRONG_SCOPE:
            return []
        wanted = [ref for ref, (_, _, key) in self.store.items() if key == self.told.key]
        others = [ref for ref in reversed(self.store) if ref not in wanted]
        if self.fault is Fault.RANKED_OUT:
            wanted = []
        if self.fault is Fault.STORED_BESIDE:
            wanted = wanted[:1]
        limit = None if self.system is System.LONG_CONTEXT else HITS
        return [(ref, self.store[ref][1]) for ref in (*wanted, *others)[:limit]]

    def _answer(self, memories: list[str]) -> str:
        told = self.told
        if self.fault is Fault.IGNORED:
            return "That is not mentioned in the memories."
        if self.fault is Fault.MISREAD:
            return told.wrong
        if any(text.endswith((told.fact, told.message)) for text in memories):
            return told.reworded
        if any(text.endswith(told.garbled) for text in memories):
            return told.wrong
        if told.outdated and any(text.endswith((told.outdated, told.outdated_message)) for text in memories):
            return told.outdated_answer
        return "There is no information about that."


def _sealed(variable: Variable, captured: bool) -> Variable:
    digest = variable.digest or (content_digest(variable.content) if variable.content else "")
    return Variable(variable.ref, variable.role, variable.origin, digest, variable.content if captured else "",
                    variable.score, variable.action)  # fmt: skip


def record(
    system: System, fault: Fault, told: Told, other: Told, *, captured: bool = True, evidence: bool = False
) -> Recording:
    """Run the story with one fault about `told`; `other` lends its answer to a wrong gold."""
    run = _Run(system, fault, told, other, captured, evidence)
    corrected = bool(told.outdated) and fault in (Fault.NOT_RENEWED, Fault.STORED_BESIDE)
    for message, fact in NOISE[:3]:
        run.tell(message, fact)
    if corrected:
        run.tell(told.outdated_message, told.outdated, told.key)
    run.tell(other.message, other.fact, other.key)
    run.clock = datetime(2024, 3, 4, 9, tzinfo=UTC)  # `yesterday` of the story is 4 March
    kept = {Fault.DROPPED: "", Fault.VAGUE: told.vague, Fault.GARBLED: told.garbled}.get(fault, told.fact)
    action = Action.NONE if fault is Fault.NOT_RENEWED else Action.ADD
    run.tell(
        told.message,
        kept,
        told.key,
        action=action,
        faulty=None if fault in (Fault.MERGED_AWAY, Fault.DELETED) else fault,
    )
    for message, fact in NOISE[3:]:
        run.tell(message, fact)
    if fault is Fault.MERGED_AWAY:
        run.tell(told.aside, told.merged, told.key, action=Action.UPDATE, faulty=fault)
    elif fault is Fault.DELETED:
        run.tell(told.aside, told.aside, told.key, action=Action.DELETE, faulty=fault)
    run.tell("The tram was late again.", "Found the tram late again")
    run.ask()
    return Recording(run.spans, TYPE_OF.get(fault), run.culprit, run.source)
