"""What the right answer needs, and when an answer says it."""

from __future__ import annotations

from datetime import date

import pytest

from memtrace_otel.attribution.expectation import AnswerForm, answered, carries, expectation, given_answer, same_answer
from memtrace_otel.attribution.text import Lexicon, terms

LEXICON = Lexicon(["the dog is called Biscuit", "lives in Lesk", "plays the cello"])


@pytest.mark.parametrize(
    ("question", "expected", "form"),
    [
        ("What is the dog called?", "Biscuit", AnswerForm.TERMS),
        ("When was the trip?", "7 May 2023", AnswerForm.TIME),
        ("Does she eat meat?", "No", AnswerForm.POLAR),
        ("What is the cat called?", "", AnswerForm.ABSTAIN),
        ("What is the cat called?", "Not mentioned", AnswerForm.ABSTAIN),
    ],
)
def test_form(question: str, expected: str, form: AnswerForm) -> None:
    assert expectation(question, expected).form is form


def test_nothing_is_needed_when_the_expected_answer_is_unknown() -> None:
    wish = expectation("What is the dog called?", "", known=False)
    assert (wish.form, wish.needs) == (AnswerForm.MISSING, ())


def test_a_list_has_one_need_per_item_without_the_words_of_the_question() -> None:
    wish = expectation("Which instruments does she play?", "instruments: cello, harp")
    assert [sorted(need.terms) for need in wish.needs] == [["cello"], ["harp"]]


def test_time_is_carried_by_what_resolves_to_it() -> None:
    (need,) = expectation("When was the trip?", "6 May 2023").needs
    assert carries("The trip was yesterday", need, LEXICON, date(2023, 5, 7))
    assert carries("The trip was great", need, LEXICON, date(2023, 5, 6))
    assert not carries("The trip was great", need, LEXICON, date(2023, 5, 6), undated=False)
    assert not carries("The trip was yesterday", need, LEXICON, date(2023, 5, 8))


def test_a_month_is_carried_by_a_week_that_begins_or_ends_there() -> None:
    (need,) = expectation("When was the trip?", "around September 2022").needs
    assert carries("The trip was last week", need, LEXICON, date(2022, 10, 6))
    assert not carries("The trip was last week", need, LEXICON, date(2022, 10, 16))


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("Happy to help with that one. Biscuit.", "biscuit"),
        ("Biscuit. Anything else?", "biscuit"),
        ("Sure. The dog is called Biscuit.", "biscuit"),
        ("Let me see. I do not know.", ""),
    ],
)
def test_an_opening_is_no_part_of_the_given_answer(answer: str, value: str) -> None:
    read = given_answer("What is the name of the dog?", answer)
    assert frozenset(term for need in read.needs for term in need.terms) >= terms(value)
    assert not any(need.terms & terms("happy help sure let see") for need in read.needs)


def test_a_number_is_carried_by_that_number_only() -> None:
    (need,) = expectation("How many people are in the team?", "14").needs
    assert carries("The team has fourteen people", need, LEXICON)
    assert not carries("The team has 9 people", need, LEXICON)


@pytest.mark.parametrize(
    ("question", "expected", "given"),
    [
        ("What is the dog called?", "Biscuit", "Your dog is called Biscuit."),
        ("When was the trip?", "7 May 2023", "It was on May 7, 2023."),
        ("Where is my flat?", "Oslo", "I looked through my notes. Your flat is in Oslo."),
        ("Wo ist meine Wohnung?", "Oslo", "Gern. Deine Wohnung ist in Oslo."),
        ("When does she stay?", "17 to 19 April", "From 17 April until 19 April."),
        ("Does she eat meat?", "No", "No, she is vegetarian."),
        ("When does Clara stay?", "17 to 19 April", "Clara stays from 17 April until 19 April"),
        ("Where do I live?", "Munich", "You live in Munich."),
        ("How wide is the niche?", "1.85 m", "The niche is 185 cm wide."),
        ("How long is the film?", "1.5 hours", "It takes 90 minutes."),
        ("How much flour?", "0,25 kg", "250 grams"),
        ("Where do I live?", "New York", "Based on your memories, you live in New York City."),
        ("Do I prefer tea or coffee?", "tea", "You prefer tea."),
        ("Did Ann move to Berlin?", "No, she moved to Paris", "No, it was Paris that she moved to."),
        ("Did Ann move to Berlin?", "No, she moved to Paris", "No."),
        ("What is the cat called?", "", "That is not mentioned."),
        ("When was the trip?", "7 May 2023", "In May 2023."),
        ("Would she move to Berlin?", "Likely no; she loves the sea", "No. (Evidence: she often talks of the coast.)"),
        ("How many are in the team?", "14", "The notes name 9 of them and 5 more. Answer: 14"),
        ("Which instruments?", "cello, harp", "The harp, the cello and the drums"),
        ("Which book?", "Sand", "'Sand' by Ines Moll."),
        ("What are Ann's plans for the sale?", "", "Ann has no plans for the sale."),
        ("When is the dentist?", "14 May at 17:00", "Your dentist is on 14 May at 5 pm."),
        ("Wann ist der Zahnarzt?", "14. Mai 2026, 17:00", "Am 14.05.2026 um 17 Uhr."),
        ("什么时候看牙医?", "2026年5月14日17点半", "2026年5月14日下午5点30分"),
        ("How cold was it?", "-18 degrees", "It was minus 18 degrees."),
        ("When is the dentist?", "Thursday at 2:30 pm", "On Thursday at half past two."),
        ("Wann ist der Zahnarzt?", "Donnerstag um 14:45 Uhr", "Am Donnerstag um Viertel vor drei."),
    ],
)
def test_same_answer(question: str, expected: str, given: str) -> None:
    assert same_answer(given, expectation(question, expected))


