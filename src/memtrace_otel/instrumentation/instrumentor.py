"""The base of our instrumentors: version check, options, tracer, wrapping and unwrapping."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping
from dataclasses import field, make_dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, entry_points, version
from typing import Any, ClassVar, cast

from opentelemetry import trace
from opentelemetry.instrumentation.instrumentor import (
    BaseInstrumentor,  # pyright: ignore[reportMissingTypeStubs]
)
from packaging.requirements import Requirement

from memtrace_otel import settings
from memtrace_otel.capture import get_tracer, use_config
from memtrace_otel.instrumentation.patches import Patches

_logger = logging.getLogger(__name__)

_GROUP = "opentelemetry_instrumentor"
CONFIG_FILE = "OTEL_CONFIG_FILE"
_LOADER_ARGUMENTS = {"skip_dep_check", "raise_exception_on_conflict"}

Configuration = make_dataclass(
    "Configuration", [(name, "object", field(default=None)) for name in settings.NAMES], frozen=True
)
"""Options of an instrumentor in the `instrumentation/development: python:` part of OTEL_CONFIG_FILE: our settings."""


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

    def _uninstrument(self, **kwargs: Any) -> None:
        if self.patches is not None:
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
