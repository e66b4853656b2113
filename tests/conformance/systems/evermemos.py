"""EverMemOS: messages wait in a buffer until a model finds the end of an episode. Episodes become units, and models
extract facts from units. A model decides whether the hits of a search suffice (rows E1 to E29)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from memtrace_otel import operation
from tests.conformance.conversation import TOP_K, Message, nearness, words
from tests.conformance.systems.tracing import ANN, Variable, hit, replaced, root, said, step

ATTEMPTS = 5
HARD_TOKENS, HARD_MESSAGES = 200, 50
MODEL, EMBEDDER, RRF_K = "scripted", "bag of words", 60
PROMPTS = {"event_log_extraction": "event_extraction_prompt"}
TEMPLATES = {
    "event_log_extraction": "event-log-prompt-template",
    "multi_query_generation": "multi-query-generation-template",
    "refined_query": "refined_query_prompt_template",
}
"""Names in the list that do not follow from that of the question."""


class ModelError(Exception):
    """The model did not answer."""


def template(name: str) -> Variable:
    return root("prompt", f"Instructions: {name}.", name)


def template_of(question: str) -> Variable:
    return template(TEMPLATES.get(question, f"{question.replace('_', '-')}-prompt-template"))


@dataclass
class Script:
    """The replies of the models. `broken` names missing replies, `empty` names empty lists of a search."""

    ends: Callable[[str], bool] = lambda text: "Lisbon" in text
    sufficient: Callable[[str], bool] = lambda question: "tea" in question
    broken: frozenset[str] = frozenset()
    empty: frozenset[str] = frozenset()

    def reply(self, name: str, text: str) -> str:
        if name in self.broken:
            raise ModelError(name)
        return text


@dataclass
class EverMemOS:
    """The search of units: `agentic`, or one of the simple modes (`mode`)."""

    script: Script = field(default_factory=Script)
    mode: str = "agentic"
    foresight: bool = False
    multi_query: bool = True
    hard_tokens: int = HARD_TOKENS
    hard_messages: int = HARD_MESSAGES

    def __post_init__(self) -> None:
        self.buffer = step("initialise", (), "", "state:message-buffer", kind="create", action="ADD")
        self.units: list[Variable] = []

    # --- construction ----------------------------------------------------------------------------------------------
    def add(self, message: Message) -> None:
        given = said(message)
        before = self.buffer.text
        self._set_buffer("\n".join(filter(None, (before, message.line))), given)  # E1
        if words(self.buffer.text) > self.hard_tokens:
            self._forced("token_limit", before, message.line)
        elif len(self.buffer.text.splitlines()) > self.hard_messages:
            self._forced("message_limit", before, message.line)
        elif before and self._episode_ended(before, message.line):
            self._set_buffer(message.line)  # E14

    def flush(self) -> None:
        if self.buffer.text:
            self._finish(self.buffer)
            self._set_buffer("")

    def _set_buffer(self, text: str, *given: Variable) -> None:
        inputs = (*given, replaced(self.buffer))
        self.buffer = step("message_buffer_update", inputs, text, self.buffer.ref, kind="ingest", action="UPDATE")

    def _episode_ended(self, before: str, new: str) -> bool:
        """E2 to E5."""
        settings = {"smart_mask_flag": False, "llm_model": MODEL}
        with operation(
            kind="segment", system="reference", scope=ANN, purpose="boundary_detection", attributes=settings
        ):
            fresh = step("new_messages", (self.buffer,), new, "state:new_messages")
            history = step("history_messages", (self.buffer,), before, "state:history_messages")
            gap = step("time_gap", (fresh, history), "moments later", "state:time_gap")
            given = (fresh, history, gap, template_of("boundary_detection"))
            ended = self.script.ends(new)
            waiting, product = json.dumps({"end": False}), "boundary_detection_result"
            result = self._ask("boundary_detection", given, json.dumps({"end": ended}), product, waiting)
            assert result is not None
            if not json.loads(result.text)["end"]:
                step("no_split_marker", (result,), "NO_SPLIT")
                return False
            candidate = step("temporary_variable", (self.buffer, result), before)
        self._finish(candidate)
        return True

    def _forced(self, limit: str, before: str, new: str) -> None:
        """E6, E7: a hard limit is reached; no model is asked."""
        settings = {
            "trigger_type": limit,
            "total_tokens": words(self.buffer.text),
            "total_messages": len(self.buffer.text.splitlines()),
            "hard_token_limit": self.hard_tokens,
            "hard_message_limit": self.hard_messages,
        }
        with operation(
            kind="segment", system="reference", scope=ANN, purpose="boundary_detection", attributes=settings
        ):
            if not before:
                step("no_split_marker", (self.buffer,), "NO_SPLIT")
                return
            candidate = step("temporary_variable", (self.buffer,), before)
        self._finish(candidate)
        self._set_buffer(new)

    def _finish(self, candidate: Variable) -> None:
        """E8 to E13: a unit is born and extended."""
        ref = f"memory:unit-{len(self.units) + 1}"
        unit = step("finalize_memory_unit", (candidate,), candidate.text, ref, kind="create", action="ADD")
        settings = {"llm_model": MODEL, "foresight_enabled": self.foresight, "event_log_enabled": True}
        with operation(kind="extract", system="reference", scope=ANN, purpose="extract_memory", attributes=settings):
            instructions = template("episode-extraction-custom-instructions")
            unit = self._extended(unit, "episode_extraction", "episode_memory", "Episode", instructions)
            if self.foresight:
                unit = self._extended(unit, "foresight_generation", "foresight_list", "Foresight")
            unit = self._extended(unit, "event_log_extraction", "event_log", "Events")
            unit = step("memory_unit_store", (replaced(unit),), unit.text, ref, kind="update", action="UPDATE")
        self.units.append(unit)

    def _extended(self, unit: Variable, name: str, product: str, label: str, *more: Variable) -> Variable:
        reply = f"{label}: {unit.text.splitlines()[-1]}"
        given = (unit, *more, template_of(name))
        extracted = self._ask(name, given, reply, product)
        if extracted is None:
            return unit
        inputs = (replaced(unit), extracted)
        return step("memory_unit", inputs, f"{unit.text}\n{reply}", unit.ref, kind="update", action="UPDATE")

    def _ask(
        self, name: str, given: Sequence[Variable], text: str, product: str, instead: str | None = None
    ) -> Variable | None:
        """A prompt, up to five tries of a reply, and what is read from it. When no reply comes: what stands in for it
        (E3, E25, E27, E28), or a marker and None (E12)."""
        prompt = step(PROMPTS.get(name, f"{name}_prompt"), given, "\n".join(part.text for part in given))
        for _ in range(ATTEMPTS):
            try:
                with operation(kind="other", system="reference", scope=ANN, purpose=f"raw_{name}_response") as op:
                    op.read(prompt.ref, origin=prompt.origin, content=prompt.text)
                    reply = self.script.reply(name, text)
                    op.wrote(f"completion:{op.origin[33:]}", content=reply)
                raw = Variable(reply, f"completion:{op.origin[33:]}", op.origin)
                return step(product, (raw,), text)
            except ModelError:
                continue
        failed = {"error.type": "ModelError"}
        if instead is not None:
            return step(product, (prompt,), instead, attributes=failed)
        step("failed_marker", (prompt,), "FAILED", attributes=failed)
        return None

    # --- retrieval -------------------------------------------------------------------------------------------------
    def search(self, query: Variable) -> list[Variable]:
        if self.mode != "agentic":
            return self._simple(query)
        found = self._first_round(query)
        return found if found is not None else self._second_round(query)

    def _simple(self, query: Variable) -> list[Variable]:
        """E20 to E23."""
        purposes = {"lexical": "bm25_retrieval", "vector": "embedding_retrieval", "hybrid": "hybrid_retrieval"}
        settings = {"mode": self.mode, "top_k": TOP_K}
        settings |= {} if self.mode == "lexical" else {"embedding_model": EMBEDDER}
        settings |= {"rrf_k": RRF_K} if self.mode == "hybrid" else {}
        with operation(
            "search_memory",
            kind="retrieve",
            system="reference",
            scope=ANN,
            purpose=purposes[self.mode],
            attributes=settings,
        ) as op:
            lists = [self._hybrid(query)] if self.mode == "hybrid" else [query]
            for given in lists:
                op.read(given.ref, role=given.role, origin=given.origin, content=given.text)
            return self._hits(op, self._ranked(query.text))

    def _first_round(self, query: Variable) -> list[Variable] | None:
        """E24 to E26; None when the hits do not suffice."""
        settings = {"round": 1, "retrieval_mode": "agentic", "top_k": TOP_K, "use_reranker": True}
        with operation(
            "search_memory",
            kind="retrieve",
            system="reference",
            scope=ANN,
            purpose="agentic_round1_bundle",
            attributes=settings | {"sufficiency_check_docs": TOP_K},
        ) as op:
            op.read(query.ref, role="query", content=query.text)
            hybrid = self._hybrid(query)
            if not self.units:
                step("agentic_retrieval_results", (hybrid,), "")
                return []
            self.reranked = self._listed("reranked_round1_results", (hybrid,), kind="rerank")
            self.checked = self._listed("reranked_for_check", (self.reranked,))
            text = step("sufficiency_check_docs_text", (self.checked,), self.checked.text)
            given = (query, text, template_of("sufficiency_check"))
            enough = self.script.sufficient(query.text)
            verdict = self._ask("sufficiency_check", given, json.dumps(enough), "sufficiency_check_result", "false")
            assert verdict is not None
            self.verdict = verdict
            if not json.loads(verdict.text):
                return None
            for given_list in (verdict, self.reranked):
                op.read(given_list.ref, origin=given_list.origin, content=given_list.text)
            return self._hits(op, self._ranked(query.text))

    def _second_round(self, query: Variable) -> list[Variable]:
        """E27 to E29."""
        name = "multi_query_generation" if self.multi_query else "refined_query"
        docs = "multi_query_docs_text" if self.multi_query else "refined_query_docs_text"
        settings = {"round": 2, "retrieval_mode": "agentic", "top_k": TOP_K, "multi_query": self.multi_query}
        with operation(
            kind="retrieve", system="reference", scope=ANN, purpose="agentic_round2_bundle", attributes=settings
        ):
            text = step(docs, (self.checked,), self.checked.text)
            given = (query, self.verdict, text, template_of(name))
            asked = json.dumps([f"{query.text} ({n})" for n in range(3 if self.multi_query else 1)])
            refined = self._ask(name, given, asked, "refined_queries", json.dumps([query.text]))
            assert refined is not None
            queries = [step("refined_query", (refined,), text) for text in json.loads(refined.text)]
            lists = [self._hybrid(one) for one in queries]
            second = self._listed("round2_retrieval_results", lists)
        settings = {"top_k": TOP_K, "use_reranker": True}
        with operation(
            kind="rerank", system="reference", scope=ANN, purpose="agentic_final_rerank", attributes=settings
        ):
            combined = self._listed("combined_retrieval_results", (self.reranked, second))
            final = self._listed("final_reranked_results", (combined,), kind="rerank")
            with operation("search_memory", kind="retrieve", system="reference", scope=ANN, purpose="retrieved") as op:
                op.read(query.ref, role="query", content=query.text)
                op.read(final.ref, origin=final.origin, content=final.text)
                return self._hits(op, self._ranked(query.text))

    def _hybrid(self, query: Variable) -> Variable:
        """E22, E23: both lists, fused by rank."""
        sparse, dense = (
            self._listed(
                f"{name}_retrieval_results",
                (query,),
                () if name in self.script.empty else self._ranked(query.text),
                kind="retrieve",
            )
            for name in ("sparse", "dense")
        )
        return self._listed("hybrid_retrieval_results", (sparse, dense), kind="rerank")

    def _listed(
        self, name: str, given: Sequence[Variable], units: Sequence[Variable] = (), kind: str = "other"
    ) -> Variable:
        """A list of results, as text with ids. The units of the list are candidates."""
        considered = [Variable(u.text, u.ref, u.origin, "candidate", u.score) for u in units]
        text = "\n".join(u.ref for u in units) or "\n".join(part.text for part in given)
        return step(name, (*given, *considered), text, kind=kind)

    def _ranked(self, query: str) -> list[Variable]:
        scored = [hit(unit, nearness(query, unit.text)) for unit in self.units]
        return sorted(scored, key=lambda unit: unit.score or 0.0, reverse=True)[:TOP_K]

    def _hits(self, op: operation, found: list[Variable]) -> list[Variable]:
        for unit in found:
            op.read(unit.ref, role="hit", origin=unit.origin, content=unit.text, score=unit.score)
        return found
