"""Times as people write them."""

from __future__ import annotations

import pytest

from memtrace_otel.model import parse_time


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1970-01-02", 86_400_000_000_000),
        ("1970-01-01T00:00:10", 10_000_000_000),
        ("1970-01-01T01:00:10+01:00", 10_000_000_000),
        ("2026-11-26T07:48:22.751350716Z", 1_795_679_302_751_350_716),
        ("2026-11-26T07:48:22.7513507Z", 1_795_679_302_751_350_700),
        ("2026-11-26T07:48:22.751350Z", 1_795_679_302_751_350_000),
        ("2026-11-26T07:48:22.75Z", 1_795_679_302_750_000_000),
    ],
)
def test_a_time_is_told_to_the_nanosecond(text: str, nanoseconds: int) -> None:
    assert parse_time(text) == nanoseconds


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"isoformat|month"):
        parse_time(text)
