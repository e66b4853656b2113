"""A simulated memory system in the shapes of Mem0 1.x and 2.x: executes a story and records it as spans.

The scripted model is deterministic: it extracts and decides what the story says, and answers from the texts of its
prompt alone.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from math import log, sqrt
from random import Random

from memtrace_otel import semconv
from memtrace_otel.bench.faults import Place, Step
from memtrace_otel.bench.recorder import Op, Recorder, fact_ref
from memtrace_otel.bench.stories import Item, Story, Turn, Value
from memtrace_otel.model import OperationSpan, content_digest
from memtrace_otel.semconv import Action, OpKind, RefKind, Role

_WORD = re.compile(r"[^\W_]+")
_CJK = re.compile(r"[\u4e00-\u9fff]+")
_NEIGHBOURS = 3
_CANDIDATES = 6
"""Records that a search reads beyond its hits."""
_EXTRACT = 'You extract facts about the user from new messages. Reply in JSON: {"facts": [...]}'
_DECIDE = 'You manage a memory. For each new fact say ADD, UPDATE, DELETE or NONE. Reply in JSON: {"memory": [...]}'
_MAINTAIN = "You keep a memory tidy. Say which memories the latest turn makes outdated. Reply in JSON."
_ANSWER = "You are a friendly assistant. Answer from what you remember about the user.\n\nWhat you remember:\n"
_CUT = 0.5
"""Share of a text that is left where it was cut."""


class Shape(StrEnum):
    """How the system writes."""

    DECIDING = "deciding"  # Mem0 1.x: extraction, a decision about each fact, one span per write
    ADDITIVE = "additive"  # Mem0 2.x: extraction and creation; the application updates and deletes


@dataclass(slots=True)
class Record:
    """A stored record in its last version."""

    key: str
    ref: str
    owner: int
    thread: int
    text: str = ""
    origin: str = ""
    words: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Run:
    """What an execution leaves: the spans (built on call), the answer, whether right and judged right, operations."""

    spans: Callable[[], list[OperationSpan]]
    answer: str
    right: bool
    judged_right: bool
    origins: dict[Place, str]
    """Step and turn -> the origin of its span."""
    sources: tuple[str, ...]
    """Refs of the messages that told what was asked."""
    answering: str
    """Origin of the answering span."""
    second_path: bool
    """Another record than the one asked for carries the right value."""

    def origin(self, place: Place | None) -> str:
        """Return the origin of the operation that has the duty of a step in this system, '' for no step."""
        if place is None:
            return ""
        stands_in = {Step.DECIDE: Step.WRITE, Step.ASSEMBLE: Step.RESPOND, Step.SEARCH: Step.RESPOND}
        while place not in self.origins:
            place = Place(stands_in[place.step], place.turn)
        return self.origins[place]


def words(text: str) -> frozenset[str]:
    """Return the words of a text in lower case, for Chinese its pairs of characters."""
    found = {word.lower() for word in _WORD.findall(_CJK.sub(" ", text))}
    for run in _CJK.findall(text):
        found.update(run[i : i + 2] for i in range(max(1, len(run) - 1)))
    return frozenset(found)


class Store:
    """Records with a search by shared words; rare words count more."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self._with: dict[str, set[str]] = {}

    def put(self, record: Record, text: str, origin: str) -> None:
        """Write a version of a record."""
        self.drop(record.key)
        record.text, record.origin, record.words = text, origin, words(text)
        self.records[record.key] = record
        for word in record.words:
            self._with.setdefault(word, set()).add(record.key)

    def drop(self, key: str) -> None:
        """Delete a record."""
        old = self.records.pop(key, None)
        for word in old.words if old else ():
            self._with[word].discard(key)

    def search(self, text: str, count: int, fits: Callable[[Record], bool]) -> list[tuple[float, Record]]:
        """Return up to `count` records, best first, with scores of 0 to 1; the newest ones where words do not tell."""
        scores: defaultdict[str, float] = defaultdict(float)
        asked = sorted(words(text))  # sums of numbers depend on their order
        rarity = {w: log(1 + len(self.records) / len(keys)) for w in asked if (keys := self._with.get(w))}
        whole = sqrt(sum(r * r for r in rarity.values())) or 1.0
        for word, weight in rarity.items():
            for key in self._with[word]:
                scores[key] += weight
        found = [(scores[key] / whole / sqrt(len(self.records[key].words)), key) for key in scores]
        best = [(min(score, 1.0), self.records[key]) for score, key in sorted(found, key=lambda f: (-f[0], f[1]))]
        best = [(score, record) for score, record in best if fits(record)][:count]
        if len(best) < count:
            known = {record.key for _, record in best}
            others = (record for record in reversed(self.records.values()) if record.key not in known and fits(record))
            best += [(0.01 / (i + 1), record) for i, record in zip(range(count - len(best)), others, strict=False)]
        return [(round(score, 4), record) for score, record in best]


