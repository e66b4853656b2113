"""The extractors of EverOS (memcells, episodes and cases in, facts out) and the model calls of all operations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, current_operation, variable_ref
from memtrace_otel.instrumentation.everos.state import ASKING, SESSION, Call, Session, ask
from memtrace_otel.instrumentation.everos.values import (
    case_text,
    entry_ref,
    message_ref,
    message_text,
    profile_ref,
    profile_text,
    value,
)
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.model import make_ref
from memtrace_otel.semconv import Incomplete, OpKind, RefKind, Role

_UNIT = "memory_system.extract_memory"


def episode(call: Call) -> Step:
    """`EpisodeExtractor.aextract`: the narrative of a memcell."""
    opened = _open(call, "episode_extraction")
    if opened is None:
        return
    operation, session = opened
    _read_cell(call, operation, call.arguments().get("memcell"))
    found = yield
    _derive(operation, session, [found.episode.strip()], found.timestamp)


def atomic_facts(call: Call) -> Step:
    """`AtomicFactExtractor.aextract_from_text`: the statements of an episode."""
    opened = _open(call, "atomic_fact_extraction")
    if opened is None:
        return
    operation, session = opened
    arguments = call.arguments()
    text, entry_id = str(arguments.get("text")).strip(), value(session.event, "episode_entry_id")
    operation.read(entry_ref(entry_id) if entry_id else variable_ref(RefKind.FACT, text), content=text)
    found = yield
    _derive(operation, session, [fact.content.strip() for fact in found], arguments.get("timestamp"))


def foresight(call: Call) -> Step:
    """`ForesightExtractor.aextract`: expected events in the life of a user, from a memcell."""
    opened = _open(call, "foresight_extraction")
    if opened is None:
        return
    operation, session = opened
    memcell = call.arguments().get("memcell")
    _read_cell(call, operation, memcell)
    found = yield
    _derive(operation, session, [item.foresight.strip() for item in found], value(memcell, "timestamp"))


def profile(call: Call) -> Step:
    """`ProfileExtractor.aextract`: memcells and the old profile in, the new profile out."""
    opened = _open(call, "profile_extraction", purpose="extract_user_profile", once=False)
    if opened is None:
        return
    operation, session = opened
    arguments = call.arguments()
    old = arguments.get("old_profile")
    if old is not None:
        operation.read(profile_ref(arguments.get("sender_id")), role=Role.PREVIOUS, content=profile_text(old))
    for memcell in cast(Sequence[Any], arguments.get("memcells") or ()):
        _read_cell(call, operation, memcell)
    found = yield
    _derive(operation, session, [profile_text(found)], found.timestamp)


def case(call: Call) -> Step:
    """`AgentCaseExtractor.aextract`: the cases in an agent's trajectory; a short trajectory needs no prompt."""
    opened = _open(call, "agent_case_extraction", purpose="extract_agent_case", once=False)
    if opened is None:
        return
    operation, session = opened
    memcell = call.arguments().get("memcell")
    _read_cell(call, operation, memcell)
    found = yield
    _derive(operation, session, [case_text(item) for item in found], value(memcell, "timestamp"))


def skill(call: Call) -> Step:
    """`AgentSkillExtractor.aextract`: a case, the known skills and their cases in, new skills out."""
    opened = _open(call, "agent_skill_extraction", purpose="extract_agent_skill", once=False)
    if opened is None:
        return
    operation, session = opened
    arguments = call.arguments()
    known = cast(Sequence[Any], arguments.get("existing_relevant_skills") or ())
    cases = [arguments["case"], *cast(Sequence[Any], arguments.get("supporting_cases") or ())]
    for item in cases:
        operation.read(entry_ref(item.id), content=case_text(item))
    for item in known:
        operation.read(entry_ref(item.name), role=Role.CANDIDATE, content=item.content.strip())
    found = yield
    _derive(operation, session, [item.content.strip() for item in found], None)


def chat(call: Call) -> Step:
    """`chat` of an LLM client: the sent prompt in, the completion out.

    EverOS asks again, without an error, when a call fails or a reply cannot be parsed.
    """
    operation, asking = current_operation(), ASKING.get()
    if operation is None or asking is None or operation.system != call.patches.system:
        return
    asking.calls += 1
    if asking.once and asking.calls > 1:
        operation.mark(Incomplete.UNPARSED)
        operation.span.add_event(semconv.RETRY_EVENT, {semconv.RETRY_ATTEMPT: asking.calls})
    messages = cast(Sequence[object], call.arguments().get("messages") or ())
    prompt = make_ref(RefKind.PROMPT, f"{call.patches.system}.{asking.prompt}")
    operation.read(prompt, role=Role.PROMPT, content="\n\n".join(message_text(message) for message in messages))
    reply = yield
    text = str(value(reply, "content") or "")
    operation.wrote(variable_ref(RefKind.COMPLETION, text), content=text)
    model = value(reply, "model")
    if model:
        operation.set(semconv.GEN_AI_RESPONSE_MODEL, str(model))
    tokens = value(reply, "usage")
    if tokens is not None:
        asking.given += int(tokens.prompt_tokens)
        asking.made += int(tokens.completion_tokens)
        operation.set(semconv.GEN_AI_USAGE_INPUT_TOKENS, asking.given)
        operation.set(semconv.GEN_AI_USAGE_OUTPUT_TOKENS, asking.made)


def _open(call: Call, prompt: str, *, purpose: str = _UNIT, once: bool = True) -> tuple[Operation, Session] | None:
    session = SESSION.get()
    if session is None:  # the algorithms are used without EverOS
        return None
    ask(call, prompt, once=once)
    return call.open(None, OpKind.EXTRACT, scope=session.scope, purpose=purpose), session


def _read_cell(call: Call, operation: Operation, memcell: Any) -> None:
    """Record a memcell and its messages, which the model is shown."""
    cell = call.patches.cell_of(memcell)
    ids: Iterable[str] = ()
    if cell is not None:
        operation.read(cell.ref, scope=cell.scope)
        ids = cell.message_ids
    items = cast(Sequence[Any], memcell.items)
    for item, id in zip(items, ids or [value(item, "id") for item in items], strict=False):
        text = message_text(item)
        operation.read(message_ref(id, text), role=Role.MESSAGE, content=text)


def _derive(operation: Operation, session: Session, texts: Iterable[str], timestamp: object) -> None:
    time = datetime.fromtimestamp(timestamp / 1000, UTC).isoformat() if isinstance(timestamp, int) else ""
    for text in dict.fromkeys(texts):
        ref = variable_ref(RefKind.FACT, text)
        operation.wrote(ref, content=text, event_time=time)
        session.learn(text, ref, operation)
