"""Which span of another instrumentation is the one of the call under way."""

from __future__ import annotations

from contextvars import copy_context

import pytest

from memtrace_otel.capture import adoption
from tests.conftest import Recording

FOUND = {"announced": adoption.model_call_of_another, "announced_retrieval": adoption.retrieval_of_another}


@pytest.mark.parametrize("kind", FOUND)
def test_an_announced_span_is_one_of_its_kind(recording: Recording, kind: str) -> None:
    span = recording.tracer.start_span("says in the end what it was")

    def found() -> list[str]:
        getattr(adoption, kind).set(span)
        return [name for name, find in FOUND.items() if find() is span]

    assert copy_context().run(found) == [kind]
