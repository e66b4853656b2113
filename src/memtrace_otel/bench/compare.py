"""`bench compare`: two results on the same cases, paired: McNemar's exact test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import comb
from pathlib import Path
from typing import Any

from memtrace_otel.bench.generate import BenchError
from memtrace_otel.bench.run import RESULTS
from memtrace_otel.bench.score import BY, Outcome, read_results

FIGURES: Mapping[str, Callable[[Outcome], bool]] = {
    "type and operation": lambda outcome: outcome.right,
    "type": lambda outcome: outcome.type_right,
    "no false accusation": lambda outcome: not outcome.accuses,
}


def compare(a: Path, b: Path) -> dict[str, Any]:
    """Return the comparison of two files of results, or of the modes that two directories share.

    Raises BenchError where the cases differ.
    """
    found_a, found_b = _read(a), _read(b)
    if a.is_file() and b.is_file():
        pairs = {f"{a.stem} / {b.stem}": (*found_a.values(), *found_b.values())}
    else:
        pairs = {mode: (found_a[mode], found_b[mode]) for mode in found_a if mode in found_b}
    if not pairs:
        raise BenchError(f"{a} and {b} share no mode: {', '.join(found_a)} / {', '.join(found_b)}")
    return {name: _compare(*pair) for name, pair in pairs.items()}


def _read(path: Path) -> dict[str, list[Outcome]]:
    if path.is_dir():
        return read_results(path)
    if path.parent.name != RESULTS:
        raise BenchError(f"{path} is no file of results: these are in the folder {RESULTS} of a directory of cases")
    found = read_results(path.parent.parent, only=path.stem)
    return {path.stem: found[path.stem]}


def _compare(a: Sequence[Outcome], b: Sequence[Outcome]) -> dict[str, Any]:
    by_case = {outcome.truth["case"]: outcome for outcome in b}
    pairs = [(outcome, by_case[outcome.truth["case"]]) for outcome in a if outcome.truth["case"] in by_case]
    if len(pairs) != len(a) or len(a) != len(b) or any(one.truth != other.truth for one, other in pairs):
        raise BenchError("the two results are not about the same cases")
    failing = [pair for pair in pairs if pair[0].fails]
    spared = [pair for pair in pairs if pair[0].truth["answer_is_right"]]
    result: dict[str, Any] = {
        name: paired([(right(one), right(other)) for one, other in (spared if "accusation" in name else failing)])
        for name, right in FIGURES.items()
    }
    faults = sorted({BY["fault"](one) for one, _ in failing})
    result["by_fault"] = {
        fault: paired([(one.right, other.right) for one, other in failing if BY["fault"](one) == fault])
        for fault in faults
    }
    return result


def paired(marks: Sequence[tuple[bool, bool]]) -> dict[str, Any]:
    """Return how often each of two is right, how often only one is, and the exact two-sided p of McNemar's test."""
    only_a, only_b = sum(a and not b for a, b in marks), sum(b and not a for a, b in marks)
    return {
        "cases": len(marks),
        "a": sum(a for a, _ in marks),
        "b": sum(b for _, b in marks),
        "only_a": only_a,
        "only_b": only_b,
        "p": mcnemar(only_a, only_b),
    }


def mcnemar(only_a: int, only_b: int) -> float:
    """Return the two-sided exact p of McNemar's test: a fair coin decides each pair in which one alone is right."""
    count, fewer = only_a + only_b, min(only_a, only_b)
    tail = sum(comb(count, i) for i in range(fewer + 1)) / 2**count
    return min(1.0, 2 * tail)
