"""Times and distances in time as people read them; everything in UTC."""

from __future__ import annotations

from datetime import UTC, date, datetime

NANOSECONDS = 1_000_000_000
_UNITS = (("year", 365 * 86400), ("month", 30 * 86400), ("day", 86400), ("h", 3600), ("min", 60), ("s", 1))
_INVARIANT = ("h", "min", "s")


def day(time: int) -> str:
    """Return `Fri 6 Mar 2026` for nanoseconds since the epoch, '' for 0 or a time no calendar knows."""
    moment = _moment(time)
    return f"{moment:%a} {moment.day} {moment:%b %Y}" if moment else ""


def date_of(said: date | None) -> str:
    """Return `6 Mar 2026`."""
    return f"{said.day} {said:%b %Y}" if said else ""


def clock(time: int) -> str:
    """Return `10:04:31`."""
    moment = _moment(time)
    return f"{moment:%H:%M:%S}" if moment else ""


def day_and_clock(time: int) -> str:
    """Return `6 Mar 2026, 10:04:31 UTC`, or 'time unknown'."""
    moment = _moment(time)
    return f"{moment.day} {moment:%b %Y, %H:%M:%S} UTC" if moment else "time unknown"


def machine(time: int) -> str:
    """Return RFC 3339 with seconds for the `datetime` attribute, '' when unknown."""
    moment = _moment(time)
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}" if moment else ""


def distance(start: int, end: int) -> str:
    """Return the largest unit of the time between, as `18 days` or `3 min`; '' below one second or when unknown."""
    seconds = (end - start) // NANOSECONDS if start > 0 and end > 0 else 0
    for unit, size in _UNITS:
        count = round(seconds / size)
        if seconds >= size:
            return f"{count} {unit}" if unit in _INVARIANT or count == 1 else f"{count} {unit}s"
    return ""


def _moment(time: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(time // NANOSECONDS, UTC) if time > 0 else None
    except (OverflowError, OSError, ValueError):
        return None