@pytest.mark.parametrize(
    ("question", "expected", "given"),
    [
        ("What is the dog called?", "Biscuit", "Your dog is not called Biscuit."),
        ("What is the dog called?", "Biscuit", "I have no information about Biscuit."),
        ("How many are in the team?", "14", "Between 9 and 14."),
        ("When was the trip?", "7 May 2023", "8 May 2023"),
        ("When does it begin?", "19:30", "At 7:30 in the morning."),
        ("Wann geht es los?", "17:30 Uhr", "Um 05:30 Uhr."),
        ("Does she eat meat?", "No", "Yes"),
        ("What is the cat called?", "", "Pepper"),
        ("Which instruments?", "cello, harp", "cello"),
        ("Do I prefer tea or coffee?", "tea", "You prefer coffee"),
        ("Do I prefer tea or coffee?", "tea", "You prefer coffee to tea"),
        ("Did Ann move to Berlin?", "No, she moved to Paris", "No, she moved to Rome"),
        ("What does Ann take in her tea?", "No sugar", "No milk"),
        ("What does Ann take in her tea?", "No sugar", "No"),
        ("Where does Ann live?", "Munich", "She lives in Berlin; she used to live in Munich"),
        ("Where do I live?", "Lesk", "You live in Tarvin, which is near Lesk"),
        ("Who is the manager?", "Ann", "Ann's boss Bob"),
        ("What does Ann drink?", "tea", "coffee, tea was before"),
        ("When was the trip?", "The week before 27 June 2023", "In June 2023"),
        ("What are Ann's plans for the sale?", "", "Ann has no time, she flies to Rome."),
        ("When is the dentist?", "14 May at 17:00", "14 May at 9:00"),
        ("When is the dentist?", "14 May at 6 am", "14 May at 6 pm"),
        ("Wann ist der Zahnarzt?", "14. Mai um 17 Uhr", "14. Mai um 9 Uhr"),
        ("Wann ist der Zahnarzt?", "Donnerstag um 14:30 Uhr", "Am Donnerstag um halb vier."),
        ("When is the dentist?", "Thursday at 2:30 am", "On Thursday at 14:30."),
        ("什么时候看牙医?", "2026年5月14日下午5点", "2026年5月14日上午5点"),
        ("When is the dentist?", "14 May in the morning", "14 May in the evening"),
        ("When is the dentist?", "14 May", "It is not on 14 May, that one was cancelled"),
        ("When and where is the concert?", "On 14 June in Verona", "14 June in Rome"),
        ("When did they move?", "Ann moved on 3 March", "Bob moved on 3 March"),
        ("How wide is the niche?", "1.85 m", "It is 185 mm wide."),
        ("How cold was it?", "-18 degrees", "18 degrees"),
        ("Wie kalt war es?", "minus 18 Grad", "18 Grad"),
        ("有多冷?", "零下18度", "18度"),
        ("What is my sister called?", "You have not told me", "You have no sister"),
    ],
)
def test_not_the_same_answer(question: str, expected: str, given: str) -> None:
    assert not same_answer(given, expectation(question, expected))


@pytest.mark.parametrize(
    ("question", "inference"),
    [
        ("Could you tell me when Ann moves?", False),
        ("Can you please remind me when Ann moves?", False),
        ("What would you say my dog is called?", False),
        ("Would you say that Ann is patient?", True),
        ("Could you tell me whether Ann would move?", True),
        ("What might Ann study?", True),
    ],
)
def test_a_polite_opening_asks_for_no_conclusion(question: str, inference: bool) -> None:
    assert expectation(question, "in May").inference is inference


@pytest.mark.parametrize(
    ("question", "expected", "wanted"),
    [
        ("Does she eat meat?", "Yes", "She eats meat"),
        ("Isst sie Fleisch?", "Ja", "Sie isst Fleisch"),
        ("Does she eat meat?", "No, only fish", "Only fish for her"),
    ],
)
def test_yes_and_no_need_the_words_of_their_question_or_of_their_rest(
    question: str, expected: str, wanted: str
) -> None:
    (need,) = expectation(question, expected).needs
    assert carries(wanted, need, LEXICON)
    assert not carries("Yes, ja, no: another topic", need, LEXICON)


@pytest.mark.parametrize("question", ["Wann ist mein Termin?", "我的预约是哪一天?", "An welchem Tag ist der Termin?"])
def test_a_sentence_answers_a_question_for_a_day(question: str) -> None:
    read = given_answer(question, "Dabei helfe ich gern. Dein Termin beim Zahnarzt in Linz ist am 18. April 2025.")
    assert (read.form, read.needs[0].periods[0].start) == (AnswerForm.TIME, date(2025, 4, 18))


@pytest.mark.parametrize(
    ("expected", "given", "right"),
    [
        ("Room no. 12", "Room 12", True),
        ("Chanel No. 5", "Chanel Number 5", True),
        ("He does not eat meat", "He doesn't, as far as I remember, eat meat.", True),
        ("Not allergic to nuts", "You are allergic to nuts.", False),
        ("Not allergic to nuts", "You are not allergic to nuts.", True),
    ],
)
def test_a_number_is_no_denial_and_a_denied_refusal_is_no_refusal(expected: str, given: str, right: bool) -> None:
    wish = expectation("What is it?", expected)
    assert answered(given, wish.needs[0], wish.form, Lexicon([expected, given])) is right
