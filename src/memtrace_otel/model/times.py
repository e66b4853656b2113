"""Times as people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FRACTION = re.compile(r"[.,]\d{6}(\d{1,3})")
"""What `fromisoformat` cuts off."""


def parse_time(text: str) -> int:
    """Return the ns since the epoch of a date or RFC 3339 time, UTC when it names no zone. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    microseconds = (moment.replace(tzinfo=moment.tzinfo or UTC) - _EPOCH) // timedelta(microseconds=1)
    finer = _FRACTION.search(text)
    return microseconds * 1000 + (int(finer[1].ljust(3, "0")) if finer else 0)


def rfc3339(time: int) -> str:
    """Return nanoseconds since the epoch as RFC 3339 in UTC, to the microsecond."""
    seconds, nanoseconds = divmod(time, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanoseconds // 1000:06d}Z"
