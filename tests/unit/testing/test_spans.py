"""What breaks the wire contract is found, one thing at a time; what keeps it passes."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.trace import Link

from memtrace_otel import semconv
from memtrace_otel.capture.writing import span_context
from memtrace_otel.testing import violations
from memtrace_otel.testing.spans import TYPES
from tests.conftest import Recording
from tests.unit.test_registry import ATTRIBUTES, keys_of

ORIGIN, ELSEWHERE = f"{'a' * 32}-{'b' * 16}", f"{'a' * 32}-{'c' * 16}"
LINK = {semconv.LINK_TYPE: "retrieved", semconv.LINK_REFS: ["memory:1"]}
GOOD: dict[str, Any] = {
    semconv.OP_KIND: "retrieve",
    semconv.SYSTEM: "toy",
    semconv.SEQ: 1,
    semconv.SCOPE: "0" * 16,
    semconv.GEN_AI_OPERATION_NAME: "search_memory",
    semconv.INPUTS: ["memory:1", "query:1"],
    semconv.INPUTS_ROLES: ["hit", "query"],
    semconv.INPUTS_ORIGINS: [ORIGIN, ""],
    semconv.INPUTS_DIGESTS: ["c" * 16, ""],
    semconv.INPUTS_SCORES: [0.5, 0.0],
    semconv.OUTPUTS: ["context:1"],
    semconv.OUTPUTS_ROLES: ["context"],
    semconv.OUTPUTS_ACTIONS: ["DERIVE"],
    semconv.OUTPUTS_DIGESTS: ["d" * 16],
    semconv.OUTPUTS_SIZES: [3],
    semconv.OUTPUTS_STORES: ["file:///contents/sha256/9f/9f86"],
    semconv.EVENT_TIME: ["2023-05-08T13:56:00.5+02:00"],
    semconv.FLOW: ["1>0"],
    semconv.INCOMPLETE: ["redacted:email", "a reason of its own"],
    semconv.RETRIEVAL_THRESHOLD: 0.1,
}
CREATE = {semconv.OP_KIND: "create", semconv.GEN_AI_OPERATION_NAME: "create_memory", semconv.INPUTS_SCORES: None}


def broken(recording: Recording, over: dict[str, Any], links: dict[str, Any] | None = None) -> list[str]:
    """The violations of a good span with some attributes replaced, None for none, and with these links."""
    attributes = {key: value for key, value in {**GOOD, **over}.items() if value is not None}
    name = str(attributes.get(semconv.GEN_AI_OPERATION_NAME, f"memtrace.{attributes.get(semconv.OP_KIND)}"))
    there = {origin: span_context(origin) for origin in (ORIGIN, ELSEWHERE)}
    made = [Link(there[origin], told) for origin, told in ({ORIGIN: LINK} if links is None else links).items()]  # pyright: ignore[reportArgumentType]
    recording.tracer.start_span(name, attributes=attributes, links=made).end()
    return violations(recording.spans()[-1])


@pytest.mark.parametrize(
    "over",
    [
        {},
        CREATE,
        {semconv.PART: 1, semconv.GEN_AI_OPERATION_NAME: None, semconv.FLOW: ["70>31"]},
        {semconv.GEN_AI_OPERATION_NAME: "retrieval", semconv.INPUTS: ["chunk:1", "query:1"], semconv.SCOPE: None},
    ],
)
def test_a_good_span_passes(recording: Recording, over: dict[str, Any]) -> None:
    told = {**LINK, semconv.LINK_REFS: [{**GOOD, **over}[semconv.INPUTS][0]]}
    assert broken(recording, over, {ORIGIN: told}) == []


@pytest.mark.parametrize(
    "over",
    [
        {"memtrace.inputs.score": [0.5, 0.0]},
        {semconv.FAILURE_TYPE: "update"},
        {semconv.INCOMPLETE: 5},
        {semconv.INCOMPLETE: "truncated"},
        {semconv.SEQ: True},
        {semconv.SEQ: None},
        {semconv.PART: "one"},
        {semconv.PART: 0},
        {semconv.OP_PURPOSE: 3},
        {semconv.SYSTEM: 3},
        {semconv.SYSTEM: ""},
        {semconv.RETRIEVAL_THRESHOLD: 1},
        {semconv.INPUTS_SCORES: [1, 0]},
        {semconv.INPUTS_SCORES: [1.0]},
        {semconv.INPUTS_DIGESTS: ["the whole content in clear", ""]},
        {semconv.INPUTS_DIGESTS: None},
        {semconv.INPUTS_ROLES: ["guess", "query"]},
        {semconv.OUTPUTS_DIGESTS: ["D" * 16]},
        {semconv.OUTPUTS_SIZES: [-1]},
        {semconv.OUTPUTS_SIZES: [True]},
        {semconv.OUTPUTS_ACTIONS: ["GUESS"]},
        {semconv.OUTPUTS: ["thing:1"]},
        {semconv.OUTPUTS_STORES: ["x"]},
        {semconv.EVENT_TIME: ["yesterday"]},
        {semconv.EVENT_TIME: ["2023-05-08"]},
        {semconv.EVENT_TIME: ["2023-13-08T13:56:00Z"]},
        {semconv.EVENT_TIME: ["2023-05-08T13:56:00"]},
        {semconv.EVENT_TIME: ["", ""]},
        {semconv.FLOW: ["0-0"]},
        {semconv.FLOW: ["2>0"]},
        {semconv.SCOPE: "ana"},
        {semconv.SCOPE: None},
        {semconv.SCOPE: None, **CREATE},
        {semconv.GEN_AI_OPERATION_NAME: "delete_memory"},
        {**CREATE, semconv.INPUTS_SCORES: [0.5, 0.0]},
    ],
    ids=str,
)
def test_a_span_that_breaks_the_contract_is_found(recording: Recording, over: dict[str, Any]) -> None:
    assert len(broken(recording, over)) == 1


@pytest.mark.parametrize(
    "links",
    [
        {},
        {ORIGIN: LINK, ELSEWHERE: LINK},
        {ORIGIN: {**LINK, semconv.LINK_REFS: ["memory:2"]}},
        {ORIGIN: {**LINK, semconv.LINK_TYPE: "guess"}},
        {ORIGIN: {semconv.LINK_TYPE: "retrieved"}},
    ],
    ids=str,
)
def test_links_show_the_origins(recording: Recording, links: dict[str, Any]) -> None:
    assert len(broken(recording, {}, links)) == 1


def test_what_a_span_made_itself_has_no_link(recording: Recording) -> None:
    with recording.tracer.start_as_current_span("search_memory") as span:
        context = span.get_span_context()
        own = f"{context.trace_id:032x}-{context.span_id:016x}"
        span.set_attributes({**GOOD, semconv.INPUTS_ORIGINS: [own, ""]})
        told = {**GOOD, semconv.INPUTS_ORIGINS: [own, ""], semconv.PART: 1}
        del told[semconv.GEN_AI_OPERATION_NAME]
        recording.tracer.start_span("memtrace.retrieve", attributes=told).end()
    assert [violations(span) for span in recording.spans()] == [[], []]


def test_the_attributes_are_those_of_the_registry() -> None:
    allowed = keys_of("attribute_groups", "memtrace.memory") | keys_of("spans", "memtrace.step")
    assert set(TYPES) == {key for key in allowed if key in ATTRIBUTES}
    for key, type in TYPES.items():
        known = ATTRIBUTES[key]["type"]
        assert type == ("string" if isinstance(known, dict) else known), key
