"""Mem0 under opentelemetry-instrument: add and search."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.loading import LoadingContract
from tests.integration.mem0.conftest import IS_V1, config
from tests.integration.model_stub import ModelStub


class TestMem0(LoadingContract):
    entry_point = "memtrace_mem0"
    operations = frozenset({("mem0", "upsert_memory"), ("mem0", "search_memory")})
    source = f"""
import json
from mem0 import Memory

memory = Memory.from_config(json.load(open("mem0.json")))
memory.add([{{"role": "user", "content": "My train leaves at 9:40."}}], user_id="ana")
owner = {{"user_id": "ana"}} if {IS_V1} else {{"filters": {{"user_id": "ana"}}}}
assert memory.search("When does my train leave?", **owner)["results"]
print("done")
"""

    @pytest.fixture
    def url(self, model: ModelStub, tmp_path: Path) -> str:
        (tmp_path / "mem0.json").write_text(json.dumps(config(model, tmp_path)))
        return model.url

    def environment(self, url: str, folder: Path) -> dict[str, str]:
        return super().environment(url, folder) | {"MEM0_TELEMETRY": "False", "MEM0_DIR": str(folder / "mem0")}
