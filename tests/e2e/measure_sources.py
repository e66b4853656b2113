"""What attribution from a real Tempo costs, in stores of two sizes: `python -m tests.e2e.measure_sources`.

Every failing trace is of an owner of its own (nothing that is read for one serves another), whose memory is a story of
a dozen traces. The larger store has more owners, whose answers are right.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from memtrace_otel.annotate import BackendLog, MemoryLog, deliver
from memtrace_otel.model import OperationSpan
from memtrace_otel.pipeline.diagnose import diagnose, record, shown_by
from memtrace_otel.semconv import OpKind
from memtrace_otel.sources import RemoteSource, open_source
from tests.contract.planted import FAULTS_OF, Fault, System
from tests.e2e.backends.service import wait_for
from tests.e2e.backends.tempo import Tempo, running_tempo
from tests.e2e.moved import export
from tests.e2e.stories import planted

FAULTS = sorted(FAULTS_OF[System.ADDITIVE] - {Fault.NONE, Fault.STORED_BESIDE})
STORIES = 8
FLAT = 1.05
"""What a case may cost in a larger store, over what it costs in a smaller one."""


@dataclass(frozen=True)
class Cost:
    """What attributing `cases` took."""

    cases: int
    seconds: float
    own: float
    requests: int
    searches: int
    bytes: int

    def __str__(self) -> str:
        per = self.cases
        return (
            f"{per / self.seconds:6.1f} cases/s  {1000 * self.seconds / per:6.1f} ms a case, "
            f"{1000 * self.own / per:5.1f} of them this process  {self.requests / per:5.2f} requests a case "
            f"({self.searches} searches in all)  {self.bytes / per / 1024:5.1f} KiB a case"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Attribution from a real Tempo: rate, requests and cost per case.")
    parser.add_argument("--cases", type=int, default=1000, help="failing traces (default 1000)")
    parser.add_argument("--larger", type=int, default=4, help="owners in the larger store, in multiples (default 4)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_tempo(Path(folder)) as tempo:
        failing, _, _ = compare(tempo, options.cases, options.larger)
        marked = cost(tempo, failing, endpoint=tempo.otlp_http)
        print(f"with annotation\n  {marked}", flush=True)


def compare(tempo: Tempo, cases: int, larger: int) -> tuple[set[str], Cost, Cost]:
    """Fill an empty Tempo and print; returns the failing traces, and what they cost before and after it grew."""
    failing = set[str]()
    spans = fill(tempo, (planted(System.ADDITIVE, FAULTS[n % len(FAULTS)], n % STORIES) for n in range(cases)), failing)
    small = cost(tempo, failing)
    print(f"attribution from Tempo: {cases} failing traces, {spans} spans in it\n  {small}", flush=True)
    others = cases * (larger - 1)
    spans += fill(tempo, (planted(System.ADDITIVE, Fault.NONE, n % STORIES) for n in range(others)), set())
    large = cost(tempo, failing)
    print(f"the same, {spans} spans in it\n  {large}", flush=True)
    requests, size = large.requests / small.requests, large.bytes / small.bytes
    print(
        f"in a store {larger} times as large: requests a case x {requests:.2f}, bytes x {size:.2f}"
        f" (bar: {FLAT}, {'holds' if max(requests, size) <= FLAT else 'FALLS SHORT'}),"
        f" time x {large.seconds / small.seconds:.2f}, time of this process x {large.own / small.own:.2f}",
        flush=True,
    )
    return failing, small, large


def fill(tempo: Tempo, stories: Iterable[list[OperationSpan]], failing: set[str]) -> int:
    """Send stories, as they are made; add the traces with an answer to `failing`; return the number of spans."""
    sent, waiting, last = 0, list[OperationSpan](), ""
    for spans in stories:
        waiting += spans
        last = next(span.trace_id for span in spans if span.kind == OpKind.RESPOND)
        failing.add(last)
        if len(waiting) >= 2000:
            export(tempo.otlp_http, waiting)
            sent, waiting = sent + len(waiting), []
    export(tempo.otlp_http, waiting)
    time.sleep(7)  # the idle period after which a trace is complete
    tempo.flush()
    source = open_source(f"tempo+{tempo.url}")

    def judged() -> bool:
        answers = (span.origin for span in source.trace(last) if span.kind == OpKind.RESPOND)
        return any(source.readers(answer, kinds=[OpKind.JUDGE]) for answer in answers)

    wait_for(judged, "the last answer's judge is found")
    return sent + len(waiting)


def cost(tempo: Tempo, failing: set[str], endpoint: str = "") -> Cost:
    """Attribute what fails; AssertionError when anything is missing."""
    source = open_source(f"tempo+{tempo.url}")
    replies = count_replies(source)
    own, started = _cpu(), time.perf_counter()
    asked = source.failing(time.time_ns() - 24 * 3600 * 10**9)
    assert set(asked) == failing, f"{len(asked)} of {len(failing)} failing traces were found"
    verdicts = Counter[str]()
    log = BackendLog(shown_by(source), MemoryLog())
    for diagnosis in diagnose(source, log, asked, known=True):
        verdicts.update(verdict.failure_type for verdict in diagnosis.verdicts)
        if endpoint:
            deliver(record(log, diagnosis), log, endpoint)
    assert verdicts.total() == len(failing), f"{verdicts.total()} verdicts on {len(failing)} failing traces"
    seconds = time.perf_counter() - started
    searches = sum("/api/search" in target for target, _ in replies)
    return Cost(len(failing), seconds, _cpu() - own, len(replies), searches, sum(size for _, size in replies))


def count_replies(source: RemoteSource) -> list[tuple[str, int]]:
    """Return a list that grows with each reply: (URL, bytes)."""
    replies: list[tuple[str, int]] = []
    ask = source._api._ask

    def counted(target: str) -> tuple[int, bytes, float | None]:
        status, body, retry_after = ask(target)
        replies.append((target, len(body)))
        return status, body, retry_after

    source._api._ask = counted  # type: ignore[method-assign]
    return replies


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    os.environ.setdefault("OTEL_LOGS_EXPORTER", "none")
    os.environ.setdefault("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    main()
