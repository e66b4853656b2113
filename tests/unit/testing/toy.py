"""A small memory system, its instrumentor, and careless instrumentors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from memtrace_otel.capture import guard, scope_id, variable_ref
from memtrace_otel.instrumentation.base import MemoryInstrumentor, Patches
from memtrace_otel.instrumentation.steps import Call, Step
from memtrace_otel.model import make_ref
from memtrace_otel.semconv import Action, OpKind, RefKind, Role


class ToyMemory:
    """Keeps texts by number."""

    def __init__(self) -> None:
        self.records: dict[int, str] = {}
        self.on_add: Callable[[], None] = lambda: None

    def add(self, text: str) -> int:
        if not text:
            raise ValueError("nothing to remember")
        self.records[len(self.records)] = text
        self.on_add()
        return len(self.records) - 1

    def search(self, query: str) -> list[int]:
        words = set(query.lower().split())
        return [id for id, text in self.records.items() if words & set(text.lower().split())]

    async def wait(self, over: asyncio.Event | None = None) -> None:
        await (over or asyncio.Event()).wait()


class ToyProgram:
    """`Program` over one `ToyMemory`."""

    def __init__(self) -> None:
        self.memory = ToyMemory()

    async def write(self, text: str) -> object:
        return self.memory.add(text)

    async def read(self, query: str) -> object:
        return self.memory.search(query)

    async def fail(self) -> object:
        return self.memory.add("")

    async def reenter(self, text: str, query: str) -> object:
        found: list[object] = []
        self.memory.on_add = lambda: found.append(self.memory.search(query))
        return self.memory.add(text), found

    async def hang(self) -> object:
        return await self.memory.wait()

    async def explore(self) -> object:
        over = asyncio.Event()
        over.set()
        return await self.memory.wait(over)

    async def close(self) -> None:
        pass


def ref(memory: ToyMemory, id: int) -> str:
    return make_ref(RefKind.MEMORY, f"{id}")


def scope(memory: ToyMemory) -> str:
    return scope_id("toy", user=id(memory))


def add(call: Call[Patches]) -> Step:
    operation = call.open("create_memory", OpKind.CREATE, scope=scope(call.instance))
    text = call.arguments()["text"]
    operation.read(variable_ref(RefKind.MESSAGE, text), role=Role.MESSAGE, content=text)
    made = yield
    operation.wrote(ref(call.instance, made), action=Action.ADD, content=text)


def search(call: Call[Patches]) -> Step:
    operation = call.open("search_memory", OpKind.RETRIEVE, scope=scope(call.instance))
    query = call.arguments()["query"]
    operation.read(variable_ref(RefKind.QUERY, query), role=Role.QUERY, content=query)
    found = yield
    for id in found:
        operation.read(ref(call.instance, id), role=Role.HIT, content=call.instance.records[id])


def wait(call: Call[Patches]) -> Step:
    call.open(None, OpKind.OTHER, scope=scope(call.instance))
    yield


class ToyInstrumentor(MemoryInstrumentor):
    system = "toy"
    requirement = "pytest"

    def patch(self, patches: Patches) -> None:
        patches.wrap_all(ToyMemory, {"add": add, "search": search, "wait": wait})


class CarelessInstrumentor(MemoryInstrumentor):
    """Shows contents, changes results and raises its own errors."""

    system = "careless"
    requirement = "pytest"

    def patch(self, patches: Patches) -> None:
        search = ToyMemory.search

        def careless(memory: ToyMemory, query: str) -> Any:
            operation = patches.tracer.start_span(f"search {query}")
            operation.set_attribute("memtrace.op.kind", "find")
            operation.end()
            return [*search(memory, query), "a span"]

        patches.replace(ToyMemory, "search", careless)


def note(noted: list[str], query: str) -> None:
    noted.append(query)


def count(noted: list[str]) -> int:
    return len(noted)


class UnguardedInstrumentor(MemoryInstrumentor):
    """One function runs under a guard, another function does not."""

    system = "unguarded"
    requirement = "pytest"

    def patch(self, patches: Patches) -> None:
        search, noted = ToyMemory.search, list[str]()

        def unguarded(memory: ToyMemory, query: str) -> Any:
            with guard("unguarded"):
                note(noted, query)
            count(noted)
            return search(memory, query)

        patches.replace(ToyMemory, "search", unguarded)
