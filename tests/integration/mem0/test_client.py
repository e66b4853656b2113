"""The hosted service: the real `MemoryClient` and `AsyncMemoryClient` against a scripted loopback server."""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest
from mem0.client.main import AsyncMemoryClient, MemoryClient
from opentelemetry.trace import SpanKind, StatusCode

from memtrace_otel import semconv
from memtrace_otel.instrumentation.mem0 import Mem0Instrumentor
from memtrace_otel.model import content_digest
from tests.conftest import Recording
from tests.integration.mem0.conftest import IS_V1, seen


class Platform(ThreadingHTTPServer):
    """A server without state: `answers` maps (method, end of the path) to a reply; `asked` holds the requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.answers: dict[tuple[str, str], Any] = {}
        self.asked: list[tuple[str, str, Any]] = []


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Platform

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = urlsplit(self.path).path
        self.server.asked.append((self.command, path, json.loads(body) if body else None))
        found = {"user_email": "ann@example.org", "org_id": "o1", "project_id": "p1"}
        for (method, end), reply in self.server.answers.items():
            if method == self.command and path.endswith(end):
                found = reply
        self.reply_with(found)

    def reply_with(self, found: Any) -> None:
        """Send a value as JSON; (status, value) sets the status."""
        status, value = found if isinstance(found, tuple) else (200, found)
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_DELETE = answer

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def platform() -> Iterator[Platform]:
    with Platform() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Hosted:
    def __init__(self, client: Any, platform: Platform) -> None:
        self.client, self.platform = client, platform

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        result = getattr(self.client, method)(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    async def add(self, text: str, *stored: dict[str, Any], user: str = "ann") -> Any:
        self.platform.answers["POST", "/memories/add/"] = {"results": list(stored)}
        self.platform.answers["POST", "/v1/memories/"] = {"results": list(stored)}
        return await self.call("add", [{"role": "user", "content": text}], user_id=user)

    async def search(self, query: str, *found: dict[str, Any], user: str = "ann", **kwargs: Any) -> Any:
        self.platform.answers["POST", "/memories/search/"] = {"results": list(found)}
        return await self.call("search", query, filters={"AND": [{"user_id": user}]}, **kwargs)


@pytest.fixture(params=[MemoryClient, AsyncMemoryClient])
def hosted(request: pytest.FixtureRequest, platform: Platform) -> Hosted:
    return Hosted(request.param(api_key="secret key", host=platform.url), platform)


def item(id: str, text: str, **more: Any) -> dict[str, Any]:
    return {"id": id, "memory": text, "user_id": "ann", **more}


@pytest.mark.usefixtures("instrumented", "content_on")
async def test_calls_are_client_spans_with_refs_and_origins(hosted: Hosted, recording: Recording) -> None:
    platform = hosted.platform
    await hosted.add("I live in Paris.", {"id": "r1", "event": "ADD", "data": {"memory": "Lives in Paris"}})
    await hosted.search("Where do I live?", item("r1", "Lives in Paris", score=0.8), top_k=3, threshold=0.2)
    platform.answers["PUT", "/memories/r1/"] = {"message": "Memory updated successfully!"}
    await hosted.call("update", "r1", text="Lives in Lyon")
    platform.answers["GET", "/memories/r1/"] = item("r1", "Lives in Lyon")
    await hosted.call("get", "r1")
    platform.answers["POST", "/memories/"] = {"results": [item("r1", "Lives in Lyon")]}
    await hosted.call("get_all", filters={"user_id": "ann"})
    platform.answers["GET", "/memories/r1/history/"] = [
        {"new_memory": "Lives in Paris"},
        {"new_memory": "Lives in Lyon"},
    ]
    await hosted.call("history", "r1")
    platform.answers["DELETE", "/memories/r1/"] = {"message": "deleted"}
    await hosted.call("delete", "r1")

    spans = seen(recording)
    assert [span.name for span in spans] == [
        "upsert_memory",
        "search_memory",
        "update_memory",
        "search_memory",
        "search_memory",
        "memtrace.retrieve",
        "delete_memory",
    ]
    address = urlsplit(platform.url)
    for span in spans:
        assert span.span.kind is SpanKind.CLIENT
        assert span.attributes[semconv.GEN_AI_MEMORY_STORE_ID] == "p1"
        assert span.attributes[semconv.GEN_AI_PROVIDER_NAME] == "mem0"
        assert span.attributes[semconv.SERVER_ADDRESS] == address.hostname
        assert span.attributes[semconv.SERVER_PORT] == address.port
        assert "secret" not in span.span.to_json()
    assert len({span.scope for span in spans}) == 1
    added, searched, updated, got, listed, told, deleted = spans
    assert [o["ref"] for o in added.outputs()] == ["memory:r1"]
    assert added.outputs()[0]["content"] == "Lives in Paris"
    assert added.inputs("message")[0]["content"] == "I live in Paris."
    (hit,) = searched.inputs("hit")
    owner = json.dumps([{"user_id": "ann"}])
    assert (hit["ref"], hit["origin"], hit["score"]) == ("memory:r1", added.origin, 0.8)
    assert searched.outputs()[0]["content"] == "Lives in Paris"
    assert searched.attributes[semconv.GEN_AI_RETRIEVAL_TOP_K] == 3
    assert searched.attributes[semconv.RETRIEVAL_FILTERS] == (f"AND={content_digest(owner)}",)
    assert updated.inputs("previous")[0]["origin"] == added.origin
    assert updated.outputs()[0]["digest"] == content_digest("Lives in Lyon")
    for reader in (got, listed):
        assert reader.inputs("hit")[0]["origin"] == updated.origin
    assert told.inputs("history")[0]["origin"] == updated.origin
    assert told.attributes[semconv.GEN_AI_MEMORY_RECORD_COUNT] == 2
    assert told.outputs()[0]["content"] == "Lives in Paris\nLives in Lyon"
    assert deleted.inputs("previous")[0]["origin"] == updated.origin
    assert [o["action"] for o in deleted.outputs()] == ["DELETE"]
    assert [s.attributes.get(semconv.GEN_AI_MEMORY_RECORD_ID) for s in (updated, got, told, deleted)] == ["r1"] * 4


@pytest.mark.usefixtures("instrumented")
async def test_add_records_the_actions_of_the_service_and_batches_record_each_record(
    hosted: Hosted, recording: Recording
) -> None:
    await hosted.add("a", {"id": "r1", "event": "ADD", "memory": "one"}, {"id": "r2", "event": "ADD", "memory": "two"})
    changes = [{"id": "r1", "event": "UPDATE", "memory": "uno"}, {"id": "r2", "event": "DELETE", "memory": "two"}]
    await hosted.add("b", *changes)
    first, second = seen(recording, "upsert_memory")
    made = [(o["ref"], o["action"], len(o["sources"])) for o in second.outputs()]
    assert made == [("memory:r1", "UPDATE", 2), ("memory:r2", "DELETE", 2)]
    assert [i["origin"] for i in second.inputs("previous")] == [first.origin] * 2

    hosted.platform.answers["PUT", "/batch/"] = {"message": "ok"}
    hosted.platform.answers["DELETE", "/batch/"] = {"message": "ok"}
    await hosted.call("batch_update", [{"memory_id": "r1", "text": "eins"}, {"memory_id": "r3", "text": "drei"}])
    await hosted.call("batch_delete", [{"memory_id": "r1"}, {"memory_id": "r3"}])
    (updated,) = seen(recording, "update_memory")
    (deleted,) = seen(recording, "delete_memory")
    assert [(o["ref"], o["sources"]) for o in updated.outputs()] == [("memory:r1", [0, 1]), ("memory:r3", [2, 3])]
    assert [(o["ref"], o["action"], o["sources"]) for o in deleted.outputs()] == [
        ("memory:r1", "DELETE", [0]),
        ("memory:r3", "DELETE", [1]),
    ]
    assert updated.inputs("previous")[0]["origin"] == second.origin


@pytest.mark.usefixtures("instrumented")
async def test_an_add_that_the_service_only_queues_is_pending(hosted: Hosted, recording: Recording) -> None:
    await hosted.add("I live in Paris.", {"message": "queued", "status": "PENDING", "event_id": "e1"})
    (added,) = seen(recording)
    assert added.outputs() == []
    assert "pending" in added.attributes[semconv.INCOMPLETE]


@pytest.mark.usefixtures("instrumented")
async def test_bulk_deletes_record_tombstones(hosted: Hosted, recording: Recording) -> None:
    hosted.platform.answers["DELETE", "/memories/"] = {"message": "ok"}
    hosted.platform.answers["DELETE", "/entities/user/bob/"] = {"message": "ok"}
    hosted.platform.answers["GET", "/entities/"] = {"results": [{"type": "user", "name": "bob"}]}
    await hosted.add("a", {"id": "r1", "event": "ADD", "memory": "one"})
    await hosted.add("b", {"id": "r2", "event": "ADD", "memory": "two"}, user="bob")
    await hosted.call("delete_all", user_id="ann")
    await hosted.call("reset")
    parent, gone, *_ = seen(recording, "delete_memory")
    assert gone.parent == parent.origin
    assert [o["ref"] for o in gone.outputs()] == ["memory:r1"]
    (store,) = seen(recording, "delete_memory_store")
    tombstones = [o["ref"] for s in seen(recording) if s.trace_id == store.trace_id for o in s.outputs()]
    assert tombstones == ["memory:r2"]


@pytest.mark.parametrize("status", [401, 404])
async def test_an_error_of_the_service_passes_unchanged(hosted: Hosted, recording: Recording, status: int) -> None:
    async def failing() -> BaseException:
        hosted.platform.answers["GET", "/memories/r9/"] = (status, {"detail": "no"})
        with pytest.raises(Exception, match=r"no|Client error") as raised:
            await hosted.call("get", "r9")
        return raised.value

    untraced = await failing()
    Mem0Instrumentor().instrument(tracer_provider=recording.provider)
    try:
        traced = await failing()
    finally:
        Mem0Instrumentor().uninstrument()
    assert (type(traced), str(traced)) == (type(untraced), str(untraced))
    (span,) = seen(recording)
    assert span.span.status.status_code is StatusCode.ERROR
    assert span.attributes[semconv.ERROR_TYPE] == str(status)


async def test_the_program_sees_the_same(hosted: Hosted, recording: Recording) -> None:
    async def run() -> list[Any]:
        results = [await hosted.add("I live in Paris.", {"id": "r1", "event": "ADD", "memory": "Lives in Paris"})]
        results.append(await hosted.search("Where?", item("r1", "Lives in Paris", score=1)))
        for wrong in ((), ("",), ({"not": "a query"},)):
            try:
                results.append(await hosted.call("search", *wrong))
            except Exception as error:
                results.append([type(error).__qualname__, str(error)])
        asked, hosted.platform.asked = hosted.platform.asked, []
        return [*results, asked]

    hosted.platform.asked.clear()
    without = await run()
    Mem0Instrumentor().instrument(tracer_provider=recording.provider)
    try:
        assert await run() == without
    finally:
        Mem0Instrumentor().uninstrument()
    assert seen(recording)


@pytest.mark.usefixtures("instrumented")
async def test_options_objects(hosted: Hosted, recording: Recording) -> None:
    if IS_V1:  # they came with 2.x
        return
    from mem0.client.types import SearchMemoryOptions

    hosted.platform.answers["POST", "/memories/search/"] = {"results": []}
    await hosted.call("search", "Where?", SearchMemoryOptions(filters={"user_id": "ann"}, top_k=7))
    (search,) = seen(recording)
    assert search.attributes[semconv.GEN_AI_RETRIEVAL_TOP_K] == 7
    assert search.scope


@pytest.mark.usefixtures("instrumented")
async def test_an_unseen_record_gets_the_owner_in_the_reply_or_an_unknown_origin(
    hosted: Hosted, recording: Recording
) -> None:
    hosted.platform.answers["PUT", "/v1/memories/n9/"] = item("n9", "Likes coffee.")
    hosted.platform.answers["DELETE", "/v1/memories/n9/"] = {"message": "ok"}
    hosted.platform.answers["DELETE", "/v1/memories/n7/"] = {"message": "ok"}
    await hosted.call("update", "n9", text="Likes coffee.")
    await hosted.call("delete", "n9")
    await hosted.call("delete", "n7")
    updated, deleted, unknown = seen(recording)
    assert len({updated.attributes[semconv.SCOPE], deleted.attributes[semconv.SCOPE]} - {""}) == 1
    assert (
        semconv.INCOMPLETE not in deleted.attributes or "unknown_origin" not in deleted.attributes[semconv.INCOMPLETE]
    )
    assert "unknown_origin" in unknown.attributes[semconv.INCOMPLETE]


@pytest.mark.usefixtures("instrumented")
async def test_a_batch_does_not_give_one_record_the_owner_of_another(hosted: Hosted, recording: Recording) -> None:
    hosted.platform.answers["PUT", "/batch/"] = {"message": "ok"}
    hosted.platform.answers["DELETE", "/v1/memories/n9/"] = {"message": "ok"}
    await hosted.add("I like tea.", {"id": "r1", "event": "ADD", "memory": "Likes tea."})
    await hosted.call("batch_update", [{"memory_id": "r1", "text": "Tea."}, {"memory_id": "n9", "text": "Coffee."}])
    await hosted.call("delete", "n9")
    *_, batch, deleted = seen(recording)
    for span in (batch, deleted):
        assert "unknown_origin" in span.attributes[semconv.INCOMPLETE]
    assert semconv.SCOPE not in deleted.attributes
