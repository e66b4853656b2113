"""What a user's own operation says of records in the standard's words, without a line of theirs."""

from __future__ import annotations

import json

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from memtrace_otel.capture import Operation, operation
from memtrace_otel.capture.config import config
from memtrace_otel.model import make_ref
from memtrace_otel.semconv import (
    GEN_AI_MEMORY_RECORD_COUNT,
    GEN_AI_MEMORY_RECORD_ID,
    GEN_AI_MEMORY_RECORDS,
    GEN_AI_RETRIEVAL_DOCUMENTS,
)
from tests.conftest import Recording


def said(span: ReadableSpan) -> dict[str, object]:
    given = dict(span.attributes or {})
    return {name: given[name] for name in (GEN_AI_MEMORY_RECORD_COUNT, GEN_AI_MEMORY_RECORD_ID) if name in given}


def searching(recording: Recording, name: str | None = "search_memory") -> Operation:
    return operation(name, kind="retrieve", system="t", tracer=recording.tracer)


@pytest.mark.parametrize("hits", [0, 1, 3])
@pytest.mark.parametrize("name", ["search_memory", None])
def test_a_search_counts_its_hits(recording: Recording, hits: int, name: str | None) -> None:
    with searching(recording, name) as op:
        op.read("query:1", role="query", content="tea?")
        op.read("memory:9", role="candidate", content="found, and left out")
        for nth in range(hits):
            op.read(f"memory:{nth}", role="hit", content="tea")
    assert said(recording.spans()[0]) == {GEN_AI_MEMORY_RECORD_COUNT: hits}


@pytest.mark.parametrize(
    ("output", "found", "expected"),
    [
        ("memory", [], {GEN_AI_MEMORY_RECORD_COUNT: 0}),
        ("memory", None, {GEN_AI_MEMORY_RECORD_COUNT: 0}),
        ("chunk", [{"id": 1, "text": "a"}, {"id": 2, "text": "b"}], {GEN_AI_MEMORY_RECORD_COUNT: 2}),
        ("memory", set(), {GEN_AI_MEMORY_RECORD_COUNT: 0}),
        ("memory", {}, {GEN_AI_MEMORY_RECORD_COUNT: 0}),
        ("memory", {"tea", "jazz"}, {GEN_AI_MEMORY_RECORD_COUNT: 2}),
        ("memory", {1: "tea", 2: "jazz"}.values(), {GEN_AI_MEMORY_RECORD_COUNT: 2}),
        ("memory", ["tea", "tea"], {GEN_AI_MEMORY_RECORD_COUNT: 1}),
        ("memory", filter(None, ["tea"]), {}),  # not ours to look into
        ("context", "", {GEN_AI_MEMORY_RECORD_COUNT: 0}),
        ("context", "a and b", {}),  # of how many records it is, it does not say
        ("", ["a", "b"], {}),
        ("", [], {}),
    ],
)
def test_a_decorated_search_counts_what_it_returns(
    recording: Recording, output: str, found: object, expected: dict[str, object]
) -> None:
    @operation("search_memory", kind="retrieve", system="t", tracer=recording.tracer, output=output)
    def search() -> object:
        return found

    search()
    assert said(recording.spans()[0]) == expected


@pytest.mark.parametrize(
    ("ref", "role"), [("memory:1", "other"), ("context:1", "context"), ("nocolon", "hit"), (5, "hit")]
)
def test_a_search_that_found_what_it_does_not_say_is_not_empty(recording: Recording, ref: str, role: str) -> None:
    with searching(recording) as op:
        op.read("query:1", role="query", content="tea?")
        op.read(ref, role=role, content="tea")
    assert said(recording.spans()[0]) == {}


@pytest.mark.parametrize("around", ["ingest", "create", "update", "decide", "consolidate", "index", "rerank"])
def test_a_step_of_another_operation_is_no_search(recording: Recording, around: str) -> None:
    with operation(None, kind=around, system="t", tracer=recording.tracer), searching(recording, None):
        pass
    assert [said(span) for span in recording.spans()] == [{}, {}]


def test_a_search_of_parts_is_not_empty_where_a_part_has_found(recording: Recording) -> None:
    for found in (0, 1):
        with searching(recording) as whole, operation(None, kind="other", system="t", tracer=recording.tracer):
            with searching(recording, None) as part:
                part.read("memory:1", role="hit", content="tea")
            for _ in range(found):
                whole.read("memory:1", role="hit", content="tea")
    whole = [span for span in recording.spans() if span.parent is None]
    assert [said(span) for span in whole] == [{}, {GEN_AI_MEMORY_RECORD_COUNT: 1}]


def test_an_answer_is_no_search_around_the_one_it_makes(recording: Recording) -> None:
    with operation("chat", kind="respond", system="t", tracer=recording.tracer), searching(recording):
        pass
    assert said(recording.named("search_memory")[0]) == {GEN_AI_MEMORY_RECORD_COUNT: 0}


def test_instrumentors_count_themselves(recording: Recording) -> None:
    op = Operation("search_memory", kind="retrieve", system="t", tracer=recording.tracer)
    op.start()
    op.end()
    assert said(recording.spans()[0]) == {}


