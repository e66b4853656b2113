"""How `memtrace-otel canary` ends, and what it says, after flights whose outcomes are known."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from memtrace_otel.canary import CanaryMetrics, Outcome, Stage
from memtrace_otel.cli import main
from memtrace_otel.pages import NO_PAGE, UNSURE, FoundPage, JaegerPage

CAME, LOST = Outcome(None, "update by span a", "a" * 32, 1.0), Outcome(Stage.VERDICT, "no verdict", "b" * 32, 1.0)
ENDING = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """The command's handlers end with the test."""
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
    """Run the command; `number` comes during the flight after these outcomes. `found` is the receiver's page."""

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
def test_a_signal_ends_it_with_the_status_of_the_last_flight(
    number: int, outcomes: list[Outcome], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(monkeypatch, [*outcomes], "--interval", "0.001", number=number).exit_code == status


@ENDING
def test_a_signal_during_a_single_flight_ends_it_as_lost(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = run(monkeypatch, [], number=number)
    assert (ended.exit_code, ended.output) == (1, "")


@pytest.mark.parametrize(("before", "last", "status"), [(CAME, LOST, 1), (LOST, CAME, 0)])
def test_a_signal_while_a_flight_is_told_ends_it_with_the_status_of_that_flight(
    before: Outcome, last: Outcome, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flown(self: CanaryMetrics, outcome: Outcome, now: float) -> None:
        if outcome is last:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(CanaryMetrics, "flown", flown)
    assert run(monkeypatch, [before, last], "--interval", "0.001").exit_code == status


@pytest.mark.parametrize("options", [(), ("--interval", "0.001")])
def test_a_textfile_that_cannot_be_written_is_told_before_a_flight(
    options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, flights = str(tmp_path / "missing" / "canary.prom"), [CAME]
    ended = run(monkeypatch, flights, "--textfile", file, *options)
    assert (ended.exit_code, ended.output) == (2, f"memtrace-otel: {file}: No such file or directory\n")
    assert flights == [CAME]


@pytest.mark.parametrize(("outcome", "said"), [(CAME, "read back after"), (LOST, "lost at stage verdict")])
def test_a_textfile_that_can_be_written_no_more_takes_no_outcome_away_and_ends_a_single_flight_only(
    outcome: Outcome, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "metrics"
    file = str(folder / "canary.prom")

    def flown(self: CanaryMetrics, outcome: Outcome, now: float) -> None:
        folder.rmdir()
        try:
            recorded(self, outcome, now)
        finally:
            folder.mkdir()

    recorded = CanaryMetrics.flown
    folder.mkdir()
    monkeypatch.setattr(CanaryMetrics, "flown", flown)
    ended = run(monkeypatch, [outcome, outcome], "--textfile", file, "--interval", "0.001")
    assert ended.exit_code == (outcome is LOST)
    assert ended.output.count(f"canary: {file}: No such file or directory\n") == ended.output.count(said) == 2
    ended = run(monkeypatch, [outcome], "--textfile", file)
    assert (ended.exit_code, ended.output.count(said)) == (2, 1)
    assert ended.output.endswith(f"\nmemtrace-otel: {file}: No such file or directory\n")


def test_the_check_of_a_textfile_leaves_it_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "canary.prom"
    assert run(monkeypatch, [CAME], "--textfile", str(file)).exit_code == 0
    before = file.read_text("utf-8")
    run(monkeypatch, [], "--textfile", str(file))
    assert (file.read_text("utf-8"), list(tmp_path.iterdir())) == (before, [file])


def test_a_lost_flight_is_shown_on_the_page_that_is_named_or_by_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = run(monkeypatch, [LOST], "--ui", "jaeger=http://jaeger:16686")
    assert ended.output.endswith(f"\n  http://jaeger:16686/trace/{LOST.trace_id}\n")
    ended = run(monkeypatch, [LOST])
    assert (ended.exit_code, ended.output.splitlines()[-1]) == (1, f"  trace {LOST.trace_id}: {NO_PAGE}")
    assert "--ui" in NO_PAGE


def test_what_was_never_sent_is_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = run(monkeypatch, [replace(LOST, lost=Stage.SEND)], "--ui", "jaeger=http://jaeger:16686")
    assert LOST.trace_id not in ended.output
    assert "OTEL_EXPORTER_OTLP_HEADERS" in ended.output


def test_a_page_that_may_be_of_another_backend_is_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    page = JaegerPage("http://localhost:16686")
    where = f"  {page.trace(LOST.trace_id)}"
    ended = run(monkeypatch, [LOST], found=FoundPage(page, True))
    assert ended.output.splitlines()[-1] == where
    ended = run(monkeypatch, [LOST], found=FoundPage(page, False))
    assert ended.output.splitlines()[-1] == f"{where}, {UNSURE}"
