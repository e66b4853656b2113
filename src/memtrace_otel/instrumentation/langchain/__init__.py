"""LangChain instrumentor: documents, chunks, vector stores, retrievers and answers as spans with their variables.

`langgraph` and `langmem` are the instrumentors of the two libraries on top of LangChain.
"""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.trace import Tracer

from memtrace_otel.instrumentation.base import MemoryInstrumentor, Points
from memtrace_otel.instrumentation.langchain import chat, loaders, retrieval, runs, splitters, stores
from memtrace_otel.instrumentation.langchain.state import SYSTEM, Families, LangChainState, cover
from memtrace_otel.instrumentation.steps import StepFunction

__all__ = ["LangChainInstrumentor"]

_Steps = Mapping[str, StepFunction]


class LangChainInstrumentor(MemoryInstrumentor):
    """Instruments `langchain-core` 0.3 and 1.x: all classes derived from the base classes below, in any package."""

    system = SYSTEM
    requirement = "langchain-core>=0.3.46,<2"

    def make_patches(self, tracer: Tracer) -> LangChainState:
        """The state that the steps share."""
        return LangChainState(tracer)

    def patch(self, patches: LangChainState) -> None:
        """Wrap the methods below, each once the application has imported its module."""
        patches.apply(POINTS)
        cover(patches, FAMILIES)


def _with_async(steps: _Steps) -> _Steps:
    return {**steps, **{f"a{name}": step for name, step in steps.items()}}


_STORES: _Steps = {
    "add_documents": stores.add,
    "add_texts": stores.add,
    "from_documents": stores.make,
    "from_texts": stores.make,
    "update_document": stores.update,
    "update_documents": stores.update,
    "delete": stores.delete,
    "delete_collection": stores.delete_store,
    "reset_collection": stores.delete_store,
    **dict.fromkeys(
        (
            "search",
            "similarity_search",
            "similarity_search_with_score",
            "similarity_search_with_relevance_scores",
            "similarity_search_by_vector",
            "similarity_search_with_score_by_vector",
            "similarity_search_by_vector_with_relevance_scores",
            "max_marginal_relevance_search",
            "max_marginal_relevance_search_by_vector",
            "hybrid_search",
            "get_by_ids",
        ),
        retrieval.search,
    ),
}
_RETRIEVERS: _Steps = {
    "_get_relevant_documents": retrieval.retrieve,
    "_aget_relevant_documents": retrieval.retrieve,
    "invoke": retrieval.invoke,
    "ainvoke": retrieval.invoke,
}
_MODELS: _Steps = {
    "_generate": chat.answer,
    "_agenerate": chat.answer,
    "_stream": chat.stream,
    "_astream": chat.stream,
}
_LOADERS: _Steps = {
    "load": loaders.load,
    "aload": loaders.load,
    "lazy_load": loaders.lazy_load,
    "alazy_load": loaders.lazy_load,
}
_SPLITTERS: _Steps = dict.fromkeys(
    ("split_documents", "create_documents", "split_text", "transform_documents"), splitters.split
)
_OTHER_SPLITTERS = (  # do not derive from `TextSplitter`
    ("markdown", "MarkdownHeaderTextSplitter"),
    ("markdown", "ExperimentalMarkdownSyntaxTextSplitter"),
    ("html", "HTMLHeaderTextSplitter"),
    ("html", "HTMLSectionSplitter"),
    ("html", "HTMLSemanticPreservingSplitter"),
    ("json", "RecursiveJsonSplitter"),
)

FAMILIES: Families = {
    ("langchain_core.vectorstores.base", "VectorStore"): _with_async(_STORES),
    ("langchain_core.retrievers", "BaseRetriever"): _RETRIEVERS,
    ("langchain_core.documents.compressor", "BaseDocumentCompressor"): _with_async(
        {"compress_documents": retrieval.compress}
    ),
    ("langchain_core.language_models.chat_models", "BaseChatModel"): _MODELS,
    ("langchain_core.language_models.llms", "BaseLLM"): _MODELS,
    ("langchain_text_splitters.base", "TextSplitter"): _SPLITTERS,
    **{(f"langchain_text_splitters.{module}", name): _SPLITTERS for module, name in _OTHER_SPLITTERS},
    ("langchain_core.document_loaders.base", "BaseLoader"): _LOADERS,
}

_STARTS: _Steps = {
    "on_chain_start": runs.chain_starts,
    "on_retriever_start": runs.part_starts,
    "on_tool_start": runs.part_starts,
    "on_chat_model_start": runs.model_starts,
    "on_llm_start": runs.model_starts,
}
_ENDS: Mapping[str, _Steps] = {
    kind: {f"on_{kind.lower()}_{end}": runs.run_ends for end in ("end", "error")} for kind in ("Chain", "Retriever")
} | {"Tool": {"on_tool_end": runs.tool_ends, "on_tool_error": runs.run_ends}}

POINTS: Points = {
    "langchain_core.callbacks.manager": {
        f"{prefix}CallbackManager{suffix}.{method}": step
        for prefix in ("", "Async")
        for suffix, steps in (("", _STARTS), *((f"For{kind}Run", ends) for kind, ends in _ENDS.items()))
        for method, step in steps.items()
    }
}
