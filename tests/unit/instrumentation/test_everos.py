"""The EverOS instrumentor without an EverOS: values as variables, where names are wrapped, whose spans go where."""

from __future__ import annotations

import asyncio
import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.instrumentation.utils import is_instrumentation_enabled, suppress_instrumentation

from memtrace_otel.instrumentation.everos import POINTS, contexts
from memtrace_otel.instrumentation.everos.contexts import Queues
from memtrace_otel.instrumentation.everos.state import EverosPatches
from memtrace_otel.instrumentation.everos.values import (
    Cell,
    Space,
    candidate_ref,
    entry_text,
    message_ref,
    message_text,
    profile_text,
    record_text,
    row_ref,
    space_of,
)
from tests.conftest import Recording


@pytest.fixture
def patches(recording: Recording) -> EverosPatches:
    return EverosPatches(recording.tracer)


def test_scopes_differ_by_space_and_kind_of_owner() -> None:
    space = space_of({"app_id": "shop", "project_id": None})
    assert space == Space("shop", "default")
    scopes = {space.owner("ann"), space.owner("ann", "agents"), space.session("ann"), Space().owner("ann")}
    assert len(scopes) == 4
    assert space.owner("ann", "users") == space.owner("ann")
    assert space.owner("ann", "agent") == space.owner("ann", "agents")


