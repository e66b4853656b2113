"""`bench score`: results beside the truth: shares with Wilson intervals, for all cases and by their properties."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import mean, median
from typing import Any

from memtrace_otel.bench.generate import MEMORY_TYPES, BenchError, read_truths
from memtrace_otel.bench.run import RESULTS
from memtrace_otel.semconv import FailureType

_BINS = 10
_LENGTHS = (30, 100, 500)
PRECISION = 0.9
NOTHING = "none"
"""What is said where no verdict is."""
_OUTSIDE = (FailureType.JUDGE, FailureType.ANNOTATION)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One case: what was planted, what was said of the answer."""

    truth: Mapping[str, Any]
    said: Mapping[str, Any] | None
    """The verdict on the answer of the case, None without one."""
    seconds: float
    first_loss: str | None
    accuses_others: bool
    """In a healthy run, another answer is called a failure."""

    @property
    def fails(self) -> bool:
        """The answer was judged wrong."""
        return not self.truth["judged_right"]

    @property
    def planted(self) -> str:
        """The failure type planted, `none` for a healthy run."""
        return self.truth["failure_type"] or NOTHING

    @property
    def predicted(self) -> str:
        """The failure type said, `none` without a verdict."""
        return str(self.said["failure_type"]) if self.said else NOTHING

    @property
    def has_operation(self) -> bool:
        """An operation of the memory system is at fault."""
        return self.planted in MEMORY_TYPES

    @property
    def type_right(self) -> bool:
        """The type is right."""
        return self.predicted == self.planted

    def operation_right(self, rank: int = 1) -> bool:
        """Return whether one of the first `rank` explanations names the operation."""
        named = [operation for _, operation in self.said["ranked"][:rank]] if self.said else []
        return any(operation in self.truth["operations"] for operation in named)

    @property
    def right(self) -> bool:
        """Type and, where one is at fault, operation are right."""
        return self.type_right and (not self.has_operation or self.operation_right())

    @property
    def abstains(self) -> bool:
        """No failure type was said of a failing answer."""
        return self.predicted in (NOTHING, FailureType.UNKNOWN)

    @property
    def accuses(self) -> bool:
        """An operation of the memory system or the answer was blamed."""
        return self.accuses_others or self.predicted in MEMORY_TYPES

    @property
    def confidence(self) -> float:
        """The confidence of the verdict, 0 without one."""
        return float(self.said["confidence"]) if self.said and not self.abstains else 0.0

    @property
    def length(self) -> str:
        """The length of the conversation, as a class."""
        limit = next((limit for limit in _LENGTHS if self.truth["messages"] <= limit), None)
        return f"<= {limit}" if limit else f"> {_LENGTHS[-1]}"


BY: Mapping[str, Callable[[Outcome], str]] = {
    "fault": lambda outcome: str(outcome.truth["fault"]),
    "system": lambda outcome: str(outcome.truth["system"]),
    "wording": lambda outcome: str(outcome.truth["wording"]),
    "language": lambda outcome: str(outcome.truth["language"]),
    "length": lambda outcome: outcome.length,
}


def wilson(hits: int, count: int) -> tuple[float, float]:
    """Return the 95 % Wilson interval of a share; (0, 1) of nothing."""
    if not count:
        return 0.0, 1.0
    z, p = 1.959964, hits / count
    centre, half = p + z * z / (2 * count), z * sqrt(p * (1 - p) / count + z * z / (4 * count * count))
    whole = 1 + z * z / count
    return max(0.0, (centre - half) / whole), min(1.0, (centre + half) / whole)


def share(marks: Iterable[bool]) -> dict[str, Any]:
    """Return hits, count, share and Wilson interval."""
    found = list(marks)
    hits, count = sum(found), len(found)
    low, high = wilson(hits, count)
    return {"hits": hits, "count": count, "share": round(hits / count, 4) if count else None,
            "low": round(low, 4), "high": round(high, 4)}  # fmt: skip


def read_results(directory: Path, only: str = "*") -> dict[str, list[Outcome]]:
    """Return the outcomes of each mode that was run. Raises BenchError where results and cases differ."""
    truths = read_truths(directory)
    files = {truth["file"] for truth in truths}
    found: dict[str, list[Outcome]] = {}
    for path in sorted((directory / RESULTS).glob(f"{only}.jsonl")):
        try:
            lines = [json.loads(line) for line in path.read_bytes().splitlines()[1:]]
        except ValueError as error:
            raise BenchError(f"{path} is damaged, `memtrace-otel bench run` again: {error}") from None
        results = {line["file"]: line for line in lines}
        if files - set(results):
            raise BenchError(f"{path} is not of these {len(truths)} cases: `memtrace-otel bench run` again")
        found[path.stem] = [outcome(truth, results[truth["file"]]) for truth in truths]
    if not found:
        raise BenchError(f"{directory} holds no results: `memtrace-otel bench run {directory}` first")
    return found


def outcome(truth: Mapping[str, Any], result: Mapping[str, Any]) -> Outcome:
    """Return the outcome of a case; the trace of the answer joins verdict and truth."""
    trace = truth["answer"][:32]
    own = next((said for said in result["verdicts"] if said["answer"][:32] == trace), None)
    others = (said for said in result["verdicts"] if said is not own and truth["judged_right"])
    accused = any(said["failure_type"] in MEMORY_TYPES for said in others)
    return Outcome(truth, own, float(result["seconds"]), result["first_loss"], accused)


