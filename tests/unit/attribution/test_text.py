"""Comparison of short texts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memtrace_otel.attribution.dates import periods
from memtrace_otel.attribution.lineage import day_said, without_stamp
from memtrace_otel.attribution.text import (
    Lexicon,
    abstains,
    denies,
    first_statement,
    in_units_of,
    items,
    leading_name,
    likes,
    names,
    negated,
    numbers,
    polarity,
    terms,
    words,
)
from tests.hang import guarded_against_hanging


def test_inflection_and_stop_words_do_not_matter() -> None:
    assert terms("She was painting the horses") == terms("paint a horse")
    assert terms("the importance of it") == terms("important")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("two cats, 14 fish and 1,200 bees", {"2", "14", "1200"}),
        ("3,200 euros or 3.200 EUR or 3 200 € or three thousand two hundred euros", {"3200"}),
        ("EUR 3,200.50 or 3.200,50 €", {"3200.5"}),
        ("twenty-five, one hundred twenty, 0.125", {"25", "120", "0.125"}),
        ("6:40 pm or 18:40", {"18:40"}),
        ("06:40 or 6:40 a.m.", {"6:40"}),
    ],
)
def test_one_number_in_several_forms(text: str, found: set[str]) -> None:
    assert numbers(text) == found


def test_scripts_without_spaces_compare_by_pairs() -> None:
    shared = terms("我住在里斯本") & terms("里斯本很美")
    assert shared >= {"里斯", "斯本"}


def test_accented_words_are_words() -> None:
    assert terms("Zürich") == terms("zürich") != terms("zrich")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Not mentioned.",
        "I don't know.",
        "There is no information about that.",
        "The memories do not mention a dog. The closest is a cat.",
        "I looked at every memory. Answer: not mentioned",
        "The answer is not in the memories.",
        "Das weiß ich nicht.",
        "Mir liegt leider kein Zählerstand vor.",
        "Dazu liegt keine Angabe vor.",
        "Les extraits ne précisent pas la durée.",
        "Ce document ne contient pas l'information.",
        "Lo siento, no me ha dicho usted la matrícula.",
        "No me has dicho cuál es tu té favorito.",
        "No se indica en la nota.",
        "Desculpe, não sei o dia.",
        "我不知道。",
    ],
)
def test_abstains(text: str) -> None:
    assert abstains(text)


@pytest.mark.parametrize(
    "text",
    [
        *("A cat.", "The cat. The notes do not mention its name.", "Answer: Lisbon", "No", "No me gusta el té."),
        *("Il ne contient pas de gluten.", "Elle ne dispose pas d'une voiture.", "Ne dis pas à maman que je viens."),
        *("Es liegt kein Schnee in Berlin.", "Das Hotel liegt an keiner Hauptstraße.", "No me ha dicho que viene"),
    ],
)
def test_does_not_abstain(text: str) -> None:
    assert not abstains(text)


def test_polarity_and_negation() -> None:
    assert polarity("Yes, she did") is True
    assert polarity("no.") is False
    assert polarity("Likely no; she paints") is False
    assert polarity("Ja, gern") is True
    assert polarity("Yesterday") is polarity("Noch nicht") is None
    assert negated("She doesn't eat meat")
    assert not negated("She eats nothingness cake".replace("nothingness", "carrot"))


def test_items_of_a_list() -> None:
    assert items("cello, accordion and harp") == ["cello", "accordion", "harp"]
    assert items("- tea\n- coffee") == ["tea", "coffee"]
    assert items("Birch Lane") == ["Birch Lane"]
    assert items("3,200 euros, Tee und Kuchen、茶") == ["3,200 euros", "Tee", "Kuchen", "茶"]


def test_a_name_begins_several_texts_and_is_always_capitalised() -> None:
    known = names(
        ["Ines likes tea", "Ines: hello", "Playing chess", "Playing is fun, playing helps", "I am here", "I go"]
    )
    assert known == {"Ines"}
    assert leading_name("Ines's tea", known) == "Ines"
    assert leading_name("Tea for Ines", known) == ""


def test_rare_terms_weigh_more() -> None:
    lexicon = Lexicon(["tea time", "tea house", "tea with Biscuit"])
    assert lexicon.weight("biscuit") > lexicon.weight("tea")
    assert lexicon.share(frozenset({"biscuit", "tea"}), frozenset({"biscuit"})) > 0.5
    assert lexicon.share(frozenset(), frozenset({"tea"})) == 0


@pytest.mark.parametrize(
    "look",
    [
        lambda: day_said("(" * 20_000 + "1234" * 20_000),
        lambda: items("a" + " " * 600_000 + "b"),
        lambda: first_statement("a" + " " * 600_000 + "b"),
        lambda: periods("in May 2023 " * 16_000),
        lambda: without_stamp("(2023 " * 20_000 + "(" * 20_000),
        lambda: numbers("1 " + "thousand " * 3_000),
        lambda: numbers("1" * 5_000 + " thousand"),
    ],
    ids=["stamp", "list", "statement", "dates", "stamps", "product", "digits"],
)
def test_comparison_of_hostile_contents_ends(look: Callable[[], object]) -> None:
    with guarded_against_hanging():
        look()


def test_one_is_a_number_only_where_something_is_counted() -> None:
    assert words("Happy to help with that one, about one hour.")[-3:] == ["about", "1", "hour"]
    assert numbers("I found that one, and which one?") == frozenset()


@pytest.mark.parametrize(
    ("text", "liked"),
    [("I love pizza without olives.", True), ("I do not like pizza.", False), ("Please no pizza for me.", False),
     ("I like tea, but I hate pizza.", False), ("We had pizza.", None)],
)  # fmt: skip
def test_a_clause_likes_or_dislikes(text: str, liked: bool | None) -> None:
    assert likes(text, terms("pizza")) is liked


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("It lasts an hour and a half", "90 minutes"),
        ("two and a half kilos", "2500 g"),
        ("half an hour", "30 min"),
        ("a quarter of an hour", "15 minutes"),
        ("two hours", "120 minutes"),
        ("12.5 mg", "12.5 milligrams"),
        ("an hour and a half", "1.5 hours"),
        ("a gust of 41 m/s", "41 metres per second"),
        ("65 l/min", "65 litres per minute"),
        ("The code is 7-1-9-4.", "7194"),
        ("twenty-five minutes", "25 minutes"),
        ("Half an hour.", "30 minutes"),
        ("at a quarter to one", "12:45"),
        ("um halb eins", "12:30"),
    ],
)
def test_a_spelled_quantity_in_units_of_another(text: str, reference: str) -> None:
    assert terms(reference) <= terms(in_units_of(reference, text))


@pytest.mark.parametrize(
    ("text", "denied"),
    [
        ("We are five and none of us eats shellfish.", True),
        ("The family eats shellfish", False),
        ("She is allergic to shellfish, but eats fish", True),
        ("Nobody eats shellfish", True),
        ("Elle ne mange pas de shellfish", True),
        ("Nobody, as far as I remember, eats shellfish.", True),
        ("The family eats shellfish, but no pork", False),
        ("Family no. 12 eats shellfish", False),
    ],
)
def test_a_clause_denies_what_it_names(text: str, denied: bool) -> None:
    assert denies(text, terms("eats shellfish")) is denied


def test_a_refusal_denies_nothing_beside_a_denied_refusal() -> None:
    assert not denies("You are allergic to nuts.", terms("nuts"), of="Not allergic to nuts")
    assert denies("You are allergic to nuts.", terms("nuts"), of="Eats no nuts")
    assert denies("You avoid nuts.", terms("nuts"), of="Refuses nuts: nobody eats them")
