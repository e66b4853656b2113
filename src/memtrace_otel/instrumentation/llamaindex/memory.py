"""Chat memory: the message queue of a conversation is one evolving state, `state:<session id>`.

Each new message makes a new version of the queue, and so does each flush of old messages into memory blocks and each
summary. `gen_ai.memory.store.id` is the table (or the class) of the chat store; the owner is the session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from operator import is_
from typing import Any, cast

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, origins, recall, variable_ref
from memtrace_otel.instrumentation.llamaindex.answers import ANSWERING, REPLY
from memtrace_otel.instrumentation.llamaindex.messages import Message, is_reply
from memtrace_otel.instrumentation.llamaindex.nodes import message_text, query_ref
from memtrace_otel.instrumentation.llamaindex.state import Call, chat_store_of, purpose, session_of, store_name
from memtrace_otel.instrumentation.steps import Step, StepFunction
from memtrace_otel.model import make_ref
from memtrace_otel.semconv import Action, OpKind, RefKind, Role

_SHOWN = 50


@dataclass(slots=True)
class Conversation:
    """A call of a chat memory in progress.

    `queue`: the active messages that the chat store returned last. `writes`: the call puts messages in, and the new
    queue is not known yet. `context`: the inputs that make the next prompt. `archived`: the messages that moved
    from the queue into the memory blocks.
    """

    memory: Any
    operation: Operation
    sources: list[int] = field(default_factory=list[int])
    writes: bool = False
    queue: Sequence[Any] = ()
    context: list[int] = field(default_factory=list[int])
    archived: list[Message] = field(default_factory=list[Message])

    @property
    def session(self) -> str:
        """Id of the conversation."""
        return session_of(self.memory)

    @property
    def ref(self) -> str:
        """`state:<session id>`."""
        return make_ref(RefKind.STATE, self.session)

    def saw(self, queue: Sequence[Any]) -> None:
        """Take the active messages that the chat store returned. After a `put` they are the new version of the
        queue."""
        self.queue = queue
        if self.writes:
            write_state(self.operation, self.ref, queue_text(queue), self.sources)
            self.writes = False


CONVERSATION: ContextVar[Conversation | None] = ContextVar("memtrace_llamaindex_conversation", default=None)


def put(call: Call) -> Step:
    """`put`, `aput`, `aput_messages`: messages in, a new version of the queue out."""
    yield from _write(call)


def set_messages(call: Call) -> Step:
    """`set`, `aset`: a new queue."""
    reading = CONVERSATION.get()
    if reading is not None and reading.memory is call.instance:
        yield from _make_room(call, reading)
    else:
        yield from _write(call, whole=True)


def _make_room(call: Call, reading: Conversation) -> Step:
    """A memory sets its queue during a read: a summary replaces the oldest messages. Without a model they are dropped.

    Most reads set an unchanged queue, which is not a new version.
    """
    given = list(cast("Sequence[Any]", call.arguments().get("messages") or ()))
    if len(given) == len(reading.queue) and all(map(is_, given, reading.queue)):
        return
    known, name = call.patches.messages, call.patches.scope_of_chat(call.instance)
    stood, kept = [message for message in reading.queue if message_text(message)], set(map(id, given))
    old = zip(stood, known.recognise(name, stood), strict=True)
    gone = [message for standing, message in old if id(standing) not in kept]
    standing = set(map(id, stood))
    summaries = [text for message in given if id(message) not in standing and (text := message_text(message))]
    operation = _open(call, semconv.UPDATE_MEMORY, OpKind.CONSOLIDATE if summaries else OpKind.UPDATE)
    previous, removed = read_previous(operation, reading.ref), read_messages(operation, gone)
    yield
    for text in summaries:
        message = Message(variable_ref(RefKind.COMPLETION, text), text, operation.origin)
        operation.wrote(message.ref, content=text, sources=removed)
        known.remember(name, message)
    reading.queue = given
    write_state(operation, reading.ref, queue_text(given), [*previous, *removed])


def _write(call: Call, *, whole: bool = False) -> Step:
    if not call.enter("memory.write"):
        return
    arguments = call.arguments()
    given = cast("Sequence[Any]", arguments.get("messages") or [arguments.get("message")])
    answers = () if whole else _answers(call.instance, given)
    operation = _open(call, semconv.UPSERT_MEMORY, OpKind.UPDATE)
    conversation = Conversation(call.instance, operation, writes=True)
    conversation.sources += read_previous(operation, conversation.ref)
    known, name = call.patches.messages, call.patches.scope_of_chat(call.instance)
    said = known.replace(name, given) if whole else known.append(name, given, answers)
    conversation.sources += read_messages(operation, said)
    call.carry(CONVERSATION, conversation)
    answering = ANSWERING.get()
    if answering is not None:
        answering.keep([message_text(message) for message in given if is_reply(message)])
    yield
    if not conversation.writes:
        return
    queue = _kept(call.instance) or (given if whole else ())  # this memory does not read its queue
    if queue:
        conversation.saw(queue)
    else:  # the queue is unknown, and the instrumentor reads no store
        write_state(operation, conversation.ref, None, conversation.sources)


def get(call: Call) -> Step:
    """`get`, `aget`, `get_all`, `aget_all`: queue and memory blocks in, the returned messages out.

    Messages of the queue that are not returned are candidates.
    """
    if not call.enter("memory.read"):
        return
    asked = call.arguments().get("input")
    query = asked if isinstance(asked, str) else message_text(asked)
    operation = _open(call, semconv.SEARCH_MEMORY, OpKind.RETRIEVE)
    conversation = Conversation(call.instance, operation)
    call.carry(CONVERSATION, conversation)
    if query:
        conversation.context.append(operation.read(query_ref(query), role=Role.QUERY, content=query))
    messages = yield
    texts = [message_text(message) for message in messages]
    queue = conversation.queue
    if queue:
        conversation.context.append(operation.read(conversation.ref, role=Role.HIT, content=queue_text(queue)))
    known = call.patches.messages.recognise(call.patches.scope_of_chat(call.instance), queue)
    for message, role in _shown(known, texts):
        message.read_by(operation, role)
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, len(messages))
    context, answering = operation.context("\n".join(texts), conversation.context), ANSWERING.get()
    if context and answering is not None:
        answering.remember(context, operation.origin)


def reset(call: Call) -> Step:
    """`reset`, `areset`: the conversation is deleted. Inside another call of the memory, a new queue follows."""
    if CONVERSATION.get() is not None or not call.enter("memory.write"):
        return
    operation = _open(call, semconv.DELETE_MEMORY, OpKind.DELETE)
    ref = make_ref(RefKind.STATE, session_of(call.instance))
    sources = read_previous(operation, ref)
    yield
    call.patches.messages.replace(call.patches.scope_of_chat(call.instance), ())
    operation.wrote(ref, action=Action.DELETE, sources=sources)


def get_messages(call: Call) -> Step:
    """`get_messages`, `aget_messages` of the chat store of a memory."""
    conversation = CONVERSATION.get()
    if conversation is None or chat_store_of(conversation.memory) is not call.instance:
        return
    messages = yield
    conversation.saw(list(messages))  # the store may change its list later


def archive_oldest_messages(call: Call) -> Step:
    """`archive_oldest_messages` of the chat store: the oldest messages move from the queue into the memory blocks."""
    conversation = CONVERSATION.get()
    if conversation is None or chat_store_of(conversation.memory) is not call.instance:
        return
    operation = call.open(
        None,
        OpKind.CONSOLIDATE,
        scope=conversation.operation.scope,
        purpose=f"{type(conversation.memory).__name__}.flush",
    )
    previous = read_previous(operation, conversation.ref)
    archived = yield
    name, leaving = call.patches.scope_of_chat(conversation.memory), sum(map(bool, map(message_text, archived)))
    conversation.archived = call.patches.messages.recognise(name, conversation.queue)[:leaving]
    conversation.queue = conversation.queue[len(archived) :]
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, len(archived))
    content = queue_text(conversation.queue)
    operation.wrote(conversation.ref, action=Action.UPDATE, content=content, sources=previous)


CHAT_STORE: dict[str, StepFunction] = {
    "get_messages": get_messages,
    "aget_messages": get_messages,
    "archive_oldest_messages": archive_oldest_messages,
}
"""Methods of the chat store of a memory in use, in any package."""


def queue_text(queue: Sequence[Any]) -> str:
    """The number of older messages, and the texts of the newest 50.

    The limit keeps the cost of one message constant. Earlier versions of the queue hold the older messages.
    """
    older = len(queue) - _SHOWN
    texts = [message_text(message) for message in queue[-_SHOWN:]]
    return "\n".join([f"({older} older messages)", *texts] if older > 0 else texts)


def read_messages(operation: Operation, messages: Sequence[Message]) -> list[int]:
    """Record messages as inputs."""
    return [message.read_by(operation) for message in messages]


def read_previous(operation: Operation, ref: str) -> list[int]:
    """Record the replaced version of a state, if this process knows one."""
    origin = origins().find(operation.scope, ref)
    return [operation.read(ref, role=Role.PREVIOUS, origin=origin)] if origin else []


def write_state(operation: Operation, ref: str, content: object, sources: list[int]) -> None:
    """Record a new version of a state."""
    known = origins().find(operation.scope, ref)
    operation.wrote(ref, action=Action.UPDATE if known else Action.ADD, content=content, sources=sources)


def _answers(memory: Any, given: Sequence[Any]) -> list[Message]:
    """The answers that a reply can be: the answer in progress of the engine that owns the memory, else the earlier
    answers of this turn. Call this before an operation starts."""
    reply = REPLY.get()
    if reply is not None and reply.memory is memory:
        texts = map(message_text, given[-1:])
        return [Message(reply.ref, text, reply.origin) for text in texts if text.strip().endswith(reply.said)]
    turn = recall.turn_here()
    return [Message(answer.ref, answer.text, answer.origin) for answer in (turn.newest_answers() if turn else ())]


def _open(call: Call, name: str, kind: OpKind) -> Operation:
    store, session = chat_store_of(call.instance), session_of(call.instance)
    call.patches.cover(cast("type[object]", type(store)), CHAT_STORE)
    scope, answering = call.patches.scope_of_chat(call.instance), ANSWERING.get()
    if answering is not None:
        answering.owner = answering.owner or scope
    attributes = {semconv.GEN_AI_MEMORY_STORE_ID: store_name(store), semconv.GEN_AI_MEMORY_RECORD_ID: session}
    return call.open(name, kind, scope=scope, purpose=purpose(call), attributes=attributes)


def _shown(queue: Sequence[Message], texts: Sequence[str]) -> list[tuple[Message, Role]]:
    """The messages of a queue with their roles: messages of the prompt are `history`, the others are candidates."""
    left = Counter(texts)
    found: list[tuple[Message, Role]] = []
    for message in reversed(queue):
        found.append((message, Role.HISTORY if left[message.text] > 0 else Role.CANDIDATE))
        left[message.text] -= 1
    return found[::-1]


def _kept(memory: Any) -> Sequence[Any]:
    """The queue in a chat store in memory; other stores are not read."""
    store = getattr(chat_store_of(memory), "store", None)
    return cast("dict[str, list[Any]]", store).get(session_of(memory)) or () if isinstance(store, dict) else ()
