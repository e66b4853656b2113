"""Write German and Chinese words for dates in English, so that one grammar reads all of them."""

from __future__ import annotations

import re
from collections.abc import Callable

_MONTHS = {"januar": "January", "jänner": "January", "februar": "February", "märz": "March", "mai": "May",
           "juni": "June", "juli": "July", "oktober": "October", "dezember": "December"}  # fmt: skip
_ENGLISH_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_WEEKDAYS = {"montag": "Monday", "dienstag": "Tuesday", "mittwoch": "Wednesday", "donnerstag": "Thursday",
             "freitag": "Friday", "samstag": "Saturday", "sonnabend": "Saturday", "sonntag": "Sunday"}  # fmt: skip
_UNITS = {"tag": "day", "woche": "week", "monat": "month", "jahr": "year"}
_COUNTS = {"ein": "1", "zwei": "2", "drei": "3", "vier": "4", "fünf": "5", "sechs": "6", "sieben": "7", "acht": "8",
           "neun": "9", "zehn": "10"}  # fmt: skip
_DAYS = {"vorgestern": "day before yesterday", "gestern": "yesterday", "heute": "today", "morgen": "tomorrow",
         "übermorgen": "day after tomorrow"}  # fmt: skip
_CHINESE_DAYS = {"前天": "day before yesterday", "昨天": "yesterday", "今天": "today", "明天": "tomorrow",
                 "后天": "day after tomorrow"}  # fmt: skip
_CHINESE_UNITS = {"天": "days", "周": "weeks", "星期": "weeks", "个月": "months", "年": "years"}
_CHINESE_WEEKDAYS = dict(zip("一二三四五六日天", [*list(_WEEKDAYS.values())[:5], "Saturday", "Sunday", "Sunday"],
                             strict=True))  # fmt: skip
_DIGITS = {digit: str(number) for number, digit in enumerate("一二三四五六七八九十", 1)} | {"两": "2"}

_COUNT = rf"(\d{{1,3}}|(?:{'|'.join(_COUNTS)})(?:e[mnrs]?)?)"
_UNIT = rf"({'|'.join(_UNITS)})(?:e?n)?"
_WEEKDAY = rf"({'|'.join(_WEEKDAYS)})"
_CHINESE_COUNT = rf"(\d{{1,3}}|[{''.join(_DIGITS)}])"
_CHINESE_UNIT = rf"({'|'.join(_CHINESE_UNITS)})"


def _german_span(match: re.Match[str]) -> str:
    """ "In drei Tagen", "vor zwei Wochen"."""
    count = next((number for word, number in _COUNTS.items() if match[2].lower().startswith(word)), match[2])
    unit = f"{count} {_UNITS[match[3].lower()]}s"
    return f"in {unit}" if match[1].lower() == "in" else f"{unit} ago"


def _chinese_span(match: re.Match[str]) -> str:
    """ "三天后", "两周前"."""
    unit = f"{_DIGITS.get(match[1], match[1])} {_CHINESE_UNITS[match[2]]}"
    return f" in {unit} " if match[3] == "后" else f" {unit} ago "


_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"((?:19|20)\d\d)年(1[0-2]|0?[1-9])月([0-3]?\d)[日号]"), lambda m: f" {m[1]}-{m[2]}-{m[3]} "),
    (re.compile(rf"{_CHINESE_COUNT}{_CHINESE_UNIT}以?([前后])"), _chinese_span),
    (re.compile(r"前天|昨天|今天|明天|后天"), lambda m: f" {_CHINESE_DAYS[m[0]]} "),
    (re.compile(r"([上下])个?(?:周|星期|礼拜)([一二三四五六日天])"),
     lambda m: f" {'last' if m[1] == '上' else 'next'} {_CHINESE_WEEKDAYS[m[2]]} "),
    (re.compile(rf"\b([0-3]?\d)\. ?({'|'.join(_MONTHS)}|april|august|september|november)\b", re.IGNORECASE),
     lambda m: f"{m[1]} {_MONTHS.get(m[2].lower(), m[2])}"),
    (re.compile(rf"\b([0-3]?\d)(?=(?:{_ENGLISH_MONTHS})\b)"), lambda m: f"{m[1]} "),
    (re.compile(rf"\b({'|'.join(_MONTHS)})(?= (?:19|20)\d\d\b)", re.IGNORECASE), lambda m: _MONTHS[m[1].lower()]),
    (re.compile(rf"\b(in|vor) {_COUNT} {_UNIT}\b", re.IGNORECASE), _german_span),
    (re.compile(rf"\b(nächst|kommend|letzt|vergangen)e[mnrs]? {_WEEKDAY}\b", re.IGNORECASE),
     lambda m: f"{'next' if m[1].lower() in ('nächst', 'kommend') else 'last'} {_WEEKDAYS[m[2].lower()]}"),
    (re.compile(r"\b(?:vorgestern|gestern|heute|(?<!heute )morgen|übermorgen)\b"), lambda m: _DAYS[m[0]]),
)  # fmt: skip
"""Pattern and its English form; "3June" is English without its space. "Morgen" in capitals is the time of day."""


def in_english(text: str) -> str:
    """Return the text with its German and Chinese dates in English: "31. Mai 2025" is "31 May 2025"."""
    for pattern, english in _FORMS:
        text = pattern.sub(english, text)
    return text
