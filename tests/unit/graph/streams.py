"""Streams of spans as programs send them, drawn by hypothesis: every way to write, read and not to know."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

from memtrace_otel.model import OperationSpan, Variable
from memtrace_otel.semconv import Action, OpKind, Role
from tests.unit.graph.conftest import origin_of, put, seen, span

SCOPES = ("a" * 16, "b" * 16, "", "c" * 16)
RECORDS = ("memory:1", "memory:2", "state:profile", "memory:0a0b0c0d-0000-4000-8000-000000000001", "document:d")
TEXTS = ("", "tea", "tea", "Lisbon", "a longer text that is cut in the middle of its words")
RESOURCE = {"service.name": "s", "service.instance.id": "1"}
RUN = 20


@dataclass(frozen=True)
class Event:
    """One thing that happens. `told` says how a reader names the origin of what it reads, `failed` which write ended
    with an error, and whether the record has changed nevertheless, `abroad` that records of other scopes are read,
    `takes` that a write goes on with the record that another memory has by that name."""

    what: str
    scope: int
    record: int
    text: int
    told: str
    nested: bool
    parted: bool
    same_time: bool
    flow: bool
    failed: str
    abroad: bool
    takes: bool = False


FLOWS = (((0, 0),), ())
TOLD = ("recorded", "recorded", "outer", "digest", "nothing", "lost", "other digest")
EVENTS = st.builds(
    Event,
    what=st.sampled_from(["write", "write", "write", "delete", "ask", "ask", "search", "look", "consolidate"]),
    scope=st.sampled_from([0, 1, 0, 1, 2, 3]),
    record=st.integers(0, len(RECORDS) - 1),
    text=st.integers(0, len(TEXTS) - 1),
    told=st.sampled_from(TOLD),
    nested=st.booleans(),
    parted=st.booleans(),
    same_time=st.booleans(),
    flow=st.booleans(),
    failed=st.sampled_from(["", "", "", "lost", "kept", "around", "both"]),
    abroad=st.just(False),
)
WILD = st.builds(
    replace,
    EVENTS,
    told=st.sampled_from([*TOLD, "part", "passed on", "not listed", "inside"]),
    abroad=st.booleans(),
)


@dataclass
class _World:
    """What is stored so far: (scope, ref) -> origins by the way that they are told, and the digest."""

    records: dict[tuple[str, str], tuple[dict[str, str], str]] = field(default_factory=dict)
    spans: list[OperationSpan] = field(default_factory=list)
    time: int = 0


def happen(events: list[Event]) -> list[OperationSpan]:
    """Return the spans of the events, in order of time, numbered."""
    world = _World()
    for trace, event in enumerate(events, 1):
        world.time += 0 if event.same_time else 10
        _one(world, trace, event)
    return [replace(s, seq=number, resource=RESOURCE) for number, s in enumerate(world.spans, 1)]


streams = st.lists(EVENTS, min_size=1, max_size=6).map(happen)
wild_streams = st.lists(WILD, min_size=2, max_size=7).map(happen)
"""Owners who read each other's records, and origins that lead to a record by a roundabout way or to none."""
NAMING = [
    way for way in (*TOLD, "part", "passed on", "not listed", "inside") if "digest" not in way and way != "nothing"
]
named_streams = st.lists(
    st.builds(
        replace,
        WILD,
        what=st.sampled_from(["write", "write", "delete", "ask", "search", "consolidate"]),
        scope=st.sampled_from([0, 1, 0, 1, 3]),
        told=st.sampled_from(NAMING),
    ),
    min_size=2,
    max_size=7,
).map(happen)
"""The same, where every operation says whose memory it touches, and every read names a writer."""


