"""Puts wrappers in place and takes them away again; the same for every instrumented library."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, cast
from weakref import WeakKeyDictionary

import wrapt
from opentelemetry.trace import Tracer

from memtrace_otel.capture import guard
from memtrace_otel.capture.fork import new_lock_after_fork
from memtrace_otel.instrumentation.slowness import Slowness
from memtrace_otel.instrumentation.steps import StepFunction, observed
from memtrace_otel.instrumentation.wrapped import Wrapped

_logger = logging.getLogger(__name__)

Points = Mapping[str, Mapping[str, StepFunction]]
"""Module name -> names in it (`function` or `Class.method`) -> the step that runs around them."""


class Patches:
    """The wrappers of one `instrument()`; they do nothing unless `active`. `slowness` is what the steps may cost."""

    def __init__(self, tracer: Tracer, system: str) -> None:
        self.tracer, self.system = tracer, system
        self.active = True
        self.slowness: dict[tuple[str, str], Slowness] = {}
        self._lock = threading.RLock()
        new_lock_after_fork(self)
        # Weak: a class that the program lets go is not kept for our sake.
        self._replaced: WeakKeyDictionary[Any, list[tuple[str, Any, Any]]] = WeakKeyDictionary()
        self._covered: WeakKeyDictionary[type, set[int]] = WeakKeyDictionary()

    def apply(self, points: Points) -> None:
        """Wrap a table of points, each when its module is imported. A name that a release lacks is left out."""
        for module_name, steps in points.items():
            self.when_imported(module_name, lambda module, steps=steps: self._wrap_points(module, steps))

    def when_imported(self, module_name: str, do: Callable[[Any], None]) -> None:
        """Call `do(module)` after the application has imported the module (now, when it has).

        We import nothing ourselves: libraries read their environment at import, and the application decides when.
        """

        def hook(module: ModuleType) -> None:
            if self.active:
                with guard(f"{self.system}.apply"):  # runs inside the program's own import
                    do(module)

        wrapt.register_post_import_hook(hook, module_name)

    def wrap(self, owner: Any, name: str, step: StepFunction) -> None:
        """Run `step` around `owner.name`, which must lie in the namespace of `owner` itself; once, if asked again."""
        original = None if owner is None else _own(owner, name)
        if original is None:
            _logger.debug("%s.%s is not in this release of %s", getattr(owner, "__name__", owner), name, self.system)
            return
        with self._lock:
            if not any(attribute == name for attribute, _, _ in self._replaced.get(owner, ())):
                self.replace(owner, name, self.around(original, step))

    def around(self, function: Any, step: StepFunction) -> Any:
        """`function` with `step` around each of its calls."""
        return Wrapped(function, observed(step, self))

    def wrap_all(self, owner: Any, steps: Mapping[str, StepFunction]) -> None:
        """Wrap several names of one owner."""
        for name, step in steps.items():
            self.wrap(owner, name, step)

    def cover(self, kind: type, steps: Mapping[str, StepFunction]) -> None:
        """Wrap methods where the class of an object in use defines them: itself or an ancestor; once per class."""
        if id(steps) in self._covered.get(kind, ()):
            return
        with self._lock:
            for name, step in steps.items():
                self.wrap(next((owner for owner in kind.__mro__ if name in vars(owner)), None), name, step)
            self._covered.setdefault(kind, set()).add(id(steps))

    def cover_family(self, base: type, steps: Mapping[str, StepFunction]) -> None:
        """Wrap methods wherever `base` or a class derived from it defines them, now or in classes to come."""
        defined = vars(base).get("__init_subclass__")

        def __init_subclass__(cls: type, **kwargs: Any) -> None:
            inherited: Any = super(base, cls).__init_subclass__ if defined is None else defined.__get__(None, cls)
            inherited(**kwargs)
            if self.active:
                with guard(f"{self.system}.cover"):  # runs inside the program's own class statement
                    self._wrap_present(cls, steps)

        for kind in _family(base):
            self._wrap_present(kind, steps)
        self.replace(base, "__init_subclass__", classmethod(__init_subclass__))

    def replace(self, owner: Any, name: str, replacement: Any) -> None:
        """Put `replacement` in the place of `owner.name` until `remove`."""
        with self._lock:
            original = _own(owner, name)
            setattr(owner, name, replacement)
            self._replaced.setdefault(owner, []).append((name, original, replacement))

    def remove(self) -> None:
        """Restore the originals. A wrapper that somebody else has wrapped since stays, and does nothing."""
        self.active = False
        with self._lock:
            for owner, replaced in list(self._replaced.items()):
                for name, original, replacement in reversed(replaced):
                    present = _own(owner, name)
                    parent = getattr(present, "_self_parent", None)  # others put it back as they got it: bound
                    if present is not replacement and parent is not replacement:
                        continue
                    if original is None:  # it was inherited
                        delattr(owner, name)
                    else:
                        setattr(owner, name, original)
            self._replaced.clear()
            self._covered.clear()

    def wrapped(self) -> list[tuple[Any, str]]:
        """What is wrapped now: (class or module, name)."""
        with self._lock:
            return [(owner, name) for owner, replaced in self._replaced.items() for name, _, _ in replaced]

    def _wrap_present(self, owner: type, steps: Mapping[str, StepFunction]) -> None:
        for name in vars(owner).keys() & steps.keys():
            self.wrap(owner, name, steps[name])

    def _wrap_points(self, module: Any, steps: Mapping[str, StepFunction]) -> None:
        for target, step in steps.items():
            *owners, name = target.split(".")
            owner = module
            for part in owners:
                owner = getattr(owner, part, None)
            self.wrap(owner, name, step)


def _own(owner: Any, name: str) -> Any:
    """The attribute as it lies in the namespace of a class or module, None when it has none of its own."""
    return cast(Mapping[str, Any], vars(owner)).get(name)


def _family(base: type) -> Iterator[type]:
    yield base
    for derived in base.__subclasses__():
        yield from _family(derived)
