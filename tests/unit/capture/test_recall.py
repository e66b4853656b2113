from __future__ import annotations

from memtrace_otel.capture.recall import Recalled, found_in


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
