"""The story has the size that was promised, its parts fit together, and it is right until a fault is planted."""

from collections import Counter

import pytest

from memtrace_otel.demo.embedding import words
from memtrace_otel.demo.script import Edit, load_faults, load_json, load_script
from memtrace_otel.semconv import FailureType


def test_story_has_the_promised_size() -> None:
    story = load_json("story.json")
    users = {conversation["user"] for conversation in story["conversations"]}
    turns = sum(len(conversation["turns"]) for conversation in story["conversations"])
    assert len(users) == 2
    assert len({conversation["day"] for conversation in story["conversations"]}) >= 6
    assert 2 * turns >= 40
    assert len(story["questions"]) >= 12


def test_at_least_six_questions_are_spoilt_for_different_reasons() -> None:
    faults = load_faults()
    assert len({fault.question for fault in faults}) == len(faults) >= 6
    assert {fault.type for fault in faults} == set(FailureType) - {FailureType.UNKNOWN}


def test_every_turn_and_question_has_a_reply_and_every_fault_its_place() -> None:
    story, script = load_json("story.json"), load_json("script.json")
    turns = {turn["id"] for conversation in story["conversations"] for turn in conversation["turns"]}
    questions = {question["id"] for question in story["questions"]}
    assert set(script["turns"]) == turns
    assert set(script["questions"]) == questions
    assert all(fault.question in questions and fault.turn in turns | {""} for fault in load_faults())


def test_texts_are_found_by_content_so_none_may_hold_another() -> None:
    script = load_script(load_faults())
    texts = [turn.say for turn in script.turns] + [question.question for question in script.questions]
    assert not [(a, b) for a in texts for b in texts if a is not b and a in b]


def test_expected_answers_were_said_by_the_user() -> None:
    said = {
        turn["id"]: words(turn["say"])
        for conversation in load_json("story.json")["conversations"]
        for turn in conversation["turns"]
    }
    for question in load_script().questions:
        assert any(set(words(question.expected)) <= set(spoken) for spoken in said.values()), question


def test_the_planted_gold_answer_was_never_said() -> None:
    (wrong,) = [fault for fault in load_faults() if fault.type == FailureType.ANNOTATION]
    assert not [turn for turn in load_script().turns if set(words(wrong.expected)) <= set(words(turn.say))]


def test_harmless_edits_outnumber_planted_ones() -> None:
    """Counting updates and deletions must not tell what is wrong."""
    edits = [edit for turn in load_script(load_faults()).turns for edit in turn.maintenance]
    kinds = Counter((edit.delete, edit.planted) for edit in edits)
    assert kinds[False, False] > kinds[False, True] > 0
    assert kinds[True, False] > kinds[True, True] > 0


@pytest.mark.parametrize("fault", load_faults(), ids=lambda fault: fault.question)
def test_a_fault_changes_its_own_place_only(fault) -> None:
    clean, faulty = load_script(), load_script([fault])
    changed = [a.id for a, b in zip(clean.turns, faulty.turns, strict=True) if a != b]
    changed += [a.id for a, b in zip(clean.questions, faulty.questions, strict=True) if a != b]
    assert changed == [fault.turn or fault.question]


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (Edit("tram", add="It is late."), "She takes tram 4. It is late."),
        (Edit("tram", change=["tram 4", "tram 5"]), "She takes tram 5."),
        (Edit("tram", text="She walks."), "She walks."),
    ],
)
def test_edits_build_on_the_text_they_find(edit: Edit, text: str) -> None:
    assert edit.applied("She takes tram 4.") == text
