"""The inputs of a model call: the searches, answers and history of the turn that the prompt repeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from opentelemetry.trace import Span

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, recall, variable_ref
from memtrace_otel.capture.content import message_refs, said
from memtrace_otel.instrumentation.chat_history.alignment import Entry
from memtrace_otel.instrumentation.chat_history.conversations import user_here
from memtrace_otel.instrumentation.chat_history.history import History, KeptHistory, asked_last
from memtrace_otel.instrumentation.chat_history.judgement import asks_to_judge, expected_answer
from memtrace_otel.instrumentation.chat_history.messages import INSTRUCTIONS, Request
from memtrace_otel.instrumentation.chat_history.quoted_answers import (
    LABEL,
    identifies_itself,
    quoted_answers,
)
from memtrace_otel.instrumentation.chat_history.upkeep import reply_before, tasks_of
from memtrace_otel.model import split_origin
from memtrace_otel.semconv import Incomplete, RefKind, Role

_JUDGED = 64
"""Answers that may be judged: the newest."""
_QUOTATION_MARKS = "\"'`*"


class Inputs:
    """The prompt of a model call, and the turn at the start of the call.

    `prompt` is the text of all messages, `trace` the id of the trace around the call ('' for none). `recorded` is the
    span of another instrumentation for the same call.
    """

    def __init__(self, request: Request, recorded: Span | None) -> None:
        self._request = request
        self.prompt = "\n".join(message.text for message in request.messages)
        self.trace = recall.trace_here()
        self._turn = recall.recall(self.trace)
        alone = recorded is not None and getattr(recorded, "parent", None) is None  # no span is around the turn
        self._within = recall.turn_within("" if alone else self.trace)
        self._earlier = self._within.telling_answers() if self._within else []
        self._found: recall.InPrompt | None = None
        self._user = request.user or user_here()
        self._history: History | None = None
        self._kept: KeptHistory | None = None
        self._scope = ""
        self._asked: dict[str, str] = {}
        self._behind: dict[str, None] = {}
        self._about: recall.Answer | None = None

    def use_history(self, history: History | None, kept: KeptHistory | None) -> None:
        """Set the history that the prompt repeats: the conversation's own, or one that another library keeps."""
        self._history, self._kept = history, kept

    def query(self, answer: recall.Answer) -> tuple[str, str]:
        """Ref and text of the question of an answer; if it has none, of the last query in the prompt; '' for none."""
        queries = [] if answer.query[0] else self._in_prompt().queries
        return (queries[-1].ref, queries[-1].text) if queries else answer.query

    def note_results(self, history: History) -> None:
        """Set the searches of this turn as the sources of the tool results that quote their hits."""
        found, searched = self._in_prompt().hits, self._searches()
        for place, message in enumerate(self._request.messages if found else ()):
            if message.role == "tool" and history.is_new(place):
                text = recall.fold(message.text)
                origins = dict.fromkeys(hit.retrieved_by for hit in found if recall.holds(text, recall.fold(hit.text)))
                if origins:
                    history.set_sources(place, ((searched[origin].context, origin) for origin in origins))

    def judged(self) -> recall.Answer | None:
        """The newest answer of this turn, or of this context before, that the prompt asks to judge.

        The prompt quotes the answer outside the assistant's messages (those are history), and has an expected answer,
        or the question and words that ask for a judgement. An answer of an earlier turn needs its question as well.
        """
        own = {answer.origin for answer in self._turn.newest_answers()} if self._turn else set[str]()
        answers = self._turn.all_answers()[:_JUDGED] if self._turn else []
        given = "\n".join(m.text for m in self._request.messages if m.role != "assistant") if answers else ""
        given = recall.fold(given)
        for answer in answers:
            if not recall.quotes(given, recall.fold(answer.text)):
                continue
            asked = any(recall.quotes(given, recall.fold(text)) for text in (answer.question, answer.query[1]))
            if expected_answer(self.prompt):
                if asked or answer.origin in own:
                    return answer
            elif asked and asks_to_judge(self.prompt, answer.text, answer.question):
                return answer
        return None

    def answered(self, operation: Operation, ref: str, text: str) -> None:
        """Publish the answer to the later calls of its turn and, outside any span, of its context."""
        alone, telling = operation.is_alone(), identifies_itself(text, self.prompt)
        answer = recall.Answer(
            ref,
            operation.origin,
            text,
            self._question(),
            tuple(self._behind or self._asked),
            self._scope,
            self._user,
            telling,
            query=next(iter(self._asked.items()), ("", "")),
            about=self._about,
            tasks=tasks_of([self._question(), *(m.text for m in self._request.messages if m.role in INSTRUCTIONS)]),
        )
        own = recall.turn_of(split_origin(operation.origin)[0], alone=alone)
        own.answered(answer)
        if self._turn is not None and self._turn is not own:
            self._turn.answered(answer._replace(telling=telling and alone))

    def read(self, operation: Operation) -> None:
        """Record the inputs of an answer: the query, the hits in the prompt, the repeated history, the answers that the
        prompt quotes, and the instructions."""
        turn = self._turn
        queries, found, whole, certain = self._in_prompt()
        if not whole:
            operation.mark(Incomplete.BUDGET)
        if not self._request.whole:
            operation.mark(Incomplete.UNSERIALISABLE)
        self._about = self._reply_before()
        if self._about is not None:
            operation.set(semconv.OP_PURPOSE, semconv.UPKEEP)
        queries = self._read_query(operation, queries, found)
        nothing = turn.fruitless_for(queries) if turn else []
        searches = self._searches()
        for search in dict.fromkeys((*(hit.retrieved_by for hit in found), *nothing)):
            operation.read(searches[search].context, role=Role.CONTEXT, origin=search)
        for hit in found:
            operation.read(hit.ref, role=Role.CONTEXT, content=hit.text, origin=hit.origin)
            if not (hit.origin or searches[hit.retrieved_by].certain):
                operation.mark(Incomplete.UNKNOWN_ORIGIN)
        if turn:
            turn.gave(found, self.trace)
        placed = {version for entry in self._kept.entries.values() for version in entry.versions} if self._kept else ()
        if not certain and any((hit.ref, hit.origin) not in placed for hit in found):
            operation.mark(Incomplete.INFERRED)
        last = queries[-1].ref if queries else ""
        asked_for = {done.origin for done in searches.values() if (query := done.query()) and query.ref == last}
        scopes = {hit.scope for hit in found if hit.retrieved_by in asked_for} or {hit.scope for hit in found}
        scopes = scopes or {searches[search].scope for search in nothing}
        if len(scopes) == 1:
            self._scope = operation.scope = next(iter(scopes))
        self._read_answers(operation, found, scopes)
        given = {(searches[search].context, search) for hit in found if (search := hit.retrieved_by)}
        self._read_history(operation, given | {(hit.ref, hit.origin) for hit in found})
        for message in self._request.messages:
            if message.role in INSTRUCTIONS:
                operation.read(variable_ref(RefKind.PROMPT, message.text), role=Role.PROMPT, content=message.text)

    def _in_prompt(self) -> recall.InPrompt:
        """The queries and hits of this turn that the prompt holds."""
        if self._found is None:
            nothing = recall.InPrompt([], [], True, True)
            self._found = self._turn.found_in(self.prompt, self.trace) if self._turn else nothing
        return self._found

    def _searches(self) -> dict[str, recall.Retrieval]:
        return {done.origin: done for done in self._turn.retrievals()} if self._turn else {}

    def _question(self) -> str:
        """The last message of the user."""
        return next((m.text for m in reversed(self._request.messages) if m.role == "user"), "")

    def _query_ref(self, question: str, operation: Operation) -> str:
        """The name of the message that asks, as a query: equal questions of two histories are two."""
        if self._history is not None:
            return self._history.query_ref
        asked = variable_ref(RefKind.QUERY, question)
        return asked if self._kept is None else self._kept.query_ref or said(asked, operation.origin[33:])

    def _read_query(
        self, operation: Operation, queries: list[recall.Recalled], found: Collection[recall.Recalled]
    ) -> list[recall.Recalled]:
        """Record the question. Returns the searched queries that belong to the question."""
        question = self._question()
        asked = [query for query in queries if _asks(question, query.text)]
        if not asked and any(recall.quotes(question, hit.text) for hit in found):
            asked = queries  # a message with notes and a question
        if asked or (queries and not question):
            last = (asked or queries)[-1]
            ref, text = last.ref, last.text
        elif question:  # the search used other words
            ref, text = self._query_ref(question, operation), question
        else:  # an earlier call asked; tools have answered since
            ref, text = self._history.query_ref if self._history else "", None
        if ref:
            operation.read(ref, role=Role.QUERY, content=text)
            self._asked = {ref: text or ""}
            if text != question and question and not found:  # the words around the query are no hit: keep them
                operation.read(variable_ref(RefKind.PROMPT, question), role=Role.PROMPT, content=question)
        return asked or queries

    def _read_answers(self, operation: Operation, found: Collection[recall.Recalled], scopes: Collection[str]) -> None:
        """Record the earlier answers that new messages of the prompt quote, with their questions."""
        messages = self._request.messages
        given = "\n".join(message.text for place, message in enumerate(messages) if self._may_quote(place))
        texts, within = [hit.text for hit in found], self._within
        joined = within is not None and within.joined
        quoted = quoted_answers(given, self._earlier, texts, self._user, scopes, joined=joined)
        for answer in quoted.answers:
            operation.read(answer.ref, role=Role.HISTORY, origin=answer.origin, content=answer.text)
        if not scopes and len(made_of := {answer.scope for answer in quoted.answers}) == 1:
            self._scope = operation.scope = made_of.pop()
        self._behind = dict.fromkeys(query for answer in quoted.answers for query in answer.asked)
        for query in self._behind:
            if query not in self._asked:
                operation.read(query, role=Role.HISTORY)
        if not quoted.whole or (quoted.answers and within is not None and within.forgot_answers):
            operation.mark(Incomplete.BUDGET)
        if not quoted.certain:
            operation.mark(Incomplete.INFERRED)
        if not quoted.known:
            operation.mark(Incomplete.UNKNOWN_ORIGIN)

    def _reply_before(self) -> recall.Answer | None:
        """The reply to the user for which the prompt asks upkeep."""
        messages, turn = self._request.messages, self._turn
        known = [*turn.newest_answers(), *turn.telling_answers()] if turn else []
        new = [place for place in range(len(messages)) if self._may_quote(place)]
        held = self._history.entries.values() if self._history and self._request.held_there else ()
        origins = {origin for entry in held for _, origin in entry.made_of if origin}
        return reply_before(messages, new, list(dict.fromkeys(answer.about or answer for answer in known)), origins)

    def _may_quote(self, place: int) -> bool:
        """Whether a message of the prompt may quote an answer: new messages of users and tools."""
        messages = self._request.messages
        if messages[place].role in INSTRUCTIONS or messages[place].role == "assistant":
            return False
        if self._kept is not None:
            return place not in self._kept.entries or place == asked_last(messages)
        return self._history is None or self._history.is_new(place)

    def _read_history(self, operation: Operation, read: Collection[tuple[str, str]]) -> None:
        """Record the messages before the question; the versions in `read` are inputs already."""
        history, kept, messages = self._history, self._kept, self._request.messages
        if history is None and kept is None:
            return
        entries: Mapping[int, Entry] = {}
        scope = ""
        if kept is not None:
            entries, scope = kept.entries, kept.scope
        elif history is not None and history.continues:
            entries, scope = history.entries, history.conversation.scope
            if not history.certain:
                operation.mark(Incomplete.INFERRED)
        if history is not None and history.unknown:
            operation.mark(Incomplete.UNKNOWN_ORIGIN)
        operation.scope = operation.scope or scope
        query = history.query if history else asked_last(messages)
        texts = {place: message.text for place, message in enumerate(messages) if not message.compaction}
        repeated = {place: entry.versions for place, entry in entries.items() if place != query}
        times = Counter(version for versions in repeated.values() for version in versions)
        for place, versions in repeated.items():
            whole = len(versions) == 1 == times[versions[0]]  # several messages may be one summary
            for ref, origin in versions:
                if (ref, origin) not in read and times.pop((ref, origin), 0):
                    text = texts.get(place) if whole else None
                    operation.read(ref, role=Role.HISTORY, origin=origin or None, content=text, scope=scope)
        new = [
            place
            for place, message in enumerate(messages)
            if place != query and place not in entries and message.role not in INSTRUCTIONS
        ]
        if history is not None and new:
            operation.scope = operation.scope or history.conversation.scope
        names = message_refs(((messages[place].text, messages[place].id) for place in new), operation.origin[33:])
        for name, place in zip(names, new, strict=True):
            versions = history.new_versions(place) if history else messages[place].made_of or ((name, ""),)
            for ref, origin in versions:
                if (ref, origin) not in read:
                    text = None if origin else messages[place].text
                    operation.read(ref, role=Role.HISTORY, origin=origin, content=text)


def _asks(message: str, query: str) -> bool:
    """Whether a message asks this query: as a whole, in a line of its own, or behind a label ("Question: ...")."""
    asked = recall.fold(query).strip(_QUOTATION_MARKS)
    lines = [recall.fold(line).strip(_QUOTATION_MARKS) for line in (message, *message.splitlines())]
    return bool(asked) and any(asked in (line, LABEL.sub("", line).strip(_QUOTATION_MARKS)) for line in lines)
