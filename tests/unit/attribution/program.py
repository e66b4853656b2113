"""A small recorded program: messages with what memory made of them, then a question with its search and answer."""

from __future__ import annotations

from memtrace_otel.attribution import attribute_trace
from memtrace_otel.graph import build_graph
from memtrace_otel.model import OperationSpan, Variable, Verdict
from memtrace_otel.semconv import RECORD_OWNER, Action, OpKind, Role
from memtrace_otel.testing import contract_span

ANN, BOB = "a" * 16, "b" * 16
DAY = 86_400
NOVEMBER_9 = 1_794_182_400
"""Monday, 9 November 2026, in seconds: the day before the first message."""


class Program:
    """Collects spans; each call is a trace of its own, a day after the one before."""

    def __init__(self) -> None:
        self.spans: list[OperationSpan] = []
        self._trace = 0

    def _span(self, kind: str, **fields: object) -> OperationSpan:
        span = contract_span(self._trace, len(self.spans) + 1, self.now + len(self.spans), kind=kind, **fields)  # type: ignore[arg-type]
        self.spans.append(span)
        return span

    @property
    def now(self) -> int:
        """The time (s) of the last call."""
        return NOVEMBER_9 + self._trace * DAY

    def tell(self, text: str, *facts: str, scope: str = ANN, stored: bool = True, time: str = "") -> list[Variable]:
        """Tell a message: an extraction makes the facts, each `stored` as a record. Return the records as hits.

        `time` is the time of the message that the records name (RFC 3339).
        """
        self._trace += 1
        message = Variable(f"message:{self._trace}", Role.MESSAGE, content=text)
        outputs = tuple(Variable(f"fact:{self._trace}.{n}", content=fact) for n, fact in enumerate(facts))
        extract = self._span(OpKind.EXTRACT, scope=scope, inputs=(message,), outputs=outputs)
        return [self._create(fact, extract, scope, time) for fact in outputs] if stored else []

    def _create(self, fact: Variable, extract: OperationSpan, scope: str, time: str) -> Variable:
        made = Variable(fact.ref.replace("fact", "memory"), content=fact.content, action=Action.ADD, event_time=time)
        read = Variable(fact.ref, origin=extract.origin)
        span = self._span(OpKind.CREATE, scope=scope, inputs=(read,), outputs=(made,))
        return Variable(made.ref, Role.HIT, span.origin, made.content)

    def store(self, *texts: str, owner: str = "") -> list[Variable]:
        """Store texts in one call, a record of each, with an owner in the metadata. Return the records as hits."""
        self._trace += 1
        names = [f"{self._trace}.{n}" for n in range(len(texts))]
        given = tuple(
            Variable(f"message:{name}", Role.MESSAGE, content=text) for name, text in zip(names, texts, strict=True)
        )
        made = tuple(
            Variable(f"memory:{name}", content=text, action=Action.ADD) for name, text in zip(names, texts, strict=True)
        )
        flow = tuple((n, n) for n in range(len(texts)))
        named = {RECORD_OWNER: owner} if owner else {}
        span = self._span(OpKind.CREATE, scope=ANN, inputs=given, outputs=made, flow=flow, attributes=named)
        return [Variable(v.ref, Role.HIT, span.origin, v.content) for v in made]

    def ingest(self, text: str) -> Variable:
        """Read a document again, and store its text under a new id. Return the record as a hit."""
        self._trace += 1
        load = self._span(OpKind.INGEST, outputs=(Variable("document:page", content=text, action=Action.UPDATE),))
        read = Variable("document:page", Role.OTHER, load.origin)
        made = Variable(f"chunk:{self._trace}", content=text, action=Action.ADD)
        span = self._span(OpKind.CREATE, scope=ANN, inputs=(read,), outputs=(made,))
        return Variable(made.ref, Role.HIT, span.origin, text)

    def quote(self, text: str) -> Variable:
        """Keep a message in the state of a conversation without an owner. Return the message as a hit."""
        self._trace += 1
        message = Variable(f"message:{self._trace}", Role.MESSAGE, content=text)
        state = Variable(f"state:chat-{self._trace}.1", content=text, action=Action.ADD)
        span = self._span(OpKind.INGEST, inputs=(message,), outputs=(state,))
        return Variable(state.ref, Role.HIT, span.origin, text)

    def renew(self, record: Variable, text: str, fact: str) -> Variable:
        """Tell a message, and update a record with what the message is said to tell. Return the record as a hit."""
        self._trace += 1
        message = Variable(f"message:{self._trace}", Role.MESSAGE, content=text)
        made = Variable(record.ref, content=fact, action=Action.UPDATE)
        previous = Variable(record.ref, Role.PREVIOUS, record.origin)
        span = self._span(OpKind.UPDATE, scope=ANN, inputs=(message, previous), outputs=(made,))
        return Variable(record.ref, Role.HIT, span.origin, fact)

    def delete(self, record: Variable, scope: str = ANN) -> OperationSpan:
        """Delete a record."""
        self._trace += 1
        gone = Variable(record.ref, action=Action.DELETE)
        read = Variable(record.ref, Role.PREVIOUS, record.origin)
        return self._span(OpKind.DELETE, scope=scope, inputs=(read,), outputs=(gone,))

    def ask(
        self,
        question: str,
        given: str,
        *hits: Variable,
        expected: str | None,
        scope: str = ANN,
        trimmed: bool = False,
    ) -> Verdict:
        """Search, answer and judge the answer wrong; return the verdict. `expected` None: the judge gives none.

        `trimmed`: the prompt holds a placeholder, and the hits are deleted after the answer.
        """
        self._trace += 1
        query = Variable("query:q", Role.QUERY, content=question)
        context = Variable("context:c", content="\n".join(hit.content for hit in hits))
        search = self._span(OpKind.RETRIEVE, scope=scope, inputs=(query, *hits), outputs=(context,))
        read = Variable(context.ref, Role.CONTEXT, search.origin)
        answer = Variable("answer:a", content=given)
        inputs = (query, Variable("message:s", Role.HISTORY, content="A placeholder.")) if trimmed else (query, read)
        respond = self._span(OpKind.RESPOND, inputs=inputs, outputs=(answer,))
        for hit in hits if trimmed else ():
            gone = Variable(hit.ref, action=Action.DELETE)
            self._span(OpKind.DELETE, inputs=(Variable(hit.ref, Role.PREVIOUS, hit.origin),), outputs=(gone,))
        judged = [query, Variable("answer:a", Role.ANSWER, respond.origin)]
        judged += [Variable("expected:e", Role.EXPECTED, content=expected)] if expected is not None else []
        label = {"gen_ai.evaluation.score.label": "fail"}
        self._span(OpKind.JUDGE, inputs=tuple(judged), attributes=label)
        [verdict] = attribute_trace(build_graph(self.spans))
        return verdict
