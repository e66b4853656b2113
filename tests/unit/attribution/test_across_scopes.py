"""What a span of another scope, or of none, did to a record is to blame as if its owner had done it."""

from __future__ import annotations

from pathlib import Path

import pytest

from memtrace_otel.annotate import MemoryLog
from memtrace_otel.attribution import attribute_trace
from memtrace_otel.graph import load_graph
from memtrace_otel.model import Verdict
from memtrace_otel.otlp import decode_request
from memtrace_otel.otlp.sdk import encode_sdk_spans
from memtrace_otel.pipeline.diagnose import diagnose
from memtrace_otel.semconv import FailureType
from memtrace_otel.sources import SqliteStore
from tests.conftest import Recording
from tests.contract.elsewhere import deleted_by, people, replaced_in, ways
from tests.unit.sources.listed_source import ListedSource

kept_ways = pytest.mark.parametrize("kept", ["in a file", "in a backend"])


@people
@ways
@kept_ways
def test_a_deletion_by_another_memory_counts(
    recording: Recording, content_on: None, tmp_path: Path, named: str, who: str, kept: str
) -> None:
    answer, delete = deleted_by(who, named, recording.tracer)
    verdict = verdict_on(answer[:32], recording, kept, tmp_path)
    assert (verdict.failure_type, f"{verdict.trace_id}-{verdict.span_id}") == (FailureType.DELETION, delete)


@pytest.mark.parametrize("scope", ["a" * 16, ""], ids=["of a memory", "without a scope"])
@kept_ways
def test_a_record_replaced_by_another_memory_is_stale(
    recording: Recording, content_on: None, tmp_path: Path, scope: str, kept: str
) -> None:
    answer, search = replaced_in(scope, recording.tracer)
    verdict = verdict_on(answer[:32], recording, kept, tmp_path)
    assert (verdict.failure_type, f"{verdict.trace_id}-{verdict.span_id}") == (FailureType.RETRIEVAL, search)


def verdict_on(trace_id: str, recording: Recording, kept: str, path: Path) -> Verdict:
    request = encode_sdk_spans(recording.spans())
    if kept == "in a file":
        with SqliteStore.open(path / "a.db") as store:
            store.add_request(request)
            [verdict] = attribute_trace(load_graph(store, trace_id), trace_id)
    else:
        [found] = diagnose(ListedSource().tell(decode_request(request)), MemoryLog(), [trace_id])
        [verdict] = found.verdicts
    return verdict
