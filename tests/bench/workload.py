"""A synthetic memory workload of any size: its spans, and the database file that several benchmarks share.

The plan is that of the peer's own measurements. In a turn a message is taken apart into a fact (`extract`), which makes
a memory (`create`) or the next version of one (`update`). Every tenth turn a question finds ten memories (`retrieve`)
and is answered (`respond`); the answer is judged (`judge`). A turn is a trace and a user a memory scope. Users take
turns, so a scope is spread over the whole file, and ids are random, so an index is written all over.
"""

from __future__ import annotations

import json
import random
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import IO

from memtrace_otel import semconv
from memtrace_otel.model import AttributeValue, Link, OperationSpan, Variable, content_digest, make_origin
from memtrace_otel.otlp import encode_request
from memtrace_otel.semconv import OpKind, Role
from memtrace_otel.sources import SqliteStore

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "bench" / "workload"
"""Files of this run; the run empties it at its start."""
SCOPE_OPERATIONS = 2_000
_BATCH = 500
_QUESTION_TURNS, _TOP_K, _UPDATE_SHARE, _RECENT = 10, 10, 0.3, 200
WORDS = re.findall(
    r"\w+",
    "moved Lisbon March started harbour office sister Ana visits second weekend usually cook fish together because"
    " doctor said walks every morning before train station guitar lessons Tuesday evening brother Jonas allergic"
    " hazelnuts prefers tea garden tomatoes rain bicycle stolen insurance letter cousin wedding Porto hotel booked"
    " reading novel lighthouse keeper daughter school project volcano neighbour dog Biscuit shelter",
)
_START = 1_700_000_000_000_000_000
_TURN, _STEP = 1_000_000_000, 10_000_000
_RESOURCE = {"service.name": "assistant", "service.version": "1.0"}


def turns(operations: int, *, scope_operations: int = SCOPE_OPERATIONS, seed: int = 0) -> Iterator[list[OperationSpan]]:
    """Yield turns, the spans of one trace each, in order of time, until there are at least `operations` spans.

    There are `operations / scope_operations` users, at least one. The same arguments give the same spans.
    """
    rng = random.Random(seed)
    sentences = [_sentence(rng) for _ in range(1000)]
    users = [_User(rng, sentences) for _ in range(max(1, round(operations / scope_operations)))]
    made = 0
    for number in count():
        spans = users[number % len(users)].turn(number)
        yield spans
        made += len(spans)
        if made >= operations:
            return


@dataclass(frozen=True, slots=True)
class Built:
    """A database file of the workload: seconds and CPU seconds that the store took, and the most MiB it held."""

    path: Path
    operations: int
    seconds: float
    cpu_seconds: float
    resident_mib: float


def database(operations: int) -> Built:
    """The file of at least `operations` operations, everything decoded; made on the first call of a run."""
    path = FOLDER / f"{operations}.db"
    figures = path.with_suffix(".json")
    if not figures.exists():
        path.unlink(missing_ok=True)
        command = [sys.executable, "-m", __name__, "build", str(operations), str(path)]
        figures.write_bytes(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)
    return Built(path, **json.loads(figures.read_text()))


def main(task: str, operations: str, path: str = "") -> None:
    """What a process of its own does: `write` requests to standard output, or `build` a file of them."""
    if task == "write":
        for body in _bodies(int(operations)):
            sys.stdout.buffer.write(len(body).to_bytes(4, "big") + body)
        return
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", __spec__.name, "write", operations]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        sys.stdout.write(json.dumps(_build(Path(path), writer.stdout)))


def _bodies(operations: int) -> Iterator[bytes]:
    """Requests as a batch processor sends them, of about 500 spans."""
    batch: list[OperationSpan] = []
    for turn in turns(operations):
        batch += turn
        if len(batch) >= _BATCH:
            yield encode_request(batch)
            batch.clear()
    yield encode_request(batch)


