"""LlamaIndex instrumentor: ingestion, retrieval, answers and chat memory as spans with their variables.

    LlamaIndexInstrumentor().instrument()

The tables below name every wrapped function and the step that runs around it. A name that a release lacks is left out.
"""

from __future__ import annotations

from typing import Any

from opentelemetry.trace import Tracer

from memtrace_otel.instrumentation.base import MemoryInstrumentor, Points, with_context_executor, with_context_threads
from memtrace_otel.instrumentation.llamaindex import agents, answers, blocks, ingestion, memory, retrieval, stores
from memtrace_otel.instrumentation.llamaindex.state import LlamaIndexPatches
from memtrace_otel.instrumentation.steps import StepFunction

__all__ = ["LlamaIndexInstrumentor"]

_CORE = "llama_index.core"


def _both(class_name: str, steps: dict[str, StepFunction]) -> dict[str, StepFunction]:
    """The methods of a class and their async variants, whose names begin with an `a`."""
    return {f"{class_name}.{prefix}{name}": step for name, step in steps.items() for prefix in ("", "a")}


_MEMORY = {
    "get": memory.get,
    "get_all": memory.get,
    "put": memory.put,
    "set": memory.set_messages,
    "reset": memory.reset,
}
_CHAT = {"chat": answers.chat, "stream_chat": answers.chat}

POINTS: Points = {
    f"{_CORE}.ingestion.pipeline": _both("IngestionPipeline", {"run": ingestion.run}),
    f"{_CORE}.indices.base": {
        "BaseIndex.from_documents": ingestion.from_documents,
        **_both(
            "BaseIndex",
            {
                "insert": ingestion.insert,
                "update_ref_doc": ingestion.insert,
                "refresh_ref_docs": ingestion.refresh,
            },
        ),
    },
    f"{_CORE}.node_parser.interface": _both("NodeParser", {"get_nodes_from_documents": ingestion.segment}),
    f"{_CORE}.storage.docstore.keyval_docstore": {
        "KVDocumentStore.add_documents": stores.add_documents,
        "KVDocumentStore.async_add_documents": stores.add_documents,
        **_both("KVDocumentStore", {"delete_ref_doc": stores.delete}),
    },
    f"{_CORE}.postprocessor.types": _both("BaseNodePostprocessor", {"postprocess_nodes": retrieval.rerank}),
    f"{_CORE}.response_synthesizers.base": _both("BaseSynthesizer", {"synthesize": answers.synthesize}),
    f"{_CORE}.base.base_query_engine": _both("BaseQueryEngine", {"query": answers.query}),
    f"{_CORE}.agent.workflow.base_agent": {
        "BaseWorkflowAgent.run": agents.run,
        "BaseWorkflowAgent._call_tool": agents.call_tool,
    },
    f"{_CORE}.agent.workflow.multi_agent_workflow": {
        "AgentWorkflow.run": agents.run,
        "AgentWorkflow._call_tool": agents.call_tool,
    },
    f"{_CORE}.workflow.workflow": {"Workflow.run": agents.run_workflow},
    f"{_CORE}.chat_engine.simple": _both("SimpleChatEngine", _CHAT),
    f"{_CORE}.chat_engine.context": _both("ContextChatEngine", _CHAT),
    f"{_CORE}.chat_engine.condense_question": _both("CondenseQuestionChatEngine", _CHAT),
    f"{_CORE}.chat_engine.condense_plus_context": _both("CondensePlusContextChatEngine", _CHAT),
    f"{_CORE}.chat_engine.multi_modal_context": _both("MultiModalContextChatEngine", _CHAT),
    f"{_CORE}.chat_engine.multi_modal_condense_plus_context": _both("MultiModalCondensePlusContextChatEngine", _CHAT),
    f"{_CORE}.memory.memory": {
        "Memory.aget": memory.get,
        "Memory.aget_all": memory.get,
        "Memory.aput": memory.put,
        "Memory.aput_messages": memory.put,
        "Memory.aset": memory.set_messages,
        "Memory.areset": memory.reset,
        "BaseMemoryBlock.aput": blocks.put,
        "BaseMemoryBlock.aget": blocks.get,
    },
    f"{_CORE}.memory.memory_blocks.fact": {
        "FactExtractionMemoryBlock._aput": blocks.extract,
        "FactExtractionMemoryBlock._parse_facts_xml": blocks.parse_reply,
    },
    f"{_CORE}.memory.types": _both("BaseChatStoreMemory", _MEMORY),
    f"{_CORE}.memory.chat_memory_buffer": _both("ChatMemoryBuffer", _MEMORY),
    f"{_CORE}.memory.chat_summary_memory_buffer": _both("ChatSummaryMemoryBuffer", _MEMORY),
    f"{_CORE}.chat_engine.types": {
        "StreamingAgentChatResponse.__init__": answers.stream_chat_response,
        **_both("StreamingAgentChatResponse", {"write_response_to_history": answers.write_to_history}),
    },
}

