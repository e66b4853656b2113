"""Time expressions in text, read as intervals of days: absolute ("7 May 2023"), partial ("in June"), relative to a day.

Relative ones ("yesterday", "last Friday", "two weeks ago") are resolved only where the day of the message is known.
English, German and Chinese dates plus ISO dates; a text in another language simply yields fewer intervals.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from memtrace_otel.attribution.date_words import in_english

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_NUMBERS = {"a": 1, "an": 1, "one": 1, "two": 2, "couple": 2, "three": 3, "few": 3, "four": 4, "five": 5, "six": 6,
            "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12}  # fmt: skip

_MONTH = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_DAY = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_WEEKDAY = r"(?P<weekday>mon|tue|wed|thu|fri|sat|sun)(?:s|rs|nes|urs|ur)?(?:day)?s?\b"
_COUNT = rf"(?P<count>\d{{1,3}}|{'|'.join(_NUMBERS)})(?: of)?"
_UNIT = r"(?P<unit>day|week|weekend|month|year)s?"
_PARTS = ("first", "second", "third", "fourth", "last")
_MONTH_DAYS = 28
_BEFORE_WEEKEND = (2, 3, 4, 5)
_ANY_DAY = date(2000, 1, 1)


@dataclass(frozen=True, slots=True, order=True)
class Period:
    """Days `start` to `end`, both included. `yearless` periods hold month and day only and match in any year."""

    start: date
    end: date
    yearless: bool = False

    @property
    def days(self) -> int:
        """Number of days, both ends included."""
        return (self.end - self.start).days + 1

    def contains(self, other: Period) -> bool:
        """Return whether `other` lies within this period."""
        if self.yearless or other.yearless:
            a, b = _same_year(self), _same_year(other)
            return a.start <= b.start and b.end <= a.end
        return self.start <= other.start and other.end <= self.end

    def covers(self, other: Period) -> bool:
        """Return whether `other` lies within this period, for a month or more also in part: "last week" was in May."""
        a, b = (_same_year(self), _same_year(other)) if self.yearless or other.yearless else (self, other)
        coarse = self.days >= _MONTH_DAYS > other.days
        return a.contains(b) or (coarse and a.start <= b.end and b.start <= a.end)

    def same(self, other: Period) -> bool:
        """Return whether both name the same time; speakers differ by a day or two on where a week or month begins."""
        a, b = (_same_year(self), _same_year(other)) if self.yearless or other.yearless else (self, other)
        slack = timedelta(days=min((a.end - a.start).days, (b.end - b.start).days, 7) // 3)
        return abs(a.start - b.start) <= slack and abs(a.end - b.end) <= slack


def _same_year(period: Period) -> Period:
    try:
        start, end = period.start.replace(year=2000), period.end.replace(year=2000)
    except ValueError:
        return period
    return Period(start, max(start, end))


def periods(text: str, today: date | None = None) -> list[Period]:
    """Return every time the text names, in order of appearance; relative ones only when `today` is given."""
    return _read(in_english(text), today)[0]


def without_periods(text: str) -> str:
    """Return the text without the times that the text names, relative ones as well."""
    text = in_english(text)
    taken = _read(text, _ANY_DAY)[1]
    return "".join("\n" if within else char for char, within in zip(text, taken, strict=True))


def _read(text: str, today: date | None) -> tuple[list[Period], bytearray]:
    """Return the times of an English text in order of appearance, and a 1 for each character of theirs."""
    found: list[tuple[int, Period]] = []
    taken = bytearray(len(text))
    for pattern, read in _FORMS:
        for match in pattern.finditer(text):
            start, stop = match.span()
            if any(taken[start:stop]):
                continue
            if (period := read(match, today)) is not None:
                taken[start:stop] = b"\1" * (stop - start)
                found.append((start, period))
    return [period for _, period in sorted(found)], taken


def days_of_a_month(text: str) -> set[int]:
    """Return the days that the text names without their month: "on the 19th"."""
    return {int(match["day"]) for match in _BARE_DAY.finditer(without_periods(text))}


def day_of(nanoseconds: int) -> date | None:
    """Return the UTC day of a span time, None for an unset one."""
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC).date() if nanoseconds > 0 else None


def day_of_text(text: str) -> date | None:
    """Return the first full date in the text (a message often carries the time it was sent)."""
    return next((p.start for p in periods(text) if p.start == p.end and not p.yearless), None)


def _month_number(match: re.Match[str]) -> int:
    return 1 + _MONTHS.index(match["month"].lower()[:3])


def _full(match: re.Match[str], today: date | None) -> Period | None:
    groups = match.groupdict()
    month = int(groups["number"]) if groups.get("number") else _month_number(match)
    return _period(int(groups["year"]), month, int(groups["day"]))


def _yearless(match: re.Match[str], today: date | None) -> Period | None:
    period = _period(2000, _month_number(match), int(match["day"]))
    return Period(period.start, period.end, yearless=True) if period else None


def _period(year: int, month: int, day: int) -> Period | None:
    try:
        when = date(year, month, day)
    except ValueError:
        return None
    return Period(when, when)


def _month(year: int, month: int) -> Period:
    start = date(year, month, 1)
    return Period(start, _add_months(start, 1) - timedelta(days=1))


def _range(match: re.Match[str], today: date | None) -> Period | None:
    """From the first to the last day that are named; without a year it may be any."""
    year, month = int(match["year"] or 2000), _month_number(match)
    earlier = match.groupdict().get("earlier")
    first = _period(year, 1 + _MONTHS.index(earlier.lower()[:3]) if earlier else month, int(match["first"]))
    last = _period(year, month, int(match["day"]))
    if first is None or last is None or first.start > last.end:
        return None
    return Period(first.start, last.end, yearless=not match["year"])


def _month_year(match: re.Match[str], today: date | None) -> Period | None:
    return _month(int(match["year"]), _month_number(match))


def _month_only(match: re.Match[str], today: date | None) -> Period | None:
    if match["month"][0].islower():  # "may", "march" are words first
        return None
    whole = _month(2000, _month_number(match))
    return Period(whole.start, whole.end, yearless=True)


def _year(match: re.Match[str], today: date | None) -> Period | None:
    return Period(date(int(match["year"]), 1, 1), date(int(match["year"]), 12, 31))


def _add_months(day: date, months: int) -> date:
    index = day.year * 12 + day.month - 1 + months
    return date(index // 12, index % 12 + 1, 1)


def _unit(unit: str, today: date, steps: int) -> Period | None:
    try:
        if unit == "day":
            day = today + timedelta(days=steps)
            return Period(day, day)
        if unit == "week":  # "last week" said on a day means the seven days before it
            return Period(today + timedelta(days=7 * steps), today + timedelta(days=7 * steps + 6))
        if unit == "weekend":
            saturday = today - timedelta(days=(today.weekday() - 5) % 7 or 7) + timedelta(days=7 * (steps + 1))
            return Period(saturday, saturday + timedelta(days=1))
        if unit == "month":
            start = _add_months(today, steps)
            return Period(start, _add_months(start, 1) - timedelta(days=1))
        return Period(date(today.year + steps, 1, 1), date(today.year + steps, 12, 31))
    except (ValueError, OverflowError):
        return None


def _anchored(
    read: Callable[[re.Match[str], date], Period | None],
) -> Callable[[re.Match[str], date | None], Period | None]:
    return lambda match, today: None if today is None else read(match, today)


def _before(match: re.Match[str], today: date | None) -> Period | None:
    """ "The week before 9 June 2023", "the Friday before 15 July 2023"."""
    if (day := day_of_text(match["rest"])) is None:
        return None
    groups = match.groupdict()
    count = _count(groups.get("count"))
    if weekday := groups.get("weekday"):
        return _last_weekday(weekday, day)
    unit, after = groups["unit"].lower(), match["side"].lower() == "after"
    return _unit(unit, day, count - (unit == "weekend") if after else -count)  # 0 is the next weekend


def _week_of(match: re.Match[str], today: date | None) -> Period | None:
    """ "The week of 23 August 2023": the calendar week that holds the day."""
    if (day := day_of_text(match["rest"])) is None:
        return None
    monday = day - timedelta(days=day.weekday())
    return Period(monday, monday + timedelta(days=6))


def _week_of_month(match: re.Match[str], today: date | None) -> Period | None:
    """ "The first week of May 2023", "the last weekend of May"; without a year it may be any."""
    month, part = _month(int(match["year"] or 2000), _month_number(match)), _PARTS.index(match["part"].lower())
    start = month.end - timedelta(days=6) if part == len(_PARTS) - 1 else month.start + timedelta(days=7 * part)
    return Period(start, start + timedelta(days=6), yearless=not match["year"])


def _count(word: str | None) -> int:
    return 1 if not word else int(word) if word.isdigit() else _NUMBERS[word.lower()]


def _ago(match: re.Match[str], today: date) -> Period | None:
    """ "Two years ago" means the month of today."""
    unit, count = match["unit"].lower(), _count(match["count"])
    return _unit("month", today, -12 * count) if unit == "year" else _unit(unit, today, -count)


def _this_weekend(match: re.Match[str], today: date) -> Period | None:
    """ "This weekend" is ahead from Wednesday to Saturday, else just past."""
    ahead = not match["past"] and today.weekday() in _BEFORE_WEEKEND
    return _unit("weekend", today, 0 if ahead else -1)


def _ahead(match: re.Match[str], today: date) -> Period | None:
    """ "In two weeks" means one day, "in two months" a whole month."""
    unit, count = match["unit"].lower(), _count(match["count"])
    return _unit("day", today, 7 * count) if unit == "week" else _unit(unit, today, count)


def _last_weekday(name: str, today: date) -> Period:
    number = _WEEKDAYS.index(name.lower()[:3])
    day = today - timedelta(days=(today.weekday() - number) % 7 or 7)
    return Period(day, day)


def _next_weekday(match: re.Match[str], today: date) -> Period | None:
    number = _WEEKDAYS.index(match["weekday"].lower()[:3])
    day = today + timedelta(days=(number - today.weekday()) % 7 or 7)
    return Period(day, day)


def _days(steps: int) -> Callable[[re.Match[str], date | None], Period | None]:
    return _anchored(lambda match, today: _unit("day", today, steps))


def _shifted(steps: int) -> Callable[[re.Match[str], date | None], Period | None]:
    return _anchored(lambda match, today: _unit(match["unit"].lower(), today, steps))


_weekday_before = _anchored(lambda match, today: _last_weekday(match["weekday"], today))


def _form(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_BARE_DAY = _form(
    r"\b(?:on|by|until|till|from|since|for|to|am|zum) (?:the )?(?P<day>[0-3]?\d)(?:st|nd|rd|th)\b"
    r"(?! (?:of|floor|century|street|avenue|anniversary|birthday|place|time|page|row)\b)"
)
_FIRST = r"\b(?P<first>[0-3]?\d)(?:st|nd|rd|th)?"
_TO = r" ?(?:-|–|—|to|until|till|through) ?(?:the )?"
_EARLIER = _MONTH.replace("<month>", "<earlier>")

# Longest and most specific first: a span of text is read once.
_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], date | None], Period | None]], ...] = (
    (_form(rf"\b(?:{_COUNT} )?{_UNIT} (?P<side>before|prior to|after) (?P<rest>.{{6,24}})"), _before),
    (_form(rf"\b(?P<part>{'|'.join(_PARTS)}) week(?:end)? (?:of|in) {_MONTH}(?:,? ?{_YEAR})?"), _week_of_month),
    (_form(r"\b(?P<unit>week)(?:end)? of (?P<rest>.{6,24})"), _week_of),
    (_form(rf"\b{_WEEKDAY} (?:before|prior to) (?P<rest>.{{6,24}})"), _before),
    (_form(rf"{_FIRST}(?:(?: of)? {_EARLIER})?{_TO}{_DAY}(?: of)? {_MONTH}(?:,? ?{_YEAR})?"), _range),
    (_form(rf"\b{_MONTH} {_FIRST}{_TO}{_DAY}\b(?:,? ?{_YEAR})?"), _range),
    (_form(rf"\b{_YEAR}-(?P<number>[01]?\d)-(?P<day>[0-3]?\d)\b"), _full),
    (_form(rf"\b(?P<day>[0-3]?\d)\. ?(?P<number>[01]?\d)\. ?{_YEAR}\b"), _full),
    (_form(rf"\b(?P<number>[01]?\d)/(?P<day>[0-3]?\d)/{_YEAR}\b"), _full),
    (_form(rf"\b(?P<day>[0-3]?\d)/(?P<number>[01]?\d)/{_YEAR}\b"), _full),
    (_form(rf"\b{_DAY}(?: of)? {_MONTH},? ?{_YEAR}\b"), _full),
    (_form(rf"\b{_MONTH} {_DAY},? {_YEAR}\b"), _full),
    (_form(rf"\b{_MONTH},? ?(?:of )?{_YEAR}\b"), _month_year),
    (_form(rf"\b{_DAY}(?: of)? {_MONTH}"), _yearless),
    (_form(rf"\b{_MONTH} {_DAY}\b"), _yearless),
    (_form(rf"\b{_COUNT} {_UNIT} (?:ago|earlier|back)\b"), _anchored(_ago)),
    (_form(r"\bday before yesterday\b"), _days(-2)),
    (_form(r"\bday after tomorrow\b"), _days(2)),
    (_form(rf"\bin {_COUNT} {_UNIT}\b"), _anchored(_ahead)),
    (_form(r"\b(?:yesterday|last night|(?:the )?(?:previous|day) (?:day|before)|the night before)\b"), _days(-1)),
    (_form(r"\b(?:tomorrow|the (?:next|following) day)\b"), _days(1)),
    (_form(r"\b(?:today|tonight|this (?:morning|afternoon|evening)|just now|earlier today)\b"), _days(0)),
    (_form(rf"\b(?:last|past|previous|recent|the other) {_WEEKDAY}"), _weekday_before),
    (_form(rf"\b(?:next|this|coming|following) {_WEEKDAY}"), _anchored(_next_weekday)),
    (_form(rf"\bon {_WEEKDAY}"), _weekday_before),
    (_form(rf"\b(?:last|past|previous) {_UNIT}\b"), _shifted(-1)),
    (_form(rf"\b(?:next|following|coming|upcoming) {_UNIT}\b"), _shifted(1)),
    (_form(r"\bthis (?P<past>past )?weekend\b"), _anchored(_this_weekend)),
    (_form(rf"\bthis {_UNIT}\b"), _shifted(0)),
    (_form(rf"\b{_YEAR}\b"), _year),
    (_form(rf"\b(?:in|of|during|since|until|by|early|late|mid|last|this|next) {_MONTH}"), _month_only),
    (_form(rf"^{_MONTH}$"), _month_only),
)  # fmt: skip
