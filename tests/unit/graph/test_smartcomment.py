"""Graphs of the peer tracer, in and out."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from memtrace_otel.attribution import attribute, find_failures
from memtrace_otel.graph import EvolutionGraph, VersionKey, build_graph
from memtrace_otel.graph.smartcomment import to_smartcomment, to_spans
from memtrace_otel.model import OperationSpan, Variable, content_digest, ref_kind
from memtrace_otel.otlp import decode_request, encode_request
from memtrace_otel.otlp.feedback import encode_feedback
from memtrace_otel.semconv import Action, OpKind, Role
from tests.unit.graph.conftest import ALICE, BOB, origin_of, put, seen, span
from tests.unit.graph.streams import named_streams, streams, wild_streams


class Recording:
    """A document in the form of the peer, written call by call."""

    def __init__(self) -> None:
        self._clock = 0
        self.document: dict[str, Any] = {
            "graph_id": "graph-1", "user_id": "u1", "project_id": "demo", "storage_path": None, "strict": True,
            "driver_type": "in_memory", "created_at": self._now(), "metadata": {},
            "data": {"nodes": [], "edges": [], "operations": [], "sessions": [], "annotations": []},
        }  # fmt: skip

    def _now(self) -> str:
        self._clock += 1
        return f"2026-11-20 08:{self._clock // 60:02d}:{self._clock % 60:02d}.000"

    def node(
        self, name: str, value: str, category: str, cls: str | None = None, version: int = 1, **metadata: Any
    ) -> str:
        full = f"{cls}:{name}@{version}" if cls else f"{name}@{version}"
        self.document["data"]["nodes"].append(
            {"created_at": self._now(), "filename": "app.py", "lineno": 5, "name": name, "version": version,
             "value": value, "comment": None, "category": category, "class_name": cls, "metadata": metadata,
             "full_node_id": full}
        )  # fmt: skip
        return full

    def operation(self, name: str, category: str, *edges: tuple[str, str], session: str = "s1") -> str:
        data = self.document["data"]
        op_id = f"op-{len(data['operations'])}"
        created = self._now()
        data["operations"].append(
            {
                "created_at": created,
                "op_id": op_id,
                "op_name": name,
                "category": category,
                "session_id": session,
                "metadata": {},
            }
        )
        for source, target in edges:
            data["edges"].append(
                {"created_at": created, "edge_id": f"edge-{len(data['edges'])}", "op_id": op_id, "session_id": session,
                 "source_full_node_id": source, "target_full_node_id": target, "metadata": {}}
            )  # fmt: skip
        return op_id


def recorded() -> Recording:
    """Mem0 as MemBase records it: two messages, an update, a deletion, one question answered and judged wrong."""
    r = Recording()
    m1 = r.node("U1:D1", '{"content": "I live in Paris", "role": "user", "timestamp": "2024-03-01"}', "message")
    system = r.node("fact-extraction-system-prompt", "'Extract facts'", "prompt")
    raw1 = r.node("h1", "'{\"facts\": [...]}'", "llm_response", "raw_fact_extraction_response")
    facts1 = r.node("h2", '["Lives in Paris"]', "llm_response", "extracted_facts")
    action1 = r.node("h3", "[ADD]", "llm_response", "update_action")
    unit1 = r.node("memory-unit-7", '{"id": "7", "memory": "Lives in Paris"}', "memory_entry", "mem")
    r.operation("memory_system.extract_facts", "extraction", (m1, raw1), (system, raw1), (raw1, facts1))
    r.operation("memory_system.update_memory_decision", "update", (facts1, action1), (action1, unit1))
    m2 = r.node("U1:D2", '{"content": "I moved to Lisbon", "role": "user", "timestamp": "2024-03-02"}', "message")
    facts2 = r.node("h4", '["Moved to Lisbon"]', "llm_response", "extracted_facts")
    unit2 = r.node("memory-unit-7", '{"id": "7", "memory": "Lives in Lisbon"}', "memory_entry", "mem", version=2)
    other = r.node("memory-unit-8", '{"id": "8", "memory": "Has a dog"}', "memory_entry", "mem")
    marker = r.node("delete_marker", "'DELETED'", "marker", "delete_marker")
    r.operation("memory_system.add_to_vector_store", "embedding", (m1, other), session="s2")
    r.operation("memory_system.extract_facts", "extraction", (m2, facts2), session="s2")
    r.operation(
        "memory_system.update_memory_decision", "update", (facts2, unit2), (unit1, unit2), (other, marker), session="s2"
    )
    query = r.node("qa-1", "'Where does Ann live?'", "message & query", "query", evidence=["U1:D2"])
    r.operation("memory_system.search_vector_store", "retrieval", (query, unit2), session="search")
    context = r.node("h5", "'Lives in Lisbon'", "memory_context", "context")
    answer = r.node("h6", "'Paris'", "llm_response", "prediction")
    r.operation(
        "question-answering", "evaluation", (unit2, context), (query, answer), (context, answer), session="eval"
    )
    gold = r.node("h7", "'Lisbon'", "variable", "golden_answers")
    response = r.node("h8", "'WRONG'", "llm_response", "judge_response")
    score = r.node("h9", "0.0", "variable", "judge_score")
    r.operation(
        "llm-judge",
        "evaluation",
        (query, response),
        (gold, response),
        (answer, response),
        (response, score),
        session="eval",
    )
    return r


def by_name(spans: list[OperationSpan], name: str) -> list[OperationSpan]:
    return [span for span in spans if span.name.endswith(name)]


def test_operations_become_spans_with_their_kinds_and_names() -> None:
    spans = to_spans(recorded().document)
    assert [span.kind for span in spans] == [
        "extract", "update", "create", "extract", "update", "retrieve", "respond", "judge",
    ]  # fmt: skip
    assert spans[0].attributes["memtrace.smartcomment.op_id"] == "op-0"
    assert spans[0].attributes["memtrace.smartcomment.op_name"] == "memory_system.extract_facts"
    assert decode_request(encode_request(spans)) == spans


def test_evaluations_of_other_names_are_told_by_what_they_make() -> None:
    r = Recording()
    query, said = r.node("q", "'?'", "message & query", "query"), r.node("p", "'!'", "llm_response", "prediction")
    score = r.node("x", "1.0", "variable", "judge_score")
    r.operation("qa.answer", "evaluation", (query, said))
    r.operation("qa.judge", "evaluation", (said, score))
    answer, judge = to_spans(r.document)
    assert (answer.kind, judge.kind) == (OpKind.RESPOND, OpKind.JUDGE)
    assert judge.trace_id == answer.trace_id
    assert judge.attributes["gen_ai.evaluation.score.label"] == "correct"


def test_a_second_conversion_gives_the_same_spans() -> None:
    assert to_spans(recorded().document) == to_spans(json.loads(json.dumps(recorded().document)))
    other = recorded()
    other.document["graph_id"] = "graph-2"
    assert not {s.origin for s in to_spans(other.document)} & {s.origin for s in to_spans(recorded().document)}


def test_a_question_is_one_trace_and_a_session_is_one() -> None:
    spans = to_spans(recorded().document)
    traces = [span.trace_id for span in spans]
    assert traces[0] == traces[1] != traces[2] == traces[3] == traces[4]
    assert traces[5] == traces[6] == traces[7]
    assert len(set(traces)) == 3


def test_records_evolve_and_end() -> None:
    graph = build_graph(to_spans(recorded().document))
    assert graph.incomplete == {}
    first, second = graph.history("memory:7")
    assert [graph.content(v) for v in (first, second)] == ["Lives in Paris", "Lives in Lisbon"]
    assert graph.nodes[second]["variable"].action == Action.UPDATE
    assert not graph.edges[second, first, "supersedes"]["inferred"]
    born, gone = graph.history("memory:8")
    assert (graph.content(born), graph.is_tombstone(gone)) == ("Has a dog", True)


def test_a_retrieval_reads_what_it_found() -> None:
    graph = build_graph(to_spans(recorded().document))
    (search,) = graph.operations(kind=OpKind.RETRIEVE)
    hits = [read for read in graph.inputs(search.origin) if read.role == Role.HIT]
    assert [(read.version, read.rank) for read in hits] == [(graph.history("memory:7")[1], 1)]
    for version in (*graph.history("memory:7"), *graph.history("memory:8")):
        assert "query" not in {ref_kind(node.ref) for node in graph.ancestors(version) if isinstance(node, VersionKey)}


def test_a_slice_goes_from_the_answer_to_the_messages() -> None:
    graph = build_graph(to_spans(recorded().document))
    (answer,) = graph.operations(kind=OpKind.RESPOND)
    refs = {node.ref for node in graph.slice_of_answer(answer.origin) if isinstance(node, VersionKey)}
    assert {"message:U1:D1", "message:U1:D2", "memory:7", "query:qa-1"} <= refs
    assert "memory:8" not in refs


def test_flow_keeps_the_deleted_record_apart_from_the_updated_one() -> None:
    graph = build_graph(to_spans(recorded().document))
    updated, gone = graph.history("memory:7")[1], graph.history("memory:8")[1]
    assert graph.history("memory:8")[0] in graph.sources(gone)
    assert graph.history("memory:8")[0] not in graph.sources(updated)


def test_the_score_makes_a_failure_and_the_query_names_evidence() -> None:
    (judge,) = by_name(to_spans(recorded().document), "llm-judge")
    assert judge.attributes["gen_ai.evaluation.score.value"] == 0.0
    assert judge.attributes["gen_ai.evaluation.score.label"] == "incorrect"
    assert judge.evidence == ("message:U1:D2",)
    assert {v.role: v.content for v in judge.inputs if v.role == Role.EXPECTED} == {Role.EXPECTED: "Lisbon"}


def test_the_labels_of_a_benchmark_change_nothing() -> None:
    labelled = recorded()
    labelled.document["data"]["annotations"] = [
        {"query_id": "query:qa-1@1", "final_error_type": "ResponseError", "final_op_id": "op-6"}
    ]
    assert to_spans(labelled.document) == to_spans(recorded().document)


def test_contents_lose_the_encoding_of_the_tracer() -> None:
    spans = to_spans(recorded().document)
    assert spans[0].inputs[0].content == "I live in Paris\n(sent at 2024-03-01)"
    assert spans[0].inputs[1].content == "Extract facts"


def test_judgements_with_equal_texts_keep_their_questions_apart() -> None:
    r = recorded()
    query = r.node("qa-2", "'Any dog?'", "message & query", "query")
    answer = r.node("h16", "'Yes'", "llm_response", "prediction")
    r.operation("question-answering", "evaluation", (query, answer), session="eval")
    r.operation("llm-judge", "evaluation", (query, "judge_response:h8@1"), (answer, "judge_response:h8@1"),
                ("judge_response:h8@1", "judge_score:h9@1"), session="eval")  # fmt: skip
    spans = to_spans(r.document)
    graph = build_graph(spans)
    for judge in by_name(spans, "llm-judge"):
        slice_ = graph.slice_of_answer(judge.origin)
        assert len({n.ref for n in slice_ if isinstance(n, VersionKey) and ref_kind(n.ref) == "query"}) == 1


def test_equal_answers_keep_their_questions_apart() -> None:
    r = Recording()
    said = r.node("h", "'I do not know'", "llm_response", "prediction")
    for name in ("q1", "q2"):
        query = r.node(name, f"'{name}?'", "message & query", "query")
        score = r.node(f"s-{name}", "0.0", "variable", "judge_score")
        r.operation("question-answering", "evaluation", (query, said))
        r.operation("llm-judge", "evaluation", (query, score), (said, score))
    spans = to_spans(r.document)
    assert len({span.trace_id for span in spans}) == 2
    for judge in by_name(spans, "llm-judge"):
        (judged,) = (v for v in judge.inputs if v.role == Role.ANSWER)
        assert judged.origin.startswith(judge.trace_id)


def test_operations_of_one_millisecond_do_not_lose_each_other() -> None:
    r = recorded()
    for operation in r.document["data"]["operations"]:
        operation["created_at"] = "2026-11-20 08:00:00.000"
    r.document["data"]["operations"].reverse()
    graph = build_graph(to_spans(r.document))
    assert [graph.content(v) for v in graph.history("memory:7")] == ["Lives in Paris", "Lives in Lisbon"]


def test_a_call_without_results_and_a_link_outside_of_operations() -> None:
    r = Recording()
    message = r.node("m", "hi", "message")
    copied = r.node("c", "hi", "variable")
    r.operation("memory_system.update", "update", (message, "COMMENT:NONE@1"))
    r.operation("nothing", "operation")
    r.document["data"]["edges"].append(
        {"created_at": "2026-11-20 09:00:00.000", "edge_id": "e", "op_id": "__none_op__", "session_id": "__none__",
         "source_full_node_id": message, "target_full_node_id": copied}
    )  # fmt: skip
    spans = to_spans(r.document)
    assert [[v.ref for v in s.inputs] for s in spans] == [["message:m"], [], ["message:m"]]
    assert [[v.ref for v in s.outputs] for s in spans] == [[], [], ["state:c"]]


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        ((), [], "document: expected an object, got list"),
        (("graph_id",), 7, "document.graph_id: expected a text"),
        (("data",), None, "data: expected an object"),
        (("data", "nodes"), {}, "data.nodes: expected a list"),
        (("data", "sessions"), 1.5, "data.sessions: expected a list"),
        (("data", "sessions"), ["s1"], "data.sessions[0]: expected an object"),
        (("data", "nodes", 3), "x", "data.nodes[3]: expected an object"),
        (("data", "nodes", 3, "version"), "1", "data.nodes[3].version: expected an integer from 1, got '1'"),
        (("data", "nodes", 3, "metadata"), [1], "data.nodes[3].metadata: expected an object"),
        (("data", "operations", 1, "op_id"), "op-0", "data.operations[1].op_id: 'op-0' is there twice"),
        (("data", "operations", 1, "created_at"), "soon", "data.operations[1].created_at: expected YYYY-MM-DD"),
        (("data", "edges", 2, "op_id"), "op-x", "data.edges[2].op_id: no such operation: 'op-x'"),
        (("data", "edges", 2, "target_full_node_id"), "n@1", "data.edges[2].target_full_node_id: no such node: 'n@1'"),
    ],
)  # fmt: skip
def test_a_fault_is_named_by_its_place(path: tuple[Any, ...], value: Any, place: str) -> None:
    document: Any = copy.deepcopy(recorded().document)
    if path:
        *above, last = path
        at = document
        for key in above:
            at = at[key]
        at[last] = value
    else:
        document = value
    with pytest.raises(ValueError, match=re.escape(place)):
        to_spans(document)


# --- out --------------------------------------------------------------------------------------------------------------
def test_the_export_refers_only_to_what_it_holds(story: list[OperationSpan]) -> None:
    data = to_smartcomment(build_graph(story))["data"]
    nodes = [node["full_node_id"] for node in data["nodes"]]
    assert len(nodes) == len(set(nodes))
    assert {edge[f"{end}_full_node_id"] for edge in data["edges"] for end in ("source", "target")} <= set(nodes)
    assert {edge["op_id"] for edge in data["edges"]} <= {operation["op_id"] for operation in data["operations"]}
    assert {operation["session_id"] for operation in data["operations"]} == {s["session_id"] for s in data["sessions"]}
    queries = [node for node in data["nodes"] if node["category"] == "message & query"]
    assert [query["metadata"]["evidence"] for query in queries] == [["m2"], ["m2"]]


def test_out_and_in_again_keeps_lineage_and_failures(story: list[OperationSpan]) -> None:
    back = build_graph(to_spans(json.loads(json.dumps(to_smartcomment(build_graph(story))))))
    assert back.incomplete == {}
    assert [back.content(v) for v in back.history("memory:home")] == ["Lives in Paris", "Lives in Lisbon"]
    assert [s.attributes["gen_ai.evaluation.score.label"] for s in back.operations(kind=OpKind.JUDGE)] == [
        "incorrect"
    ] * 2
    first = back.operations(kind=OpKind.RESPOND)[0]
    original = build_graph(story).slice_of_answer(origin_of(4, 1))

    def named(nodes: Any) -> set[str]:
        refs = {node.ref for node in nodes if isinstance(node, VersionKey)}
        return {ref for ref in refs if ref_kind(ref) not in ("answer", "context")}  # named by their spans

    assert named(back.slice_of_answer(first.origin)) == named(original)


def test_an_imported_document_comes_back_as_it_was() -> None:
    r = recorded()
    r.node("COMMENT:NONE", "''", "variable")
    r.node("alone", "'nobody reads it'", "variable")
    r.document["data"]["sessions"] += [{"session_id": name, "session_name": name} for name in ("s1", "s2", "unused")]
    r.document["data"]["annotations"] = [{"final_error_type": "ExtractionError"}]
    edge = r.document["data"]["edges"][3]
    edge["op_id"] = "__none_op__"
    spans = [span for body in [encode_request(to_spans(r.document))] for span in decode_request(body)]
    back = to_smartcomment(build_graph(spans))
    del r.document["data"]["annotations"]
    assert back == r.document
    assert build_graph(to_spans(back)).graph == build_graph(spans).graph


def test_feedback_on_an_imported_document_leaves_it_as_it_was() -> None:
    r = recorded()
    spans = to_spans(r.document)
    answer = next(span for span in spans if span.kind == OpKind.RESPOND)
    feedback = decode_request(encode_feedback(answer.trace_id, label="fail", expected="Porto"))
    graph = build_graph([*spans, *feedback])
    assert len(graph.operations(OpKind.JUDGE)) == 1 + len(build_graph(spans).operations(OpKind.JUDGE))
    del r.document["data"]["annotations"]
    assert to_smartcomment(graph) == r.document
    other = OperationSpan("c" * 32, "1" * 16, kind="create", outputs=(Variable("memory:1", content="x"),), start=1)
    assert len(to_smartcomment(build_graph([*spans, other]))["data"]["operations"]) == len(spans) + 1


def test_a_part_of_an_imported_document_refers_only_to_what_it_holds() -> None:
    spans = to_spans(recorded().document)
    for missing in range(len(spans)):
        data = to_smartcomment(build_graph(spans[:missing] + spans[missing + 1 :]))["data"]
        nodes = {node["full_node_id"] for node in data["nodes"]}
        assert {edge[f"{end}_full_node_id"] for edge in data["edges"] for end in ("source", "target")} <= nodes


@pytest.mark.parametrize(
    ("told", "scores"),
    [
        ({"gen_ai.evaluation.score.label": "Not Relevant"}, ["0.0"]),
        ({"gen_ai.evaluation.score.value": 0.6}, ["0.0"]),
        ({"gen_ai.evaluation.score.value": 0.8}, ["1.0"]),
        ({}, []),
    ],
)
def test_a_judgement_fails_by_the_same_rule_as_everywhere(
    story: list[OperationSpan], told: dict[str, Any], scores: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMTRACE_EVALUATION_THRESHOLD", "0.7")
    judged = [replace(span, attributes=told) for span in story if span.kind == OpKind.JUDGE][:1]
    others = [span for span in story if span.kind != OpKind.JUDGE]
    nodes = to_smartcomment(build_graph([*others, *judged]))["data"]["nodes"]
    assert [node["value"] for node in nodes if node["class_name"] == "judge_score"] == scores


# --- out and in again -------------------------------------------------------------------------------------------------
def again(spans: list[OperationSpan]) -> EvolutionGraph:
    return build_graph(to_spans(json.loads(json.dumps(to_smartcomment(build_graph(spans))))))


def lives_of_records() -> list[OperationSpan]:
    """Records of every kind that are written, deleted and found; the second one asked reads nothing of the first."""
    asked, message = "Where does Ann live?", put("message:m", "Ann lives in Lisbon", role=Role.MESSAGE)
    spans: list[OperationSpan] = []
    for trace, (scope, home) in enumerate(((ALICE, "Lisbon"), (BOB, "Porto")), 1):
        records = [f"{kind}:home" for kind in ("memory", "state", "chunk", "document")]
        written = [put(ref, f"Ann lives in {home}", action=Action.ADD) for ref in records]
        hits = [seen(ref, origin_of(trace, 1), role=Role.HIT) for ref in records]
        question = put("query:q", asked, role=Role.QUERY) if trace == 2 else seen("query:q", role=Role.QUERY)
        answer = put(f"answer:{3:016x}", "Paris", action=Action.DERIVE)
        spans += [
            span(trace, 1, OpKind.CREATE, at=trace, scope=scope, inputs=[message], outputs=written),
            span(trace, 2, OpKind.RETRIEVE, parent=3, at=10 * trace + 1, scope=scope, inputs=[question, *hits],
                 outputs=[put("context:c", "found", action=Action.DERIVE)]),
            span(trace, 3, OpKind.RESPOND, at=10 * trace, lasts=5, scope=scope, outputs=[answer],
                 inputs=[question, seen("context:c", origin_of(trace, 2), role=Role.CONTEXT)]),
            span(trace, 4, OpKind.DELETE, at=30 + trace, scope=scope, inputs=[message],
                 outputs=[Variable(ref, action=Action.DELETE) for ref in records[:3]]),
        ]  # fmt: skip
    return spans


RECORDS_OF_ALL_KINDS = ("memory:home", "state:home", "chunk:home", "document:home")


@pytest.mark.parametrize("ref", RECORDS_OF_ALL_KINDS[:3])
def test_a_deletion_that_did_not_read_the_record_is_one_again(ref: str) -> None:
    graph = again(lives_of_records())
    assert [graph.is_tombstone(version) for version in graph.history(ref)] == [False, False, True, True]
    assert all(read.role != Role.PREVIOUS for s in graph.operations(OpKind.DELETE) for read in graph.inputs(s.origin))


@pytest.mark.parametrize("written", [True, False], ids=["written", "from outside"])
def test_hits_of_every_kind_were_read(written: bool) -> None:
    graph = again([s for s in lives_of_records() if written or s.kind != OpKind.CREATE])
    for search in graph.operations(OpKind.RETRIEVE):
        hits = [read.version.ref for read in graph.inputs(search.origin) if read.role == Role.HIT]
        assert hits == list(RECORDS_OF_ALL_KINDS)
        assert [ref_kind(version.ref) for version in graph.outputs(search.origin)] == ["context"]


@pytest.mark.parametrize("roles", [(Role.HIT, Role.CANDIDATE), (Role.CANDIDATE, Role.HIT)])
def test_what_a_search_looked_at_and_returned_was_read_in_both_roles(roles: tuple[Role, Role]) -> None:
    """Mem0's search tells its hits and then all candidates, a reranking the other way round."""
    of_roles = {Role.HIT: RECORDS_OF_ALL_KINDS[::-1], Role.CANDIDATE: RECORDS_OF_ALL_KINDS}

    def both(search: OperationSpan) -> OperationSpan:
        by_ref = {variable.ref: variable for variable in search.inputs}
        read = [replace(by_ref[ref], role=role) for role in roles for ref in of_roles[role]]
        return replace(search, inputs=(*(v for v in search.inputs if v.role == Role.QUERY), *read))

    graph = again([both(s) if s.kind == OpKind.RETRIEVE else s for s in lives_of_records()])
    for search in graph.operations(OpKind.RETRIEVE):
        found = [(v.role, v.ref) for v in search.inputs if v.role != Role.QUERY]
        assert found == [(role, ref) for role in roles for ref in of_roles[role]]


