from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from contextvars import copy_context
from functools import partial

import pytest

from memtrace_otel import semconv
from memtrace_otel.capture import drops, operation
from memtrace_otel.capture import quotes as module
from memtrace_otel.capture import turn as recall
from memtrace_otel.capture.layout import Read
from memtrace_otel.capture.quotes import Recalled, fold, quotes
from memtrace_otel.capture.searches import Answer, Retrieval
from memtrace_otel.capture.turn import Turn
from tests.conftest import Recording


def hit(text: str) -> Recalled:
    return Recalled(f"memory:{text[:5]}", "", text)


def found_in(prompt: str, candidates: Iterable[Recalled]) -> list[Recalled]:
    found, whole = module.found_in(fold(prompt), candidates)
    assert whole
    return found


def test_candidates_come_in_the_order_of_the_prompt_with_white_space_folded() -> None:
    prompt = "Memories:\n- Ana moved\n  to Lisbon\n- Ana likes tea\n"
    found = found_in(prompt, [hit("Ana likes tea"), hit("Ana moved to Lisbon"), hit("Ana hates fish")])
    assert [item.text for item in found] == ["Ana moved to Lisbon", "Ana likes tea"]


@pytest.mark.parametrize("text", ["São Paulo, Ann", 'Ann said "no"', "Ann:\nPorto", "安住在里斯本", "smile 😀"])
@pytest.mark.parametrize("shown", [str, json.dumps, partial(json.dumps, ensure_ascii=False), lambda text: str([text])])
def test_what_was_found_is_in_a_prompt_that_has_it_as_json(text: str, shown: Callable[[object], str]) -> None:
    assert found_in(f"Memories: {shown(text)}", [hit(text), hit("Ann said")])[0] == hit(text)


@pytest.mark.parametrize(
    ("prompt", "found"),
    [
        ('[{"value":{"who":"Ann","does":"drinks tea","since":1999}}]', True),
        ("Known: {'does': 'drinks tea', 'since': 1999, 'who': 'Ann'}", True),
        ("Ann drinks tea since 1999.", True),
        ("Ann drinks tea since 2001.", False),
        ("Ann drinks tea. " + "Nothing more is known. " * 20 + "Born in 1999.", False),
    ],
)
def test_a_record_with_fields_is_in_a_prompt_that_shows_its_values_in_another_form(prompt: str, found: bool) -> None:
    record = hit(json.dumps({"does": "drinks tea", "since": 1999, "who": "Ann"}))
    assert found_in(prompt, [record, hit('{"empty": {}}'), hit("{no json}")]) == [record] * found


def test_a_question_does_not_quote_a_record_with_few_short_values() -> None:
    assert found_in("Does Ann eat meat?", [hit(json.dumps({"who": "Ann", "eats": "meat"}))]) == []


def test_the_next_turn_of_a_context_knows_the_answers_before() -> None:
    copy_context().run(_ask_twice)


def _ask_twice() -> None:
    for number in range(2):
        turn = recall.turn_of(f"{number:032x}", alone=True)
        turn.answered(Answer(f"answer:{number}", f"{number:032x}-1", "so"))
    assert [[one.ref for one in answers] for answers in (turn.newest_answers(), turn.all_answers())] == [
        ["answer:1"],
        ["answer:1", "answer:0"],
    ]


def test_a_backslash_that_escapes_nothing_is_one() -> None:
    path = hit(r"the notes are in C:\notes\users\ann")
    assert found_in(f"Memories: {path.text}.", [path]) == [path]


def test_a_text_inside_a_longer_hit_is_not_in_the_prompt_by_itself() -> None:
    short, long = hit("likes tea"), hit("likes tea with milk")
    assert found_in("Ana likes tea with milk.", [short, long]) == [long]
    assert found_in("Ana likes tea with milk. Bo likes tea.", [short, long]) == [long, short]


def test_two_records_of_the_same_text_are_both_found() -> None:
    one, two = Recalled("memory:1", "", "likes tea"), Recalled("memory:2", "", "likes tea")
    assert found_in("- likes tea", [one, two]) == [one, two]


def test_texts_that_match_by_chance_are_left_out() -> None:
    assert found_in("a tea", [hit("tea")]) == []


def test_every_occurrence_of_a_longer_hit_is_its_own() -> None:
    short, long = hit("likes tea"), hit("likes tea with milk")
    assert found_in("Ana likes tea with milk. Yes, she likes tea with milk.", [short, long]) == [long]


