"""The diagnostic report: one HTML file that needs nothing else, safe to open whatever the traces hold."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from memtrace_otel.graph import EvolutionGraph
from memtrace_otel.model import Verdict
from memtrace_otel.model.printable import one_line, printable
from memtrace_otel.report.cards import Card, card
from memtrace_otel.report.follow import Follower
from memtrace_otel.report.times import day_and_clock, machine
from memtrace_otel.report.wording import MEANING, ORDER, failure_class
from memtrace_otel.version import __version__

CONTENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_OWNER_ONLY = 0o600
BAR_WIDTH = 1000.0
"""Width of the bar chart in its own units."""


@dataclass(frozen=True, slots=True)
class Share:
    """Failures of one type; `x` and `width` place its part of the bar."""

    failure_class: str
    meaning: str
    count: int
    x: float
    width: float


def page_templates(*packages: str) -> Environment:
    """Return the templates of the report, with those of further packages."""
    pages = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in (*packages, "memtrace_otel.report")]),
        autoescape=True,  # everything from a trace is untrusted
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters["printable"] = printable
    return pages


_pages = page_templates()


def render_report(
    found: Iterable[tuple[Verdict, EvolutionGraph]],
    *,
    title: str,
    source: str,
    created: int | None = None,
    plan: Callable[[], Mapping[str, Any]] | None = None,
) -> str:
    """Return a self-contained HTML page about verdicts, each with the graph that it was found in; in time order,
    whatever theirs is. Verdicts of one graph come together, so that it can be dropped before the next.

    `source` says where the spans came from (a database file); `created` is nanoseconds since the epoch, now if None.
    `plan` is called after the last verdict: the plan of `repair plan` is shown above the verdicts.
    """
    made: list[tuple[Verdict, Card]] = []
    gaps: Counter[str] = Counter()
    for graph, together in groupby(found, key=itemgetter(1)):
        follower = Follower(graph)
        made += [(verdict, card(verdict, graph, follower)) for verdict, _ in together]
        gaps.update(graph.incomplete)
    made.sort(key=lambda one: one[0].failure.time_order)
    verdicts = [verdict for verdict, _ in made]
    now = time.time_ns() if created is None else created
    return _pages.get_template("report.html.j2").render(
        title=one_line(title),
        source=one_line(source),
        created=day_and_clock(now),
        created_machine=machine(now),
        version=__version__,
        policy=CONTENT_POLICY,
        cards=[replace(card, number=number) for number, (_, card) in enumerate(made, 1)],
        shares=_shares(verdicts),
        bar_width=BAR_WIDTH,
        traced=sum(bool(verdict.span_id) for verdict in verdicts),
        incomplete=sum(not verdict.complete for verdict in verdicts),
        plan=plan() if plan and made else None,
        numbers={verdict.attribution_id: number for number, verdict in enumerate(verdicts, 1)},
        gaps=[(one_line(reason).replace("_", " "), count) for reason, count in gaps.items()],
    )


def _shares(verdicts: Sequence[Verdict]) -> list[Share]:
    counts: Mapping[str, int] = Counter(failure_class(verdict.failure_type) for verdict in verdicts)
    shares: list[Share] = []
    x = 0.0
    for kind in ORDER:
        part = BAR_WIDTH * counts.get(kind, 0) / max(1, len(verdicts))
        shares.append(Share(kind, MEANING[kind], counts.get(kind, 0), x, part))
        x += part
    return shares


def write_private(path: Path, text: str) -> None:
    """Write contents of traces to a file that only the owner can read (mode 0600), an existing file included."""
    with open(path, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, _OWNER_ONLY)) as file:
        os.chmod(path, _OWNER_ONLY)
        file.write(text)
