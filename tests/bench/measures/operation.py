"""What one captured operation costs its caller, with new values at every call.

The realistic operation is a search: a query, four records that earlier operations wrote, and the context they make.
The yardstick is a bare SDK span which a programmer would write by hand to carry the same attributes and links. It is
open while the search runs, so what was found is set after the start, in one go; the arrays are put together from values
that lie ready (refs, origins, digests, sizes), as new ones at every call. A record reads as it was written: it would
have no origin else, and no link.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.trace import SpanContext

from memtrace_otel import semconv
from memtrace_otel.capture import operation, read_config, scope_id, use_config, variable_ref
from memtrace_otel.model import content_digest, make_origin
from tests.bench import peer
from tests.bench.measure import Measure, at_most, median_ratio, progress, side_by_side

SCOPE = scope_id("bench", user="u")
MEMORIES, TEXTS = 400, 16_384  # more than calls, and than remembered digests
TEXT = "Ana moved to Lisbon in March and works from a co-working space near the river, as she said in message {}."


class Keep(SpanProcessor):
    """Keeps the last span: what ours carries is what the bare span has to carry."""

    last: ReadableSpan

    def on_end(self, span: ReadableSpan) -> None:
        self.last = span


keep = Keep()
provider = TracerProvider()
provider.add_span_processor(keep)
tracer = provider.get_tracer("bench")
texts = [TEXT.format(n) for n in range(TEXTS)]
digests = [content_digest(text) for text in texts]
queries = [variable_ref("query", text) for text in texts]
memories = [f"memory:{n}" for n in range(MEMORIES)]
writers: list[SpanContext] = []


def write_memories() -> None:
    """The operations whose versions the searches read."""
    for ref, text in zip(memories, texts, strict=False):
        with operation("create_memory", kind="create", system="bench", scope=SCOPE, tracer=tracer) as op:
            op.wrote(ref, action="ADD", content=text)
            writers.append(op.span.get_span_context())


def search_of_ours() -> Callable[[], None]:
    """One search, recorded by us."""
    number = count()

    def search() -> None:
        at = next(number) % (TEXTS - 8)
        first = at % (MEMORIES - 4)
        with operation("search_memory", kind="retrieve", system="bench", scope=SCOPE, tracer=tracer) as op:
            op.read(queries[at], role="query", content=texts[at])
            for n in range(4):
                op.read(memories[first + n], role="hit", content=texts[first + n], score=0.5)
            op.wrote("context:c", role="context", content=texts[at + 5])

    return search


def search_of_the_sdk(content: bool) -> Callable[[], None]:
    """The same span written by hand."""
    number = count()
    origins = [make_origin(f"{w.trace_id:032x}", f"{w.span_id:016x}") for w in writers]

    def search() -> None:
        at = next(number) % (TEXTS - 8)
        first = at % (MEMORIES - 4)
        read = range(first, first + 4)
        before = {
            semconv.OP_KIND: "retrieve",
            semconv.SYSTEM: "bench",
            semconv.GEN_AI_OPERATION_NAME: "search_memory",
        }
        with tracer.start_as_current_span("search_memory", attributes=before) as span:
            attributes = {
                semconv.SEQ: at,
                semconv.SCOPE: SCOPE,
                semconv.GEN_AI_MEMORY_RECORD_COUNT: len(read),
                semconv.INPUTS: [queries[at], *[memories[n] for n in read]],
                semconv.INPUTS_ROLES: ["query", "hit", "hit", "hit", "hit"],
                semconv.INPUTS_ORIGINS: ["", *[origins[n] for n in read]],
                semconv.INPUTS_DIGESTS: [digests[at], *digests[first : first + 4]],
                semconv.INPUTS_SCORES: [0.0, 0.5, 0.5, 0.5, 0.5],
                semconv.OUTPUTS: ["context:c"],
                semconv.OUTPUTS_ROLES: ["context"],
                semconv.OUTPUTS_ACTIONS: ["DERIVE"],
                semconv.OUTPUTS_DIGESTS: [digests[at + 5]],
                semconv.OUTPUTS_SIZES: [len(texts[at + 5])],
            }
            if content:
                attributes[semconv.INPUTS_CONTENTS] = [texts[at], "", "", "", ""]
                attributes[semconv.OUTPUTS_CONTENTS] = [texts[at + 5]]
            else:
                attributes[semconv.INCOMPLETE] = ["content_off"]
            span.set_attributes(attributes)
            for n in read:
                span.add_link(writers[n], {semconv.LINK_TYPE: "retrieved", semconv.LINK_REFS: [memories[n]]})

    return search


def carried(search: Callable[[], None]) -> tuple[dict[str, object], list[tuple[int, dict[str, object]]]]:
    """Attributes (`memtrace.seq` aside, which is a number of the process) and links of the first span of `search`."""
    search()
    attributes = {name: value for name, value in (keep.last.attributes or {}).items() if name != semconv.SEQ}
    return attributes, [(link.context.span_id, dict(link.attributes or {})) for link in keep.last.links]


def switch_content(on: bool) -> None:
    os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "SPAN_ONLY" if on else "NO_CONTENT"
    use_config(read_config())


def searches() -> Iterator[Measure]:
    """The realistic operation without contents, and with contents, which redaction reads first."""
    for content in (False, True):
        progress(f"a search, contents {'on' if content else 'off'}")
        switch_content(content)
        ours, bare = search_of_ours(), search_of_the_sdk(content)
        if carried(ours) != carried(bare):
            raise AssertionError("the bare span does not carry what ours carries")
        mine, theirs = side_by_side(ours, bare, calls=100, rounds=100)
        name = f"one search (5 inputs, 4 links, 1 output), contents {'on' if content else 'off'}, over a bare SDK span"
        yield at_most(name, min(mine), min(theirs), 1.6, "us", ratio=median_ratio(mine, theirs))
    switch_content(False)


def decorated() -> Iterator[Measure]:
    """A decorated function, one new input and one new output: the peer's main case."""
    progress("a decorated function")

    @operation(kind="extract", system="bench", tracer=tracer, inputs={"text": "message"}, output="fact")
    def ours(text: str) -> str:
        return text.upper()

    @peer.comment_fn(op_name="bench.extract")
    def theirs(text: str) -> str:
        return text.upper()

    mine_number, their_number = count(), count()
    with peer.recording():
        mine, peers = side_by_side(
            lambda: ours(f"message {next(mine_number)}"), lambda: theirs(f"message {next(their_number)}"), calls=200
        )
    name = "one decorated function, over the peer's"
    yield at_most(name, min(mine), min(peers), 1.0, "us", ratio=median_ratio(mine, peers))


def measure() -> Iterator[Measure]:
    switch_content(False)
    write_memories()
    yield from searches()
    yield from decorated()
