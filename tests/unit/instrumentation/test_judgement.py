"""Judgements in replies, and expected answers in the prompts of judges."""

from __future__ import annotations

import pytest

from memtrace_otel.instrumentation.chat_history.judgement import expected_answer, parse_judgement


@pytest.mark.parametrize(
    ("reply", "label", "score"),
    [
        ("WRONG", "wrong", None),
        ("Incorrect. She drinks tea.", "incorrect", None),
        ("Not relevant", "not_relevant", None),
        ("Verdict: correct", "correct", None),
        ("Let me think. The dates differ.\n\nWRONG", "wrong", None),
        ("The dates differ.\nVerdict: incorrect", "incorrect", None),
        ('{"label": "NOT RELEVANT"}', "not_relevant", None),
        ('{"verdict": "Correct.", "score": 1}', "correct", 1.0),
        ('Sure:\n```json\n{"is_correct": false, "reason": "no"}\n```', "incorrect", None),
        ('{"score": 0.2}', "", 0.2),
    ],
)
def test_judgements(reply: str, label: str, score: float | None) -> None:
    found = parse_judgement(reply)
    assert found is not None
    assert (found.label, found.score) == (label, score)


@pytest.mark.parametrize(
    ("reply", "prompt", "label", "score"),
    [
        ("no", "Is the response correct? Answer yes or no.", "incorrect", None),
        ("**Yes**, both name Tuesday.", "Does the answer match the reference? yes/no", "correct", None),
        ("Nein.", "Ist die Antwort richtig?", "incorrect", None),
        (
            "The price differs.\nGRADE: I",
            'Reply with "GRADE: C" for correct and "GRADE: I" for incorrect.',
            "incorrect",
            None,
        ),
        ("GRADE: C", "Is it right? GRADE: C or GRADE: I.", "correct", None),
        ("B", "Grade it as one of:\nA: CORRECT\nB: INCORRECT", "incorrect", None),
        ('{"score": 1, "reason": "no time"}', "Score the answer from 1 to 5.", "fail", 1.0),
        ('{"score": 8}', "Rate the answer (0-10).", "pass", 8.0),
        ("Rating: 2/5", "Rate it on a scale of 1-5", "fail", 2.0),
        ('{"score": 0.2}', "Score it between 0 and 1.", "", 0.2),
    ],
)
def test_the_prompt_tells_what_a_reply_means(reply: str, prompt: str, label: str, score: float | None) -> None:
    found = parse_judgement(reply, prompt)
    assert found is not None
    assert (found.label, found.score) == (label, score)


@pytest.mark.parametrize(
    ("reply", "prompt"),
    [
        ("No", "Does the answer hallucinate?"),
        ("yes", "Shall I grade the answer?"),
        ("3", "Evaluate the answer."),
        ("7", "Score the answer from 1 to 5."),
        ("A", "Evaluate the answer."),
        ("No tea at all", "Is the answer correct?"),
    ],
)
def test_a_reply_whose_meaning_the_prompt_does_not_tell_is_no_judgement(reply: str, prompt: str) -> None:
    assert parse_judgement(reply, prompt) is None


@pytest.mark.parametrize(
    "reply",
    [
        "The answer is not correct",
        "This is not right.",
        "No - the given answer isn't correct",
        "Correct me if I misread you",
        '{"operations": []}',
        '{"label": "tea"}',
        "",
        "I would say that is true, but she said so wrong",
    ],
)
def test_a_reply_without_a_label_is_no_judgement(reply: str) -> None:
    assert parse_judgement(reply) is None


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("Question: x\nExpected answer: Green tea\nGiven answer: Coffee", "Green tea"),
        ("**Gold answer**: 17 April", "17 April"),
        ('- ground_truth = "8:40"', "8:40"),
        ("[Question] When?\n[Reference] 90 minutes\n[Answer] an hour", "90 minutes"),
        ("<expected_answer>17 April</expected_answer>", "17 April"),
        ("## Reference answer:\n17 April\n## Answer:\n18 April", "17 April"),
        ("Expected answer:\nGiven answer: Coffee", ""),
        ("Is this the expected outcome?", ""),
    ],
)
def test_expected_answers(prompt: str, expected: str) -> None:
    assert expected_answer(prompt) == expected


def test_a_prompt_of_bullets_is_parsed_fast() -> None:
    assert expected_answer("- - - -\n" * 12_000 + "\n" * 12_000) == ""  # was quadratic: minutes
