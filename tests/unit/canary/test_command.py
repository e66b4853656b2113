"""`memtrace-otel canary`: exit status and messages for known outcomes of flights."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest
from click.testing import CliRunner, Result

from memtrace_otel.canary import CanaryMetrics, Outcome, Stage
from memtrace_otel.cli import main
from memtrace_otel.pages import NO_PAGE, UNSURE, FoundPage, JaegerPage

CAME, LOST = Outcome(None, "update by span a", "a" * 32, 1.0), Outcome(Stage.VERDICT, "no verdict", "b" * 32, 1.0)
ENDING = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Restore the signal handlers after the test."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def run(
    monkeypatch: pytest.MonkeyPatch,
    outcomes: list[Outcome],
    *options: str,
    number: int = signal.SIGTERM,
    found: FoundPage | None = None,
) -> Result:
    """Run the command; signal `number` arrives after these outcomes. `found` is the page of the receiver."""

    def fly(*_: object) -> Outcome:
        if not outcomes:
            signal.raise_signal(number)
        return outcomes.pop(0)

    monkeypatch.setattr("memtrace_otel.canary.fly", fly)
    monkeypatch.setattr("memtrace_otel.pages.find_page", lambda endpoint, trace_id, patience: found)
    addresses = ("--otlp-endpoint", "http://127.0.0.1:9", "--source", "jaeger+http://127.0.0.1:9")
    return CliRunner().invoke(main, ["canary", *addresses, *options])


@ENDING
@pytest.mark.parametrize(("outcomes", "status"), [([], 1), ([CAME], 0), ([CAME, LOST], 1), ([LOST, CAME], 0)])
def test_a_signal_ends_the_command_with_the_status_of_the_last_flight(
    number: int, outcomes: list[Outcome], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(monkeypatch, [*outcomes], "--interval", "0.001", number=number).exit_code == status


@ENDING
def test_a_signal_during_the_first_flight_is_status_1(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = run(monkeypatch, [], number=number)
    assert (ended.exit_code, ended.output) == (1, "")


@pytest.mark.parametrize(("before", "last", "status"), [(CAME, LOST, 1), (LOST, CAME, 0)])
def test_a_signal_during_the_metrics_ends_with_the_status_of_that_flight(
    before: Outcome, last: Outcome, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def record(self: CanaryMetrics, outcome: Outcome, now: float) -> None:
        if outcome is last:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(CanaryMetrics, "record", record)
    assert run(monkeypatch, [before, last], "--interval", "0.001").exit_code == status


def test_a_lost_flight_is_shown_by_page_address_or_trace_id(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = run(monkeypatch, [LOST], "--ui", "jaeger=http://jaeger:16686")
    assert ended.output.endswith(f"\n  http://jaeger:16686/trace/{LOST.trace_id}\n")
    ended = run(monkeypatch, [LOST])
    assert (ended.exit_code, ended.output.splitlines()[-1]) == (1, f"  trace {LOST.trace_id}: {NO_PAGE}")
    assert "--ui" in NO_PAGE


def test_a_flight_that_was_not_sent_has_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = run(monkeypatch, [replace(LOST, lost=Stage.SEND)], "--ui", "jaeger=http://jaeger:16686")
    assert LOST.trace_id not in ended.output
    assert "OTEL_EXPORTER_OTLP_HEADERS" in ended.output


def test_a_page_of_a_guessed_backend_is_marked_unsure(monkeypatch: pytest.MonkeyPatch) -> None:
    page = JaegerPage("http://localhost:16686")
    where = f"  {page.trace(LOST.trace_id)}"
    ended = run(monkeypatch, [LOST], found=FoundPage(page, True))
    assert ended.output.splitlines()[-1] == where
    ended = run(monkeypatch, [LOST], found=FoundPage(page, False))
    assert ended.output.splitlines()[-1] == f"{where}, {UNSURE}"
