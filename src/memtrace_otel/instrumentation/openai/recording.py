"""Turn one model call into a `respond` or a `judge` span."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from opentelemetry import trace

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, content, current_operation, guard, recall, variable_ref
from memtrace_otel.capture.adoption import AdoptingTracer, around, model_call_of_another
from memtrace_otel.capture.evaluation import write_evaluation
from memtrace_otel.capture.tracing import context_of
from memtrace_otel.instrumentation.openai.calls import (
    INSTRUCTIONS,
    Reply,
    Request,
    compacted,
    described,
    get,
    parsed,
    replies,
    told,
    usage,
)
from memtrace_otel.instrumentation.openai.conversations import Entry
from memtrace_otel.instrumentation.openai.history import History, Kept, Said, asked_last, kept_history
from memtrace_otel.instrumentation.openai.judgement import Judgement, expected_answer, parse_judgement
from memtrace_otel.instrumentation.openai.streams import Streamed
from memtrace_otel.model import make_ref, split_origin
from memtrace_otel.semconv import Incomplete, OpKind, RefKind, Role

SYSTEM = "openai"
_QUOTES = "\"'`*"
_LABELLED = re.compile(r"^[^:?.!]{1,40}: *")
_NOT_OURS = frozenset({OpKind.OTHER, OpKind.ASSEMBLE})
"""Operations around a model call that leave it an answer; in every other one it is a step of theirs."""


def is_answer() -> bool:
    """Whether a model call made here answers, and is no step of the operation around it."""
    around = current_operation()
    return around is None or around.kind in _NOT_OURS


class ModelCall:
    """A running model call. It is an answer until the reply shows that it judged an earlier one."""

    __slots__ = ("_history", "_judged", "_kept", "_prompt", "_request", "_trace", "_turn", "operation")

    def __init__(self, request: Request, tracer: trace.Tracer, system: str = SYSTEM, provider: str = SYSTEM) -> None:
        self._request = request
        self._prompt = "\n".join(message.text for message in request.messages)
        recorded = model_call_of_another()
        self._trace = recall.trace_here()
        self._turn = recall.recall(self._trace)
        self._judged = self._answer_in_prompt()
        self._history: History | None = None
        self._kept: Kept | None = None
        if self._judged is None:
            with guard("openai.history"):
                self._kept = kept_history(request.messages)
        if self._judged is None and self._kept is None:
            with guard("openai.history"):
                self._history = History(request, tracer, around(recorded) if recorded else None)
        # A judge outside any span joins the trace of the answer it judges.
        joins = self._judged is not None and not self._trace
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

    def finish(self, result: object) -> None:
        """Record the reply of a call that has returned."""
        readable = parsed(result)
        if readable is None:
            self.operation.mark(Incomplete.UNPARSED)
            self._respond([], "")
            return
        _describe(self.operation, readable)
        self._conclude(replies(readable), readable)

    def finish_stream(self, said: Streamed) -> None:
        """Record what a stream said, all of it or, when the program left it half-way, what came."""
        reply = described(said.last)
        _describe(self.operation, reply)
        if not said.whole:
            self.operation.mark(Incomplete.TRUNCATED)
        self._conclude(replies(reply) or told([(said.text, said.calls)], *([other] for other in said.others)), reply)
        if not said.whole:
            self._wait_for_answer()

    def fail(self) -> None:
        """Record what was asked of a call that raised."""
        self._read_prompt()
        self._wait_for_answer()

    def _wait_for_answer(self) -> None:
        if self._history is not None:
            self._history.unanswered()

    def _conclude(self, given: Sequence[Reply], reply: object) -> None:
        text = "".join(text for parts in given[:1] for text, _ in parts)
        judgement = parse_judgement(text) if self._judged else None
        if judgement and self._judged:
            self._judge(self._judged, judgement, text)
        else:
            self._respond(given, str(get(reply, "id") or ""))

    def _respond(self, given: Sequence[Reply], reply_id: str) -> None:
        operation = self.operation
        operation.set(semconv.GEN_AI_OPERATION_NAME, semconv.CHAT)
        if self._history is not None:
            with guard("openai.history"):
                self._history.write()
        self._read_prompt()
        own = operation.origin
        if not own or not given:
            return
        trace_id, span_id = split_origin(own)
        said: list[list[Said]] = []
        for number, parts in enumerate(given):
            text, calls = "".join(text for text, _ in parts), "\n".join(calls for _, calls in parts if calls)
            called = variable_ref(RefKind.COMPLETION, calls)
            ref = variable_ref(RefKind.COMPLETION, text) if number else make_ref(RefKind.ANSWER, span_id)
            if calls:
                operation.wrote(called, content=calls)
            if text:
                operation.wrote(ref, role=Role.OTHER if number else Role.ANSWER, content=text)
            if text and not number:  # the other choices are replies that may be gone on from
                turn = self._turn or recall.turn_of(trace_id)
                turn.answered(recall.Recalled(ref, own, text, question=self._question()))
            made_of = [((ref, own),) * bool(text) + ((called, own),) * bool(calls) for text, calls in parts]
            texts = ["\n".join(filter(None, part)) for part in parts]
            said.append(list(zip(texts, made_of, strict=True)))
        if self._history is not None:
            self._history.answered(said, reply_id)

    def _question(self) -> str:
        """What the user asked last."""
        return next((m.text for m in reversed(self._request.messages) if m.role == "user"), "")

    def _query_ref(self, question: str) -> str:
        """The name of the message that asks, as a query: equal questions of two histories are two. A thread may not be
        written yet as far as that."""
        if self._history is not None:
            return self._history.query_ref
        asked = variable_ref(RefKind.QUERY, question)
        return asked if self._kept is None else self._kept.query_ref or content.said(asked, self.operation.origin[33:])

    def _read_prompt(self) -> None:
        """Inputs of an answer: the query, the memory versions that really are in the prompt, the history that it
        repeats, and the instructions."""
        operation, turn = self.operation, self._turn
        queries, found, whole, certain = turn.found_in(self._prompt, self._trace) if turn else ([], [], True, True)
        if not whole:
            operation.mark(Incomplete.BUDGET)
        if not self._request.whole:
            operation.mark(Incomplete.UNSERIALISABLE)
        question = self._question()
        asked = [query for query in queries if _puts(question, query.text)]
        if not asked and any(recall.quotes(question, hit.text) for hit in found):
            asked = queries  # a message around notes and a question
        queries = asked or queries
        if asked:
            operation.read(asked[-1].ref, role=Role.QUERY, content=asked[-1].text)
        elif question:  # searched in other words
            operation.read(self._query_ref(question), role=Role.QUERY, content=question)
        elif queries:
            operation.read(queries[-1].ref, role=Role.QUERY, content=queries[-1].text)
        elif self._history and self._history.query_ref:  # asked before this call: tools have answered since
            operation.read(self._history.query_ref, role=Role.QUERY)
        nothing = turn.fruitless_for(queries) if turn else []
        searched = {done.origin: done for done in turn.retrievals()} if turn else {}
        for retrieval in dict.fromkeys((*(hit.retrieved_by for hit in found), *nothing)):
            operation.read(searched[retrieval].context, role=Role.CONTEXT, origin=retrieval)
        for hit in found:
            operation.read(hit.ref, role=Role.CONTEXT, content=hit.text, origin=hit.origin)
            if not (hit.origin or searched[hit.retrieved_by].certain):
                operation.mark(Incomplete.UNKNOWN_ORIGIN)
        if turn:
            turn.gave(found, self._trace)
        placed = {version for entry in self._kept.entries.values() for version in entry.versions} if self._kept else ()
        if not certain and any((hit.ref, hit.origin) not in placed for hit in found):
            operation.mark(Incomplete.INFERRED)
        last = queries[-1].ref if queries else ""
        asked_for = {done.origin for done in searched.values() if (query := done.query()) and query.ref == last}
        scopes = {hit.scope for hit in found if hit.retrieved_by in asked_for} or {hit.scope for hit in found}
        scopes = scopes or {searched[retrieval].scope for retrieval in nothing}
        if len(scopes) == 1:
            operation.scope = scopes.pop()
        self._read_history({(hit.ref, hit.origin) for hit in found})
        for message in self._request.messages:
            if message.role in INSTRUCTIONS:
                operation.read(variable_ref(RefKind.PROMPT, message.text), role=Role.PROMPT, content=message.text)

    def _read_history(self, read: Collection[tuple[str, str]]) -> None:
        """Inputs of what the prompt repeats; the versions in `read` are inputs already."""
        history, operation, messages = self._history, self.operation, self._request.messages
        entries: Mapping[int, Entry] = {}
        scope = ""
        if history is not None and history.unknown:
            operation.mark(Incomplete.UNKNOWN_ORIGIN)
        if self._kept is not None:
            entries, scope = self._kept.entries, self._kept.scope
        elif history is None:
            return
        elif history.continues:
            entries, scope = history.entries, history.conversation.scope
            if not history.certain:
                operation.mark(Incomplete.INFERRED)
        operation.scope = operation.scope or scope
        query, texts = (
            history.query if history else asked_last(messages),
            {place: message.text for place, message in enumerate(messages) if not message.compaction},
        )
        repeated = {place: entry.versions for place, entry in entries.items() if place != query}
        times = Counter(version for versions in repeated.values() for version in versions)
        for place, versions in repeated.items():
            whole = len(versions) == 1 == times[versions[0]]  # a summary may be in several messages
            for ref, origin in versions:
                if (ref, origin) not in read and times.pop((ref, origin), 0):
                    text = texts.get(place) if whole else None
                    operation.read(ref, role=Role.HISTORY, origin=origin or None, content=text, scope=scope)
        for place, message in enumerate(messages):
            if place != query and place not in entries and message.role not in INSTRUCTIONS:
                ref = history.message_ref(place) if history else variable_ref(RefKind.MESSAGE, message.text, message.id)
                operation.read(ref, role=Role.HISTORY, content=message.text)
                if history:
                    operation.scope = operation.scope or history.conversation.scope

    def _judge(self, answer: recall.Recalled, judgement: Judgement, reply: str) -> None:
        operation = self.operation
        operation.become(semconv.SPAN_NAME_PREFIX + OpKind.JUDGE, OpKind.JUDGE)
        queries = self._turn.found_in(self._prompt, self._trace).queries if self._turn else []
        if queries:
            operation.read(queries[-1].ref, role=Role.QUERY, content=queries[-1].text)
        operation.read(answer.ref, role=Role.ANSWER, origin=answer.origin, content=answer.text)
        expected = expected_answer(self._prompt)
        if expected:
            operation.read(variable_ref(RefKind.EXPECTED, expected), role=Role.EXPECTED, content=expected)
        operation.wrote(variable_ref(RefKind.COMPLETION, reply), content=reply)
        write_evaluation(operation, "answer_correctness", judgement.label, judgement.score, judgement.explanation)

    def _answer_in_prompt(self) -> recall.Recalled | None:
        """The newest answer of this turn that the prompt hands over to be judged.

        It is quoted as whole words, by somebody else than the assistant (a conversation's history quotes answers, too),
        together with its question or an expected answer.
        """
        answers = self._turn.newest_answers() if self._turn else []
        given = "\n".join(m.text for m in self._request.messages if m.role != "assistant") if answers else ""
        for answer in answers:
            if recall.quotes(given, answer.text) and (
                recall.quotes(given, answer.question) or expected_answer(self._prompt)
            ):
                return answer
        return None


class Compaction:
    """A running call that has the model's side summarise a history, in a form that only the model can read."""

    __slots__ = ("_history", "operation")

    def __init__(self, request: Request, tracer: trace.Tracer) -> None:
        self._history = History(request, tracer, None)
        self.operation = self._history.summarising()

    def finish(self, result: object) -> None:
        """Record what stands for the history from now on."""
        readable = parsed(result)
        if readable is None:
            self.operation.mark(Incomplete.UNPARSED)
            return
        _describe(self.operation, readable)
        self._history.compacted(self.operation, compacted(readable), str(get(readable, "id") or ""))


def _describe(operation: Operation, result: object) -> None:
    given, made = usage(result)
    if given is not None:
        operation.set(semconv.GEN_AI_USAGE_INPUT_TOKENS, given)
    if made is not None:
        operation.set(semconv.GEN_AI_USAGE_OUTPUT_TOKENS, made)
    for name, key in ((semconv.GEN_AI_RESPONSE_MODEL, "model"), (semconv.GEN_AI_RESPONSE_ID, "id")):
        value = get(result, key)
        if isinstance(value, str):
            operation.set(name, value)


def _puts(message: str, query: str) -> bool:
    """Whether a message asks this: as a whole, in a line of its own, or behind a label ("Question: ...")."""
    asked = recall.fold(query).strip(_QUOTES)
    lines = [recall.fold(line).strip(_QUOTES) for line in (message, *message.splitlines())]
    return bool(asked) and any(line == asked or _LABELLED.sub("", line).strip(_QUOTES) == asked for line in lines)
