"""Where Mem0 is wrapped: every name, and the step that runs around it. A name that a release lacks is left out."""

from __future__ import annotations

from memtrace_otel.instrumentation.mem0 import (
    collections,
    decision,
    earlier_messages,
    entities,
    extraction,
    graph,
    model_calls,
    pipeline,
    providers,
    public,
    stores,
    writes,
)
from memtrace_otel.instrumentation.steps import StepFunction

CLASSES = ("Memory", "AsyncMemory")

METHODS: dict[str, StepFunction] = {
    "__init__": collections.make_memory,
    "add": public.add,
    "search": public.search,
    "get": public.get,
    "get_all": public.get_all,
    "history": public.history,
    "update": public.update,
    "delete": public.delete,
    "delete_all": public.delete_all,
    "reset": public.reset,
    "_add_to_vector_store": pipeline.add_to_vector_store,
    "_compute_entity_boosts": entities.boosts,  # 2.x
    "_compute_entity_boosts_async": entities.boosts,  # 2.x
    "_add_to_graph": graph.add_to_graph,  # 1.x
    "_create_procedural_memory": pipeline.create_procedural_memory,
    "_create_memory": writes.create_memory,
    "_update_memory": writes.update_memory,
    "_delete_memory": writes.delete_memory,
}
"""Of both classes; coroutines in AsyncMemory."""

FUNCTIONS: dict[str, StepFunction] = {
    "generate_additive_extraction_prompt": extraction.additive_extraction_prompt,  # 2.x
    "score_and_rank": providers.score_and_rank,  # 2.x
    "get_update_memory_messages": decision.decision_prompt,  # 1.x
}
"""Of `mem0.memory.main`, which took them over by name: patching the modules that define them has no effect."""

PROVIDERS: dict[str, dict[str, StepFunction]] = {
    "vector_store": {
        "search": stores.search,
        "get": stores.get,
        "list": stores.listing,
        "keyword_search": stores.keyword_search,  # 2.x
        "insert": stores.insert,
        "update": stores.update,
        "delete": stores.delete,
    },
    "_entity_store": {
        "insert": stores.insert,
        "update": stores.update,
        "delete": stores.delete,
    },  # 2.x; made when the first entity is stored, of the same class
    "embedding_model": {"embed": providers.embed, "embed_batch": providers.embed},
    "llm": {"generate_response": model_calls.generate_response},
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
    "graph.llm": {"generate_response": model_calls.generate_response},
    "reranker": {"rerank": providers.rerank},
    "db": {
        "add_history": providers.add_history,
        "batch_add_history": providers.add_history,
        "save_messages": earlier_messages.save,  # 2.x
        "get_last_messages": earlier_messages.read,  # 2.x
    },
}
"""Attributes of a Memory and the methods of the objects they hold."""
