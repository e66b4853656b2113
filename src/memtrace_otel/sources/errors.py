"""The errors of stores."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path


class StoreError(Exception):
    """A store that cannot be opened, read or written. Names the store and the reason, never a content."""

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = str(path)
        self.reason = reason


class DamagedError(StoreError):
    """A span that cannot be decoded, or a page of the file that cannot be read; what lies elsewhere can."""


class SourceLimitError(StoreError):
    """What was asked for takes more requests or bytes than allowed; a graph goes on without it and says so.

    `is_reply` says that a single reply does, or that it cannot be read: a part of what was asked for may be had.
    `may_pass` says that the backend may well answer the same request later; `found` are the traces that were found all
    the same.
    """

    def __init__(
        self,
        path: str | Path,
        reason: str,
        *,
        is_reply: bool = False,
        may_pass: bool = False,
        found: Collection[str] = (),
    ) -> None:
        super().__init__(path, reason)
        self.is_reply = is_reply
        self.may_pass = may_pass
        self.found = found
