"""Queues of EverOS: deferred work runs in the trace context of its submitter.

EverOS passes a traceparent to its background strategies and nothing to its queue of memorize requests.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, cast

from opentelemetry import context as otel_context
from opentelemetry.context import Context

from memtrace_otel.capture import guard
from memtrace_otel.instrumentation.base import Patches
from memtrace_otel.instrumentation.steps import Wrapped

ENGINE = "everos.infra.ome.engine"
RUNNER = "everos.infra.ome._dispatch.runner"
REQUESTS = "everos.service.memorize_queue"
_WAITING = 10_000


class Queues:
    """The contexts of waiting runs and requests, by their ids; at most 10,000, the oldest are forgotten first."""

    def __init__(self) -> None:
        self._contexts: OrderedDict[str, Context] = OrderedDict()

    def join(self, patches: Patches) -> None:
        """Wrap the functions that put work into a queue and take work out of a queue."""
        for module, owner, name, wrapper in (
            (ENGINE, "OfflineEngine", "_enqueue_run", self._put_run),
            (RUNNER, "Runner", "run", self._take_run),
            (REQUESTS, "MemorizeQueueWorker", "enqueue", self._put_request),
            (REQUESTS, "MemorizeQueueWorker", "_process", self._take_request),
        ):
            patches.when_imported(module, lambda loaded, place=(owner, name, wrapper): _wrap(patches, loaded, *place))

    def _put_run(self, wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with guard("everos.queues"):
            self._keep(kwargs["run_id"] if "run_id" in kwargs else args[2])
        return wrapped(*args, **kwargs)

    async def _take_run(self, wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return await self._within(kwargs.get("run_id"), wrapped, args, kwargs)

    async def _put_request(self, wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with guard("everos.queues"):
            self._keep(kwargs.get("request_id"))
        return await wrapped(*args, **kwargs)

    async def _take_request(self, wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        row = args[0] if args else kwargs.get("row")
        return await self._within(getattr(row, "request_id", None), wrapped, args, kwargs)

    def _keep(self, id: object) -> None:
        self._contexts[str(id)] = otel_context.get_current()
        while len(self._contexts) > _WAITING:
            self._contexts.popitem(last=False)

    async def _within(self, id: object, wrapped: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        kept = self._contexts.pop(str(id), None)
        if kept is None:
            return await wrapped(*args, **kwargs)
        token = otel_context.attach(kept)
        try:
            return await wrapped(*args, **kwargs)
        finally:
            otel_context.detach(token)


def _wrap(patches: Patches, module: Any, owner_name: str, name: str, wrapper: Any) -> None:
    owner: Any = getattr(module, owner_name, None)
    original: Any = cast("dict[str, Any]", vars(owner)).get(name) if owner is not None else None
    if original is not None:
        patches.replace(owner, name, Wrapped(original, wrapper))
