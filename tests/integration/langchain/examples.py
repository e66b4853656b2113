"""Runs an example of the guides against the model server of these tests."""

from __future__ import annotations

from pathlib import Path

from memtrace_otel.graph import EvolutionGraph
from tests.integration import example, model_stub
from tests.integration.langchain.conftest import ChatStub

_ENVIRONMENT = {"DIMENSIONS": str(model_stub.DIMENSIONS), "ANONYMIZED_TELEMETRY": "False"}


def run_example(name: str, guide: str, server: ChatStub, folder: Path) -> tuple[list[str], EvolutionGraph]:
    """Return the output of the example, and the graph of the recorded operations."""
    return example.run_example(name, guide, server.url, folder, _ENVIRONMENT)
