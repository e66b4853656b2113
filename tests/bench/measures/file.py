"""The database file against the peer's export: size, opening, slices of answers, and the cost of growth.

Times of slices are CPU time of the asking thread; the system has the files in its page cache.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from memtrace_otel.model import OperationSpan, Variable
from memtrace_otel.otlp import encode_request
from memtrace_otel.semconv import Action, OpKind, Role
from memtrace_otel.sources import SqliteStore
from tests.bench import workload
from tests.bench.measure import Measure, at_most, percentile, progress

OPERATIONS, SMALL, LARGE = 100_000, 1_000, 1_000_000
QUESTIONS, LARGEST = 100, 5_000
NODES_OF_A_TURN = 5  # message, extraction, fact, update, version


def measure() -> Iterator[Measure]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        progress(f"the peer's file of {OPERATIONS:,} operations")
        peers_file = folder / "peer.json"
        theirs = in_new_process("peer", peers_file)
        progress(f"our file of {OPERATIONS:,} operations")
        path = workload.database(OPERATIONS).path
        ours = in_new_process("open", path)
        size, peers_size = path.stat().st_size / 1e6, peers_file.stat().st_size / 1e6
        yield at_most(f"file of {OPERATIONS:,} operations, over the peer's export", size, peers_size, 0.3, "MB")
        name = f"open a file of {OPERATIONS:,} operations and slice one answer, over the peer"
        yield at_most(name, ours["open"], theirs["open"], 0.01, "s")
        progress(f"slices of up to {LARGEST:,} nodes")
        times = slice_times(long_history(folder / "long.db"))
        name = f"slice of an answer of up to {LARGEST:,} nodes, p95, over the peer's walk in memory"
        yield at_most(name, percentile(times, 95), theirs["long"], 1.0, "ms")
    progress(f"files of {SMALL:,} and of {LARGE:,} operations")
    small, large = (workload.database(size) for size in (SMALL, LARGE))
    costs = [1e6 * built.cpu_seconds / built.operations for built in (large, small)]
    yield at_most(f"cost of one operation in a file of {LARGE:,}, over a file of {SMALL:,}", *costs, 1.5, "us")


# --- ours ------------------------------------------------------------------------------------------------------------
def slice_times(path: Path) -> list[float]:
    """Return the milliseconds of the slices of answers that are spread over a file."""
    times: list[float] = []
    with SqliteStore.open(path, create=False) as store:
        for origin in answers(store, QUESTIONS):
            started = time.thread_time()
            assert store.lineage([origin])
            times.append((time.thread_time() - started) * 1000)
    return times


def answers(store: SqliteStore, count: int) -> list[str]:
    """Return the origins of so many answers, evenly spread over the file."""
    found = [span.origin for span in store.spans(kinds=(OpKind.RESPOND,))]
    return [found[len(found) * place // count] for place in range(min(count, len(found)))]


def long_history(path: Path, turns: int = (LARGEST - 10) // NODES_OF_A_TURN) -> Path:
    """Write a file of one profile that every turn changes: the slice of an answer is the whole history."""
    spans = list[OperationSpan]()
    profile = Variable("memory:profile", Role.PREVIOUS)

    def add(turn: int, number: int, kind: OpKind, inputs: Sequence[Variable], output: Variable) -> Variable:
        start = turn * 1_000_000_000 + number * 1_000_000
        made = OperationSpan(
            f"{turn:032x}",
            f"{number:016x}",
            name=kind,
            kind=kind,
            scope=f"{1:016x}",
            system="bench",
            start=start,
            end=start + 1000,
            inputs=tuple(inputs),
            outputs=(output,),
            resource={"service.name": "bench"},
        )
        spans.append(made)
        return Variable(output.ref, origin=made.origin)

    for turn in range(1, turns + 1):
        message = Variable(f"message:{turn}", Role.MESSAGE, content=f"message number {turn}")
        fact = add(turn, 1, OpKind.EXTRACT, [message], Variable(f"fact:{turn}", content=f"fact number {turn}"))
        earlier = [profile] if profile.origin else []
        action = Action.UPDATE if earlier else Action.ADD
        written = Variable(profile.ref, action=action, content=f"the profile after {turn} turns")
        profile = add(turn, 2, OpKind.UPDATE, [fact, *earlier], written)
        if turn % (turns // QUESTIONS) == 0:
            query = Variable(f"query:{turn}", Role.QUERY, content="what?")
            hits = [query, Variable(profile.ref, Role.HIT, profile.origin)]
            context = add(turn, 3, OpKind.RETRIEVE, hits, Variable(f"context:{3:016x}"))
            add(turn, 4, OpKind.RESPOND, [query, context], Variable(f"answer:{4:016x}", content="that"))
    with SqliteStore.open(path) as store:
        store.add_request(encode_request(spans))
        store.decode()
    return path


# --- in processes of their own ---------------------------------------------------------------------------------------
def in_new_process(task: str, path: Path) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-m", __name__, task, str(path)], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def first_slice(path: Path) -> dict[str, float]:
    """Return the seconds from a closed file to the slice of an answer in its middle."""
    with SqliteStore.open(path, create=False) as store:
        origin = answers(store, 3)[1]
    started = time.perf_counter()
    with SqliteStore.open(path, create=False) as store:
        assert store.lineage([origin])
    return {"open": time.perf_counter() - started}


def peers(path: Path) -> dict[str, float]:
    """Return the same for the peer, and the milliseconds of a slice once the graph is in memory."""
    from smartcomment.runtime import ExecNetwork

    from tests.bench import peer_file

    peer_file.export(OPERATIONS, path)
    started = time.perf_counter()
    graph = ExecNetwork.import_graph(json.loads(path.read_text("utf-8")))
    found = [node.full_node_id for node in graph._driver.all_nodes() if node.category == "answer"]
    graph.bfs(found[len(found) // 2], "backward")
    return {"open": time.perf_counter() - started, "long": peers_history()}


def peers_history() -> float:
    """Return the milliseconds of the peer's walk over as many nodes as our longest slice has."""
    from smartcomment.runtime import ExecNetwork
    from smartcomment.schema.operation import OpEdge, OpRecord
    from smartcomment.schema.session import Session
    from smartcomment.schema.variable import Variable as Node

    graph = ExecNetwork()
    session = Session(graph_id=graph.graph_id, filename="x", lineno=1)
    graph._driver.add_session(session)
    own = {"graph_id": graph.graph_id, "session_id": session.session_id, "filename": "x", "lineno": 1}
    last = ""
    for turn in range(LARGEST // 3):
        names = [f"message-{turn}", f"fact-{turn}", f"profile-{turn}"]
        for name in names:
            graph._driver.add_node(Node(name=name, value=name, **own))
        sources = [(names[0], names[1]), (names[1], names[2]), *([(last, names[2])] if last else [])]
        for source, target in sources:
            operation = OpRecord(op_name="update", **own)
            graph._driver.add_operation(operation)
            ends = {"source_full_node_id": f"{source}@1", "target_full_node_id": f"{target}@1"}
            graph._driver.add_edge(OpEdge(op_id=operation.op_id, **ends, **own))
        last = names[2]
    started = time.thread_time()
    graph.bfs(f"{last}@1", "backward")
    return (time.thread_time() - started) * 1000


if __name__ == "__main__":
    task = {"open": first_slice, "peer": peers}[sys.argv[1]]
    print(json.dumps(task(Path(sys.argv[2]))))
