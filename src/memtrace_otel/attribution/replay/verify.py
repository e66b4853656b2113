"""Undo the blamed fault, run again what follows, and look whether the answer flips.

A blamed operation was given texts and left others. With the texts given in the recorded chat request, the answer must
be right; with the texts left, wrong. A replayer, where one is registered for the memory, builds the memory again with
the corrected step in between. Two controls: the unchanged request (does the failure repeat?), and a request with the
source messages alone (can the model answer at all?).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from memtrace_otel.attribution.apply_rules import MAX_ALTERNATIVES
from memtrace_otel.attribution.endpoint import LOCAL, Endpoint
from memtrace_otel.attribution.entailment import Answer, Reader, Text
from memtrace_otel.attribution.evidence import Evidence
from memtrace_otel.attribution.expectation import AnswerForm, Need, answered, same_answer
from memtrace_otel.attribution.lineage import lineage_of
from memtrace_otel.attribution.replay.notebook import notebook_of
from memtrace_otel.attribution.replay.prompt import Prompt, query_text, recorded_prompt
from memtrace_otel.attribution.replay.repair import (
    MEMORY_TYPES,
    Repair,
    recorded_writes,
    repair,
    told_texts,
)
from memtrace_otel.attribution.replay.replayer import Replayer, Search, Write
from memtrace_otel.attribution.rules import RULES
from memtrace_otel.attribution.text import abstains, words
from memtrace_otel.graph import EvolutionGraph
from memtrace_otel.model import Alternative, OperationSpan, Replay, Verdict, make_origin
from memtrace_otel.semconv import (
    GEN_AI_REQUEST_MODEL,
    GEN_AI_RETRIEVAL_TOP_K,
    RETRIEVAL_THRESHOLD,
    FailureType,
    OpKind,
    ReplayOutcome,
    Role,
)
from memtrace_otel.settings import CAPTURE_CONTENT, MODEL

_log = logging.getLogger(__name__)
_LEAST_CALLS, _CALLS_PER_CAUSE = 1, 2
"""The unchanged request; what a cause left and had. A scratch memory and a reader need further calls."""
_CHARACTERS_PER_TOKEN = 4
_HITS = 20
"""Hits of a search that records neither a limit nor hits."""
VERIFIED, REFUTED, NOT_REPRODUCIBLE, NOT_REPLAYABLE = ReplayOutcome


@dataclass(frozen=True, slots=True)
class Cost:
    """What a replay needs: chat calls, tokens of the prompts (estimated), texts to embed; why none is possible."""

    least_calls: int = 0
    most_calls: int = 0
    most_tokens: int = 0
    texts: int = 0
    problem: str = ""


class NotReplayableError(Exception):
    """The trace or the settings lack what a replay needs; the message says what to do."""


class Verifier:
    """Verifies verdicts at one endpoint. A `reader` compares answers by meaning, without one words decide."""

    def __init__(self, endpoint: Endpoint, *, replayers: Iterable[Replayer] = (), reader: Reader | None = None) -> None:
        self._endpoint, self._reader = endpoint, reader
        self._replayers: Mapping[str, Replayer] = {s: one for one in replayers for s in one.systems}

    def __call__(self, graph: EvolutionGraph, verdict: Verdict) -> Verdict:
        """Return the verdict with what the replay showed. A refuted verdict gives way to a verified alternative."""
        spent = self._endpoint.calls, self._endpoint.tokens
        try:
            case = _Case(graph, verdict, self._endpoint, self._replayers, self._reader)
            found = self._verified(case, verdict)
        except NotReplayableError as error:
            found = replace(verdict, replay=Replay(NOT_REPLAYABLE, str(error)))
        except Exception as error:  # one case never stops the others; the message may hold contents
            _log.warning("replay of %s failed: %s", verdict.failure.answer_span.origin, type(error).__name__)
            reason = f"the replay failed: {type(error).__name__}"
            found = replace(verdict, replay=Replay(NOT_REPLAYABLE, reason))
        assert found.replay
        calls, tokens = self._endpoint.calls - spent[0], self._endpoint.tokens - spent[1]
        found = replace(found, replay=replace(found.replay, calls=calls, tokens=tokens))
        return replace(found, attribution_id=found.claim)

    def cost(self, graph: EvolutionGraph, verdict: Verdict) -> Cost:
        """Return what the replay of a verdict would need at most; nothing is asked."""
        try:
            case = _Case(graph, verdict, self._endpoint, self._replayers, self._reader)
        except NotReplayableError as error:
            return Cost(problem=str(error))
        causes = 1 + min(len(verdict.alternatives), MAX_ALTERNATIVES)
        has_scratch = case.replayer is not None
        asks_reader = self._reader is not None and not self._reader.name.startswith(LOCAL)
        most = (_LEAST_CALLS + 1 + causes * (_CALLS_PER_CAUSE + has_scratch)) * (1 + asks_reader)
        size = sum(len(message["content"]) for message in case.prompt.messages) // _CHARACTERS_PER_TOKEN
        texts = causes * len(case.writes()) if has_scratch and not case.notebook else 0  # lines of a text need none
        return Cost(_LEAST_CALLS, most, most * (size + 1), texts)

    def _verified(self, case: _Case, verdict: Verdict) -> Verdict:
        again = case.ask(case.prompt)
        if case.is_right(again):
            reason = "the unchanged request gives the right answer now"
            return replace(verdict, replay=Replay(NOT_REPRODUCIBLE, reason, again))
        first = case.replay(verdict)
        if first.outcome == REFUTED:
            for other in _others(case, verdict):
                with suppress(NotReplayableError):
                    replay = case.replay(other)
                    if replay.outcome == VERIFIED:
                        reason = f"{replay.reason}; {verdict.failure_type} was refuted"
                        return replace(other, replay=replace(replay, reason=reason))
        return replace(verdict, replay=first, complete=verdict.complete and first.outcome != REFUTED)


class _Case:
    """One failed answer and its runs."""

    def __init__(
        self,
        graph: EvolutionGraph,
        verdict: Verdict,
        endpoint: Endpoint,
        replayers: Mapping[str, Replayer],
        reader: Reader | None,
    ) -> None:
        self.evidence = evidence = Evidence(lineage_of(graph), verdict.failure)
        self._endpoint, self._reader = endpoint, reader
        self._hint = "" if reader else ": another --method than rules compares by meaning"
        if evidence.wish.form is AnswerForm.MISSING:
            trace = verdict.failure.trace_id
            raise NotReplayableError(
                f"no expected answer is known: memtrace-otel feedback {trace} --label fail --expected TEXT"
            )
        if verdict.failure_type not in (*MEMORY_TYPES, FailureType.RETRIEVAL, FailureType.RESPONSE):
            raise NotReplayableError(f"a verdict of type {verdict.failure_type} blames no step that can run again")
        self.notebook = notebook_of(evidence)
        prompt = recorded_prompt(evidence, self.notebook)
        if prompt is None:
            raise NotReplayableError(f"the prompt is not recorded: set {CAPTURE_CONTENT.env}=SPAN_ONLY")
        if not (prompt.model or endpoint.model):
            raise NotReplayableError(f"no model is known: set {MODEL.env}")
        self.prompt: Prompt = prompt
        self._is_loose = evidence.wish.needs and all(self._holds(verdict.failure.answer))
        self._oracle: bool | None = None
        searches = [s for s in evidence.results.searches if s.kind == OpKind.RETRIEVE]
        systems = ["long_context"] if self.notebook else [span.system for span in searches]
        self.replayer = next((replayers[system] for system in systems if system in replayers), None)
        self.search = _search(evidence, searches[-1] if searches else evidence.answer_span)

    def ask(self, prompt: Prompt) -> str:
        """Return the answer to a request. Raises NotReplayableError without an answer."""
        asked = self._endpoint.ask_text(prompt.messages, model=prompt.model)
        if asked.reply is None:
            raise NotReplayableError(asked.problem)
        return asked.reply

    def is_right(self, answer: str) -> bool:
        """Return whether an answer says what was expected. The recorded answer was judged wrong and stays wrong."""
        failure, wish = self.evidence.failure, self.evidence.wish
        if words(answer) == words(failure.answer):
            return False
        if wish.form is AnswerForm.ABSTAIN:
            return abstains(answer)
        if self._reader is not None:
            given = Text(answer)
            replies = self._reader.read(failure.question, failure.expected, [given])
            if given in replies.by_text:
                return replies.by_text[given].answer is Answer.YES
        return same_answer(answer, wish) if self._is_loose else all(self._holds(answer))

    def _holds(self, answer: str) -> list[bool]:
        wish, lexicon = self.evidence.wish, self.evidence.compare.lexicon
        return [answered(answer, need, wish.form, lexicon) for need in wish.needs]

    def replay(self, verdict: Verdict) -> Replay:
        """Return whether undoing the fault of a verdict makes the answer right."""
        evidence = self.evidence
        operation = evidence.lineage.span(make_origin(verdict.trace_id, verdict.span_id)) if verdict.span_id else None
        fix = self._repair(verdict, operation) if operation else None
        if fix is None:
            return Replay(NOT_REPLAYABLE, "the trace does not tell what the operation had and left")
        if verdict.failure_type == FailureType.RESPONSE:
            return self._response(fix)
        if verdict.failure_type in MEMORY_TYPES and (built := self._rebuilt(fix)) is not None:
            return built
        if fix.left:
            prompt = self.prompt.with_memories(fix.replaced, fix.left)
            if self.is_right(answer := self.ask(prompt)):
                reason = "the answer is right with what the operation left: nothing was lost"
                return self._told(REFUTED, reason, prompt, answer)
        return self._flips(self.prompt.with_memories(fix.replaced, fix.given), "with what the operation had before it")

    def _repair(self, verdict: Verdict, operation: OperationSpan) -> Repair | None:
        if self.notebook:
            return self.notebook.repair(self.evidence, verdict.failure_type, operation)
        return repair(self.evidence, verdict.failure_type, operation, verdict.variable)

    def writes(self, change: Repair | None = None) -> list[Write]:
        """Return the writes of the memory, as recorded or with a repair."""
        return self.notebook.writes(change) if self.notebook else recorded_writes(self.evidence, change)

    def _response(self, fix: Repair) -> Replay:
        """The model is at fault when the answer stays wrong with the right text in the context."""
        missing = [text for text in fix.given if text not in self.prompt.shown]
        prompt = self.prompt.with_memories((), missing) if missing else self.prompt
        if self.is_right(answer := self.ask(prompt)):
            return self._told(REFUTED, "the answer is right as soon as the context holds the fact", prompt, answer)
        about = [text for text in missing if self.evidence.compare.about(text)]
        right = about or [text for text in fix.given if text in self.prompt.shown] or self.prompt.shown
        if not (self._can_answer() or self._has_fact(right)):
            raise NotReplayableError(f"no text of the context has the words of the expected answer{self._hint}")
        return self._told(VERIFIED, "the answer stays wrong with the fact in the context", prompt, answer)

    def _rebuilt(self, fix: Repair) -> Replay | None:
        """Build the memory again as recorded, then with the corrected step; None where that is not possible."""
        if self.replayer is None:
            return None
        try:
            before = self.replayer.search(self.writes(), self.search)
            after = self.replayer.search(self.writes(fix), self.search)
        except Exception as error:
            _log.warning("the memory was not built again: %s", type(error).__name__)
            return None
        if self.is_right(self.ask(self.prompt.with_memories(self.prompt.shown, before))):
            return None  # the scratch memory does not repeat the failure
        return self._flips(
            self.prompt.with_memories(self.prompt.shown, after), "with the memory built again without the fault"
        )

    def _flips(self, prompt: Prompt, how: str) -> Replay:
        if self.is_right(answer := self.ask(prompt)):
            return self._told(VERIFIED, f"the answer is right {how}", prompt, answer)
        if not self._can_answer():
            raise NotReplayableError(f"the answer is wrong with the source messages alone, too{self._hint}")
        return self._told(REFUTED, f"the answer stays wrong {how}", prompt, answer)

    def _told(self, outcome: ReplayOutcome, reason: str, prompt: Prompt, answer: str) -> Replay:
        before, now = self.prompt.shown, prompt.shown
        removed = tuple(text for text in before if text not in now)
        return Replay(outcome, reason, answer, removed=removed, added=tuple(text for text in now if text not in before))

    def _can_answer(self) -> bool:
        """Return whether the answer is right with the source messages alone in the context."""
        if self._oracle is None:
            told = self.notebook.told(self.evidence) if self.notebook else told_texts(self.evidence)
            told = () if self.evidence.wish.form is AnswerForm.ABSTAIN else told
            self._oracle = self.is_right(self.ask(self.prompt.with_memories(self.prompt.shown, told)))
        return self._oracle

    def _has_fact(self, texts: Sequence[str]) -> bool:
        """Return whether some texts hold a piece of the expected answer. A reader decides by meaning, but not dates."""
        failure, wish = self.evidence.failure, self.evidence.wish
        if wish.form is AnswerForm.ABSTAIN:
            return True
        if self._reader and not any(need.periods for need in wish.needs):
            replies = self._reader.read(failure.question, failure.expected, [Text(text) for text in texts])
            return any(reply.answer in (Answer.YES, Answer.PARTLY) for reply in replies.by_text.values())
        return any(self._says(text, need) for text in texts for need in wish.needs)

    def _says(self, text: str, need: Need) -> bool:
        """Return whether a recorded text carries a piece of the expected answer, relative to the days of the text."""
        evidence = self.evidence
        versions = (*(s.message for s in evidence.messages), *(v for history in evidence.records for v in history))
        days = {item.day for item in (*versions, *evidence.results.hits) if item.content == text}
        return any(evidence.compare.supports(text, need, day) for day in days or {None})


def _others(case: _Case, verdict: Verdict) -> Sequence[Verdict]:
    """Return the alternatives of a verdict as verdicts, with the reasons of the rules; the verdict is among theirs."""
    found: list[Verdict] = []
    findings = [finding for rule in RULES if (finding := rule(case.evidence)) is not None]
    for other in verdict.alternatives:
        origin = make_origin(other.trace_id, other.span_id) if other.span_id else ""
        for finding in findings:
            operation: OperationSpan | None = finding.operation
            if operation is None or (finding.failure_type, operation.origin) != (other.failure_type, origin):
                continue
            refuted = Alternative(verdict.failure_type, verdict.trace_id, verdict.span_id, other.confidence)
            found.append(
                replace(
                    verdict.blaming(operation, finding.failure_type, finding.variable),
                    reason=finding.reason,
                    advice=finding.advice,
                    evidence=finding.steps,
                    alternatives=(*(a for a in verdict.alternatives if a is not other), refuted),
                )
            )
    return found


def _search(evidence: Evidence, span: OperationSpan) -> Search:
    inside = evidence.lineage.subtree(span)
    models = (str(one.attributes.get(GEN_AI_REQUEST_MODEL, "")) for one in inside if one.kind == OpKind.INDEX)
    limit, threshold = (span.attributes.get(name) for name in (GEN_AI_RETRIEVAL_TOP_K, RETRIEVAL_THRESHOLD))
    return Search(
        query_text(evidence, span) or evidence.failure.question,
        limit if isinstance(limit, int) else sum(v.role == Role.HIT for v in span.inputs) or _HITS,
        float(threshold) if isinstance(threshold, (int, float)) else None,
        next(filter(None, models), ""),
    )
