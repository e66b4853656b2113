"""Turn one model call into a `respond` or a `judge` span."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from opentelemetry import trace

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, recall, variable_ref
from memtrace_otel.capture.feedback import context_of, write_evaluation
from memtrace_otel.instrumentation.openai.calls import prompt_messages, reply_text, usage
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

    def finish(self, result: object, streamed: str = "") -> None:
        """Record the reply; `streamed` is the text of a stream that has ended."""
        text = streamed or reply_text(result)
        self._describe(result)
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
        turn.answers.append(recall.Recalled(ref, own, text))
        del turn.answers[:-16]

    def _read_prompt(self) -> None:
        """Inputs of an answer: the query, the memory versions that really are in the prompt, and the instructions."""
        operation, turn = self.operation, self._turn
        queries = recall.found_in(self._prompt, turn.queries.values()) if turn else []
        if queries:
            operation.read(queries[-1].ref, role=Role.QUERY, content=queries[-1].text)
        else:
            asked = [text for role, text in self._messages if role == "user"]
            if asked:
                operation.read(variable_ref(RefKind.QUERY, asked[-1]), role=Role.QUERY, content=asked[-1])
        found = recall.found_in(self._prompt, turn.hits.values()) if turn else []
        nothing = list(turn.fruitless) if turn else []  # an empty result is in every prompt
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
        queries = recall.found_in(self._prompt, self._turn.queries.values()) if self._turn else []
        if queries:
            operation.read(queries[-1].ref, role=Role.QUERY, content=queries[-1].text)
        operation.read(answer.ref, role=Role.ANSWER, origin=answer.origin, content=answer.text)
        expected = expected_answer(self._prompt)
        if expected:
            operation.read(variable_ref(RefKind.EXPECTED, expected), role=Role.EXPECTED, content=expected)
        operation.wrote(variable_ref(RefKind.COMPLETION, reply), content=reply)
        write_evaluation(operation, "answer_correctness", judgement.label, judgement.score, judgement.explanation)

    def _answer_in_prompt(self) -> recall.Recalled | None:
        """The newest answer of this turn that the prompt quotes (as whole words)."""
        for answer in reversed(self._turn.answers if self._turn else []):
            if re.search(rf"(?<!\w){re.escape(answer.text.strip())}(?!\w)", self._prompt):
                return answer
        return None
