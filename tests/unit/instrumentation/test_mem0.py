"""The Mem0 instrumentor without Mem0: when it wraps, its values as variables, its tables of records and messages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from importlib.metadata import PackageNotFoundError, entry_points
from types import SimpleNamespace
from typing import Any

import pytest

from memtrace_otel.capture import operation, scope_id
from memtrace_otel.instrumentation import base
from memtrace_otel.instrumentation.mem0 import Mem0Instrumentor, graph, state
from memtrace_otel.instrumentation.mem0.state import (
    EarlierMessages,
    KnownRecord,
    KnownRecords,
    Mem0Patches,
    Session,
)
from memtrace_otel.instrumentation.mem0.values import Turn, event_time, owner_scope, record_of, results, turns
from memtrace_otel.instrumentation.steps import observed
from memtrace_otel.model import content_digest
from tests.conftest import Recording

MEMORY: Any = SimpleNamespace(collection_name="memories")
YES = Turn("message:told", "Yes.")


# --- when the instrumentor wraps -----------------------------------------------------------------------------------
def test_the_entry_point_is_the_instrumentor() -> None:
    (point,) = entry_points(group="opentelemetry_instrumentor", name="memtrace_mem0")
    assert point.load() is Mem0Instrumentor


def test_missing_mem0_raises_module_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(base, "version", absent)
    with pytest.raises(ModuleNotFoundError, match="mem0ai"):
        Mem0Instrumentor().instrument(skip_dep_check=True)
    assert not Mem0Instrumentor().is_instrumented_by_opentelemetry


@pytest.mark.parametrize("found", ["0.1.118", "3.0.0"])
def test_a_version_out_of_range_is_logged_and_not_instrumented(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, found: str
) -> None:
    monkeypatch.setattr(base, "version", lambda name: found)
    Mem0Instrumentor().instrument(skip_dep_check=True)
    assert Mem0Instrumentor().patches is None
    Mem0Instrumentor().uninstrument()
    assert found in caplog.text


def test_mem0_is_imported_by_the_application_only_and_wrapped_then() -> None:
    """Mem0 reads its environment at import: an application may set it first, even under auto-instrumentation."""
    program = """
import os, sys
from memtrace_otel.instrumentation.mem0 import Mem0Instrumentor
Mem0Instrumentor().instrument()
Mem0Instrumentor().uninstrument()
assert "mem0" not in sys.modules
os.environ["MEM0_TELEMETRY"] = "False"
import mem0, wrapt
classes = mem0.Memory, mem0.AsyncMemory
assert not any(isinstance(vars(kind)["add"], wrapt.FunctionWrapper) for kind in classes)
Mem0Instrumentor().instrument()
assert all(isinstance(vars(kind)["add"], wrapt.FunctionWrapper) for kind in classes)
Mem0Instrumentor().uninstrument()
assert not any(isinstance(vars(kind)["add"], wrapt.FunctionWrapper) for kind in classes)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


# --- values --------------------------------------------------------------------------------------------------------
def test_a_text_a_message_and_a_list_give_the_same_turn() -> None:
    message = {"role": "user", "content": "Hello"}
    (ref,) = {turn.ref for given in ("Hello", message, [message]) for turn in turns(given, "s1")}
    assert ref == f"message:{content_digest('Hello')}.s1"


def test_the_id_of_the_caller_names_a_message() -> None:
    (turn,) = turns(
        [{"id": "chat 7,3", "role": "user", "content": "Hello", "timestamp": "2026-03-01T10:00:00+01:00"}], "s1"
    )
    assert turn.ref == "message:chat%207%2C3"
    assert turn.time == "2026-03-01T10:00:00+01:00"


def test_a_multimodal_message_is_its_text_without_its_bytes() -> None:
    photo = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    parts = [{"type": "text", "text": "Look"}, photo, {"type": "text", "text": "here"}]
    assert [turn.content for turn in turns([{"role": "user", "content": parts}], "s1")] == ["Look here"]


@pytest.mark.parametrize("given", [None, 7, [None, 7], [{"role": "assistant", "tool_calls": []}], {}])
def test_a_value_without_content_is_not_a_turn(given: object) -> None:
    assert list(turns(given, "s1")) == []


def test_equal_texts_of_one_call_get_numbers_and_of_two_calls_two_refs() -> None:
    yes = content_digest("Yes.")
    given = ["Yes.", {"content": "No."}, {"content": "Yes."}, {"content": "Yes.", "id": "m1"}]
    first, _, second, named = [turn.ref for turn in turns(given, "s1")]
    assert (first, second, named) == (f"message:{yes}.s1", f"message:{yes}.s1.2", "message:m1")
    assert [turn.ref for turn in turns("Yes.", "s1")] == [first]
    assert [turn.ref for turn in turns("Yes.", "s2")] == [f"message:{yes}.s2"]


def test_the_owner_is_the_user_before_the_agent_before_the_run() -> None:
    user = scope_id("memories", user="ann")
    assert owner_scope("memories", {"user_id": "ann"}) == user
    assert owner_scope("memories", {"user_id": " ann ", "agent_id": "bot", "run_id": "r1"}) == user
    assert owner_scope("memories", {"user_id": None, "agent_id": "bot"}) == scope_id("memories", agent="bot")
    assert owner_scope("memories", {"run_id": "r1", "colour": "red"}) == scope_id("memories", run="r1")
    assert owner_scope("memories", {"user_id": "bob"}) != user
    assert owner_scope("memories", {"agent_id": "ann"}) != user
    assert owner_scope("other", {"user_id": "ann"}) != user
    assert owner_scope("memories", {"colour": "red"}) == ""


