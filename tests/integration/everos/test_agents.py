"""Agent mode: cases from trajectories, and skills from cases."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Iterator
from typing import Any

import pytest

from memtrace_otel.graph import VersionKey
from tests.conftest import Recording
from tests.integration.everos.conftest import inputs, outputs, recorded
from tests.integration.everos.host import Everos, Memory
from tests.integration.everos.models import EverosModels

_MARKDOWN = "everos.infra.persistence.markdown.writers"
METHODS = ["hybrid", "keyword", "vector"]
if importlib.metadata.version("everos") >= "1.5":  # older releases raise a TypeError
    METHODS.append("agentic")
RENAMES_SKILLS = hasattr(importlib.import_module(f"{_MARKDOWN}.agent_skill_writer").AgentSkillWriter, "delete_skill")

pytestmark = pytest.mark.usefixtures("instrumented")


@pytest.fixture(scope="module")
def everos(models: EverosModels, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Everos]:
    with Everos(tmp_path_factory.mktemp("everos") / "store", models, EVEROS_MEMORIZE__MODE="agent") as everos:
        yield everos


def trajectory(ann: Memory, agent: str) -> list[dict[str, Any]]:
    """A request, three rounds of tool calls, the outcome."""
    turns = [ann.turn("The build is broken, please repair it.")]
    for number in range(3):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "sh", "arguments": f'{{"n": {number}}}'}}
        turns += [
            ann.turn("> Looking.") | {"sender_id": agent, "tool_calls": [call]},
            ann.turn(f"> log {number}") | {"role": "tool", "sender_id": "sh", "tool_call_id": f"c{number}"},
        ]
    return [*turns, ann.turn("> I pinned the dependency, the build is green.") | {"sender_id": agent}]


async def test_a_trajectory_becomes_a_case_and_a_skill(
    everos: Everos, ann: Memory, recording: Recording, content_on: None
) -> None:
    agent = f"agent-of-{ann.user}"
    await everos.post("add", session_id=ann.session, messages=trajectory(ann, agent))
    await ann.flush()
    await everos.settled()
    for method in METHODS:
        await ann.search("How do I repair a broken build?", method=method, agent_id=agent)
    seen = recorded(recording)

    (extraction,) = (span for span in seen.all("extract_agent_case") if span.kind == "extract")
    assert ["broken" in v.content for v in inputs(extraction, "message")] == [True, *[False] * 7]
    assert inputs(extraction, kind="state:mc_")[0].origin
    case = next(span for span in seen.named("create_memory") if span.outputs[0].ref.startswith("memory:ac_"))
    assert [(v.ref, v.origin) for v in case.inputs] == [(outputs(extraction, "fact")[0].ref, extraction.origin)]

    clustering = next(span for span in seen.all("clustering") if span.scope == case.scope)
    assert [v.origin for v in inputs(clustering, kind="memory:")] == [case.origin]

    (lesson,) = (span for span in seen.all("extract_agent_skill") if span.kind == "extract")
    (skill,) = (span for span in seen.all("extract_agent_skill") if span.name == "upsert_memory")
    assert (case.outputs[0].ref, case.origin) in [(v.ref, v.origin) for v in lesson.inputs]
    assert [(v.ref, v.origin) for v in skill.inputs] == [(outputs(lesson, "fact")[0].ref, lesson.origin)]
    assert skill.outputs[0].action == "ADD"

    indexed = {(v.ref, v.origin) for span in seen.all("cascade") for v in span.inputs}
    assert {(written.outputs[0].ref, written.origin) for written in (case, skill)} <= indexed

    for search in seen.named("search_memory"):
        assert search.scope == case.scope
        assert {v.origin for v in inputs(search, "hit")} == {case.origin, skill.origin}, search.attributes
        digests = {v.ref: v.digest for v in inputs(search, "hit")}
        assert digests[case.outputs[0].ref] == case.outputs[0].digest
        assert digests[skill.outputs[0].ref] == skill.outputs[0].digest


async def test_a_skill_that_gets_another_name_leaves_a_tombstone(
    everos: Everos, ann: Memory, recording: Recording
) -> None:
    if not RENAMES_SKILLS:
        return
    agent = f"agent-of-{ann.user}"
    for number in range(2):
        if number:
            lesson = {"name": "mend builds", "description": "Find out why a build broke and mend it at once"}
            everos.models.by_kind["skill"] = [{"operations": [{"action": "update", "index": 0, "data": lesson}]}]
        session = f"{ann.session}-{number}"
        await everos.post("add", session_id=session, messages=trajectory(ann, agent))
        await ann.flush(session)
        await everos.settled()
    seen = recorded(recording)
    first, second = (span for span in seen.all("extract_agent_skill") if span.name == "upsert_memory")
    gone = seen.one("reap_renamed_skill")
    (previous,), (tombstone,) = inputs(gone, "previous"), outputs(gone)
    assert (gone.name, tombstone.action, tombstone.ref) == ("delete_memory", "DELETE", first.outputs[0].ref)
    assert (previous.ref, previous.origin) == (first.outputs[0].ref, first.origin)
    assert second.outputs[0].ref != first.outputs[0].ref
    assert seen.graph.is_tombstone(VersionKey(tombstone.ref, gone.origin))