def score(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return every figure of one mode, of all cases and by each property of the cases."""
    groups: dict[str, dict[str, Any]] = {}
    for name, key in BY.items():
        members: defaultdict[str, list[Outcome]] = defaultdict(list)
        for outcome in outcomes:
            members[key(outcome)].append(outcome)
        groups[name] = {value: figures(members[value]) for value in sorted(members)}
    sets = Counter((outcome.truth["fault"], outcome.truth["wording"]) for outcome in outcomes)
    fewest = min(sets.values(), default=0)  # a set without a case is no set: the fault has no such wording
    return {"all": figures(outcomes), "fewest": fewest, "by": groups, "baselines": _baselines(outcomes)}


def figures(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the figures of some cases."""
    failing = [outcome for outcome in outcomes if outcome.fails]
    memory = [outcome for outcome in failing if outcome.has_operation]
    return {
        "cases": len(outcomes),
        "failing": len(failing),
        "type": share(outcome.type_right for outcome in failing),
        "macro_f1": macro_f1([(outcome.planted, outcome.predicted) for outcome in failing]),
        "eta": share(outcome.type_right for outcome in memory),
        "operation_1": share(outcome.operation_right() for outcome in memory),
        "operation_2": share(outcome.operation_right(2) for outcome in memory),
        "joint": share(outcome.right for outcome in memory),
        "right": share(outcome.right for outcome in failing),
        "outside_precision": share(outcome.type_right for outcome in failing if outcome.predicted in _OUTSIDE),
        "outside_recall": share(outcome.type_right for outcome in failing if outcome.planted in _OUTSIDE),
        "accused_healthy": share(outcome.accuses for outcome in outcomes if not outcome.fails),
        "accused_right": share(outcome.accuses for outcome in failing if outcome.truth["answer_is_right"]),
        "abstained": share(outcome.abstains for outcome in failing),
        "calibration_error": calibration_error(failing),
        "coverage": coverage(failing),
        "seconds": round(mean(outcome.seconds for outcome in outcomes), 4) if outcomes else None,
        "asked": share(_is_asked(o) for o in failing),
        "not_asked": share(o.type_right for o in failing if not _is_asked(o)),
        "tokens": median([o.said["tokens"] for o in failing if o.said and o.said.get("tokens")] or [0]),
    }


def _is_asked(outcome: Outcome) -> bool:
    """Return whether a model was asked about the case."""
    return bool(outcome.said and outcome.said.get("model"))


def macro_f1(pairs: Sequence[tuple[str, str]]) -> float | None:
    """Return the mean F1 over the planted types."""
    planted, said = Counter(p for p, _ in pairs), Counter(s for _, s in pairs)
    both = Counter(p for p, s in pairs if p == s)
    return round(mean(2 * both[type] / (planted[type] + said[type]) for type in planted), 4) if planted else None


def calibration(outcomes: Sequence[Outcome]) -> list[tuple[float, float, int]]:
    """Return mean confidence, share right and count of each bin of confidence."""
    bins: defaultdict[int, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        if not outcome.abstains:
            bins[min(_BINS - 1, int(outcome.confidence * _BINS))].append(outcome)
    return [
        (mean(o.confidence for o in some), mean(o.right for o in some), len(some)) for _, some in sorted(bins.items())
    ]


def calibration_error(outcomes: Sequence[Outcome]) -> float | None:
    """Return the expected calibration error of the verdicts: mean distance of confidence and share right."""
    bins = calibration(outcomes)
    total = sum(count for _, _, count in bins)
    return round(sum(abs(said - right) * count for said, right, count in bins) / total, 4) if total else None


def risk_curve(outcomes: Sequence[Outcome]) -> list[tuple[float, float]]:
    """Return (coverage, share right) as verdicts are taken from the surest on; equal confidence is taken at once."""
    by_confidence: defaultdict[float, list[bool]] = defaultdict(list)
    for outcome in outcomes:
        if not outcome.abstains:
            by_confidence[outcome.confidence].append(outcome.right)
    taken, right, curve = 0, 0, list[tuple[float, float]]()
    for _, marks in sorted(by_confidence.items(), reverse=True):
        taken, right = taken + len(marks), right + sum(marks)
        curve.append((taken / len(outcomes), right / taken))
    return curve


def coverage(outcomes: Sequence[Outcome]) -> float | None:
    """Return the largest share of failing answers that can be answered with a precision of 90 %."""
    if not outcomes:
        return None
    return round(max((covered for covered, right in risk_curve(outcomes) if right >= PRECISION), default=0.0), 4)


def _baselines(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return type accuracy and macro-F1 of the constant answers, and of the lexical first-loss rule."""
    failing = [outcome for outcome in outcomes if outcome.fails]
    rules: dict[str, Callable[[Outcome], str]] = {
        f"always {type}": lambda outcome, type=type: str(type) for type in (*MEMORY_TYPES, *_OUTSIDE)
    }
    rules["lexical first loss"] = lambda outcome: outcome.first_loss or NOTHING
    return {
        name: {
            "type": share(rule(outcome) == outcome.planted for outcome in failing),
            "macro_f1": macro_f1([(outcome.planted, rule(outcome)) for outcome in failing]),
        }
        for name, rule in rules.items()
    }