def test_a_row_of_a_store_and_an_item_of_a_result_are_the_same_record() -> None:
    row = SimpleNamespace(id=7, payload={"data": "likes tea", "user_id": "ann"}, score=0.5)
    item = {"id": "7", "memory": "likes tea", "user_id": "ann", "score": 0.5}
    as_dict = {"id": "7", "payload": row.payload, "score": 0.5}  # some stores return plain dicts
    assert record_of(MEMORY, row) == record_of(MEMORY, item) == record_of(MEMORY, as_dict)
    assert record_of(MEMORY, row).ref == "memory:7"
    assert record_of(MEMORY, SimpleNamespace(id=7, payload=None)).text == ""
    assert record_of(MEMORY, item | {"rerank_score": 0.9}).score == 0.9


@pytest.mark.parametrize(
    ("values", "time"),
    [
        ({"timestamp": 1_772_359_200}, "2026-03-01T10:00:00+00:00"),
        ({"timestamp": "2026-03-01T10:00:00Z"}, "2026-03-01T10:00:00+00:00"),
        ({"date": "2026-03-01"}, "2026-03-01T00:00:00+00:00"),
        ({"created_at": datetime(2026, 3, 1, 10, tzinfo=timezone(timedelta(hours=1)))}, "2026-03-01T10:00:00+01:00"),
        ({"time": datetime(2026, 3, 1, 10)}, datetime(2026, 3, 1, 10, tzinfo=UTC).isoformat()),
        ({"timestamp": "1:56 pm on 8 May, 2023"}, ""),
        ({"timestamp": 1e300}, ""),
        ({"timestamp": True}, ""),
        (None, ""),
    ],
)
def test_event_times(values: dict[str, Any] | None, time: str) -> None:
    assert event_time(values) == time


@pytest.mark.parametrize("returned", [None, "text", {"results": None}, {"results": [1]}, [None], {"message": "done"}])
def test_results_of_an_unexpected_shape_are_empty(returned: object) -> None:
    assert results(returned) == []


# --- records and messages of this process --------------------------------------------------------------------------
def test_the_oldest_records_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_RECORDS", 2)
    first, second, third = (KnownRecord("memories", f"of {id}", id) for id in ("1", "2", "3"))
    records = KnownRecords()
    for record in (first, second, first, third):
        records.saw(record)
    assert [record in records for record in (first, second, third)] == [True, False, True]
    assert [records.scope_of(id) for id in ("1", "2", "3")] == ["of 1", "", "of 3"]


def test_a_store_takes_its_own_records_only() -> None:
    mine, other = KnownRecord("memories", "of ann", "1"), KnownRecord("others", "of ann", "2")
    records = KnownRecords()
    records.saw(mine)
    records.saw(other)
    assert records.take("memories") == [mine]
    assert other in records


def test_an_earlier_message_keeps_its_ref_and_a_foreign_message_gets_a_ref_of_its_time() -> None:
    messages = EarlierMessages()
    row = {"role": "user", "content": "Yes.", "created_at": "2026-03-01T10:00:00"}
    (foreign,) = messages.find("of ann", "session", [row])
    messages.save("of ann", "session", [YES])
    assert [turn.ref for turn in messages.find("of ann", "session", [row])] == [YES.ref]
    assert messages.find("of bob", "session", [row]) == [foreign]


@pytest.fixture
def frequent_thread_switches() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("frequent_thread_switches")
def test_threads_share_records_and_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_MESSAGES", 1)
    records, messages = KnownRecords(), EarlierMessages()

    def work(thread: int) -> None:
        for number in range(1000):
            records.saw(KnownRecord("memories", "of ann", f"{thread}.{number % 20}"))
            records.take("memories", scope="of bob")
            messages.save(f"{thread}.{number}", "session", [YES])
            messages.find(f"{thread}.{number}", "session", [{"content": "Yes."}])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(records.take("memories", scope="of ann")) == 8 * 20


# --- graph memory --------------------------------------------------------------------------------------------------
def test_a_reply_belongs_to_the_operation_that_asks_and_not_to_a_failed_one(recording: Recording) -> None:
    patches = Mem0Patches(recording.tracer, lambda patches, memory: None)
    memory = SimpleNamespace(collection_name="memories", graph=SimpleNamespace(llm=SimpleNamespace()))
    ask, reply = observed(graph.extract_entities, patches), observed(graph.generate_response, patches)

    def says(text: str) -> str:
        return text

    def answered() -> str:
        return reply(says, memory.graph.llm, ("one",), {})

    def failed() -> None:
        raise TimeoutError

    with operation(kind="ingest", system="mem0", tracer=recording.tracer) as adding:
        work = graph.Work(Session(memory, adding), "scope")
        token = graph.WORK.set(work)
        try:
            ask(answered, memory.graph, (), {})
            with pytest.raises(TimeoutError):
                ask(failed, memory.graph, (), {})
            reply(says, memory.graph.llm, ("late",), {})
        finally:
            graph.WORK.reset(token)
    assert [known.content for known in work.replies] == ["one"]
