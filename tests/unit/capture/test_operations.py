from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress
from contextvars import Context
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import StatusCode

from memtrace_otel import semconv
from memtrace_otel.capture import (
    Operation,
    config,
    current_operation,
    drops,
    feedback,
    operation,
    origins,
    recall,
    scope_id,
    use_config,
    variable_ref,
)
from memtrace_otel.model import content_digest, make_origin, make_ref
from memtrace_otel.testing import violations
from tests.conftest import Recording

SCOPE = scope_id("store", user="ana")


def attribute(span: ReadableSpan, name: str) -> list[object]:
    assert span.attributes is not None
    return list(span.attributes.get(name, ()))  # type: ignore[arg-type]


def span_origin(span: ReadableSpan) -> str:
    assert span.context is not None
    return make_origin(f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}")


def write_memory(recording: Recording, ref: str = "memory:1", text: str = "Ana likes tea") -> str:
    with operation("create_memory", kind="create", system="t", scope=SCOPE, tracer=recording.tracer) as op:
        op.wrote(ref, action="ADD", content=text)
        return op.origin


def test_a_read_finds_the_origin_of_the_version_written_before(recording: Recording) -> None:
    origin = write_memory(recording)
    with operation("search_memory", kind="retrieve", system="t", scope=SCOPE, tracer=recording.tracer) as op:
        op.read("memory:1", role="hit", content="Ana likes tea", score=0.5)
    search = recording.named("search_memory")[0]
    assert attribute(search, semconv.INPUTS_ORIGINS) == [origin]
    assert attribute(search, semconv.INPUTS_SCORES) == [0.5]
    [link] = search.links
    assert make_origin(f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") == origin
    assert dict(link.attributes or {}) == {semconv.LINK_TYPE: "retrieved", semconv.LINK_REFS: ("memory:1",)}


def test_a_failed_update_leaves_the_version_before_it(recording: Recording) -> None:
    origin = write_memory(recording)
    failed = operation("update_memory", kind="update", system="t", scope=SCOPE, tracer=recording.tracer)

    def update() -> None:
        with failed:
            failed.wrote("memory:1", action="UPDATE", content="Ana likes coffee")
            failed.wrote("memory:1", action="UPDATE", content="Ana likes coffee with milk")
            failed.wrote("memory:2", action="ADD", content="Bo likes tea")
            with operation(kind="index", system="t", scope=SCOPE, tracer=recording.tracer) as inside:
                inside.read("memory:1")
            raise OSError("disk full")

    with pytest.raises(OSError, match="full"):
        update()
    with operation(kind="retrieve", system="t", scope=SCOPE, tracer=recording.tracer) as search:
        search.read("memory:1", role="hit")
        search.read("memory:2", role="hit")
    assert attribute(recording.named("memtrace.index")[0], semconv.INPUTS_ORIGINS) == [failed.origin]
    assert attribute(recording.named("memtrace.retrieve")[0], semconv.INPUTS_ORIGINS) == [origin, ""]


def test_what_a_running_operation_writes_is_found_below_it_alone(recording: Recording) -> None:
    before = write_memory(recording)

    def found() -> str:
        with operation(kind="index", system="t", scope=SCOPE, tracer=recording.tracer) as reader:
            reader.read("memory:1")
        return str(*attribute(recording.spans()[-1], semconv.INPUTS_ORIGINS))

    with operation("update_memory", kind="update", system="t", scope=SCOPE, tracer=recording.tracer) as update:
        update.wrote("memory:1", action="UPDATE", content="Ana likes coffee")
        assert (found(), Context().run(found)) == (update.origin, before)
        assert origins().find(SCOPE, "memory:1") == update.origin
    assert Context().run(found) == update.origin


def test_the_newest_version_is_the_one_written_last_whichever_operation_ends_first(recording: Recording) -> None:
    def update() -> Operation:
        return operation("update_memory", kind="update", system="t", scope=SCOPE, tracer=recording.tracer)

    with update() as around:
        around.wrote("memory:1", action="UPDATE", content="Ana likes coffee")
        with update() as below:
            below.wrote("memory:1", action="UPDATE", content="Ana likes water")
        around.read("memory:1", role="previous")
    assert origins().find(SCOPE, "memory:1") == below.origin
    assert attribute(recording.named("update_memory")[0], semconv.INPUTS_ORIGINS) == [below.origin]


def test_a_record_that_a_running_operation_has_deleted_does_not_live_below_it(recording: Recording) -> None:
    write_memory(recording)
    with operation(kind="delete", system="t", scope=SCOPE, tracer=recording.tracer) as deletion:
        deletion.wrote("memory:1", action="DELETE")
        with operation(kind="retrieve", system="t", scope=SCOPE, tracer=recording.tracer) as search:
            search.read("memory:1", role="hit", content="Ana lives in Faro")
            search.read("memory:1", role="previous")
    assert attribute(recording.named("memtrace.retrieve")[0], semconv.INPUTS_ORIGINS) == ["", deletion.origin]


def test_what_an_operation_wrote_is_found_once_it_has_given_the_context_back(recording: Recording) -> None:
    stream = operation(kind="segment", system="t", scope=SCOPE, tracer=recording.tracer)
    stream.start()
    stream.wrote("chunk:1", content="one")
    stream.leave()
    stream.wrote("chunk:2", content="two")
    assert [origins().find(SCOPE, f"chunk:{n}") for n in (1, 2)] == [stream.origin] * 2
    stream.end(OSError("full"))
    assert [origins().find(SCOPE, f"chunk:{n}") for n in (1, 2)] == [stream.origin] * 2


def test_another_scope_is_another_lineage(recording: Recording) -> None:
    write_memory(recording)
    with operation("search_memory", kind="retrieve", system="t", scope="other", tracer=recording.tracer) as op:
        op.read("memory:1", role="hit")
    search = recording.named("search_memory")[0]
    assert attribute(search, semconv.INPUTS_ORIGINS) == [""]
    assert "unknown_origin" in attribute(search, semconv.INCOMPLETE)


def test_a_record_that_lives_on_after_its_deletion_is_of_unknown_origin(recording: Recording) -> None:
    write_memory(recording, text="Ana lives in Lisbon")
    with operation(kind="delete", system="t", scope=SCOPE, tracer=recording.tracer) as deletion:
        deletion.wrote("memory:1", action="DELETE")
    with operation(kind="retrieve", system="t", scope=SCOPE, tracer=recording.tracer) as search:
        search.read("memory:1", role="hit", content="Ana lives in Faro")
        search.read("memory:1", role="previous")
    found = recording.named("memtrace.retrieve")[0]
    assert attribute(found, semconv.INPUTS_ORIGINS) == ["", deletion.origin]
    assert "unknown_origin" in attribute(found, semconv.INCOMPLETE)


def test_a_record_rendered_otherwise_than_written_keeps_its_origin(recording: Recording) -> None:
    write_memory(recording, text="Ana lives in Lisbon")
    with operation(kind="retrieve", system="t", scope=SCOPE, tracer=recording.tracer) as search:
        search.read("memory:1", role="hit", content={"text": "Ana lives in Lisbon", "score": 0.9})
    assert attribute(recording.named("memtrace.retrieve")[0], semconv.INPUTS_ORIGINS) != [""]


def test_content_is_off_by_default_but_lineage_flows(recording: Recording) -> None:
    write_memory(recording, text="a secret")
    span = recording.named("create_memory")[0]
    assert semconv.OUTPUTS_CONTENTS not in (span.attributes or {})
    assert attribute(span, semconv.OUTPUTS_DIGESTS) == [content_digest("a secret")]
    assert attribute(span, semconv.OUTPUTS_SIZES) == [8]
    assert "content_off" in attribute(span, semconv.INCOMPLETE)
    assert "a secret" not in str(span.to_json())


@pytest.mark.usefixtures("content_on")
def test_content_is_cut_at_the_preview_and_the_digest_covers_the_whole(recording: Recording) -> None:
    use_config(replace(config(), preview_bytes=1900))
    text = "ä" * (1 << 19)  # 1 MiB
    write_memory(recording, text=text)
    span = recording.named("create_memory")[0]
    [shown] = attribute(span, semconv.OUTPUTS_CONTENTS)
    assert len(str(shown).encode()) <= config().preview_bytes
    assert text.startswith(str(shown))
    assert attribute(span, semconv.OUTPUTS_DIGESTS) == [content_digest(text)]
    assert attribute(span, semconv.OUTPUTS_SIZES) == [1 << 20]
    assert "truncated" in attribute(span, semconv.INCOMPLETE)


@pytest.mark.usefixtures("content_on")
def test_input_content_is_inline_only_where_no_span_produced_it(recording: Recording) -> None:
    write_memory(recording)
    with operation("search_memory", kind="retrieve", system="t", scope=SCOPE, tracer=recording.tracer) as op:
        op.read("query:q", role="query", content="What does Ana like?")
        op.read("memory:1", role="hit", content="Ana likes tea")
    assert attribute(recording.named("search_memory")[0], semconv.INPUTS_CONTENTS) == ["What does Ana like?", ""]


def test_three_hundred_inputs_spill_to_continuations_and_none_is_lost(recording: Recording) -> None:
    origins = [write_memory(recording, f"memory:{n}", f"text {n}") for n in range(300)]
    with operation("search_memory", kind="retrieve", system="t", scope=SCOPE, tracer=recording.tracer) as op:
        for n in range(300):
            op.read(f"memory:{n}", role="hit", content=f"text {n}", score=1 - n / 300)
    main = recording.named("search_memory")[0]
    parts = sorted(recording.named("memtrace.retrieve"), key=lambda s: (s.attributes or {})[semconv.PART])  # type: ignore[arg-type,return-value]
    assert [(s.attributes or {})[semconv.PART] for s in parts] == list(range(1, len(parts) + 1))
    assert all(s.parent is not None and s.parent.span_id == main.context.span_id for s in parts if main.context)
    everything = [main, *parts]
    assert [ref for s in everything for ref in attribute(s, semconv.INPUTS)] == [f"memory:{n}" for n in range(300)]
    assert [o for s in everything for o in attribute(s, semconv.INPUTS_ORIGINS)] == origins
    assert sum(len(s.links) for s in everything) == 300
    for span in everything:
        assert len(span.links) <= config().span_links
        assert len(span.attributes or {}) <= 64
        assert violations(span) == []


@pytest.mark.usefixtures("content_on")
@pytest.mark.parametrize("length", [1, 60, 300, 1900])
@pytest.mark.parametrize("attributes", [0, 3, 40])
def test_no_span_of_an_operation_is_larger_than_its_budget(recording: Recording, length: int, attributes: int) -> None:
    """Whatever it read, wrote, was given, could not know, and ended with."""
    texts = [f"{n} {'ä' * (length // 2)}" for n in range(40)]
    times = [f"2023-05-08T13:56:{n:02}.{'0' * min(length, 1800)}Z" for n in range(40)]
    for n in range(40):
        write_memory(recording, f"memory:{n}{'m' * 60}", texts[n])
    given = {f"first.{n}": [texts[n]] * 3 for n in range(attributes)}
    with (
        suppress(ValueError),
        operation(
            "search_memory",
            kind="retrieve",
            system="t",
            scope=SCOPE,
            tracer=recording.tracer,
            purpose="p" * 3000,
            attributes=given,
        ) as op,
    ):
        for n in range(attributes):
            op.set(f"then.{n}", texts[n] * 3)
        for n in range(10):
            op.mark(f"reason {n}")
        for n in range(40):
            op.read(f"memory:{n}{'m' * 60}", role="candidate", content=texts[n], score=n / 7)
        for n in range(40):
            op.wrote(f"fact:{n}", content=texts[n], store=f"file:///store/{n}", event_time=times[n], sources=[n])
        raise ValueError("v" * 5000)
    assert {broken for span in recording.spans() for broken in violations(span)} == set()
    spans = [*recording.named("search_memory"), *recording.named("memtrace.retrieve")]
    assert sum(len(attribute(span, semconv.INPUTS)) for span in spans) == 40
    assert sum(len(attribute(span, semconv.OUTPUTS)) for span in spans) == 40


def test_past_the_last_continuation_drops_are_counted_and_said(recording: Recording) -> None:
    use_config(replace(config(), span_parts=1, span_bytes=256))
    before = drops["variables"]
    with operation(kind="decide", system="t", tracer=recording.tracer) as op:
        for n in range(50):
            op.read(f"memory:{n}", role="candidate")
    kept = sum(len(attribute(s, semconv.INPUTS)) for s in recording.spans())
    assert 0 < kept < 50
    assert drops["variables"] - before == 50 - kept
    assert any("budget" in attribute(s, semconv.INCOMPLETE) for s in recording.spans())


def test_flow_names_all_sources_once_one_output_names_its_own(recording: Recording) -> None:
    with operation(kind="extract", system="t", tracer=recording.tracer) as op:
        first, _ = op.read("message:1", role="message"), op.read("message:2", role="message")
        op.wrote("fact:a", sources=[first])
        op.wrote("fact:b")
    assert attribute(recording.spans()[0], semconv.FLOW) == ["0>0", "0>1", "1>1"]


def test_an_output_that_nothing_fed_is_not_fed_by_all(recording: Recording) -> None:
    with operation(kind="extract", system="t", tracer=recording.tracer) as op:
        op.read("message:1", role="message")
        op.wrote("fact:a", sources=[])
        op.wrote("fact:b")
    assert attribute(recording.spans()[0], semconv.FLOW) == ["0>1"]


def test_a_ref_made_by_hand_is_encoded_once(recording: Recording) -> None:
    with operation(kind="create", system="t", tracer=recording.tracer) as op:
        op.read(make_ref("message", "a b"), role="message")
        op.wrote("memory:user 1,\nnote|ä\ud83d", action="ADD")
        op.read("memory:user 1,\nnote|ä\ud83d")
    [span] = recording.spans()
    encoded = "memory:user%201%2C%0Anote%7C%C3%A4%ED%A0%BD"
    assert attribute(span, semconv.INPUTS) == ["message:a%20b", encoded]
    assert attribute(span, semconv.OUTPUTS) == [encoded]
    assert attribute(span, semconv.INPUTS_ORIGINS)[1] == op.origin


def test_an_error_of_the_program_passes_unchanged_and_is_recorded_without_its_text(recording: Recording) -> None:
    error = KeyError("private text")
    with pytest.raises(KeyError) as caught, operation(kind="decide", system="t", tracer=recording.tracer):
        raise error
    assert caught.value is error
    [span] = recording.spans()
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})[semconv.ERROR_TYPE] == "KeyError"
    assert "private" not in str(span.to_json())