RETRIEVER: dict[str, StepFunction] = {"retrieve": retrieval.retrieve, "aretrieve": retrieval.retrieve}
"""Methods of `BaseRetriever`, wrapped inside the decorators of LlamaIndex and of other instrumentations."""

AGENT: dict[str, StepFunction] = {"finalize": agents.finalize}
"""Methods of every agent that derives from `BaseWorkflowAgent`."""

VECTOR_STORE: dict[str, StepFunction] = {
    "add": stores.add,
    "async_add": stores.add,
    "delete": stores.delete,
    "adelete": stores.delete,
    "delete_nodes": stores.delete_nodes,
    "adelete_nodes": stores.delete_nodes,
    "clear": stores.clear,
    "aclear": stores.clear,
    "query": retrieval.query_store,
    "aquery": retrieval.query_store,
}
"""Methods of every class that derives from `BasePydanticVectorStore`, in any package."""


class LlamaIndexInstrumentor(MemoryInstrumentor):
    """Instruments `llama-index-core`, sync, async and streaming, with any vector store, model and embedder."""

    system = "llamaindex"
    requirement = "llama-index-core>=0.12.37,<0.15"

    def make_patches(self, tracer: Tracer) -> LlamaIndexPatches:
        """Patches with the state of LlamaIndex."""
        return LlamaIndexPatches(tracer)

    def patch(self, patches: LlamaIndexPatches) -> None:
        """Wrap the modules of `llama_index.core` once the application has imported them."""
        patches.apply(POINTS)
        patches.when_imported(
            f"{_CORE}.base.base_retriever", lambda module: patches.wrap_inside(module.BaseRetriever, RETRIEVER)
        )
        patches.when_imported(
            f"{_CORE}.vector_stores.types",
            lambda module: patches.cover_family(module.BasePydanticVectorStore, VECTOR_STORE),
        )
        patches.when_imported(
            f"{_CORE}.agent.workflow.base_agent", lambda module: patches.cover_family(module.BaseWorkflowAgent, AGENT)
        )
        patches.when_imported(f"{_CORE}.async_utils", lambda module: _keep_context(patches, module))
        patches.when_imported(f"{_CORE}.tools.function_tool", lambda module: _keep_context_of_tools(patches, module))


def _keep_context(patches: LlamaIndexPatches, async_utils: Any) -> None:
    """Earlier releases lose the context where a synchronous call runs a coroutine inside a running event loop."""
    futures = getattr(async_utils, "concurrent", None)
    if futures is not None:
        patches.replace(async_utils, "concurrent", with_context_threads(futures))


def _keep_context_of_tools(patches: LlamaIndexPatches, function_tool: Any) -> None:
    """Earlier releases lose the context where a plain function is the tool of an agent."""
    if not hasattr(function_tool, "contextvars"):
        patches.replace(function_tool, "asyncio", with_context_executor(function_tool.asyncio))
