"""Stories of a memory's health: a healthy memory, and the fault that raises each measure of `memtrace-otel health`.

The faults of `faults.py` make an answer wrong; these show before an answer fails.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random

from memtrace_otel.bench.recorder import Op, Recorder
from memtrace_otel.model import content_digest
from memtrace_otel.otlp import encode_request
from memtrace_otel.semconv import Action, Incomplete, OpKind, Role

Source = tuple[str, Role, str, str]
"""Ref, role, text and origin of what a record is written from."""
OWNER, OTHER = "a" * 16, "b" * 16
BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
TOLD = ("My train leaves at 9:40 tomorrow.", "I keep my bicycle in the cellar.", "The dentist is Doctor Silva.")


class Program:
    """A program with a small memory: a turn each day. `records` are (text, origin) by ref."""

    def __init__(self) -> None:
        self.recorder = Recorder(Random(1), "mem0")
        self.days = 0
        self.records: dict[str, tuple[str, str]] = {}

    def turn(self) -> Op:
        """Open the root span of the next day."""
        self.days += 1
        return self.recorder.trace(BEGUN + timedelta(days=self.days), "ana")

    def tell(self, text: str, writes: Sequence[tuple[str, str]], scope: str = OWNER, incomplete: str = "") -> None:
        """Take in a message, and write these (record, text); a known record is updated."""
        root = self.turn()
        ingest = root.step("", OpKind.INGEST, scope)
        message = f"message:{content_digest(text)}.{self.days}"
        ingest.read(message, Role.MESSAGE, text)
        extract = ingest.step("", OpKind.EXTRACT)
        extract.read(message, Role.MESSAGE, text)
        reply = f"completion:{content_digest(text)}"
        extract.read(reply, Role.OTHER, "not JSON" if incomplete else "[...]")
        extract.incomplete = (incomplete,) if incomplete else ()
        facts = [f"fact:{content_digest(new)}" for _, new in writes]
        for fact, (_, new) in zip(facts, writes, strict=True):
            extract.wrote(fact, new, Action.DERIVE, fed_by=[0])
        extract.close()
        for fact, (ref, new) in zip(facts, writes, strict=True):
            self.write(ingest, ref, new, [(fact, Role.OTHER, "", extract.origin)])
        ingest.close()
        root.close()

    def write(self, parent: Op, ref: str, text: str, sources: Sequence[Source]) -> None:
        """Create a record, or update a known one, from sources."""
        known = self.records.get(ref)
        step = parent.step("", OpKind.UPDATE if known else OpKind.CREATE)
        for source, role, content, origin in sources:
            step.read(source, role, content, origin=origin)
        if known:
            step.read(ref, Role.PREVIOUS, known[0], origin=known[1])
        step.wrote(ref, text, Action.UPDATE if known else Action.ADD)
        self.records[ref] = text, step.close().origin

    def forget(self, ref: str) -> None:
        """Delete a record."""
        root = self.turn()
        step = root.step("", OpKind.DELETE, OWNER)
        text, origin = self.records.pop(ref)
        step.read(ref, Role.PREVIOUS, text, origin=origin)
        step.wrote(ref, "", Action.DELETE)
        step.close()
        root.close()

    def ask(
        self,
        question: str,
        hits: Sequence[str],
        shown: Sequence[str] | None = None,
        scope: str = OWNER,
        in_context: bool = False,
    ) -> Op:
        """Search and answer; return the answering span. The answer reads the hits, `shown`, or the context of hits."""
        root = self.turn()
        search = root.step("", OpKind.RETRIEVE, scope)
        query = f"query:{content_digest(question)}"
        search.read(query, Role.QUERY, question)
        for ref in hits:
            search.read(ref, Role.HIT, self.records[ref][0], origin=self.records[ref][1])
        search.wrote(f"context:{search.span_id}", "...", Action.DERIVE, Role.CONTEXT)
        search.close()
        answer = root.step("chat", OpKind.RESPOND, scope)
        answer.system = "openai"
        answer.read(query, Role.QUERY, question)
        if in_context:
            answer.read(f"context:{search.span_id}", Role.CONTEXT, "...", origin=search.origin)
        for ref in hits if shown is None else shown:
            answer.read(ref, Role.CONTEXT, self.records[ref][0], origin=self.records[ref][1])
        answer.wrote(f"answer:{answer.span_id}", "At 9:40.", Action.DERIVE, Role.ANSWER)
        root.close()
        return answer.close()


def healthy() -> Program:
    """Three facts told, asked for and answered; one is corrected."""
    program = Program()
    for number, text in enumerate(TOLD):
        program.tell(text, [(f"memory:{number}", text)])
    program.tell("The train leaves at 10:15 instead.", [("memory:0", "My train leaves at 10:15.")])
    program.ask("When does my train leave?", ["memory:0", "memory:1"])
    program.ask("Who is the dentist?", ["memory:2"])
    return program


def nothing_learnt(program: Program) -> None:
    """Messages with content write nothing."""
    for number in range(9):
        program.tell(f"The plant number {number} needs much water", [])


def no_json(program: Program) -> None:
    """A reply of the extraction is no JSON."""
    program.tell("My shoe size is 41 since May.", [], incomplete=Incomplete.UNPARSED)


def only_written(program: Program) -> None:
    """Forty records, and no search for one."""
    for number in range(40):
        program.tell(f"Colleague {number} sits in room {number}", [(f"memory:c{number}", f"Room {number} of {number}")])


def no_hits(program: Program) -> None:
    """Two searches find nothing."""
    program.ask("What is my cat called today?", [])
    program.ask("Which tea is it?", [])


def words_missed(program: Program) -> None:
    """A search finds nothing, although a record has a rare word of the question."""
    for place in ("station", "office", "gate"):
        program.ask(f"When does my train leave the {place}?", ["memory:0"])
    program.ask("In which cellar is it?", [])


def back_and_forth(program: Program) -> None:
    """A record gets another text, and the earlier text again."""
    for text in ("The dentist is Doctor Costa.", "The dentist is Doctor Silva."):
        program.tell(text, [("memory:2", text)])


def stored_twice(program: Program) -> None:
    """A record with the words of another record."""
    program.tell("Once more: the bicycle.", [("memory:9", "I keep my bicycle in the cellar")])


def same_text(program: Program) -> None:
    """Two updates leave the text as it was."""
    for _ in range(2):
        program.tell("The dentist is Doctor Silva.", [("memory:2", TOLD[2])])


def from_its_answer(program: Program) -> None:
    """A record is written from the assistant's answer."""
    answer = program.ask("When does my train leave?", ["memory:0"])
    root = program.turn()
    ingest = root.step("", OpKind.INGEST, OWNER)
    program.write(
        ingest, "memory:8", "The train is at 9:40.", [(f"answer:{answer.span_id}", Role.OTHER, "", answer.origin)]
    )
    ingest.close()
    root.close()


