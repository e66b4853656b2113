"""A small application with EverOS inside: `async with everos(folder, models) as memory: await memory.add(...)`."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import structlog

from tests.integration.everos.models import DIMENSIONS, EverosModels

DAY = 86_400_000
START = 1_767_225_600_000  # 2026-01-01

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))


def environment(folder: Path, url: str, **extra: str) -> dict[str, str]:
    """What EverOS reads: everything it asks goes to `url`, everything it keeps to `folder`."""
    values = {
        "EVEROS_ROOT": str(folder),
        "EVEROS_MEMORIZE__MODE": "chat",
        "EVEROS_EMBEDDING__DIM": str(DIMENSIONS),
        "EVEROS_RERANK__PROVIDER": "vllm",
        "EVEROS_CASCADE__POLL_INTERVAL_SECONDS": "0.05",
    }
    for section in ("LLM", "EMBEDDING", "RERANK"):
        values |= {
            f"EVEROS_{section}__BASE_URL": url,
            f"EVEROS_{section}__API_KEY": "none",
            f"EVEROS_{section}__MODEL": "stub",
        }
    return values | extra


class Memory:
    """EverOS as an application uses it: over its HTTP routes, without a server."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._clock = START

    async def post(self, what: str, **body: Any) -> Any:
        response = await self._client.post(f"/api/v1/memory/{what}", json=body)
        if response.status_code >= 400:
            raise RuntimeError(f"{response.status_code}: {response.text[:300]}")
        return response.json()["data"]

    async def add(self, *texts: str, session: str = "s1", user: str = "ann", days: int = 0) -> Any:
        """Add turns: those that begin with "> " are the assistant's."""
        messages = [self.turn(text, user, days) for text in texts]
        return await self.post("add", session_id=session, messages=messages)

    def turn(self, text: str, user: str = "ann", days: int = 0) -> dict[str, Any]:
        self._clock += 60_000
        said = text.startswith("> ")
        return {
            "sender_id": "bot" if said else user,
            "sender_name": "Bot" if said else user.title(),
            "role": "assistant" if said else "user",
            "timestamp": self._clock + days * DAY,
            "content": text.removeprefix("> "),
        }

    async def flush(self, session: str = "s1") -> Any:
        return await self.post("flush", session_id=session)

    async def search(self, query: str, user: str = "ann", method: str = "hybrid", top_k: int = 3, **more: Any) -> Any:
        return await self.post("search", user_id=user, query=query, method=method, top_k=top_k, **more)

    async def get(self, kind: str = "episode", user: str = "ann") -> Any:
        return await self.post("get", user_id=user, memory_type=kind)

    async def settled(self) -> None:
        """Wait until no strategy runs and everything that was written is indexed."""
        engine = sys.modules["everos.service.memorize"]._get_engine()
        assert await engine.wait_idle(timeout=30)
        root = Path(os.environ["EVEROS_ROOT"])
        await until(lambda: not _waiting(root))


def _waiting(root: Path) -> list[str]:
    """Markdown files that the index has not caught up with."""
    import sqlite3

    database = next(root.glob(".index/sqlite/system.db"))
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        rows = dict(connection.execute("SELECT md_path, status || '@' || mtime FROM md_change_state"))
    done = {path: float(state.split("@")[1]) for path, state in rows.items() if state.startswith("done")}
    files = [path for path in root.glob("*/*/*s/*/**/*.md") if "knowledge" not in path.parts]
    return [str(f) for f in files if done.get(str(f.relative_to(root)), 0) < f.stat().st_mtime - 0.001]


async def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Poll `condition`."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        await asyncio.sleep(0.02)


@asynccontextmanager
async def everos(folder: Path, models: EverosModels, **extra: str) -> AsyncIterator[Memory]:
    """EverOS with its background work, from start to stop."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ome.toml").write_text("[strategies.extract_foresight]\nenabled = true\n")
    with _environment(environment(folder, models.url, **extra)), _fresh_singletons():
        app = importlib.import_module("everos.entrypoints.api.app").create_app()
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://everos", timeout=60) as client:
                yield Memory(client)


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


_unset: dict[str, set[str]] = {}


@contextmanager
def _fresh_singletons() -> Iterator[None]:
    """EverOS builds its parts once per process: what was unset before is unset again afterwards."""
    from everalgo import _tokenize
    from tiktoken import Encoding

    for name in ("everos.entrypoints.api.app", "everos.memory.get.manager", "everos.service"):
        importlib.import_module(name)
    _tokenize._tokenizer_cache = Encoding(  # the real one would be downloaded
        "bytes", pat_str=r"\S+|\s+", mergeable_ranks={bytes([i]): i for i in range(256)}, special_tokens={}
    )
    for name, module in _everos_modules():
        unset = {key for key, value in vars(module).items() if value is None and key.startswith("_")}
        _unset.setdefault(name, unset)
    try:
        yield
    finally:
        for name, module in _everos_modules():
            for key in _unset.get(name, ()):
                setattr(module, key, None)
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def _everos_modules() -> list[tuple[str, Any]]:
    return [(name, module) for name, module in sys.modules.items() if name.split(".")[0] == "everos"]
