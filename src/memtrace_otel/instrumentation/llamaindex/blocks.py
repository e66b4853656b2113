"""Memory blocks: `Memory` moves old messages into blocks and reads the blocks beside its queue.

A block is one evolving state, `state:<session id>.<block name>`. A block on a vector store keeps chunks instead: its
writes and searches are those of the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, cast

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, origins, scope_id, variable_ref
from memtrace_otel.instrumentation.llamaindex.ingestion import MESSAGES
from memtrace_otel.instrumentation.llamaindex.memory import (
    CONVERSATION,
    read_messages,
    read_previous,
    write_state,
)
from memtrace_otel.instrumentation.llamaindex.messages import Message, said_now
from memtrace_otel.instrumentation.llamaindex.nodes import message_text
from memtrace_otel.instrumentation.llamaindex.retrieval import INNER, Served
from memtrace_otel.instrumentation.llamaindex.state import Call, purpose
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.model import make_ref
from memtrace_otel.semconv import Action, OpKind, RefKind, Role

EXTRACTION_PROMPT = make_ref(RefKind.PROMPT, "llamaindex.fact_extraction")
CONDENSE_PROMPT = make_ref(RefKind.PROMPT, "llamaindex.fact_condense")


@dataclass(slots=True)
class Update:
    """A block that receives messages. `reading`: the operation of the next reply of the model, opened by `call`.
    `facts`: the origins of the new facts, by text."""

    ref: str
    scope: str
    messages: list[Message]
    call: Call | None = None
    reading: Operation | None = None
    facts: dict[str, str] = field(default_factory=dict[str, str])


UPDATE: ContextVar[Update | None] = ContextVar("memtrace_llamaindex_block", default=None)


def put(call: Call) -> Step:
    """`aput` of a block: messages in, a new version of the block out."""
    block, arguments = call.instance, call.arguments()
    messages = cast("Sequence[Any]", arguments.get("messages") or ())
    refused = arguments.get("from_short_term_memory") and not block.accept_short_term_memory
    if refused or not messages or _is_static(block):
        return
    if _is_on_store(block):
        call.carry(MESSAGES, tuple(_messages(messages)))
        yield
        return
    update = Update(*_place(block, str(arguments.get("session_id") or "")), _messages(messages))
    operation = call.open(semconv.UPDATE_MEMORY, OpKind.UPDATE, scope=update.scope, purpose=purpose(call))
    sources = [*read_previous(operation, update.ref), *read_messages(operation, update.messages)]
    call.carry(UPDATE, update)
    before = _facts(block)
    yield
    after = _facts(block)
    if after is not None and after == before:
        operation.wrote(update.ref, action=Action.NONE, content="\n".join(after))
        return
    for text in after or ():
        if text in update.facts:
            ref = variable_ref(RefKind.FACT, text)
            sources.append(operation.read(ref, origin=update.facts[text], content=text))
    write_state(operation, update.ref, "\n".join(after) if after is not None else None, sources)


def get(call: Call) -> Step:
    """`aget` of a block inside `aget` of its memory: a hit, or the context of a search in the store of the block."""
    conversation = CONVERSATION.get()
    if conversation is None:
        return
    searches: list[Served] = []
    call.carry(INNER, searches)
    content = yield
    operation = conversation.operation
    for search in searches:
        conversation.context.append(operation.read(search.context, role=Role.CONTEXT, origin=search.origin))
    text = _text(content)
    if not text or _is_on_store(call.instance):
        return
    if _is_static(call.instance):  # part of the program: no gap in the lineage
        read = operation.read(variable_ref(RefKind.PROMPT, text), role=Role.PROMPT, content=text)
    else:
        ref, scope = _place(call.instance, "")
        read = operation.read(ref, role=Role.HIT, content=text, scope=scope)
    conversation.context.append(read)


def extract(call: Call) -> Step:
    """`_aput` of `FactExtractionMemoryBlock`: a model reads the messages and the facts so far."""
    update, block = UPDATE.get(), call.instance
    if update is None:
        return
    operation = call.open(None, OpKind.EXTRACT, scope=update.scope, purpose=f"{type(block).__name__}.extract")
    _read_prompt(operation, EXTRACTION_PROMPT, block.fact_extraction_prompt_template)
    read_messages(operation, update.messages)
    _read_facts(operation, update, block)
    update.call, update.reading = call, operation
    yield


def parse_reply(call: Call) -> Step:
    """`_parse_facts_xml`: the first reply holds new facts, a second reply the condensed list of all facts."""
    update, block = UPDATE.get(), call.instance
    if update is None or update.call is None or update.reading is None:
        return
    operation, update.reading = update.reading, None
    reply = str(call.arguments().get("xml_text"))
    found = yield
    operation.wrote(variable_ref(RefKind.COMPLETION, reply), content=reply)
    new = [text for text in dict.fromkeys(cast("list[str]", found)) if text not in block.facts]
    for text in new:
        operation.wrote(variable_ref(RefKind.FACT, text), content=text)
        update.facts[text] = operation.origin
    if operation.kind == OpKind.CONSOLIDATE:
        return
    update.call.detach(operation)
    operation.end()
    if len(block.facts) + len(new) > block.max_facts:
        condensing = update.call.open(
            None, OpKind.CONSOLIDATE, scope=update.scope, purpose=f"{type(block).__name__}.condense"
        )
        _read_prompt(condensing, CONDENSE_PROMPT, block.fact_condense_prompt_template)
        _read_facts(condensing, update, block)
        for text in new:
            condensing.read(variable_ref(RefKind.FACT, text), origin=operation.origin, content=text)
        update.reading = condensing


def _messages(given: Sequence[Any]) -> list[Message]:
    """The messages that have left the queue; any other messages are new."""
    conversation = CONVERSATION.get()
    archived = conversation.archived if conversation is not None else []
    texts = [text for message in given if (text := message_text(message))]
    return archived if [message.text for message in archived] == texts else said_now(given)


def _place(block: Any, session: str) -> tuple[str, str]:
    """Ref and scope of the state of a block; without a memory around the block its name and class give them."""
    conversation = CONVERSATION.get()
    if conversation is not None:
        return make_ref(RefKind.STATE, f"{conversation.session}.{block.name}"), conversation.operation.scope
    return make_ref(RefKind.STATE, f"{session}.{block.name}"), scope_id(type(block).__name__, run=session)


def _facts(block: Any) -> list[str] | None:
    facts = getattr(block, "facts", None)
    return [str(fact) for fact in cast("list[object]", facts)] if isinstance(facts, list) else None


def _read_facts(operation: Operation, update: Update, block: Any) -> None:
    origin = origins().find(update.scope, update.ref)
    if block.facts:
        operation.read(update.ref, role=Role.CANDIDATE, origin=origin, content="\n".join(block.facts))


def _read_prompt(operation: Operation, ref: str, template: Any) -> None:
    text = getattr(template, "template_str", None) or getattr(template, "template", None)
    operation.read(ref, role=Role.PROMPT, content=text)


def _text(content: Any) -> str:
    """The text of a string, of content blocks or of messages."""
    if isinstance(content, str):
        return content
    parts = cast("list[Any]", content) if isinstance(content, list) else []
    return "\n".join(text for part in parts if (text := getattr(part, "text", None) or message_text(part)))


def _is_static(block: Any) -> bool:
    return any(base.__name__ == "StaticMemoryBlock" for base in type(block).__mro__)


def _is_on_store(block: Any) -> bool:
    return getattr(block, "vector_store", None) is not None
