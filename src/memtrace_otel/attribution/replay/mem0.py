"""The replayer of Mem0 1.x and 2.x: a scratch memory in a temporary folder, written without Mem0's language model."""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any, cast

from memtrace_otel.attribution.replay.replayer import Search, Write

_OWNER = "replay"


class Mem0Replayer:
    """Writes recorded texts with `infer=False`, so only the embedding model of OPENAI_BASE_URL is called."""

    systems = frozenset({"mem0"})

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        """`config` may replace `embedder` and `llm` of Mem0's configuration. Raises ValueError for another part."""
        self._config = dict(config or {})
        if others := sorted(self._config.keys() - {"embedder", "llm"}):
            raise ValueError(f"a scratch memory takes embedder and llm only, not {', '.join(others)}")

    def search(self, writes: Sequence[Write], search: Search) -> Sequence[str]:
        """Return the texts of the hits. Raises ImportError without Mem0, and what Mem0 raises."""
        with _scratch(self._config, search.embedding_model) as memory:
            ids: dict[str, str] = {}
            for write in writes:
                known = ids.get(write.record)
                if not write.text:
                    if known:
                        memory.delete(ids.pop(write.record))
                elif known:
                    memory.update(known, write.text)
                else:
                    added = memory.add([{"role": "user", "content": write.text}], user_id=_OWNER, infer=False)
                    ids[write.record] = added["results"][0]["id"]
            return [hit["memory"] for hit in _hits(memory, search)]


def _hits(memory: Any, search: Search) -> Sequence[Mapping[str, Any]]:
    if "top_k" in signature(memory.search).parameters:
        options: dict[str, Any] = {"top_k": search.limit, "filters": {"user_id": _OWNER}}
    else:  # Mem0 1.x
        options = {"limit": search.limit, "user_id": _OWNER}
    if search.threshold is not None:
        options["threshold"] = search.threshold
    return memory.search(search.query, **options)["results"]


@contextmanager
def _scratch(config: Mapping[str, Any], embedding_model: str) -> Generator[Any]:
    """Give an empty memory. Mem0's own folder is a temporary one; its telemetry is off."""
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(name)
        os.environ["MEM0_TELEMETRY"] = "False"  # read once, on import
        os.environ["MEM0_DIR"] = str(folder / "mem0")
        from mem0 import Memory  # pyright: ignore[reportMissingTypeStubs]
        from mem0.utils.factory import EmbedderFactory  # pyright: ignore[reportMissingTypeStubs]
        from qdrant_client import QdrantClient

        logging.getLogger("mem0").setLevel(logging.ERROR)  # else a warning for each scratch memory
        client = QdrantClient(":memory:")
        key = {"api_key": os.environ.get("OPENAI_API_KEY") or "none"}
        named = {"model": embedding_model} if embedding_model else {}
        parts: dict[str, Any] = {
            "llm": {"provider": "openai", "config": key},  # made, never called
            "embedder": {"provider": "openai", "config": {**key, **named}},
            **config,
        }
        embedder: Any = cast("Any", EmbedderFactory).create(
            parts["embedder"]["provider"], parts["embedder"].get("config", {}), None
        )
        size = len(embedder.embed("size", "search"))
        store = {"client": client, "collection_name": _OWNER, "embedding_model_dims": size}
        memory: Any = Memory.from_config(
            {
                **parts,
                "vector_store": {"provider": "qdrant", "config": store},
                "history_db_path": str(folder / "history.db"),
            }
        )
        try:
            yield memory
        finally:
            client.close()
            getattr(memory, "close", lambda: None)()
