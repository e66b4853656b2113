"""The audit of expected answers: what is doubted, how, and with which sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from memtrace_otel.otlp import encode_request
from memtrace_otel.pipeline.audit import Audit, audit
from memtrace_otel.sources import SqliteStore
from tests.unit.report.stories import Story

FLAT = "Where is my flat?"


def audited(path: Path, story: Story) -> Audit:
    with SqliteStore.open(path / "run.db") as store:
        store.add_request(encode_request(story.spans))
        return audit(store)


@pytest.mark.parametrize(
    ("messages", "question", "given", "expected", "kind", "pieces", "sentence"),
    [
        (["My flat is in Lisbon."], FLAT, "In Lisbon.", "Oslo", "contradicted", ("Oslo",), "My flat is in Lisbon."),
        (["The rent is 700 euros."], "What is the rent?", "Unknown.", "900 euros", "contradicted", None, "The rent"),
        (["My flat is big."], FLAT, "I do not know.", "Oslo", "not supported", ("Oslo",), "My flat is big."),
        (
            ["My flat is in Oslo.", "Bread is cheap.", "We moved: my flat is in Lisbon now."],
            FLAT, "Lisbon", "Oslo", "other time", ("Oslo",), "my flat is in Lisbon now",
        ),
        (["My pets are a cat and a dog."], "What are my pets?", "A cat", "a cat, a parrot", "not supported",
         ("a parrot",), "cat"),
    ],
)  # fmt: skip
def test_an_expected_answer_that_no_message_supports_is_doubted(
    tmp_path: Path,
    messages: list[str],
    question: str,
    given: str,
    expected: str,
    kind: str,
    pieces: tuple[str, ...] | None,
    sentence: str,
) -> None:
    story = Story()
    for text in messages:
        story.say(text, [text])
        story.later(1)
    story.ask(question, [], given, expected)
    (found,) = audited(tmp_path, story).doubts
    assert found.kind == kind
    assert pieces is None or found.pieces == pieces
    assert sentence in found.quotes[0].text


@pytest.mark.parametrize(
    ("told", "question", "expected"),
    [
        ("My flat is in Oslo.", FLAT, "In Oslo"),
        ("I like quiet places.", "Would I like a disco?", "Probably not"),
        ("My flat is in Oslo.", "Is my flat in Lisbon?", "No"),
        ("My flat is in Oslo.", "What is my shoe size?", "Not mentioned in the conversation"),
    ],
)
def test_a_supported_answer_and_a_conclusion_are_not_doubted(
    tmp_path: Path, told: str, question: str, expected: str
) -> None:
    story = Story()
    story.say(told, [told])
    story.ask(question, [], "Something else", expected)
    found = audited(tmp_path, story)
    assert (found.judged, found.doubts) == (1, ())


def test_the_message_of_another_owner_is_named(tmp_path: Path) -> None:
    story = Story(scope="00000000000000bb")
    story.say("My flat is in Oslo.", ["My flat is in Oslo."])
    story.scope = "00000000000000aa"
    story.say("My flat is big.", ["My flat is big."])
    story.ask(FLAT, [], "I do not know.", "Oslo")
    (found,) = audited(tmp_path, story).doubts
    assert (found.kind, found.quotes[0].text) == ("other owner", "My flat is in Oslo.")
