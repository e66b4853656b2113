"""Values of programs as text: the same in every read and every process, and a record is what it says."""

from __future__ import annotations

import asyncio
import enum
import os
import sqlite3
import subprocess
import sys
from collections import UserDict
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from uuid import UUID

import pytest

from memtrace_otel import semconv
from memtrace_otel.capture import as_text, drops, operation, variable_ref
from memtrace_otel.capture.values import field, record_id, words
from tests.conftest import Recording

attrs = pytest.importorskip("attrs")
np = pytest.importorskip("numpy")
pydantic = pytest.importorskip("pydantic")
v1 = pytest.importorskip("pydantic.v1")


class Role(enum.Enum):
    USER = "user"
    BOTH = frozenset({"user", "assistant"})


class Level(enum.IntEnum):
    HIGH = 3


class Fact(pydantic.BaseModel):  # type: ignore[misc, name-defined]
    subject: str
    role: Role = Role.USER
    about: frozenset[str] = frozenset()
    vector: list[float] = pydantic.Field(default=[], exclude=True)


class Open(pydantic.BaseModel):  # type: ignore[misc, name-defined]
    model_config = {"extra": "allow", "frozen": True}
    key: pydantic.SecretStr = pydantic.SecretStr("hunter2")


class Old(v1.BaseModel):  # type: ignore[misc, name-defined]
    subject: str
    role: Role = Role.USER


@attrs.frozen
class Place:
    name: str
    since: date


class Pair(NamedTuple):
    text: str
    id: int = 7


@dataclass(slots=True)
class Note:
    text: str
    id: UUID
    score: float = 0.5


VALUES: list[tuple[Any, str]] = [
    (Role.USER, '"user"'),
    ({"role": Role.USER, "level": Level.HIGH}, '{"level": 3, "role": "user"}'),
    ({Role.USER: 1, 2: date(2024, 5, 1), (1, "a"): None}, '{"2": "2024-05-01", "[1, \\"a\\"]": null, "user": 1}'),
    (Role.BOTH, '["assistant", "user"]'),
    (Fact(subject="Ann", about={"b", "a"}, vector=[0.5]), '{"about": ["a", "b"], "role": "user", "subject": "Ann"}'),
    ([Open(since=Decimal("1.5"))], '[{"key": "**********", "since": "1.5"}]'),
    (frozenset({Open(a=1), Open(a=0)}), '[{"a": 0, "key": "**********"}, {"a": 1, "key": "**********"}]'),
    (Old(subject="Ann"), '{"role": "user", "subject": "Ann"}'),
    (Place("Lisbon", date(2024, 5, 1)), '{"name": "Lisbon", "since": "2024-05-01"}'),
    (UserDict({"at": PurePosixPath("/a")}), '{"at": "/a"}'),
    ({"score": np.float32(0.5), "n": np.int64(3), "is": np.bool_(True)}, '{"is": true, "n": 3, "score": 0.5}'),
    (np.array(["a", "b"]), '["a", "b"]'),
    ({"raw": b"a\xff", "took": timedelta(minutes=1)}, '{"raw": "a\\\\xff", "took": "0:01:00"}'),
]


@pytest.mark.parametrize(("value", "text"), VALUES)
def test_what_programs_hand_over_is_readable(value: Any, text: str) -> None:
    assert as_text(value) == (text, True)
    assert variable_ref("fact", value) == variable_ref("fact", text)


def test_a_value_has_one_name_in_every_process() -> None:
    code = "from tests.unit.capture.test_values import *; print(*[variable_ref('fact', v) for v, _ in VALUES])"
    for seed in "12":
        environ = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
        assert done.stdout.split() == [variable_ref("fact", value) for value, _ in VALUES]


def test_bytes_that_are_no_text_stay_different() -> None:
    assert as_text("é".encode()) == ("é", True)
    assert as_text(b"\xff") != as_text(b"\xfe")


def test_an_embedding_is_named_and_not_shown() -> None:
    one, other = np.full(1536, 0.25, "float32"), np.full(1536, 0.5, "float32")
    text, faithful = as_text({"topic": "home", "vector": one})
    assert faithful
    assert len(text) < 80
    assert "0.25" not in text
    assert text == as_text({"topic": "home", "vector": one.copy()})[0] != as_text({"topic": "home", "vector": other})[0]
    assert as_text(np.zeros((2000, 1536))) == ("<ndarray>", False)  # too large to be looked at
    assert as_text(np.array([object()])) == ("<ndarray>", False)


