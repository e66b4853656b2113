"""The page of `bench score`: tables and figures in one HTML file, with reports on the surest wrong verdicts beside."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memtrace_otel.attribution import find_failures, read_verdict
from memtrace_otel.bench.generate import case_files
from memtrace_otel.bench.run import read_mode, read_spans
from memtrace_otel.bench.score import Outcome, calibration, risk_curve, score
from memtrace_otel.graph import build_graph
from memtrace_otel.report import page_templates, render_report, write_private
from memtrace_otel.report.render import CONTENT_POLICY
from memtrace_otel.report.times import day_and_clock, machine
from memtrace_otel.version import __version__

SIZE, MARGIN = 260, 34
"""Side of a plot and the room for its axes, in pixels."""
_WRONG = 10


@dataclass(frozen=True, slots=True)
class Section:
    """What the page shows of one mode."""

    mode: str
    scores: Mapping[str, Any]
    planted: Sequence[str]
    said: Sequence[str]
    confusion: Mapping[tuple[str, str], int]
    calibration: Sequence[tuple[float, float, float]]
    """Centre of a dot and its radius."""
    risk: str
    """Points of the line of risk against coverage."""
    wrong: Sequence[tuple[Outcome, str]]
    """The surest wrong verdicts, each with the address of its report."""


def write_page(directory: Path, found: Mapping[str, Sequence[Outcome]], path: Path, *, created: int = 0) -> None:
    """Write the page to `path`, and the reports to `<name>-reports/` beside."""
    sections = [_section(directory, mode, outcomes, path) for mode, outcomes in found.items()]
    now = created or time.time_ns()
    page = page_templates("memtrace_otel.bench").get_template("bench.html.j2")
    text = page.render(
        policy=CONTENT_POLICY,
        version=__version__,
        source=str(directory.name),
        created=day_and_clock(now),
        created_machine=machine(now),
        sections=sections,
        size=SIZE,
        margin=MARGIN,
    )
    write_private(path, text)


def _section(directory: Path, mode: str, outcomes: Sequence[Outcome], path: Path) -> Section:
    failing = [outcome for outcome in outcomes if outcome.fails]
    confusion = Counter((outcome.planted, outcome.predicted) for outcome in failing)
    wrong = sorted((o for o in failing if not o.right and not o.abstains), key=lambda o: -o.confidence)[:_WRONG]
    linked = [(outcome, _report(directory, mode, outcome, path)) for outcome in wrong]
    most = max((count for *_, count in calibration(failing)), default=1)
    return Section(
        mode=mode,
        scores=score(outcomes),
        planted=sorted({planted for planted, _ in confusion}),
        said=sorted({said for _, said in confusion}),
        confusion=confusion,
        calibration=[(*_at(said, right), 2 + 9 * (n / most) ** 0.5) for said, right, n in calibration(failing)],
        risk=" ".join("{:.1f},{:.1f}".format(*_at(covered, 1 - right)) for covered, right in risk_curve(failing)),
        wrong=linked,
    )


def _at(x: float, y: float) -> tuple[float, float]:
    """Return where a point of the unit square lies in a plot."""
    return MARGIN + x * SIZE, SIZE - y * SIZE + 8


def _report(directory: Path, mode: str, outcome: Outcome, path: Path) -> str:
    """Write the diagnostic report on one case and return its address from the page."""
    case, said = str(outcome.truth["case"]), outcome.said or {}
    file = next(file for file in case_files(directory) if file.name.partition(".")[0] == outcome.truth["file"])
    graph = build_graph(read_mode(directory, mode).given(list(read_spans(file))))
    found = [failure for failure in find_failures(graph) if failure.answer_span.origin == said["answer"]]
    verdicts = [read_verdict(json.dumps(said), failure) for failure in found]
    title = f"Case {case}: planted {outcome.truth['fault']} ({outcome.planted}), {mode}"
    target = path.with_name(f"{path.stem}-reports") / f"{mode}-{case}.html"
    target.parent.mkdir(exist_ok=True)
    write_private(target, render_report(((verdict, graph) for verdict in verdicts), title=title, source=case))
    return f"{target.parent.name}/{target.name}"