@pytest.mark.usefixtures("content_on")
def test_an_error_that_cannot_say_what_it_is_costs_nothing_else(recording: Recording) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def work() -> None:
        with operation("create_memory", kind="create", system="t", tracer=recording.tracer) as op:
            op.read("message:1", role="message", content="I moved")
            op.wrote("memory:1", action="ADD", content="moved")
            raise Mute

    with pytest.raises(Mute):
        work()
    [span] = recording.spans()
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "Mute")
    assert (attribute(span, semconv.INPUTS), attribute(span, semconv.OUTPUTS)) == (["message:1"], ["memory:1"])
    assert semconv.SEQ in (span.attributes or {})


@pytest.mark.parametrize("nothing", [None, "", "no ref", 7, b"memory:1"])
def test_a_variable_without_a_ref_is_left_out_alone(recording: Recording, nothing: str) -> None:
    before = drops.total()
    with operation("create_memory", kind="create", system="t", tracer=recording.tracer) as op:
        assert op.read(nothing, content="x") == -1
        assert op.read("message:1", role="message") == 0
        assert op.wrote(nothing, content="x") == -1
        assert op.wrote("memory:1", action="ADD", sources=["0"]) == -1  # type: ignore[list-item]
        assert op.wrote("memory:2", action="ADD", sources=[0]) == 0
    [span] = recording.spans()
    assert (attribute(span, semconv.INPUTS), attribute(span, semconv.OUTPUTS)) == (["message:1"], ["memory:2"])
    assert {"malformed", "guard"} & set(attribute(span, semconv.INCOMPLETE))
    assert drops.total() - before == 3


