"""The pages on a database of 100,000 operations and 10,000 failures: time to the first byte, and CPU by size.

The server runs in the measuring process. Other load changes the first byte, and leaves the ratio of CPU times as it is.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

from starlette.testclient import TestClient

from memtrace_otel.attribution import verdict_document
from memtrace_otel.model import Failure, OperationSpan, Verdict
from memtrace_otel.semconv import FailureType, OpKind
from memtrace_otel.sources.database import unsynced
from memtrace_otel.web.app import Pages
from memtrace_otel.web.store import PageStore
from tests.bench import workload
from tests.bench.measure import Measure, at_most, percentile, progress

OPERATIONS, SMALL = 100_000, 1_000
FAILURES_PER_OPERATION = 0.1
ROUNDS, FIRST_BYTE = 40, 200.0  # ms
CHANGE = 8
"""The file changes before every eighth request."""
_HOST = "http://127.0.0.1"
_CAUSES = 20
"""Failures of one cause."""


def measure() -> Iterator[Measure]:
    times: dict[int, dict[str, tuple[float, float]]] = {}
    with TemporaryDirectory() as name:
        for size in (OPERATIONS, SMALL):
            progress(f"pages on {size:,} operations")
            path = Path(name) / f"{size}.db"
            shutil.copy(workload.database(size).path, path)
            times[size] = page_times(path, round(size * FAILURES_PER_OPERATION))
    for page, (first_byte, cpu) in times[OPERATIONS].items():
        yield at_most(f"page {page}, first byte p95 at {OPERATIONS:,} operations", first_byte, FIRST_BYTE, 1.0, "ms")
        name = f"page {page}, CPU of a request at {OPERATIONS:,} operations, over {SMALL:,}"
        yield at_most(name, cpu, times[SMALL][page][1], 3.0, "ms")


def page_times(path: Path, failures: int) -> dict[str, tuple[float, float]]:
    """Return p95 of the first byte and the median CPU time of each page (ms); fill the file with failures first."""
    with PageStore.open(path) as store:
        answers = list(islice(store.spans(kinds=(OpKind.RESPOND,)), failures))
        with store._locked() as connection, unsynced(connection):  # one commit for each verdict
            fill(store, answers, failures)
        client = TestClient(Pages(store, {}).app(), _HOST, cookies={"memtrace_annotator": "ada"})
        return {name: _request(client, store, addresses) for name, addresses in pages(answers).items()}


def fill(store: PageStore, answers: list[OperationSpan], failures: int) -> None:
    """Store a verdict on each answer, and on further answers that the file does not hold."""
    kinds = cycle(FailureType)
    texts = [" ".join(islice(cycle(workload.WORDS), number % 40, number % 40 + 40)) for number in range(40)]
    for number, answer in enumerate(islice(cycle(answers), failures)):
        if number >= len(answers):
            answer = replace(answer, span_id=f"{number:016x}", start=answer.start + number)
        cause = answers[number // _CAUSES % len(answers)]
        failure = Failure(answer, question=texts[number % 40], answer=texts[number % 37], expected=texts[number % 31])
        verdict = Verdict(
            failure=failure,
            failure_type=next(kinds),
            trace_id=cause.trace_id,
            span_id=cause.span_id,
            operation=cause.name,
            operation_kind=cause.kind,
            variable="",
            confidence=0.9,
            reason=f"{number}: {texts[number % 29]}",
            attribution_id=f"{number:032x}",
        )
        document = json.dumps(verdict_document(verdict, answer.scope))
        store.save_verdict(answer.origin, verdict.attribution_id, document)


def pages(answers: list[OperationSpan]) -> dict[str, list[str]]:
    """Return addresses of every page by its name."""
    some = answers[:: max(1, len(answers) // 10)]
    scopes = [span.scope for span in some]
    return {
        "failures": ["/failures"],
        "last failures": ["/failures?page=150"],
        "failures of a type": ["/failures?type=extraction&reviewed=no"],
        "failures by cause": ["/failures?view=cause"],
        "search": [f"/failures?text={quote('lighthouse keeper')}", "/failures?text=nowhere"],
        "failure": [f"/failure/{span.origin}" for span in some],
        "memories": ["/memories"],
        "memory": [f"/memory/{scope}" for scope in scopes],
        "health": [f"/memory/{scope}/health" for scope in scopes],
        "review": ["/review"],
        "review item": [f"/review/{span.origin}" for span in some],
    }


def _request(client: TestClient, store: PageStore, addresses: list[str]) -> tuple[float, float]:
    waited: list[float] = []
    worked: list[float] = []
    for address in addresses:
        while "being measured" in client.get(address).text:
            pass
    for number, address in enumerate(islice(cycle(addresses), ROUNDS)):
        if number % CHANGE == 0:  # the results that the pages keep are outdated
            store.mark_sent("bench", [f"{address} {number}"])
        cpu, started = time.process_time(), time.perf_counter()
        reply = client.get(address)
        waited.append((time.perf_counter() - started) * 1000)
        worked.append((time.process_time() - cpu) * 1000)
        assert reply.status_code == 200, (address, reply.text)
    return percentile(waited, 95), percentile(worked, 50)
