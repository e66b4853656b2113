"""Time expressions become the days they mean."""

from __future__ import annotations

from datetime import date

import pytest

from memtrace_otel.attribution.dates import Period, day_of_text, days_of_a_month, periods

TODAY = date(2024, 7, 17)  # a Wednesday


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("on 7 May 2023", (2023, 5, 7), (2023, 5, 7)),
        ("May 7th, 2023", (2023, 5, 7), (2023, 5, 7)),
        ("2023-05-07", (2023, 5, 7), (2023, 5, 7)),
        ("am 07.05.2023", (2023, 5, 7), (2023, 5, 7)),
        ("due 05/17/2023", (2023, 5, 17), (2023, 5, 17)),
        ("due 17/05/2023", (2023, 5, 17), (2023, 5, 17)),
        ("from 3 to 5 May 2023", (2023, 5, 3), (2023, 5, 5)),
        ("3rd of May until 5th of June, 2023", (2023, 5, 3), (2023, 6, 5)),
        ("May 3 – 5, 2023", (2023, 5, 3), (2023, 5, 5)),
        ("in June 2023", (2023, 6, 1), (2023, 6, 30)),
        ("back in 2022", (2022, 1, 1), (2022, 12, 31)),
        ("we met yesterday", (2024, 7, 16), (2024, 7, 16)),
        ("on the previous day", (2024, 7, 16), (2024, 7, 16)),
        ("last Friday", (2024, 7, 12), (2024, 7, 12)),
        ("next Monday", (2024, 7, 22), (2024, 7, 22)),
        ("last week", (2024, 7, 10), (2024, 7, 16)),
        ("two weekends ago", (2024, 7, 6), (2024, 7, 7)),
        ("hiking this weekend", (2024, 7, 20), (2024, 7, 21)),
        ("this past weekend", (2024, 7, 13), (2024, 7, 14)),
        ("about a year ago", (2023, 7, 1), (2023, 7, 31)),
        ("April.2023", (2023, 4, 1), (2023, 4, 30)),
        ("next month", (2024, 8, 1), (2024, 8, 31)),
        ("last year", (2023, 1, 1), (2023, 12, 31)),
        ("three days ago", (2024, 7, 14), (2024, 7, 14)),
        ("the week before 9 June 2023", (2023, 6, 2), (2023, 6, 8)),
        ("the Friday before 15 July 2023", (2023, 7, 14), (2023, 7, 14)),
        ("The weekend after 3June, 2022.", (2022, 6, 4), (2022, 6, 5)),
        ("two days prior to 5 May 2023", (2023, 5, 3), (2023, 5, 3)),
        ("the first week of May 2023", (2023, 5, 1), (2023, 5, 7)),
        ("in the last week of March 2023", (2023, 3, 25), (2023, 3, 31)),
        ("the day after tomorrow", (2024, 7, 19), (2024, 7, 19)),
        ("in two weeks", (2024, 7, 31), (2024, 7, 31)),
        ("in three months", (2024, 10, 1), (2024, 10, 31)),
        ("am 9. Mai 2025", (2025, 5, 9), (2025, 5, 9)),
        ("im März 2025", (2025, 3, 1), (2025, 3, 31)),
        ("wir fahren übermorgen", (2024, 7, 19), (2024, 7, 19)),
        ("vor drei Tagen", (2024, 7, 14), (2024, 7, 14)),
        ("am nächsten Montag", (2024, 7, 22), (2024, 7, 22)),
        ("会议是2025年6月6日", (2025, 6, 6), (2025, 6, 6)),
        ("我两周后去", (2024, 7, 31), (2024, 7, 31)),
        ("上周五见面", (2024, 7, 12), (2024, 7, 12)),
    ],
)
def test_reads(text: str, start: tuple[int, int, int], end: tuple[int, int, int]) -> None:
    assert periods(text, TODAY) == [Period(date(*start), date(*end))]


def test_relative_expressions_need_a_day() -> None:
    assert periods("yesterday, last Friday and next month") == []


def test_words_that_only_look_like_months() -> None:
    assert periods("they may march on", TODAY) == []
    assert periods("Guten Morgen", TODAY) == []


def test_days_without_their_month() -> None:
    assert days_of_a_month("She can see us on the 19th, or by the 3rd.") == {3, 19}
    assert not days_of_a_month("On the 19th of May we live on the 3rd floor, since the 18th century.")


def test_impossible_days_are_left_out() -> None:
    assert periods("on 31 February 2023 and 99-99-2023", TODAY) != [Period(date(2023, 2, 31 - 3), date(2023, 2, 28))]
    assert all(period.days > 27 for period in periods("31 February 2023", TODAY))


def test_a_day_without_year_matches_any_year() -> None:
    (birthday,) = periods("13 August")
    assert birthday.same(Period(date(2031, 8, 13), date(2031, 8, 13)))
    assert not birthday.same(Period(date(2031, 8, 14), date(2031, 8, 14)))


def test_weeks_are_the_same_though_speakers_begin_them_differently() -> None:
    week = Period(date(2024, 7, 8), date(2024, 7, 14))
    assert week.same(Period(date(2024, 7, 10), date(2024, 7, 16)))
    assert not week.same(Period(date(2024, 7, 15), date(2024, 7, 21)))


def test_first_full_date_of_a_message() -> None:
    assert day_of_text("(sent at 1:56 pm on 8 May, 2023) see you on 9 May 2023") == date(2023, 5, 8)
    assert day_of_text("see you in May") is None
