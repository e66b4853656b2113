"""Fuzz all targets or one, or see a failure again (`--target NAME --input SEED`)."""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from tests.fuzz.mutations import mutated
from tests.fuzz.run import corpus, run, run_one
from tests.fuzz.targets import TARGETS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for each target")
    parser.add_argument("--target", choices=sorted(TARGETS))
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--input", help="the seed of one input, as a failure names it")
    parser.add_argument("--save", type=Path, help="write that input there, to keep it")
    options = parser.parse_args()
    if options.input:
        if options.save:
            options.save.write_bytes(mutated(random.Random(options.input), corpus(options.target)))
        run_one(options.target, options.input, corpus(options.target))
        return
    for target in [options.target] if options.target else TARGETS:
        print(f"{target}: seed {options.seed}", flush=True)
        print(f"{target}: {run(target, options.seed, options.seconds)} inputs", flush=True)


main()
