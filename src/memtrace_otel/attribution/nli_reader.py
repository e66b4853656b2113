"""A local cross-encoder as a reader: a model of natural language inference compares each text with question and answer.

Nothing leaves the machine. The package `sentence-transformers` (extra `nli`) loads the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from threading import Lock
from typing import Any

from memtrace_otel.attribution.endpoint import LOCAL, shown
from memtrace_otel.attribution.entailment import Answer, Replies, Reply, Text

_ANSWERS = {"entailment": Answer.YES, "neutral": Answer.NO, "contradiction": Answer.CONTRADICTS}
_BATCH = 16
"""Pairs that are in memory at once."""


class NliReader:
    """Asks a cross-encoder with the labels entailment, neutral and contradiction, in any order.

    Safe for use in several threads.
    """

    def __init__(self, name: str, encoder: Any = None) -> None:
        """`name`: a folder or a name on the hub, after `nli:`. Raise ValueError where the model cannot be used."""
        self.name = LOCAL + name.removeprefix(LOCAL)
        self._encoder: Any = encoder or _load(self.name.removeprefix(LOCAL))
        self._lock = Lock()
        labels: Mapping[Any, str] = self._encoder.config.id2label
        self._answers = {int(place): _ANSWERS.get(label.lower()) for place, label in labels.items()}
        if set(self._answers.values()) != set(_ANSWERS.values()):
            wanted = ", ".join(_ANSWERS)
            raise ValueError(f"{self.name} has the labels {', '.join(labels.values())}; needed are {wanted}")

    def read(self, question: str, piece: str, texts: Sequence[Text]) -> Replies:
        """Return the answer on each text; the tokenizer cuts a text to the length of the model."""
        said = shown(f"{question} {piece}")
        pairs = [(_dated(text), said) for text in dict.fromkeys(texts)]
        try:
            with self._lock:
                scores: Any = self._encoder.predict(pairs, batch_size=_BATCH, show_progress_bar=False) if pairs else []
        except (RuntimeError, ValueError, IndexError) as error:
            return Replies(problem=f"{self.name} failed: {type(error).__name__}")
        rows: list[list[float]] = [list(map(float, row)) for row in scores]
        answers = (self._answers[row.index(max(row))] or Answer.NO for row in rows)
        return Replies({text: Reply(answer) for text, answer in zip(dict.fromkeys(texts), answers, strict=True)})


def _dated(text: Text) -> str:
    return shown(f"{text.day.isoformat()}: {text.content}" if text.day else text.content)


def _load(name: str) -> Any:
    try:
        package: Any = import_module("sentence_transformers")
    except ImportError:
        raise ValueError(f"{LOCAL}{name} needs a package: pip install 'memtrace-otel[nli]'") from None
    try:
        return package.CrossEncoder(name)
    except (OSError, ValueError, RuntimeError) as error:
        raise ValueError(f"{LOCAL}{name} cannot be loaded: {str(error).splitlines()[0]}") from None
