"""Results, stored records, prompts and errors of Mem0 are equal with and without the instrumentor."""

from __future__ import annotations

import json
import re
import sqlite3
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import mem0.memory.main as main
import openai
import pytest
from opentelemetry.trace import StatusCode

from memtrace_otel import semconv
from memtrace_otel.capture import drops
from memtrace_otel.instrumentation.mem0 import Mem0Instrumentor, memory
from tests.conftest import Recording
from tests.integration.mem0.conftest import IS_FIRST_V2, IS_V1, Program, config, ids, open_program, seen
from tests.integration.model_stub import ModelStub

_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(\+00:00|Z)?")


class Hostile:
    """A value of the application that raises in every method that a tracer can call."""

    def __str__(self) -> str:
        raise RuntimeError("hostile")

    __repr__ = __str__

    def __bool__(self) -> bool:
        raise RuntimeError("hostile")


async def _run(kind: str, model: ModelStub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """All that a program can see of Mem0: results, errors, prompts, stored payloads, history rows."""
    numbers = iter(range(1, 10_000))
    monkeypatch.setattr(main, "uuid", SimpleNamespace(uuid4=lambda: UUID(int=next(numbers))))
    model.prompts.clear()
    folder.mkdir()
    program = await open_program(kind, config(model, folder))
    observed: list[Any] = []

    async def call(method: str, *args: Any, **kwargs: Any) -> Any:
        try:
            result = await program.call(method, *args, **kwargs)
        except Exception as error:
            result = [type(error).__qualname__, str(error)]
        if method == "history":  # the rows have random ids
            result = [{**row, "id": ""} for row in result]
        observed.append([method, result])
        return result

    photo = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    messages: list[Any] = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "I live in Paris. I play chess."},
        {"role": "assistant", "content": "Nice!", "name": "bot"},
        {"role": "user", "content": [{"type": "text", "text": "I like this."}, photo]},
        {"role": "assistant", "tool_calls": []},
    ]
    await call("add", messages, user_id="ann", metadata={"session": "s1", "timestamp": 1_770_000_000})
    await call("add", "I live in Paris. My dog is Rex.", user_id="ann", run_id="r1")
    await call("add", messages, user_id="ann", infer=False)
    model.script.append("no json at all")
    await call("add", "I like tea.", user_id="ann")
    model.script.append(400)
    await call("add", "I like tea.", user_id="ann")
    await call("add", "I like tea.")
    owner = {"user_id": "ann"} if IS_V1 else {"filters": {"user_id": "ann"}}
    found = await call("search", "Where do I live?", **owner)
    await call("search", "Where?", user_id="ann", filters={"user_id": "ann"}, threshold=0.9)
    await call("search", "", nonsense=1)
    id = found["results"][0]["id"]
    await call("get", id)
    await call("update", id, "I live in Lyon.")
    await call("update", "00000000-0000-0000-0000-00000000ffff", "nobody")
    await call("update")
    await call("history", id)
    await call("delete", found["results"][-1]["id"])
    await call("delete", found["results"][-1]["id"])
    await call("get_all", **owner)
    rows = program.memory.vector_store.client.scroll("memories", limit=1000, with_vectors=True)[0]
    observed.append([[str(row.id), row.payload, row.vector] for row in rows])
    with sqlite3.connect(folder / "history.db") as history:
        observed.append(
            history.execute("SELECT memory_id, old_memory, new_memory, event FROM history ORDER BY 1, 4").fetchall()
        )
    await call("delete_all", user_id="ann")
    await call("get_all", **owner)
    await call("reset")
    observed.append(list(model.prompts))
    program.memory.vector_store.client.close()
    return _TIME.sub("<time>", json.dumps(observed, indent=1, default=str))


