"""Mem0 instrumentor: the memory operations of `Memory` and `AsyncMemory` as spans with their variables."""

from __future__ import annotations

import logging
from collections.abc import Collection
from importlib.metadata import PackageNotFoundError, version
from typing import Any, cast

import wrapt
from opentelemetry import trace
from opentelemetry.instrumentation.instrumentor import (
    BaseInstrumentor,  # pyright: ignore[reportMissingTypeStubs]
)
from packaging.specifiers import SpecifierSet

from memtrace_otel.capture import get_tracer
from memtrace_otel.instrumentation.mem0.patches import Patches

__all__ = ["Mem0Instrumentor"]

_SUPPORTED = ">=1.0,<3"
_logger = logging.getLogger(__name__)


class Mem0Instrumentor(BaseInstrumentor):
    """Instruments `mem0ai` 1.x and 2.x, sync and async.

    `instrument(tracer_provider=None)`; raises ModuleNotFoundError when `mem0ai` is not installed, and does nothing but
    say so when its version is out of range.
    """

    _patches: Patches | None = None

    def instrumentation_dependencies(self) -> Collection[str]:
        """The supported versions."""
        return (f"mem0ai {_SUPPORTED}",)

    def _instrument(self, **kwargs: Any) -> None:
        try:
            found = version("mem0ai")
        except PackageNotFoundError:
            raise ModuleNotFoundError("mem0ai is not installed") from None
        if not SpecifierSet(_SUPPORTED).contains(found, prereleases=True):
            _logger.warning("mem0ai %s is outside the supported range %s; not instrumented", found, _SUPPORTED)
            return
        tracer = get_tracer(__name__, cast("trace.TracerProvider | None", kwargs.get("tracer_provider")))
        self._patches = Patches(tracer)
        # Mem0 reads its environment when it is imported: the application decides when that is, not we.
        wrapt.register_post_import_hook(self._patches.apply, "mem0.memory.main")

    def _uninstrument(self, **kwargs: Any) -> None:
        if self._patches is not None:
            self._patches.remove()
            self._patches = None