def test_a_session_in_use_is_not_forgotten(patches: EverosPatches, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memtrace_otel.instrumentation.everos.state._REMEMBERED", 2)
    space, said = Space(), {name: [{"role": "user", "sender_id": name}] for name in ("ann", "bob", "eve")}
    for session in ("ann", "bob", "ann", "eve"):
        assert patches.scope_of_session(space, session, said[session]) == space.owner(session)
    assert patches.scope_of_session(space, "ann", []) == space.owner("ann")
    assert patches.scope_of_session(space, "bob", []) == space.session("bob")


def test_a_file_in_use_is_not_forgotten(patches: EverosPatches, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memtrace_otel.instrumentation.everos.state._REMEMBERED", 2)
    patches.indexed("a.md").add("ep_1")
    for path in ("b.md", "a.md", "c.md"):
        patches.indexed(path)
    assert patches.indexed("a.md") == {"ep_1"}


def test_rows_and_candidates_have_the_ref_of_their_entry() -> None:
    assert row_ref("ann_lee_ep_20260101_00000001", "ann_lee") == "memory:ep_20260101_00000001"
    row = SimpleNamespace(id="ann_ep_1", metadata={"entry_id": "ep_1", "owner_id": "ann"})
    assert candidate_ref(row) == "memory:ep_1"
    skill = SimpleNamespace(id="bob_repair", metadata={"owner_id": "bob"})
    assert candidate_ref(skill) == "memory:repair"


def test_the_text_of_an_entry_is_equal_in_file_and_result() -> None:
    assert (
        entry_text({"Subject": "s", "Content": " told \n"})
        == record_text({"episode": "told", "summary": "x"})
        == "told"
    )
    assert entry_text({"TaskIntent": "a", "Approach": "b", "KeyInsight": "c"}) == record_text(
        SimpleNamespace(task_intent="a", approach="b ")
    )
    shaped = SimpleNamespace(metadata={"episode": {"subject": "s", "content": "told"}})
    assert record_text(shaped) == "told"
    assert entry_text({"Something": "new"}) == "new"
    assert record_text(SimpleNamespace()) == ""


def test_profiles_with_equal_contents_have_equal_texts() -> None:
    stored = {"summary": "s", "explicit_info": [{"b": 1, "a": 2}], "implicit_traits": [], "profile_timestamp_ms": 7}
    written = SimpleNamespace(summary="s", explicit_info=[{"a": 2, "b": 1}], implicit_traits=None)
    assert profile_text(stored) == profile_text(written)
    assert json.loads(profile_text(stored))["summary"] == "s"


def test_messages_without_an_id_are_named_by_their_text() -> None:
    assert message_ref("m 1", "x") == "message:m%201"
    assert message_ref(None, "x") == message_ref("", "x") != message_ref(None, "y")
    parts = SimpleNamespace(content=[SimpleNamespace(text="a"), {"text": "b"}, SimpleNamespace(url="u")])
    assert message_text(parts) == "a b "
    assert message_text(SimpleNamespace(content=None)) == ""


def test_the_owner_of_a_session_is_its_first_user(patches: EverosPatches) -> None:
    space, bot = Space(), {"role": "assistant", "sender_id": "bot"}
    ann, bob = {"role": "user", "sender_id": "ann"}, {"role": "user", "sender_id": "bob"}
    assert patches.scope_of_session(space, "s", [bot]) == space.session("s")
    assert patches.scope_of_session(space, "s", [bot, ann, bob]) == space.owner("ann")
    assert patches.scope_of_session(space, "s", [bob]) == space.owner("ann")
    assert patches.scope_of_session(space, "t", [bob]) == space.owner("bob")


def test_memcells_are_recognised_by_their_content(patches: EverosPatches) -> None:
    cell = Cell("mc_1", "scope", ("m1",))
    patches.learn_cell('{"items": []}', cell)
    assert patches.cell_of(SimpleNamespace(model_dump_json=lambda: '{"items": []}')) is cell
    assert patches.cell_of(SimpleNamespace(model_dump_json=lambda: "{}")) is None
    assert cell.ref == "state:mc_1"


def test_every_point_names_a_function_or_a_method() -> None:
    targets = [target for steps in POINTS.values() for target in steps]
    assert len(targets) > 40
    assert all(target.count(".") <= 1 for target in targets)
    assert all(module.split(".")[0] in ("everos", "everalgo") for module in POINTS)


def module_of(name: str, monkeypatch: pytest.MonkeyPatch, **names: Any) -> Any:
    module: Any = ModuleType(name)
    vars(module).update(names)
    monkeypatch.setitem(sys.modules, name, module)
    return module


def test_a_function_is_wrapped_once_in_every_module_that_imports_it(
    patches: EverosPatches, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work() -> str:
        return "done"

    calls: list[str] = []

    def step(call: Any) -> Any:
        calls.append(call.wrapped.__name__)
        yield

    definition = module_of("memtrace_tests_definition", monkeypatch, work=work)
    taken = module_of("memtrace_tests_taken", monkeypatch, work=work)
    patches.wrap(definition, "work", step)
    late = module_of("memtrace_tests_late", monkeypatch, work=definition.work)
    patches.wrap_importers(definition.__name__, "work", step, [taken.__name__, late.__name__])
    for module in (definition, taken, late):
        assert module.work() == "done"
    assert calls == ["work"] * 3
    patches.remove()
    assert taken.work is work
    assert (definition.work(), late.work()) == ("done", "done")
    assert calls == ["work"] * 3


def test_deferred_work_runs_in_the_context_of_its_submitter(
    patches: EverosPatches, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, bool, int]] = []

    def note(id: str) -> None:
        seen.append((id, is_instrumentation_enabled(), trace.get_current_span().get_span_context().span_id))

    class OfflineEngine:
        def _enqueue_run(self, meta: str, event: str, run_id: str) -> str:
            return run_id

    class Runner:
        async def run(self, meta: str, event: str, *, run_id: str) -> None:
            note(run_id)

    class MemorizeQueueWorker:
        async def enqueue(self, payload: str, *, request_id: str) -> int:
            return 1

        async def _process(self, row: Any) -> None:
            note(row.request_id)

    module_of(contexts.ENGINE, monkeypatch, OfflineEngine=OfflineEngine)
    module_of(contexts.RUNNER, monkeypatch, Runner=Runner)
    module_of(contexts.REQUESTS, monkeypatch, MemorizeQueueWorker=MemorizeQueueWorker)
    Queues().join(patches)
    with suppress_instrumentation():
        assert OfflineEngine()._enqueue_run("m", "e", "silent") == "silent"
    with recording.tracer.start_as_current_span("request") as request:
        OfflineEngine()._enqueue_run("m", "e", run_id="run")
        assert asyncio.run(MemorizeQueueWorker().enqueue("p", request_id="queued")) == 1
    for run_id in ("silent", "run", "recovered"):
        asyncio.run(Runner().run("m", "e", run_id=run_id))
    asyncio.run(MemorizeQueueWorker()._process(SimpleNamespace(request_id="queued")))
    here = request.get_span_context().span_id
    assert seen == [("silent", False, 0), ("run", True, here), ("recovered", True, 0), ("queued", True, here)]
