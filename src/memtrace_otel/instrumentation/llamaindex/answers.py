"""Answers: the outermost of agent, chat engine, query engine and response synthesizer is the one answering operation.

Everything inside (several model calls of a synthesizer, sub-questions, a condensed question, a routing decision) is a
step of that one answer; inner synthesizers only report the nodes that they used. A streamed answer is recorded at the
end of its text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

from opentelemetry import context, trace
from opentelemetry.util.types import AttributeValue

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, current_operation, guard, recall
from memtrace_otel.capture.finalizers import report_waiting
from memtrace_otel.instrumentation.llamaindex.nodes import Piece, pieces, query_ref, query_text
from memtrace_otel.instrumentation.llamaindex.retrieval import (
    Served,
    Version,
    owner,
    read_version,
    served_for,
    version_of,
)
from memtrace_otel.instrumentation.llamaindex.state import Call, purpose, store_behind
from memtrace_otel.instrumentation.llamaindex.streams import observed, operation_of
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.model import make_ref, split_origin
from memtrace_otel.semconv import Incomplete, OpKind, RefKind, Role


@dataclass(slots=True)
class Answering:
    """An answer in progress: the nodes and contexts that its synthesizers and chat memories passed to a model.

    `owner`: the scope when no stored node gives one, by default that of the first chat memory in use.
    `interim`: answers to sub-questions. `streams`: the text comes from a stream, which may end before or after the call
    returns.
    """

    call: Call
    operation: Operation
    owner: str = ""
    used: dict[str, Version] = field(default_factory=dict[str, Version])
    contexts: dict[str, str] = field(default_factory=dict[str, str])
    kept: dict[str, int] = field(default_factory=dict[str, int])
    interim: list[str] = field(default_factory=list[str])
    streams: bool = False
    _lock: RLock = field(default_factory=RLock)
    _has_returned: bool = False
    _ended: tuple[str, bool, BaseException | None] | None = None

    def use(self, given: list[Piece], query: str) -> None:
        """Add the nodes of one synthesis, and the searches that found them."""
        lists = served_for(given, query)
        given = [piece for piece in given if piece.ref in lists or not self._is_interim(piece)]
        self.contexts.update((served.context, served.origin) for served in lists.values())
        self.used.update((piece.ref, version_of(self.call, piece, lists)) for piece in given)

    def quote(self, text: str, searches: Sequence[Served], made_of: Sequence[Served] = ()) -> None:
        """Add the nodes whose text is quoted in a text for the model. `searches` and `made_of` are oldest first.

        Of equal texts the node of the newest search counts. A search of `made_of` (the searches of a tool) without a
        quoted node is a source as well, because a tool may shorten or summarise its hits.
        """
        returned = [
            (recall.fold(hit.piece.text), served, hit)
            for served in (*searches, *made_of)
            for hit in served.hits.values()
        ]
        newest = {text: served for text, served, _ in returned}
        found = {hit.piece.ref: (served, hit) for text, served, hit in returned if newest[text] is served}
        texts = [recall.Recalled(ref, hit.origin, hit.piece.text) for ref, (_, hit) in found.items()]
        held, whole = recall.found_in(recall.fold(text), texts)
        if not whole:
            self.operation.mark(Incomplete.BUDGET)
        quoted = [found[one.ref] for one in held]
        self.used.update((hit.piece.ref, hit) for _, hit in quoted)
        opaque = [served for served in made_of if not self.used.keys() & served.hits.keys()]
        for served in (*(served for served, _ in quoted), *opaque):
            self.remember(served.context, served.origin)
            self.operation.mark(Incomplete.INFERRED)

    def remember(self, ref: str, origin: str) -> None:
        """Add a context of the prompt."""
        self.contexts[ref] = origin

    def keep(self, texts: list[str]) -> None:
        """Note replies put into a chat memory: contexts that are read later are no sources of the answer."""
        self.kept.update(dict.fromkeys(texts, len(self.contexts)))

    def observe(self, response: Any, name: str, text_of: Callable[[Any], str]) -> None:
        """Collect the text of the stream in an attribute of a response, if there is a stream.

        From now on the operation is current only where the stream is read, perhaps in another thread.
        """
        stream = observed(getattr(response, "__dict__", {}).get(name), self.operation, text_of, self._stream_ended)
        if stream is not None:
            self.streams = True
            self.call.detach(self.operation)
            setattr(response, name, stream)

    def returned(self) -> None:
        """The call has returned; the operation ends with its stream."""
        with self._lock:
            self._has_returned = True
            ended = self._ended
        if ended is not None:
            self._end(*ended)

    def conclude(self, said: str, *, whole: bool) -> None:
        """Record the sources of the answer, and the answer."""
        operation, used = self.operation, list(self.used.values())
        operation.scope = owner(used) or self.owner
        until = max((place for text, place in self.kept.items() if said and said in text), default=None)
        for ref, origin in list(self.contexts.items())[:until]:
            operation.read(ref, role=Role.CONTEXT, origin=origin)
        for seen in used:
            read_version(operation, seen, Role.CONTEXT)
        if not whole:
            operation.mark(Incomplete.TRUNCATED)
        if operation.origin and said:
            operation.wrote(_answer_ref(operation), role=Role.ANSWER, content=said)

    def _is_interim(self, piece: Piece) -> bool:
        """Whether a node holds the answer to a sub-question: the sources of the sub-question are already recorded."""
        return any(piece.text.endswith(said) for said in self.interim) and not version_of(self.call, piece, {}).origin

    def _stream_ended(self, said: str, whole: bool, error: BaseException | None) -> None:
        with self._lock:
            self._ended = said, whole, error
            if not self._has_returned:
                return
        self._end(said, whole, error)

    def _end(self, said: str, whole: bool, error: BaseException | None) -> None:
        with guard("llamaindex.answer"):
            self.conclude(said, whole=whole)
        self.operation.end(error)


ANSWERING: ContextVar[Answering | None] = ContextVar("memtrace_llamaindex_answering", default=None)


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer of `operation`. The engine or agent puts the answer into `memory` as a message that ends with
    `said`."""

    memory: Any
    operation: Operation
    said: str = ""

    @property
    def origin(self) -> str:
        """The operation."""
        return self.operation.origin

    @property
    def ref(self) -> str:
        """`answer:<span id>`."""
        return _answer_ref(self.operation)


