"""A memory of one's own, traced by decorator and context manager, under opentelemetry-instrument."""

from __future__ import annotations

import pytest

from tests.integration.loading import BY_ENVIRONMENT, LoadingContract, Program


class TestOwnMemory(LoadingContract):
    entry_point = "memtrace_openai"  # settings hold for the process, whichever instrumentor they stand under
    operations = frozenset({("notes", "create_memory"), ("notes", "memtrace.extract")})
    source = """
from memtrace_otel import operation, scope_id

ana = {"system": "notes", "scope": scope_id("notes", user="ana")}

@operation(kind="extract", **ana, inputs={"message": "message"}, output="fact")
def extract(message):
    return message.split(". ")

with operation("create_memory", kind="create", **ana) as made:
    for number, fact in enumerate(extract("I live in Oslo. I am a baker")):
        made.wrote(f"memory:{number}", action="ADD", content=fact)
print("done")
"""

    @pytest.fixture
    def url(self) -> str:
        return "http://127.0.0.1:9"

    def test_it_is_switched_off_by_environment(self, program: Program) -> None:
        """There is no instrumentor to disable: the SDK is."""
        assert program.run(BY_ENVIRONMENT | {"OTEL_SDK_DISABLED": "true"}) == []

    def test_it_is_switched_off_by_file(self, program: Program) -> None:
        variables = program.file(self.entry_point, "enabled: true")
        file = program.folder / "otel.yaml"
        file.write_text(file.read_text() + "disabled: true\n")
        assert program.run(variables) == []
