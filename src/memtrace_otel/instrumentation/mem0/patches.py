"""Puts the wrappers in place and takes them away again."""

from __future__ import annotations

import concurrent.futures
import contextvars
import importlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, cast

import wrapt
from opentelemetry.trace import Tracer

from memtrace_otel.capture import guarded
from memtrace_otel.instrumentation.mem0 import points
from memtrace_otel.instrumentation.mem0.calls import StepFunction, observed

_logger = logging.getLogger(__name__)
_SCOPES = 10_000


class Patches:
    """The wrappers of one `instrument()`; they do nothing unless `active`. `main` is the module `mem0.memory.main`."""

    def __init__(self, tracer: Tracer) -> None:
        self.main: Any = None
        self.tracer = tracer
        self.active = True
        self.scopes: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()
        self._originals: list[tuple[Any, str, Any, Any]] = []
        self._covered: set[type] = set()

    @guarded("mem0.apply", None)
    def apply(self, main: Any) -> None:
        """Wrap what this release of Mem0 has of the table, and let its thread pools keep the context."""
        if not self.active:
            return  # removed before Mem0 was ever imported
        self.main = main
        for class_name in points.CLASSES:
            self._wrap_all(getattr(self.main, class_name, None), points.METHODS)
        self._wrap_all(self.main, points.FUNCTIONS)
        futures = getattr(self.main, "concurrent", None)
        if futures is not None:
            self._replace(
                self.main,
                "concurrent",
                _Namespace(futures, futures=_Namespace(futures.futures, ThreadPoolExecutor=ContextThreads)),
            )

    def cover(self, memory: Any) -> None:
        """Wrap the methods of the providers of a Memory, once per provider class.

        Done when a Memory is used, so it makes no difference who built its providers, when, and from which package.
        """
        for attribute, steps in points.PROVIDERS.items():
            provider = getattr(memory, attribute, None)
            kind = cast(type, type(provider))
            if provider is None or kind in self._covered:
                continue
            with self._lock:
                for name, step in steps.items():
                    self._wrap(next((c for c in kind.__mro__ if name in vars(c)), None), name, step)
                self._covered.add(kind)

    def remove(self) -> None:
        """Restore the originals. A wrapper that somebody else has wrapped since stays, and does nothing."""
        self.active = False
        with self._lock:
            for owner, name, original, replacement in reversed(self._originals):
                if _own(owner, name) is replacement:
                    setattr(owner, name, original)
            self._originals.clear()
            self._covered.clear()

    def remember(self, record_id: str, scope: str) -> None:
        """Note whose memory a record is, for calls that name only the record."""
        if scope:
            self.scopes[record_id] = scope
            while len(self.scopes) > _SCOPES:
                self.scopes.popitem(last=False)

    @property
    def default_decision_prompt(self) -> str:
        """The prompt template of 1.x for decisions, '' where there is none."""
        prompts = importlib.import_module("mem0.configs.prompts")
        return str(getattr(prompts, "DEFAULT_UPDATE_MEMORY_PROMPT", ""))

    def _wrap_all(self, owner: Any, steps: Mapping[str, StepFunction]) -> None:
        for name, step in steps.items():
            self._wrap(owner, name, step)

    def _wrap(self, owner: Any, name: str, step: StepFunction) -> None:
        original = None if owner is None else _own(owner, name)
        if original is None:
            _logger.debug("%s.%s is not in this release of mem0", getattr(owner, "__name__", owner), name)
            return
        if any(known is owner and attribute == name for known, attribute, _, _ in self._originals):
            return
        self._replace(owner, name, wrapt.FunctionWrapper(original, observed(step, self)))

    def _replace(self, owner: Any, name: str, replacement: Any) -> None:
        original = _own(owner, name)
        setattr(owner, name, replacement)
        self._originals.append((owner, name, original, replacement))


def _own(owner: Any, name: str) -> Any:
    """The attribute as it lies in the namespace of a class or module, None when it has none of its own."""
    return cast(Mapping[str, Any], vars(owner)).get(name)


class ContextThreads(concurrent.futures.ThreadPoolExecutor):
    """A thread pool whose jobs run in the context of their submitter: Mem0 opens a pool per call and loses it."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        """Schedule `fn` in a copy of the current context."""
        return super().submit(contextvars.copy_context().run, fn, *args, **kwargs)


class _Namespace:
    """A module with some of its names replaced, for one importer only."""

    def __init__(self, module: Any, **replaced: Any) -> None:
        self._module = module
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