REPLY: ContextVar[Reply | None] = ContextVar("memtrace_llamaindex_reply", default=None)


def query(call: Call) -> Step:
    """`query`, `aquery` of a query engine."""
    yield from _answer(call, query_text(call.arguments().get("str_or_query_bundle")))


def chat(call: Call) -> Step:
    """`chat`, `achat`, `stream_chat`, `astream_chat` of a chat engine."""
    yield from _answer(call, query_text(call.arguments().get("message")))


def synthesize(call: Call) -> Step:
    """`synthesize`, `asynthesize`: the nodes that an answer uses."""
    arguments = call.arguments()
    text, given = query_text(arguments.get("query")), list(pieces(arguments.get("nodes")))
    answering = ANSWERING.get()
    if answering is not None:
        answering.use(given, text)
        return
    yield from _answer(call, text, given)


def stream_chat_response(call: Call) -> Step:
    """`StreamingAgentChatResponse`: the chat engine passes a stream, which another thread reads."""
    answering = ANSWERING.get()
    yield
    if answering is None:
        return
    for name in ("chat_stream", "achat_stream"):
        answering.observe(call.instance, name, lambda item: str(item.delta or ""))


def write_to_history(call: Call) -> Step:
    """`write_response_to_history`, `awrite_response_to_history`: reads the stream in another thread or task, then
    puts the reply into the chat memory. The thread does not have the context of the answer."""
    operation = operation_of(call.instance.chat_stream) or operation_of(call.instance.achat_stream)
    if operation is None:
        return
    call.carry(REPLY, Reply(call.arguments().get("memory"), operation))
    token = context.attach(trace.set_span_in_context(operation.span))
    try:
        yield
    finally:
        context.detach(token)


def open_answer(call: Call, question: str, owner: str) -> Answering:
    """Begin the answer to a question; everything inside the call is a step of the answer."""
    report_waiting()
    operation = call.open(
        semconv.CHAT, OpKind.RESPOND, scope=owner, purpose=purpose(call), attributes=_model_of(call.instance)
    )
    if question:
        operation.read(query_ref(question), role=Role.QUERY, content=question)
    answering = Answering(call, operation, owner)
    call.carry(ANSWERING, answering)
    return answering


def _answer(call: Call, question: str, given: list[Piece] | None = None) -> Step:
    around = ANSWERING.get()
    if around is not None:
        said = getattr((yield), "__dict__", {}).get("response")  # not a property, which may read a stream
        if said and isinstance(said, str):
            around.interim.append(said)
        return
    memory = getattr(call.instance, "_memory", None)
    answering = open_answer(call, question, _owner_of(call, memory))
    if memory is not None:
        call.carry(REPLY, Reply(memory, answering.operation))
    if given is not None:
        answering.use(given, question)
    response = yield
    if not answering.streams:
        answering.observe(response, "response_gen", str)
    if answering.streams:
        answering.returned()
    else:
        nothing = getattr(response, "response", None) in (None, "")
        answering.conclude("" if nothing else str(response), whole=True)


def _owner_of(call: Call, memory: Any) -> str:
    """Scope of the answers of an engine: of its chat memory, else its store, else the operation around, else itself."""
    if memory is not None:
        return call.patches.scope_of_chat(memory)
    store, around = store_behind(call.instance), current_operation()
    if store is None and around is not None and around.scope:
        return ""
    return call.patches.scope_of(call.instance if store is None else store)


def _answer_ref(operation: Operation) -> str:
    return make_ref(RefKind.ANSWER, split_origin(operation.origin)[1])


def _model_of(engine: Any) -> dict[str, AttributeValue]:
    """`gen_ai.request.model` of the language model that an engine or synthesizer names."""
    synthesizer = getattr(engine, "_response_synthesizer", engine)
    llm = getattr(synthesizer, "_llm", None) or getattr(synthesizer, "llm", None)
    model = getattr(getattr(llm, "metadata", None), "model_name", None)
    return {semconv.GEN_AI_REQUEST_MODEL: model} if isinstance(model, str) else {}
