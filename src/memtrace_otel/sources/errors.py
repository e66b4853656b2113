"""Errors of sources. Every error names the source and the reason, never a content or a secret."""

from __future__ import annotations

from pathlib import Path


class SourceError(Exception):
    """The source cannot answer: a file that cannot be opened, read or written, or a backend that does not answer."""

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = str(path)
        self.reason = reason


class DamagedError(SourceError):
    """A span cannot be decoded, or a page of the file cannot be read. Other spans can be read."""


class AddressError(ValueError):
    """The address of a backend, or a setting for the address, cannot be used. The text says what is needed."""
