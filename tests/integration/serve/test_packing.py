"""An idle server makes its file small, and is done then."""

from __future__ import annotations

from memtrace_otel.otlp import encode_request
from memtrace_otel.sources import SqliteStore
from tests.integration.serve.conftest import Start
from tests.unit.sources.test_growing import growing

SPANS = growing(300)


def test_spans_are_packed_and_pages_given_back_and_then_nothing_is_written(start: Start) -> None:
    server = start(MEMTRACE_PACK_SECONDS="0.3")
    for begin in range(0, len(SPANS), 25):
        assert server.post("/v1/traces", encode_request(SPANS[begin : begin + 25]))[0] == 200
    server.until(lambda: server.metric("packed_spans") == len(SPANS), 60)
    whole = sum(len(span.outputs[0].content) for span in SPANS)
    assert server.database.stat().st_size < whole / 10
    before = server.database.read_bytes()
    server.until(lambda: server.metric("packed_spans") == len(SPANS))
    assert server.database.read_bytes() == before
    more = growing(3, first=1000)
    assert server.post("/v1/traces", encode_request(more))[0] == 200
    server.until(lambda: server.metric("packed_spans") == len(SPANS) + 3)
    with SqliteStore.open(server.database) as store:
        assert list(store.spans()) == [*SPANS, *more]
        assert store.check() == []


def test_what_arrives_while_spans_are_packed_is_decoded_first(start: Start) -> None:
    server = start(MEMTRACE_PACK_SECONDS="0.3")
    for begin in range(0, 200, 25):
        assert server.post("/v1/traces", encode_request(SPANS[begin : begin + 25]))[0] == 200
    server.kill()
    again = start(database=server.database, MEMTRACE_PACK_SECONDS="0.3")
    for span in SPANS[200:]:
        assert again.post("/v1/traces", encode_request([span]))[0] == 200
    again.until(lambda: again.metric("inbox_bytes") == 0, 60)
    again.kill()  # amid packing, perhaps
    with SqliteStore.open(server.database) as store:
        assert list(store.spans()) == SPANS
        assert store.check() == []


def test_with_0_nothing_is_packed(start: Start) -> None:
    server = start(MEMTRACE_PACK_SECONDS="0")
    assert server.post("/v1/traces", encode_request(SPANS[:50]))[0] == 200
    server.until(lambda: server.metric("decoded_spans") == 50)
    assert server.metric("packed_spans") == 0
