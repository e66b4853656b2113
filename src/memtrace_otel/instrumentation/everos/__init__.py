"""EverOS instrumentor: the embedded memory framework `everos` 1.x, from the message to the search of the answer.

    EverosInstrumentor().instrument()

The table below names every wrapped function and the step that runs around it. A name that a release lacks is left out.
A function is wrapped in the module that uses it, because modules import functions by name.
"""

from __future__ import annotations

from opentelemetry.trace import Tracer

from memtrace_otel.instrumentation.base import MemoryInstrumentor, Points
from memtrace_otel.instrumentation.everos import extract, ingest, markdown, search, strategies
from memtrace_otel.instrumentation.everos.contexts import Queues
from memtrace_otel.instrumentation.everos.state import EverosPatches

__all__ = ["EverosInstrumentor"]

_TABLES = "everos.infra.persistence.sqlite.repos"
_HANDLERS = "everos.memory.cascade.handlers"
_RECALLERS = "everos.memory.search.recall"

IMPORTERS = ("everos.service", "everos.service.memorize_queue", "everos.entrypoints.api.routes.memorize")
"""Modules that import the function `memorize` from the module `everos.service.memorize`."""

POINTS: Points = {
    # writing
    "everos.service.memorize": {
        "memorize": ingest.memorize,
        "ingest_process": ingest.ingest_process,
        "prepare_cells": ingest.prepare_cells,
    },
    "everos.service._boundary": {
        "_merge_dedupe_sort": ingest.merge,
        "_replace_buffer": ingest.replace_buffer,
    },
    f"{_TABLES}.memcell": {
        "_MemcellRepo.insert_many": ingest.insert_memcells,
        "_MemcellRepo.find_by_ids": ingest.find_memcells,
    },
    f"{_TABLES}.unprocessed_buffer": {"_UnprocessedBufferRepo.quarantine": ingest.quarantine},
    f"{_TABLES}.cluster": {"_ClusterRepo.upsert_with_members": strategies.upsert_cluster},
    "everalgo.user_memory.episode": {"EpisodeExtractor.aextract": extract.episode},
    "everalgo.user_memory.atomic_fact": {"AtomicFactExtractor.aextract_from_text": extract.atomic_facts},
    "everalgo.user_memory.foresight": {"ForesightExtractor.aextract": extract.foresight},
    "everalgo.user_memory.profile": {"ProfileExtractor.aextract": extract.profile},
    "everalgo.agent_memory.case": {"AgentCaseExtractor.aextract": extract.case},
    "everalgo.agent_memory.skill": {"AgentSkillExtractor.aextract": extract.skill},
    "everos.memory.strategies.trigger_profile_clustering": {"cluster_by_geometry": strategies.choose_cluster},
    "everos.memory.strategies.trigger_skill_clustering": {"cluster_by_llm": strategies.choose_cluster},
    "everos.infra.ome._dispatch.runner": {"Runner._run_one_attempt": strategies.run_attempt},
    "everos.infra.ome._stores.run_record": {
        "RunRecordStore.mark_failed": strategies.mark_failed,
        "RunRecordStore.mark_dead_letter": strategies.mark_dead_letter,
    },
    "everos.infra.persistence.markdown.writers.base": {"BaseDailyWriter.append_entries": markdown.append_entries},
    "everos.infra.persistence.markdown.writers.profile_writer": {"ProfileWriter.write": markdown.write_profile},
    "everos.infra.persistence.markdown.writers.agent_skill_writer": {
        "AgentSkillWriter.write_main": markdown.write_skill,
        "AgentSkillWriter.delete_skill": markdown.delete_skill,
    },
    # markdown to index
    f"{_HANDLERS}._daily_log_base": {
        "BaseDailyLogHandler.handle_added_or_modified": markdown.handle_changed,
        "BaseDailyLogHandler._diff_entries": markdown.diff_entries,
        "BaseDailyLogHandler._apply_lance_changes": markdown.apply_changes,
        "BaseDailyLogHandler.handle_deleted": markdown.handle_deleted,
    },
    f"{_HANDLERS}.user_profile": {"UserProfileHandler.handle_added_or_modified": markdown.handle_profile},
    f"{_HANDLERS}.agent_skill": {"AgentSkillHandler.handle_added_or_modified": markdown.handle_skill},
    # searching
    "everos.memory.search.manager": {
        "SearchManager.search": search.search,
        "heap_expand": search.heap_expand,
        "arank": search.arank,
    },
    "everos.memory.get.manager": {"GetManager.get": search.get},
    f"{_RECALLERS}.episode": {
        "EpisodeRecaller.sparse_recall": search.sparse_recall,
        "EpisodeRecaller.dense_recall": search.dense_recall,
        "EpisodeRecaller.dense_recall_subject": search.dense_recall,
        "EpisodeRecaller.fetch_by_entry_ids": search.fetch,
        "EpisodeRecaller.fetch_all_for_owner": search.fetch,
    },
    f"{_RECALLERS}.atomic_fact": {
        "AtomicFactRecaller.sparse_recall": search.sparse_recall,
        "AtomicFactRecaller.dense_recall": search.dense_recall,
        "AtomicFactRecaller.facts_for_episodes": search.facts_for_episodes,
    },
    f"{_RECALLERS}.agent_case": {
        "AgentCaseRecaller.sparse_recall": search.sparse_recall,
        "AgentCaseRecaller.dense_recall": search.dense_recall,
    },
    f"{_RECALLERS}.agent_skill": {
        "AgentSkillRecaller.sparse_recall": search.sparse_recall,
        "AgentSkillRecaller.dense_recall": search.dense_recall,
        "AgentSkillRecaller.fetch_by_case_ids": search.fetch,
    },
    "everos.memory.search.agentic": {"build_rerank_fn": search.build_reranker},
    "everos.memory.search.agentic_agent": {
        "build_rerank_fn": search.build_reranker,
        "build_case_rerank_fn": search.build_reranker,
        "build_skill_rerank_fn": search.build_reranker,
    },
    "everos.memory.search.skill_hybrid": {"build_skill_rerank_fn": search.build_reranker},
    "everos.memory.search.llm_multiround": {
        "rrf": search.fuse,
        "_render_blocks": search.render_blocks,
        "LLMRoundDecider.__call__": search.decide_round,
    },
    "everalgo.rank.hybrid": {"rrf": search.fuse},
    "everalgo.rank.agentic": {
        "rrf": search.fuse,
        "_check_sufficiency": search.check_sufficiency,
        "_generate_multi_queries": search.multiply_queries,
        "_generate_refined_query": search.multiply_queries,
    },
    # models
    "everalgo.llm.providers.openai_compat": {"OpenAICompatClient.chat": extract.chat},
    "everos.component.llm.openai_provider": {"OpenAIProvider.chat": extract.chat},
    "everos.component.embedding.openai_provider": {
        "OpenAIEmbeddingProvider.embed": search.embed_query,
        "OpenAIEmbeddingProvider.embed_query": search.embed_query,
    },
}


class EverosInstrumentor(MemoryInstrumentor):
    """Instruments `everos` in process: writes, background strategies, the index and all search methods."""

    system = "everos"
    requirement = "everos>=1.2,<2"

    def make_patches(self, tracer: Tracer) -> EverosPatches:
        """Patches with the state of EverOS."""
        return EverosPatches(tracer)

    def patch(self, patches: EverosPatches) -> None:
        """Wrap the modules of EverOS once the application has imported them."""
        patches.apply(POINTS)
        patches.wrap_importers("everos.service.memorize", "memorize", ingest.memorize, IMPORTERS)
        Queues().join(patches)
