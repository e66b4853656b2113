"""Graph memory of Mem0 1.x with faults in our steps: results stay the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memtrace_otel.instrumentation.mem0 import Mem0Instrumentor
from tests.harness import HarmlessContract
from tests.integration.mem0.conftest import config
from tests.integration.mem0.test_contract import Notebook, plain
from tests.integration.mem0.test_graph_memory import GRAPH, TOOLS, ToolHandler, script
from tests.integration.model_stub import ModelStub

CITIES = {"cat": "sofa", "dog": "garden"}


class Relations(Notebook):
    """A program that stores the homes of people."""

    async def write(self, text: str) -> object:
        script(next(place for word, place in CITIES.items() if word in text))
        return plain(await self.call("add", text, user_id="ann"))

    async def read(self, query: str) -> object:
        script()
        return plain(await self.call("search", query, user_id="ann"))

    async def fail(self) -> object:
        TOOLS.clear()
        return await super().fail()

    async def explore(self) -> object:
        """A relation replaces another relation, is deleted with its memory, and with its owner."""
        script("Rome", old="sofa")
        seen = [await self.call("add", "I moved to Rome.", user_id="ann")]
        seen.append(sorted(item["target"] for item in (await self.call("get_all", user_id="ann"))["relations"]))
        script("Rome")
        kept = await self.call("add", "I live in Rome.", user_id="ann", infer=False)
        await self.call("delete", kept["results"][0]["id"])
        TOOLS.clear()
        seen.append(sorted(item["target"] for item in (await self.call("get_all", user_id="ann"))["relations"]))
        seen += [await self.call("delete_all", user_id="ann"), (await self.call("get_all", user_id="ann"))["relations"]]
        return plain(seen)


@pytest.mark.parametrize("kind", ["Memory", "AsyncMemory"])
class TestGraph(HarmlessContract):
    instrumentor = Mem0Instrumentor

    @pytest.fixture
    def program(self, kind: str, tmp_path: Path) -> Iterator[Any]:
        opened = iter(range(1_000))
        with ModelStub() as model:
            model.RequestHandlerClass = ToolHandler

            def fresh() -> Notebook:
                folder = tmp_path / str(next(opened))
                folder.mkdir()
                return Relations(kind, config(model, folder) | GRAPH, model)

            yield fresh