def test_a_write_names_its_record_or_says_of_how_many(recording: Recording) -> None:
    with operation("upsert_memory", kind="update", system="t", tracer=recording.tracer) as op:
        op.wrote(make_ref("memory", "a b/ü"), action="UPDATE", content="tea")
        op.wrote("memory:2", action="NONE", content="considered")
        op.wrote("fact:3", content="derived")
    with operation(kind="decide", system="t", tracer=recording.tracer) as op:
        op.wrote("memory:1", action="UPDATE")  # planned
    with operation("delete_memory", kind="delete", system="t", tracer=recording.tracer) as op:
        op.wrote("memory:1", action="DELETE")
        op.wrote("chunk:2", action="DELETE")
    assert [said(span) for span in recording.spans()] == [
        {GEN_AI_MEMORY_RECORD_COUNT: 1, GEN_AI_MEMORY_RECORD_ID: "a b/ü"},
        {},
        {GEN_AI_MEMORY_RECORD_COUNT: 2},
    ]


@pytest.mark.parametrize("id", ["\ud800", "a\nb", "x" * 10_000])
def test_an_id_that_is_no_text_for_an_attribute_is_in_the_ref_alone(recording: Recording, id: str) -> None:
    with operation("create_memory", kind="create", system="t", tracer=recording.tracer) as op:
        op.wrote(f"memory:{id}", action="ADD", content="tea")
    assert said(recording.spans()[0]) == {GEN_AI_MEMORY_RECORD_COUNT: 1}


@pytest.mark.parametrize("on_the_span", [False, True])
def test_what_its_user_says_stands(recording: Recording, on_the_span: bool) -> None:
    with searching(recording) as op:
        if on_the_span:
            op.span.set_attribute(GEN_AI_MEMORY_RECORD_COUNT, 7)
        else:
            op.set(GEN_AI_MEMORY_RECORD_COUNT, 7)
        op.read("memory:1", role="hit", content="tea")
    assert said(recording.spans()[0]) == {GEN_AI_MEMORY_RECORD_COUNT: 7}


def test_what_failed_has_found_nothing_that_anybody_knows(recording: Recording) -> None:
    with pytest.raises(OSError, match="away"), searching(recording):
        raise OSError("away")
    assert said(recording.spans()[0]) == {}


def records(span: ReadableSpan, name: str = GEN_AI_MEMORY_RECORDS) -> list[dict[str, object]]:
    return json.loads(str((span.attributes or {}).get(name, "[]")))


@pytest.mark.usefixtures("content_on")
@pytest.mark.parametrize(
    ("name", "attribute"), [("search_memory", GEN_AI_MEMORY_RECORDS), ("retrieval", GEN_AI_RETRIEVAL_DOCUMENTS)]
)
def test_found_records_are_shown_to_pages_of_other_tools(recording: Recording, name: str, attribute: str) -> None:
    with operation("create_memory", kind="create", system="t", tracer=recording.tracer) as op:
        op.wrote("memory:a%2Fb", action="ADD", content='tea, "Earl Grey"\n')
    with searching(recording, name) as op:
        op.read("query:1", role="query", content="tea?")
        op.read("memory:a%2Fb", role="hit", content='tea, "Earl Grey"\n', score=0.75)
        op.read("memory:é", role="hit", content="thé ☕", score=float("nan"))
        op.read("memory:3", role="hit", content="far", score=float("-inf"))
    written, found = recording.spans()
    assert records(written) == [{"id": "a/b", "content": 'tea, "Earl Grey"\n'}]
    assert records(found, attribute) == [
        {"id": "a/b", "content": 'tea, "Earl Grey"\n', "score": 0.75},
        {"id": "é", "content": "thé ☕"},
        {"id": "3", "content": "far"},
    ]


@pytest.mark.usefixtures("content_on")
@pytest.mark.parametrize(("count", "length"), [(3, 5000), (20, 300), (200, 80), (10, 2000)])
def test_shown_records_are_cut_by_count_then_by_length_within_the_budget(
    recording: Recording, count: int, length: int
) -> None:
    with searching(recording) as op:
        for nth in range(count):
            op.read(f"memory:{nth}", role="hit", content=f"{nth}é" * (length // 4), score=0.5)
    span = recording.named("search_memory")[0]
    shown = records(span)
    assert 0 < len(shown) <= 20
    assert all(one.get("metadata") == {"truncated": True} or len(str(one["content"])) >= length // 2 for one in shown)
    size = len(str((span.attributes or {}).get(GEN_AI_MEMORY_RECORDS, "")).encode())
    assert size <= config().span_bytes
    assert list(map(str, (one["id"] for one in shown))) == [str(nth) for nth in range(len(shown))]


@pytest.mark.usefixtures("content_on")
def test_shown_records_are_redacted(recording: Recording) -> None:
    secret = "sk-" + "a1" * 20
    with searching(recording) as op:
        op.read("memory:1", role="hit", content=f"the key is {secret}")
    (shown,) = records(recording.spans()[0])
    assert "the key is" in str(shown["content"])
    assert secret not in str(shown)
