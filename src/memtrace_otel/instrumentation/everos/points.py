"""Where EverOS is wrapped: every name, and the step that runs around it. A name that a release lacks is left out.

A function is wrapped where it is used, since modules take names over with `from x import f`.
"""

from __future__ import annotations

from memtrace_otel.instrumentation.base import Points
from memtrace_otel.instrumentation.everos import (
    clusters,
    decisions,
    extract,
    index,
    ingest,
    models,
    ranking,
    recall,
    search,
    strategies,
    writes,
)

_TABLES = "everos.infra.persistence.sqlite.repos"
_HANDLERS = "everos.memory.cascade.handlers"
_RECALLERS = "everos.memory.search.recall"

IMPORTERS = ("everos.service", "everos.service.memorize_queue", "everos.entrypoints.api.routes.memorize")
"""Modules that take over the function `memorize` from the module `everos.service.memorize`."""

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
    f"{_TABLES}.cluster": {"_ClusterRepo.upsert_with_members": clusters.upsert_cluster},
    "everalgo.user_memory.episode": {"EpisodeExtractor.aextract": extract.episode},
    "everalgo.user_memory.atomic_fact": {"AtomicFactExtractor.aextract_from_text": extract.atomic_facts},
    "everalgo.user_memory.foresight": {"ForesightExtractor.aextract": extract.foresight},
    "everalgo.user_memory.profile": {"ProfileExtractor.aextract": extract.profile},
    "everalgo.agent_memory.case": {"AgentCaseExtractor.aextract": extract.case},
    "everalgo.agent_memory.skill": {"AgentSkillExtractor.aextract": extract.skill},
    "everos.memory.strategies.trigger_profile_clustering": {"cluster_by_geometry": clusters.choose_cluster},
    "everos.memory.strategies.trigger_skill_clustering": {"cluster_by_llm": clusters.choose_cluster},
    "everos.infra.ome._dispatch.runner": {"Runner._run_one_attempt": strategies.run_attempt},
    "everos.infra.ome._stores.run_record": {
        "RunRecordStore.mark_failed": strategies.mark_failed,
        "RunRecordStore.mark_dead_letter": strategies.mark_dead_letter,
    },
    "everos.infra.persistence.markdown.writers.base": {"BaseDailyWriter.append_entries": writes.append_entries},
    "everos.infra.persistence.markdown.writers.profile_writer": {"ProfileWriter.write": writes.write_profile},
    "everos.infra.persistence.markdown.writers.agent_skill_writer": {
        "AgentSkillWriter.write_main": writes.write_skill,
        "AgentSkillWriter.delete_skill": writes.delete_skill,
    },
    # markdown to index
    f"{_HANDLERS}._daily_log_base": {
        "BaseDailyLogHandler.handle_added_or_modified": index.handle_changed,
        "BaseDailyLogHandler._diff_entries": index.diff_entries,
        "BaseDailyLogHandler._apply_lance_changes": index.apply_changes,
        "BaseDailyLogHandler.handle_deleted": index.handle_deleted,
    },
    f"{_HANDLERS}.user_profile": {"UserProfileHandler.handle_added_or_modified": index.handle_profile},
    f"{_HANDLERS}.agent_skill": {"AgentSkillHandler.handle_added_or_modified": index.handle_skill},
    # searching
    "everos.memory.search.manager": {
        "SearchManager.search": search.search,
        "heap_expand": ranking.heap_expand,
        "arank": ranking.arank,
    },
    "everos.memory.get.manager": {"GetManager.get": search.get},
    f"{_RECALLERS}.episode": {
        "EpisodeRecaller.sparse_recall": recall.sparse_recall,
        "EpisodeRecaller.dense_recall": recall.dense_recall,
        "EpisodeRecaller.dense_recall_subject": recall.dense_recall,
        "EpisodeRecaller.fetch_by_entry_ids": recall.fetch,
        "EpisodeRecaller.fetch_all_for_owner": recall.fetch,
    },
    f"{_RECALLERS}.atomic_fact": {
        "AtomicFactRecaller.sparse_recall": recall.sparse_recall,
        "AtomicFactRecaller.dense_recall": recall.dense_recall,
        "AtomicFactRecaller.facts_for_episodes": recall.facts_for_episodes,
    },
    f"{_RECALLERS}.agent_case": {
        "AgentCaseRecaller.sparse_recall": recall.sparse_recall,
        "AgentCaseRecaller.dense_recall": recall.dense_recall,
    },
    f"{_RECALLERS}.agent_skill": {
        "AgentSkillRecaller.sparse_recall": recall.sparse_recall,
        "AgentSkillRecaller.dense_recall": recall.dense_recall,
        "AgentSkillRecaller.fetch_by_case_ids": recall.fetch,
    },
    "everos.memory.search.agentic": {"build_rerank_fn": ranking.build_reranker},
    "everos.memory.search.agentic_agent": {
        "build_rerank_fn": ranking.build_reranker,
        "build_case_rerank_fn": ranking.build_reranker,
        "build_skill_rerank_fn": ranking.build_reranker,
    },
    "everos.memory.search.skill_hybrid": {"build_skill_rerank_fn": ranking.build_reranker},
    "everos.memory.search.llm_multiround": {
        "rrf": ranking.fuse,
        "_render_blocks": decisions.render_blocks,
        "LLMRoundDecider.__call__": decisions.decide_round,
    },
    "everalgo.rank.hybrid": {"rrf": ranking.fuse},
    "everalgo.rank.agentic": {
        "rrf": ranking.fuse,
        "_check_sufficiency": decisions.check_sufficiency,
        "_generate_multi_queries": decisions.multiply_queries,
        "_generate_refined_query": decisions.multiply_queries,
    },
    # models
    "everalgo.llm.providers.openai_compat": {"OpenAICompatClient.chat": models.chat},
    "everos.component.llm.openai_provider": {"OpenAIProvider.chat": models.chat},
    "everos.component.llm._usage_client": {"UsageRecordingClient.chat": models.chat_counted},
    "everos.component.embedding.openai_provider": {
        "OpenAIEmbeddingProvider.embed": recall.embed,
        "OpenAIEmbeddingProvider.embed_query": recall.embed_query,
    },
}
