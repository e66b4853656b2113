"""A local cross-encoder as the reader: labels in any order, cut texts, and clear errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from memtrace_otel.attribution.entailment import Answer, Text
from memtrace_otel.attribution.nli_reader import NliReader
from memtrace_otel.cli import main
from memtrace_otel.otlp import encode_request
from tests.unit.attribution.told import told

YES, NO, OTHER = "I am an attorney", "I have a dog", "I am a pilot"


class CrossEncoder:
    """The call shape of sentence-transformers: one row of scores for each pair."""

    def __init__(self, name: str, labels: Sequence[str] = ("Contradiction", "ENTAILMENT", "neutral")) -> None:
        if name == "missing":
            raise OSError("no such model\nmore")
        self.config = SimpleNamespace(id2label=dict(enumerate(labels)))
        self._labels = [label.lower() for label in labels]
        self.pairs: list[tuple[str, str]] = []

    def predict(self, pairs: list[tuple[str, str]], *, batch_size: int, show_progress_bar: bool) -> list[list[float]]:
        assert batch_size <= 32
        self.pairs += pairs
        found = ((("attorney", "entailment"), ("lawyer", "entailment"), ("pilot", "contradiction")), "neutral")
        chosen = [next((label for word, label in found[0] if word in text), found[1]) for text, _ in pairs]
        return [[float(label == one) for label in self._labels] for one in chosen]


@pytest.mark.parametrize(
    "labels", [("entailment", "neutral", "contradiction"), ("Contradiction", "ENTAILMENT", "neutral")]
)
def test_labels_are_read_from_the_model(labels: tuple[str, ...]) -> None:
    encoder = CrossEncoder("own", labels)
    texts = [Text(YES, date(2026, 3, 2)), Text(NO), Text(OTHER), Text(NO), Text("x" * 5000)]
    replies = NliReader("own", encoder).read("What do I work as?", "a lawyer", texts)
    answers = [replies.by_text[text].answer for text in texts]
    assert answers == [Answer.YES, Answer.NO, Answer.CONTRADICTS, Answer.NO, Answer.NO]
    assert encoder.pairs[0] == (f"2026-03-02: {YES}", "What do I work as? a lawyer")
    assert (len(encoder.pairs), max(len(text) for text, _ in encoder.pairs) < 1300) == (4, True)


@pytest.mark.parametrize(
    ("name", "encoder", "told"),
    [
        ("nli:a", CrossEncoder("a", ("LABEL_0",)), "nli:a has the labels LABEL_0; needed are entailment"),
        ("nli:missing", None, "nli:missing cannot be loaded: no such model"),
    ],
)
def test_a_model_that_cannot_be_used_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, encoder: Any, told: str
) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", _package())
    with pytest.raises(ValueError, match=told):
        NliReader(name, encoder)


def test_the_command_asks_a_local_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setenv("MEMTRACE_MODEL", "nli:own")
    monkeypatch.setenv("MEMTRACE_DB", str(tmp_path / "run.db"))
    spans = tmp_path / "spans.pb"
    spans.write_bytes(encode_request(told(left="Works in town", expected="an attorney")))
    assert CliRunner().invoke(main, ["import", str(spans)]).exit_code == 0
    asked = ["attribute", "--all", "--method", "rules+model", "--json"]
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    refused = CliRunner().invoke(main, asked)
    assert (refused.exit_code, "pip install 'memtrace-otel[nli]'" in refused.output) == (2, True)
    monkeypatch.setitem(sys.modules, "sentence_transformers", _package())
    verdict = json.loads(CliRunner().invoke(main, asked).stdout)
    assert (verdict["failure_type"], verdict["model"], verdict["variable"]) == ("update", "nli:own", "memory:job")
    agent = CliRunner().invoke(main, ["attribute", "--all", "--method", "agent"])
    assert (agent.exit_code, "MEMTRACE_MODEL" in agent.output) == (2, True)


def _package() -> ModuleType:
    package = ModuleType("sentence_transformers")
    package.CrossEncoder = CrossEncoder  # type: ignore[attr-defined]
    return package


def test_a_real_package_reads(tmp_path: Path) -> None:
    transformers: Any = pytest.importorskip("transformers")
    pytest.importorskip("sentence_transformers")
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "work", "as", "a", "lawyer")))
    labels = {0: "contradiction", 1: "entailment", 2: "neutral"}
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=9, max_position_embeddings=32, id2label=labels, **sizes)
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path)
    transformers.BertTokenizerFast(vocab_file=str(vocabulary), model_max_length=32).save_pretrained(tmp_path)
    texts = [Text("I work as a lawyer " * 50), *(Text(f"work {number}") for number in range(40))]
    replies = NliReader(f"nli:{tmp_path}").read("What do I work as?", "a lawyer", texts)
    assert (set(replies.by_text), replies.problem) == (set(texts), "")
