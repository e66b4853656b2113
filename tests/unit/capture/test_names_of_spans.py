"""Answers and contexts have the id of the span that made them (wire contract), also where a text is all they have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry import context
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider, sampling

from memtrace_otel import semconv
from memtrace_otel.capture import operation, origins, variable_ref
from memtrace_otel.graph import EvolutionGraph, VersionKey, build_graph
from memtrace_otel.graph.smartcomment import to_smartcomment, to_spans
from memtrace_otel.model import OperationSpan, ref_kind
from memtrace_otel.otlp import decode_request
from memtrace_otel.otlp.receiver import Limits, check_logs
from memtrace_otel.otlp.sdk import encode_sdk_spans
from memtrace_otel.semconv import RefKind
from tests.conftest import Recording

pytestmark = pytest.mark.usefixtures("content_on")


class Unreadable:
    """A value that says nothing."""


def attribute(span: ReadableSpan, name: str) -> list[object]:
    assert span.attributes is not None
    return list(span.attributes.get(name, ()))  # type: ignore[arg-type]


def id_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.span_id:016x}"


def wire(recording: Recording) -> list[OperationSpan]:
    return decode_request(encode_sdk_spans(recording.spans()))


@contextmanager
def detached() -> Iterator[None]:
    """In no trace."""
    token = context.attach(context.Context())
    yield
    context.detach(token)


@pytest.fixture(params=["decorated", "by hand"])
def answer(request: pytest.FixtureRequest, recording: Recording) -> Callable[..., None]:
    """Says a text as an answer, in a span of its own."""

    def by_hand(text: object, kind: str = "answer", **options: Any) -> None:
        with operation(kind="respond", system="t", tracer=recording.tracer, **options) as op:
            op.wrote(variable_ref(kind, text), role=kind, content=text)

    def decorated(text: object, kind: str = "answer", **options: Any) -> None:
        operation(kind="respond", system="t", tracer=recording.tracer, output=kind, **options)(lambda: text)()

    return decorated if request.param == "decorated" else by_hand


@pytest.mark.parametrize("kind", ["answer", "context"])
@pytest.mark.parametrize(
    "text",
    ["Porto", "", "é" * 9000, {"text": "Porto"}, Unreadable()],
    ids=["text", "empty", "long", "record", "unreadable"],
)
def test_equal_texts_of_two_spans_are_two(
    answer: Callable[..., None], recording: Recording, kind: str, text: object
) -> None:
    answer(text, kind)
    answer(text, kind)
    spans = recording.spans()
    assert [attribute(span, semconv.OUTPUTS) for span in spans] == [[f"{kind}:{id_of(span)}"] for span in spans]


def test_what_the_caller_names_keeps_its_name(recording: Recording) -> None:
    with operation(kind="respond", system="t", tracer=recording.tracer) as op:
        op.wrote("answer:mine", content="Porto")
        op.wrote("answer:0123456789abcdef", content="Faro")
        op.wrote(variable_ref("answer", "Braga", id=7), content="Braga")
        op.wrote(variable_ref("completion", "Braga"), content="Braga")
    assert attribute(recording.spans()[0], semconv.OUTPUTS) == [
        *("answer:mine", "answer:0123456789abcdef", "answer:7"),
        variable_ref("completion", "Braga"),
    ]


def test_several_answers_of_one_span_are_told_apart_and_found_again(recording: Recording) -> None:
    @operation(kind="respond", system="t", tracer=recording.tracer, output="answer")
    def answers() -> list[str]:
        return ["Porto", "Faro", "Porto"]

    answers()
    [span] = recording.spans()
    first, second = f"answer:{id_of(span)}", f"answer:{id_of(span)}.2"
    assert attribute(span, semconv.OUTPUTS) == [first, second, first]
    with operation(kind="judge", system="t", tracer=recording.tracer) as judge:
        judge.read(variable_ref("answer", "Faro"), role="answer", content="Faro")
        judge.read(variable_ref("answer", "Porto"), role="answer", content="Porto")
    assert attribute(recording.spans()[1], semconv.INPUTS) == [second, first]


@pytest.fixture(params=["decorated", "by hand"])
def judge(request: pytest.FixtureRequest, recording: Recording) -> Callable[..., ReadableSpan]:
    """Judges an answer of which it knows the text."""

    def judged(text: str, **options: Any) -> ReadableSpan:
        if request.param == "decorated":
            judging = operation(kind="judge", system="j", tracer=recording.tracer, inputs={"text": "answer"}, **options)
            judging(lambda text: None)(text)
        else:
            with operation(kind="judge", system="j", tracer=recording.tracer, **options) as op:
                op.read(variable_ref("answer", text), role="answer", content=text)
        return recording.named("memtrace.judge")[-1]

    return judged


def test_a_reader_who_knows_the_text_finds_the_newest_of_that_memory(
    answer: Callable[..., None], judge: Callable[..., ReadableSpan], recording: Recording
) -> None:
    for scope in ("a", "a", "b"):
        answer("Porto", scope=scope)
    _, newest, _ = recording.spans()
    assert newest.context is not None
    judged = judge("Porto", scope="a")
    assert attribute(judged, semconv.INPUTS) == [f"answer:{id_of(newest)}"]
    assert attribute(judged, semconv.INPUTS_ORIGINS) == [f"{newest.context.trace_id:032x}-{id_of(newest)}"]
    for unknown in (judge("Porto", scope="c"), judge("Faro", scope="a")):
        assert attribute(unknown, semconv.INPUTS_ORIGINS) == [""]
        assert attribute(unknown, semconv.INCOMPLETE) == ["unknown_origin"]


def test_a_reader_finds_that_of_its_own_trace_first_whosoever_memory_it_is(
    answer: Callable[..., None], judge: Callable[..., ReadableSpan], recording: Recording
) -> None:
    with recording.tracer.start_as_current_span("turn") as turn:
        with operation(kind="other", system="t", tracer=recording.tracer):
            answer("Porto", scope="a")
        with detached():
            answer("Porto")
        judged = judge("Porto")
    (origin,) = attribute(judged, semconv.INPUTS_ORIGINS)
    assert str(origin)[:32] == f"{turn.get_span_context().trace_id:032x}"


def test_an_origin_that_the_reader_gives_is_the_name(answer: Callable[..., None], recording: Recording) -> None:
    origins().forget()
    with operation(kind="judge", system="j", tracer=recording.tracer) as op:
        ref = variable_ref("answer", "Porto")
        op.read(ref, role="answer", origin="a" * 32 + "-" + "b" * 16, content="Porto")
        op.read("answer:mine", role="answer", origin="a" * 32 + "-" + "b" * 16, content="Porto")
        op.read(ref, role="answer", origin="", content="Porto")
    assert attribute(recording.spans()[0], semconv.INPUTS) == ["answer:" + "b" * 16, "answer:mine", ref]


def test_an_answer_that_is_handed_on_is_that_of_the_span_inside(recording: Recording) -> None:
    @operation(kind="respond", system="t", tracer=recording.tracer, inputs={"given": "context"}, output="answer")
    def generate(given: str) -> str:
        return given.upper()

    @operation(kind="respond", system="t", tracer=recording.tracer, inputs={"query": "query"}, output="answer")
    def chat(query: str) -> str:
        return generate("porto")

    chat("Where?")
    generate("porto")  # the same again is not inside
    outer, inner, alone = recording.spans()
    names = [attribute(span, semconv.OUTPUTS) for span in (outer, inner, alone)]
    assert names == [[f"answer:{id_of(span)}"] for span in (inner, inner, alone)]
    assert len(answers_of(build_graph(wire(recording)))) == 2  # what two operations list in each other is one version


def test_a_span_that_is_not_sampled_names_its_answer_all_the_same(judge: Callable[..., ReadableSpan]) -> None:
    dropped = TracerProvider(sampler=sampling.ALWAYS_OFF).get_tracer("t")
    with operation(kind="respond", system="t", tracer=dropped) as op:
        op.wrote(variable_ref("answer", "Porto"), content="Porto")
    judged = judge("Porto")
    assert attribute(judged, semconv.INPUTS_ORIGINS) == [op.origin]
    assert attribute(judged, semconv.INPUTS) == [f"answer:{op.origin[33:]}"]


def failing(recording: Recording) -> list[OperationSpan]:
    """A question that a decorated function answers, the answer judged by a log record."""

    @operation(kind="respond", system="t", tracer=recording.tracer, inputs={"query": "query"}, output="answer")
    def chat(query: str) -> str:
        return "Porto"

    chat("Where does Ann live?")
    spans = wire(recording)
    record = LogRecord(event_name=semconv.EVALUATION_EVENT, time_unix_nano=spans[-1].end + 1)
    record.trace_id, record.span_id = bytes.fromhex(spans[-1].trace_id), bytes.fromhex(spans[-1].span_id)
    record.attributes.add(key=semconv.EVALUATION_SCORE).value.double_value = 0.0
    logs = ExportLogsServiceRequest()
    logs.resource_logs.add().scope_logs.add(log_records=[record])
    return [*spans, *decode_request(check_logs(logs.SerializeToString(), Limits.from_settings()).body)]


def answers_of(graph: EvolutionGraph) -> list[tuple[str, bool]]:
    versions = (node for node in graph if isinstance(node, VersionKey) and ref_kind(node.ref) == RefKind.ANSWER)
    return [(graph.content(version), bool(list(graph.readers(version)))) for version in versions]


def test_an_evaluation_that_came_as_a_log_record_reads_the_one_answer_of_the_span(recording: Recording) -> None:
    graph = build_graph(failing(recording))
    assert answers_of(graph) == [("Porto", True)]
    assert graph.incomplete == {}


def test_an_export_to_smartcomment_and_back_has_the_same_answer(recording: Recording) -> None:
    with operation(kind="respond", system="t", tracer=recording.tracer) as op:
        op.read(variable_ref("query", "Where?"), role="query", content="Where?")
        op.wrote(variable_ref("answer", "Porto"), role="answer", content="Porto")
    with operation(kind="judge", system="j", tracer=recording.tracer) as judging:
        judging.read(variable_ref("answer", "Porto"), role="answer", content="Porto")
        judging.set(semconv.EVALUATION_SCORE, 0.0)
    before = build_graph(wire(recording))
    assert answers_of(build_graph(to_spans(to_smartcomment(before)))) == answers_of(before) == [("Porto", True)]
