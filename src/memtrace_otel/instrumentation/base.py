"""The base of instrumentors: version check, options, wrappers, and thread pools that keep the context."""

from __future__ import annotations

import atexit
import concurrent.futures
import contextvars
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
from memtrace_otel.instrumentation.steps import Call, StepFunction, Wrapped, observed

_logger = logging.getLogger(__name__)

_GROUP = "opentelemetry_instrumentor"
CONFIG_FILE = "OTEL_CONFIG_FILE"
_LOADER_ARGUMENTS = {"skip_dep_check", "raise_exception_on_conflict"}

Configuration = make_dataclass(
    "Configuration", [(name, "object", field(default=None)) for name in settings.NAMES], frozen=True
)
"""Options of an instrumentor in the `instrumentation/development: python:` part of OTEL_CONFIG_FILE: the settings."""


Points = Mapping[str, Mapping[str, StepFunction]]
"""Module name -> name in the module (`function` or `Class.method`) -> the step around the function."""


class Patches:
    """The wrappers of one `instrument()`; they do nothing unless `active`."""

    def __init__(self, tracer: trace.Tracer, system: str) -> None:
        self.tracer, self.system = tracer, system
        self.active = True
        self.imported = self.used = False
        """Whether the program has imported the system and called a wrapped function."""
        self._suppressed = 0
        self._lock = threading.RLock()
        new_lock_after_fork(self)
        # Weak: a class that the program drops is garbage-collected.
        self._replaced: WeakKeyDictionary[Any, list[tuple[str, Any, Any]]] = WeakKeyDictionary()
        self._covered: WeakKeyDictionary[type, set[int]] = WeakKeyDictionary()

    def apply(self, points: Points) -> None:
        """Wrap a table of points, each at the import of its module. Names missing in a release are left out."""
        for package in {name.partition(".")[0] for name in points}:
            wrapt.register_post_import_hook(self._note_import, package)
        for module_name, steps in points.items():
            self.when_imported(module_name, lambda module, steps=steps: self._wrap_points(module, steps))

    def when_imported(self, module_name: str, do: Callable[[Any], None]) -> None:
        """Call `do(module)` after the application has imported the module; now if already imported.

        Nothing is imported here: libraries read their environment at import, and the application decides when.
        """

        def hook(module: ModuleType) -> None:
            if self.active:
                with guard(f"{self.system}.apply"):  # runs inside the program's own import
                    do(module)

        wrapt.register_post_import_hook(hook, module_name)

    def wrap(self, owner: Any, name: str, step: StepFunction) -> None:
        """Run `step` around `owner.name`, a name in the namespace of `owner` itself. A second call does nothing."""
        original = None if owner is None else _own(owner, name)
        if original is None:
            _logger.debug("%s.%s is not in this release of %s", getattr(owner, "__name__", owner), name, self.system)
            return
        with self._lock:
            if not any(attribute == name for attribute, _, _ in self._replaced.get(owner, ())):
                self.replace(owner, name, self.around(original, step))

    def wrap_within(self, base: type, name: str, step: StepFunction) -> None:
        """Wrap a method in `base` and in the derived classes that define it, inside wrappers that are there already.

        Another instrumentation that came first has replaced the method of a derived class, and calls the original. A
        wrapper of wrapt takes a new original: `step` then runs inside it, where the other span is current.
        """
        for kind in _family(base):
            outer: Any = None
            present = _own(kind, name)
            present = getattr(present, "_self_parent", None) or present  # others restore a bound wrapper
            while isinstance(present, _Wrapper):  # one of ours belongs to an earlier `instrument()`
                outer, present = outer if isinstance(present, Wrapped) else present, present.__wrapped__
            if outer is not None:
                outer.__wrapped__ = self.around(present, step)
            elif present is not None:
                self.replace(kind, name, self.around(present, step))

    def around(self, function: Any, step: StepFunction) -> Any:
        """`function` with `step` around each of its calls."""
        return Wrapped(function, self.wrapper(step))

    def wrapper(self, step: StepFunction) -> Callable[..., Any]:
        """The wrapper of wrapt that runs `step`."""
        return observed(step, self)

    def wrap_all(self, owner: Any, steps: Mapping[str, StepFunction]) -> None:
        """Wrap several names of one owner."""
        for name, step in steps.items():
            self.wrap(owner, name, step)

    def cover(self, kind: type, steps: Mapping[str, StepFunction]) -> None:
        """Wrap methods in the class or ancestor that defines them, once per class."""
        if id(steps) in self._covered.get(kind, ()):
            return
        with self._lock:
            for name, step in steps.items():
                self.wrap(next((owner for owner in kind.__mro__ if name in vars(owner)), None), name, step)
            self._covered.setdefault(kind, set()).add(id(steps))

    def cover_family(self, base: type, steps: Mapping[str, StepFunction]) -> None:
        """Wrap methods in `base` and in all derived classes that define them, present and future."""
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
        """Set `owner.name` to `replacement` until `remove`."""
        with self._lock:
            original = _own(owner, name)
            setattr(owner, name, replacement)
            self._replaced.setdefault(owner, []).append((name, original, replacement))

    def remove(self) -> None:
        """Restore the originals. A wrapper that other code has wrapped since stays, and does nothing."""
        self.active = False
        with self._lock:
            for owner, replaced in list(self._replaced.items()):
                for name, original, replacement in reversed(replaced):
                    present = _own(owner, name)
                    parent = getattr(present, "_self_parent", None)  # other instrumentations restore a bound wrapper
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

    def note_suppressed(self, call: Call[Any]) -> None:
        """Count a call that is not recorded, because the program suppresses instrumentation."""
        self._suppressed += 1

    def report_at_exit(self) -> None:
        """Record a span if the program imported the system but called no wrapped function, or suppressed calls."""
        with guard(f"{self.system}.exit"):
            told = {semconv.SYSTEM: self.system}
            if self.active and self._suppressed:
                lost = {semconv.LOST: self._suppressed}
                self.tracer.start_span(semconv.SUPPRESSED_SPAN, attributes={**told, **lost}).end()
            elif self.active and self.imported and not self.used:
                self.tracer.start_span(semconv.UNUSED_SPAN, attributes=told).end()

    def wrapped(self) -> list[tuple[Any, str]]:
        """The wrapped functions: (class or module, name)."""
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


