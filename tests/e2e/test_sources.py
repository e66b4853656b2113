"""The contract of sources, against the real Jaeger (memory, Badger) and Tempo."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Literal
from urllib.request import Request, urlopen

import pytest

from memtrace_otel import settings
from memtrace_otel.model import Event, Link, OperationSpan, Variable, make_origin
from memtrace_otel.otlp import encode_request
from memtrace_otel.sources import RemoteSource, open_source
from memtrace_otel.testing import Fill, RecordContract, SourceContract, contract_span
from tests.e2e.backends.jaeger import Jaeger, running_jaeger
from tests.e2e.backends.service import wait_for
from tests.e2e.backends.tempo import QUICK, Tempo, running_tempo
from tests.e2e.moved import Move, MovedSource, export, wait_until_readable
from tests.e2e.story import Story, new_story, send_spans

MINUTE = 60 * 10**9
HOUR = 60 * MINUTE
_hours = count(100, -1)


def filler(source: RemoteSource, endpoint: str, beginning: int, headers: dict[str, str] | None = None) -> Fill:
    """A `fill` that sends the contract's spans as if its year 1970 had begun at `beginning`."""
    move = Move(beginning)

    def fill(*requests: Sequence[OperationSpan]) -> MovedSource:
        later = [move.there(spans) for spans in requests]
        for spans in later:
            export(endpoint, spans, headers)
        sent = [span for spans in later for span in spans]
        wait_until_readable(source.trace, sent)
        ahead = {span.trace_id for span in sent if span.end > time.time_ns() + HOUR}
        found = {span.trace_id for span in sent} - ahead
        wait_for(lambda: found <= set(source.trace_ids()), "the traces are found by search")
        return MovedSource(source, move)

    return fill


class BackendContract(SourceContract, RecordContract):
    """What holds for a backend, too."""

    def test_spans_with_jumping_clocks_are_found(self, fill: Fill) -> None:
        """What is dated more than an hour ahead is found by its id alone."""
        spans = [contract_span(1, 1, 0), contract_span(1, 2, 1), contract_span(1, 3, 9_000_000_000)]
        source = fill([spans[2]], [spans[0]], [spans[1]], [contract_span(2, 4, 2)])
        assert source.trace(spans[0].trace_id) == spans
        assert [span.span_id for span in source.spans(since=2 * 10**9)] == [f"{4:016x}"]


def jaeger_filler(jaeger: Jaeger) -> Fill:
    """A `fill` in an hour of its own: one source looks back past its beginning, the next one not so far."""
    hours = next(_hours)
    source = open_source(f"jaeger+{jaeger.url}", hours=hours)
    return filler(source, jaeger.otlp_http, time.time_ns() - hours * HOUR + 10 * MINUTE)


@pytest.fixture(scope="module")
def jaeger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jaeger]:
    """One of its own: every trace in it is read."""
    with running_jaeger(tmp_path_factory.mktemp("jaeger")) as jaeger:
        yield jaeger


@pytest.fixture(scope="module")
def badger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jaeger]:
    with running_jaeger(tmp_path_factory.mktemp("badger"), "badger") as jaeger:
        yield jaeger


class JaegerContract(BackendContract):
    """Its searches tell no elements of lists apart: what all spans would have to be looked through for is not found."""

    def test_readers_of_a_failed_write_are_found(self, fill: Fill) -> None:
        source = fill()
        with pytest.raises(AssertionError):
            super().test_readers_of_a_failed_write_are_found(fill)
        assert source.incomplete

    def test_writers_are_found_by_ref(self, fill: Fill) -> None:
        source = fill([self.written(1, self.unique)])
        assert source.writers(self.unique) == []
        assert source.incomplete


class TestJaegerMemory(JaegerContract):
    @pytest.fixture
    def fill(self, jaeger: Jaeger) -> Fill:
        return jaeger_filler(jaeger)


class TestJaegerBadger(JaegerContract):
    @pytest.fixture
    def fill(self, badger: Jaeger) -> Fill:
        return jaeger_filler(badger)

    def test_every_field_comes_back(self, fill: Fill) -> None:
        """Arrays that are not ours stay the texts that Badger makes of them, links lose their attributes."""
        link = Link("a" * 32, "b" * 16, {"memtrace.link.type": "derived_from"})
        read = Variable("memory:1", "hit", make_origin("a" * 32, "b" * 16), "d" * 16, score=0.5)
        span = contract_span(
            1,
            1,
            kind="retrieve",
            inputs=(read, Variable("memory:2", "hit", score=1.0)),
            outputs=(Variable("context:1", action="DERIVE", size=3, content='[é"]'), Variable("fact:2")),
            flow=((0, 1),),
            evidence=("message:1",),
            incomplete=("content_off",),
            attributes={"flags": [True, False]},
            links=(link,),
            events=(Event("said", 1, {"text": "é"}),),
        )
        (found,) = fill([span]).trace(span.trace_id)
        assert found.attributes == {"flags": "[true,false]"}
        assert [(other.trace_id, other.span_id) for other in found.links] == [(link.trace_id, link.span_id)]
        assert replace(found, attributes=span.attributes, links=span.links) == span


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tempo]:
    """A Tempo of many tenants: each is an empty one."""
    with running_tempo(tmp_path_factory.mktemp("tenants"), **QUICK, TEMPO_MULTITENANCY="true") as tempo:
        yield tempo


