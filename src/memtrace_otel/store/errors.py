"""The one error of stores."""

from __future__ import annotations

from pathlib import Path


class StoreError(Exception):
    """A store that cannot be opened, read or written. Names the store and the reason, never a content."""

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = str(path)
        self.reason = reason