def test_a_turn_keeps_the_newest_hits_and_no_more_than_its_share() -> None:
    turn = Turn()
    for n in range(1500):
        query, found = (f"query:{n}", "query", "", f"question {n}", None), (f"memory:{n}", "hit", "", f"text {n}.", 0.5)
        turn.retrieved(f"o{n}", "", [query, found])
    assert turn.found_in("text 1499.").hits
    assert turn.found_in("question 1499").queries
    assert not turn.found_in("text 475.").hits
    assert len(turn.retrievals()) == 256
    turn.retrieved("large", "", [(f"memory:{n}", "hit", "", f"long text {n}", None) for n in range(3000)])
    assert sum(len(done.read) for done in turn.retrievals()) == 1024


def test_an_empty_result_belongs_to_its_own_query() -> None:
    turn = Turn()
    tea, home = ("query:tea", "query", "", "What tea?", None), ("query:home", "query", "", "Which home?", None)
    turn.retrieved("search-1", "", [tea])
    turn.retrieved("search-2", "", [home, ("memory:1", "hit", "", "Ana lives in Paris", None)])
    asked = turn.found_in("What tea? Which home?").queries
    assert [turn.fruitless_for([query]) for query in asked] == [["search-1"], []]


def test_an_answer_that_is_told_twice_is_one_and_keeps_its_question() -> None:
    turn = Turn()
    turn.answered(Answer("answer:1", "span-1", "Green tea.", question="What tea?"))
    turn.answered(Answer("answer:1", "span-1", "Green tea."))
    turn.answered(Answer("answer:1", "span-2", "Green tea."))
    assert [(one.origin, one.question) for one in turn.newest_answers()] == [("span-2", ""), ("span-1", "What tea?")]


def test_answers_are_quoted_as_whole_words() -> None:
    assert quotes("Given answer: 4", "4")
    assert not quotes("Given answer: 40", "4")
    assert not quotes("anything", "  ")


def test_a_record_that_many_searches_returned_is_looked_for_once() -> None:
    texts = [f"Ana likes thing number {n} very much" for n in range(8)]
    hits = [Recalled(f"memory:{n % 8}", "o", texts[n % 8], "", f"search-{n // 8}") for n in range(1024)]
    assert len(found_in("\n".join(texts * 64), hits)) == 1024  # was quadratic: minutes


def living() -> list[Turn]:
    return list(recall._turns.kept.values())  # pyright: ignore[reportPrivateUsage]


def hits(count: int, text: str) -> list[Read]:
    return [(f"memory:{n}", "hit", "", f"{text} {n}", None) for n in range(count)]


def test_many_turns_in_flight_are_all_remembered() -> None:
    before = drops["recall"]
    for n in range(3000):
        recall.turn_of(f"{n:032x}").retrieved(f"o{n}", "", hits(5, f"fact of turn {n}"))
    turns = [recall.recall(f"{n:032x}") for n in range(3000)]
    assert all(turn and turn.found_in(f"fact of turn {n} 4").hits for n, turn in enumerate(turns))
    assert drops["recall"] == before


def test_turns_share_a_budget_of_bytes_and_the_oldest_are_forgotten_and_counted() -> None:
    before = drops["recall"]
    for n in range(100):
        recall.turn_of(f"{n:032x}").retrieved(f"o{n}", "", hits(10, "x" * 100_000))
    held = [turn for n in range(100) if (turn := recall.recall(f"{n:032x}"))]
    assert 20 << 20 < sum(len(read[3]) for turn in held for done in turn.retrievals() for read in done.read) < 32 << 20
    assert recall.recall(f"{0:032x}") is None
    assert recall.recall(f"{99:032x}") is not None
    assert drops["recall"] - before == 100 - len(held)


def test_one_turn_has_its_own_budget() -> None:
    before, turn = drops["recall"], Turn()
    for n in range(20):
        turn.retrieved(f"o{n}", "", hits(10, "x" * 100_000))
    assert [done.origin for done in turn.retrievals()] == [f"o{n}" for n in range(12, 20)]
    assert drops["recall"] - before == 12
    turn.answered(Answer("answer:1", "", "y" * (9 << 20)))  # larger than all a turn may hold
    assert not turn.newest_answers()
    assert turn.size < 2048