class Lazy:
    """What a record of an ORM may be: to ask it for an attribute does something."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.text = "likes tea"

    @property
    def memory(self) -> str:
        self.asked.append("memory")
        return "from the database"

    def __getattr__(self, name: str) -> str:
        self.asked.append(name)
        return name


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ({"text": "likes tea", "score": 0.5}, "likes tea"),
        ({"id": 1, "memory": None, "content": "likes tea"}, "likes tea"),
        ({"content": {"text": "likes tea", "tags": []}}, "likes tea"),
        (Note("likes tea", UUID(int=1)), "likes tea"),
        (Pair("likes tea"), "likes tea"),
        (SimpleNamespace(page_content="likes tea"), "likes tea"),
        (Open(text="likes tea"), "likes tea"),
        ({"content": "", "tool_calls": [1]}, '{"content": "", "tool_calls": [1]}'),
        ({"text": ["likes tea"]}, '{"text": ["likes tea"]}'),
        ({"likes": "tea"}, '{"likes": "tea"}'),
        (["likes tea"], '["likes tea"]'),
        (Note, "<type>"),
    ],
)
def test_a_record_is_what_it_says(record: Any, text: str) -> None:
    assert words(record)[0] == text


def test_what_a_record_says_is_read_without_its_code() -> None:
    record = Lazy()
    assert words(record) == ("likes tea", True)
    assert as_text(record) == ("<Lazy>", False)
    assert [name for name in record.asked if not name.startswith("__")] == []


class Hostile(dict[str, object]):
    def __contains__(self, name: object) -> bool:
        raise KeyError

    def get(self, *_: object) -> object:
        raise KeyError


def test_a_hostile_record_raises_nothing() -> None:
    assert words(Hostile(text="a")) == ('{"text": "a"}', True)
    assert record_id("memory", Hostile(id=1)) is None
    assert variable_ref("memory", Hostile(text="a")).startswith("memory:")


def test_stored_records_have_their_ids_and_facts_what_they_say() -> None:
    note = Note("likes tea", UUID(int=1))
    assert variable_ref("memory", note) == f"memory:{UUID(int=1)}"
    assert variable_ref("memory", note, "n1") == "memory:n1"
    assert variable_ref("fact", note) == variable_ref("fact", "likes tea")
    assert variable_ref("chunk", {"text": "likes tea", "id": None}) == variable_ref("chunk", "likes tea")
    assert field(note, "score") == 0.5


def attribute(recording: Recording, name: str, key: str) -> list[Any]:
    [span] = recording.named(name)
    assert span.attributes is not None
    return list(cast("tuple[Any, ...]", span.attributes.get(key, ())))


def test_structured_facts_have_a_lineage(recording: Recording, content_on: None) -> None:
    @operation(kind="extract", system="t", tracer=recording.tracer, inputs={"message": "message"}, output="fact")
    def extract(message: str) -> list[Fact]:
        return [Fact(subject=message)]

    @operation(kind="create", system="t", tracer=recording.tracer, inputs={"fact": "fact"}, output="memory")
    def store(fact: Fact) -> dict[str, object]:
        return {"id": 17, "text": fact.subject}

    [fact] = extract("Ann")
    store(fact)
    with operation(kind="index", system="t", tracer=recording.tracer) as op:
        op.read(variable_ref("fact", fact), content=fact)
        op.read("memory:17", role="hit", content={"text": "Ann", "score": 0.5})
    made = attribute(recording, "memtrace.extract", semconv.OUTPUTS)
    assert attribute(recording, "memtrace.create", semconv.INPUTS) == made
    assert attribute(recording, "memtrace.create", semconv.OUTPUTS) == ["memory:17"]
    assert attribute(recording, "memtrace.create", semconv.OUTPUTS_CONTENTS) == ["Ann"]
    assert attribute(recording, "memtrace.index", semconv.INPUTS) == [*made, "memory:17"]
    assert "" not in attribute(recording, "memtrace.index", semconv.INPUTS_ORIGINS)
    (digest,) = attribute(recording, "memtrace.create", semconv.OUTPUTS_DIGESTS)
    assert attribute(recording, "memtrace.index", semconv.INPUTS_DIGESTS)[1] == digest
    assert attribute(recording, "memtrace.index", semconv.INCOMPLETE) == []


@pytest.mark.parametrize(
    "hit",
    [
        {"id": 17, "text": "Ann lives in Lisbon", "score": np.float32(0.5)},
        ({"id": 17, "content": "Ann lives in Lisbon"}, 0.5),
        SimpleNamespace(id=17, page_content="Ann lives in Lisbon", score=0.5),
    ],
)
def test_hits_are_named_by_their_records_and_have_their_scores(
    hit: object, recording: Recording, content_on: None
) -> None:
    @operation("search_memory", kind="retrieve", system="t", tracer=recording.tracer, output="memory")
    def search() -> list[object]:
        return [hit]

    search()
    assert attribute(recording, "search_memory", semconv.INPUTS) == ["memory:17"]
    assert attribute(recording, "search_memory", semconv.INPUTS_CONTENTS) == ["Ann lives in Lisbon"]
    assert attribute(recording, "search_memory", semconv.INPUTS_SCORES) == [0.5]
    assert attribute(recording, "search_memory", semconv.OUTPUTS_CONTENTS) == ["Ann lives in Lisbon"]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("kind", "output", "items", "inputs", "contents"),
    [
        (
            *("retrieve", "memory"),
            [{"id": 17, "text": "Ann lives in Lisbon", "score": 0.5}, {"id": 18, "text": "Cats sleep", "score": 0.25}],
            *(("memory:17", "memory:18"), ("Ann lives in Lisbon\nCats sleep",)),
        ),
        (
            "respond",
            "answer",
            [{"content": "In "}, {"content": "Lisbon"}, {"content": "", "done": True}],
            None,
            ("In Lisbon",),
        ),
    ],
)
def test_items_of_a_stream_are_hits_of_a_search_or_pieces_of_one_text(
    recording: Recording,
    content_on: None,
    is_async: bool,
    kind: str,
    output: str,
    items: list[object],
    inputs: tuple[str, ...] | None,
    contents: tuple[str, ...],
) -> None:
    decorate = operation(kind=kind, system="t", tracer=recording.tracer, output=output)

    @decorate
    def yielding() -> Iterator[object]:
        yield from items

    @decorate
    async def streaming() -> AsyncIterator[object]:
        for item in items:
            yield item

    async def read() -> list[object]:
        return [item async for item in streaming()]

    assert (asyncio.run(read()) if is_async else list(yielding())) == items
    [span] = recording.spans()
    found = dict(span.attributes or {})
    assert found.get(semconv.INPUTS) == inputs
    assert found[semconv.OUTPUTS_CONTENTS] == contents


def test_record_that_contains_itself_has_no_text() -> None:
    record: dict[str, object] = {}
    record["content"] = record
    assert words(record) == ("<dict>", False)


def test_a_row_of_sqlite_is_a_record() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.row_factory = sqlite3.Row
        row = connection.execute("SELECT 17 AS id, 'Ann lives in Lisbon' AS text").fetchone()
    assert (words(row), record_id("memory", row)) == (("Ann lives in Lisbon", True), 17)


def test_a_record_that_comes_back_with_other_words_is_another_version(recording: Recording) -> None:
    @operation("update_memory", kind="update", system="t", tracer=recording.tracer, inputs={"old": "memory"},
               output="memory", action="UPDATE")  # fmt: skip
    def update(old: dict[str, object], text: str) -> dict[str, object]:
        old["text"] = text
        return old

    update({"id": 1, "text": "Lisbon"}, "Porto")
    assert attribute(recording, "update_memory", semconv.OUTPUTS) == ["memory:1"]
    recording.clear()
    update({"id": 1, "text": "Lisbon"}, "Lisbon")
    assert attribute(recording, "update_memory", semconv.OUTPUTS) == []


def test_a_named_tuple_is_one_record(recording: Recording) -> None:
    @operation("create_memory", kind="create", system="t", tracer=recording.tracer, output="memory", action="ADD")
    def create() -> Pair:
        return Pair("likes tea")

    create()
    assert attribute(recording, "create_memory", semconv.OUTPUTS) == ["memory:7"]


def test_what_cannot_be_read_is_said_and_costs_nothing_else(recording: Recording, content_on: None) -> None:
    @operation(kind="extract", system="t", tracer=recording.tracer, inputs={"given": "message"}, output="fact")
    def work(given: object) -> list[object]:
        return [given, object(), "tea"]

    before = dict(drops)
    work(object())
    assert dict(drops) == before
    assert attribute(recording, "memtrace.extract", semconv.INCOMPLETE) == ["unserialisable"]
    assert len(set(attribute(recording, "memtrace.extract", semconv.OUTPUTS))) == 3