def test_words_outside_the_contract_are_counted_and_count_as_the_most_general(
    recording: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    for what in ("kind", "role", "action"):
        drops[f"misuse:{what}"] = 0
    for _ in range(2):
        with operation(kind="retreive", system="t", tracer=recording.tracer) as op:
            op.read("memory:1", role="banana")
            op.wrote("memory:1", action="CREATE")
    span = recording.spans()[0]
    assert span.name == "memtrace.other"
    assert (span.attributes or {})[semconv.OP_KIND] == "other"
    assert attribute(span, semconv.INPUTS_ROLES) == ["other"]
    assert attribute(span, semconv.OUTPUTS_ACTIONS) == ["DERIVE"]
    assert [drops[f"misuse:{what}"] for what in ("kind", "role", "action")] == [2, 2, 2]
    assert len(caplog.records) == 3


def test_a_span_that_takes_no_attributes_harms_nobody(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    with operation(kind="other", system="t", tracer=recording.tracer) as op:
        monkeypatch.setattr(op.span, "set_attributes", lambda _: 1 / 0)
    assert len(recording.spans()) == 1


def test_an_operation_that_cannot_be_written_keeps_its_number(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memtrace_otel.capture.operations.described", lambda *_: 1 / 0)
    with operation(kind="other", system="t", tracer=recording.tracer):
        pass
    [span] = recording.spans()
    assert semconv.SEQ in (span.attributes or {})
    assert attribute(span, semconv.INCOMPLETE) == ["guard"]


@pytest.mark.usefixtures("content_on")
def test_texts_of_attributes_are_redacted_also_in_a_list_and_cut(recording: Recording) -> None:
    use_config(replace(config(), preview_bytes=1900))
    with operation(kind="retrieve", system="t", tracer=recording.tracer) as op:
        op.set("filters", ["user = ana", "password=hunter2-long-enough"])
        op.set("limits", [1, 2])
        op.set("query", "ä" * config().preview_bytes)
    attributes = recording.spans()[0].attributes or {}
    assert "hunter2" not in str(attributes["filters"])
    assert "ana" in str(attributes["filters"])
    assert attributes["limits"] == (1, 2)
    assert attributes["query"] == "ä" * (config().preview_bytes // 2)


def test_nothing_that_a_program_says_of_an_operation_leaves_unredacted(recording: Recording) -> None:
    secret = "password=hunter2-long-enough"
    told = {"a": secret, "b": {"password": "hunter2"}, "c": [[secret]], "d": secret.encode(), "e": 7}
    with operation(kind="create", system="t", tracer=recording.tracer, purpose=secret, attributes=told) as op:  # type: ignore[arg-type]
        op.wrote("memory:1", action="ADD", store=f"https://h/?{secret}", event_time=secret)
        op.mark(secret)
        for name, value in told.items():
            op.set(f"set.{name}", value)  # type: ignore[arg-type]
    attributes = recording.spans()[0].attributes or {}
    assert "hunter2" not in str(attributes)
    assert attributes["e"] == attributes["set.e"] == 7


def test_a_preview_limit_cuts_no_purpose(recording: Recording) -> None:
    use_config(replace(config(), preview_bytes=8))
    with operation(
        kind="rerank", system="t", tracer=recording.tracer, purpose="cross-encoder rerank", attributes={"a": "x" * 9}
    ):
        pass
    attributes = recording.spans()[0].attributes or {}
    assert (attributes[semconv.OP_PURPOSE], attributes["a"]) == ("cross-encoder rerank", "x" * 8)


def test_attributes_past_their_share_of_a_span_are_cut_then_dropped_and_both_is_said(recording: Recording) -> None:
    share, before = config().span_bytes // 2, drops["attributes"]
    with operation(kind="create", system="t", tracer=recording.tracer) as op:
        for name in "abc":
            op.set(name, "ä" * 950)
        assert drops["attributes"] == before
        op.set("d", "nothing of it fits" * 20)
        op.set("list", ["one", "t" * share])
        op.set("a", "shorter")
        op.set("list", ["one", "t" * share])
        op.set("n", 7)
    [span] = recording.spans()
    told = span.attributes or {}
    assert [told[name] for name in ("a", "b", "list")] == ["shorter", "ä" * 950, ("one",)]
    assert len(str(told["c"]).encode()) < 400
    assert "d" not in told
    assert told["n"] == 7
    assert {"truncated", "budget"} <= {*attribute(span, semconv.INCOMPLETE)}
    assert drops["attributes"] - before == 2


def test_too_many_attributes_leave_room_for_variables_and_counts(recording: Recording) -> None:
    before = drops["attributes"]
    with operation("search_memory", kind="retrieve", system="t", tracer=recording.tracer) as op:
        for n in range(5):
            op.set(f"text.{n}", "x" * 2000)
        op.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, 3)
        for number in range(200):
            op.set(f"n{number}", number)
        op.wrote("memory:1", action="ADD")
    [span] = recording.named("search_memory")
    assert len(span.attributes or {}) <= 64
    assert (span.attributes or {})[semconv.GEN_AI_MEMORY_RECORD_COUNT] == 3
    assert "memory:1" in attribute(recording.spans()[-1], semconv.OUTPUTS)
    assert "budget" in attribute(span, semconv.INCOMPLETE)
    assert drops["attributes"] - before > 100


def test_flow_with_too_many_pairs_is_left_out(recording: Recording) -> None:
    with operation(kind="extract", system="t", tracer=recording.tracer) as op:
        for n in range(500):
            op.read(f"message:{n}", role="message")
            op.wrote(f"fact:{n}")
        op.wrote("fact:own", sources=[0])
    assert semconv.FLOW not in (recording.spans()[0].attributes or {})
    assert "budget" in attribute(recording.named("memtrace.extract")[0], semconv.INCOMPLETE)


async def test_methods_of_an_operation_do_nothing_without_an_sdk() -> None:
    before = drops.copy()
    async with operation("search_memory", kind="retrieve", system="t", scope=SCOPE) as op:
        assert (op.read("memory:1", role="hit"), op.wrote("fact:1"), op.origin, op.context()) == (-1, -1, "", "")
        assert current_operation() is None
        assert not op.captures_content
        op.mark("truncated")
        op.set("name", "value")
        op.leave()
        op.resume()
    assert drops == before
    with pytest.raises(TypeError):
        operation(kind="extract", system="t", contents="x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


class Hostile:
    """Everything about this value raises."""

    def __iter__(self) -> object:
        raise RuntimeError("no")

    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


@pytest.mark.usefixtures("content_on")
@pytest.mark.parametrize("value", [Hostile(), {1, 2}, object(), float("nan"), [[[object()]]], {"k": Hostile()}])
def test_values_that_cannot_be_serialised_never_harm(recording: Recording, value: object) -> None:
    with operation(kind="other", system="t", tracer=recording.tracer) as op:
        op.mark(value)  # type: ignore[arg-type]
        op.set("value", value)  # type: ignore[arg-type]
        op.read("message:x", role="message", content=value)
        op.wrote("fact:y", content=value)
    assert attribute(recording.spans()[0], semconv.INPUTS) == ["message:x"]
    assert attribute(recording.spans()[0], semconv.OUTPUTS) == ["fact:y"]


@pytest.mark.usefixtures("content_on")
def test_a_value_that_cannot_be_read_has_no_digest(recording: Recording) -> None:
    with operation(kind="other", system="t", tracer=recording.tracer) as op:
        op.wrote("memory:1", action="ADD", content={"data": object()})
        op.wrote("memory:2", action="ADD", content={"at": datetime(2026, 1, 2, tzinfo=UTC), "id": UUID(int=1)})
    [span] = recording.spans()
    digests = attribute(span, semconv.OUTPUTS_DIGESTS)
    shown = '{"at": "2026-01-02T00:00:00+00:00", "id": "00000000-0000-0000-0000-000000000001"}'
    assert digests == ["", content_digest(shown)]
    assert attribute(span, semconv.OUTPUTS_CONTENTS) == ["", shown]
    assert attribute(span, semconv.INCOMPLETE) == ["unserialisable"]


def test_a_score_is_any_number_that_is_finite(recording: Recording) -> None:
    class Scalar:  # as numpy's float32 is none of Python's numbers
        def __float__(self) -> float:
            return 0.25

    scores = [Scalar(), 1, 0.5, None, float("nan"), float("inf"), True, "0.5"]
    with operation(kind="retrieve", system="t", tracer=recording.tracer) as op:
        for score in scores:
            op.read("memory:1", role="hit", score=score)  # type: ignore[arg-type]
    assert attribute(recording.spans()[0], semconv.INPUTS_SCORES) == [0.25, 1.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0]


def test_a_source_that_nothing_read_is_none(recording: Recording) -> None:
    before = drops["misuse:sources"]
    with operation(kind="extract", system="t", tracer=recording.tracer) as op:
        op.read("message:1", content="Ana likes tea")
        op.wrote("fact:1", content="Ana likes tea", sources=[0, 7])
    [span] = recording.spans()
    assert attribute(span, semconv.FLOW) == ["0>0"]
    assert "malformed" in attribute(span, semconv.INCOMPLETE)
    assert drops["misuse:sources"] == before + 1


def test_an_unsampled_operation_still_knows_its_versions() -> None:
    provider = TracerProvider(sampler=ALWAYS_OFF)
    tracer = provider.get_tracer("t")
    with operation("create_memory", kind="create", system="t", scope=SCOPE, tracer=tracer) as op:
        op.wrote("memory:1", action="ADD", content="x")
        origin = op.origin
    with operation(kind="retrieve", system="t", scope=SCOPE, tracer=tracer) as search:
        search.read("memory:1", role="hit")
        assert search._inputs[0][2] == origin  # pyright: ignore[reportPrivateUsage]


def test_without_an_sdk_nothing_happens_and_nothing_breaks() -> None:
    tracer = trace.NoOpTracer()
    with operation("create_memory", kind="create", system="t", tracer=tracer) as op:
        assert op.read("memory:1", role="previous") == -1
        op.wrote("memory:1", action="ADD", content="x")
        assert op.origin == ""


def test_operations_nest_and_give_the_context_back(recording: Recording) -> None:
    assert current_operation() is None
    with operation(kind="ingest", system="t", tracer=recording.tracer) as outer:
        with operation(kind="extract", system="t", tracer=recording.tracer) as inner:
            assert current_operation() is inner
        assert current_operation() is outer
    assert current_operation() is None
    outer_span, inner_span = recording.spans()
    assert inner_span.parent is not None
    assert outer_span.context is not None
    assert inner_span.parent.span_id == outer_span.context.span_id
    assert (outer_span.attributes or {})[semconv.SEQ] < (inner_span.attributes or {})[semconv.SEQ]  # type: ignore[operator]


async def test_a_task_that_outlives_its_operation_is_no_longer_inside_it(recording: Recording) -> None:
    seen: list[object] = []
    steps = [asyncio.Event() for _ in range(3)]

    async def work() -> None:
        for step in steps:
            await step.wait()
            seen.append(current_operation())

    with operation(kind="ingest", system="t", tracer=recording.tracer) as outer:
        with operation(kind="extract", system="t", tracer=recording.tracer) as inner:
            task = asyncio.create_task(work())
            steps[0].set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        steps[1].set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    steps[2].set()
    await task
    assert seen == [inner, outer, None]


def test_the_decorator_records_arguments_and_results(recording: Recording) -> None:
    @operation(kind="extract", system="mine", tracer=recording.tracer, inputs={"text": "message"}, output="fact")
    def extract(text: str, limit: int = 2) -> list[str]:
        return [text.upper(), text.lower()][:limit]

    assert extract("Tea") == ["TEA", "tea"]
    assert extract.__name__ == "extract"
    [span] = recording.spans()
    assert span.name == "memtrace.extract"
    assert attribute(span, semconv.INPUTS) == [variable_ref("message", "Tea")]
    assert attribute(span, semconv.INPUTS_ROLES) == ["message"]
    assert attribute(span, semconv.OUTPUTS) == [variable_ref("fact", "TEA"), variable_ref("fact", "tea")]


async def test_the_decorator_on_coroutine_functions(recording: Recording) -> None:
    @operation(
        "search_memory",
        kind="retrieve",
        system="mine",
        tracer=recording.tracer,
        inputs={"q": "query"},
        output="context",
    )
    async def search(q: str) -> str:
        await asyncio.sleep(0)
        if not q:
            raise LookupError
        return "found"

    assert inspect.iscoroutinefunction(search)
    assert await asyncio.gather(search("a"), search("b")) == ["found", "found"]
    with pytest.raises(LookupError):
        await search("")
    assert len({s.context.trace_id for s in recording.spans() if s.context}) == 3
    assert recording.spans()[0].attributes is not None
    assert recording.spans()[0].attributes[semconv.GEN_AI_OPERATION_NAME] == "search_memory"
    assert recording.spans()[-1].status.status_code is StatusCode.ERROR


def test_the_decorator_calls_the_function_once_whatever_fails_in_ours(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    @operation(kind="other", system="t", tracer=recording.tracer, inputs={"x": "message"}, output="fact")
    def work(x: int) -> int:
        calls.append(x)
        return x + 1

    monkeypatch.setattr("memtrace_otel.capture.decorator.words", lambda value: 1 / 0)
    assert work(1) == 2
    assert calls == [1]


def test_a_decorated_search_reads_the_records_it_returns(recording: Recording) -> None:
    @operation("create_memory", kind="create", system="mine", tracer=recording.tracer, output="memory", action="ADD")
    def store(text: str) -> str:
        return text

    @operation(
        "search_memory", kind="retrieve", system="mine", tracer=recording.tracer, inputs={"q": "query"}, output="memory"
    )
    def search(q: str) -> list[str]:
        return ["Ana likes tea"]

    store("Ana likes tea")
    search("What does Ana like?")
    [created], [found] = recording.named("create_memory"), recording.named("search_memory")
    assert attribute(found, semconv.INPUTS)[1:] == attribute(created, semconv.OUTPUTS)
    assert attribute(found, semconv.INPUTS_ROLES) == ["query", "hit"]
    assert attribute(found, semconv.INPUTS_ORIGINS) == ["", span_origin(created)]
    assert attribute(found, semconv.OUTPUTS_ROLES) == ["context"]


def test_the_steps_of_a_search_are_not_searches_of_the_turn(recording: Recording) -> None:
    def turn() -> list[str]:
        found = recall.recall("")
        return [retrieval.origin for retrieval in found.retrievals()] if found else []

    options = {"kind": "retrieve", "tracer": recording.tracer}
    with operation("search_memory", system="mine", **options) as own, operation(system="mine", **options):
        pass
    assert turn() == [own.origin]
    recording.clear()
    with operation("search_memory", system="mine", **options) as own, operation(system="other", **options) as inner:
        pass
    assert turn() == [inner.origin, own.origin]


def test_the_decorator_takes_any_callable(recording: Recording) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    traced = operation(kind="other", system="t", tracer=recording.tracer, inputs={"b": "message"})(partial(add, 1))
    assert traced(2) == 3
    assert len(recording.spans()) == 1


def test_two_values_that_cannot_be_read_are_two_variables() -> None:
    assert variable_ref("chunk", object()) != variable_ref("chunk", object())


def test_feedback_finds_the_answer_of_an_operation_of_ones_own(recording: Recording) -> None:
    with recording.tracer.start_as_current_span("turn"):
        with operation("chat", kind="respond", system="mine", tracer=recording.tracer) as op:
            op.wrote("answer:1", role="answer", content="17 April")
        assert feedback("fail", tracer=recording.tracer)
    [judged] = recording.named("memtrace.judge")
    assert attribute(judged, semconv.INPUTS_ORIGINS) == [op.origin]


@pytest.mark.parametrize("around", [True, False], ids=["in a trace of several spans", "a trace by itself"])
def test_feedback_of_a_later_request_names_the_trace_of_the_answer(recording: Recording, around: bool) -> None:
    def answer() -> Any:
        with operation("chat", kind="respond", system="mine", tracer=recording.tracer) as op:
            op.wrote("answer:1", role="answer", content="17 April")
        return op

    if around:
        with recording.tracer.start_as_current_span("turn"):
            given = answer()
    else:
        given = answer()
    with recording.tracer.start_as_current_span("thumbs down"):
        assert feedback("fail", answer=given.origin[:32], tracer=recording.tracer)
    [judged] = recording.named("memtrace.judge")
    assert attribute(judged, semconv.INPUTS_ORIGINS) == [given.origin]
    assert f"{judged.context.trace_id:032x}" == given.origin[:32]


@pytest.mark.parametrize("named", ["", "f" * 32, f"{'f' * 32}-", "nonsense", "F" * 32])
def test_feedback_without_an_answer_says_so(recording: Recording, caplog: pytest.LogCaptureFixture, named: str) -> None:
    for what in ("feedback", "feedback_answer"):
        drops.pop(f"misuse:{what}", None)  # the first of each is logged
    with recording.tracer.start_as_current_span("thumbs down"):
        assert not feedback("fail", answer=named, tracer=recording.tracer)
        assert not feedback("fial", tracer=recording.tracer)
    assert "no recorded answer matches" in caplog.text
    assert "the label must be one of" in caplog.text
    assert recording.named("memtrace.judge") == []


def test_a_record_read_in_other_words_than_written_was_changed_by_somebody_else(recording: Recording) -> None:
    own = write_memory(recording, text="Ana likes tea")
    with operation("search_memory", kind="retrieve", system="t", scope=SCOPE, tracer=recording.tracer) as op:
        op.read("memory:1", role="hit", content="Ana likes tea", verbatim=True)
        op.read("memory:1", role="hit", content="Ana likes mate", verbatim=True)
        op.read("memory:1", role="hit", content="- Ana likes tea")  # as rendered
    *_, search = recording.spans()
    assert attribute(search, semconv.INPUTS_ORIGINS) == [own, "", own]
    assert "unknown_origin" in attribute(search, semconv.INCOMPLETE)
