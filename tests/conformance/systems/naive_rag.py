"""NaiveRAG: messages gather in a buffer, full buffers become chunks, chunks are embedded and searched (R1 to R5)."""

from __future__ import annotations

from itertools import count

from memtrace_otel import operation, variable_ref
from tests.conformance.conversation import TOP_K, Message, nearness, words
from tests.conformance.systems.tracing import ANN, Variable, hit, replaced, said, step

MAX_TOKENS = 16
OVERLAP = 0
SETTINGS = {
    "deferred": True,
    "max_tokens": MAX_TOKENS,
    "num_overlap_msgs": OVERLAP,
    "message_separator": "\n",
    "llm_model_for_tokenizer": "words",
}
SEARCH = {"top_k": TOP_K, "embedding_model": "bag of words"}


class NaiveRAG:
    """Chunks of up to 16 words."""

    def __init__(self) -> None:
        self.buffer = step("initialise", (), "", "state:message-buffer", kind="create", action="ADD")
        self.units: list[Variable] = []
        self._ids = count(1)

    def add(self, message: Message) -> None:
        lines = self.buffer.text.splitlines()
        given = said(message)
        full = bool(lines) and sum(map(words, [*lines, message.line])) > MAX_TOKENS
        kept = [*lines[len(lines) - OVERLAP :], message.line] if full else [*lines, message.line]
        chunk = "\n".join(lines) if full else ""
        self._update([given], "\n".join(kept), chunk)

    def flush(self) -> None:
        self._update([], "", self.buffer.text)

    def search(self, query: Variable) -> list[Variable]:
        ranked = sorted(self.units, key=lambda unit: nearness(query.text, unit.text), reverse=True)[:TOP_K]
        found = [hit(unit, nearness(query.text, unit.text)) for unit in ranked]
        with operation(
            "search_memory", kind="retrieve", system="reference", scope=ANN, purpose="retrieve", attributes=SEARCH
        ) as op:
            op.read(query.ref, role="query", content=query.text)
            for unit in found:
                op.read(unit.ref, role="hit", origin=unit.origin, content=unit.text, score=unit.score)
        return found

    def _update(self, messages: list[Variable], buffer: str, chunk: str) -> None:
        """R1, R2, R5: the buffer takes the message. A full buffer becomes a unit (R3)."""
        previous = replaced(self.buffer)
        with operation(
            kind="ingest", system="reference", scope=ANN, purpose="message_buffer_update", attributes=SETTINGS
        ) as op:
            for given in (*messages, previous):
                op.read(given.ref, role=given.role, origin=given.origin, content=given.text)
            op.wrote(self.buffer.ref, action="UPDATE", content=buffer)
            if chunk:
                part = variable_ref("chunk", chunk)
                op.wrote(part, content=chunk)
        self.buffer = Variable(buffer, self.buffer.ref, op.origin)
        if chunk:
            unit = f"memory:{next(self._ids)}"
            source = Variable(chunk, part, op.origin)
            self.units.append(step("add", (source,), chunk, unit, kind="create", action="ADD"))
