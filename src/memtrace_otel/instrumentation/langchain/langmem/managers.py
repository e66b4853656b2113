"""The memory managers: a run of `MemoryStoreManager` around its searches, extraction, decisions and writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, variable_ref
from memtrace_otel.capture.content import message_refs
from memtrace_otel.instrumentation.langchain.calls import purpose
from memtrace_otel.instrumentation.langchain.chat import REPLIES
from memtrace_otel.instrumentation.langchain.documents import Known
from memtrace_otel.instrumentation.langchain.langgraph.store import WRITER, Writer
from memtrace_otel.instrumentation.langchain.langmem.calls import Call
from memtrace_otel.instrumentation.langchain.langmem.session import SESSION, Session, statement
from memtrace_otel.instrumentation.langchain.messages import message_of
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.model import make_ref
from memtrace_otel.semconv import Incomplete, OpKind, RefKind, Role

EXTRACTION_PROMPT = make_ref(RefKind.PROMPT, "langmem.memory_manager")


def manage(call: Call) -> Step:
    """`MemoryStoreManager.invoke`: messages in; what is written belongs to the puts and deletes below."""
    given = call.arguments().get("input")
    operation = call.open(
        semconv.UPSERT_MEMORY, OpKind.INGEST, scope="", purpose=purpose(call), parent=call.patches.delayed.take(given)
    )
    session = Session(operation.origin[33:])
    _read_messages(operation, given, session.said_in)
    writer = Writer(session.sources)
    call.carry(SESSION, session)
    call.carry(WRITER, writer)
    written = yield
    operation.scope = writer.scope
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, len(written))


def extract(call: Call) -> Step:
    """`MemoryManager.invoke`: messages and known memories in, the model's replies and a fact per new memory out."""
    given = call.arguments().get("input")
    writer = WRITER.get()
    operation = call.open(None, OpKind.EXTRACT, scope=writer.scope if writer else "", purpose=purpose(call))
    session = SESSION.get() or Session(operation.origin[33:])
    prompt = operation.read(
        EXTRACTION_PROMPT, role=Role.PROMPT, content=str(getattr(call.instance, "instructions", ""))
    )
    sources = [prompt, *_read_messages(operation, given, session.said_in)]
    before = {known.id: known for known in map(statement, _existing(given))}
    shown = {id: session.variable(id).read_by(operation, known.text, Role.CANDIDATE) for id, known in before.items()}
    replies: list[Any] = []
    call.carry(REPLIES, replies)
    extracted = yield
    _read_replies(operation, replies)
    for made in map(statement, cast(Sequence[Any], extracted)):
        if made.id in before and not made.removes and made.text == before[made.id].text:
            continue
        fed_by = [*sources, shown[made.id]] if made.id in shown else sources
        operation.wrote(made.ref, content=made.text, sources=fed_by)
        session.facts[made.id] = Known(made.ref, operation.origin)


def _read_messages(operation: Operation, given: object, said_in: str) -> list[int]:
    found = cast("Mapping[str, Any]", given if isinstance(given, Mapping) else {}).get("messages") or ()
    messages = [message_of(message) for message in cast(Sequence[Any], found)]
    refs = message_refs([(message.text, message.id) for message in messages], said_in)
    return [
        operation.read(ref, role=Role.MESSAGE, content=message.text)
        for ref, message in zip(refs, messages, strict=True)
    ]


def _existing(given: object) -> list[Any]:
    """Rows of known memories that have an id; bare texts get theirs inside, where nobody sees it."""
    rows = cast("Mapping[str, Any]", given if isinstance(given, Mapping) else {}).get("existing") or ()
    return [row for row in cast(Sequence[Any], rows) if isinstance(row, list | tuple)]


def _read_replies(operation: Operation, replies: Sequence[Any]) -> None:
    for text in (message_of(reply).text for reply in replies):
        operation.wrote(variable_ref(RefKind.COMPLETION, text), content=text)
    if replies and not any(getattr(reply, "tool_calls", None) for reply in replies):
        operation.mark(Incomplete.UNPARSED)  # a reply without a tool call stores nothing, and nobody is told
