"""All of EverOS with faults in our steps: results stay the same.

The recorded spans differ from run to run here, because background work overtakes other work. So test_contract.py tests
the recorded spans.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from memtrace_otel.instrumentation.everos import EverosInstrumentor
from tests.harness import HarmlessContract
from tests.integration.everos.conftest import HAS_QUEUE
from tests.integration.everos.host import Everos, until
from tests.integration.everos.models import EverosModels
from tests.integration.everos.test_agents import METHODS as AGENT_METHODS
from tests.integration.everos.test_agents import trajectory
from tests.integration.everos.test_contract import Diary
from tests.integration.everos.test_search import METHODS

QUESTION = "Where does the cat sleep?"


@pytest.fixture(scope="module")
def everos(models: EverosModels, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Everos]:
    """With all strategies, those of agents too, and with a tracer provider of its own."""
    folder = tmp_path_factory.mktemp("everos") / "store"
    provider = sys.modules.get("everos.core.observability.tracing.provider")
    with pytest.MonkeyPatch.context() as patched:
        if provider is not None:
            patched.setattr(provider, "BatchSpanProcessor", lambda _: SimpleSpanProcessor(InMemorySpanExporter()))
        observed = {"EVEROS_OBSERVABILITY__ENABLED": "true", "EVEROS_OBSERVABILITY__EXPORTER": "otlp_http"}
        with Everos(folder, models, EVEROS_MEMORIZE__MODE="agent", **observed) as everos:
            yield everos


class Life(Diary):
    """A user and an agent who use all of EverOS."""

    async def explore(self) -> object:
        models, ann, seen = self.everos.models, self.memory, list[object]()
        for method in METHODS:
            seen.append(_told(await ann.search(QUESTION, method=method)))
        models.enough = False
        seen.append(_told(await ann.search(QUESTION, method="agentic")))
        models.enough = True
        seen += [_told(await ann.get()), await self._agent(), await self._by_hand(), await self._failures()]
        if HAS_QUEUE:
            messages = [ann.turn("I live in Paris.")]
            queued = await self.everos.post("add", session_id="queued", messages=messages, async_mode=True)
            await until(lambda: any("I live in Paris." in prompt for prompt in models.prompts))
            await self.everos.settled()
            seen.append(sorted(queued))
        return seen

    async def _agent(self) -> object:
        """Two cases in one cluster. The second case renames the skill of the first case."""
        agent, models, seen = f"agent-of-{self.memory.user}", self.everos.models, list[object]()
        for number in range(2):
            if number:
                lesson = {"name": "mend builds", "description": "Find out why a build broke and mend it at once"}
                models.by_kind["skill"] = [{"operations": [{"action": "update", "index": 0, "data": lesson}]}]
            session = f"{self.memory.user}-work-{number}"
            await self.everos.post("add", session_id=session, messages=trajectory(self.memory, agent))
            await self.memory.flush(session)
            await self.everos.settled()
            models.by_kind.clear()
        for method in AGENT_METHODS:
            found = await self.memory.search("How do I repair a build?", method=method, agent_id=agent)
            seen.append([sorted(case["task_intent"] for case in found["agent_cases"]), len(found["agent_skills"])])
        return seen

    async def _by_hand(self) -> object:
        """A file is edited, an entry removed, a file deleted."""
        (episodes, *_), (facts, *_) = self.memory.files("episodes"), self.memory.files(".atomic_facts")
        first = re.compile(r"<!-- entry:(\w+) -->.*?<!-- /entry:\1 -->\n?", re.DOTALL)
        episodes.write_text(first.sub("", episodes.read_text().replace("garden", "park"), count=1))
        facts.unlink()
        await self.everos.settled()
        return _told(await self.memory.get())

    async def _failures(self) -> object:
        """A strategy that gives up, and a session whose messages cannot be understood."""
        models, statuses = self.everos.models, list[object]()
        models.by_kind["facts"] = ["no JSON"] * 9
        await self.memory.tell("I like tea.", session=f"{self.memory.user}-tea")
        for number in range(3):
            models.by_kind["boundary"] = ["no JSON at all"] * 3
            try:
                statuses.append(await self.memory.add(f"Unclear {number}.", session=f"{self.memory.user}-unclear"))
            except RuntimeError as error:
                statuses.append(str(error)[:3])
        models.by_kind.clear()
        return statuses


def _told(found: Any) -> list[str]:
    return sorted(re.sub(r"\bAnn\d+", "Ann", episode["episode"]) for episode in found["episodes"])


class TestEverything(HarmlessContract):
    instrumentor = EverosInstrumentor
    outcomes = 4
    one_untraced_run = True

    @pytest.fixture
    def program(self, everos: Everos, no_token_counts: None) -> Iterator[Callable[[], Life]]:
        yield lambda: Life(everos)
        everos.models.by_kind.clear()
        everos.models.enough = True
        asyncio.run(everos.settled())
