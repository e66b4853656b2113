"""The type of a link says what an operation did with what another one wrote: one type per role (wire contract)."""

from __future__ import annotations

import pytest

from memtrace_otel import semconv
from memtrace_otel.capture import operation
from memtrace_otel.semconv import LinkType, Role
from tests.conftest import Recording

LINKS = {
    Role.HIT: "retrieved",
    Role.CONTEXT: "retrieved",
    Role.CANDIDATE: "considered",
    Role.PREVIOUS: "supersedes",
    Role.ANSWER: "evaluates",
    Role.MESSAGE: "derived_from",
    Role.QUERY: "derived_from",
    Role.HISTORY: "derived_from",
    Role.PROMPT: "derived_from",
    Role.EXPECTED: "derived_from",
    Role.EVIDENCE: "derived_from",
    Role.OTHER: "derived_from",
}


def links(recording: Recording, name: str) -> dict[tuple[int, str], tuple[str, ...]]:
    """Links of the only span of this name: linked span and type, and the refs."""
    [span] = recording.named(name)
    return {
        (link.context.span_id, str((link.attributes or {})[semconv.LINK_TYPE])): tuple(
            (link.attributes or {})[semconv.LINK_REFS]  # type: ignore[arg-type]
        )
        for link in span.links
    }


def wrote(recording: Recording, ref: str) -> int:
    with operation("create_memory", kind="write", system="test", tracer=recording.tracer) as write:
        write.wrote(ref, content=ref)
    context = recording.named("create_memory")[-1].context
    assert context is not None
    return context.span_id


@pytest.mark.parametrize("role", Role)
def test_each_role_has_its_type(recording: Recording, role: Role) -> None:
    origin = wrote(recording, "memory:1")
    with operation("use", kind="retrieve", system="test", tracer=recording.tracer) as use:
        use.read("memory:1", role=role, content="memory:1")
    assert links(recording, "use") == {(origin, LINKS[role]): ("memory:1",)}


def test_each_origin_has_a_link_of_its_own_type(recording: Recording) -> None:
    origins = [wrote(recording, f"memory:{number}") for number in range(3)]
    with operation("update_memory", kind="write", system="test", tracer=recording.tracer) as update:
        for number, role in enumerate((Role.PREVIOUS, Role.CANDIDATE, Role.MESSAGE)):
            update.read(f"memory:{number}", role=role, content=str(number))
    types = (LinkType.SUPERSEDES, LinkType.CONSIDERED, LinkType.DERIVED_FROM)
    expected = {(o, str(t)): (f"memory:{n}",) for n, (o, t) in enumerate(zip(origins, types, strict=True))}
    assert links(recording, "update_memory") == expected
