"""EverOS under opentelemetry-instrument: a conversation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.everos import host
from tests.integration.everos.models import EverosModels
from tests.integration.loading import LoadingContract


class TestEveros(LoadingContract):
    entry_point = "memtrace_everos"
    operations = frozenset({("everos", "upsert_memory"), ("everos", "memtrace.extract"), ("everos", "search_memory")})
    source = """
import asyncio
from tests.integration.everos.tokens import use_bytes

use_bytes()
from everos.entrypoints.api.app import create_app
from everos.memory.search import SearchRequest
from everos.service import memorize, search

said = {
    "sender_id": "mia",
    "sender_name": "Mia",
    "role": "user",
    "timestamp": 1_777_000_000_000,
    "content": "I live in Lisbon.",
}

async def main():
    async with (app := create_app()).router.lifespan_context(app):
        await memorize({"session_id": "monday", "messages": [said]})
        await memorize({"session_id": "monday", "messages": []}, is_final=True)
        await search(SearchRequest(user_id="mia", query="Where does Mia live?", top_k=3))

asyncio.run(main())
print("done")
"""

    @pytest.fixture
    def url(self, models: EverosModels) -> str:
        return models.url

    def environment(self, url: str, folder: Path) -> dict[str, str]:
        (folder / "ome.toml").touch()
        return super().environment(url, folder) | host.environment(folder, url)
