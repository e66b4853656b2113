"""Long-Context: the memory is one text without the oldest lines past a limit (rows L1, L2)."""

from __future__ import annotations

from memtrace_otel import operation
from tests.conformance.conversation import TOP_K, Message, words
from tests.conformance.systems.tracing import ANN, Variable, hit, replaced, said, step

WINDOW = 40
SETTINGS = {"context_window": WINDOW, "message_separator": "\n", "llm_model_for_tokenizer": "words"}


class LongContext:
    """One memory unit that evolves. Its lines are recorded as well."""

    def __init__(self) -> None:
        self.lines: list[Message] = []
        self.unit = step("initialise", (), "", "memory:memory-unit", kind="create", action="ADD")

    def add(self, message: Message) -> None:
        self.lines.append(message)
        dropped: list[Message] = []
        while len(self.lines) > 1 and sum(words(line.line) for line in self.lines) > WINDOW:
            dropped.append(self.lines.pop(0))
        text = "\n".join(line.line for line in self.lines)
        given, before = said(message), replaced(self.unit)
        with operation(
            kind="update", system="reference", scope=ANN, purpose="memory_update", attributes=SETTINGS
        ) as op:
            new = op.read(given.ref, role=given.role, content=given.text)
            old = op.read(before.ref, role=before.role, origin=before.origin, content=before.text)
            op.wrote(self.unit.ref, action="UPDATE", content=text, sources=[new, old])
            op.wrote(f"state:line-{message.id}", action="ADD", content=message.line, sources=[new])
            for line in dropped:
                op.wrote(f"state:line-{line.id}", action="DELETE", sources=[old])
        self.unit = Variable(text, self.unit.ref, op.origin)

    def flush(self) -> None:
        """The system has no buffer."""

    def search(self, query: Variable) -> list[Variable]:
        with operation(
            "search_memory",
            kind="retrieve",
            system="reference",
            scope=ANN,
            purpose="retrieve",
            attributes={"top_k": TOP_K},
        ) as op:
            op.read(query.ref, role="query", content=query.text)
            op.read(self.unit.ref, role="hit", origin=self.unit.origin, content=self.unit.text)
        return [hit(self.unit)]
