"""Mem0 instrumentor: the operations of `Memory` and `MemoryClient`, sync and async, as spans with their variables.

    Mem0Instrumentor().instrument()

The tables below name every wrapped function and the step that runs around it. A name that a release lacks is left out.
"""

from __future__ import annotations

from typing import Any

from opentelemetry.trace import Tracer

from memtrace_otel.instrumentation.base import MemoryInstrumentor, with_context_threads
from memtrace_otel.instrumentation.mem0 import client, extraction, graph, memory, stores, writes
from memtrace_otel.instrumentation.mem0.state import Mem0Patches
from memtrace_otel.instrumentation.steps import StepFunction

__all__ = ["Mem0Instrumentor"]

METHODS: dict[str, StepFunction] = {
    "add": memory.add,
    "search": memory.search,
    "get": memory.get,
    "get_all": memory.get_all,
    "history": memory.history,
    "update": memory.update,
    "delete": memory.delete,
    "delete_all": memory.delete_all,
    "reset": memory.reset,
    "_add_to_vector_store": extraction.add_to_vector_store,
    "_create_procedural_memory": extraction.create_procedural_memory,
    "_compute_entity_boosts": stores.entity_boosts,  # 2.x
    "_compute_entity_boosts_async": stores.entity_boosts,  # 2.x
    "_add_to_graph": graph.add_to_graph,  # 1.x
    "_create_memory": writes.create_memory,
    "_update_memory": writes.update_memory,
    "_delete_memory": writes.delete_memory,
}
"""Methods of `Memory` and `AsyncMemory`; coroutines in AsyncMemory."""

FUNCTIONS: dict[str, StepFunction] = {
    "generate_additive_extraction_prompt": extraction.additive_extraction_prompt,  # 2.x
    "score_and_rank": stores.score_and_rank,  # 2.x
    "get_update_memory_messages": extraction.decision_prompt,  # 1.x
}
"""Names that `mem0.memory.main` has imported: a wrapper in the module that defines them would have no effect."""

PROVIDERS: dict[str, dict[str, StepFunction]] = {
    "vector_store": {
        "search": stores.search,
        "get": stores.get,
        "list": stores.listing,
        "keyword_search": stores.keyword_search,  # 2.x
        "insert": stores.insert,
        "update": stores.update,
        "delete": stores.delete,
        "reset": stores.reset,
    },
    "embedding_model": {"embed": stores.embed, "embed_batch": stores.embed},
    "llm": {"generate_response": extraction.generate_response},
    "graph": {
        "search": graph.search,
        "delete": graph.delete,
        "delete_all": graph.delete_all,
        "_retrieve_nodes_from_data": graph.extract_entities,
        "_establish_nodes_relations_from_data": graph.extract_relations,
        "_search_graph_db": graph.search_graph,
        "_get_delete_entities_from_search_output": graph.decide_deletions,
        "_delete_entities": graph.delete_relations,
        "_add_entities": graph.add_relations,
    },  # 1.x
    "graph.llm": {"generate_response": extraction.generate_response},
    "reranker": {"rerank": stores.rerank},
    "db": {
        "save_messages": extraction.save_messages,  # 2.x
        "get_last_messages": extraction.get_last_messages,  # 2.x
    },
}
"""Attributes of a Memory, and the methods of the objects that they hold."""

CLIENT_METHODS: dict[str, StepFunction] = {
    "add": client.add,
    "search": client.search,
    "get": client.get,
    "get_all": client.get_all,
    "history": client.history,
    "update": client.update,
    "batch_update": client.batch_update,
    "delete": client.delete,
    "batch_delete": client.batch_delete,
    "delete_all": client.delete_all,
    "delete_users": client.delete_users,
    "reset": client.reset,
}

POINTS: dict[str, dict[str, StepFunction]] = {
    "mem0.client.main": {
        f"{name}.{method}": step
        for name in ("MemoryClient", "AsyncMemoryClient")
        for method, step in CLIENT_METHODS.items()
    },
}
"""Modules, and the names in them."""


class Mem0Instrumentor(MemoryInstrumentor):
    """Instruments `mem0ai` 1.x and 2.x, sync and async."""

    system = "mem0"
    requirement = "mem0ai>=1.0,<3"

    def make_patches(self, tracer: Tracer) -> Mem0Patches:
        """Patches with the state of Mem0."""
        return Mem0Patches(tracer, _cover_providers)

    def patch(self, patches: Mem0Patches) -> None:
        """Wrap the modules of Mem0 once the application has imported them."""
        patches.when_imported("mem0.memory.main", lambda main: _wrap_main(patches, main))
        patches.apply(POINTS)


def _wrap_main(patches: Mem0Patches, main: Any) -> None:
    """Wrap `mem0.memory.main`, and let its thread pools keep the context."""
    patches.main = main
    for class_name in ("Memory", "AsyncMemory"):
        patches.wrap_all(getattr(main, class_name, None), METHODS)
    patches.wrap_all(main, FUNCTIONS)
    futures = getattr(main, "concurrent", None)
    if futures is not None:
        patches.replace(main, "concurrent", with_context_threads(futures))


def _cover_providers(patches: Mem0Patches, memory: Any) -> None:
    """Wrap the methods of the providers of a Memory in use, once per provider class.

    The wrapping at use does not depend on when a provider was built, by whom, and from which package.
    """
    for attribute, steps in PROVIDERS.items():
        provider: object = memory
        for name in attribute.split("."):
            provider = getattr(provider, name, None)
        if provider is not None:
            patches.cover(type(provider), steps)
