"""Subjects for systems in use: Mem0 with its custom prompts, and retrieval over the messages themselves."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cache, cached_property
from inspect import signature
from operator import mul
from pathlib import Path
from typing import Any, cast

from openai import OpenAI

from memtrace_otel.attribution.endpoint import openai_client
from memtrace_otel.capture import operation, scope_id, variable_ref
from memtrace_otel.repair.components import Component
from memtrace_otel.repair.subjects import RETRIEVAL, Case, RepairError, Texts
from memtrace_otel.semconv import GEN_AI_RETRIEVAL_TOP_K, RETRIEVAL_THRESHOLD

MEMORIES = "{memories}"
ANSWER = f"Answer the question in a few words from these memories.\n\n{MEMORIES}"
EMBEDDER = "text-embedding-3-small"
_USER = "user"


class _Answering:
    """A subject with an answering prompt and parameters of a search; `{memories}` in the prompt are the hits."""

    def __init__(
        self, model: str, answer: str = ANSWER, k: int = 5, threshold: float = 0.1, embedder: str = EMBEDDER
    ) -> None:
        self.model, self.embedder = model, embedder
        self._texts = {
            str(Component.ANSWERING): answer,
            RETRIEVAL: json.dumps({"k": k, "threshold": threshold}),
        }

    def components(self) -> Texts:
        """Return the texts in use."""
        return self._texts

    @cached_property
    def _client(self) -> OpenAI:
        return openai_client()

    def reply(self, candidate: Texts, memories: Sequence[str], question: str) -> str:
        """Ask the model with the answering prompt of the candidate."""
        listed = "\n".join(f"- {memory}" for memory in memories) or "(nothing)"
        done = self._client.chat.completions.create(
            model=self.model,
            messages=[
                {"role": "system", "content": candidate[Component.ANSWERING].replace(MEMORIES, listed)},
                {"role": "user", "content": question},
            ],
        )
        return done.choices[0].message.content or ""

    def _embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [one.embedding for one in self._client.embeddings.create(model=self.embedder, input=list(texts)).data]


@cache
def _isolate() -> None:
    """Give Mem0 a folder that ends with the program, and no telemetry. Mem0 reads both once, on import."""
    home = tempfile.mkdtemp(prefix="memtrace-mem0-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    os.environ.update({"MEM0_TELEMETRY": "False", "MEM0_DIR": home})


class Mem0(_Answering):
    """Mem0 2.x on an embedded Qdrant. `extraction` are its custom instructions.

    `config` may replace `llm` and `embedder`; every store is a scratch. Raises RepairError for another key.
    """

    def __init__(
        self,
        model: str,
        extraction: str = "Keep what the user tells about himself.",
        answer: str = ANSWER,
        k: int = 5,
        threshold: float = 0.1,
        embedder: str = EMBEDDER,
        dimensions: int = 1536,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        _isolate()
        super().__init__(model, answer, k, threshold, embedder)
        if other := set(config or {}) - {"llm", "embedder"}:
            raise RepairError(f"config holds llm and embedder alone, not {', '.join(sorted(other))}")
        self._texts = {str(Component.EXTRACTION): extraction, **self._texts}
        self._dimensions, self._config = dimensions, config or {}

    def run(self, candidate: Texts, case: Case) -> str:
        """Tell the conversation to a new memory, search it, and answer."""
        from mem0 import Memory  # pyright: ignore[reportMissingTypeStubs]

        with ExitStack() as stack:
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
            memory: Any = Memory.from_config(self._settings(candidate, home))
            stack.callback(getattr(memory, "close", lambda: None))  # since Mem0 1.0.4
            stack.callback(memory.vector_store.client.close)
            for message in case.messages:
                text = f"[{message['time']}] {message['content']}" if "time" in message else message["content"]
                memory.add([{"role": message["role"], "content": text}], user_id=_USER)
            asked = json.loads(candidate[RETRIEVAL])
            found = self._search(memory, case.question, asked["k"], asked["threshold"])
            return self.reply(candidate, [hit["memory"] for hit in found["results"]], case.question)

    def _search(self, memory: Any, question: str, k: int, threshold: float) -> dict[str, Any]:
        return memory.search(question, filters={"user_id": _USER}, top_k=k, threshold=threshold)

    def _prompts(self, candidate: Texts) -> dict[str, str]:
        return {"custom_instructions": candidate[Component.EXTRACTION]}

    def _settings(self, candidate: Texts, home: Path) -> dict[str, Any]:
        store = {"path": str(home / "qdrant"), "embedding_model_dims": self._dimensions, "on_disk": False}
        return {
            "llm": {"provider": "openai", "config": {"model": self.model}},
            "embedder": {"provider": "openai", "config": {"model": self.embedder, "embedding_dims": self._dimensions}},
            "vector_store": {"provider": "qdrant", "config": {"collection_name": "memories", **store}},
            "history_db_path": str(home / "history.db"),
            **self._prompts(candidate),
            **self._config,
        }


class Mem0V1(Mem0):
    """Mem0 1.x: extraction and update have whole prompts, by default those of Mem0."""

    def __init__(self, model: str, extraction: str = "", update: str = "", **options: Any) -> None:
        _isolate()
        from mem0.configs import prompts  # pyright: ignore[reportMissingTypeStubs]

        super().__init__(model, extraction or prompts.USER_MEMORY_EXTRACTION_PROMPT, **options)
        self._texts = {**self._texts, str(Component.UPDATE): update or prompts.DEFAULT_UPDATE_MEMORY_PROMPT}

    def _search(self, memory: Any, question: str, k: int, threshold: float) -> dict[str, Any]:
        return memory.search(question, user_id=_USER, limit=k, threshold=threshold)

    def _prompts(self, candidate: Texts) -> dict[str, str]:
        return {
            "custom_fact_extraction_prompt": candidate[Component.EXTRACTION],
            "custom_update_memory_prompt": candidate[Component.UPDATE],
        }


class Langmem(_Answering):
    """langmem on a store in memory. `extraction` are the instructions of its manager; the search has `k` alone."""

    def __init__(self, model: str, extraction: str = "", answer: str = ANSWER, k: int = 5, **options: Any) -> None:
        from langmem import create_memory_store_manager as make  # pyright: ignore

        super().__init__(model, answer, k, **options)
        self._make: Any = cast("Any", make)
        used = extraction or str(signature(self._make).parameters["instructions"].default)
        self._texts = {str(Component.EXTRACTION): used, **self._texts, RETRIEVAL: json.dumps({"k": k})}

    def run(self, candidate: Texts, case: Case) -> str:
        """Tell the conversation to a manager with an empty store, search the store, and answer."""
        from langgraph.store.memory import InMemoryStore  # pyright: ignore

        memory = cast("Any", InMemoryStore)
        store: Any = memory(index={"dims": len(self._embed(["size"])[0]), "embed": self._embed})
        space, model = ("memories", _USER), f"openai:{self.model}"
        manager: Any = self._make(model, instructions=candidate[Component.EXTRACTION], namespace=space, store=store)
        for message in case.messages:
            manager.invoke({"messages": [dict(message)]})
        found = store.search(space, query=case.question, limit=json.loads(candidate[RETRIEVAL])["k"])
        return self.reply(candidate, [str(item.value["content"]["content"]) for item in found], case.question)


class Rag(_Answering):
    """Retrieval over the messages: the `k` nearest by embedding, above `threshold`, are in the prompt."""

    def run(self, candidate: Texts, case: Case) -> str:
        """Store the messages, search them, and answer."""
        scope, texts = scope_id("rag", user=case.conversation), [message["content"] for message in case.messages]
        for number, text in enumerate(texts):
            with operation("create_memory", kind="create", system="rag", scope=scope) as op:
                op.read(variable_ref("message", text), role="message", content=text)
                op.wrote(f"memory:{number}", action="ADD", content=text)
        asked = json.loads(candidate[RETRIEVAL])
        scores = self.scores(texts, case.question)
        ranked = sorted(range(len(texts)), key=lambda number: -scores[number])
        hits = [number for number in ranked if scores[number] >= asked["threshold"]][: asked["k"]]
        with operation("search_memory", kind="retrieve", system="rag", scope=scope) as op:
            op.set(GEN_AI_RETRIEVAL_TOP_K, asked["k"])
            op.set(RETRIEVAL_THRESHOLD, float(asked["threshold"]))
            op.read(variable_ref("query", case.question), role="query", content=case.question)
            for role, numbers in (("candidate", ranked), ("hit", hits)):
                for number in numbers:
                    op.read(f"memory:{number}", role=role, content=texts[number], score=scores[number])
        return self.reply(candidate, [texts[number] for number in hits], case.question)

    def scores(self, texts: Sequence[str], question: str) -> list[float]:
        """Return the score of each text for a question; another search is another method in a subclass."""
        *vectors, wanted = self._embed([*texts, question])
        return [sum(map(mul, vector, wanted)) for vector in vectors]