@pytest.mark.parametrize("kind", ["Memory", "AsyncMemory"])
@pytest.mark.parametrize("content", ["NO_CONTENT", "SPAN_ONLY"])
async def test_results_are_equal_with_and_without_the_instrumentor(
    kind: str, content: str, model: ModelStub, recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", content)
    before = drops.copy()
    without = await _run(kind, model, tmp_path / "without", monkeypatch)
    Mem0Instrumentor().instrument(tracer_provider=recording.provider)
    try:
        observed = await _run(kind, model, tmp_path / "with", monkeypatch)
    finally:
        Mem0Instrumentor().uninstrument()
    assert observed == without
    assert "I live in Lyon." in observed
    assert len(seen(recording)) > 30
    assert drops == before  # and nothing of ours failed on the way


async def test_an_error_of_the_store_passes_unchanged_and_is_recorded(
    program: Program, instrumented: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = ConnectionError("store is away")

    def failing(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise failure

    monkeypatch.setattr(type(program.memory.vector_store), "search", failing)
    with pytest.raises(ConnectionError) as raised:
        await program.search("Where do I live?")
    assert raised.value is failure
    assert "failing" in [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert failure.__cause__ is None
    (search,) = seen(instrumented, "search_memory")
    assert search.span.status.status_code is StatusCode.ERROR
    assert search.span.status.description == "ConnectionError"  # the message may hold content
    assert search.attributes[semconv.ERROR_TYPE] == "ConnectionError"
    assert search.outputs() == []
    assert search.inputs("query")


async def test_an_error_of_the_model_passes_unchanged_and_is_recorded(
    program: Program, instrumented: Recording, model: ModelStub
) -> None:
    model.script.append(400)
    if IS_FIRST_V2:  # logs the error and goes on without facts
        assert (await program.call("add", "I live in Paris.", user_id="ann"))["results"] == []
        (extract,) = seen(instrumented, "memtrace.extract")
        assert extract.span.status.status_code is StatusCode.ERROR
        return
    with pytest.raises(Exception, match="scripted failure") as raised:
        await program.call("add", "I live in Paris.", user_id="ann")
    error = raised.value if IS_V1 else raised.value.__cause__
    assert isinstance(error, openai.BadRequestError)
    (extract,) = seen(instrumented, "memtrace.extract")
    (upsert,) = seen(instrumented, "upsert_memory")
    assert [span.span.status.status_code for span in (extract, upsert)] == [StatusCode.ERROR] * 2
    assert extract.attributes[semconv.ERROR_TYPE] == "BadRequestError"
    assert upsert.attributes[semconv.ERROR_TYPE] == type(raised.value).__qualname__
    assert extract.inputs("message")
    await program.call("add", "I live in Paris.", user_id="ann")
    assert seen(instrumented, "upsert_memory")[1].trace_id != upsert.trace_id  # the context was given back


async def test_a_value_that_cannot_be_serialised_marks_the_operation(program: Program, instrumented: Recording) -> None:
    message = {"role": "user", "content": "I live in Paris.", "id": Hostile(), "timestamp": Hostile()}
    added = ids(await program.call("add", [message], user_id="ann"))
    assert list(added) == ["I live in Paris."]
    (upsert,) = seen(instrumented, "upsert_memory")
    assert semconv.Incomplete.GUARD in upsert.attributes[semconv.INCOMPLETE]
    assert upsert.span.status.status_code is StatusCode.UNSET


async def test_a_fault_in_a_step_changes_no_result(
    program: Program, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    def buggy(*_: object) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(memory, "record_of", buggy)
    Mem0Instrumentor().instrument(tracer_provider=recording.provider)
    try:
        await program.call("add", "I live in Paris.", user_id="ann")
        assert len((await program.search("Paris"))["results"]) == 1
    finally:
        Mem0Instrumentor().uninstrument()
    (search,) = seen(recording, "search_memory")
    assert search.attributes[semconv.INCOMPLETE] == (semconv.Incomplete.GUARD, "content_off")
    assert search.span.status.status_code is StatusCode.UNSET
    assert drops["error:mem0.search"]


async def test_the_statistics_store_of_mem0_is_not_recorded(program: Program, instrumented: Recording) -> None:
    """Mem0 has a second store of the same class for its statistics, and uses this store during a call."""
    id = ids(await program.call("add", "I live in Paris.", user_id="ann"))["I live in Paris."]
    store = program.memory.vector_store
    other = type(store)("mem0migrations", 4, client=store.client)

    class Busy:
        def rerank(self, query: str, documents: list[Any], top_k: int | None = None) -> list[Any]:
            other.insert([[1.0, 0.0, 0.0, 0.0]], [{"data": "statistics"}], [id.replace(id[:8], "00000000")])
            assert other.search("statistics", [1.0, 0.0, 0.0, 0.0])
            return documents

    program.memory.reranker = Busy()
    recorded = len(seen(instrumented, "create_memory"))
    await program.search("Paris", rerank=True)
    assert len(seen(instrumented, "create_memory")) == recorded
    assert [item["ref"] for item in seen(instrumented, "search_memory")[0].inputs("candidate")] == [f"memory:{id}"]
