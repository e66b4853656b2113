"""The base of our instrumentors: version check, options, tracer, wrapping and unwrapping."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import field, make_dataclass
from importlib.metadata import PackageNotFoundError, version
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

Configuration = make_dataclass(
    "Configuration", [(name, "object", field(default=None)) for name in settings.NAMES], frozen=True
)
"""Options of an instrumentor in the `instrumentation/development: python:` part of OTEL_CONFIG_FILE: our settings."""


class MemoryInstrumentor(BaseInstrumentor):
    """Instruments one memory system. A subclass names its `system` and `requirement` and says in `patch` what to wrap.

    `instrument(tracer_provider=None, **settings)` raises ModuleNotFoundError when the library is not installed, and
    does nothing but say so when its version is out of range. Settings go by their names (`preview_bytes=...`) and hold
    for the whole process; one that cannot be used is named in the log and left out.
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