def test_an_export_that_does_not_name_what_was_read_is_read_by_its_edges() -> None:
    """As earlier versions wrote it."""
    document = to_smartcomment(build_graph(lives_of_records()))
    for operation in document["data"]["operations"]:
        del operation["metadata"]["memtrace_inputs"]
    for node in document["data"]["nodes"]:
        node["metadata"].pop("memtrace_maker", None)
    graph = build_graph(to_spans(document))
    assert all(s.inputs and s.outputs for s in graph.operations() if s.kind in (OpKind.CREATE, OpKind.RESPOND))


def test_an_operation_that_ended_with_an_error_has_failed_again() -> None:
    spans = [replace(s, status="error") if s.kind == OpKind.DELETE else s for s in lives_of_records()]
    graph = again(spans)
    assert [graph.is_tombstone(version) for version in graph.history("memory:home")] == [False, False]
    assert {s.status for s in graph.operations(OpKind.DELETE)} == {"error"}


def test_memories_stay_apart() -> None:
    graph = again(lives_of_records())
    held = [[graph.content(v) for v in graph.history("memory:home", scope)] for scope in graph.scopes()]
    assert sorted(held) == [["Ann lives in Lisbon", ""], ["Ann lives in Porto", ""]]


def test_an_export_without_memories_is_one_memory_of_its_own() -> None:
    graph = again([replace(s, scope="") for s in lives_of_records()])
    assert [len(scope) for scope in graph.scopes()] == [16]


