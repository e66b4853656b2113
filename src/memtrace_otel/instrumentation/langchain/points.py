"""Where LangChain is wrapped: base classes whose methods every derived class may define anew, and their steps.

A plain method and its coroutine twin (`a` + name) share a step.
"""

from __future__ import annotations

from collections.abc import Mapping

from memtrace_otel.instrumentation.base import Points
from memtrace_otel.instrumentation.langchain import chat, loaders, retrieval, runs, splitters, stores
from memtrace_otel.instrumentation.steps import StepFunction

_STORES: Mapping[str, StepFunction] = {
    "add_documents": stores.add,
    "add_texts": stores.add,
    "from_documents": stores.make,
    "from_texts": stores.make,
    "update_document": stores.update,
    "update_documents": stores.update,
    "delete": stores.delete,
    "delete_collection": stores.delete_store,
    "reset_collection": stores.delete_store,
    "search": retrieval.search,
    "similarity_search": retrieval.search,
    "similarity_search_with_score": retrieval.search,
    "similarity_search_with_relevance_scores": retrieval.search,
    "similarity_search_by_vector": retrieval.search,
    "similarity_search_with_score_by_vector": retrieval.search,
    "similarity_search_by_vector_with_relevance_scores": retrieval.search,
    "max_marginal_relevance_search": retrieval.search,
    "max_marginal_relevance_search_by_vector": retrieval.search,
    "hybrid_search": retrieval.search,
    "get_by_ids": retrieval.search,
}
_SPLITTERS: Mapping[str, StepFunction] = {
    "split_documents": splitters.split,
    "create_documents": splitters.split,
    "split_text": splitters.split,
    "transform_documents": splitters.split,
}
_OTHER_SPLITTERS = (
    ("markdown", "MarkdownHeaderTextSplitter"),
    ("markdown", "ExperimentalMarkdownSyntaxTextSplitter"),
    ("html", "HTMLHeaderTextSplitter"),
    ("html", "HTMLSectionSplitter"),
    ("html", "HTMLSemanticPreservingSplitter"),
    ("json", "RecursiveJsonSplitter"),
)
"""Module and class of those that do not derive from `TextSplitter`."""
_LOADERS: Mapping[str, StepFunction] = {
    "load": loaders.load,
    "aload": loaders.load,
    "lazy_load": loaders.lazy_load,
    "alazy_load": loaders.lazy_load,
}


_STARTS: Mapping[str, StepFunction] = {
    "on_chain_start": runs.chain_starts,
    "on_retriever_start": runs.part_starts,
    "on_tool_start": runs.part_starts,
    "on_chat_model_start": runs.model_starts,
    "on_llm_start": runs.model_starts,
}


def _and_async(steps: Mapping[str, StepFunction]) -> Mapping[str, StepFunction]:
    return {**steps, **{f"a{name}": step for name, step in steps.items()}}


_MODELS = {
    "_generate": chat.answer,
    "_agenerate": chat.answer,
    "_stream": chat.stream,
    "_astream": chat.stream,
}

FAMILIES: Mapping[tuple[str, str], Mapping[str, StepFunction]] = {
    ("langchain_core.vectorstores.base", "VectorStore"): _and_async(_STORES),
    ("langchain_core.retrievers", "BaseRetriever"): {
        "_get_relevant_documents": retrieval.retrieve,
        "_aget_relevant_documents": retrieval.retrieve,
        "invoke": retrieval.invoke,
        "ainvoke": retrieval.invoke,
    },
    ("langchain_core.documents.compressor", "BaseDocumentCompressor"): _and_async(
        {"compress_documents": retrieval.compress}
    ),
    ("langchain_core.language_models.chat_models", "BaseChatModel"): _MODELS,
    ("langchain_core.language_models.llms", "BaseLLM"): _MODELS,
    ("langchain_text_splitters.base", "TextSplitter"): _SPLITTERS,
    **{(f"langchain_text_splitters.{module}", name): _SPLITTERS for module, name in _OTHER_SPLITTERS},
    ("langchain_core.document_loaders.base", "BaseLoader"): _LOADERS,
}
"""Module and class -> the steps of its methods, where it or a class derived from it defines them."""

_ENDS: Mapping[str, Mapping[str, StepFunction]] = {
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
