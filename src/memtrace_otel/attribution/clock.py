"""Times of day in text, written on 24 hours: "6:40 pm", "18.40 Uhr" and "下午6点40分" are "18:40"."""

from __future__ import annotations

import re
from collections.abc import Callable

_MINUTE = r"(?:[:.](?P<minute>[0-5]\d))?"
_ENGLISH = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_GERMAN = ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf"]
_HOURS = {word: hour for names in (_ENGLISH, _GERMAN) for hour, word in enumerate(names, 1)}
_HOUR = rf"(?P<hour>1[0-2]|0?[1-9]|{'|'.join(sorted(_HOURS, key=len, reverse=True))})\b"
_AFTER_NOON = ("p", "中午", "下午", "晚上")
_TIME = re.compile(r"\b(?P<hour>[1-9]|1\d|2[0-4]):(?P<minute>[0-5]\d)\b")
_BEFORE_NOON = re.compile(
    r"\b(?:morning|night|morgens?|früh|vormittags?|nachts|matin|mañana|madrugada|mattin[ao]|manhã)\b|凌晨|早上|上午",
    re.IGNORECASE,
)


def _on_24_hours(clock: re.Match[str]) -> str:
    found = clock.groupdict()
    hour, half = int(found["hour"]), (found.get("half") or "").lower()
    if half and hour <= 12:
        hour = hour % 12 + 12 * (half in _AFTER_NOON)
    minute = (found.get("minute") or found.get("past") or "00").replace("半", "30")
    definite = half or found["hour"].startswith("0")
    return f" {hour:0{2 if definite else 1}}:{minute:>02} "  # "05:00" is before noon, "5:00" may be "17:00"


def _in_quarters(minutes: int) -> Callable[[re.Match[str]], str]:
    """Return the reader of a spoken time, so many minutes after (before) the hour that it names."""

    def read(spoken: re.Match[str]) -> str:
        word = spoken["hour"].lower()
        hour, minute = divmod((_HOURS.get(word) or int(word)) * 60 + minutes, 60)
        return f" {hour or 12}:{minute:02} "

    return read


_FORMS = (
    (re.compile(rf"\b(?:half past {_HOUR})", re.IGNORECASE), _in_quarters(30)),
    (re.compile(rf"\b(?:quarter past|viertel nach) {_HOUR}", re.IGNORECASE), _in_quarters(15)),
    (re.compile(rf"\b(?:quarter to|viertel vor|dreiviertel) {_HOUR}", re.IGNORECASE), _in_quarters(-15)),
    (re.compile(rf"\bhalb {_HOUR}", re.IGNORECASE), _in_quarters(-30)),
    (re.compile(rf"\b(?P<hour>1[0-2]|0?[1-9]){_MINUTE} ?(?P<half>[ap])\.?m\b", re.IGNORECASE), _on_24_hours),
    (re.compile(rf"\b(?P<hour>[01]?\d|2[0-4]){_MINUTE} ?(?:uhr|o['’]clock)\b(?: (?P<past>[0-5]\d)\b)?", re.IGNORECASE),
     _on_24_hours),
    (re.compile(r"(?P<half>凌晨|早上|上午|中午|下午|晚上)?(?P<hour>[01]?\d|2[0-4])[点點时](?P<past>半|[0-5]?\d)?分?"),
     _on_24_hours),
)  # fmt: skip


def on_24_hours(text: str) -> str:
    """Return a text with its times of day on 24 hours."""
    for form, read in _FORMS:
        text = form.sub(read, text)
    return text


def hours_of(reference: str, text: str) -> str:
    """Return the text with its times before noon after noon where the reference has that time: a person who says "at
    half past two" may mean "14:30", but not "in the morning"."""
    wanted = {(int(time["hour"]), time["minute"]) for time in _TIME.finditer(on_24_hours(reference))}
    late = {(hour - 12, minute) for hour, minute in wanted if hour > 12} - wanted
    if not late or _BEFORE_NOON.search(text):
        return text

    def moved(time: re.Match[str]) -> str:
        hour, minute = int(time["hour"]), time["minute"]
        return f"{hour + 12}:{minute}" if (hour, minute) in late else time[0]

    return _TIME.sub(moved, on_24_hours(text))