def test_a_question_has_the_text_that_any_reader_shows() -> None:
    graph = again(lives_of_records())
    read = [read.version for s in graph.operations(OpKind.RESPOND) for read in graph.inputs(s.origin)]
    assert {graph.content(v) for v in read if ref_kind(v.ref) == "query"} == {"Where does Ann live?"}


def test_operations_lie_in_each_other_and_in_time_as_before() -> None:
    spans = [replace(s, start=s.start + 7, end=s.end + 9) for s in lives_of_records()]
    graph, before = again(spans), build_graph(spans)
    assert sorted((s.start, s.end, s.kind) for s in graph.operations()) == sorted(
        (s.start, s.end, s.kind) for s in before.operations()
    )
    for search in graph.operations(OpKind.RETRIEVE):
        around = graph.enclosing(search.origin)
        assert around
        assert around.kind == OpKind.RESPOND


def test_evaluations_of_several_names_stay_apart() -> None:
    answer = seen(f"answer:{3:016x}", origin_of(1, 3), role=Role.ANSWER)
    judged = [
        span(1, number, OpKind.JUDGE, parent=3, at=13 + number, inputs=[answer],
             attributes={"gen_ai.evaluation.name": name, "gen_ai.evaluation.score.label": label})
        for number, name, label in ((8, "exact", "fail"), (9, "tone", "pass"))
    ]  # fmt: skip
    assert [failure.evaluation for failure in find_failures(again([*lives_of_records(), *judged]))] == ["exact"]


