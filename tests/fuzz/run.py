"""Runs targets on mutated inputs for a time, or on one seed that failed."""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz.mutations import mutated
from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
_SECONDS_PER_INPUT = 5.0
_GROWTH = 256 << 20


class FuzzError(AssertionError):
    """An input that a target did not stand; says how to see it again."""


def corpus(target: str) -> list[bytes]:
    """The kept inputs of a target: those of the folder of its name. Files are fuzzed with all."""
    folders = sorted(TARGETS) if target == "files" else [target]
    return [path.read_bytes() for folder in folders for path in sorted((CORPUS / folder).glob("*"))]


def run(target: str, seed: int, seconds: float) -> int:
    """Run a target for a time; return how many inputs it stood. Raises FuzzError."""
    kept, done = corpus(target), 0
    peak = _peak()
    for number in _until(seconds):
        run_one(target, f"{seed}.{number}", kept)
        done += 1
    grown = _peak() - peak
    if grown > _GROWTH:
        raise FuzzError(f"{target} grew by {grown} bytes (seed {seed})")
    return done


def run_one(target: str, seed: str, kept: list[bytes]) -> None:
    """Run a target on the one input that `seed` stands for."""
    data = mutated(random.Random(seed), kept)
    again = f"python -m tests.fuzz --target {target} --input {seed}"
    started = time.process_time()
    try:
        TARGETS[target](data)
    except Exception as error:
        raise FuzzError(
            f"{type(error).__name__}: {str(error)[:500]}\n"
            f"again: {again}; --save FILE keeps it in {CORPUS / target}\n{data[:200]!r}"
        ) from error
    if time.process_time() - started > _SECONDS_PER_INPUT:
        raise FuzzError(f"more than {_SECONDS_PER_INPUT} s of CPU; again: {again}")


def _until(seconds: float) -> Iterator[int]:
    deadline = time.monotonic() + seconds
    number = 0
    while time.monotonic() < deadline:
        yield number
        number += 1


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
