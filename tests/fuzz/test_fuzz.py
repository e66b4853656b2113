"""The decoders handle the corpus, and mutations of it for some seconds (MEMTRACE_FUZZ_SECONDS)."""

from __future__ import annotations

import os
import random

import pytest

from tests.fuzz.run import CORPUS, corpus, run
from tests.fuzz.targets import TARGETS

SECONDS = float(os.environ.get("MEMTRACE_FUZZ_SECONDS", "10"))


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/*")), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_the_corpus_is_handled(path: object) -> None:
    TARGETS[path.parent.name](path.read_bytes())  # type: ignore[attr-defined]


@pytest.mark.parametrize("target", TARGETS)
def test_mutations_of_the_corpus_are_handled(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    assert corpus(target)
    assert run(target, seed, SECONDS / len(TARGETS)) > 0