def test_what_is_known_to_be_missing_is_known_again() -> None:
    spans = [replace(s, seq=number, incomplete=("budget",)) for number, s in enumerate(lives_of_records(), 1)]
    assert build_graph(spans[:2] + spans[4:]).incomplete.items() <= again(spans[:2] + spans[4:]).incomplete.items()


@pytest.mark.parametrize("odd", [7, [{}, [], [1], ["a", "b"], ["a", "b", "c"], None], {"a": 1}, "inputs"])
def test_odd_metadata_is_left_alone(odd: object) -> None:
    document = to_smartcomment(build_graph(lives_of_records()))
    for operation in document["data"]["operations"]:
        operation["metadata"] |= {"memtrace_end_ns": 1 << 70, "memtrace_duration_ns": -1}
        operation["metadata"] |= {
            f"memtrace_{name}": odd for name in ("inputs", "considered", "evidence", "incomplete")
        }
    spans = to_spans(document)
    assert decode_request(encode_request(spans)) == spans


@settings(max_examples=150, deadline=None, derandomize=True)
@given(streams | wild_streams | named_streams)
def test_verdicts_are_the_same_again(spans: list[OperationSpan]) -> None:
    spans = [_of_homes(span) for span in spans]
    before, after = build_graph(spans), again(spans)
    assert _verdicts(after, lambda judge: str(judge.attributes["memtrace.smartcomment.op_id"])) == _verdicts(
        before, lambda judge: f"op-{judge.trace_id}{judge.span_id}"
    )


def _verdicts(graph: EvolutionGraph, name: Callable[[OperationSpan], str]) -> dict[str, tuple[str, bool]]:
    verdicts = [attribute(graph, failure) for failure in find_failures(graph)]
    return {name(v.failure.judge_span): (v.failure_type, v.complete) for v in verdicts if v.failure.judge_span}


def _of_homes(span: OperationSpan) -> OperationSpan:
    """The streams, about something that verdicts can be on."""
    said = {"tea": "Ann lives in Porto", "Lisbon": "Ann lives in Lisbon", "who?": "Where does Ann live?"}
    digests = {content_digest(f"{text}{end}"): content_digest(f"{new}{end}")
               for text, new in said.items() for end in ("", *(f" {n}" for n in range(5)))}  # fmt: skip

    def of_home(variable: Variable) -> Variable:
        words = variable.content.split(" ")
        content = " ".join([said.get(words[0], words[0]), *words[1:]])
        return replace(variable, content=content, digest=digests.get(variable.digest, variable.digest))

    expected = [put("expected:e", "Lisbon", role=Role.EXPECTED)] if span.kind == OpKind.JUDGE else []
    return replace(span, inputs=(*map(of_home, span.inputs), *expected), outputs=tuple(map(of_home, span.outputs)))
