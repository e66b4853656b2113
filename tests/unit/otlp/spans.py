"""Seeded random operation spans: every field, in every shape the wire contract allows."""

from __future__ import annotations

import random
from typing import Any

from memtrace_otel.model import AttributeValue, Event, Link, OperationSpan, Variable
from memtrace_otel.semconv import Action, OpKind, Role

_ALPHABET = 'abc XYZ012 ,:|>%"\\\n\x00é漢🙂'


def random_text(rng: random.Random, longest: int = 12) -> str:
    return "".join(rng.choice(_ALPHABET) for _ in range(rng.randrange(longest)))


def random_value(rng: random.Random) -> AttributeValue:
    makers: list[Any] = [
        lambda: random_text(rng, 30),
        lambda: rng.random() < 0.5,
        lambda: rng.randrange(-(2**63), 2**63),
        lambda: rng.uniform(-1e9, 1e9),
    ]
    maker = rng.choice(makers)
    return [maker() for _ in range(rng.randrange(5))] if rng.random() < 0.4 else maker()


def random_attributes(rng: random.Random) -> dict[str, AttributeValue]:
    return {f"key.{rng.randrange(1000)}": random_value(rng) for _ in range(rng.randrange(5))}


def random_id(rng: random.Random, digits: int) -> str:
    return f"{rng.randrange(1, 16**digits):0{digits}x}"


def random_input(rng: random.Random) -> Variable:
    return Variable(
        ref=f"memory:{rng.randrange(100)}",
        role=rng.choice(list(Role)).value,
        origin=rng.choice(["", f"{random_id(rng, 32)}-{random_id(rng, 16)}"]),
        digest=rng.choice(["", random_id(rng, 16)]),
        content=rng.choice(["", random_text(rng)]),
        score=rng.choice([None, 0.0, rng.random(), -1.5]),
    )


def random_output(rng: random.Random) -> Variable:
    return Variable(
        ref=f"fact:{rng.randrange(100)}",
        role=rng.choice(list(Role)).value,
        digest=rng.choice(["", random_id(rng, 16)]),
        content=rng.choice(["", random_text(rng)]),
        action=rng.choice(["", *(action.value for action in Action)]),
        size=rng.choice([None, 0, rng.randrange(10**6)]),
        store=rng.choice(["", "file:///x"]),
        event_time=rng.choice(["", "2026-01-01T00:00:00Z"]),
    )


def random_span(rng: random.Random) -> OperationSpan:
    inputs = tuple(random_input(rng) for _ in range(rng.randrange(6)))
    outputs = tuple(random_output(rng) for _ in range(rng.randrange(6)))
    pairs = [(i, o) for i in range(len(inputs)) for o in range(len(outputs)) if rng.random() < 0.3]
    start = rng.randrange(10**18, 2 * 10**18)
    return OperationSpan(
        trace_id=random_id(rng, 32),
        span_id=random_id(rng, 16),
        parent_id=rng.choice(["", random_id(rng, 16)]),
        name=random_text(rng),
        kind=rng.choice(["", *(kind.value for kind in OpKind)]),
        system=rng.choice(["", "mem0"]),
        scope=rng.choice(["", random_id(rng, 16)]),
        seq=rng.choice([None, 0, rng.randrange(10**9)]),
        part=rng.randrange(3),
        start=start,
        end=start + rng.randrange(10**9),
        status=rng.choice(["unset", "ok", "error"]),
        status_message=random_text(rng),
        inputs=inputs,
        outputs=outputs,
        flow=rng.choice([None, (), tuple(pairs)]),
        evidence=tuple(f"message:{n}" for n in range(rng.randrange(3))),
        incomplete=tuple(rng.sample(["content_off", "truncated", "guard"], rng.randrange(3))),
        attributes=random_attributes(rng),
        resource=rng.choice([{}, {"service.name": "a"}, random_attributes(rng)]),
        instrumentation_scope=rng.choice(["", "memtrace_otel.mem0"]),
        links=tuple(
            Link(random_id(rng, 32), random_id(rng, 16), random_attributes(rng)) for _ in range(rng.randrange(3))
        ),
        events=tuple(
            Event(random_text(rng), rng.randrange(10**18), random_attributes(rng)) for _ in range(rng.randrange(3))
        ),
    )


def record(tag: int, value: bytes) -> bytes:
    """Return a length-delimited record of a protobuf message."""
    size, length = len(value), bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes((tag, *length, size)) + value


def nested_arrays(levels: int) -> bytes:
    """Return the bytes of an AnyValue, a text in so many arrays: protobuf refuses to build a message of 100 levels."""
    value = record(0x0A, b"x")
    for _ in range(levels):
        value = record(0x2A, record(0x0A, value))
    return value
