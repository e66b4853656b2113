"""One model call as a `respond` span, or as a `judge` span if its reply judges an earlier answer."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace

from opentelemetry import trace

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, current_operation, guard, recall, variable_ref
from memtrace_otel.capture.adoption import AdoptingTracer, around, model_call_of_another
from memtrace_otel.capture.feedback import write_evaluation
from memtrace_otel.capture.tracing import context_of
from memtrace_otel.instrumentation.chat_history.alignment import paired
from memtrace_otel.instrumentation.chat_history.history import History, KeptHistory, Said, kept_history
from memtrace_otel.instrumentation.chat_history.inputs import Inputs
from memtrace_otel.instrumentation.chat_history.judgement import Judgement, expected_answer, parse_judgement
from memtrace_otel.instrumentation.chat_history.messages import Choice, Message, ModelReply, Request, Version
from memtrace_otel.model import make_ref, split_origin
from memtrace_otel.semconv import Incomplete, OpKind, RefKind, Role

_AROUND_ANSWERS = frozenset({OpKind.OTHER, OpKind.ASSEMBLE})
"""Kinds of operations in which a model call is an answer; in every other operation the call is a step."""


@dataclass(slots=True)
class Caller:
    """A call of `model`, an object of a library that calls a client package and knows the ids of messages.

    `messages` are the prompt as the library knows it. `reply` lists the versions of the reply, set by the instrumentor
    of the client package.
    """

    model: object
    messages: Sequence[Message]
    reply: tuple[Version, ...] = ()

    def name(self, request: Request) -> Request:
        """The request with the library's ids where both have the same message."""
        sides = ([(m.role, m.text) for m in side] for side in (request.messages, self.messages))
        messages = list(request.messages)
        for place, at in paired(*sides).items():
            known = self.messages[at]
            messages[place] = replace(messages[place], id=known.id or messages[place].id, made_of=known.made_of)
        return replace(request, messages=tuple(messages))


CALLER: ContextVar[Caller | None] = ContextVar("memtrace_caller", default=None)
"""Set by the instrumentor of such a library while a model is called."""

RECORDED_PACKAGES: set[str] = set()
"""Client packages (`openai`) whose model calls their own instrumentor records now."""


def is_answer() -> bool:
    """Whether a model call made here is an answer, not a step of the current operation."""
    current = current_operation()
    return current is None or current.kind in _AROUND_ANSWERS


class ModelCall:
    """A running model call: an answer, unless the reply turns out to judge an earlier answer."""

    __slots__ = ("_history", "_inputs", "_judged", "_request", "operation", "reply")

    def __init__(self, request: Request, tracer: trace.Tracer, system: str, provider: str) -> None:
        recorded = model_call_of_another()
        self._request, self._inputs = request, Inputs(request, recorded)
        self.reply: tuple[Version, ...] = ()
        """The versions of the reply, empty until the reply is recorded."""
        self._judged = self._inputs.judged()
        self._history: History | None = None
        kept: KeptHistory | None = None
        if self._judged is None:
            with guard("chat.history"):
                kept = kept_history(request.messages)
        if self._judged is None and kept is None:
            with guard("chat.history"):
                self._history = History(request, tracer, around(recorded) if recorded else None)
        self._inputs.use_history(self._history, kept)
        # A judge outside any span joins the trace of the answer it judges.
        joins = self._judged is not None and not self._inputs.trace
        self.operation = Operation(
            f"{semconv.CHAT} {request.model}" if request.model else semconv.CHAT,
            kind=OpKind.RESPOND,
            system=system,
            tracer=AdoptingTracer(tracer, recorded) if recorded else tracer,
            span_kind=trace.SpanKind.CLIENT,
            attributes={semconv.GEN_AI_PROVIDER_NAME: provider}
            | ({semconv.GEN_AI_REQUEST_MODEL: request.model} if request.model else {})
            | ({} if self._judged else {semconv.GEN_AI_OPERATION_NAME: semconv.CHAT}),  # cannot be taken back
            parent=context_of(self._judged.origin) if joins and self._judged else None,
        )

    def finish(self, reply: ModelReply | None) -> None:
        """Record the reply, None when the reply cannot be read."""
        if reply is None:
            self.operation.mark(Incomplete.UNPARSED)
            self._respond([], "")
            return
        _describe(self.operation, reply)
        if not reply.whole:
            self.operation.mark(Incomplete.TRUNCATED)
        text = "".join(text for parts in reply.choices[:1] for text, _ in parts)
        about = self._judged
        quoted = (about.text, about.question, about.query[1]) if about else ()
        judgement = parse_judgement(text, self._inputs.prompt, *quoted) if about else None
        if judgement and about:
            self._judge(about, judgement, text)
        else:
            self._respond(reply.choices, reply.id)

    def fail(self) -> None:
        """Record the inputs of a call that raised."""
        self._inputs.read(self.operation)

    def _respond(self, choices: Sequence[Choice], reply_id: str) -> None:
        operation = self.operation
        operation.set(semconv.GEN_AI_OPERATION_NAME, semconv.CHAT)
        if self._history is not None:
            with guard("chat.history"):
                self._inputs.note_results(self._history)
                self._history.write()
        self._inputs.read(operation)
        own = operation.origin
        if not own or not choices:
            return
        _, span_id = split_origin(own)
        said: list[list[Said]] = []
        for number, parts in enumerate(choices):
            text, calls = "".join(text for text, _ in parts), "\n".join(calls for _, calls in parts if calls)
            called = variable_ref(RefKind.COMPLETION, calls)
            ref = variable_ref(RefKind.COMPLETION, text) if number else make_ref(RefKind.ANSWER, span_id)
            if calls:
                operation.wrote(called, content=calls)
            if text:
                operation.wrote(ref, role=Role.OTHER if number else Role.ANSWER, content=text)
            if text and not number:
                self._inputs.answered(operation, ref, text)
            made_of = [((ref, own),) * bool(text) + ((called, own),) * bool(calls) for text, calls in parts]
            texts = ["\n".join(filter(None, part)) for part in parts]
            said.append(list(zip(texts, made_of, strict=True)))
        self.reply = tuple(dict.fromkeys(version for _, made_of in said[0] for version in made_of))
        if self._history is not None:
            self._history.answered(said, reply_id)

    def _judge(self, answer: recall.Answer, judgement: Judgement, reply: str) -> None:
        operation = self.operation
        operation.become(semconv.SPAN_NAME_PREFIX + OpKind.JUDGE, OpKind.JUDGE)
        query, question = self._inputs.query(answer)
        if query:
            operation.read(query, role=Role.QUERY, content=question or None)
        operation.read(answer.ref, role=Role.ANSWER, origin=answer.origin, content=answer.text)
        expected = expected_answer(self._inputs.prompt)
        if expected:
            operation.read(variable_ref(RefKind.EXPECTED, expected), role=Role.EXPECTED, content=expected)
        operation.wrote(variable_ref(RefKind.COMPLETION, reply), content=reply)
        write_evaluation(operation, "answer_correctness", judgement.label, judgement.score, judgement.explanation)


def _describe(operation: Operation, reply: ModelReply) -> None:
    for name, value in (
        (semconv.GEN_AI_USAGE_INPUT_TOKENS, reply.input_tokens),
        (semconv.GEN_AI_USAGE_OUTPUT_TOKENS, reply.output_tokens),
        (semconv.GEN_AI_RESPONSE_MODEL, reply.model or None),
        (semconv.GEN_AI_RESPONSE_ID, reply.id or None),
    ):
        if value is not None:
            operation.set(name, value)
