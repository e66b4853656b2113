"""Times of day in text, written on 24 hours: "6:40 pm", "18.40 Uhr" and "下午6点40分" are "18:40"."""

from __future__ import annotations

import re

_MINUTE = r"(?:[:.](?P<minute>[0-5]\d))?"
_FORMS = (
    re.compile(rf"\b(?P<hour>1[0-2]|0?[1-9]){_MINUTE} ?(?P<half>[ap])\.?m\b"),
    re.compile(rf"\b(?P<hour>[01]?\d|2[0-4]){_MINUTE} ?(?:uhr|o['’]clock)\b(?: (?P<past>[0-5]\d)\b)?"),
    re.compile(r"(?P<half>凌晨|早上|上午|中午|下午|晚上)?(?P<hour>[01]?\d|2[0-4])[点點时](?P<past>半|[0-5]?\d)?分?"),
)
_AFTER_NOON = ("p", "中午", "下午", "晚上")


def on_24_hours(text: str) -> str:
    """Return a casefolded text with its times of day on 24 hours."""
    for form in _FORMS:
        text = form.sub(_on_24_hours, text)
    return text


def _on_24_hours(clock: re.Match[str]) -> str:
    found = clock.groupdict()
    hour, half = int(found["hour"]), found.get("half")
    if half and hour <= 12:
        hour = hour % 12 + 12 * (half in _AFTER_NOON)
    minute = (found.get("minute") or found.get("past") or "00").replace("半", "30")
    return f" {hour}:{minute:>02} "
