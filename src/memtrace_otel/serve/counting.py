"""Which of several servers on one file counts the spans that come into it: sums over servers count each once."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from memtrace_otel.sources.filelock import DatabaseLock


class Counting:
    """The first server counts for as long as it lives, then the next one."""

    def __init__(self, database: Path) -> None:
        self._turn = DatabaseLock(database, "-counts")
        self._held: ExitStack | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._held is not None:
            self._held.close()

    def is_mine(self) -> bool:
        """Tell whether this process counts. Raises StoreError when that cannot be told."""
        if self._held is None:
            with ExitStack() as attempt:
                if attempt.enter_context(self._turn.held(wait=False)):
                    self._held = attempt.pop_all()
        return self._held is not None
