"""The page of a repair run: the offer, what it changes, the tree of candidates, and every rejection with its gate."""

from __future__ import annotations

import time
from difflib import unified_diff
from pathlib import Path
from typing import Any, cast

from memtrace_otel.repair.optimize import Result, read_result
from memtrace_otel.repair.subjects import RepairError
from memtrace_otel.report import page_templates, write_private
from memtrace_otel.report.render import CONTENT_POLICY
from memtrace_otel.report.times import day_and_clock, machine
from memtrace_otel.version import __version__

PAGE = "repair.html"


def write_page(result: Result, directory: Path) -> Path:
    """Write `repair.html` into the directory of the run and return its path. Nothing in the page loads anything."""
    loops = [(kind, result[kind], _tree(result[kind])) for kind in ("attribution", "ablation") if kind in result]
    now = time.time_ns()
    page = page_templates("memtrace_otel.repair").get_template("repair.html.j2")
    text = page.render(
        policy=CONTENT_POLICY,
        version=__version__,
        created=day_and_clock(now),
        created_machine=machine(now),
        result=result,
        loops=loops,
        changes=changes(result),
    )
    write_private(directory / PAGE, text)
    return directory / PAGE


def offered(directory: Path) -> dict[str, str]:
    """Return the texts of the offer. Raises RepairError when the gates let no candidate through."""
    result = read_result(directory)
    if not result["attribution"]["offered"]:
        raise RepairError(f"{directory} offers no candidate: the validation questions do not show that one is better")
    return offer(result)


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


def _tree(loop: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the candidates as a tree: each with its children, and the proposals on it that a gate rejected."""
    rejected = [one for one in loop["tried"] if one["gate"]]
    nodes: list[dict[str, Any]] = [
        {**one, "children": list[dict[str, Any]](), "rejected": [r for r in rejected if r["parent"] == one["texts"]]}
        for one in loop["candidates"]
    ]
    for node in nodes:
        if node["parent"] is not None:
            cast("list[Any]", nodes[node["parent"]]["children"]).append(node)
    return nodes[:1]
