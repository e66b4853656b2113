"""What the endpoints know of what is behind them: a request goes in, an acknowledgement or a refusal comes out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Signal(StrEnum):
    """OTLP signals that are taken."""

    TRACES = "traces"
    LOGS = "logs"


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """The request is on disk, but for `rejected` spans or log records, refused for good because of `reason`."""

    rejected: int = 0
    reason: str = ""


class Cause(StrEnum):
    """Why a request is refused as a whole, in one word: what refusals are counted by."""

    BEHIND = "behind"
    MEMORY = "memory"
    STORE = "store"
    LATE = "late"
    TOO_LARGE = "too_large"
    UNREADABLE = "unreadable"
    UNAUTHORIZED = "unauthorized"


Count = Callable[[Cause], None]
"""Called once for each request that is refused, by the endpoint that says so."""


class RequestError(ValueError):
    """A request that cannot be taken, now or later; says why, never quoting a content."""

    cause = Cause.UNREADABLE


class TooLargeError(RequestError):
    """A request past a limit."""

    cause = Cause.TOO_LARGE


class ContentTypeError(RequestError):
    """A request in a content type that is not known."""


class BusyError(Exception):
    """Nothing is taken for the moment; the same request is welcome after `retry_after` seconds."""

    def __init__(self, reason: str, retry_after: int, cause: Cause) -> None:
        super().__init__(reason)
        self.retry_after = retry_after
        self.cause = cause

    @property
    def full(self) -> bool:
        """Whether there is too much to do; else the disk refuses."""
        return self.cause is not Cause.STORE


class Intake(Protocol):
    """Takes requests of all connections."""

    async def accept(self, body: bytes, signal: Signal) -> Acknowledgement:
        """Keep a request (protobuf); when this returns it is on disk. Raises RequestError or BusyError."""
        ...
