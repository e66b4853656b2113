"""Statements and delayed payloads of langmem, without langmem itself."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry import trace

from memtrace_otel.instrumentation.langchain import langmem
from memtrace_otel.instrumentation.langchain.documents import Known
from memtrace_otel.instrumentation.langchain.langgraph.store import StoreOp
from memtrace_otel.instrumentation.langchain.langmem import Delayed, Session, statement
from tests.conftest import Recording


class Memory:
    """Like a pydantic model, whose dump is broken."""

    model_fields = {"content": None}

    def __init__(self, content: str) -> None:
        self.content = content

    def __repr_name__(self) -> str:
        return "Memory"

    def model_dump(self, **_: Any) -> Any:
        raise RuntimeError("no dump today")


class RemoveDoc:
    def __init__(self, id: str) -> None:
        self.json_doc_id = id

    def __repr_name__(self) -> str:
        return "RemoveDoc"


class Item:
    def __init__(self, namespace: tuple[str, ...], key: str) -> None:
        self.namespace, self.key = namespace, key


def test_statements() -> None:
    assert statement(("m1", Memory("Ann lives in Paris."))).text == "Ann lives in Paris."
    assert statement(("m1", "Memory", {"content": "Ann lives in Paris."})).text == "Ann lives in Paris."
    assert statement(("m1", "Ann lives in Paris.")).text == "Ann lives in Paris."
    removal = statement(("other", RemoveDoc("m1")))
    assert (removal.id, removal.text, removal.removes) == ("m1", "", True)
    assert removal.ref != statement(("m2", RemoveDoc("m2"))).ref
    assert removal.ref.startswith("fact:")


def test_the_sources_of_a_write() -> None:
    session = Session("")
    session.show("shown", Item(("memories", "ann"), "home"), "s")
    session.facts |= {"shown": Known("fact:1", "o"), "new": Known("fact:2", "o")}
    assert session.variable("shown") == Known("fact:1", "o")
    assert session.variable("elsewhere") == Known("memory:elsewhere", None)
    assert session.sources(StoreOp("put", ("memories", "ann"), "home")) == [Known("fact:1", "o")]
    assert session.sources(StoreOp("put", ("memories", "ann"), "new")) == [Known("fact:2", "o")]
    assert session.sources(StoreOp("put", ("memories", "ann"), "default")) is None


def test_a_delayed_payload_keeps_its_context(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(langmem, "_PENDING", 2)
    delayed, payload = Delayed(), {"messages": []}
    with recording.tracer.start_as_current_span("turn") as span:
        delayed.put(payload)
    assert delayed.take(dict(payload)) is None  # equal, but not the one
    context = delayed.take(payload)
    assert context is not None
    assert trace.get_current_span(context) is span
    assert delayed.take(payload) is None
    many = [{"n": n} for n in range(3)]
    for one in many:
        delayed.put(one)
    assert [delayed.take(one) is None for one in many] == [True, False, False]
