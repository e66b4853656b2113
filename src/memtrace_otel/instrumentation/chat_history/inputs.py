"""What a model call was given: the variables of its turn that its prompt holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from opentelemetry.trace import Span

from memtrace_otel.capture import Operation, recall, variable_ref
from memtrace_otel.capture.content import message_refs, said
from memtrace_otel.instrumentation.chat_history.alignment import Entry
from memtrace_otel.instrumentation.chat_history.conversations import user_here
from memtrace_otel.instrumentation.chat_history.history import History, Kept, asked_last
from memtrace_otel.instrumentation.chat_history.judgement import asks_to_judge, expected_answer
from memtrace_otel.instrumentation.chat_history.messages import INSTRUCTIONS, Request
from memtrace_otel.instrumentation.chat_history.quoted_answers import LABELLED, handed_on, introduced, is_telling
from memtrace_otel.model import split_origin
from memtrace_otel.semconv import Incomplete, RefKind, Role

_QUOTES = "\"'`*"


class Inputs:
    """The prompt of a model call, and what its turn knew when the call began. `prompt` is its text, `trace` the id of
    the trace around the call, '' for none. `recorded` is the span that another instrumentation has for the call."""

    __slots__ = (
        *("_asked", "_behind", "_earlier", "_forgot", "_given", "_history", "_holds", "_joined", "_kept", "_request"),
        *("_scope", "_turn", "_user", "prompt", "trace"),
    )

    def __init__(self, request: Request, recorded: Span | None) -> None:
        self._request = request
        self.prompt = "\n".join(message.text for message in request.messages)
        self.trace = recall.trace_here()
        self._turn = recall.recall(self.trace)
        alone = recorded is not None and getattr(recorded, "parent", None) is None  # no span is around the turn
        within = recall.turn_within("" if alone else self.trace)
        self._earlier = within.telling_answers() if within else []
        self._joined = within is not None and within.joined
        self._forgot = within is not None and within.forgot_answers
        self._given: list[recall.Answer] = []
        self._holds: recall.InPrompt | None = None
        self._user = request.user or user_here()
        self._history: History | None = None
        self._kept: Kept | None = None
        self._scope = ""
        self._asked: dict[str, str] = {}
        self._behind: dict[str, None] = {}

    def repeats(self, history: History | None, kept: Kept | None) -> None:
        """Say which history the prompt repeats: the conversation's own, or one that somebody else keeps."""
        self._history, self._kept = history, kept

    def query(self, answer: recall.Answer) -> tuple[str, str]:
        """Ref and text of the question of an answer; where it said none, of what was searched for and is asked in the
        prompt, the last of it. '' without one."""
        queries = [] if answer.query[0] else self._in_prompt().queries
        return (queries[-1].ref, queries[-1].text) if queries else answer.query

    def _in_prompt(self) -> recall.InPrompt:
        """What was searched for and found in this turn that the prompt holds."""
        if self._holds is None:
            nothing = recall.InPrompt([], [], True, True)
            self._holds = self._turn.found_in(self.prompt, self.trace) if self._turn else nothing
        return self._holds

    def _searched(self) -> dict[str, recall.Retrieval]:
        return {done.origin: done for done in self._turn.retrievals()} if self._turn else {}

    def note_results(self, history: History) -> None:
        """What a tool hands over of what its search has found goes into a history as that."""
        found, searched = self._in_prompt().hits, self._searched()
        for place, message in enumerate(self._request.messages if found else ()):
            if message.role == "tool" and history.says(place):
                text = recall.fold(message.text)
                origins = dict.fromkeys(hit.retrieved_by for hit in found if recall.quotes(text, recall.fold(hit.text)))
                if origins:
                    history.was_found(place, ((searched[origin].context, origin) for origin in origins))

    def judged(self) -> recall.Answer | None:
        """The newest answer of this turn that the prompt hands over to be judged.

        It is quoted as whole words, by somebody else than the assistant (a conversation's history quotes answers, too),
        with an expected answer, or with its question and words that ask for a judgement.
        """
        answers = self._turn.newest_answers() if self._turn else []
        given = "\n".join(m.text for m in self._request.messages if m.role != "assistant") if answers else ""
        given = recall.fold(given)
        for answer in answers:
            if recall.quotes(given, recall.fold(answer.text)) and (
                expected_answer(self.prompt)
                or (
                    recall.quotes(given, recall.fold(answer.question))
                    and asks_to_judge(self.prompt, answer.text, answer.question)
                )
            ):
                return answer
        return None

    def answered(self, operation: Operation, ref: str, text: str) -> None:
        """Let the calls that follow know the answer: those of its turn and, outside any span, of the context that this
        one is a copy of."""
        alone, telling = operation.is_alone(), is_telling(text, self.prompt)
        answer = recall.Answer(
            *(ref, operation.origin, text, self._question(), tuple(self._behind or self._asked)),
            *(self._scope, self._user, telling, tuple(answer.origin for answer in self._given)),
            next(iter(self._asked.items()), ("", "")),
        )
        own = recall.turn_of(split_origin(operation.origin)[0], alone=alone)
        own.answered(answer)
        if self._turn is not None and self._turn is not own:
            self._turn.answered(answer._replace(telling=telling and alone))

    def _question(self) -> str:
        """What the user asked last."""
        return next((m.text for m in reversed(self._request.messages) if m.role == "user"), "")

    def _query_ref(self, question: str, operation: Operation) -> str:
        """The name of the message that asks, as a query: equal questions of two histories are two. A thread may not be
        written yet as far as that."""
        if self._history is not None:
            return self._history.query_ref
        asked = variable_ref(RefKind.QUERY, question)
        return asked if self._kept is None else self._kept.query_ref or said(asked, operation.origin[33:])

    def read(self, operation: Operation) -> None:
        """Inputs of an answer: the query, the memory versions that really are in the prompt, the history that it
        repeats, the answers that it hands on, and the instructions."""
        turn = self._turn
        queries, found, whole, certain = self._in_prompt()
        if not whole:
            operation.mark(Incomplete.BUDGET)
        if not self._request.whole:
            operation.mark(Incomplete.UNSERIALISABLE)
        question = self._question()
        asked = [query for query in queries if _puts(question, query.text)]
        if not asked and any(recall.quotes(question, hit.text) for hit in found):
            asked = queries  # a message around notes and a question
        queries = asked or queries
        if asked or (queries and not question):
            query, text = queries[-1].ref, queries[-1].text
        elif question:  # searched in other words
            query, text = self._query_ref(question, operation), question
        else:  # asked before this call: tools have answered since
            query, text = self._history.query_ref if self._history else "", None
        if query:
            operation.read(query, role=Role.QUERY, content=text)
            self._asked = {query: text or ""}
        nothing = turn.fruitless_for(queries) if turn else []
        searched = self._searched()
        for retrieval in dict.fromkeys((*(hit.retrieved_by for hit in found), *nothing)):
            operation.read(searched[retrieval].context, role=Role.CONTEXT, origin=retrieval)
        for hit in found:
            operation.read(hit.ref, role=Role.CONTEXT, content=hit.text, origin=hit.origin)
            if not (hit.origin or searched[hit.retrieved_by].certain):
                operation.mark(Incomplete.UNKNOWN_ORIGIN)
        if turn:
            turn.gave(found, self.trace)
        placed = {version for entry in self._kept.entries.values() for version in entry.versions} if self._kept else ()
        if not certain and any((hit.ref, hit.origin) not in placed for hit in found):
            operation.mark(Incomplete.INFERRED)
        last = queries[-1].ref if queries else ""
        asked_for = {done.origin for done in searched.values() if (query := done.query()) and query.ref == last}
        scopes = {hit.scope for hit in found if hit.retrieved_by in asked_for} or {hit.scope for hit in found}
        scopes = scopes or {searched[retrieval].scope for retrieval in nothing}
        if len(scopes) == 1:
            self._scope = operation.scope = next(iter(scopes))
        self._read_answers(operation, found, scopes)
        given = {(searched[retrieval].context, retrieval) for hit in found if (retrieval := hit.retrieved_by)}
        self._read_history(operation, given | {(hit.ref, hit.origin) for hit in found})
        for message in self._request.messages:
            if message.role in INSTRUCTIONS:
                operation.read(variable_ref(RefKind.PROMPT, message.text), role=Role.PROMPT, content=message.text)

    def _read_answers(self, operation: Operation, found: Collection[recall.Recalled], scopes: Collection[str]) -> None:
        """Inputs of what earlier calls have answered, where it is handed on in what is said in this call first."""
        given = "\n".join(m.text for place, m in enumerate(self._request.messages) if self._hands_on(place, m.role))
        partial = handed_on(given, self._earlier, found, self._user, scopes, joined=self._joined)
        answers = list(dict.fromkeys((*partial.answers, *self._introduced())))
        self._given = [*answers, *partial.said_before]
        for answer in answers:
            operation.read(answer.ref, role=Role.HISTORY, origin=answer.origin, content=answer.text)
        if not scopes and len(made_of := {answer.scope for answer in answers}) == 1:
            self._scope = operation.scope = made_of.pop()
        self._behind = dict.fromkeys(query for answer in answers for query in answer.asked)
        for query in self._behind:
            if query not in self._asked:  # what they were asked is a part of what is asked here
                operation.read(query, role=Role.HISTORY)
        for holds, reason in (
            (partial.whole and not (self._forgot and partial.answers), Incomplete.BUDGET),
            (partial.certain and len(answers) == len(partial.answers), Incomplete.INFERRED),
            (partial.known, Incomplete.UNKNOWN_ORIGIN),
        ):
            if not holds:
                operation.mark(reason)

    def _introduced(self) -> list[recall.Answer]:
        """What messages that a thread does not hold yet give of this turn's answers, summaries of it above all."""
        if self._kept is None or self._turn is None:
            return []
        messages = self._request.messages
        places = set(range(len(messages))) - self._kept.entries.keys() - {asked_last(messages)}
        new = [messages[place].text for place in sorted(places) if messages[place].role == "user"]
        answers = self._turn.newest_answers() if new else []
        return [answer for text in new if (answer := introduced(text, answers)) is not None]

    def _hands_on(self, place: int, role: str) -> bool:
        if role in INSTRUCTIONS or role == "assistant":
            return False
        if self._kept is not None:
            return place not in self._kept.entries or place == asked_last(self._request.messages)
        return self._history is None or self._history.says(place)

    def _read_history(self, operation: Operation, read: Collection[tuple[str, str]]) -> None:
        """Inputs of what the prompt repeats; the versions in `read` are inputs already."""
        history, messages = self._history, self._request.messages
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
        new = [
            place
            for place, message in enumerate(messages)
            if place != query and place not in entries and message.role not in INSTRUCTIONS
        ]
        if history is not None:
            for place in new:
                for ref, origin in history.said_as(place):
                    if (ref, origin) not in read:
                        text = None if origin else messages[place].text
                        operation.read(ref, role=Role.HISTORY, origin=origin, content=text)
            if new:
                operation.scope = operation.scope or history.conversation.scope
            return
        names = message_refs(((messages[place].text, messages[place].id) for place in new), operation.origin[33:])
        for name, message in zip(names, (messages[place] for place in new), strict=True):
            for ref, origin in message.made_of or ((name, ""),):  # the thread is not written as far as that
                if (ref, origin) not in read:
                    text = None if origin else message.text
                    operation.read(ref, role=Role.HISTORY, origin=origin, content=text)


def _puts(message: str, query: str) -> bool:
    """Whether a message asks this: as a whole, in a line of its own, or behind a label ("Question: ...")."""
    asked = recall.fold(query).strip(_QUOTES)
    lines = [recall.fold(line).strip(_QUOTES) for line in (message, *message.splitlines())]
    return bool(asked) and any(line == asked or LABELLED.sub("", line).strip(_QUOTES) == asked for line in lines)
