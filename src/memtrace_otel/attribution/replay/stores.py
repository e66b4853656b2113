"""The replayers that need no package of the user: vector stores (RAG), and memories that the prompt holds whole."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from math import hypot
from operator import mul

from memtrace_otel.attribution.endpoint import openai_client
from memtrace_otel.attribution.replay.replayer import Search, Write

_EMBEDDING_MODEL = "text-embedding-3-small"
_TEXTS_PER_CALL = 200


class VectorReplayer:
    """Ranks the chunks by cosine; only the embedding model of OPENAI_BASE_URL is called."""

    systems = frozenset({"langchain", "langgraph", "llamaindex", "rag"})

    def __init__(self, embedding_model: str = _EMBEDDING_MODEL) -> None:
        """`embedding_model` is used where the spans of a search name none."""
        self._model = embedding_model

    def search(self, writes: Sequence[Write], search: Search) -> Sequence[str]:
        """Return the texts of the hits. Raises what the endpoint raises."""
        texts = _live(writes)
        query, *vectors = self._embed([search.query, *texts], search.embedding_model or self._model)
        scored = sorted(((_cosine(query, v), -i) for i, v in enumerate(vectors)), reverse=True)
        found = (texts[-i] for score, i in scored if search.threshold is None or score >= search.threshold)
        return list(islice(found, search.limit))

    def _embed(self, texts: Sequence[str], model: str) -> list[list[float]]:
        vectors: list[list[float]] = []
        with openai_client() as client:
            for start in range(0, len(texts), _TEXTS_PER_CALL):
                reply = client.embeddings.create(model=model, input=list(texts[start : start + _TEXTS_PER_CALL]))
                vectors += [one.embedding for one in sorted(reply.data, key=lambda one: one.index)]
        return vectors


class WholeReplayer:
    """Returns every live text: a home-made notebook, profile or history is in the prompt, and nothing is searched."""

    systems = frozenset({"long_context"})

    def search(self, writes: Sequence[Write], search: Search) -> Sequence[str]:
        """Return the live texts in the order of their records."""
        return _live(writes)


def _live(writes: Sequence[Write]) -> list[str]:
    texts: dict[str, str] = {}
    for write in writes:
        if write.text:
            texts[write.record] = write.text
        else:
            texts.pop(write.record, None)
    return list(texts.values())


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(map(mul, one, other)) / (hypot(*one) * hypot(*other) or 1.0)
