"""Work that EverOS puts off stays unrecorded when it was put off under `suppress_instrumentation()`.

EverOS carries the trace of a request over to its background strategies, and nothing else of the context.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, cast

import wrapt
from opentelemetry.instrumentation.utils import is_instrumentation_enabled, suppress_instrumentation

from memtrace_otel.capture import guard
from memtrace_otel.instrumentation.patches import Patches

ENGINE = "everos.infra.ome.engine"
RUNNER = "everos.infra.ome._dispatch.runner"
_RUNS = 10_000


class Suppression:
    """The runs that were enqueued while instrumentation was suppressed."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, None] = OrderedDict()

    def join(self, patches: Patches) -> None:
        """Wrap where a run is put into the queue and where it is taken out."""
        patches.when_imported(
            ENGINE, lambda module: _wrap(patches, module.OfflineEngine, "_enqueue_run", self._enqueue)
        )
        patches.when_imported(RUNNER, lambda module: _wrap(patches, module.Runner, "run", self._run))

    def _enqueue(self, wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with guard("everos.suppression"):
            if not is_instrumentation_enabled():
                run_id = kwargs["run_id"] if "run_id" in kwargs else args[2]
                self._runs[str(run_id)] = None
                while len(self._runs) > _RUNS:
                    self._runs.popitem(last=False)
        return wrapped(*args, **kwargs)

    async def _run(self, wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs.get("run_id") not in self._runs:
            return await wrapped(*args, **kwargs)
        with suppress_instrumentation():
            return await wrapped(*args, **kwargs)


def _wrap(patches: Patches, owner: Any, name: str, wrapper: Any) -> None:
    original: Any = cast("dict[str, Any]", vars(owner)).get(name)
    if original is not None:
        patches.replace(owner, name, wrapt.FunctionWrapper(original, wrapper))