def _one(world: _World, trace: int, event: Event) -> None:
    scope, ref, text = SCOPES[event.scope], RECORDS[event.record], TEXTS[event.text]
    at = world.time
    if event.what in ("write", "delete", "consolidate"):
        known = world.records.get((scope, ref))
        if event.takes:
            known = next((of for (owner, name), of in world.records.items() if name == ref and owner != scope), known)
        action = Action.DELETE if event.what == "delete" else Action.UPDATE if known else Action.ADD
        content = "" if action == Action.DELETE else f"{text} {event.record}".strip() if text else ""
        output = put(ref, content, action=action)
        if event.text == len(TEXTS) - 1:
            output = replace(output, content=content[:9])  # cut, its digest is of the whole
        message = put(f"message:{event.text}", text or "hi", role=Role.MESSAGE)
        fact = put(f"fact:{event.text}", text.upper(), action=Action.DERIVE)
        inputs = [seen(fact.ref, origin_of(trace, 2))]
        if known and event.told != "nothing":
            inputs.append(replace(_read(known, ref, event), role=Role.PREVIOUS))
        kind = {"write": OpKind.UPDATE if known else OpKind.CREATE, "delete": OpKind.DELETE}.get(event.what)
        write = span(trace, 3, kind or OpKind.CONSOLIDATE, parent=1, at=at + 3, scope=scope if event.flow else "",
                     inputs=[] if event.told == "digest" else inputs, outputs=[output],
                     status="error" if event.failed not in ("", "around") else "unset",
                     flow=FLOWS[event.text % 2] if event.flow and event.told != "digest" else None)  # fmt: skip
        around = span(trace, 1, OpKind.INGEST, at=at, lasts=9, scope=scope, inputs=[message],
                      status="error" if event.failed in ("around", "both") else "unset",
                      outputs=[output] if event.nested else ())  # fmt: skip
        extract = span(trace, 2, OpKind.EXTRACT, parent=1, at=at + 1, inputs=[message], outputs=[fact])
        world.spans += [around, extract, *_parts(write, trace, 7, event)]
        if event.told == "inside":  # what is on its way to the store is read on that way
            world.spans.append(span(trace, 5, OpKind.INDEX, parent=3, at=at + 3,
                                    inputs=[Variable(ref, origin=write.origin, digest=output.digest)]))  # fmt: skip
        if event.failed != "lost":
            origins = {"recorded": write.origin, "outer": around.origin if event.nested else write.origin,
                       "part": origin_of(trace, 11), "not listed": extract.origin}  # fmt: skip
            world.records[scope, ref] = origins, output.digest
        return
    query = put(f"query:{event.text}", "who?", role=Role.QUERY)
    hits = [replace(_read(known, name, event), role=Role.HIT, score=0.5)
            for (owner, name), known in world.records.items() if owner == scope or event.abroad][:3]  # fmt: skip
    if event.what == "look":  # listed as results, by name alone
        world.spans.append(span(trace, 1, OpKind.RETRIEVE, at=at, scope=scope, inputs=[query],
                                outputs=[Variable(ref, action=Action.NONE if event.flow else "")]))  # fmt: skip
        return
    context = put(f"context:{2:016x}", "found", action=Action.DERIVE)
    search = span(trace, 2, OpKind.RETRIEVE, parent=1, at=at + 1, scope=scope, inputs=[query, *hits], outputs=[context])
    if event.abroad:
        for (_, name), known in world.records.items():
            if any(hit.ref == name for hit in hits):
                known[0]["passed on"] = search.origin
    if event.what == "search":
        world.spans += _parts(search, trace, 8, event)
        return
    answer = put(f"answer:{1:016x}", "Paris", role=Role.ANSWER)
    run = [span(trace, RUN, "", at=at, lasts=12)] if event.told == "outer" else []
    respond = span(trace, 1, OpKind.RESPOND, parent=RUN if run else 0, at=at, lasts=9, outputs=[answer],
                   inputs=[query, seen(context.ref, search.origin, role=Role.CONTEXT),
                           *(hits if event.flow else ())])  # fmt: skip
    world.spans += [*run, respond, *_parts(search, trace, 8, event), _judge(trace, event, respond)]


def _judge(trace: int, event: Event, respond: OperationSpan) -> OperationSpan:
    """A judgement inside the answer or of the run around it, or feedback: afterwards, or by a clock that is behind."""
    answer, at = respond.outputs[0].ref, respond.start // 10**9
    around = seen(f"answer:{RUN:016x}", origin_of(trace, RUN), role=Role.ANSWER)
    named = {"digest": (), "nothing": (), "lost": (), "outer": [around]}.get(
        event.told, [seen(answer, respond.origin, role=Role.ANSWER)]
    )
    parent, at = {"nothing": (0, at + 12), "lost": (0, max(at - 1, 0)), "outer": (RUN, at + 11)}.get(
        event.told, (1, at + 5)
    )
    return span(trace, 4, OpKind.JUDGE, parent=parent, at=at, inputs=named,
                attributes={"gen_ai.evaluation.score.value": 0.0})  # fmt: skip


def _read(known: tuple[dict[str, str], str], ref: str, event: Event) -> Variable:
    origins, digest = known
    return {
        "digest": Variable(ref, digest=digest),
        "nothing": Variable(ref),
        "lost": Variable(ref, origin=origin_of(0xDEAD, event.record + 1)),
        "other digest": Variable(ref, digest="f" * 16, content="what nobody wrote"),
    }.get(event.told) or Variable(ref, origin=origins.get(event.told) or origins["recorded"], digest=digest)


def _parts(whole: OperationSpan, trace: int, number: int, event: Event) -> list[OperationSpan]:
    """The operation, over its budget: the last inputs and all outputs on continuations."""
    if not event.parted or not whole.inputs:
        return [whole]
    first = replace(whole, inputs=whole.inputs[:1], outputs=(), flow=None)
    fields = {"parent": int(whole.span_id, 16), "at": whole.start // 10**9, "scope": whole.scope}
    rest = span(trace, number, whole.kind, part=1, inputs=whole.inputs[1:], flow=whole.flow, **fields)
    last = span(trace, number + 4, whole.kind, part=2, outputs=whole.outputs, **fields)
    return [first, rest, last]
