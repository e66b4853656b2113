from __future__ import annotations

from memtrace_otel.capture.recall import Recalled, Turn, found_in, quotes


def hit(text: str) -> Recalled:
    return Recalled(f"memory:{text[:5]}", "", text)


def test_candidates_come_in_the_order_of_the_prompt_with_white_space_folded() -> None:
    prompt = "Memories:\n- Ana moved\n  to Lisbon\n- Ana likes tea\n"
    found = found_in(prompt, [hit("Ana likes tea"), hit("Ana moved to Lisbon"), hit("Ana hates fish")])
    assert [item.text for item in found] == ["Ana moved to Lisbon", "Ana likes tea"]


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
    assert turn.hits_in("text 1499.")
    assert turn.queries_in("question 1499")
    assert not turn.hits_in("text 475.")
    assert len(turn.retrievals()) == 256
    turn.retrieved("large", "", [(f"memory:{n}", "hit", "", f"long text {n}", None) for n in range(3000)])
    assert sum(len(done.read) for done in turn.retrievals()) == 1024


def test_an_empty_result_belongs_to_its_own_query() -> None:
    turn = Turn()
    tea, home = ("query:tea", "query", "", "What tea?", None), ("query:home", "query", "", "Which home?", None)
    turn.retrieved("search-1", "", [tea])
    turn.retrieved("search-2", "", [home, ("memory:1", "hit", "", "Ana lives in Paris", None)])
    asked = turn.queries_in("What tea? Which home?")
    assert [turn.fruitless_for([query]) for query in asked] == [["search-1"], []]


def test_answers_are_quoted_as_whole_words() -> None:
    assert quotes("Given answer: 4", "4")
    assert not quotes("Given answer: 40", "4")
    assert not quotes("anything", "  ")


def test_a_record_that_many_searches_returned_is_looked_for_once() -> None:
    texts = [f"Ana likes thing number {n} very much" for n in range(8)]
    hits = [Recalled(f"memory:{n % 8}", "o", texts[n % 8], "", f"search-{n // 8}") for n in range(1024)]
    assert len(found_in("\n".join(texts * 64), hits)) == 1024  # was quadratic: minutes
