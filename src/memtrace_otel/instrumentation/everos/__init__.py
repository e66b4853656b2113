"""EverOS instrumentor: the embedded memory framework `everos` 1.x, from the message to the answer's search."""

from __future__ import annotations

from typing import Any

from opentelemetry.trace import Tracer, TracerProvider

from memtrace_otel.instrumentation.base import MemoryInstrumentor
from memtrace_otel.instrumentation.everos.ingest import memorize
from memtrace_otel.instrumentation.everos.patches import SYSTEM, EverosPatches
from memtrace_otel.instrumentation.everos.points import IMPORTERS, POINTS
from memtrace_otel.instrumentation.everos.queues import Queues
from memtrace_otel.instrumentation.everos.tracing import TRACING, join

__all__ = ["EverosInstrumentor"]


class EverosInstrumentor(MemoryInstrumentor):
    """Instruments `everos` running in process: writing, background strategies, indexing and all search methods."""

    system = SYSTEM
    requirement = "everos>=1.2,<2"

    _provider: TracerProvider | None = None

    def make_patches(self, tracer: Tracer) -> EverosPatches:
        """Patches that know the memcells of EverOS and where its own spans are to go."""
        return EverosPatches(tracer, self._provider)

    def patch(self, patches: EverosPatches) -> None:
        """Wrap the modules of EverOS as the application imports them, and let its own spans join the pipeline."""
        patches.apply(POINTS)
        patches.wrap_importers("everos.service.memorize", "memorize", memorize, IMPORTERS)
        Queues().join(patches)
        patches.when_imported(TRACING, lambda attributes: join(patches, attributes))

    def _instrument(self, **kwargs: Any) -> None:
        self._provider = kwargs.get("tracer_provider")
        super()._instrument(**kwargs)
