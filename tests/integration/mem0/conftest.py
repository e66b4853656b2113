"""A real Mem0 (the major installed here) on a scripted model server and an embedded Qdrant."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partialmethod
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import posthog
import pytest

os.environ["MEM0_TELEMETRY"] = "False"  # read when mem0 is imported
os.environ["MEM0_DIR"] = (
    _home := TemporaryDirectory(ignore_cleanup_errors=True)
).name  # two runs must not share a folder

import mem0.memory.main as main

from memtrace_otel import semconv
from memtrace_otel.capture import read_config, use_config
from memtrace_otel.instrumentation.mem0 import Mem0Instrumentor
from tests.conftest import Recording
from tests.integration.model_stub import DIMENSIONS, ModelStub

# Mem0 1.x makes a client of PostHog per call, with telemetry off too; each would leave a thread that polls for ever.
posthog.Posthog.__init__ = partialmethod(posthog.Posthog.__init__, sync_mode=True)  # type: ignore[method-assign]

IS_V1 = not hasattr(main, "generate_additive_extraction_prompt")
IS_FIRST_V2 = version("mem0ai") == "2.0.0"
_OF_V1 = ["test_v1.py", "test_conformance.py", "test_graph_memory.py", "test_graph_harmless.py"]
_OF_V2 = ["test_v2.py", "test_search_v2.py", "test_example.py"]
collect_ignore = _OF_V2 if IS_V1 else _OF_V1


class Program:
    """An application that uses Mem0, sync or async: `await program.call("add", ...)`."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        result = getattr(self.memory, method)(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    async def search(self, query: str, user: str = "ann", **kwargs: Any) -> Any:
        owner = {"user_id": user} if IS_V1 else {"filters": {"user_id": user}}
        return await self.call("search", query, **owner, **kwargs)

    async def get_all(self, user: str = "ann") -> Any:
        return await self.call("get_all", **({"user_id": user} if IS_V1 else {"filters": {"user_id": user}}))


@pytest.fixture(autouse=True)
def langchain_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """AsyncMemory imports this for procedural memory, and uses this only with a model of LangChain."""
    if importlib.util.find_spec("langchain_core") is None:
        names = ("langchain_core", "langchain_core.messages", "langchain_core.messages.utils")
        for name in names:
            monkeypatch.setitem(sys.modules, name, SimpleNamespace(convert_to_messages=None))


@pytest.fixture
def model() -> Iterator[ModelStub]:
    with ModelStub() as stub:
        yield stub


STORES = ("qdrant", "faiss", "chroma")


def config(model: ModelStub, folder: Path, collection: str = "memories", store: str = "qdrant") -> dict[str, Any]:
    """A Mem0 configuration that reaches nothing but the stub and `folder`."""
    llm = {"model": "stub", "api_key": "none", "openai_base_url": model.url}
    place = {"path": str(folder / store), "collection_name": collection}
    sized = {"qdrant": {"on_disk": True}, "faiss": {"distance_strategy": "cosine"}, "chroma": {}}[store]
    if store != "chroma":
        sized["embedding_model_dims"] = DIMENSIONS
    return {
        "llm": {"provider": "openai", "config": dict(llm)},
        "embedder": {"provider": "openai", "config": llm | {"embedding_dims": DIMENSIONS}},
        "vector_store": {"provider": store, "config": place | sized},
        "history_db_path": str(folder / "history.db"),
    }


async def open_program(kind: str, configuration: dict[str, Any]) -> Program:
    memory = getattr(main, kind).from_config(configuration)
    memory = await memory if inspect.isawaitable(memory) else memory
    serialise(memory)
    return Program(memory)


def serialise(memory: Any) -> None:
    """Let embedded stores serve several memories and threads in one process."""
    if hasattr(getattr(memory.vector_store, "client", None), "upsert"):
        _one_at_a_time(memory.vector_store.client)
    statistics = getattr(memory, "_telemetry_vector_store", None)  # 1.0.0 opens and locks this store with telemetry off
    close = getattr(getattr(statistics, "client", None), "close", None)
    if close is not None:
        close()


