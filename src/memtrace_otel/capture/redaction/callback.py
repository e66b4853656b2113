"""Redaction by a function of the user's, watched: it runs beside the program, which waits for it only so long."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from importlib import import_module
from queue import Empty, SimpleQueue
from typing import cast

from memtrace_otel.capture.guard import note_error

Callback = Callable[[str], str | None]
"""Takes a content (after patterns and keys) and returns what of it may leave; None: nothing."""

WAIT = 0.05
"""Seconds that a caller waits for the callback; then the content is withheld."""


class Watched:
    """Calls a callback in a daemon thread, one content at a time. One that hangs costs each waiting caller `WAIT` once:
    until it returns, every content is withheld without waiting."""

    def __init__(self, callback: Callback) -> None:
        self.callback = callback
        self._reset()
        _watched.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._work: SimpleQueue[tuple[str, SimpleQueue[str | None]]] = SimpleQueue()
        self._started = self._hung = False

    def _start(self) -> None:
        with self._lock:
            if not self._started:
                threading.Thread(target=self._run, args=(self._work,), name="memtrace-redaction", daemon=True).start()
                self._started = True

    def __call__(self, text: str) -> str | None:
        """What the callback returns, None when it raises, hangs or returns something that is no text."""
        if self._hung:
            return None
        if not self._started:
            with self._lock:
                if not self._started:
                    threading.Thread(
                        target=self._run, args=(self._work,), name="memtrace-redaction", daemon=True
                    ).start()
                    self._started = True
        answer: SimpleQueue[str | None] = SimpleQueue()
        self._work.put((text, answer))
        try:
            return answer.get(timeout=WAIT)
        except Empty:
            self._hung = True
            note_error("redaction.callback", TimeoutError())
            return None

    def _run(self, work: SimpleQueue[tuple[str, SimpleQueue[str | None]]]) -> None:
        while True:
            text, answer = work.get()
            try:
                result = cast(object, self.callback(text))
                if result is not None and not isinstance(result, str):
                    raise TypeError("a redaction callback returns a text or None")
                answer.put(result)
            except BaseException as error:  # SystemExit, too: the thread must live
                note_error("redaction.callback", error if isinstance(error, Exception) else RuntimeError())
                answer.put(None)
            self._hung = False


_watched: weakref.WeakSet[Watched] = weakref.WeakSet()


def _after_fork() -> None:
    for watched in _watched:
        watched._reset()  # pyright: ignore[reportPrivateUsage]  # the thread stayed in the parent


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def load_callback(path: str) -> Callback:
    """Import `module:function`; raises whatever the import raises, TypeError when it is nothing that can be called."""
    module, _, name = path.partition(":")
    found: object = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise TypeError(f"{path} is not a function")
    return cast(Callback, found)
