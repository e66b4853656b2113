"""When an answer counts as failed."""

import pytest

from memtrace_otel.model import is_failing


@pytest.mark.parametrize(
    ("label", "score", "failing"),
    [
        ("correct", 0.0, False),
        (" Not Relevant ", 1.0, True),
        ("WRONG", None, True),
        ("so-so", 0.69, True),
        ("so-so", 0.7, False),
        ("", None, None),
        ("so-so", None, None),
    ],
)
def test_a_known_label_decides_and_else_the_score(label: str, score: float | None, failing: bool | None) -> None:
    assert is_failing(label, score, threshold=0.7) is failing
