"""A memory system traced with the real smartcomment, as its documentation shows it."""

from __future__ import annotations

import json
from typing import Any

from smartcomment import comment_graph, comment_mutation, comment_op, comment_session, comment_variable
from smartcomment.runtime import ExecNetwork

TURNS = ("I live in Paris", "I have a dog", "I moved to Lisbon", "My dog went to live with Ana")
QUESTIONS = (("Where does Ann live?", "Lisbon", "Paris"), ("Who has the dog?", "Ana", "Ana"))


def recorded() -> ExecNetwork:
    """Four messages, three records of which one changes and one goes, two questions, one answered wrongly."""
    with comment_graph(user_id="ann", project_id="shop") as graph:
        memory: dict[str, dict[str, str]] = {}
        with comment_session(session_name="day 1"):
            for turn, text in enumerate(TURNS[:2]):
                _told(graph, memory, turn, text, str(turn))
        with comment_session(session_name="day 2"):
            _told(graph, memory, 2, TURNS[2], "0")
            _forgotten(graph, memory, 3, TURNS[3], "1")
        with comment_session(session_name="memory_search"):
            found = [_searched(graph, number) for number in range(len(QUESTIONS))]
        with comment_session(session_name="memory_evaluation"):
            for number, (query, units) in enumerate(found):
                _answered(graph, number, query, units)
    return graph


def _variable(value: Any, name: str, category: str, class_name: str | None = None, **more: Any) -> Any:
    how: dict[str, Any] = {"id_strategy": lambda _: name, "encoding_fn": json.dumps, "category": category}
    if class_name:
        how["class_name"] = class_name
    return comment_variable(value, to_runtime=True, **how, **more)


def _output(value: Any, name: str, category: str, class_name: str | None = None) -> tuple[Any, dict[str, Any]]:
    how: dict[str, Any] = {"id_strategy": lambda _: name, "encoding_fn": json.dumps, "category": category}
    return value, how | ({"class_name": class_name} if class_name else {})


def _facts(graph: ExecNetwork, turn: int, text: str) -> Any:
    said = _variable({"content": text, "role": "user", "timestamp": f"2024-03-0{turn + 1}"}, f"U1:D{turn}", "message")
    comment_op(
        op_name="memory_system.extract_facts",
        category="extraction",
        inputs=[said],
        outputs=[_output([text], f"facts-{turn}", "llm_response", "extracted_facts")],
    )
    return graph.get_latest_variable(f"extracted_facts:facts-{turn}")


def _told(graph: ExecNetwork, memory: dict[str, dict[str, str]], turn: int, text: str, unit: str) -> None:
    facts = _facts(graph, turn, text)
    how: dict[str, Any] = {
        "id_strategy": lambda value: f"memory-unit-{value['id']}",
        "encoding_fn": json.dumps,
        "category": "memory_entry",
        "class_name": "mem",
    }
    if unit not in memory:
        memory[unit] = {"id": unit, "memory": text}
        name = "memory_system.update_memory_decision"
        comment_op(op_name=name, category="update", inputs=[facts], outputs=[(memory[unit], how)])
        return
    with comment_mutation(
        target=memory[unit],
        inputs=[facts],
        mutation_name="memory_system.update_memory_decision",
        mutation_category="update",
        **how,
    ):
        memory[unit]["memory"] = text


def _forgotten(graph: ExecNetwork, memory: dict[str, dict[str, str]], turn: int, text: str, unit: str) -> None:
    facts = _facts(graph, turn, text)
    comment_op(
        op_name="memory_system.update_memory_decision",
        category="update",
        inputs=[facts, graph.get_latest_variable(f"mem:memory-unit-{unit}")],
        outputs=[_output("DELETED", f"delete_marker-{unit}", "marker", "delete_marker")],
    )
    del memory[unit]


def _searched(graph: ExecNetwork, number: int) -> tuple[Any, list[Any]]:
    evidence = {"metadata": {"evidence": ["U1:D2" if number == 0 else "U1:D3"]}}
    query = _variable(QUESTIONS[number][0], f"qa-{number}", "message & query", "query", **evidence)
    units = [graph.get_latest_variable("mem:memory-unit-0")]
    comment_op(op_name="memory_system.search_vector_store", category="retrieval", inputs=[query], outputs=units)
    return query, units


def _answered(graph: ExecNetwork, number: int, query: Any, units: list[Any]) -> None:
    _, gold, given = QUESTIONS[number]
    comment_op(
        op_name="question-answering",
        category="evaluation",
        inputs=[query, *units],
        outputs=[_output(given, f"prediction-{number}", "llm_response", "prediction")],
    )
    said = graph.get_latest_variable(f"prediction:prediction-{number}")
    golden = _variable(gold, f"gold-{number}", "variable", "golden_answers")
    comment_op(
        op_name="llm-judge",
        category="evaluation",
        inputs=[query, golden, said],
        outputs=[_output(float(gold == given), f"score-{number}", "variable", "judge_score")],
    )
