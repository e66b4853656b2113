"""The base of our instrumentors: version check, options, and the wrappers that they put in place and take away."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import field, make_dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, entry_points, version
from types import ModuleType
from typing import Any, ClassVar, cast
from weakref import WeakKeyDictionary

import wrapt
from opentelemetry import trace
from opentelemetry.instrumentation.instrumentor import (
    BaseInstrumentor,  # pyright: ignore[reportMissingTypeStubs]
)
from packaging.requirements import Requirement

from memtrace_otel import semconv, settings
from memtrace_otel.capture import get_tracer, guard, use_config
from memtrace_otel.capture.fork import new_lock_after_fork
from memtrace_otel.instrumentation.steps import StepFunction, Wrapped, observed

_logger = logging.getLogger(__name__)

_GROUP = "opentelemetry_instrumentor"
CONFIG_FILE = "OTEL_CONFIG_FILE"
_LOADER_ARGUMENTS = {"skip_dep_check", "raise_exception_on_conflict"}

Configuration = make_dataclass(
    "Configuration", [(name, "object", field(default=None)) for name in settings.NAMES], frozen=True
)
"""Options of an instrumentor in the `instrumentation/development: python:` part of OTEL_CONFIG_FILE: our settings."""


Points = Mapping[str, Mapping[str, StepFunction]]
"""Module name -> names in it (`function` or `Class.method`) -> the step that runs around them."""


class Patches:
    """The wrappers of one `instrument()`; they do nothing unless `active`."""

    def __init__(self, tracer: trace.Tracer, system: str) -> None:
        self.tracer, self.system = tracer, system
        self.active = True
        self.imported = self.used = False
        """Whether the program has imported the system, and called a wrapped function."""
        self._lock = threading.RLock()
        new_lock_after_fork(self)
        # Weak: a class that the program lets go is not kept for our sake.
        self._replaced: WeakKeyDictionary[Any, list[tuple[str, Any, Any]]] = WeakKeyDictionary()
        self._covered: WeakKeyDictionary[type, set[int]] = WeakKeyDictionary()

    def apply(self, points: Points) -> None:
        """Wrap a table of points, each when its module is imported. A name that a release lacks is left out."""
        for package in {name.partition(".")[0] for name in points}:
            wrapt.register_post_import_hook(self._note_import, package)
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

    def _note_import(self, module: ModuleType) -> None:
        self.imported = True

    def report_unused(self) -> None:
        """At exit, record a span when the program imported the system but called no wrapped function."""
        with guard(f"{self.system}.unused"):
            if self.active and self.imported and not self.used:
                self.tracer.start_span(semconv.UNUSED_SPAN, attributes={semconv.SYSTEM: self.system}).end()

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


class MemoryInstrumentor(BaseInstrumentor):
    """Instruments one memory system. A subclass names its `system` and `requirement` and says in `patch` what to wrap.

    `instrument(tracer_provider=None, **settings)` raises ModuleNotFoundError when the library is not installed, and
    does nothing but say so when its version is out of range. Settings go by their names (`preview_bytes=...`) and hold
    for the whole process; one that cannot be used is named in the log and left out. Without arguments it does what
    `opentelemetry-instrument` does: nothing where OTEL_CONFIG_FILE says `enabled: false`.
    """

    configuration = Configuration

    system: ClassVar[str]
    """Value of `memtrace.system`."""
    requirement: ClassVar[str]
    """Distribution and supported versions, for example `mem0ai>=1.0,<3`."""

    patches: Patches | None = None

    def make_patches(self, tracer: trace.Tracer) -> Patches:
        """The patches of one `instrument()`; a subclass returns its own class to keep state beside them."""
        return Patches(tracer, self.system)

    def patch(self, patches: Any) -> None:
        """Say what to wrap; `patches` is what `make_patches` returned."""
        raise AttributeError(f"{type(self).__name__} does not say what to wrap")

    def instrumentation_dependencies(self) -> Collection[str]:
        """The supported versions."""
        return (self.requirement,)

    def instrument(self, **kwargs: Any) -> None:
        """Wrap what `patch` says."""
        if not kwargs.keys() - _LOADER_ARGUMENTS and _is_switched_off(type(self)):
            # The SDK passes over it; opentelemetry-instrument, which does not read the file, loads it all the same.
            _logger.info("%s is switched off by %s", self.system, CONFIG_FILE)
            return
        by_file = self.is_instrumented_by_opentelemetry and os.environ.get(CONFIG_FILE)
        if by_file and kwargs.keys() == {"skip_dep_check"}:
            return  # by the SDK, with the options of the file, before opentelemetry-instrument loads every instrumentor
        super().instrument(**kwargs)

    def _instrument(self, **kwargs: Any) -> None:
        requirement = Requirement(self.requirement)
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            raise ModuleNotFoundError(f"{requirement.name} is not installed") from None
        if not requirement.specifier.contains(found, prereleases=True):
            _logger.warning(
                "%s %s is outside the supported range %s; not instrumented",
                requirement.name,
                found,
                requirement.specifier,
            )
            return
        use_settings({name: value for name, value in kwargs.items() if name in settings.NAMES})
        provider = cast("trace.TracerProvider | None", kwargs.get("tracer_provider"))
        self.patches = self.make_patches(get_tracer(type(self).__module__, provider))
        self.patch(self.patches)
        atexit.register(self.patches.report_unused)

    def _uninstrument(self, **kwargs: Any) -> None:
        if self.patches is not None:
            atexit.unregister(self.patches.report_unused)
            self.patches.remove()
            self.patches = None


def use_settings(values: Mapping[str, object]) -> None:
    """Apply settings given to `instrument()`. Called while the program starts: what is wrong is logged, not raised."""
    for name, value in values.items():
        try:
            settings.override({name: value})
        except ValueError as error:
            _logger.warning("%s", error)
    if values:
        use_config(None)


def _is_switched_off(kind: type[MemoryInstrumentor]) -> bool:
    """Whether OTEL_CONFIG_FILE says `enabled: false` under the entry point of an instrumentor."""
    file = os.environ.get(CONFIG_FILE)
    if not file or not (disabled := switched_off_in(file)):
        return False
    place = f"{kind.__module__}:{kind.__qualname__}"
    return any(entry.value == place for entry in entry_points(group=_GROUP) if entry.name in disabled)


@cache
def switched_off_in(file: str) -> frozenset[str]:
    """The names that a configuration file switches off; none when it cannot be read, which the SDK has told then."""
    try:
        from opentelemetry.configuration import load_config_file  # pyright: ignore[reportMissingTypeStubs]

        told = load_config_file(file).instrumentation_development
    except Exception as error:
        _logger.debug("%s: %s", file, error)
        return frozenset()
    options = (told and told.python) or {}
    return frozenset(name for name, values in options.items() if not values.get("enabled", True))
