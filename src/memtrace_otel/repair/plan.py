"""`repair plan`: the diagnostic report. Failures are counted by type, component and kind of information, over time."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from memtrace_otel.annotate import MemoryLog
from memtrace_otel.bench.score import share, wilson
from memtrace_otel.graph import EvolutionGraph
from memtrace_otel.model import Failure, Verdict
from memtrace_otel.model.printable import one_line
from memtrace_otel.pipeline.diagnose import Diagnosis, diagnose
from memtrace_otel.repair.components import Component, Information, component_of, information_of
from memtrace_otel.report.times import day_and_clock
from memtrace_otel.semconv import ATTRIBUTION_SCOPE, FailureType
from memtrace_otel.sources import SqliteStore, TraceSource

EXAMPLES = 3
_TEXT = 160
"""Characters of a text in an exemplar."""
Plan = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Pointed:
    """A verdict with the component that the verdict points to."""

    verdict: Verdict
    component: Component | None
    information: Information

    @classmethod
    def of(cls, verdict: Verdict, graph: EvolutionGraph) -> Pointed:
        """Return the verdict with its component, read from the graph of its failure."""
        return cls(verdict, component_of(verdict, graph), information_of(verdict))

    @property
    def time(self) -> int:
        """When the answer was judged (ns), else when the answer was given."""
        failure: Failure = self.verdict.failure
        return (failure.judge_span or failure.answer_span).start


Progress = Callable[[int, int], None]


def plan_of_store(store: SqliteStore, since: int = 0, *, progress: Progress = lambda done, total: None) -> Plan:
    """Attribute the failures of a database and return their plan; nothing is written.

    With `since` (ns), the period from then to now is compared with the equally long period before.
    """
    now = time.time_ns()
    begin = _before(since, now) if since else 0
    judged = [span.start for span in store.evaluations(begin) if span.instrumentation_scope != ATTRIBUTION_SCOPE]
    return make_plan(_pointed(diagnose(store, store, since=begin, progress=progress)), judged, since=since, now=now)


def plan_of_source(source: TraceSource, since: int, *, progress: Progress = lambda done, total: None) -> Plan:
    """Attribute the failures that a tracing backend shows since then (ns) and return their plan.

    A backend does not tell how many answers were judged: the plan has counts of failures and no trend.
    """
    found = _pointed(diagnose(source, MemoryLog(), since=since, progress=progress))
    return make_plan(found, since=since, now=time.time_ns())


def _pointed(diagnoses: Iterable[Diagnosis]) -> list[Pointed]:
    return [Pointed.of(verdict, diagnosis.graph) for diagnosis in diagnoses for verdict in diagnosis.verdicts]


def _before(since: int, now: int) -> int:
    return max(0, 2 * since - now)


def make_plan(found: Iterable[Pointed], judged: Sequence[int] | None = None, *, since: int = 0, now: int = 0) -> Plan:
    """Return the plan of a period as a JSON object; `judged` are the times (ns) of all evaluations, if known."""
    every = sorted(found, key=lambda one: one.time)
    current = [one for one in every if one.time >= since]
    answers = _ratio(len(current), sum(time >= since for time in judged or ()))
    types = Counter(str(one.verdict.failure_type) for one in current)
    return {
        "period": {"since": since, "until": now},
        "answers": answers | ({"count": None, "share": None, "low": 0.0, "high": 1.0} if judged is None else {}),
        "by_type": {type: _ratio(types[type], len(current)) for type in map(str, FailureType) if types[type]},
        "components": _components(current),
        "patterns": _patterns(current),
        "trend": _trend(every, judged, since, now) if since and judged is not None else None,
    }


def _ratio(hits: int, count: int) -> dict[str, Any]:
    """Return a share with its 95 % Wilson interval; an answer judged twice does not make a share above 1."""
    return share(i < hits for i in range(max(hits, count)))


def _components(found: Sequence[Pointed]) -> list[dict[str, Any]]:
    """Return the components by the number of failures that each would touch."""
    by: defaultdict[Component, list[Pointed]] = defaultdict(list)
    for one in found:
        if one.component is not None:
            by[one.component].append(one)
    return [
        {
            "component": str(component),
            "failures": _ratio(len(some), len(found)),
            "changes": [
                {"advice": advice, "failures": count}
                for advice, count in Counter(one.verdict.advice for one in some).most_common()
            ],
            "examples": _examples(some),
        }
        for component, some in sorted(by.items(), key=lambda item: (-len(item[1]), item[0]))
    ]


def _patterns(found: Sequence[Pointed]) -> list[dict[str, Any]]:
    """Return groups of failures with one cause and one kind of information, the largest first."""
    by: defaultdict[tuple[str, str], list[Pointed]] = defaultdict(list)
    for one in found:
        by[str(one.verdict.failure_type), str(one.information)].append(one)
    return [
        {"failure_type": type, "information": information, "failures": len(some), "examples": _examples(some)}
        for (type, information), some in sorted(by.items(), key=lambda item: (-len(item[1]), item[0]))
    ]


def _examples(found: Sequence[Pointed]) -> list[dict[str, str]]:
    """Return the surest failures: an exemplar shows the pattern best when its verdict is sure."""
    return [
        {
            "verdict": one.verdict.attribution_id,
            "trace_id": one.verdict.failure.trace_id,
            "question": one_line(one.verdict.failure.question, _TEXT),
            "expected": one_line(one.verdict.failure.expected, _TEXT),
            "answer": one_line(one.verdict.failure.answer, _TEXT),
            "reason": one_line(one.verdict.reason, 2 * _TEXT),
        }
        for one in sorted(found, key=lambda one: -one.verdict.confidence)[:EXAMPLES]
    ]


def _trend(found: Sequence[Pointed], judged: Sequence[int], since: int, now: int) -> dict[str, Any]:
    """Compare the period with the equally long one before; a change counts when the two intervals are apart."""
    begin = _before(since, now)
    count, total = sum(begin <= time < since for time in judged), sum(time >= since for time in judged)
    before = Counter(str(one.verdict.failure_type) for one in found if begin <= one.time < since)
    after = Counter(str(one.verdict.failure_type) for one in found if one.time >= since)
    return {
        "before": _ratio(before.total(), count),
        "change": _change((before.total(), count), (after.total(), total)),
        "by_type": {
            type: {
                "before": before[type],
                "now": after[type],
                "change": _change((before[type], count), (after[type], total)),
            }
            for type in map(str, FailureType)
            if before[type] + after[type]
        },
    }


def _change(before: tuple[int, int], after: tuple[int, int]) -> str:
    (low, high), (new_low, new_high) = (wilson(min(hits, count), count) for hits, count in (before, after))
    return "more" if new_low > high else "fewer" if new_high < low else "no clear change"


def markdown(plan: Plan) -> str:
    """Return the plan as Markdown."""
    period = plan["period"]
    since = f" since {day_and_clock(period['since'])}" if period["since"] else ""
    lines = ["# Repair plan", "", f"Failed answers{since}: {shown(plan['answers'])}.", ""]
    lines += ["| failure type | failures | share of failures |", "|---|---:|---|"]
    lines += [f"| {type} | {one['hits']} | {shown(one)} |" for type, one in plan["by_type"].items()]
    if narrative := plan.get("narrative"):
        lines += ["", "## Narrative", "", _safe(told(narrative))]
    lines += ["", "## What to change", ""]
    for one in plan["components"]:
        lines += [f"### {one['component'].capitalize()}: {shown(one['failures'])}", ""]
        lines += [f"- {change['advice'] or 'no advice'} ({change['failures']})" for change in one["changes"]]
        lines += ["", "Exemplars:", "", *map(_example, one["examples"]), ""]
    lines += ["## Patterns", "", "| cause | information | failures | exemplar |", "|---|---|---:|---|"]
    for one in plan["patterns"]:
        question = _safe(one["examples"][0]["question"])
        lines += [f"| {one['failure_type']} | {one['information']} | {one['failures']} | {question} |"]
    if trend := plan["trend"]:
        lines += ["", "## Trend", "", f"Before: {shown(trend['before'])}. Now: {shown(plan['answers'])}."]
        lines += [f"Change: {trend['change']}.", "", "| failure type | before | now | change |", "|---|---:|---:|---|"]
        for type, one in trend["by_type"].items():
            lines += [f"| {type} | {one['before']} | {one['now']} | {one['change']} |"]
    return "\n".join(lines) + "\n"


def told(narrative: dict[str, Any]) -> str:
    """Return the sentences with the verdicts that they cite, and how many sentences cited none."""
    texts = [f"{one['text']} [{', '.join(one['verdicts'])}]" for one in narrative["sentences"]]
    if not texts:
        texts.append(f"(No narrative: {narrative['problem']}.)")
    if narrative["dropped"]:
        texts.append(f"({narrative['dropped']} sentences that cite no verdict of the plan were left out.)")
    return " ".join(texts)


def shown(ratio: dict[str, Any]) -> str:
    """Return `9 of 40, 22.5% [12%, 38%]`, `9` when the count of all is unknown."""
    if ratio["count"] is None:
        return str(ratio["hits"])
    if not ratio["count"]:
        return "0 of 0"
    return f"{ratio['hits']} of {ratio['count']}, {ratio['share']:.1%} [{ratio['low']:.0%}, {ratio['high']:.0%}]"


def _example(example: dict[str, str]) -> str:
    return f"- `{example['trace_id']}` {_safe(example['question'])} {_safe(example['reason'])}"


def _safe(text: str) -> str:
    """Escape the marks of Markdown and HTML: the text comes from a trace."""
    return "".join("\\" + char if char in "\\`*_{}[]<>()#|!&" else char for char in text)
