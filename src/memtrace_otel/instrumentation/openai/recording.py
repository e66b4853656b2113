"""Turn one model call into a `respond` or a `judge` span."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry import trace

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, recall, variable_ref
from memtrace_otel.capture.feedback import context_of, write_evaluation
from memtrace_otel.instrumentation.openai.calls import parsed, prompt_messages, reply_text, usage
from memtrace_otel.instrumentation.openai.judgement import Judgement, expected_answer, parse_judgement
from memtrace_otel.model import make_ref, split_origin
from memtrace_otel.semconv import Incomplete, OpKind, RefKind, Role

SYSTEM = "openai"


class ModelCall:
    """A running model call. It is an answer until the reply shows that it judged an earlier one."""

    __slots__ = ("_judged", "_kwargs", "_messages", "_prompt", "_turn", "operation")

    def __init__(self, kwargs: Mapping[str, Any], tracer: trace.Tracer) -> None:
        self._kwargs = kwargs
        self._messages = prompt_messages(kwargs)
        self._prompt = "\n".join(text for _, text in self._messages)
        here = trace.get_current_span().get_span_context()
        self._turn = recall.recall(f"{here.trace_id:032x}" if here.is_valid else "")
        self._judged = self._answer_in_prompt()
        # A judge outside any span joins the trace of the answer it judges.
        joins = self._judged is not None and not here.is_valid
        model = kwargs.get("model")
        self.operation = Operation(
            f"{semconv.CHAT} {model}" if isinstance(model, str) else semconv.CHAT,
            kind=OpKind.RESPOND,
            system=SYSTEM,
            tracer=tracer,
            span_kind=trace.SpanKind.CLIENT,
            attributes={semconv.GEN_AI_PROVIDER_NAME: SYSTEM}
            | ({semconv.GEN_AI_REQUEST_MODEL: model} if isinstance(model, str) else {})
            | ({} if self._judged else {semconv.GEN_AI_OPERATION_NAME: semconv.CHAT}),  # cannot be taken back
            parent=context_of(self._judged.origin) if joins and self._judged else None,
        )

    def finish(self, result: object) -> None:
        """Record the reply of a call that has returned."""
        readable = parsed(result)
        if readable is None:
            self.operation.mark(Incomplete.UNPARSED)
            self._respond("")
            return
        self._describe(readable)
        self._conclude(reply_text(readable))

    def finish_stream(self, text: str, last: object, whole: bool) -> None:
        """Record the text of a stream; not `whole` when the program left it half-way."""
        self._describe(last)
        if not whole:
            self.operation.mark(Incomplete.TRUNCATED)
        self._conclude(text)

    def _conclude(self, text: str) -> None:
        judgement = parse_judgement(text) if self._judged else None
        if judgement and self._judged:
            self._judge(self._judged, judgement, text)
        else:
            self._respond(text)

    def fail(self) -> None:
        """Record what was asked of a call that raised."""
        self._read_prompt()

    def _describe(self, result: object) -> None:
        given, made = usage(result)
        if given is not None:
            self.operation.set(semconv.GEN_AI_USAGE_INPUT_TOKENS, given)
        if made is not None:
            self.operation.set(semconv.GEN_AI_USAGE_OUTPUT_TOKENS, made)
        for name, key in ((semconv.GEN_AI_RESPONSE_MODEL, "model"), (semconv.GEN_AI_RESPONSE_ID, "id")):
            value = getattr(result, key, None)
            if isinstance(value, str):
                self.operation.set(name, value)

    def _respond(self, text: str) -> None:
        self.operation.set(semconv.GEN_AI_OPERATION_NAME, semconv.CHAT)
        self._read_prompt()
        own = self.operation.origin
        if not own or not text:
            return
        trace_id, span_id = split_origin(own)
        ref = make_ref(RefKind.ANSWER, span_id)
        self.operation.wrote(ref, role=Role.ANSWER, content=text)
        turn = self._turn or recall.turn_of(trace_id)
        turn.answered(recall.Recalled(ref, own, text, question=self._question()))

    def _question(self) -> str:
        """What the user asked last."""
        return next((text for role, text in reversed(self._messages) if role == "user"), "")

    def _read_prompt(self) -> None:
        """Inputs of an answer: the query, the memory versions that really are in the prompt, and the instructions."""
        operation, turn = self.operation, self._turn
        queries = turn.queries_in(self._prompt) if turn else []
        question = self._question()
        if queries:
            operation.read(queries[-1].ref, role=Role.QUERY, content=queries[-1].text)
        elif question:
            operation.read(variable_ref(RefKind.QUERY, question), role=Role.QUERY, content=question)
        found = turn.hits_in(self._prompt) if turn else []
        nothing = turn.fruitless_for(queries) if turn else []
        for retrieval in dict.fromkeys((*(hit.retrieved_by for hit in found), *nothing)):
            operation.read(make_ref(RefKind.CONTEXT, split_origin(retrieval)[1]), role=Role.CONTEXT, origin=retrieval)
        for hit in found:
            operation.read(hit.ref, role=Role.CONTEXT, content=hit.text, origin=hit.origin)
        if found or nothing:
            operation.mark(Incomplete.INFERRED)
        if found:
            scopes = {hit.scope for hit in found}
            if len(scopes) == 1:
                operation.scope = scopes.pop()
        for role, text in self._messages:
            if role in ("system", "developer"):
                operation.read(variable_ref(RefKind.PROMPT, text), role=Role.PROMPT, content=text)

    def _judge(self, answer: recall.Recalled, judgement: Judgement, reply: str) -> None:
        operation = self.operation
        operation.become(semconv.SPAN_NAME_PREFIX + OpKind.JUDGE, OpKind.JUDGE)
        queries = self._turn.queries_in(self._prompt) if self._turn else []
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
        given = "\n".join(text for role, text in self._messages if role != "assistant") if answers else ""
        for answer in answers:
            if recall.quotes(given, answer.text) and (
                recall.quotes(given, answer.question) or expected_answer(self._prompt)
            ):
                return answer
        return None
