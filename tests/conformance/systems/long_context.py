"""Long-Context: the memory is one text, the oldest lines go when it is too long (rows L1, L2)."""

from __future__ import annotations

from memtrace_otel import operation
from tests.conformance.conversation import Message, words
from tests.conformance.systems.tracing import ANN, Variable, hit, replaced, root, step

WINDOW = 40


class LongContext:
    """One memory unit that evolves."""

    def __init__(self) -> None:
        self.unit = step("initialise", (), "", "memory:memory-unit", kind="create", action="ADD")

    def add(self, message: Message) -> None:
        lines = [*filter(None, self.unit.text.splitlines()), message.line]
        while len(lines) > 1 and sum(map(words, lines)) > WINDOW:
            lines.pop(0)
        given = (root("message", message.text, message.id), replaced(self.unit))
        text = "\n".join(lines)
        self.unit = step("memory_update", given, text, self.unit.ref, kind="update", action="UPDATE")

    def flush(self) -> None:
        """Nothing waits."""

    def search(self, query: Variable) -> list[Variable]:
        with operation("search_memory", kind="retrieve", system="reference", scope=ANN, purpose="retrieve") as op:
            op.read(query.ref, role="query", content=query.text)
            op.read(self.unit.ref, role="hit", origin=self.unit.origin, content=self.unit.text)
        return [hit(self.unit)]
