"""Redaction by a function of the user, which runs in threads of its own so that the program waits 50 ms at most."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from queue import Empty, SimpleQueue
from time import monotonic
from typing import cast

from memtrace_otel.capture.fork import after_fork
from memtrace_otel.capture.guard import note_error
from memtrace_otel.capture.tracing import observe_nothing_here

Callback = Callable[[str], str | None]
"""Takes a content (after patterns and keys) and returns the part that may leave, or None to withhold the content."""

WAIT = 0.05
"""Seconds that a caller waits for the callback; then the content is withheld."""
THREADS = 8
"""Contents that are in the callback at the same time."""
WAITING = 64
"""Contents that wait for the callback or are in it; further contents are withheld at once."""
PAUSE = 1.0
"""Seconds in which contents are withheld at once after `THREADS` late answers in a row."""


class CallbackRunner:
    """Calls the callback in daemon threads, at most `THREADS`. A call returns after `WAIT` seconds at most."""

    def __init__(self, callback: Callback) -> None:
        self._callback = callback
        self._reset()
        _runners.add(self)

    def _reset(self) -> None:
        self._lock = threading.RLock()  # re-entrant: a signal handler may end an operation
        self._calls: SimpleQueue[tuple[str, SimpleQueue[str | None]]] = SimpleQueue()
        self._threads = self._waiting = self._late = 0
        self._paused_until = 0.0

    def __call__(self, text: str) -> str | None:
        """Return the answer of the callback; None if the callback raises, is late or returns no text."""
        with self._lock:
            if self._waiting >= WAITING or monotonic() < self._paused_until:
                return None
            if self._waiting >= self._threads < THREADS:
                threading.Thread(target=self._run, args=(self._calls,), name="memtrace-redaction", daemon=True).start()
                self._threads += 1
            self._waiting += 1
        answer: SimpleQueue[str | None] = SimpleQueue()
        self._calls.put((text, answer))
        try:
            result = answer.get(timeout=WAIT)
        except Empty:
            with self._lock:
                self._late += 1
                if self._late >= THREADS:
                    self._paused_until = monotonic() + PAUSE
            note_error("redaction.callback", TimeoutError())
            return None
        self._late = 0
        return result

    def _run(self, calls: SimpleQueue[tuple[str, SimpleQueue[str | None]]]) -> None:
        observe_nothing_here()
        while True:
            text, answer = calls.get()
            result = None
            with suppress(BaseException):  # the logging of the program may raise, too; the thread must live
                result = self._ask(text)
            with self._lock:
                self._waiting -= 1
            answer.put(result)

    def _ask(self, text: str) -> str | None:
        try:
            result = cast(object, self._callback(text))
            if result is not None and not isinstance(result, str):
                raise TypeError("a redaction callback returns a text or None")
            return result
        except BaseException as error:  # also SystemExit
            note_error("redaction.callback", error if isinstance(error, Exception) else RuntimeError())
            return None


_runners: weakref.WeakSet[CallbackRunner] = weakref.WeakSet()


@after_fork
def _after_fork() -> None:
    for runner in _runners:
        runner._reset()  # pyright: ignore[reportPrivateUsage]  # the threads exist in the parent only


def load_callback(path: str) -> Callback:
    """Import `module:function`. Raises the errors of the import, and TypeError for an object that is not callable."""
    module, _, name = path.partition(":")
    found: object = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise TypeError(f"{path} is not a function")
    return cast(Callback, found)
