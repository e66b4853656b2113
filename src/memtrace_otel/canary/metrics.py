"""What flights of the canary tell operators: OpenTelemetry gauges, and the same as a file for a Prometheus scrape."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from opentelemetry import metrics

from memtrace_otel import semconv
from memtrace_otel.canary.flight import Outcome, Stage
from memtrace_otel.version import __version__

_SUCCESS = "When the verdict of a canary last came back and was right (s since the epoch), 0 before the first."
_DURATION = "Seconds that the canary's last flight took."
_LOST = "1 for the stage that lost the canary's last flight, else 0."
_FILE_BYTES = 1 << 16


class CanaryMetrics:
    """Records outcomes; `textfile` is written anew after each (textfile collector of Prometheus' node exporter)."""

    def __init__(self, textfile: Path | None = None, provider: metrics.MeterProvider | None = None) -> None:
        meter = metrics.get_meter(semconv.CANARY_SCOPE, __version__, provider, semconv.SCHEMA_URL)
        self._success = meter.create_gauge(semconv.METRIC_CANARY_SUCCESS, "s", _SUCCESS)
        self._duration = meter.create_gauge(semconv.METRIC_CANARY_DURATION, "s", _DURATION)
        self._lost = meter.create_gauge(semconv.METRIC_CANARY_LOST, "{flight}", _LOST)
        self._textfile = textfile
        self.last_success = _last_success(textfile) if textfile else 0.0

    def flown(self, outcome: Outcome, now: float) -> None:
        """Record an outcome at `now` (s since the epoch). Raises OSError when the file cannot be written."""
        if outcome.lost is None:
            self.last_success = now
        self._success.set(self.last_success)
        self._duration.set(outcome.seconds)
        for stage in Stage:
            self._lost.set(int(stage == outcome.lost), {semconv.CANARY_STAGE: stage})
        if self._textfile:
            self._write(self._textfile, "".join(f"{line}\n" for line in self._lines(outcome)))

    def check(self) -> None:
        """Raise OSError when the file could not be written now."""
        if self._textfile:
            self._write(self._textfile)

    def _write(self, textfile: Path, text: str | None = None) -> None:
        """Write the file, without a text only what it is made of. Errors name it as the user does."""
        fresh = textfile.with_name(f".{textfile.name}.{os.getpid()}")
        try:
            fresh.write_text(text or "", "utf-8")
            if text is None:
                fresh.unlink()
            else:
                fresh.replace(textfile)  # a scrape sees the old file or the new one
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(textfile)) from None

    def _lines(self, outcome: Outcome) -> Iterator[str]:
        yield from _gauge(f"{_name(semconv.METRIC_CANARY_SUCCESS)}_seconds", _SUCCESS)
        yield f"{_name(semconv.METRIC_CANARY_SUCCESS)}_seconds {self.last_success:.3f}"
        yield from _gauge(f"{_name(semconv.METRIC_CANARY_DURATION)}_seconds", _DURATION)
        yield f"{_name(semconv.METRIC_CANARY_DURATION)}_seconds {outcome.seconds:.3f}"
        lost = _name(semconv.METRIC_CANARY_LOST)
        yield from _gauge(lost, _LOST)
        for stage in Stage:
            yield f'{lost}{{{_name(semconv.CANARY_STAGE)}="{stage}"}} {int(stage == outcome.lost)}'


def _gauge(name: str, help: str) -> Iterator[str]:
    yield f"# HELP {name} {help}"
    yield f"# TYPE {name} gauge"


def _name(name: str) -> str:
    return name.replace(".", "_")


def _last_success(textfile: Path) -> float:
    """What an earlier process has written: an hourly run of its own must not forget when it last worked."""
    try:
        with textfile.open("rb") as file:
            text = file.read(_FILE_BYTES).decode("utf-8", "replace")
    except OSError:
        return 0.0
    found = re.search(rf"^{_name(semconv.METRIC_CANARY_SUCCESS)}_seconds (\d+(?:\.\d+)?)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0
