"""The methods of attribution by name, and those that ask a model about the verdict of the rules on one case."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import TypeVar

from memtrace_otel.attribution.agent import AGENT, WITH_RULES, Agent
from memtrace_otel.attribution.apply_rules import METHOD, WITH_MODEL, attribute_with_model
from memtrace_otel.attribution.endpoint import Endpoint
from memtrace_otel.attribution.model_reader import open_reader
from memtrace_otel.graph import EvolutionGraph
from memtrace_otel.model import Verdict

T = TypeVar("T")
R = TypeVar("R")
METHODS = (METHOD, WITH_MODEL, AGENT, WITH_RULES)


@dataclass(frozen=True, slots=True)
class Ask:
    """Makes the verdict of a model of the verdict of the rules on one case. Never raises; safe in several threads."""

    made_by: str
    """`method` of a verdict that the model made."""
    model: str
    endpoint: Endpoint
    refine: Callable[[EvolutionGraph, Verdict], Verdict]

    def __call__(self, graph: EvolutionGraph, verdict: Verdict) -> Verdict:
        """Return the verdict of the model, `verdict` where the model was not asked or did not tell."""
        return self.refine(graph, verdict)

    def made(self, verdict: Verdict) -> bool:
        """Return whether this method and this model made a verdict."""
        return (verdict.method, verdict.model) == (self.made_by, self.model)


def ask_with(method: str, endpoint: Endpoint) -> Ask | None:
    """Return what asks the model of a method, None for `rules`.

    Raises ValueError when no model is named, or no endpoint is set.
    """
    if method == METHOD:
        return None
    if method == WITH_MODEL:
        reader = open_reader(endpoint)
        return Ask(WITH_MODEL, reader.name, endpoint, partial(attribute_with_model, reader=reader))
    return Ask(AGENT, endpoint.model, endpoint, Agent(endpoint, always=method == AGENT))


def in_threads(work: Callable[[T], R], items: Iterable[T], concurrency: int) -> Iterator[R]:
    """Yield what `work` makes of each item, as soon as it is made; `concurrency` items are at work at a time.

    The threads are daemons: an interrupted command waits for no call.
    """
    running: set[Future[R]] = set()

    def start(item: T) -> None:
        future: Future[R] = Future()
        running.add(future)

        def run() -> None:
            try:
                future.set_result(work(item))
            except BaseException as error:  # raised again by the caller's thread
                future.set_exception(error)

        Thread(target=run, daemon=True).start()

    def done() -> Iterator[R]:
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            running.remove(future)
            yield future.result()

    for item in items:
        start(item)
        if len(running) >= concurrency:
            yield from done()
    while running:
        yield from done()
