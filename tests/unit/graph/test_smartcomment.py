"""Import and export of smartcomment graphs."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from typing import Any

import pytest

from memtrace_otel.graph import VersionKey, build_graph
from memtrace_otel.graph.smartcomment import to_smartcomment, to_spans
from memtrace_otel.model import OperationSpan, ref_kind
from memtrace_otel.otlp import decode_request, encode_request
from memtrace_otel.semconv import Action, OpKind, Role
from tests.unit.graph.conftest import origin_of


class Recording:
    """A smartcomment document, written call by call."""

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
    """Mem0 recorded by MemBase: two messages, an update, a deletion, a question with an answer judged wrong."""
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


def test_a_second_conversion_gives_the_same_spans() -> None:
    assert to_spans(recorded().document) == to_spans(json.loads(json.dumps(recorded().document)))
    other = recorded()
    other.document["graph_id"] = "graph-2"
    assert not {s.origin for s in to_spans(other.document)} & {s.origin for s in to_spans(recorded().document)}


def test_a_question_is_a_trace_and_a_session_is_a_trace() -> None:
    spans = to_spans(recorded().document)
    traces = [span.trace_id for span in spans]
    assert traces[0] == traces[1] != traces[2] == traces[3] == traces[4]
    assert traces[5] == traces[6] == traces[7]
    assert len(set(traces)) == 3


def test_records_are_updated_and_deleted() -> None:
    graph = build_graph(to_spans(recorded().document))
    assert graph.incomplete == {}
    first, second = graph.history("memory:7")
    assert [graph.content(v) for v in (first, second)] == ["Lives in Paris", "Lives in Lisbon"]
    assert graph.nodes[second]["variable"].action == Action.UPDATE
    assert not graph.edges[second, first, "supersedes"]["inferred"]
    born, gone = graph.history("memory:8")
    assert (graph.content(born), graph.is_tombstone(gone)) == ("Has a dog", True)


def test_a_retrieval_reads_its_results() -> None:
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


def test_flow_separates_the_deleted_record_from_the_updated_record() -> None:
    graph = build_graph(to_spans(recorded().document))
    updated, gone = graph.history("memory:7")[1], graph.history("memory:8")[1]
    assert graph.history("memory:8")[0] in graph.sources(gone)
    assert graph.history("memory:8")[0] not in graph.sources(updated)


def test_a_score_of_zero_is_a_failure_and_the_query_names_the_evidence() -> None:
    (judge,) = by_name(to_spans(recorded().document), "llm-judge")
    assert judge.attributes["gen_ai.evaluation.score.value"] == 0.0
    assert judge.attributes["gen_ai.evaluation.score.label"] == "incorrect"
    assert judge.evidence == ("message:U1:D2",)
    assert {v.role: v.content for v in judge.inputs if v.role == Role.EXPECTED} == {Role.EXPECTED: "Lisbon"}


def test_annotations_of_a_benchmark_do_not_change_the_spans() -> None:
    labelled = recorded()
    labelled.document["data"]["annotations"] = [
        {"query_id": "query:qa-1@1", "final_error_type": "ResponseError", "final_op_id": "op-6"}
    ]
    assert to_spans(labelled.document) == to_spans(recorded().document)


def test_contents_are_read_without_the_encoding_of_the_tracer() -> None:
    spans = to_spans(recorded().document)
    assert spans[0].inputs[0].content == "I live in Paris\n(sent at 2024-03-01)"
    assert spans[0].inputs[1].content == "Extract facts"


def test_equal_answers_belong_to_different_questions() -> None:
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


def test_an_operation_without_edges_and_a_link_outside_of_operations() -> None:
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
def test_an_error_names_the_place_in_the_document(path: tuple[Any, ...], value: Any, place: str) -> None:
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


# --- export -----------------------------------------------------------------------------------------------------------
def test_edges_and_operations_of_an_export_refer_to_exported_nodes_and_sessions(story: list[OperationSpan]) -> None:
    data = to_smartcomment(build_graph(story))["data"]
    nodes = [node["full_node_id"] for node in data["nodes"]]
    assert len(nodes) == len(set(nodes))
    assert {edge[f"{end}_full_node_id"] for edge in data["edges"] for end in ("source", "target")} <= set(nodes)
    assert {edge["op_id"] for edge in data["edges"]} <= {operation["op_id"] for operation in data["operations"]}
    assert {operation["session_id"] for operation in data["operations"]} == {s["session_id"] for s in data["sessions"]}
    queries = [node for node in data["nodes"] if node["category"] == "message & query"]
    assert [query["metadata"]["evidence"] for query in queries] == [["m2"], ["m2"]]


def test_an_export_imported_again_has_the_same_lineage_and_failures(story: list[OperationSpan]) -> None:
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


@pytest.mark.parametrize(
    ("told", "scores"),
    [
        ({"gen_ai.evaluation.score.label": "Not Relevant"}, ["0.0"]),
        ({"gen_ai.evaluation.score.value": 0.6}, ["0.0"]),
        ({"gen_ai.evaluation.score.value": 0.8}, ["1.0"]),
        ({}, []),
    ],
)
def test_the_exported_score_follows_the_evaluation_threshold(
    story: list[OperationSpan], told: dict[str, Any], scores: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMTRACE_EVALUATION_THRESHOLD", "0.7")
    judged = [replace(span, attributes=told) for span in story if span.kind == OpKind.JUDGE][:1]
    others = [span for span in story if span.kind != OpKind.JUDGE]
    nodes = to_smartcomment(build_graph([*others, *judged]))["data"]["nodes"]
    assert [node["value"] for node in nodes if node["class_name"] == "judge_score"] == scores