def _one_at_a_time(client: Any) -> None:
    """Embedded Qdrant loses records when threads write at once, as those of AsyncMemory 1.x do."""
    lock = threading.RLock()

    def locked(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with lock:
                return method(*args, **kwargs)

        return call

    for name in ("upsert", "query_points", "delete", "retrieve", "scroll", "set_payload"):
        setattr(client, name, locked(getattr(client, name)))


def payloads(program: Program) -> list[dict[str, Any]]:
    """The content of the store, read without Mem0 and without the instrumentor."""
    store = program.memory.vector_store
    if hasattr(store, "docstore"):
        return list(store.docstore.values())
    if hasattr(store, "collection"):
        return list(store.collection.get()["metadatas"])
    return [row.payload for row in store.client.scroll("memories", limit=1000)[0]]


@pytest.fixture
def content_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contents are captured, and the long prompts of Mem0 stay on one span."""
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")
    monkeypatch.setenv("MEMTRACE_SPAN_BYTES", "500000")
    use_config(read_config())


@pytest.fixture
def instrumented(recording: Recording) -> Iterator[Recording]:
    Mem0Instrumentor().instrument(tracer_provider=recording.provider)
    yield recording
    Mem0Instrumentor().uninstrument()


@pytest.fixture(params=["Memory", "AsyncMemory"])
async def program(request: pytest.FixtureRequest, model: ModelStub, tmp_path: Path, recording: Recording) -> Program:
    made = await open_program(request.param, config(model, tmp_path))
    recording.clear()  # create_memory_store
    return made


class Seen:
    """A finished span read by the wire contract."""

    def __init__(self, span: Any) -> None:
        self.span = span
        self.name: str = span.name
        self.attributes: dict[str, Any] = dict(span.attributes)
        self.kind: str = self.attributes[semconv.OP_KIND]
        self.scope: str = self.attributes.get(semconv.SCOPE, "")
        self.trace_id = f"{span.context.trace_id:032x}"
        self.origin = f"{self.trace_id}-{span.context.span_id:016x}"
        self.parent = f"{self.trace_id}-{span.parent.span_id:016x}" if span.parent else ""

    def inputs(self, role: str | None = None) -> list[dict[str, Any]]:
        """Inputs as dicts with ref, role, origin, digest, content, score."""
        found = self._columns(semconv.INPUTS, ("roles", "origins", "digests", "contents", "scores"))
        return [item for item in found if role is None or item["role"] == role]

    def outputs(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Outputs as dicts with ref, action, digest, content, size, sources (indices of the inputs)."""
        found = self._columns(semconv.OUTPUTS, ("roles", "actions", "digests", "sizes", "contents"))
        flow = [tuple(map(int, pair.split(">"))) for pair in self.attributes.get(semconv.FLOW, ())]
        times = self.attributes.get(semconv.EVENT_TIME, [""] * len(found))
        for number, item in enumerate(found):
            item["sources"] = [i for i, o in flow if o == number] if flow else list(range(len(self.inputs())))
            item["event_time"] = times[number]
        return [item for item in found if kind is None or item["ref"].startswith(f"{kind}:")]

    def _columns(self, name: str, columns: tuple[str, ...]) -> list[dict[str, Any]]:
        refs = self.attributes.get(name, ())
        rows = [{"ref": ref} for ref in refs]
        for column in columns:
            values = self.attributes.get(f"{name}.{column}", [None] * len(refs))
            for row, value in zip(rows, values, strict=True):
                row[column.removesuffix("s")] = value
        return rows


def seen(recording: Recording, name: str | None = None) -> list[Seen]:
    """The finished spans in order of start; with `name` the spans of this name."""
    return [Seen(span) for span in recording.spans() if name in (None, span.name)]


def ids(result: Any) -> dict[str, str]:
    """Record ids of a result by memory text."""
    return {item["memory"]: item["id"] for item in result["results"]}


def shown(prompt: str) -> dict[str, str]:
    """Temporary ids by text of the memories in a decision prompt of 1.x."""
    blocks = re.findall(r"```\s*(\[.*?\])\s*```", prompt.split("current content")[-1], re.DOTALL)
    return {item["text"]: item["id"] for item in ast.literal_eval(blocks[0])}


def tree(recording: Recording) -> list[str]:
    """One line per span, indented under its parent, in order of start."""
    spans = seen(recording)
    by_parent: dict[str, list[Seen]] = {}
    known = {span.origin for span in spans}
    for span in spans:
        by_parent.setdefault(span.parent if span.parent in known else "", []).append(span)

    def lines(parent: str, depth: int) -> Iterator[str]:
        for span in by_parent.get(parent, []):
            yield "  " * depth + span.name
            yield from lines(span.origin, depth + 1)

    return list(lines("", 0))