def new_tenant(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A tenant that nobody has used: the source reads as it, the headers send as it."""
    name = f"t-{secrets.token_hex(6)}"
    monkeypatch.setenv(settings.SOURCE_HEADERS.env, f"x-scope-orgid={name}")
    return {"x-scope-orgid": name}


class TestTempo(BackendContract):
    @pytest.fixture
    def fill(self, tenants: Tempo, monkeypatch: pytest.MonkeyPatch) -> Fill:
        headers = new_tenant(monkeypatch)
        source = open_source(f"tempo+{tenants.url}")
        return filler(source, tenants.otlp_http, time.time_ns() - MINUTE, headers)

    def test_spans_with_jumping_clocks_are_found(self, fill: Fill) -> None:
        """Tempo counts seconds in 32 bits: what is past 2106 is found by its id alone."""
        spans = [contract_span(1, 1, 0), contract_span(1, 2, 1), contract_span(1, 3, 9_000_000_000)]
        assert fill([spans[2]], [spans[0]], [spans[1]]).trace(spans[0].trace_id) == spans


@pytest.mark.parametrize("name", ["jaeger", "tempo"])
def test_a_failure_is_found_whose_evaluation_joins_the_trace_of_another(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job of judges under one root. What Tempo has of a trace lies apart until it is compacted."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    backend = request.getfixturevalue(name)
    source, job, known = open_source(f"{name}+{backend.url}"), secrets.token_hex(16), dict[str, None]()
    for _ in range(3):
        story = new_story()
        story = replace(story, judge=replace(story.judge, trace_id=job, parent_id=""))
        send_spans(story.spans, backend.otlp_http)
        since = story.judge.start

        def found(story: Story = story, since: int = since) -> bool:
            return story.answer.trace_id in source.failing(since, known)

        wait_for(found, "the failing trace is found")
    monkeypatch.setattr(type(source), "_read", lambda self, trace_id: pytest.fail(f"{trace_id} is read again"))
    assert source.failing(since, known) == []


@pytest.mark.parametrize("storage", ["memory", "badger"])
def test_a_number_that_json_does_not_have_hides_no_trace_of_jaeger(
    storage: Literal["memory", "badger"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its page fails at every search that finds such a one."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    stories = [new_story("odd") for _ in range(3)]
    score = {**stories[1].judge.attributes, "gen_ai.evaluation.score.value": float("nan")}
    stories[1] = replace(stories[1], judge=replace(stories[1].judge, attributes=score))
    answer = replace(stories[2].answer, attributes={"seconds": float("inf")})
    stories[2] = replace(stories[2], answer=answer)
    failing = {story.answer.trace_id for story in stories}
    with running_jaeger(tmp_path, storage) as jaeger:
        source = open_source(f"jaeger+{jaeger.url}")
        for story in stories:
            send_spans(story.spans, jaeger.otlp_http)
            wait_until_readable(source.trace, story.spans)
        wait_for(lambda: set(source.failing(time.time_ns() - HOUR)) == failing, "the failing traces are found")
        assert set(source.trace_ids()) == {trace_id for story in stories for trace_id in story.traces}


def test_a_trace_of_tempo_with_a_text_that_is_no_utf_8_is_read(tempo: Tempo) -> None:
    """As it is where Tempo cuts a string within a character."""
    story = new_story()
    answer = replace(story.answer, attributes={"prompt": "caf_"})
    body = encode_request([*story.roots, answer, story.judge]).replace(b"caf_", b"caf\xc3")
    request = Request(f"{tempo.otlp_http}/v1/traces", body, {"content-type": "application/x-protobuf"})
    urlopen(request, timeout=30).close()
    source = open_source(f"tempo+{tempo.url}")
    expected = [story.roots[1], replace(answer, attributes={"prompt": "caf\ufffd"}), story.judge]
    wait_for(lambda: source.trace(answer.trace_id) == expected, "the trace is read")
    wait_for(lambda: answer.trace_id in source.failing(answer.start), "the failing trace is found")


def test_tempo_finds_a_failing_label_with_any_white_space_around_it(
    tempo: Tempo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    beginning, failing = time.time_ns() - 20 * MINUTE, set[str]()
    for blank in filter(str.isspace, map(chr, range(0x3001))):
        story = new_story()
        label = {"gen_ai.evaluation.score.label": f"{blank}Not relevant{blank}"}
        send_spans([story.answer, replace(story.judge, attributes=label)], tempo.otlp_http)
        failing.add(story.answer.trace_id)
    source = open_source(f"tempo+{tempo.url}")
    wait_for(lambda: failing <= set(source.failing(beginning)), "the failing traces are found")