@dataclass(slots=True)
class Answering:
    """The scripted answering model: the story, and the texts of its prompt."""

    story: Story
    texts: list[str]

    def value(self) -> Value | None:
        """Return the value in the first text that tells one."""
        for text in self.texts:
            for told, value in self.story.readings:
                if told in text:
                    return value
        return None

    def answer(self) -> str:
        """Return the answer, with its opening."""
        story, manner, value = self.story, self.story.asking.manner, self.value()
        told = story.texts["unknown"]
        if value is not None and manner != "ignored" and story.asking.question != story.texts["unasked"]:
            told = story.says(story.neighbours[0] if manner == "misread" else value)
            told = story.texts["reply"].replace("{v}", value.slip) if manner == "slip" else told
        return story.texts["opening"] + told


class System:
    """One execution of a story."""

    def __init__(self, story: Story, shape: Shape, seed: str) -> None:
        self.story, self.shape = story, shape
        self.rng = Random(f"{seed}/system")
        self.recorder = Recorder(Random(f"{seed}/ids"), "mem0")
        self.store = Store()
        self.scopes = [self.recorder.hex(16) for _ in range(2)]
        self.users = [f"user-{self.recorder.hex(6)}" for _ in range(2)]
        self.assembles, self.trims = self.rng.random() < 0.5, self.rng.random() < 0.6
        self.origins: dict[Place, str] = {}
        self.sources: list[str] = []

    def run(self) -> Run:
        """Execute the conversation and the question."""
        for number, turn in enumerate(self.story.turns):
            self._tell(number, turn)
        return self._ask()

    # --- writing -------------------------------------------------------------------------------------------------
    def _tell(self, number: int, turn: Turn) -> None:
        root = self.recorder.trace(turn.time, self.users[turn.owner])
        ingest = root.step("", OpKind.INGEST, self.scopes[turn.owner])
        ingest.attributes[semconv.CODE_FUNCTION_NAME] = "mem0.memory.main.Memory.add"
        messages = [(f"{RefKind.MESSAGE}:{content_digest(text)}.{ingest.span_id}", text)
                    for text in (*turn.messages, turn.reply)]  # fmt: skip
        if number == self.story.gold:
            self.sources = [ref for ref, _ in messages[:-1]]
        for ref, text in messages:
            ingest.read(ref, Role.MESSAGE, text)
        additive = self.shape is Shape.ADDITIVE
        items = turn.items
        if additive:  # the application, not Mem0, updates and deletes
            items = tuple(item for item in turn.items if item.action in (Action.ADD, Action.NONE))
        facts = self._extract(ingest, number, turn, messages, items)
        if additive:
            self._create(ingest, number, turn, items, facts)
        else:
            self._decide(ingest, number, turn, items, facts)
        ingest.close()
        if additive:
            self._maintain(root, number, turn)
        root.close()

    def _extract(
        self, ingest: Op, number: int, turn: Turn, messages: list[tuple[str, str]], items: Collection[Item]
    ) -> dict[str, str]:
        """Record the extraction; return the origin of each fact."""
        near: list[Record] = []
        if self.shape is Shape.ADDITIVE:
            near = self._neighbours(ingest, turn, [(ref, text, "") for ref, text in messages])
        extract = ingest.step("", OpKind.EXTRACT)
        extract.attributes[semconv.OP_PURPOSE] = "extract_facts"
        self._mark(Step.EXTRACT, number, extract)
        facts = list(dict.fromkeys(item.fact for item in items))
        asked = [(f"{RefKind.PROMPT}:mem0.fact_extraction", Role.PROMPT, _EXTRACT, ""),
                 *((ref, Role.MESSAGE, text, "") for ref, text in messages)]  # fmt: skip
        completion = self._model(extract, asked, {"facts": facts})
        for ref, role, text, origin in asked:
            extract.read(ref, role, text, origin=origin)
        for record in near:
            extract.read(record.ref, Role.CANDIDATE, record.text, origin=record.origin)
        sources = [*range(len(asked)), extract.read(completion[0], Role.OTHER, completion[1], origin=completion[2])]
        for fact in facts:
            extract.wrote(fact_ref(fact), fact, Action.DERIVE, fed_by=sources)
        extract.close()
        return dict.fromkeys(facts, extract.origin)

    def _model(self, parent: Op, asked: list[tuple[str, Role, str, str]], reply: object) -> tuple[str, str, str]:
        """Record a call of the language model; return ref, text and origin of the completion."""
        call = parent.step("", OpKind.OTHER)
        call.attributes[semconv.OP_PURPOSE] = "generate_response"
        for ref, role, text, origin in asked:
            call.read(ref, role, text, origin=origin)
        text = json.dumps(reply, ensure_ascii=False)
        ref = f"{RefKind.COMPLETION}:{content_digest(text)}"
        call.wrote(ref, text, Action.DERIVE)
        call.close()
        return ref, text, call.origin

    def _neighbours(self, ingest: Op, turn: Turn, queries: list[tuple[str, str, str]]) -> list[Record]:
        """Record the search of a write for records near its texts."""
        search = ingest.step("memtrace.retrieve", OpKind.RETRIEVE)
        search.attributes[semconv.OP_PURPOSE] = "existing_memories"
        for ref, text, origin in queries:
            search.read(ref, Role.QUERY, text, origin=origin, score=0.0)
        joined = " ".join(text for _, text, _ in queries)
        found = self.store.search(joined, _NEIGHBOURS, lambda record: record.owner == turn.owner)
        for score, record in found:
            search.read(record.ref, Role.HIT, record.text, origin=record.origin, score=score)
        search.close()
        return [record for _, record in found]

    def _decide(self, ingest: Op, number: int, turn: Turn, items: Collection[Item], facts: dict[str, str]) -> None:
        """Mem0 1.x: a search for each fact, one decision about all, a write for each decision to change a record."""
        near: dict[str, Record] = {}
        for fact, origin in facts.items():
            for record in self._neighbours(ingest, turn, [(fact_ref(fact), fact, origin)]):
                near[record.key] = record
        near |= {item.key: self.store.records[item.key] for item in items if item.key in self.store.records}
        decide = ingest.step("", OpKind.DECIDE)
        decide.attributes[semconv.OP_PURPOSE] = "update_memory_decision"
        self._mark(Step.DECIDE, number, decide)
        wishes: list[tuple[Item, Action, str]] = [(item, *self._wish(item)) for item in items]
        if items:
            ids = {key: str(i) for i, key in enumerate(near)}
            asked = [(f"{RefKind.PROMPT}:mem0.update_decision", Role.PROMPT, _DECIDE, "")]
            asked += [(fact_ref(fact), Role.OTHER, fact, origin) for fact, origin in facts.items()]
            asked += [(r.ref, Role.CANDIDATE, r.text, r.origin) for r in near.values()]
            reply = [{"id": ids.get(item.key, str(len(ids))), "text": text, "event": action}
                     for item, action, text in wishes]  # fmt: skip
            completion = self._model(decide, asked, {"memory": reply})
            place = {ref: decide.read(ref, role, text, origin=origin) for ref, role, text, origin in asked}
            last = decide.read(completion[0], Role.OTHER, completion[1], origin=completion[2])
            for item, action, text in wishes:
                record = near.get(item.key) if action != Action.ADD else None
                fed_by = [0, last, place[fact_ref(item.fact)], *([place[record.ref]] if record else [])]
                if action == Action.NONE and record:
                    decide.wrote(record.ref, record.text, Action.NONE, fed_by=fed_by)
                else:
                    decide.wrote(fact_ref(text), text, action, fed_by=fed_by)
        decide.close()
        for item, action, text in wishes:
            if action != Action.NONE:
                self._write(ingest, number, turn, item, action, text, decide.origin)

    def _wish(self, item: Item) -> tuple[Action, str]:
        """Return what the model decides for an item, given what is stored, and the text to write."""
        record = self.store.records.get(item.key)
        if record is None:
            nothing = item.action == Action.DELETE
            return (Action.NONE if nothing else Action.ADD), item.fact
        if item.action == Action.UPDATE:
            return Action.UPDATE, self.story.rewritten(record.text, item.text or item.fact)
        return item.action, record.text if item.action == Action.DELETE else item.text or item.fact

    def _write(self, parent: Op, number: int, turn: Turn, item: Item, action: Action, text: str, decided: str) -> None:
        """Record a write and change the store. `decided`: the origin of the fact, '' for a call of the application."""
        kind = {Action.ADD: OpKind.CREATE, Action.UPDATE: OpKind.UPDATE, Action.DELETE: OpKind.DELETE}[action]
        record = self.store.records.get(item.key)
        if record is None:
            record = Record(item.key, f"{RefKind.MEMORY}:{self.recorder.uuid()}", turn.owner, turn.thread)
        write = parent.step("", kind, self.scopes[turn.owner])
        write.attributes[semconv.GEN_AI_MEMORY_RECORD_ID] = record.ref.partition(":")[2]
        if action != Action.DELETE or decided:
            own = "" if decided else f".{write.span_id}"
            write.read(fact_ref(text) + own, Role.OTHER, text, origin=decided)
        if record.origin:
            write.read(record.ref, Role.PREVIOUS, record.text, origin=record.origin)
        gone = action == Action.DELETE
        write.wrote(record.ref, "" if gone else text, action, fed_by=list(range(len(write.inputs))))
        if item.key in ("asked", "beside", "obsolete"):
            self._mark(Step.WRITE, number, write)
        write.close()
        if gone:
            self.store.drop(record.key)
        else:
            self.store.put(record, text, write.origin)

    def _create(self, ingest: Op, number: int, turn: Turn, items: Collection[Item], facts: dict[str, str]) -> None:
        """Mem0 2.x: every new fact becomes a record."""
        for item in items:
            if item.key in self.store.records and item.action == Action.NONE:
                record = self.store.records[item.key]
                ingest.wrote(record.ref, record.text, Action.NONE)
                continue
            self._write(ingest, number, turn, item, Action.ADD, item.fact, facts[item.fact])

    def _maintain(self, root: Op, number: int, turn: Turn) -> None:
        """The application has a model update and delete records, by explicit calls."""
        wishes = [(i, *self._wish(i)) for i in turn.items if i.action in (Action.UPDATE, Action.DELETE)]
        wishes = [
            wish for wish in wishes if wish[0].key in self.store.records and wish[1] not in (Action.ADD, Action.NONE)
        ]
        if not wishes and self.rng.random() < 0.5:
            return
        near = self.store.search(" ".join(turn.messages), _NEIGHBOURS, lambda record: record.owner == turn.owner)
        shown = {record.key: record for _, record in near} | {w[0].key: self.store.records[w[0].key] for w in wishes}
        call = self._chat(root, turn.messages[0], "".join(f"[{r.ref}] {r.text}\n" for r in shown.values()),
                          list(shown.values()), _MAINTAIN, self.scopes[turn.owner])  # fmt: skip
        reply = [{"action": action.lower(), "id": self.store.records[item.key].ref, "text": text}
                 for item, action, text in wishes]  # fmt: skip
        call.wrote(
            f"{RefKind.ANSWER}:{call.span_id}", json.dumps(reply, ensure_ascii=False), Action.DERIVE, Role.ANSWER
        )
        self._mark(Step.DECIDE, number, call.close())
        for item, action, text in wishes:
            self._write(root, number, turn, item, action, text, "")

    # --- asking --------------------------------------------------------------------------------------------------
    def _ask(self) -> Run:
        story, asking = self.story, self.story.asking
        root = self.recorder.trace(asking.time, self.users[0])
        query = f"{RefKind.QUERY}:{content_digest(asking.question)}"
        found, feeding = self._search(root, query) if asking.searches else ([], "")
        texts = [record.text for record in found]
        reached = found
        if self.trims or asking.lost:
            reached, texts = self._shown(found)
        if asking.searches and self.assembles:
            assemble = root.step("", OpKind.ASSEMBLE)
            assemble.scope = self.scopes[0]
            assemble.read(query, Role.QUERY, asking.question)
            for record in found:
                assemble.read(record.ref, Role.HIT, record.text, origin=record.origin)
            assemble.read(f"{RefKind.CONTEXT}:{feeding[33:]}", Role.CONTEXT, origin=feeding)
            assemble.wrote(f"{RefKind.CONTEXT}:{assemble.span_id}", "\n".join(texts), Action.DERIVE, Role.CONTEXT)
            feeding = assemble.close().origin
            self._mark(Step.ASSEMBLE, -1, assemble)
        answer = Answering(story, texts).answer()
        whole = [record for record in reached if record.text in texts]
        respond = self._chat(root, asking.question, "\n".join(f"- {text}" for text in texts), whole, _ANSWER,
                             self.scopes[0] if asking.searches else "", feeding)  # fmt: skip
        respond.wrote(f"{RefKind.ANSWER}:{respond.span_id}", answer, Action.DERIVE, Role.ANSWER)
        self._mark(Step.RESPOND, -1, respond.close())
        right, judged = story.is_right(answer), story.judges(answer)
        self._judge(root, query, respond, answer, judged)
        root.close()
        carriers = [r.key for r in self.store.records.values() if any(
            told in r.text for told, value in story.readings if value is story.value)]  # fmt: skip
        second = bool(set(carriers) - {"asked", "beside"})
        return Run(
            self.recorder.spans, answer, right, judged, self.origins, tuple(self.sources), respond.origin, second
        )

    def _search(self, root: Op, query: str) -> tuple[list[Record], str]:
        """Record the search for the question; return its hits, best first, and its origin."""
        asking = self.story.asking
        owner = max(asking.owner, 0)
        search = root.step("", OpKind.RETRIEVE, self.scopes[owner])
        search.attributes[semconv.OP_PURPOSE] = "search_vector_store"
        search.attributes[semconv.GEN_AI_MEMORY_QUERY_TEXT] = asking.question
        search.attributes[semconv.GEN_AI_RETRIEVAL_TOP_K] = asking.hits
        filters = [f"user_id={content_digest(self.users[owner])}"] if asking.owner >= 0 else []
        filters += [f"run_id={content_digest(str(asking.thread))}"] if asking.thread is not None else []
        search.attributes[semconv.RETRIEVAL_FILTERS] = filters

        def fits(record: Record) -> bool:
            return asking.owner in (-1, record.owner) and asking.thread in (None, record.thread)

        ranked = self.store.search(asking.question, asking.hits + _CANDIDATES, fits)
        scores, records = [score for score, _ in ranked], [record for _, record in ranked]
        if asking.owner < 0:  # of two alike, the record of the other user comes first
            records.sort(key=lambda record: record.key != "theirs")
        if asking.demoted:
            asked = [record for record in records if record.key in ("asked", "beside")]
            others = [record for record in records if record not in asked]
            place = asking.hits + self.rng.randrange(2 * _CANDIDATES)
            records = [*others[:place], *asked, *others[place:]][: len(scores)]
        search.read(query, Role.QUERY, asking.question, score=0.0)
        hits = records[: asking.hits]
        for role, shown in ((Role.HIT, hits), (Role.CANDIDATE, records)):
            for score, record in zip(scores, shown, strict=False):
                search.read(record.ref, role, record.text, origin=record.origin, score=score)
        search.attributes[semconv.GEN_AI_MEMORY_RECORD_COUNT] = len(hits)
        text = "\n".join(record.text for record in hits)
        search.wrote(f"{RefKind.CONTEXT}:{search.span_id}", text, Action.DERIVE, Role.CONTEXT,
                     fed_by=list(range(1 + len(hits))))  # fmt: skip
        self._mark(Step.SEARCH, -1, search.close())
        return hits, search.origin

    def _shown(self, found: list[Record]) -> tuple[list[Record], list[str]]:
        """Return the records that reach the prompt, and their texts: one is dropped, or one is cut."""
        lost = self.story.asking.lost or self.rng.choice(("dropped", "cut"))
        answering = [record for record in found if record.key in ("asked", "beside")]
        losing = answering if self.story.asking.lost else [r for r in found if r not in answering][-1:]
        if lost == "dropped":
            kept = [record for record in found if record not in losing]
            return kept, [record.text for record in kept]
        texts = [r.text[: int(_CUT * len(r.text))] if r in losing else r.text for r in found]
        return [record for record in found if record not in losing], texts

    def _chat(
        self, root: Op, question: str, memories: str, shown: list[Record], prompt: str, scope: str, feeding: str = ""
    ) -> Op:
        """Open a call of the chat model with its inputs."""
        call = root.step("chat scripted-model", OpKind.RESPOND, scope)
        call.system = "openai"
        call.attributes = {semconv.GEN_AI_OPERATION_NAME: semconv.CHAT, semconv.GEN_AI_REQUEST_MODEL: "scripted-model"}
        call.read(f"{RefKind.QUERY}:{content_digest(question)}", Role.QUERY, question)
        if feeding:
            call.read(f"{RefKind.CONTEXT}:{feeding[33:]}", Role.CONTEXT, origin=feeding)
        for record in shown:
            call.read(record.ref, Role.CONTEXT, record.text, origin=record.origin)
        text = prompt + memories
        call.read(f"{RefKind.PROMPT}:{content_digest(text)}", Role.PROMPT, text)
        return call

    def _judge(self, root: Op, query: str, respond: Op, answer: str, right: bool) -> None:
        asking = self.story.asking
        judge = root.step("", OpKind.JUDGE, "")
        judge.system = "openai"
        label, told = ("correct", "The answer gives what was expected.") if right else ("wrong", "The answer differs.")
        judge.attributes = {
            semconv.EVALUATION_NAME: "answer_correctness",
            semconv.EVALUATION_LABEL: label,
            semconv.EVALUATION_SCORE: float(right),
            semconv.EVALUATION_EXPLANATION: told,
        }
        judge.read(query, Role.QUERY, asking.question)
        judge.read(f"{RefKind.ANSWER}:{respond.span_id}", Role.ANSWER, answer, origin=respond.origin)
        judge.read(f"{RefKind.EXPECTED}:{content_digest(asking.expected)}", Role.EXPECTED, asking.expected)
        if asking.question != self.story.texts["unasked"]:
            judge.evidence = tuple(self.sources)
        self._mark(Step.JUDGE, -1, judge.close())

    def _mark(self, step: Step, turn: int, op: Op) -> None:
        self.origins[Place(step, turn)] = op.origin
