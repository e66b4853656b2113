"""`memtrace-otel repair optimize` on 30 questions of four LoCoMo conversations, with retrieval by words as the subject.

    python scripts/repair_locomo.py ../shared/data/locomo_dev build/locomo
    PYTHONPATH=scripts memtrace-otel repair optimize build/locomo/repair.toml

The first command draws the questions and writes the configuration. The questions are of categories 1 to 4 with an
expected answer of at most 4 words; a fixed seed draws 8 for training, 12 for validation and 10 for the last test. The
start reads one message above a high threshold, so that the loop has something to find. The embeddings of a model would
find more; words need no model.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from random import Random

from memtrace_otel.repair.subjects import Case, split
from memtrace_otel.repair.systems import Rag

EACH = {"train": 4, "validation": 12, "test": 10}
"""Questions drawn from each conversation of a part."""
WORDS, SEED, UNANSWERABLE = 4, 0, 5
CONFIG = """subject = "repair_locomo:Lexical"
cases = "questions.jsonl"
model = "{model}"
[options]
model = "{model}"
k = 1
threshold = 0.3
[budget]
evaluations = 110
[gates]
cost = 10
"""
_STOP = frozenset(
    re.findall(
        r"\w+",
        """a an the of to and or in on at for with by from as is are was were be been do does did has have had
        i you he she it we they his her its their my your what when where who which how why s""",
    )
)


class Lexical(Rag):
    """Retrieval by words."""

    def scores(self, texts: Sequence[str], question: str) -> list[float]:
        """Return the BM25 scores."""
        return bm25(texts, question)


def words(text: str) -> list[str]:
    """Return the words of a text without function words and common endings."""
    found = [word for word in re.findall(r"[a-z0-9]+", text.lower()) if word not in _STOP]
    return [re.sub(r"(?:ing|ed|es|s)$", "", word) if len(word) > 4 else word for word in found]


@lru_cache(8)
def _index(texts: tuple[str, ...]) -> tuple[list[Counter[str]], dict[str, float], float]:
    counts = [Counter(words(text)) for text in texts]
    seen = Counter(word for one in counts for word in one)
    weights = {word: math.log(1 + (len(texts) - n + 0.5) / (n + 0.5)) for word, n in seen.items()}
    return counts, weights, sum(one.total() for one in counts) / len(counts)


def bm25(texts: Sequence[str], question: str) -> list[float]:
    """Return the BM25 score of each text (k1 = 1.2, b = 0.75), divided by the highest possible one."""
    counts, weights, mean = _index(tuple(texts))
    asked = set(words(question))
    most = sum(weights.get(word, 0.0) for word in asked) * 2.2 or 1.0
    bases = [1.2 * (0.25 + 0.75 * one.total() / mean) for one in counts]
    return [
        sum(weights[word] * one[word] * 2.2 / (one[word] + base) for word in asked if word in one) / most
        for one, base in zip(counts, bases, strict=True)
    ]


def main(data: Path, out: Path, model: str = "gpt-5-mini") -> None:
    """Write questions.jsonl and repair.toml."""
    found = {
        path.name.split(".")[0]: json.loads(gzip.decompress(path.read_bytes()))
        for path in sorted(data.glob("conv-*.gz"))
    }
    lines: list[str] = []
    for part, cases in split([Case(name, name, (), "", "") for name in found]).items():
        for name in (case.conversation for case in cases):
            talk, questions = found[name]["conversation"], found[name]["qa"]
            messages = [
                {"role": "user", "content": f"[{talk[f'session_{n}_date_time']}] {turn['speaker']}: {turn['text']}"
                 + (f" (shares a picture: {turn['blip_caption']})" if turn.get("blip_caption") else "")}
                for n in range(1, 100) for turn in talk.get(f"session_{n}", [])
            ]  # fmt: skip
            short = [
                (number, one) for number, one in enumerate(questions)
                if one["category"] != UNANSWERABLE and len(str(one["answer"]).split()) <= WORDS
            ]  # fmt: skip
            for number, one in Random(f"{SEED} {name}").sample(short, EACH[part]):
                said = {"id": f"{name}-{number}", "conversation": name, "messages": messages,
                        "question": one["question"], "expected": str(one["answer"])}  # fmt: skip
                lines.append(json.dumps(said, ensure_ascii=False))
    out.mkdir(parents=True, exist_ok=True)
    (out / "questions.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    (out / "repair.toml").write_text(CONFIG.format(model=model), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
