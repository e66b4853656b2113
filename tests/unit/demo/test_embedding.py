"""The stand-in embedding ranks by shared words and is the same everywhere."""

import math

import pytest

from memtrace_otel.demo.embedding import embed, words


def similarity(left: str, right: str) -> float:
    return sum(a * b for a, b in zip(embed(left, 1024), embed(right, 1024), strict=True))


def test_words_are_content_words_without_endings() -> None:
    assert words("At what time are Lena's piano lessons, at 17:00 or 4?") == [
        "time",
        "lena",
        "piano",
        "lesson",
        "17:00",
        "4",
    ]


@pytest.mark.parametrize("text", ["a ferry to Texel", "", "the and of", "ferry ferry ferry"])
def test_vectors_have_length_one_and_the_size_asked_for(text: str) -> None:
    vector = embed(text, 64)
    assert len(vector) == 64
    assert math.isclose(sum(x * x for x in vector), 1.0)


def test_shared_words_bring_texts_closer() -> None:
    question = "From which pier does the ferry leave?"
    assert (
        similarity(question, "The ferry leaves from pier 4.") > similarity(question, "The tomatoes have sprouted.") == 0
    )


def test_a_vector_is_the_same_in_every_process() -> None:
    assert [i for i, x in enumerate(embed("ferry", 1024)) if x] == [878]
