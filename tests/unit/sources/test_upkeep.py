"""Keeping the embedded store: what lies in the files after `forget`, what `check` finds, who waits for whom."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from memtrace_otel.graph import load_scope
from memtrace_otel.graph.export import node_id
from memtrace_otel.model import Event, Link, OperationSpan, Variable, content_digest
from memtrace_otel.otlp import encode_request
from memtrace_otel.otlp.feedback import encode_feedback
from memtrace_otel.pipeline.diagnose import diagnose, record
from memtrace_otel.semconv import EVALUATION_LABEL
from memtrace_otel.sources import SqliteStore
from memtrace_otel.sources.erasure import erase_span
from memtrace_otel.sources.lineage import key_of
from memtrace_otel.testing import contract_span
from tests.unit.graph.conftest import ALICE, life_of_a_fact

SCOPE = "a" * 16
SECRET = "the secret is 4711"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


def secret_span(trace: int = 1, span: int = 1, scope: str = SCOPE) -> bytes:
    said = Variable("memory:1", content=SECRET, action="ADD")
    return encode_request([contract_span(trace, span, span, kind="create", scope=scope, outputs=(said,))])


def bytes_on_disk(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))


def damages(path: Path) -> list[tuple[str, str]]:
    with SqliteStore.open(path) as store:
        return [(damage.kind, damage.place) for damage in store.check()]


def change(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def test_nothing_of_a_forgotten_scope_is_left_in_the_files(path: Path) -> None:
    with SqliteStore.open(path) as store:
        store.add_request(secret_span())
        store.decode()  # the body as it came lies in a free page now
        store.add_request(secret_span(1, 2))  # waits
        store.add_request(secret_span(1, 3)[:-1])  # cannot be read
        assert SECRET.encode() in bytes_on_disk(path)
        forgotten = store.forget(SCOPE)
        assert (forgotten.spans, forgotten.quarantined, forgotten.finished) == (2, 1, True)
        assert SECRET.encode() not in bytes_on_disk(path)
        assert len(store.quarantined()) == 1


def test_unreadable_requests_of_others_stay(path: Path) -> None:
    with SqliteStore.open(path) as store:
        store.add_request(secret_span())
        store.add_request(secret_span(2, 2, "b" * 16)[:-1])
        assert store.forget(SCOPE).quarantined == 0
    assert SECRET.encode() in bytes_on_disk(path)


def test_verdicts_and_their_spans_lose_what_they_quote(path: Path) -> None:
    answer = contract_span(1, 1, 1, kind="respond", scope=SCOPE)
    document = {"trace_id": answer.trace_id, "variable": "fact:0123456789abcdef", "reason": SECRET, "complete": True}
    link = Link(answer.trace_id, answer.span_id)
    root = contract_span(
        5, 5, 9, name="memtrace.attribute", links=(link,), attributes={"memtrace.failure.reason": SECRET}
    )
    step = contract_span(5, 6, 9, name="memtrace.evidence source", attributes={"memtrace.step.note": SECRET})
    marker = contract_span(
        2,
        7,
        9,
        name="memtrace.attribution update",
        status="error",
        status_message=SECRET,
        attributes={"memtrace.failure.answer": answer.origin, "memtrace.failure.type": "update"},
    )
    other = contract_span(6, 8, 9, name="memtrace.attribute", attributes={"memtrace.failure.reason": "of another"})
    with SqliteStore.open(path) as store:
        store.add_request(encode_request([answer, root, step, marker, other]))
        store.save_verdict(answer.origin, "1" * 32, json.dumps(document))
        store.save_verdict(other.origin, "2" * 32, json.dumps({"reason": "of another"}))
        assert store.forget(SCOPE).verdicts == 1
        (kept,) = [verdict for verdict in store.verdicts() if verdict.answer == answer.origin]
        erased = json.loads(kept.document)
        assert (erased["trace_id"], erased["reason"], erased["complete"]) == (answer.trace_id, "", True)
        assert erased["variable"].startswith("fact:")
        assert erased["variable"] != document["variable"]
        (marked,) = store.trace(marker.trace_id)
        assert marked.attributes["memtrace.failure.type"] == "update"
        assert store.trace(other.trace_id) == [other]
    assert SECRET.encode() not in bytes_on_disk(path)


@pytest.mark.parametrize("upkeep", [lambda store: store.forget(SCOPE), lambda store: store.prune(scope=SCOPE)])
def test_what_is_erased_while_failures_are_attributed_is_in_no_verdict(
    path: Path, upkeep: Callable[[SqliteStore], object]
) -> None:
    message = Variable("message:1", "message", content=SECRET)
    fact = Variable("fact:1", content="a fact", action="DERIVE")
    spans = [
        contract_span(1, 1, 1, kind="extract", scope=SCOPE, inputs=(message,), outputs=(fact,)),
        contract_span(2, 2, 2, kind="respond", scope=SCOPE, outputs=(Variable("answer:1", "answer", content="no"),)),
    ]
    with SqliteStore.open(path) as store, SqliteStore.open(path) as other, ThreadPoolExecutor(1) as pool:
        store.add_request(encode_request(spans))
        store.add_request(encode_feedback(spans[1].trace_id, label="fail", expected=SECRET))
        with store.turn():
            (diagnosis,) = diagnose(store)
            erasing = pool.submit(upkeep, other)
            with pytest.raises(TimeoutError):
                erasing.result(0.2)
            (recorded,) = record(store, diagnosis)
            assert "4711" in recorded.verdict.reason
        erasing.result(30)
        other.compact()
        assert all("4711" not in verdict.document for verdict in store.verdicts())
    assert b"4711" not in bytes_on_disk(path)


def test_a_verdict_that_is_no_object_is_named_and_erased(path: Path) -> None:
    with SqliteStore.open(path) as store:
        store.add_request(secret_span())
        (span,) = store.spans()
        store.save_verdict(span.origin, "f" * 32, json.dumps([SECRET]))
        assert [damage.place for damage in store.check()] == [f"verdict {'f' * 32}"]
        store.forget(SCOPE)
        assert [verdict.document for verdict in store.verdicts()] == ["{}"]


@pytest.mark.parametrize("scope", ["b" * 16, ""])
def test_a_verdict_on_an_answer_of_another_scope_loses_what_it_quotes_of_this_one(path: Path, scope: str) -> None:
    now = 10**9  # seconds: unlike digests and the like that may be in the file
    message = Variable("message:1", "message", content="my car is blue 4711")
    fact = Variable("fact:1", content="my car is nice", action="DERIVE")
    extract = contract_span(1, 1, now, kind="extract", scope=SCOPE, inputs=(message,), outputs=(fact,), flow=((0, 0),))
    memory = Variable("memory:1", content="my car is nice", action="ADD")
    derived = (replace(fact, content="", action="", origin=extract.origin),)
    create = contract_span(1, 2, now + 1, kind="create", scope=SCOPE, inputs=derived, outputs=(memory,))
    asked = Variable("query:1", "query", content="what colour is my car")
    hit = Variable("memory:1", "hit", origin=create.origin)
    context = Variable("context:1", content="a context", action="DERIVE")
    search = contract_span(2, 3, now + 2, kind="retrieve", scope="b" * 16, inputs=(asked, hit), outputs=(context,))
    given = (Variable("context:1", "context", search.origin),)
    red = (Variable("answer:1", "answer", content="red"),)
    answer = contract_span(2, 4, now + 3, kind="respond", scope=scope, inputs=given, outputs=red)
    with SqliteStore.open(path) as store:
        store.add_request(encode_request([extract, create, search, answer]))
        store.add_request(encode_feedback(answer.trace_id, label="fail", expected="blue"))
        (diagnosis,) = diagnose(store)
        (recorded,) = record(store, diagnosis)
        assert "4711" in recorded.verdict.reason
        assert store.forget(SCOPE).verdicts == 1
        assert store.trace(answer.trace_id)[:2] == [replace(search, incomplete=("forgotten",)), answer]
        assert store.check() == []
    assert b"4711" not in bytes_on_disk(path)


def test_every_attribution_that_names_a_trace_of_the_scope_or_of_a_reader_is_reached(path: Path) -> None:
    stored = contract_span(1, 1, 1, kind="create", scope=SCOPE, outputs=(Variable("memory:1", content=SECRET),))
    hit = (Variable("memory:1", "hit", stored.origin, content=SECRET),)
    reader = contract_span(2, 2, 2, kind="retrieve", scope="b" * 16, inputs=hit)
    answer = contract_span(3, 3, 3, kind="respond", scope="b" * 16)

    def attribution(number: int, **step: object) -> list[OperationSpan]:
        """Root, step and marker; only the step, if anything, names more than the answer."""
        about = {"memtrace.attribution.id": f"{number:032x}", "memtrace.failure.reason": SECRET}
        links = (Link(answer.trace_id, answer.span_id),)
        return [
            contract_span(number, number, 9, name="memtrace.attribute", links=links, attributes=about),
            contract_span(number, number + 1, 9, name="memtrace.evidence lost", **step),
            contract_span(3, number + 2, 9, name="memtrace.attribution update", attributes=about),
        ]

    spans = [
        *attribution(10, links=(Link(stored.trace_id, stored.span_id),)),
        *attribution(20, attributes={"memtrace.step.origin": reader.origin, "memtrace.step.note": SECRET}),
        *attribution(30),  # its verdict names the trace
        *(others := attribution(40, attributes={"memtrace.step.origin": answer.origin})),
    ]
    with SqliteStore.open(path) as store:
        store.add_request(encode_request([stored, reader, answer, *spans]))
        for number, origin in ((10, ""), (20, ""), (30, stored.origin), (40, answer.origin)):
            document = {"evidence": [f"lost|memory:1|{origin}"], "reason": SECRET}
            store.save_verdict(answer.origin, f"{number:032x}", json.dumps(document))
        assert store.forget(SCOPE).verdicts == 3
        kept = [span for span in store.spans() if SECRET in repr(span)]
        assert kept == [span for span in others if SECRET in repr(span)]
        assert SECRET in store.verdicts()[0].document  # the newest, which names nothing of the scope
    assert bytes_on_disk(path).count(SECRET.encode()) == 1  # that one: spans are packed


def test_the_graph_keeps_its_shape(path: Path) -> None:
    with SqliteStore.open(path) as store:
        store.add_request(encode_request(life_of_a_fact()))
        before = load_scope(store)
        store.forget(ALICE)
        after = load_scope(store)
    assert {node_id(node) for node in after} == {node_id(node) for node in before}
    assert sorted(map(edge, after.edges(keys=True))) == sorted(map(edge, before.edges(keys=True)))


def edge(ends: tuple[object, ...]) -> str:
    return " ".join(map(str, ends))


def test_a_span_that_cannot_be_decoded_is_forgotten_as_well(path: Path) -> None:
    with SqliteStore.open(path) as store:
        store.add_request(secret_span())
        store.decode()
    change(path, "UPDATE span SET body = substr(body, 1, length(body) - 1)")
    with SqliteStore.open(path) as store:
        assert store.forget(SCOPE).spans == 1
        (span,) = store.trace(f"{1:032x}")
        assert (span.span_id, span.outputs) == (f"{1:016x}", ())
    assert SECRET.encode() not in bytes_on_disk(path)


def test_a_forget_that_was_interrupted_is_named_and_taken_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = Variable("message:0123456789abcdef", content=SECRET, store="file:///contents/1")
    spans = [contract_span(n, n, n, kind="create", scope=SCOPE, outputs=(said,)) for n in range(1, 101)]
    erased = 0

    def erase(*arguments: object) -> list[str]:
        nonlocal erased
        erased += 1
        if erased == 70:
            raise OSError("disk on fire")
        return erase_span(*arguments)  # type: ignore[arg-type]

    with SqliteStore.open(path) as store:
        store.add_request(encode_request(spans))
        with monkeypatch.context() as patch:
            patch.setattr("memtrace_otel.sources.forgetting.erase_span", erase)
            with pytest.raises(Exception, match="disk on fire"):
                store.forget(SCOPE)
        left = [span for span in store.spans() if span.outputs[0].content]
        assert 0 < len(left) < 100
        assert [(damage.kind, damage.place) for damage in store.check()] == [("unfinished", f"forget {SCOPE}")]
        forgotten = store.forget(SCOPE)
        assert (forgotten.spans, forgotten.references) == (100, ("file:///contents/1",))
        assert len({span.outputs[0].ref for span in store.spans()} - {said.ref}) == 1
        assert store.check() == []
    assert SECRET.encode() not in bytes_on_disk(path)


@pytest.mark.parametrize("kind", ["memory", "state", "prompt", "memory:relation-", "state:thread/messages/"])
def test_digests_that_are_ids_of_records_are_forgotten_too(path: Path, kind: str) -> None:
    id = kind.partition(":")[2] + content_digest(SECRET)
    ref = f"{kind.partition(':')[0]}:{id}"
    record = {"gen_ai.memory.record.id": id}
    uuid = Variable("memory:6b0b8a1e-6d3c-4a5e-9f5b-0123456789ab", action="ADD")
    with SqliteStore.open(path) as store:
        said = contract_span(1, 1, 1, scope=SCOPE, outputs=(Variable(ref, action="ADD"), uuid), attributes=record)
        heard = contract_span(2, 2, 2, scope="b" * 16, inputs=(Variable(ref, "hit", said.origin),))
        store.add_request(encode_request([said, heard]))
        store.forget(SCOPE)
        said, heard = sorted(store.spans(), key=lambda span: span.start)
        assert said.outputs[0].ref == heard.inputs[0].ref != ref
        assert content_digest(SECRET) not in repr((said, heard))
        assert str(said.attributes["gen_ai.memory.record.id"]) == said.outputs[0].ref.partition(":")[2]
        assert said.outputs[1].ref == uuid.ref


def test_forget_reaches_arrays_that_a_backend_keeps_as_texts(path: Path) -> None:
    said = contract_span(1, 1, 1, scope=SCOPE, outputs=(Variable("memory:1", content=SECRET, action="ADD"),))
    heard = contract_span(2, 2, 2, scope="b" * 16, inputs=(Variable("memory:1", "hit", said.origin, content=SECRET),))
    request = ExportTraceServiceRequest.FromString(encode_request([heard]))
    for pair in request.resource_spans[0].scope_spans[0].spans[0].attributes:
        if items := [item.string_value for item in pair.value.array_value.values]:
            pair.value.string_value = json.dumps(items)
    with SqliteStore.open(path) as store:
        store.add_request(encode_request([said]))
        store.add_request(request.SerializeToString())
        assert [span.inputs[0].content for span in store.spans() if span.inputs] == [SECRET]
        store.forget(SCOPE)
        assert [span.inputs[0].content for span in store.spans() if span.inputs] == [""]
    assert SECRET.encode() not in bytes_on_disk(path)


def test_forget_leaves_of_labels_the_words_that_are_known(path: Path) -> None:
    """A judge may write its sentence there. Its evaluation is still one, perhaps the newest."""
    labels = ("incorrect", " Thumbs Up ", "Update", "Incorrect, she lives in Lisbon", "")
    events = tuple(Event("gen_ai.evaluation.result", n, {EVALUATION_LABEL: text}) for n, text in enumerate(labels))
    judges = [
        contract_span(1, n, n, kind="judge", scope=SCOPE, attributes={EVALUATION_LABEL: text}, events=events)
        for n, text in enumerate(labels, 1)
    ]
    with SqliteStore.open(path) as store:
        store.add_request(encode_request(judges))
        store.forget(SCOPE)
        spans = list(store.spans())
    expected = ["incorrect", " Thumbs Up ", "Update", "forgotten", ""]
    assert [span.attributes.get(EVALUATION_LABEL) for span in spans] == expected
    assert [event.attributes.get(EVALUATION_LABEL) for event in spans[0].events] == expected
    assert b"Lisbon" not in bytes_on_disk(path)


def test_an_empty_scope_is_not_pruned(path: Path) -> None:
    with SqliteStore.open(path) as store, pytest.raises(ValueError, match="empty scope"):
        store.prune(scope="", before=1)


def test_forget_can_leave_the_writing_anew_for_later(path: Path) -> None:
    with SqliteStore.open(path) as store:
        store.add_request(secret_span())
        assert not store.forget(SCOPE, compact=False).finished
        assert store.trace(f"{1:032x}")[0].outputs[0].content == ""
        assert store.compact().finished
    assert SECRET.encode() not in bytes_on_disk(path)


def test_what_was_erased_is_so_when_the_file_cannot_be_written_anew(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(connection: sqlite3.Connection, statement: str) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with SqliteStore.open(path) as store:
        store.add_request(secret_span())
        with monkeypatch.context() as patch:
            patch.setattr("memtrace_otel.sources.space.execute_patiently", full)  # what `VACUUM` would say
            assert not store.forget(SCOPE).finished
        assert store.trace(f"{1:032x}")[0].outputs[0].content == ""
        assert store.compact().finished
    assert SECRET.encode() not in bytes_on_disk(path)


def test_a_reader_in_a_transaction_keeps_nobody_waiting_and_is_told_of(path: Path) -> None:
    with SqliteStore.open(path) as store:
        store.add_request(secret_span())
        store.decode()
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM span").fetchone() == (1,)
        store.add_request(secret_span(2, 2))
        assert not store.forget(SCOPE).finished
        assert store.prune(before=2**62).spans == 2
        assert reader.execute("SELECT count(*) FROM span").fetchone() == (1,)
        reader.close()
        assert store.compact().finished
    assert SECRET.encode() not in bytes_on_disk(path)


def test_sources_nobody_needs_go_and_ids_are_not_given_again(path: Path) -> None:
    with SqliteStore.open(path) as store, SqliteStore.open(path) as other:
        for n in (1, 2):
            store.add_request(named(n))
        assert len(list(other.spans())) == 2
        store.prune(before=10**18)
        store.compact()
        store.add_request(named(3))
        assert [span.resource["service.name"] for span in other.spans()] == ["service 3"]


def named(n: int) -> bytes:
    return encode_request([replace(contract_span(n, n, n), resource={"service.name": f"service {n}"})])


def test_check_finds_what_is_damaged(path: Path) -> None:
    writer = contract_span(1, 1, 1, kind="create", scope=SCOPE, outputs=(Variable("memory:1"),))
    reader = contract_span(2, 2, 2, kind="retrieve", scope=SCOPE, inputs=(Variable("memory:1", origin=writer.origin),))
    with SqliteStore.open(path) as store:
        store.add_request(encode_request([writer, reader]))
        store.decode()
    assert damages(path) == []
    change(path, "DELETE FROM reader")
    assert damages(path) == [("mismatch", f"span {reader.origin}")]
    key = key_of(writer.origin, 2)
    change(path, f"INSERT INTO reader VALUES ({key}, 2)", f"INSERT INTO reader VALUES ({key}, 77)")
    assert damages(path) == [("dangling", f"reader of origin number {key}")]
    change(path, "DELETE FROM reader WHERE span = 77", "UPDATE span SET source = 9 WHERE id = 1")
    assert damages(path) == [("dangling", f"span {writer.origin}")]
    change(path, "UPDATE span SET source = 1", "UPDATE span SET kind = 'other' WHERE id = 1")
    assert damages(path) == [("mismatch", f"span {writer.origin}")]
    change(path, "UPDATE span SET kind = 'create', body = x'ff' WHERE id = 1", "UPDATE source SET body = x'ff'")
    change(path, "INSERT INTO verdict VALUES ('v', 'a', '{', 1)")
    assert damages(path) == [
        ("undecodable", "source 1"),
        ("undecodable", f"span {writer.origin}"),
        ("undecodable", "verdict v"),
    ]


def test_check_survives_a_corrupt_page(path: Path) -> None:
    with SqliteStore.open(path) as store:
        for n in range(1, 200):
            store.add_request(secret_span(n, n))
        store.decode()
        store.compact()
    data = bytearray(path.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 4096] = b"\xaa" * 4096
    path.write_bytes(data)
    assert ("integrity", "file") in damages(path)


def test_what_is_said_of_a_pruned_answer_goes_with_it(path: Path) -> None:
    answer = contract_span(1, 1, 1, kind="respond", scope=SCOPE)
    kept = contract_span(2, 2, 1, kind="respond", scope="b" * 16)
    judge = contract_span(3, 3, 100, kind="judge", inputs=(Variable("answer:1", "answer", answer.origin),))
    both = tuple(Variable("answer:1", "answer", span.origin) for span in (answer, kept))
    comparison = contract_span(4, 4, 100, kind="judge", inputs=both)
    links = (Link(answer.trace_id, answer.span_id),)
    root = contract_span(5, 5, 100, name="memtrace.attribute", links=links)
    step = contract_span(5, 6, 100, name="memtrace.evidence source")
    replaced = [
        contract_span(6, 7, 99, name="memtrace.attribute", links=links),
        contract_span(6, 8, 99, name="memtrace.evidence source", attributes={"memtrace.step.note": SECRET}),
    ]
    with SqliteStore.open(path) as store:
        store.add_request(encode_request([answer, kept, judge, comparison, *replaced, root, step]))
        store.save_verdict(answer.origin, "2" * 32, "{}")
        store.save_verdict(answer.origin, "1" * 32, "{}")
        store.mark_sent("traces", [root.span_id, step.span_id, kept.span_id])
        store.mark_sent("logs", [root.span_id])
        pruned = store.prune(scope=SCOPE)
        assert (pruned.traces, pruned.spans) == (4, 6)
        assert {span.origin for span in store.spans()} == {kept.origin, comparison.origin}
        assert store.verdicts() == []
        assert store.unsent("traces", [root.span_id, step.span_id, kept.span_id]) == [root.span_id, step.span_id]
        assert store.unsent("logs", [root.span_id]) == [root.span_id]
        assert store.check() == []


@pytest.mark.parametrize("upkeep", ["forget", "prune"])
def test_between_two_short_transactions_a_writer_gets_its_turn(
    path: Path, monkeypatch: pytest.MonkeyPatch, upkeep: str
) -> None:
    turns: list[int] = []

    def write_at_once(_: float) -> None:
        with sqlite3.connect(path, timeout=0, isolation_level=None) as writer:
            writer.execute("INSERT INTO inbox (body, received) VALUES (?, 0)", (secret_span(1000 + len(turns), 1),))
        (left,) = writer.execute("SELECT count(*) FROM span WHERE instr(CAST(body AS TEXT), ?)", (SECRET,)).fetchone()
        turns.append(left)
        writer.close()

    with SqliteStore.open(path) as store:
        for n in range(1, 201):
            store.add_request(secret_span(n, n))
        store.decode()
        with monkeypatch.context() as patch:
            patch.setattr("memtrace_otel.sources.connection.time.sleep", write_at_once)
            store.forget(SCOPE) if upkeep == "forget" else store.prune(scope=SCOPE)
        assert max(a - b for a, b in zip([200, *turns], [*turns, 0], strict=True)) <= 32
        assert len(turns) >= 5
        assert store.decode() == len(turns)