_Wrapper: Any = wrapt.FunctionWrapper


def _own(owner: Any, name: str) -> Any:
    """The attribute in the namespace of a class or module itself, None without one."""
    return cast(Mapping[str, Any], vars(owner)).get(name)


def _family(base: type) -> Iterator[type]:
    yield base
    for derived in base.__subclasses__():
        yield from _family(derived)


class MemoryInstrumentor(BaseInstrumentor):
    """Instruments one memory system. A subclass sets `system` and `requirement`, and wraps functions in `patch`.

    `instrument(tracer_provider=None, **settings)` raises ModuleNotFoundError if the library is not installed, and only
    logs a version out of range. Settings have their own names (`preview_bytes=...`) and hold for the whole process; an
    invalid setting is logged and ignored. Without arguments, `enabled: false` in OTEL_CONFIG_FILE turns it off.
    """

    configuration = Configuration

    system: ClassVar[str]
    """Value of `memtrace.system`."""
    requirement: ClassVar[str]
    """Distribution and supported versions, for example `mem0ai>=1.0,<3`."""

    patches: Patches | None = None

    def make_patches(self, tracer: trace.Tracer) -> Patches:
        """The patches of one `instrument()`; a subclass with state returns its own class."""
        return Patches(tracer, self.system)

    def patch(self, patches: Any) -> None:
        """Wrap the functions of the system; `patches` comes from `make_patches`."""
        raise AttributeError(f"{type(self).__name__} defines no patch()")

    def instrumentation_dependencies(self) -> Collection[str]:
        """The supported versions."""
        return (self.requirement,)

    def instrument(self, **kwargs: Any) -> None:
        """Check the version, apply the settings and run `patch`."""
        if not kwargs.keys() - _LOADER_ARGUMENTS and _is_switched_off(type(self)):
            # The SDK skips the entry. opentelemetry-instrument does not read the file, and loads the entry.
            _logger.info("%s is switched off by %s", self.system, CONFIG_FILE)
            return
        by_file = self.is_instrumented_by_opentelemetry and os.environ.get(CONFIG_FILE)
        if by_file and kwargs.keys() == {"skip_dep_check"}:
            return  # the SDK has instrumented with the options of the file, before opentelemetry-instrument
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
        atexit.register(self.patches.report_at_exit)

    def _uninstrument(self, **kwargs: Any) -> None:
        if self.patches is not None:
            atexit.unregister(self.patches.report_at_exit)
            self.patches.remove()
            self.patches = None


def use_settings(values: Mapping[str, object]) -> None:
    """Apply settings given to `instrument()`. Invalid settings are logged, not raised: the program is starting."""
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
    """The names that a configuration file switches off; none for an unreadable file, which the SDK has logged."""
    try:
        from opentelemetry.configuration import load_config_file  # pyright: ignore[reportMissingTypeStubs]

        told = load_config_file(file).instrumentation_development
    except Exception as error:
        _logger.debug("%s: %s", file, error)
        return frozenset()
    options = (told and told.python) or {}
    return frozenset(name for name, values in options.items() if not values.get("enabled", True))


class ContextThreads(concurrent.futures.ThreadPoolExecutor):
    """A thread pool whose jobs run in the context of their submitter."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        """Schedule `fn` in a copy of the current context."""
        return super().submit(contextvars.copy_context().run, fn, *args, **kwargs)


class Namespace:
    """A module with some names replaced, for one importer only: other importers keep the original names."""

    def __init__(self, module: Any, **replaced: Any) -> None:
        self._module = module
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def with_context_threads(futures: Any) -> Namespace:
    """The module `concurrent` for one library, with thread pools that keep the context."""
    return Namespace(futures, futures=Namespace(futures.futures, ThreadPoolExecutor=ContextThreads))


def with_context_executor(asyncio: Any) -> Namespace:
    """The module `asyncio` for one library, with `run_in_executor` that keeps the context."""

    def get_running_loop() -> Namespace:
        loop = asyncio.get_running_loop()

        def run_in_executor(executor: Any, function: Callable[..., Any], *args: Any) -> Any:
            return loop.run_in_executor(executor, contextvars.copy_context().run, function, *args)

        return Namespace(loop, run_in_executor=run_in_executor)

    return Namespace(asyncio, get_running_loop=get_running_loop)
