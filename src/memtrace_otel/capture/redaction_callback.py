"""Redaction by a function of the user's, watched: it runs beside the program, which waits for it only so long."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from queue import Empty, SimpleQueue
from time import monotonic
from typing import cast

from memtrace_otel.capture.fork import after_fork
from memtrace_otel.capture.guard import note_error
from memtrace_otel.capture.tracing import observe_nothing_here

Callback = Callable[[str], str | None]
"""Takes a content (after patterns and keys) and returns what of it may leave; None: nothing."""

WAIT = 0.05
"""Seconds that a caller waits for the callback; then the content is withheld."""
THREADS = 8
"""Contents that go through the callback at the same time."""
WAITING = 64
"""Contents that wait for the callback or are in it; what comes on top is withheld at once."""
PAUSE = 1.0
"""Seconds in which nobody waits, after `THREADS` contents in a row that nobody got an answer for in time."""


class _Call:
    __slots__ = ("answer", "given_up", "system", "text")

    def __init__(self, text: str, system: str) -> None:
        self.text, self.system, self.given_up = text, system, False
        self.answer: SimpleQueue[str | None] = SimpleQueue()


class Watched:
    """Calls a callback in daemon threads, one more whenever all are busy. A caller waits for `WAIT` at most; while the
    callback hangs or is always late, callers wait once per `PAUSE`, and their contents are withheld."""

    def __init__(self, callback: Callback) -> None:
        self.callback = callback
        self._reset()
        _watched.add(self)

    def _reset(self) -> None:
        self._lock = threading.RLock()
        self._calls: SimpleQueue[_Call] = SimpleQueue()
        self._threads = self._waiting = self._late = 0
        self._paused_until = 0.0

    def __call__(self, text: str, system: str = "") -> str | None:
        """What the callback returns, None when it raises, hangs or returns something that is no text."""
        with self._lock:
            if self._late >= THREADS:
                if monotonic() < self._paused_until:
                    return None
                self._paused_until = monotonic() + PAUSE
            if self._waiting >= WAITING:
                return None
            if self._waiting >= self._threads < THREADS:
                threading.Thread(target=self._run, args=(self._calls,), name="memtrace-redaction", daemon=True).start()
                self._threads += 1
            self._waiting += 1
        call = _Call(text, system)
        self._calls.put(call)
        try:
            result = call.answer.get(timeout=WAIT)
        except Empty:
            call.given_up = True
            with self._lock:
                self._late += 1
                if self._late == THREADS:
                    self._paused_until = monotonic() + PAUSE
            note_error("redaction.callback", TimeoutError(), system)
            return None
        self._late = 0
        return result

    def _run(self, calls: SimpleQueue[_Call]) -> None:
        observe_nothing_here()
        while True:
            call = calls.get()
            try:
                if not call.given_up:
                    call.answer.put(self._answer(call))
            except BaseException:  # the program's logging may fail, too
                call.answer.put(None)
            finally:
                with self._lock:
                    self._waiting -= 1

    def _answer(self, call: _Call) -> str | None:
        try:
            result = cast(object, self.callback(call.text))
            if result is not None and not isinstance(result, str):
                raise TypeError("a redaction callback returns a text or None")
            return result
        except BaseException as error:  # SystemExit, too: the thread must live
            raised = error if isinstance(error, Exception) else RuntimeError()
            note_error("redaction.callback", raised, call.system)
            return None


_watched: weakref.WeakSet[Watched] = weakref.WeakSet()


@after_fork
def _after_fork() -> None:
    for watched in _watched:
        watched._reset()  # pyright: ignore[reportPrivateUsage]  # the thread stayed in the parent


def load_callback(path: str) -> Callback:
    """Import `module:function`; raises whatever the import raises, TypeError when it is nothing that can be called."""
    module, _, name = path.partition(":")
    found: object = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise TypeError(f"{path} is not a function")
    return cast(Callback, found)


def find_callback(path: str) -> None:
    """Raise what `load_callback` would raise, as far as that shows without an import, which runs code."""
    module, _, name = path.partition(":")
    if not module or not name:
        raise ValueError(f"{path} is not `module:function`")
    package = module.partition(".")[0]
    if find_spec(package) is None:
        raise ModuleNotFoundError(f"No module named {package!r}")
