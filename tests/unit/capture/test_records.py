"""What a user's own operation says of records in the standard's words, without a line of theirs."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from memtrace_otel.capture import Operation, operation
from memtrace_otel.semconv import GEN_AI_MEMORY_RECORD_COUNT, GEN_AI_MEMORY_RECORD_ID
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


def test_a_search_that_read_records_in_another_role_is_not_empty(recording: Recording) -> None:
    with searching(recording) as op:
        op.read("memory:1", content="tea")
    assert said(recording.spans()[0]) == {}


def test_a_step_of_a_search_is_no_search(recording: Recording) -> None:
    with searching(recording), searching(recording, None):
        pass
    with operation("update_memory", kind="update", system="t", tracer=recording.tracer), searching(recording, None):
        pass
    assert [said(span) for span in recording.spans()] == [{GEN_AI_MEMORY_RECORD_COUNT: 0}, {}, {}, {}]


def test_a_write_names_its_record_or_says_of_how_many(recording: Recording) -> None:
    with operation("upsert_memory", kind="update", system="t", tracer=recording.tracer) as op:
        op.wrote("memory:a b/ü", action="UPDATE", content="tea")
        op.wrote("memory:2", action="NONE", content="considered")
        op.wrote("fact:3", content="derived")
    with operation("delete_memory", kind="delete", system="t", tracer=recording.tracer) as op:
        op.wrote("memory:1", action="DELETE")
        op.wrote("chunk:2", action="DELETE")
    assert [said(span) for span in recording.spans()] == [
        {GEN_AI_MEMORY_RECORD_COUNT: 1, GEN_AI_MEMORY_RECORD_ID: "a b/ü"},
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
