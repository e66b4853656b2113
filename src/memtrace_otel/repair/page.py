"""The pages of a plan, and of a run: the offer, its changes, the tree of candidates, each rejection with its gate."""

from __future__ import annotations

import time
from collections import defaultdict
from difflib import unified_diff
from pathlib import Path
from typing import Any

from memtrace_otel.repair.optimize import Result, read_result
from memtrace_otel.repair.plan import Plan, shown, told
from memtrace_otel.repair.subjects import RepairError
from memtrace_otel.report import page_templates, write_private
from memtrace_otel.report.render import CONTENT_POLICY
from memtrace_otel.report.times import day_and_clock, machine
from memtrace_otel.version import __version__

PAGE = "repair.html"


def write_page(result: Result, directory: Path) -> Path:
    """Write `repair.html` into the directory of the run and return its path. Nothing in the page loads anything."""
    loops = [(kind, result[kind], _tree(result[kind])) for kind in ("attribution", "ablation") if kind in result]
    _write(directory / PAGE, "repair.html.j2", result=result, loops=loops, changes=changes(result))
    return directory / PAGE


def write_plan(plan: Plan, source: str, path: Path) -> None:
    """Write a plan as a page that loads nothing; `source` says where the spans came from."""
    functions = {"shown": shown, "told": told, "day_and_clock": day_and_clock}
    _write(path, "plan_page.html.j2", plan={"narrative": None} | plan, source=source, numbers={}, **functions)


def _write(path: Path, template: str, **values: Any) -> None:
    page = page_templates("memtrace_otel.repair").get_template(template)
    now = time.time_ns()
    about = {"created": day_and_clock(now), "created_machine": machine(now), "version": __version__}
    write_private(path, page.render(policy=CONTENT_POLICY, **about, **values))


def offered(directory: Path) -> dict[str, str]:
    """Return the texts of the offer. Raises RepairError when the gates let no candidate through."""
    result = read_result(directory)
    if reason := refusal(result):
        raise RepairError(f"{directory} offers no candidate: {reason}")
    return offer(result)


def refusal(result: Result) -> str:
    """Return why no candidate is offered, '' for an offer."""
    if result["attribution"]["offered"]:
        return ""
    if "test" in result:
        return "on the test questions, the best candidate lost more right answers than it gained"
    return f"an offer needs more right answers and p of at most {result['gates']['p']:g} on the validation questions"


def offer(result: Result) -> dict[str, str]:
    """Return the texts of the best candidate of the loop with attribution."""
    loop = result["attribution"]
    return dict(loop["candidates"][loop["best"]]["texts"])


def changes(result: Result) -> list[tuple[str, list[str]]]:
    """Return the lines of a unified diff for each component that the offer changes."""
    used, new = result["used"], offer(result)
    return [
        (name, list(unified_diff(used[name].splitlines(), new[name].splitlines(), "in use", "offer", lineterm="")))
        for name in used
        if used[name] != new[name]
    ]


def _tree(loop: dict[str, Any]) -> dict[str, Any]:
    """Return the first candidate. Each has its children and its rejected proposals by gate, component and reason."""
    nodes: list[Any] = [{**one, "children": [], "rejected": defaultdict(list)} for one in loop["candidates"]]
    texts = [one["texts"] for one in nodes]
    for one in loop["tried"]:
        if one["gate"]:
            rejected = nodes[texts.index(one["parent"])]["rejected"]
            rejected[one["gate"], one["component"], one["reason"]].append(one)
    for node in nodes[1:]:
        nodes[node["parent"]]["children"].append(node)
    return nodes[0]
