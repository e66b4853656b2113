"""What the endpoints know of what is behind them: a request goes in, an acknowledgement or a refusal comes out."""

from __future__ import annotations

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


class RequestError(ValueError):
    """A request that cannot be taken, now or later; says why, never quoting a content."""


class TooLargeError(RequestError):
    """A request past a limit."""


class BusyError(Exception):
    """Nothing is taken for the moment; the same request is welcome after `retry_after` seconds.

    `full` tells a receiver that is behind from one whose disk refuses.
    """

    def __init__(self, reason: str, retry_after: int, *, full: bool = True) -> None:
        super().__init__(reason)
        self.retry_after = retry_after
        self.full = full


class Intake(Protocol):
    """Takes requests of all connections."""

    async def accept(self, body: bytes, signal: Signal) -> Acknowledgement:
        """Keep a request (protobuf); when this returns it is on disk. Raises RequestError or BusyError."""
        ...