def without_the_hour(program: Program) -> None:
    """A record leaves out date and time."""
    program.tell("The plumber comes on the 14th at 8:30.", [("memory:7", "The plumber comes.")])


def left_out(program: Program) -> None:
    """The answers get none of the hits."""
    for question in ("Who is the dentist now?", "Who was the dentist?"):
        program.ask(question, ["memory:2", "memory:1", "memory:0"], shown=[])


def many_records(program: Program) -> None:
    """One message becomes 25 records."""
    program.tell("A long list of things", [(f"memory:m{n}", f"{chr(97 + n)}{n} {n}{chr(98 + n)}") for n in range(25)])


def from_nowhere(program: Program) -> None:
    """A record has no source."""
    root = program.turn()
    create = root.step("", OpKind.CREATE, OWNER)
    create.wrote("memory:x", "The sky is green.", Action.ADD)
    create.close()
    root.close()


def of_another(program: Program) -> None:
    """A search returns another owner's record."""
    program.tell("Bob earns 5,200 euros a month.", [("memory:bob", "Bob earns 5,200 euros.")], scope=OTHER)
    program.ask("What do I earn?", ["memory:bob"])


FAULTS: Mapping[str, Callable[[Program], None]] = {
    "no_write": nothing_learnt,
    "unparsed": no_json,
    "never_read": only_written,
    "zero_hits": no_hits,
    "missed_words": words_missed,
    "rewritten": back_and_forth,
    "duplicates": stored_twice,
    "empty_updates": same_text,
    "self_fed": from_its_answer,
    "lost_values": without_the_hour,
    "unshown": left_out,
    "growth": many_records,
    "no_source": from_nowhere,
    "leaks": of_another,
}
"""The fault that raises each measure."""


def write_stories(directory: Path) -> list[str]:
    """Write the spans of a healthy memory, and of one memory per fault; return their names."""
    directory.mkdir(parents=True, exist_ok=True)
    stories = {"healthy": healthy, **{measure: partial(faulty, measure) for measure in FAULTS}}
    for name, story in stories.items():
        (directory / f"{name}.pb.gz").write_bytes(gzip.compress(encode_request(story().recorder.spans()), mtime=0))
    return list(stories)


def faulty(measure: str) -> Program:
    """Return the healthy memory with the fault that raises a measure."""
    program = healthy()
    FAULTS[measure](program)
    return program