def test_a_search_outside_any_span_takes_no_place(recording: Recording) -> None:
    for n in range(5):
        with operation(kind="retrieve", system="t", tracer=recording.tracer) as op:
            op.read(f"memory:{n}", role="hit", content=f"Ana likes tea {n}")
        assert recall.recall(op.origin[:32]) is recall.recall("")
    turn = recall.recall("")
    assert turn is not None
    assert [hit.ref for hit in turn.found_in("Ana likes tea 4").hits] == ["memory:4"]


def test_threads_keep_the_count_of_bytes() -> None:
    def work(first: int) -> None:
        for n in range(first, first + 40):
            recall.turn_of(f"{n:032x}").retrieved(f"o{n}", "", hits(10, "x" * 100_000))

    threads = [threading.Thread(target=work, args=(first,)) for first in (0, 100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(turn.size for turn in living()) <= 32 << 20


def test_a_prompt_too_long_for_all_texts_is_searched_for_the_newest_and_says_so() -> None:
    many = [Recalled(f"memory:{n}", "o", "a" * 2000 + f"b{n}") for n in range(1000)]
    prompt = "a" * 900_000 + " " + many[5].text + " " + many[-1].text
    found, whole = module.found_in(prompt, [*many[:-1], many[5], many[-1]])
    assert [item.ref for item in found] == ["memory:5", "memory:5", "memory:999"]  # 5 was returned again at the end
    assert not whole
    assert module.found_in(prompt[-100_000:], many[-500:])[1]


def test_a_context_goes_on_with_a_turn_that_it_is_given() -> None:
    first, second = recall.share_turn(), recall.share_turn()
    assert first is not second
    assert recall.recall("") is second
    assert recall.share_turn(first) is first
    assert recall.recall("") is first
    assert recall.turn_of("t" * 32, alone=True) is first


HOME, TEA = ("query:home", "query", "", "Where does Ana live?", None), ("query:tea", "query", "", "What tea?", None)


def versions(home: str) -> list[Read]:
    return [("memory:tea", "hit", "1", "Ana likes green tea", None), ("memory:home", "hit", home, f"Ana: {home}", None)]


def test_of_equal_questions_a_prompt_holds_what_one_search_returned() -> None:
    turn = Turn()
    turn.retrieved("before", "", [HOME, *versions("Paris")])
    turn.retrieved("after", "", [HOME, *versions("Rome")])
    for home, search in (("Paris", "before"), ("Rome", "after")):
        found = turn.found_in(f"Ana likes green tea\nAna: {home}\nWhere does Ana live?").hits
        assert [(hit.ref, hit.retrieved_by) for hit in found] == [("memory:tea", search), ("memory:home", search)]


def test_a_text_that_one_owner_keeps_twice_is_no_more_of_what_a_prompt_holds() -> None:
    turn = Turn()
    twice: list[Read] = [(f"memory:a{n}", "hit", "o", "Ana: Paris", None) for n in range(2)]
    turn.retrieved("of a", "a", [HOME, *twice])
    turn.retrieved("of b", "b", [HOME, ("memory:b", "hit", "o", "Ana: Paris", None)])
    assert [hit.ref for hit in turn.found_in("Ana: Paris\nWhere does Ana live?").hits] in ([], ["memory:b"])


def test_what_two_owners_asked_in_turn_is_each_their_own_though_all_texts_are_equal() -> None:
    turn = Turn()
    for round, history in ((1, ""), (2, "Where does Ana live?\n"), (3, "Where does Ana live?\nWhere does Ana live?\n")):
        for owner in ("ann", "bob"):
            asked, found = f"{owner}-{round}", [TEA, HOME][round % 2]
            turn.retrieved(asked, owner, [found, (f"memory:{owner}", "hit", "1", "Ana likes green tea", None)])
            hits = turn.found_in(f"Ana likes green tea\n{history}{found[3]}", asked).hits
            assert {hit.scope for hit in hits} == {owner}
            turn.gave(hits, asked)


def test_what_a_turn_that_is_gone_was_given_is_no_later_turns() -> None:
    def given() -> tuple[Retrieval, ...]:
        turn = Turn()
        turn.retrieved("search", "", versions("Paris"))
        turn.gave(turn.found_in("Ana likes green tea").hits)
        return turn.newest_retrievals()

    for _ in range(100):  # made where the one before was
        assert not Turn(given()).found_in("Ana likes green tea").hits


def test_a_search_in_every_prompt_after_it_remembers_only_the_newest_answers() -> None:
    turn = Turn()
    done = turn.retrieved("search", "", versions("Lisbon"))
    for number in range(1000):
        turn.gave(done.hits(), f"{number:032x}")
    assert len(done.given_to) < 100
    assert f"{999:032x}" in done.given_to


def test_spans_around_answers_alone_find_what_was_searched_before_them(recording: Recording) -> None:
    for n in range(2):
        with operation("search_memory", kind="retrieve", system="s", tracer=recording.tracer) as search:
            search.read(f"memory:{n}", role="hit", content=f"Ana has {n} cats")
    for n in range(2):
        with recording.tracer.start_as_current_span("turn") as span:
            turn = recall.recall(f"{span.get_span_context().trace_id:032x}")
            with operation("chat", kind="respond", system="s", tracer=recording.tracer) as chat:
                chat.wrote(f"answer:{n}", content="so many")
        assert turn is not None
        assert [hit.ref for hit in turn.found_in(f"Ana has {n} cats").hits] == [f"memory:{n}"]


@pytest.mark.parametrize("spans", [False, True])
def test_what_one_question_was_given_is_not_in_the_next_that_says_the_same(recording: Recording, spans: bool) -> None:
    def ask(prompt: str) -> list[str]:
        with recording.tracer.start_as_current_span("turn") if spans else nullcontext() as span:
            trace_id = f"{span.get_span_context().trace_id:032x}" if span else ""
            turn = recall.recall(trace_id)
            with operation("chat", kind="respond", system="s", tracer=recording.tracer) as chat:
                assert turn is not None
                hits = turn.found_in(prompt, trace_id).hits
                turn.gave(hits, trace_id)
                later = turn.found_in(prompt.replace("Where do I live?", ""), trace_id)  # of the same turn
                assert later.hits == hits
                chat.wrote("answer:1", content="so")
        return [hit.ref for hit in hits]

    with operation("search_memory", kind="retrieve", system="s", tracer=recording.tracer) as search:
        search.read("query:home", role="query", content="Where do I live?")
        search.read("memory:ann", role="hit", content="lives in Paris")
    assert ask("Known: lives in Paris. Where do I live?") == ["memory:ann"]
    assert ask("My sister lives in Paris, what could I bring her?") == []
    assert ask("Known: lives in Paris. Where do I live? In Paris. And since when?") == ["memory:ann"]


def test_a_search_that_says_nothing_of_its_context_hands_over_its_hits(recording: Recording) -> None:
    with operation("search_memory", kind="retrieve", system="s", tracer=recording.tracer) as search:
        search.read("memory:1", role="hit", content="Ana likes tea")
    [span] = recording.spans()
    assert (span.attributes or {})[semconv.OUTPUTS] == (f"context:{search.origin[33:]}",)


def test_the_history_of_another_run_is_not_in_a_prompt_that_says_the_same(recording: Recording) -> None:
    def history(thread: str) -> None:
        with operation("search_memory", kind="retrieve", system="s", tracer=recording.tracer) as search:
            search.read(f"state:{thread}/1", role="hit", content="Yes, please.")

    recall.place.set(("run of a",))
    history("a")
    recall.place.set(("run of b",))
    history("b")
    turn = recall.recall("")
    assert turn is not None
    assert [hit.ref for hit in turn.found_in("Yes, please.").hits] == ["state:b/1"]
    recall.place.set(("run of c",))
    with operation("search_memory", kind="retrieve", system="s", tracer=recording.tracer):
        pass
    turn = recall.recall("")
    assert turn is not None
    assert turn.found_in("Yes, please.").hits == []


def test_what_a_prompt_holds_is_certain_unless_it_had_to_be_chosen() -> None:
    turn = Turn()
    turn.retrieved("search", "", [HOME, *versions("Paris")])
    turn.retrieved("again", "", [HOME, *versions("Paris")])
    known = "Ana likes green tea\nAna: Paris\n"
    assert turn.found_in(f"{known}Where does Ana live?").certain
    assert not turn.found_in(f"{known}Where, then?").certain  # the question is not what was searched for
    turn.retrieved("of a copy", "", [HOME, ("memory:copy", "hit", "2", "Ana likes green tea", None)])
    assert not turn.found_in(f"{known}Where does Ana live?").certain
