"""The graph: slices straight from the file.

Times of slices are CPU time of the thread that asks, of files that the system has in its page cache: each is read
through before it is asked, since the largest may have left it. A slice of a cold file waits for the disk besides.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from sqlite3 import connect
from statistics import median
from tempfile import TemporaryDirectory

from memtrace_otel.graph import build_graph, load_slice, slice_of_answer
from memtrace_otel.graph.assembly import assemble
from memtrace_otel.model import OperationSpan, Variable, make_origin
from memtrace_otel.otlp import encode_request
from memtrace_otel.semconv import EVALUATION_LABEL, Action, OpKind, Role
from memtrace_otel.sources import SqliteStore
from tests.bench import workload
from tests.bench.measure import Measure, at_most, progress

OPERATIONS = 100_000
SIZES = (1_000, 10_000, 100_000, 1_000_000)
QUESTIONS, LARGEST = 100, 5_000
NODES_OF_A_TURN = 5  # message, extraction, fact, update, version
MEMORIES = 200
JUDGED = (400, 4_000)
NESTED = (400, 4_000)
PIECES = (1_000, 10_000)


def measure() -> Iterator[Measure]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        progress(f"the peer's file of {OPERATIONS:,} operations")
        theirs = in_new_process("peer", folder / "peer.json")
        progress("open and first slice")
        ours = in_new_process("open", workload.database(OPERATIONS).path)
        title = f"open a file of {OPERATIONS:,} operations and take the first slice of an answer, new process"
        yield at_most(title, ours["open"], 1.0, "s", peer=theirs["open"])
        progress(f"slices of up to {LARGEST:,} nodes")
        sizes, times = sliced(packed(long_lives(folder / "long.db")), QUESTIONS)
        title = f"slice of an answer from the file, {min(sizes):,} to {max(sizes):,} nodes, p95; peer: from memory"
        assert LARGEST * 0.95 < max(sizes) <= LARGEST
        yield at_most(title, percentile(times, 95), 50.0, "ms", peer=theirs["long"])
        progress(f"slices of a name in {MEMORIES} memories")
        path = long_lives(folder / "shared.db", 5 * MEMORIES + 1, MEMORIES)
        title = f"slice of an answer, its record's name in {MEMORIES} memories, p95, with all that its spans say"
        yield at_most(title, percentile(loaded(path, QUESTIONS), 95), 50.0, "ms")
        progress("slices of a packed file")
        copy = packed(Path(shutil.copy(workload.database(OPERATIONS).path, folder)))
        title = f"slice of an answer from a packed file of {OPERATIONS:,} operations, p95"
        yield at_most(title, percentile(sliced(copy, QUESTIONS)[1], 95), 50.0, "ms", peer=theirs["slice"])
    costs: dict[int, float] = {}
    for operations in SIZES:
        path = workload.database(operations).path
        progress(f"slices of a file of {operations:,} operations")
        sizes, times = sliced(path, QUESTIONS)
        costs[operations] = sum(times) / sum(sizes)
        if operations == OPERATIONS:
            title = f"slice of an answer from a file of {operations:,} operations, about {median(sizes):.0f} nodes, p95"
            yield at_most(title, percentile(times, 95), 50.0, "ms", peer=theirs["slice"])
            yield at_most(f"{title}, with all that its spans say", percentile(loaded(path, 20), 95), 50.0, "ms")
    for operations in SIZES[1:]:
        title = f"a node of a slice, from a file of {operations:,} operations; ratio to one of {SIZES[0]:,}"
        ratio = costs[operations] / costs[SIZES[0]]
        yield at_most(title, costs[operations] * 1000, 1.5, "us", ratio=ratio)
    few, many = map(judged, JUDGED)
    title = f"a judged answer, one of {JUDGED[1]:,} in its trace, on the way to a graph; ratio to one of {JUDGED[0]:,}"
    yield at_most(title, many, 2.0, "us", ratio=many / few)
    progress("operations inside others")
    few, many = map(nested, NESTED)
    title = f"an operation, each of {NESTED[1]:,} inside the one before, to a graph; ratio to {NESTED[0]:,}"
    yield at_most(title, many, 2.0, "us", ratio=many / few)
    progress("slices of a document in pieces")
    with TemporaryDirectory() as name:
        few, many = (piece(Path(name) / f"{pieces}.db", pieces) for pieces in PIECES)
    title = f"a piece of a document, one of {PIECES[1]:,} stored at once, in a slice; ratio to {PIECES[0]:,}"
    yield at_most(title, many, 2.0, "us", ratio=many / few)


# --- ours -------------------------------------------------------------------------------------------------------------
def sliced(path: Path, questions: int) -> tuple[list[int], list[float]]:
    """Nodes of the slices of answers spread over a file, and milliseconds that each took."""
    sizes: list[int] = []
    times: list[float] = []
    with path.open("rb") as file:
        while file.read(1 << 24):
            pass
    with SqliteStore.open(path, create=False) as store:
        for origin in answers(path, questions):
            started = time.thread_time()
            sizes.append(len(slice_of_answer(store, origin)))
            times.append((time.thread_time() - started) * 1000)
    return sizes, times


def packed(path: Path) -> Path:
    """A file as an idle server leaves it, or smaller."""
    with SqliteStore.open(path) as store:
        store.compact()
    return path


def loaded(path: Path, questions: int) -> list[float]:
    """Milliseconds that the graphs of slices took."""
    times: list[float] = []
    with SqliteStore.open(path, create=False) as store:
        for origin in answers(path, questions):
            started = time.thread_time()
            load_slice(store, origin)
            times.append((time.thread_time() - started) * 1000)
    return times


def answers(path: Path, count: int) -> list[str]:
    """Origins of answers, evenly spread over the file."""
    query = "SELECT trace_id, span_id FROM span WHERE kind = ? ORDER BY start"
    with closing(connect(path)) as connection:
        found = [make_origin(*row) for row in connection.execute(query, (OpKind.RESPOND,))]
    return [found[len(found) * place // count] for place in range(min(count, len(found)))]


def long_lives(path: Path, turns: int = (LARGEST - 10) // NODES_OF_A_TURN, memories: int = 1) -> Path:
    """A file of one profile a memory, all of one name, that every turn of it changes, and is asked after all the time:
    a slice is its whole history."""
    spans = list[OperationSpan]()
    profiles = [Variable("memory:profile", Role.PREVIOUS)] * memories
    for turn in range(1, turns + 1):
        trace_id, scope, at = f"{turn:032x}", f"{turn % memories + 1:016x}", turn * 1_000_000_000

        def span(number: int, kind: OpKind, inputs: Sequence[Variable], output: Variable) -> Variable:
            times = {"start": at + number * 1_000_000, "end": at + number * 1_000_000 + 1000}  # noqa: B023
            fields = {"scope": scope, "resource": {"service.name": "bench"}, **times}  # noqa: B023
            made = OperationSpan(trace_id, f"{number:016x}", name=kind, kind=kind, **fields,  # noqa: B023
                                 system="bench", inputs=tuple(inputs), outputs=(output,))  # fmt: skip
            spans.append(made)
            return Variable(output.ref, origin=made.origin)

        message = Variable(f"message:{turn}", Role.MESSAGE, content=f"message number {turn}")
        profile = profiles[turn % memories]
        fact = span(1, OpKind.EXTRACT, [message], Variable(f"fact:{turn}", content=f"fact number {turn}"))
        earlier = [profile] if profile.origin else []
        action = Action.UPDATE if earlier else Action.ADD
        written = Variable(profile.ref, action=action, content=f"all there is to know, {turn} times")
        profiles[turn % memories] = profile = span(2, OpKind.UPDATE, [fact, *earlier], written)
        if turn % (turns // QUESTIONS) == 0:
            query = Variable(f"query:{turn}", Role.QUERY, content="what?")
            hits = [query, Variable(profile.ref, Role.HIT, profile.origin)]
            context = span(3, OpKind.RETRIEVE, hits, Variable(f"context:{3:016x}"))
            span(4, OpKind.RESPOND, [query, context], Variable(f"answer:{4:016x}", content="that"))
    with SqliteStore.open(path) as store:
        store.add_request(encode_request(spans))
        store.decode()
    return path


def judged(answers: int) -> float:
    """Microseconds of CPU that an answer with its judge, which names it by its ref or not at all, takes to assemble."""
    trace_id, failed = f"{1:032x}", {EVALUATION_LABEL: "fail"}
    spans: list[OperationSpan] = []
    for place in range(answers):
        answer = Variable(f"answer:{place}", Role.ANSWER)
        named = (answer,) if place % 2 else ()
        for number, kind, inputs, outputs, attributes in (
            (2 * place + 1, OpKind.RESPOND, (), (answer,), {}),
            (2 * place + 2, OpKind.JUDGE, named, (), failed),
        ):
            moment = number * 1_000_000
            spans.append(
                OperationSpan(trace_id, f"{number:016x}", name=kind, kind=kind, start=moment, end=moment,
                              inputs=inputs, outputs=outputs, attributes=attributes)
            )  # fmt: skip
    started = time.process_time()
    assembly = assemble(spans)
    assert len(assembly.judged) == answers
    return (time.process_time() - started) / answers * 1_000_000


def nested(operations: int) -> float:
    """Microseconds of CPU that an operation takes to build that reads, without an origin, what each of those around it
    writes, and repeats what the one inside it wrote."""
    record = Variable("state:buffer", Role.PREVIOUS)
    spans = [
        OperationSpan(f"{1:032x}", f"{number:016x}", f"{number - 1:016x}" if number > 1 else "", OpKind.UPDATE,
                      OpKind.UPDATE, scope="s", start=number, end=2 * operations - number, inputs=(record,),
                      outputs=(Variable(record.ref, digest=f"{number:016x}", action=Action.UPDATE),
                               Variable("state:all", action=Action.UPDATE)))
        for number in range(1, operations + 1)
    ]  # fmt: skip
    started = time.process_time()
    graph = build_graph(spans)
    assert len(graph.operations()) == operations
    return (time.process_time() - started) / operations * 1_000_000


def piece(path: Path, pieces: int) -> float:
    """Microseconds of CPU that each piece of a document takes in the slice of an answer that read a few of them: they
    were stored by one operation, which does not say which record came of which."""
    trace_id, scope = f"{1:032x}", f"{1:016x}"
    chunks = tuple(Variable(f"chunk:{number}") for number in range(pieces))
    segment = OperationSpan(trace_id, f"{1:016x}", name=OpKind.SEGMENT, kind=OpKind.SEGMENT, scope=scope, start=1,
                            end=2, inputs=(Variable("document:d"),), outputs=chunks)  # fmt: skip
    inputs = tuple(Variable(chunk.ref, origin=segment.origin) for chunk in chunks)
    outputs = tuple(Variable(f"memory:{number}", action=Action.ADD) for number in range(pieces))
    create = OperationSpan(trace_id, f"{2:016x}", name=OpKind.CREATE, kind=OpKind.CREATE, scope=scope, start=3, end=4,
                           inputs=inputs, outputs=outputs)  # fmt: skip
    hits = tuple(Variable(output.ref, Role.CONTEXT, create.origin) for output in outputs[:5])
    answer = OperationSpan(f"{2:032x}", f"{1:016x}", name=OpKind.RESPOND, kind=OpKind.RESPOND, scope=scope, start=5,
                           end=6, inputs=hits)  # fmt: skip
    with SqliteStore.open(path) as store:
        store.add_request(encode_request([segment, create, answer]))
        store.decode()
        times: list[float] = []
        for _ in range(5):
            started = time.thread_time()
            assert len(slice_of_answer(store, answer.origin)) > pieces
            times.append(time.thread_time() - started)
    return min(times) / pieces * 1_000_000


def percentile(times: Sequence[float], share: int) -> float:
    """The time within which `share` percent stay."""
    return sorted(times)[min(len(times) - 1, len(times) * share // 100)]


# --- in processes of their own ----------------------------------------------------------------------------------------
def in_new_process(task: str, path: Path) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-m", __name__, task, str(path)], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def first_slice(path: Path) -> dict[str, float]:
    """Seconds from a closed file to the slice of an answer in the middle of it."""
    origin = answers(path, 3)[1]
    started = time.perf_counter()
    with SqliteStore.open(path, create=False) as store:
        assert slice_of_answer(store, origin)
    return {"open": time.perf_counter() - started}


def peers(path: Path) -> dict[str, float]:
    """The same for the peer, in its form; milliseconds of a slice once all is in memory."""
    from smartcomment.runtime import ExecNetwork

    from tests.bench import peer_file

    peer_file.export(OPERATIONS, path)
    started = time.perf_counter()
    graph = ExecNetwork.import_graph(json.loads(path.read_text("utf-8")))
    found = [node.full_node_id for node in graph._driver.all_nodes() if node.category == "answer"]
    answer = found[len(found) // 2]
    graph.bfs(answer, "backward")
    opened = time.perf_counter() - started
    started = time.thread_time()
    graph.bfs(answer, "backward")
    return {"open": opened, "slice": (time.thread_time() - started) * 1000, "long": peers_chain()}


def peers_chain() -> float:
    """Milliseconds of the peer's slice of as many nodes as ours at most."""
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
