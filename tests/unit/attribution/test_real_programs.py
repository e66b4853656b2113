"""Kinds of failures seen in real programs: corrections in other words, owners, forms of answers, lost contents."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memtrace_otel.attribution import attribute_everywhere, attribute_trace, is_open
from memtrace_otel.attribution.ranking import DECISIVE
from memtrace_otel.attribution.rules.finding import LIKELY, SURE
from memtrace_otel.graph import build_graph
from memtrace_otel.semconv import FailureType, OpKind

from .program import ANN, BOB, Program
from .told import told


@pytest.mark.parametrize(
    ("first", "later", "question", "given", "expected"),
    [
        ("I live in Lisbon.", "I have moved to Porto for good.", "In which city do I live?", "Lisbon", "Porto"),
        ("Book room 101 for the meeting.", "Make it 245 instead.", "Where is the meeting?", "Room 101", "Room 245"),
        ("Wir treffen uns am Dienstag.", "Donnerstag passt besser.", "Wann treffen wir uns?", "Dienstag", "Donnerstag"),
    ],
)
@pytest.mark.parametrize("found", [True, False], ids=["both found", "only the old one found"])
def test_a_correction_in_other_words_acquits_the_expected_answer(
    first: str, later: str, question: str, given: str, expected: str, found: bool
) -> None:
    program = Program()
    old, new = program.tell(first, first), program.tell(later, later)
    verdict = program.ask(question, given, *old, *(new if found else ()), expected=expected)
    assert verdict.failure_type in ({FailureType.RESPONSE} if found else {FailureType.RETRIEVAL, FailureType.UPDATE})


@pytest.mark.parametrize("told", [True, False], ids=["told later", "never told"])
def test_an_update_that_a_later_message_told_may_mean_an_outdated_expected_answer(told: bool) -> None:
    program = Program()
    [old] = program.tell("I live in Lisbon.", "Lives in Lisbon")
    new = program.renew(old, "I have moved to Porto for good." if told else "I like the sea.", "Lives in Porto")
    verdict = program.ask("Where do I live?", "Porto", new, expected="Lisbon")
    assert verdict.failure_type == FailureType.UPDATE
    assert ("may be outdated" in verdict.reason, verdict.confidence < 0.7) == (told, told)


@pytest.mark.parametrize(
    ("later", "question", "kind"),
    [
        ("Change of plan: the boat to Naxos now leaves from pier C4.", "From which pier does", FailureType.ANNOTATION),
        ("The boat to Naxos leaves from pier C4 and has a bar.", "From which pier does", FailureType.RESPONSE),
        ("The boat of Ann to Naxos now leaves from pier C4.", "From which pier does", FailureType.RESPONSE),
        ("The boat to Naxos now leaves from pier C4.", "From which pier did originally", FailureType.RESPONSE),
    ],
    ids=["corrected", "not corrected", "of another person", "asked for the earlier value"],
)
def test_an_expected_answer_that_a_later_message_corrects_is_outdated(
    later: str, question: str, kind: FailureType
) -> None:
    program = Program()
    first = "My boat to Naxos leaves from pier B12."
    hits = [*program.tell(first, first), *program.tell(later, later)]
    verdict = program.ask(f"{question} my boat to Naxos leave?", "It leaves from pier C4.", *hits, expected="pier B12")
    assert verdict.failure_type == kind, verdict.reason
    assert kind != FailureType.ANNOTATION or verdict.confidence <= LIKELY


@pytest.mark.parametrize(
    ("first", "later", "question", "given", "expected"),
    [
        ("My favourite tea is jasmine.", later, "What is my favourite tea?", "Green tea.", "Jasmine")
        for later in (
            "The favourite tea of my boss is now green tea.",
            "I actually do not like green tea as a favourite.",
            "My favourite tea shop has changed its sign to green.",
            "I now know that my sister has green tea as her favourite tea.",
            "Is green tea my favourite tea now?",
            "Is my favourite tea correct? Right now I buy green tea for guests.",
            "Her favourite tea is now green tea.",
        )
    ]
    + [
        (
            *("My dog weighs 12 kilos.", "The vet says the dog of my neighbour now weighs 20 kilos."),
            *("How much does my dog weigh?", "20 kilos", "12 kilos"),
        ),
        (
            *("My trip to Rome starts on 3 May.", "I moved the trip of my parents to Rome, it starts on 9 May."),
            *("When does my trip to Rome start?", "9 May", "3 May"),
        ),
    ],
)
def test_a_message_about_another_thing_or_that_denies_the_given_answer_corrects_nothing(
    first: str, later: str, question: str, given: str, expected: str
) -> None:
    program = Program()
    hits = [*program.tell(first, first), *program.tell(later, later), *program.tell("The pool opens at 6.")]
    verdict = program.ask(question, given, *hits, expected=expected)
    assert (verdict.failure_type, verdict.confidence) == (FailureType.RESPONSE, SURE), verdict.reason


def test_a_holiday_may_tell_the_expected_date() -> None:
    program = Program()
    engaged = program.tell("My sister Anna got engaged to be married on 9 May 2023.", "Anna got engaged on 9 May 2023")
    program.tell("Anna gets married the day after Whit Monday.")
    verdict = program.ask("When does Anna get married?", "9 May 2023", *engaged, expected="21 May 2024")
    assert verdict.confidence <= LIKELY, verdict.reason


def test_the_number_of_a_room_is_no_denial() -> None:
    program = Program()
    hits = program.tell("My office is room no. 12.", "The office is in room 12")
    verdict = program.ask("Which office is mine?", "Room 40.", *hits, expected="Room no. 12")
    assert verdict.failure_type == FailureType.RESPONSE, verdict.reason


@pytest.mark.parametrize("scope", ["", BOB], ids=["of no memory", "of another memory"])
def test_an_extraction_without_a_scope_lost_what_the_program_stored_in_a_memory(scope: str) -> None:
    program, question = Program(), "Who in my family is vegan?"
    program.tell("My brother Joost is vegan.", "The user is vegan", scope=scope, stored=False)
    hits = program.store("The user is vegan")
    program.ask(question, "You are.", *hits, expected="Joost")
    graph = build_graph([replace(span, scope=ANN) if span.kind == OpKind.RESPOND else span for span in program.spans])
    [first] = attribute_trace(graph)
    found = attribute_everywhere(graph, first.failure, replace(first, confidence=0.3))
    assert (found.confidence > 0.3) == (not scope), found.reason


def test_a_relative_date_counts_from_the_time_of_the_message_that_the_record_names() -> None:
    program, question = Program(), "When did I go to Paris?"
    hits = program.tell("I went to Paris last week.", "Went to Paris in the week of 2 November 2026",
                        time="2023-05-24T10:00:00+00:00")  # fmt: skip
    verdict = program.ask(question, "In the week of 2 November 2026", *hits, expected="15 to 21 May 2023")
    assert (verdict.failure_type, verdict.operation_kind) == (FailureType.EXTRACTION, "extract")
    assert "last week" in verdict.reason


def test_a_fact_noted_of_another_person_is_told_as_such() -> None:
    program = Program()
    program.tell("Nate drinks tea.", "Nate drinks tea")
    program.tell("The bowl reminds me of art.", "Joanna has a bowl that reminds her of art")
    verdict = program.ask("What does the bowl of Nate remind of?", "I do not know.", expected="art")
    assert (verdict.failure_type, verdict.confidence < 0.8) == (FailureType.EXTRACTION, True)
    assert 'of another person than the question asks about: "Joanna has a bowl' in verdict.reason


def test_a_record_that_repeats_its_message_is_not_of_another_person() -> None:
    program = Program()
    program.store("Since May the desk lends devices in Finnish.", "Audio guides are free of charge.")
    verdict = program.ask("Audio guides in which language?", "I do not know.", expected="Finnish")
    assert verdict.failure_type == FailureType.RETRIEVAL, verdict.reason


@pytest.mark.parametrize(
    ("fact", "kind"),
    [
        ("The family eats shellfish", FailureType.EXTRACTION),
        ("The family eats no shellfish", FailureType.RESPONSE),
        ("The family is allergic and never eats shellfish", FailureType.RESPONSE),
    ],
)
def test_a_fact_that_lost_its_negation_is_a_failed_extraction(fact: str, kind: FailureType) -> None:
    program = Program()
    hits = program.tell("We are a family of five and none of us eats shellfish.", fact)
    given, expected = "Yes, your family eats shellfish.", "Nobody in the family eats shellfish"
    verdict = program.ask("Does my family eat shellfish?", given, *hits, expected=expected)
    assert (verdict.failure_type, "noted the opposite" in verdict.reason) == (kind, kind == FailureType.EXTRACTION)


def test_of_a_list_the_items_told_before_not_knowing_are_answered() -> None:
    program = Program()
    hits = program.tell("My exams are in physics, Latin and geography.", "Exams in physics and geography")
    given = "You have exams in physics and geography; I do not know the third one."
    verdict = program.ask("In which subjects are my exams?", given, *hits, expected="Physics, Latin and geography")
    assert (verdict.failure_type, '"Latin"' in verdict.reason) == (FailureType.EXTRACTION, True), verdict.reason


def test_a_number_that_nobody_told_is_wrongly_expected_in_a_polite_question() -> None:
    program = Program()
    hits = program.tell("I have two cats, Miso and Udon.", "Has two cats, Miso and Udon")
    verdict = program.ask("How many cats would the policy be for?", "Two cats.", *hits, expected="Three cats")
    assert verdict.failure_type == FailureType.ANNOTATION


def test_a_message_that_names_today_has_that_day() -> None:
    program, question = Program(), "On which day did the stork come back?"
    hits = program.tell(
        "Today is 11 March 2026. Yesterday the stork came back.", "The stork came back on 11 March 2026"
    )
    verdict = program.ask(question, "On 11 March 2026", *hits, expected="10 March 2026")
    assert (verdict.failure_type, verdict.operation_kind) == (FailureType.EXTRACTION, "extract")


def test_an_answer_that_nobody_told_is_wrongly_expected() -> None:
    program = Program()
    hits = program.tell("I live in Lisbon.", "Lives in Lisbon")
    assert program.ask("Where do I live?", "Lisbon", *hits, expected="Porto").failure_type == FailureType.ANNOTATION


@pytest.mark.parametrize(
    ("theirs", "kind"),
    [("My shoe size is 44, I think.", FailureType.RETRIEVAL), ("I keep 44 hens.", FailureType.ANNOTATION)],
    ids=["a memory that was not searched tells the answer", "holds the same number"],
)
def test_an_expected_answer_is_only_wrong_if_no_memory_tells_the_answer(theirs: str, kind: FailureType) -> None:
    program = Program()
    hits = program.tell("My shoe size is 38.", "The shoe size is 38")
    program.tell(theirs, theirs, scope=BOB)
    verdict = program.ask("What is my shoe size?", "Your shoe size is 38.", *hits, expected="44")
    assert (verdict.failure_type, is_open(verdict)) == (FailureType.ANNOTATION, True)
    assert attribute_everywhere(build_graph(program.spans), verdict.failure, verdict).failure_type == kind


def test_a_stored_question_tells_no_answer() -> None:
    program, question = Program(), "At what time does my flight to Riga leave on Monday?"
    hits = program.tell("My flight leaves at 14:30.", "The flight leaves at 14:30")
    program.quote(question)
    verdict = program.ask(question, "It leaves at 14:30.", *hits, expected="16:45")
    assert verdict.failure_type == FailureType.ANNOTATION


def test_a_redacted_part_of_the_message_makes_the_verdict_incomplete() -> None:
    program = Program()
    hits = program.tell("The wifi is called Heron, password: [redacted: password]", "The wifi is called Heron")
    verdict = program.ask("What is the wifi password?", "It is called Heron.", *hits, expected="blue-otter-77")
    assert (verdict.failure_type, verdict.complete) == (FailureType.EXTRACTION, False)
    assert "redacted" in verdict.reason
    assert "MEMTRACE_REDACT_PATTERNS" in verdict.reason
    assert "MEMTRACE_REDACT" in verdict.advice


def test_a_record_in_another_script_may_hold_the_answer() -> None:
    program = Program()
    program.tell("我对花生过敏，请记住。", "User is allergic to peanuts")
    verdict = program.ask("我对什么食物过敏？", "我不知道。", expected="花生")
    assert (verdict.failure_type, verdict.complete) == (FailureType.RETRIEVAL, False)
    assert verdict.confidence < 0.6
    assert "another script" in verdict.reason


@pytest.mark.parametrize("mixed", [True, False], ids=["records of two users", "records of one user"])
def test_the_record_of_another_user_is_a_failure_of_the_search(mixed: bool) -> None:
    program = Program()
    hits = program.tell("My wife's birthday is 3 March.", "The wife's birthday is 3 March", scope=BOB)
    hits += program.tell("I like orchids.", "Likes orchids", scope=ANN if mixed else BOB)
    verdict = program.ask("When is my wife's birthday?", "3 March", *hits, expected="You have not told me.", scope=BOB)
    assert verdict.failure_type == (FailureType.RETRIEVAL if mixed else FailureType.RESPONSE)  # tied with annotation
    assert ("another user" in verdict.reason) == mixed


@pytest.mark.parametrize("expected", ["Lisbon", None], ids=["expected", "only judged"])
def test_an_answer_from_the_record_of_another_user_is_a_failure_of_the_search(expected: str | None) -> None:
    program = Program()
    theirs = program.tell("My flat is in Oslo.", "The flat is in Oslo", scope=BOB)
    own = program.tell("My flat is in Lisbon.", "The flat is in Lisbon")
    hits = (*theirs, *own)
    verdict = program.ask("Where is my flat?", "Let me see. Your flat is in Oslo.", *hits, expected=expected)
    assert (verdict.failure_type, verdict.operation_kind) == ("retrieval", "retrieve")
    assert "belongs to another user" in verdict.reason


def test_without_the_expected_answer_nothing_is_blamed_for_an_answer_that_says_what_memory_told() -> None:
    program = Program()
    hits = program.tell("I work as a baker in town.", "Works as a baker in town")
    verdict = program.ask("What do I work as?", "You work as a baker.", *hits, expected=None)
    assert (verdict.failure_type, verdict.span_id) == (FailureType.UNKNOWN, "")
    trace = verdict.failure.trace_id
    assert verdict.advice.startswith(f"Tell the right answer: memtrace-otel feedback {trace} --label fail --expected")


@pytest.mark.parametrize("other", [BOB, ANN], ids=["another owner", "the same owner"])
def test_metadata_of_another_owner_makes_two_facts_in_one_store(other: str) -> None:
    program = Program()
    old = program.store("I work as a baker in the old town.", owner=other)
    program.store("I earn my living as a nurse in town.", owner=ANN)
    verdict = program.ask("What do I work as in the old town?", "You work as a baker.", *old, expected="nurse")
    theirs = other == BOB
    assert verdict.failure_type == (FailureType.RETRIEVAL if theirs else FailureType.UPDATE)
    assert ("belongs to another user" in verdict.reason) == theirs


def test_a_correction_in_other_words_that_is_stored_beside_the_old_value_is_a_failure_of_the_write() -> None:
    program = Program()
    old = program.tell("I work as a baker in the old town.", "Works as a baker in the old town")
    [new] = program.tell("Since Monday I earn my living as a nurse.", "Earns a living as a nurse")
    verdict = program.ask("What do I work as in the old town?", "You work as a baker.", *old, expected="nurse")
    assert (verdict.failure_type, verdict.span_id) == ("update", new.origin.partition("-")[2])


def test_a_stored_question_is_no_old_value() -> None:
    program = Program()
    old = program.tell("Ann asks which work suits the old town.", "Ann: Do you work as a baker in the old town?")
    program.tell("Since Monday I earn my living as a nurse.", "Earns a living as a nurse")
    verdict = program.ask("What do I work as in the old town?", "Perhaps a baker.", *old, expected="nurse")
    assert verdict.failure_type == "retrieval"


def test_an_edited_document_that_is_stored_beside_its_old_text_tells_its_new_text() -> None:
    program = Program()
    old, _ = (
        program.ingest(text) for text in ("The last ferry leaves at 21:10.", "Since May the ferry runs until 22:45.")
    )
    verdict = program.ask("When does the last ferry leave?", "At 21:10.", old, expected="22:45")
    assert verdict.failure_type in {FailureType.UPDATE, FailureType.RETRIEVAL}
    assert "22:45" in verdict.reason


@pytest.mark.parametrize("batch", [True, False], ids=["one batch", "two calls"])
def test_only_a_later_text_corrects_another_one(batch: bool) -> None:
    program, old, new = Program(), "I work as a baker in the old town.", "I earn my living as a nurse."
    hits = program.store(old, new) if batch else [*program.store(old), *program.store(new)]
    verdict = program.ask("What do I work as in the old town?", "You work as a baker.", hits[0], expected="nurse")
    assert verdict.failure_type == (FailureType.RETRIEVAL if batch else FailureType.UPDATE)


def test_a_conversation_that_quotes_a_deleted_record_does_not_keep_the_record_alive() -> None:
    program = Program()
    [record] = program.tell("My wedding day is 6 June.", "Wedding day: 6 June")
    program.quote("Remember that my wedding day is 6 June, please.")
    deleted = program.delete(record)
    verdict = program.ask("When is my wedding day?", "I do not know.", expected="6 June")
    assert (verdict.failure_type, verdict.span_id) == ("deletion", deleted.span_id)


def test_two_messages_of_a_conversation_are_no_stale_pair() -> None:
    program = Program()
    old = program.quote("Book room 101 for the meeting.")
    program.quote("Change the meeting: book room 245 for the meeting.")
    verdict = program.ask("Which room is booked for the meeting?", "Room 101 is booked.", old, expected="room 245")
    assert verdict.failure_type == "retrieval"


def test_a_message_that_the_turn_of_the_question_trims_is_deleted() -> None:
    program = Program()
    message = program.quote("The contract number of Baker is QX-4471.")
    verdict = program.ask(
        "Which contract number does Baker have?", "I have none.", message, expected="QX-4471", trimmed=True
    )
    assert (verdict.failure_type, verdict.operation_kind) == ("deletion", "delete")
    assert "left the history" in verdict.reason
    assert "summarise what leaves" in verdict.advice


def test_a_cut_content_on_the_path_makes_the_verdict_incomplete() -> None:
    spans = told(left="Works somewhere")
    [whole] = attribute_trace(build_graph(spans))
    cut = [replace(s, outputs=tuple(replace(v, size=99_999) if v.content else v for v in s.outputs)) for s in spans]
    [verdict] = attribute_trace(build_graph(cut))
    assert (whole.failure_type, whole.complete) == (verdict.failure_type, True)
    assert not verdict.complete
    assert "MEMTRACE_PREVIEW_BYTES" in verdict.reason


@pytest.mark.parametrize(
    ("question", "yes", "no", "agrees", "denies"),
    [
        ("Does Ana eat meat?", "Yes", "No", "Ana eats meat", "I do not drive. Ana does not eat meat"),
        ("Wohnt Ana in Berlin?", "Ja", "Nein", "Ana wohnt in Berlin", "Ana wohnt nicht mehr in Berlin"),
        ("安娜喜欢吃羊肉吗？", "是的", "不是", "安娜喜欢吃羊肉", "安娜不喜欢吃羊肉"),
    ],
    ids=["English", "German", "Chinese"],
)
def test_a_yes_or_no_is_supported_by_a_text_that_agrees_in_negation(
    question: str, yes: str, no: str, agrees: str, denies: str
) -> None:
    for said, other, expected, given in ((agrees, denies, yes, no), (denies, agrees, no, yes)):
        turned, kept, silent = Program(), Program(), Program()
        verdict = turned.ask(question, given, *turned.tell(said, other), expected=expected)
        assert (verdict.failure_type, verdict.complete) == (FailureType.EXTRACTION, True)
        verdict = kept.ask(question, given, *kept.tell(said, said), expected=expected)
        assert (verdict.failure_type, verdict.complete) == (FailureType.RESPONSE, True)
        verdict = silent.ask(question, given, *silent.tell(other, other), expected=expected)
        assert (verdict.confidence < DECISIVE, verdict.complete) == (True, False)


@pytest.mark.parametrize(
    ("told", "kept", "question", "expected"),
    [
        ("My dentist is on 14 May at 17:00.", "Dentist on 14 May", "When is my dentist?", "14 May at 5 pm"),
        ("Mein Zahnarzt ist am 14. Mai um 17 Uhr.", "Zahnarzt am 14. Mai", "Wann ist mein Zahnarzt?", "14. Mai 17:00"),
        ("The concert is on 14 June in Verona.", "Concert on 14 June", "When is the concert?", "14 June in Verona"),
    ],
)
def test_what_a_record_lost_beside_a_date_is_no_fault_of_the_model(
    told: str, kept: str, question: str, expected: str
) -> None:
    program = Program()
    [record] = program.tell(told, kept)
    assert program.ask(question, kept, record, expected=expected).failure_type == "extraction"


@pytest.mark.parametrize(("added", "failure_type"), [("strawberries", "response"), ("celery", "judge")])
def test_a_longer_list_is_right_where_a_message_tells_what_is_added(added: str, failure_type: str) -> None:
    program = Program()
    [record] = program.tell("I am allergic to peanuts and kiwi.", "Allergic to peanuts and kiwi")
    program.tell("I am allergic to celery, too.", "Allergic to celery")
    answer = f"You are allergic to peanuts, kiwi and {added}."
    verdict = program.ask("What am I allergic to?", answer, record, expected="peanuts and kiwi")
    assert verdict.failure_type == failure_type


def test_a_tie_never_blames_the_expected_answer() -> None:
    program = Program()
    [record] = program.tell("The sister of my friend is called Emma.", "Friend's sister is called Emma")
    verdict = program.ask(
        "What is my sister called?", "Your sister is called Emma.", record, expected="You have not told me."
    )
    assert verdict.failure_type == "response"


@pytest.mark.parametrize(
    ("told", "taken", "kind"),
    [
        ("No coriander in my soup, please, I hate the taste.", "Likes coriander in soup", FailureType.EXTRACTION),
        ("I avoid coriander in soup.", "Prefers coriander in soup", FailureType.EXTRACTION),
        ("I avoid coriander in soup.", "Dislikes coriander in soup", FailureType.RESPONSE),
        ("I don't like dill, I like coriander in soup.", "Likes coriander in soup", FailureType.RESPONSE),
        ("Put coriander in my soup.", "Likes coriander in soup", FailureType.RESPONSE),
    ],
)
def test_a_record_that_likes_what_the_message_dislikes_tells_nothing(told: str, taken: str, kind: FailureType) -> None:
    program = Program()
    hits = program.tell(told, taken)
    verdict = program.ask("Which herb matters in my soup?", "None that I know of.", *hits, expected="Coriander")
    assert verdict.failure_type == kind


def test_a_day_without_its_month_acquits_the_expected_answer() -> None:
    program = Program()
    old = program.tell(
        "The check-up of the cat is on the 12th of May.", "The check-up of the cat is on the 12th of May"
    )
    program.tell("Dr Holm can only see us on the 19th.", "Dr Holm can only see us on the 19th")
    question, given = "On which day is the check-up of the cat?", "On the 12th of May."
    verdict = program.ask(question, given, *old, expected="On the 19th of May")
    assert verdict.failure_type in {FailureType.UPDATE, FailureType.RETRIEVAL}


@pytest.mark.parametrize(("expected", "blamed"), [("P-3381", False), ("The grey one", True)])
def test_a_memory_without_the_number_is_no_guess_for_a_number(expected: str, blamed: bool) -> None:
    program = Program()
    hits = program.tell("Keep my parking ticket in mind.", "Has a parking ticket")
    verdict = program.ask("Which parking ticket is mine?", "The note does not say that.", *hits, expected=expected)
    assert (verdict.failure_type == FailureType.RESPONSE) is blamed
