"""`ReflectionExecutor` works in a thread of its own: the context in which a reflection was asked for is kept for it."""

from __future__ import annotations

import threading
from collections import OrderedDict

from opentelemetry.context import Context, get_current

from memtrace_otel.capture.fork import new_lock_after_fork
from memtrace_otel.instrumentation.langchain.langmem.calls import Call
from memtrace_otel.instrumentation.steps import Step

_PENDING = 1024


class Delayed:
    """The contexts of payloads that wait in a queue. A payload is told by the object that it is."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        new_lock_after_fork(self)
        self._waiting: OrderedDict[int, tuple[object, Context]] = OrderedDict()

    def put(self, payload: object) -> None:
        """Keep the current context for a payload; the ones put off longest ago are forgotten first."""
        with self._lock:
            self._waiting[id(payload)] = (payload, get_current())
            while len(self._waiting) > _PENDING:
                self._waiting.popitem(last=False)

    def take(self, payload: object) -> Context | None:
        """The context that was kept for a payload, None for one that was not put off."""
        with self._lock:
            kept, context = self._waiting.pop(id(payload), (None, None))
        return context if kept is payload else None


def submit(call: Call) -> Step:
    """`submit`: the manager will be called with this very payload, some time later."""
    call.patches.delayed.put(call.arguments().get("payload"))
    yield
