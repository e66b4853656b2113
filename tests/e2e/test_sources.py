"""The contract of sources, against the real Jaeger (memory, Badger) and Tempo."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from memtrace_otel import settings
from memtrace_otel.model import OperationSpan
from memtrace_otel.store import RemoteSource, open_source
from memtrace_otel.testing import Fill, SourceContract, contract_span
from tests.e2e.backends.jaeger import running_jaeger
from tests.e2e.backends.service import wait_for
from tests.e2e.backends.tempo import QUICK, Tempo, running_tempo
from tests.e2e.moved import MovedSource, export, moved, wait_until_readable

MINUTE = 60 * 10**9


def filler(source: RemoteSource, endpoint: str, headers: dict[str, str] | None = None) -> Fill:
    """A `fill` that sends the contract's spans as if its year 1970 had begun a minute ago."""
    by = time.time_ns() - MINUTE

    def fill(*requests: Sequence[OperationSpan]) -> MovedSource:
        later = [[moved(span, by) for span in spans] for spans in requests]
        for spans in later:
            export(endpoint, spans, headers)
        sent = [span for spans in later for span in spans]
        wait_until_readable(source.trace, sent)
        late = {span.trace_id for span in sent if span.end > time.time_ns() + 60 * MINUTE}
        found = {span.trace_id for span in sent} - late
        wait_for(lambda: found <= set(source.trace_ids()), "the traces are found by search")
        return MovedSource(source, by)

    return fill


class TestJaegerMemory(SourceContract):
    @pytest.fixture
    def fill(self, tmp_path: Path) -> Iterator[Fill]:
        with running_jaeger(tmp_path) as jaeger:
            yield filler(open_source(f"jaeger+{jaeger.url}"), jaeger.otlp_http)


class TestJaegerBadger(SourceContract):
    @pytest.fixture
    def fill(self, tmp_path: Path) -> Iterator[Fill]:
        with running_jaeger(tmp_path, "badger") as jaeger:
            yield filler(open_source(f"jaeger+{jaeger.url}"), jaeger.otlp_http)


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tempo]:
    """A Tempo of many tenants: each is an empty one."""
    with running_tempo(tmp_path_factory.mktemp("tenants"), **QUICK, TEMPO_MULTITENANCY="true") as tempo:
        yield tempo


def tenant(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A tenant that nobody has used, as the source reads and as spans are sent."""
    name = f"t-{secrets.token_hex(6)}"
    monkeypatch.setenv(settings.SOURCE_TENANT.env, name)
    return {"x-scope-orgid": name}


class TestTempo(SourceContract):
    @pytest.fixture
    def fill(self, tenants: Tempo, monkeypatch: pytest.MonkeyPatch) -> Fill:
        headers = tenant(monkeypatch)
        return filler(open_source(f"tempo+{tenants.url}"), tenants.otlp_http, headers)

    def test_clocks_that_jumped_stop_nothing(self, fill: Fill) -> None:
        """Tempo searches by seconds in 32 bits: what is past 2106 is found by its id alone."""
        spans = [contract_span(1, 1, 0), contract_span(1, 2, 1), contract_span(1, 3, 9_000_000_000)]
        source = fill([spans[2]], [spans[0]], [spans[1]], [contract_span(2, 4, 2)])
        assert source.trace(spans[0].trace_id) == spans
        assert [span.span_id for span in source.spans(since=2 * 10**9)] == [f"{4:016x}"]