def _build(path: Path, requests: IO[bytes]) -> dict[str, float]:
    seconds, operations = 0.0, 0
    cpu_started = time.process_time()
    with SqliteStore.open(path) as store:
        while size := requests.read(4):
            body = requests.read(int.from_bytes(size, "big"))
            started = time.perf_counter()
            store.add_request(body)
            operations += store.decode()
            seconds += time.perf_counter() - started
        started = time.perf_counter()
    seconds += time.perf_counter() - started  # the last connection copies the log into the file
    return {
        "operations": operations,
        "seconds": seconds,
        "cpu_seconds": time.process_time() - cpu_started,
        "resident_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


class _User:
    """One memory: the newest version of each record, as what a reader sees of it."""

    def __init__(self, rng: random.Random, sentences: Sequence[str]) -> None:
        self._rng = rng
        self._sentences = sentences
        self._scope = f"{rng.getrandbits(64):016x}"
        self._records: list[Variable] = []
        self._turns = 0

    def turn(self, number: int) -> list[OperationSpan]:
        """The `number`-th turn of all users."""
        self._turns += 1
        trace = _Trace(self._rng, self._scope, _START + number * _TURN)
        text = f"{self._rng.choice(self._sentences)} ({number})"
        message = _variable(f"message:{number}", Role.MESSAGE, text)
        fact = _variable(f"fact:{content_digest(text[-80:])}", Role.OTHER, text[-80:], "DERIVE")
        fact = _read(trace.add(OpKind.EXTRACT, "memtrace.extract", [message], fact), Role.OTHER)
        self._remember(trace, fact, number, text[-100:])
        if self._turns % _QUESTION_TURNS == 0:
            self._ask(trace, number)
        return trace.spans

    def _remember(self, trace: _Trace, fact: Variable, number: int, text: str) -> None:
        rng, records = self._rng, self._records
        if records and rng.random() < _UPDATE_SHARE:
            at = rng.randrange(max(0, len(records) - _RECENT), len(records))
            memory = _variable(records[at].ref, Role.OTHER, text, "UPDATE")
            records[at] = trace.add(OpKind.UPDATE, "update_memory", [_read(records[at], Role.PREVIOUS), fact], memory)
        else:
            memory = _variable(f"memory:{rng.getrandbits(128):032x}", Role.OTHER, text, "ADD")
            records.append(trace.add(OpKind.CREATE, "create_memory", [fact], memory))

    def _ask(self, trace: _Trace, number: int) -> None:
        rng = self._rng
        found = rng.sample(self._records[-1000:], min(_TOP_K, len(self._records)))
        query = _variable(f"query:{number}", Role.QUERY, f"where does {rng.choice(WORDS)} live ({number})?")
        hits = [_read(record, Role.HIT, round(rng.random(), 4)) for record in found]
        context = _variable(f"context:{trace.next_id}", Role.CONTEXT, "\n".join(v.content for v in found), "DERIVE")
        context = trace.add(OpKind.RETRIEVE, "search_memory", [query, *hits], context)
        answer = _variable(f"answer:{trace.next_id}", Role.ANSWER, f"In {rng.choice(WORDS)} ({number}).", "DERIVE")
        answer = trace.add(OpKind.RESPOND, "chat", [query, _read(context, Role.CONTEXT)], answer)
        expected = _variable(f"expected:{content_digest(query.content)}", Role.EXPECTED, "In Lisbon.")
        verdict: dict[str, AttributeValue] = {
            semconv.EVALUATION_NAME: "correctness",
            semconv.EVALUATION_LABEL: "fail" if number % 20 == 0 else "pass",
        }
        trace.add(OpKind.JUDGE, "memtrace.judge", [_read(answer, Role.ANSWER), expected], Variable(""), verdict)


class _Trace:
    """The spans of one turn, one after the other."""

    def __init__(self, rng: random.Random, scope: str, start: int) -> None:
        self._rng = rng
        self._scope = scope
        self._start = start
        self._trace_id = f"{rng.getrandbits(128):032x}"
        self.next_id = f"{rng.getrandbits(64):016x}"
        self.spans: list[OperationSpan] = []

    def add(
        self,
        kind: OpKind,
        name: str,
        inputs: list[Variable],
        output: Variable,
        more: Mapping[str, AttributeValue] = {},
    ) -> Variable:
        """Add an operation; return the version that it wrote."""
        origin = make_origin(self._trace_id, self.next_id)
        start = self._start + len(self.spans) * _STEP
        links: dict[str, list[str]] = {}
        for variable in inputs:
            if variable.origin:
                links.setdefault(variable.origin, []).append(variable.ref)
        self.spans.append(
            OperationSpan(
                trace_id=self._trace_id,
                span_id=self.next_id,
                parent_id=self.spans[0].span_id if self.spans else "",
                name=name,
                kind=kind,
                system="bench",
                scope=self._scope,
                seq=start // _STEP,
                start=start,
                end=start + _STEP - 1000,
                inputs=tuple(inputs),
                outputs=(output,) if output.ref else (),
                attributes={semconv.GEN_AI_OPERATION_NAME: name, **more},
                resource=_RESOURCE,
                instrumentation_scope="memtrace_otel.bench",
                links=tuple(
                    Link(origin[:32], origin[33:], {semconv.LINK_TYPE: "derived_from", semconv.LINK_REFS: refs})
                    for origin, refs in links.items()
                ),
            )
        )
        self.next_id = f"{self._rng.getrandbits(64):016x}"
        return replace(output, origin=origin)


def _variable(ref: str, role: Role, content: str, action: str = "") -> Variable:
    size = len(content) if action else None
    return Variable(ref, role, digest=content_digest(content), content=content, action=action, size=size)


def _read(version: Variable, role: Role, score: float | None = None) -> Variable:
    """A version as a reader names it: its content is where it was written."""
    return Variable(version.ref, role, version.origin, version.digest, score=score)


def _sentence(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=24))[:150]


if __name__ == "__main__":
    main(*sys.argv[1:])
