"""The type of a link says what an operation did with what another one wrote: one type per role (wire contract)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Span, SpanContext
from opentelemetry.util.types import Attributes

from memtrace_otel import semconv
from memtrace_otel.capture import operation, writing
from memtrace_otel.semconv import LinkType, Role
from tests.conftest import Recording

LINKS = {
    Role.HIT: "retrieved",
    Role.CONTEXT: "retrieved",
    Role.CANDIDATE: "considered",
    Role.PREVIOUS: "supersedes",
    Role.ANSWER: "evaluates",
    Role.MESSAGE: "derived_from",
    Role.QUERY: "derived_from",
    Role.HISTORY: "derived_from",
    Role.PROMPT: "derived_from",
    Role.EXPECTED: "derived_from",
    Role.EVIDENCE: "derived_from",
    Role.OTHER: "derived_from",
}


def links(recording: Recording, name: str) -> dict[tuple[int, str], tuple[str, ...]]:
    """Links of the only span of this name: linked span and type, and the refs."""
    [span] = recording.named(name)
    return {
        (link.context.span_id, str((link.attributes or {})[semconv.LINK_TYPE])): tuple(
            (link.attributes or {})[semconv.LINK_REFS]  # type: ignore[arg-type]
        )
        for link in span.links
    }


def wrote(recording: Recording, ref: str) -> int:
    with operation("create_memory", kind="write", system="test", tracer=recording.tracer) as write:
        write.wrote(ref, content=ref)
    context = recording.named("create_memory")[-1].context
    assert context is not None
    return context.span_id


@pytest.mark.parametrize("role", Role)
def test_each_role_has_its_type(recording: Recording, role: Role) -> None:
    origin = wrote(recording, "memory:1")
    with operation("use", kind="retrieve", system="test", tracer=recording.tracer) as use:
        use.read("memory:1", role=role, content="memory:1")
    assert links(recording, "use") == {(origin, LINKS[role]): ("memory:1",)}


def test_each_origin_has_a_link_of_its_own_type(recording: Recording) -> None:
    origins = [wrote(recording, f"memory:{number}") for number in range(3)]
    with operation("update_memory", kind="write", system="test", tracer=recording.tracer) as update:
        for number, role in enumerate((Role.PREVIOUS, Role.CANDIDATE, Role.MESSAGE)):
            update.read(f"memory:{number}", role=role, content=str(number))
    types = (LinkType.SUPERSEDES, LinkType.CONSIDERED, LinkType.DERIVED_FROM)
    expected = {(o, str(t)): (f"memory:{n}",) for n, (o, t) in enumerate(zip(origins, types, strict=True))}
    assert links(recording, "update_memory") == expected


def used(limits: SpanLimits | None = None) -> ReadableSpan:
    """A span that has read a record, of a provider with these limits."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(span_limits=limits)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    with operation("create_memory", kind="create", system="test", tracer=tracer) as write:
        write.wrote("memory:1", content="text")
    with operation("search_memory", kind="retrieve", system="test", tracer=tracer) as search:
        search.read("memory:1", role="hit", content="text")
    return exporter.get_finished_spans()[-1]


def test_limits_of_the_user_hold_for_links() -> None:
    [link] = used(SpanLimits(max_link_attributes=1)).links
    assert (len(link.attributes or {}), link.dropped_attributes) == (1, 1)
    [link] = used(SpanLimits(max_attribute_length=3)).links
    assert dict(link.attributes or {}) == {semconv.LINK_TYPE: "ret", semconv.LINK_REFS: ("mem",)}
    assert used(SpanLimits(max_links=0)).dropped_links == 1


def test_a_link_is_what_add_link_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    quick, taken = used(), list[SpanContext]()

    def plain_way(span: Span) -> Callable[..., None]:
        def add(context: SpanContext, attributes: Attributes) -> None:
            taken.append(context)
            span.add_link(context, attributes)

        return add

    monkeypatch.setattr(writing, "_link_adder", plain_way)
    [sent], [plain] = (encode_spans([span]).resource_spans[0].scope_spans[0].spans for span in (quick, used()))
    assert sent.links[0].attributes == plain.links[0].attributes
    assert len(sent.links[0].attributes) == 2
    assert len(taken) == 1
    assert not sent.links[0].dropped_attributes_count
