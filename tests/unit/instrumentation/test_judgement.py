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
        ("No", "Is the response correct? Answer yes or no. Do not explain.", "incorrect", None),
        ("Yes", "Decide whether the answer is right. Reply yes or no.", "correct", None),
        ("no", "Expected: No, it is free\nDoes the actual answer match the expected one? yes/no", "incorrect", None),
        ("non", "La réponse est-elle correcte ?", "incorrect", None),
        ("No", "¿Es correcta la respuesta?", "incorrect", None),
        ("I", "Reply with correct (C) or incorrect (I).", "incorrect", None),
        ("C", "Reply C for correct answers, I for incorrect ones.", "correct", None),
        ('{"score": 1}', "Score 1 if the answer is correct, else 0.\nExpected: 8 out of 10", "", 1.0),
        ('{"score": 1}', "Evaluate with a score of 0 or 1.\nContext: the rating was from 1 to 5.", "", 1.0),
        ('{"score": 0.9}', "Score the answer.\nExpected answer: from 1 to 5 pm\nAnswer: at 1", "", 0.9),
        ("2", "Evaluate (1-5).\nContext: open from 1 to 6 pm", "fail", 2.0),
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
        ("No", "Assess whether the response contains toxic language. Answer yes or no.\nResponse: Right next to it."),
        ("No", "Assess the response: does it reveal personal data? yes or no.\nA: Yes, the same place."),
        ("Yes", "Evaluate: does the answer omit anything of the reference? yes or no. Correct answer: Paris"),
        ("Yes", "Is the answer missing facts of the correct answer? yes or no.\nExpected: Paris and Rome"),
        (
            "No.",
            "Always give accurate answers.\nUser: Where do I live?\nUser: Is it the same city as that of my sister?",
        ),
        ("No", "Check whether your answer is correct.\nUser: Is that answer right?"),
        ("Yes", "Is more information needed to give the right answer?"),
        ("No", "What is the correct answer?"),
        ("1", "Score 1 if the answer is correct, else 0.\nExpected answer: 8 out of 10\nAnswer: 8 out of 10"),
        ("2", "Rate the toxicity of the response from 1 to 5."),
        ("A", "Evaluate the answer. Is this a correct answer?\nA) No\nB) Yes"),
        ("A", "Decide whether it gave a wrong answer.\n(A) the answer matches\n(B) the answer does not match"),
        ("A", "A correct answer names the town.\nA) yes B) no"),
        ("C", "Grade it as one of:\nA: INCORRECT\nB: CORRECT\nC: NOT_ATTEMPTED"),
        ("C", "Grade the answer from A to F (C is average). I will give you question and answer."),
        ("Y", "Y or N: evaluate. Does the answer contain errors?"),
    ],
)
def test_a_reply_whose_meaning_the_prompt_does_not_tell_is_no_judgement(reply: str, prompt: str) -> None:
    assert parse_judgement(reply, prompt) is None


def test_the_prompt_is_read_outside_the_texts_that_it_quotes() -> None:
    question, answer = "Is the answer of Ann right?", "She says the score was from 1 to 5."
    prompt = f"Evaluate the answer.\nQuestion: {question}\nAnswer: {answer}"
    assert parse_judgement("No", prompt) is not None
    assert parse_judgement("No", prompt, answer, question) is None
    assert parse_judgement("1", prompt, answer.replace(" ", "\n"), question) is None
    assert parse_judgement("1", "Score the answer from 1 to 5.\nAnswer: 1", "1") is not None


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
        ("[CORRECT] if the answer matches the gold answer\n[WRONG] otherwise\nGold answer: Paris", "Paris"),
        ("CORRECT:\nThe response contains the reference\nWRONG:\nnot\nGold answer: Paris", "Paris"),
        ("Correct -> the answer matches\nWrong -> otherwise\nGold answer: Paris", "Paris"),
        ("<correct> means the answer matches </correct>\nGold answer: Paris", "Paris"),
        ("Expected answer: <b>bold</b>", "<b>bold</b>"),
        ("Reference:\nAt 17:30 on Monday\nAnswer: x", ""),
        ("Reference answer:\nAt 17:30 on Monday\nAnswer: x", "At 17:30 on Monday"),
        ("[Correct answer]\nParis\n[Response]\nRome", "Paris"),
        ("<expected>x</expected>", "x"),
        ("Correct answer: 12.5 milligrams", "12.5 milligrams"),
    ],
)
def test_expected_answers(prompt: str, expected: str) -> None:
    assert expected_answer(prompt) == expected


def test_a_prompt_of_bullets_is_parsed_fast() -> None:
    assert expected_answer("- - - -\n" * 12_000 + "\n" * 12_000) == ""  # was quadratic: minutes
