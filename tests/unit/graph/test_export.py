"""Every export is read back by a parser of its form."""

from __future__ import annotations

import json
import re

import networkx as nx
import pytest

from memtrace_otel.graph import EvolutionGraph, VersionKey, build_graph
from memtrace_otel.graph.export import SCHEMA, SCHEMA_VERSION, node_id, nodes_named, render, to_document
from memtrace_otel.model import OperationSpan
from memtrace_otel.model.printable import escape_invisible
from memtrace_otel.semconv import Action, OpKind, Role
from tests.unit.graph.conftest import ALICE, BOB, origin_of, put, seen, span

HOSTILE = 'say "hi" \\ <b>&amp;</b>\n\x00\x1b\x9b\u061c\u200b\u3164\U000e0041\ud800 ]]> }; x [label="y"] é 漢'

_STRING = r'"((?:[^"\\\n]|\\.)*)"'
_NODE = re.compile(rf"  {_STRING} \[shape=\w+, label={_STRING}\];")
_EDGE = re.compile(rf"  {_STRING} -> {_STRING} \[label={_STRING}, style=\w+\];")


@pytest.fixture
def hostile() -> EvolutionGraph:
    writes = span(1, 1, OpKind.CREATE, scope=ALICE, name=HOSTILE, outputs=[put("memory:r", HOSTILE, size=None)])
    found = seen(f"memory:{HOSTILE}", origin_of(7, 7), score=float("nan"))
    reads = span(2, 1, OpKind.RETRIEVE, at=9, scope=ALICE, inputs=[found], attributes={"x": [1.0, float("inf")]})
    return build_graph([writes, reads])


@pytest.mark.parametrize("form", ["json", "dot", "graphml", "smartcomment"])
def test_every_form_escapes_hostile_texts(hostile: EvolutionGraph, form: str) -> None:
    text = render(hostile, form)
    text.encode("utf-8")
    assert escape_invisible(text) == text
    if form == "dot":
        body = text.splitlines()[3:-1]
        assert len(body) == len(hostile) + hostile.number_of_edges()
        assert all(_NODE.fullmatch(line) or _EDGE.fullmatch(line) for line in body)
    elif form == "graphml":
        assert nx.parse_graphml(text).number_of_nodes() == len(hostile)
    else:
        json.loads(text)


def test_json_holds_everything_and_names_its_schema(story: list[OperationSpan]) -> None:
    graph = build_graph(story)
    document = json.loads(render(graph, "json"))
    assert document == to_document(graph)
    assert (document["schema"], document["version"]) == (SCHEMA, SCHEMA_VERSION)
    assert len(document["operations"]) == len(story)
    ids = [node["id"] for node in (*document["operations"], *document["versions"])]
    assert len(ids) == len(set(ids)) == len(graph)
    assert len(document["edges"]) == graph.number_of_edges()
    assert {end for edge in document["edges"] for end in (edge["source"], edge["target"])} <= set(ids)
    home = [v for v in document["versions"] if v["ref"] == "memory:home"]
    assert [(v["number"], v["action"], v["content"]) for v in sorted(home, key=lambda v: v["number"])] == [
        (1, "ADD", "Lives in Paris"),
        (2, "UPDATE", "Lives in Lisbon"),
    ]


def test_json_is_the_same_for_any_order(story: list[OperationSpan]) -> None:
    assert render(build_graph(reversed(story)), "json") == render(build_graph(story), "json")


def test_a_ref_that_contains_a_bar_is_found() -> None:
    writes = span(1, 1, OpKind.CREATE, scope=ALICE, outputs=[put("memory:x|y", "Paris")])
    graph = build_graph([writes])
    (version,) = graph.history("memory:x|y")
    assert nodes_named(graph, "memory:x|y") == nodes_named(graph, node_id(version)) == [version]
    assert nodes_named(graph, "memory:x|z") == []


@pytest.mark.parametrize("scope", ["", BOB], ids=["no scope", "another scope"])
def test_a_ref_alone_names_the_last_version_in_any_scope(story: list[OperationSpan], scope: str) -> None:
    previous = seen("memory:tea", origin_of(3, 3), role=Role.PREVIOUS)
    coffee = put("memory:tea", "Likes coffee", action=Action.UPDATE)
    elsewhere = span(6, 1, OpKind.UPDATE, at=60, scope=scope, inputs=[previous], outputs=[coffee])
    graph = build_graph([*story, elsewhere])
    for given in ("", ALICE, BOB):
        assert nodes_named(graph, "memory:tea", given) == [VersionKey("memory:tea", elsewhere.origin)]


def test_json_shows_what_is_missing() -> None:
    graph = build_graph(
        [span(2, 1, OpKind.RETRIEVE, scope=ALICE, inputs=[seen("memory:a", origin_of(1, 1)), seen("memory:b")])]
    )
    document = to_document(graph)
    assert [o["missing"] for o in document["operations"]] == [False, True]
    assert {v["ref"]: v["unknown"] for v in document["versions"]} == {"memory:a": False, "memory:b": True}
    assert document["incomplete"] == {"missing_operation": 1, "unknown_origin": 1}


def test_graphml_reads_back_with_types(story: list[OperationSpan]) -> None:
    graph = build_graph(story)
    text = render(graph, "graphml")
    keys = re.findall(r'<key id="([^"]+)"', text)
    assert len(set(keys)) == len(keys)
    read = nx.parse_graphml(text, force_multigraph=True)
    assert (read.number_of_nodes(), read.number_of_edges()) == (len(graph), graph.number_of_edges())
    version = read.nodes[node_id(VersionKey("memory:home", origin_of(2, 3)))]
    assert (version["node_type"], version["number"], version["truncated"]) == ("version", 2, False)
    scores = [edge["score"] for *_, edge in read.edges(data=True) if "score" in edge]
    assert sorted(scores) == [0.3, 0.3, 0.9]


def test_dot_draws_inferred_reads_dashed() -> None:
    add = span(1, 1, OpKind.CREATE, scope=ALICE, outputs=[put("memory:r", "A", action=Action.ADD)])
    find = span(2, 1, OpKind.RETRIEVE, at=9, scope=ALICE, inputs=[seen("memory:r", role=Role.HIT)])
    lines = render(build_graph([add, find]), "dot").splitlines()
    assert [line.strip().split("[")[1] for line in lines if "->" in line] == [
        'label="ADD", style=solid];',
        'label="hit", style=dashed];',
    ]


def test_an_empty_graph_exports_too() -> None:
    assert nx.parse_graphml(render(build_graph([]), "graphml")).number_of_nodes() == 0
    assert json.loads(render(build_graph([]), "json"))["operations"] == []
