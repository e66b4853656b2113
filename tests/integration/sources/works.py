"""Everything that writes to the file of a store, as work that can be done again after it was interrupted.

`run` says what was acknowledged; `verify` raises AssertionError when the file is not sound or lacks what was said;
`state` is what the file holds when the work is done.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_letters

from memtrace_otel.model import OperationSpan, Variable
from memtrace_otel.otlp import encode_request
from memtrace_otel.otlp.feedback import encode_feedback
from memtrace_otel.serve.arrivals import WatchedStore
from memtrace_otel.sources import SqliteStore, StoreError
from memtrace_otel.sources.exporter import MemtraceSpanExporter
from memtrace_otel.sources.importing import import_requests
from memtrace_otel.testing import contract_span
from tests.unit.sources import version_1, version_2, version_4

Say = Callable[[str], None]
HERE, THERE = "a" * 16, "b" * 16
SECRET = "the secret is 4711"
FEEDBACK = encode_feedback(f"{1:032x}", label="fail", time="2026-01-01T00:00:00Z")


def _talk(trace: int, size: int) -> str:
    """Text that cannot be packed to nothing."""
    return "".join(random.Random(trace).choices(ascii_letters, k=size))


def life(trace: int, scope: str = HERE, size: int = 10) -> list[OperationSpan]:
    """A trace that writes a memory, reads it and answers."""
    writer = contract_span(
        trace,
        10 * trace + 1,
        trace,
        kind="create",
        scope=scope,
        outputs=(Variable(f"memory:{trace}", action="ADD", content=SECRET + _talk(trace, size)),),
    )
    hit = Variable(f"memory:{trace}", "hit", origin=writer.origin)
    reader = contract_span(trace, 10 * trace + 2, trace, kind="retrieve", scope=scope, inputs=(hit,))
    answer = contract_span(
        trace,
        10 * trace + 3,
        trace,
        kind="respond",
        inputs=(Variable(f"context:{trace}", "context", reader.origin),),
        outputs=(Variable(f"answer:{trace}", "answer", content=SECRET),),
    )
    return [writer, reader, answer]


def request(trace: int, scope: str = HERE, size: int = 10) -> bytes:
    return encode_request(life(trace, scope, size))


OLD = [span for n in range(1, 9) for span in life(n)]


def nothing(path: Path) -> None:
    """No file at all."""


def opened(path: Path) -> None:
    """An empty database."""
    SqliteStore.open(path).close()


def waiting(path: Path) -> None:
    """Requests that wait, some of which cannot be read, beside spans."""
    filled(path)
    with SqliteStore.open(path) as store:
        store.add_requests([*(request(n, THERE) for n in range(20, 26)), b"\xff no request", request(27)[:-1]])
        store.add_request(request(28, size=9000))


def filled(path: Path) -> None:
    """Spans of two memories, verdicts on them, what was sent, an unreadable request."""
    with SqliteStore.open(path) as store:
        store.add_requests([request(n, HERE if n % 2 else THERE, size=n * 100) for n in range(1, 9)])
        store.add_request(request(9)[:-1])
        store.decode()
        for n in (1, 2):
            store.save_verdict(life(n)[2].origin, f"{n:032x}", '{"reason": "' + SECRET + '"}')
        store.mark_sent("target", [f"{n:016x}" for n in range(11, 40)])


def create(path: Path, say: Say) -> None:
    SqliteStore.open(path).close()


def old(path: Path) -> None:
    """A file of the first version."""
    version_1.write(path, OLD[:-3], waiting=OLD[-3:])


def newer(path: Path) -> None:
    """A file of the second version."""
    version_2.write(path, OLD[:-3], waiting=OLD[-3:])


def newest(path: Path) -> None:
    """A file of the fourth version, packed."""
    version_4.write_packed(path, OLD[:-3], waiting=OLD[-3:])


def growing(path: Path) -> None:
    """Versions of a text that grows, in two memories, beside other spans."""
    filled(path)
    texts = {HERE: _talk(1, 5000), THERE: _talk(1, 5000)}
    spans: list[OperationSpan] = []
    for n in range(40, 56):
        scope = HERE if n % 2 else THERE
        texts[scope] += SECRET + _talk(n, 1500)
        buffer = Variable("state:buffer", action="UPDATE", content=texts[scope])
        spans.append(contract_span(n, n, n, kind="update", scope=scope, outputs=(buffer,)))
    with SqliteStore.open(path) as store:
        store.add_request(encode_request(spans))
        store.decode()


def packed(path: Path) -> None:
    """The same, packed."""
    growing(path)
    with SqliteStore.open(path) as store:
        store.compact()


def receive(path: Path, say: Say) -> None:
    with SqliteStore.open(path) as store:
        for n in range(1, 4):
            store.add_request(request(n, size=3000 * n))
            say(str(n))
        store.add_requests([request(4), request(5)])
        say("4\n5")


def export(path: Path, say: Say) -> None:
    for n in (1, 2):
        exporter = MemtraceSpanExporter(path)
        exporter.export_request(request(n))
        if exporter.lost_spans:
            raise StoreError(path, "an exporter only counts what it loses")
        say(str(n))


def bring_in(path: Path, say: Say) -> None:
    import_requests(path, [request(n) for n in range(1, 4)])
    say("1\n2\n3")


def decode(path: Path, say: Say) -> None:
    with SqliteStore.open(path) as store:
        store.decode()


def conclude(path: Path, say: Say) -> None:
    with SqliteStore.open(path) as store:
        for n in (3, 4, 5):
            store.save_verdict(life(n)[2].origin, f"{n:032x}", "{}")
            say(f"verdict {n}")
        store.mark_sent("target", [f"{n:016x}" for n in range(900, 903)])
        say("sent")


def judge(path: Path, say: Say) -> None:
    with SqliteStore.open(path) as store:
        store.add_request(FEEDBACK)
        store.decode()
        say("feedback")


def prune(path: Path, say: Say) -> None:
    with SqliteStore.open(path) as store:
        store.prune(before=5 * 10**9)


def forget(path: Path, say: Say) -> None:
    with SqliteStore.open(path) as store:
        if not store.forget(HERE).finished:
            raise StoreError(path, "erased, not overwritten")


def compact(path: Path, say: Say) -> None:
    with SqliteStore.open(path) as store:
        store.compact()


def pack(path: Path, say: Say) -> None:
    """What an idle server does."""
    with WatchedStore.open(path) as store:
        while store.pack(store.newest()):
            pass
        while store.give_back():
            pass
        store.settle()


@dataclass(frozen=True)
class Work:
    """See the module."""

    prepare: Callable[[Path], None]
    run: Callable[[Path, Say], None]

    def verify(self, path: Path, said: Sequence[str]) -> None:
        with SqliteStore.open(path) as store:
            assert [damage for damage in store.check() if damage.kind != "unfinished"] == []
            spans = {span.trace_id for span in store.spans()}
            assert spans >= {f"{int(word):032x}" for word in said if word.isdigit()}, (said, sorted(spans))
            verdicts = {verdict.attribution_id for verdict in store.verdicts()}
            assert verdicts >= {f"{int(word[8:]):032x}" for word in said if word.startswith("verdict ")}, said
            assert "sent" not in said or store.unsent("target", [f"{900:016x}"]) == []
            assert "feedback" not in said or any(span.kind == "judge" for span in store.spans())

    def state(self, path: Path) -> object:
        """What is in the file, but for row ids, clocks and the random ids of what was forgotten."""
        with SqliteStore.open(path) as store:
            held = list(store.spans())
            spans = [(s.origin, s.incomplete, s.outputs, s.inputs) for s in held]
            readers = [len(store.readers(span.origin)) for span in held]
            verdicts = [(v.answer, v.attribution_id, v.document) for v in store.verdicts()]
            stats, reasons, damages = store.stats(), store.quarantined(), store.check()
        return spans, readers, verdicts, stats, reasons, damages, tables(path), SECRET.encode() in content(path)


def tables(path: Path) -> list[tuple[str, int]]:
    """Every table and how many rows it has."""
    connection = sqlite3.connect(path)
    names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
    counts = [
        (name, connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0])
        for (name,) in connection.execute(names)
    ]
    connection.close()
    return counts


def content(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(path.parent.glob(f"{path.name}*")))


WORKS = {
    "create": Work(nothing, create),
    "migrate": Work(old, create),
    "migrate from version 2": Work(newer, create),
    "migrate from version 3": Work(newest, create),
    "receive": Work(opened, receive),
    "export": Work(opened, export),
    "import": Work(opened, bring_in),
    "decode": Work(waiting, decode),
    "verdicts and sent spans": Work(filled, conclude),
    "feedback": Work(filled, judge),
    "prune": Work(filled, prune),
    "prune what is packed": Work(packed, prune),
    "forget": Work(filled, forget),
    "forget what is packed": Work(packed, forget),
    "compact": Work(growing, compact),
    "pack when idle": Work(growing, pack),
}
