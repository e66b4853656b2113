"""Small recorded lives of facts, as spans an instrumented assistant would send; shared with the browser test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from memtrace_otel import semconv
from memtrace_otel.attribution import attribute, find_failures
from memtrace_otel.graph import EvolutionGraph, build_graph
from memtrace_otel.model import OperationSpan, Variable, Verdict, content_digest
from memtrace_otel.semconv import Action, OpKind, RefKind, Role

SECOND = 1_000_000_000
DAY = 86_400 * SECOND
FIRST_DAY = 1_772_528_400 * SECOND  # 3 March 2026, 09:00 UTC


@dataclass
class Story:
    """Writes spans turn by turn; `captured` False leaves every content out."""

    captured: bool = True
    service: str = "assistant"
    spans: list[OperationSpan] = field(default_factory=list)
    time: int = FIRST_DAY
    scope: str = "00000000000000aa"

    def later(self, days: float) -> None:
        """Let time pass, to a new process."""
        self.time += int(days * DAY)

    def say(self, text: str, facts: Sequence[str], memory: str = "") -> list[str]:
        """One message; each fact becomes a record, named `memory` when there is one. Returns origins of the writes."""
        trace = self._trace(text)
        ref = f"{RefKind.MESSAGE}:{content_digest(text)}"
        ingest = self._span("upsert_memory", OpKind.INGEST, trace, inputs=[self._variable(ref, Role.MESSAGE, text)])
        found = [
            self._variable(f"{RefKind.FACT}:{content_digest(f)}", Role.OTHER, f, action=Action.DERIVE) for f in facts
        ]
        message = [self._variable(ref, Role.MESSAGE, text)]
        extract = self._span("memtrace.extract", OpKind.EXTRACT, trace, ingest, message, found)
        writes = []
        for number, (fact, variable) in enumerate(zip(facts, found, strict=True)):
            source = self._variable(variable.ref, Role.OTHER, fact, origin=extract.origin)
            record = self._variable(
                f"memory:{memory or f'm-{content_digest(fact)[:6]}'}{number or ''}", Role.OTHER, fact, action=Action.ADD
            )
            writes.append(self._span("create_memory", OpKind.CREATE, trace, ingest, [source], [record]).origin)
        return writes

    def update(self, memory: str, text: str, said: str = "") -> str:
        """The application overwrites a record, in the trace of what was `said`."""
        record = self._variable(f"memory:{memory}", Role.OTHER, text, action=Action.UPDATE)
        previous = self._variable(f"memory:{memory}", Role.PREVIOUS, "")
        return self._span("update_memory", OpKind.UPDATE, self._trace(said or text), None, [previous], [record]).origin

    def delete(self, memory: str, said: str = "") -> str:
        """The application deletes a record."""
        gone = self._variable(f"memory:{memory}", Role.OTHER, "", action=Action.DELETE)
        previous = self._variable(f"memory:{memory}", Role.PREVIOUS, "")
        return self._span("delete_memory", OpKind.DELETE, self._trace(said or memory), None, [previous], [gone]).origin

    def ask(
        self, question: str, hits: Sequence[tuple[str, str, str]], given: str, expected: str, why: str = ""
    ) -> OperationSpan:
        """One question: search, answer, judgement. A hit is (memory, origin, text). Returns the answering span."""
        trace = self._trace(question)
        query = self._variable(f"query:{content_digest(question)}", Role.QUERY, question)
        found = [
            self._variable(f"memory:{memory}", Role.HIT, text, origin=origin, score=0.9 - i / 10)
            for i, (memory, origin, text) in enumerate(hits)
        ]
        search = self._span("search_memory", OpKind.RETRIEVE, trace, None, [query, *found], [])
        context = self._variable(f"context:{search.span_id}", Role.CONTEXT, "", origin=search.origin)
        seen = [self._variable(v.ref, Role.CONTEXT, v.content, origin=v.origin) for v in found]
        reply = self._variable("answer:a", Role.ANSWER, given, action=Action.DERIVE)
        answer = self._span("chat demo-model", OpKind.RESPOND, trace, None, [query, context, *seen], [reply])
        marks = {
            semconv.EVALUATION_LABEL: "incorrect",
            semconv.EVALUATION_SCORE: 0.0,
            semconv.EVALUATION_EXPLANATION: why,
        }
        asked = [
            self._variable("answer:a", Role.ANSWER, given, origin=answer.origin),
            self._variable(f"expected:{content_digest(expected)}", Role.EXPECTED, expected),
        ]
        self._span("memtrace.judge", OpKind.JUDGE, trace, answer, asked, [], marks)
        return answer

    def diagnosed(self) -> tuple[EvolutionGraph, list[Verdict]]:
        """The graph of the spans, and what attribution says about its failed answers."""
        graph = build_graph(self.spans)
        return graph, [attribute(graph, failure) for failure in find_failures(graph)]

    def _trace(self, name: str) -> str:
        return sha256(f"{name}{self.time // DAY}".encode()).hexdigest()[:32]

    def _variable(self, ref: str, role: str, text: str, **more: object) -> Variable:
        content = text if self.captured else ""
        digest = content_digest(text) if text else ""
        return Variable(ref, role, digest=digest, content=content, size=len(text), **more)  # type: ignore[arg-type]

    def _span(
        self,
        name: str,
        kind: str,
        trace: str,
        parent: OperationSpan | None = None,
        inputs: Sequence[Variable] = (),
        outputs: Sequence[Variable] = (),
        attributes: dict | None = None,
    ) -> OperationSpan:
        number = len(self.spans) + 1
        self.time += SECOND
        span = OperationSpan(
            trace_id=trace,
            span_id=f"{number:016x}",
            parent_id=parent.span_id if parent else "",
            name=name,
            kind=kind,
            system="mem0",
            scope=self.scope,
            start=self.time,
            end=self.time + SECOND // 2,
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            attributes=attributes or {},
            resource={semconv.SERVICE_NAME: self.service, semconv.PROCESS_PID: 4000 + self.time // DAY % 100},
        )
        self.spans.append(span)
        return span


DENTIST = "My dentist appointment with Dr. Okafor is on Thursday 19 March at 10:30, at 12 Harbour Street."
DENTIST_FACT = "Mira has a dentist appointment with Dr. Okafor on Thursday 19 March at 10:30 at 12 Harbour Street."
TRAM = "Parking near Dr. Okafor is hopeless, so I will take tram 4 to the dentist."
TRAM_FACT = "Mira will take tram 4 to her dentist Dr. Okafor at 12 Harbour Street, because parking is difficult there."


def overwritten(story: Story) -> None:
    """An update of the application drops the hour."""
    story.say(DENTIST, [DENTIST_FACT], "m-dentist")
    story.later(8)
    story.say(TRAM, [])
    written = story.update("m-dentist", TRAM_FACT, TRAM)
    story.later(9)
    hits = [("m-dentist", written, TRAM_FACT)]
    story.ask(
        "When is my dentist appointment?",
        hits,
        "You take tram 4 to Dr. Okafor, I do not know when.",
        "Thursday 19 March at 10:30",
    )


def not_extracted(story: Story) -> None:
    """The extraction takes the dinner and leaves the allergy out."""
    told = "Friends are coming to dinner on Sunday, I make a risotto. Please remember that I am allergic to cashews."
    taken = "Mira makes a risotto for friends on Sunday 8 March."
    story.later(1)
    (written,) = story.say(told, [taken], "m-dinner")
    story.later(12)
    story.ask(
        "What am I allergic to?",
        [("m-dinner", written, taken)],
        "You have not told me about an allergy.",
        "cashews",
        "No allergy is named.",
    )


def deleted(story: Story) -> None:
    """A record is deleted beside another one."""
    kept = "The key of the allotment shed is under the blue flower pot."
    story.say("The key of the allotment shed is under the blue flower pot.", [kept], "m-key")
    story.later(3)
    told = "I gave away the old wheelbarrow from the allotment shed. You can forget about mending it."
    story.say(told, [])
    story.delete("m-key", told)
    story.later(6)
    story.ask(
        "Where is the key of the allotment shed?", [], "I do not know where the key is.", "under the blue flower pot"
    )


def not_retrieved(story: Story) -> None:
    """The record is there, the search brings others."""
    ferry = "Mira booked the ferry to Texel for Friday 3 April at 14:30 from pier 4."
    story.say("For Easter I booked the ferry to Texel: Friday 3 April at 14:30, pier 4.", [ferry], "m-ferry")
    others = [f"Mira buys a loaf of rye bread every week at the bakery on Mill Lane, number {n}." for n in range(3)]
    written = story.say("I love the bakery on Mill Lane.", others, "m-bread")
    story.later(20)
    hits = [(f"m-bread{n or ''}", written[n], others[n]) for n in range(3)]
    story.ask("From which pier does the ferry to Texel leave?", hits, "I have no pier for that ferry.", "pier 4")


def ignored(story: Story) -> None:
    """The record is before the model, which answers something else."""
    boots = "Mira's daughter Lena needs football boots in size 36."
    (written,) = story.say("Lena's feet have grown again, she needs football boots in size 36 now.", [boots], "m-boots")
    story.later(4)
    story.ask(
        "What size of football boots does Lena need?", [("m-boots", written, boots)], "Lena needs size 41.", "size 36"
    )


def wrong_gold(story: Story) -> None:
    """The expected answer is not what was said."""
    told = "I borrowed The Salt Path from the city library. It has to go back by 31 March."
    fact = "Mira borrowed The Salt Path from the city library and must return it by 31 March."
    (written,) = story.say(told, [fact], "m-book")
    story.later(4)
    asked, given = "By when must I return The Salt Path to the library?", "You must return The Salt Path by 31 March."
    story.ask(asked, [("m-book", written, fact)], given, "14 April", "The answer does not say 14 April.")


def misjudged(story: Story) -> None:
    """The answer is right."""
    tomato = "Jonas sowed tomatoes of the variety Black Krim."
    (written,) = story.say(
        "I sowed tomatoes on the windowsill today. The variety is called Black Krim.", [tomato], "m-tomato"
    )
    story.later(4)
    story.ask("Which variety of tomatoes did I sow?", [("m-tomato", written, tomato)], "Black Krim", "Black Krim")


def often_updated(story: Story) -> None:
    """Five versions; the fourth loses the number of the house."""
    texts = [
        "Pavel lives in Ghent.",
        "Pavel lives in Ghent, at 7 Brewer Lane.",
        "Pavel lives in Ghent, at 7 Brewer Lane, second floor.",
        "Pavel lives in Ghent, second floor, and has a cat.",
        "Pavel lives in Ghent, second floor, and has two cats.",
    ]
    story.say("Pavel has moved to Ghent, to 7 Brewer Lane.", texts[:1], "m-pavel")
    written = ""
    for text in texts[1:]:
        story.later(2)
        told = f"News of Pavel: {text}"
        story.say(told, [])
        written = story.update("m-pavel", text, told)
    story.later(40)
    story.ask(
        "What is Pavel's address?",
        [("m-pavel", written, texts[-1])],
        "Pavel lives in Ghent, on the second floor.",
        "7 Brewer Lane, Ghent",
    )


ALL = (overwritten, not_extracted, deleted, not_retrieved, ignored, wrong_gold, misjudged, often_updated)
