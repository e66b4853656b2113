"""An application with EverOS inside: EverOS runs in a thread with its own event loop and serves HTTP routes.

with Everos(folder, models) as everos:
    ann = everos.memory()
    await ann.add("I live in Paris.")
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import structlog

from tests.integration.everos.models import DIMENSIONS, EverosModels
from tests.integration.everos.tokens import use_bytes

START = 1_767_225_600_000  # 2026-01-01
DAY = 86_400_000
ENTRY_POINTS = ("everos.entrypoints.api.app", "everos.service", "everos.memory.get.manager", "everos.memory.cascade")

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
use_bytes()
_owners = count(1)
_PATIENCE = 120.0  # seconds that a starved machine is waited for


def environment(folder: Path, url: str) -> dict[str, str]:
    """The environment of EverOS: models at `url`, memories in `folder`."""
    values = {
        "EVEROS_ROOT": str(folder),
        "EVEROS_MEMORIZE__MODE": "chat",
        "EVEROS_EMBEDDING__DIM": str(DIMENSIONS),
        "EVEROS_RERANK__PROVIDER": "vllm",
    }
    for section in ("LLM", "EMBEDDING", "RERANK"):
        values |= {
            f"EVEROS_{section}__BASE_URL": url,
            f"EVEROS_{section}__API_KEY": "none",
            f"EVEROS_{section}__MODEL": "stub",
        }
    return values


class Everos:
    """EverOS with its background work. Its parts are module globals, so a process has one EverOS at a time."""

    def __init__(self, folder: Path, models: EverosModels, *, off: tuple[str, ...] = (), **settings: str) -> None:
        self.folder, self.models = folder, models
        self._strategies = {"extract_foresight": "true", **dict.fromkeys(off, "false")}
        self._environment = environment(folder, models.url) | settings
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Everos:
        with ExitStack() as undo:
            self._set_up(undo)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def _set_up(self, undo: ExitStack) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        switches = (f"[strategies.{name}]\nenabled = {on}\n" for name, on in self._strategies.items())
        (self.folder / "ome.toml").write_text("".join(switches))
        undo.enter_context(patch.dict(os.environ, self._environment))
        for name in ENTRY_POINTS:
            importlib.import_module(name)
        undo.enter_context(patch("everos.memory.cascade.scanner.reconcile", self._reconcile()))
        skills = importlib.import_module("everos.memory.strategies.extract_agent_skill")
        if hasattr(skills, "_load_target_case"):
            undo.enter_context(patch.object(skills, "_load_target_case", self._load_target_case(skills)))
        undo.callback(_forget, _unset())
        self._thread.start()
        undo.callback(self._end_loop)
        self.call(self._start()).result()
        undo.callback(lambda: self.call(self._stop()).result())

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def call(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Run in EverOS' loop, in the context of the caller."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def memory(self, user: str = "") -> Memory:
        """The memory of a user; without a name of a new user."""
        return Memory(self, user or f"ann{next(_owners)}")

    async def post(self, what: str, **body: Any) -> Any:
        """Call a route. Raises RuntimeError with the message of EverOS."""
        response = await asyncio.wrap_future(self.call(self._client.post(f"/api/v1/memory/{what}", json=body)))
        if response.status_code >= 400:
            raise RuntimeError(f"{response.status_code}: {response.json()['error']['message']}")
        return response.json()["data"]

    async def settled(self) -> None:
        """Wait until no strategy runs and all written files are indexed."""
        engine = sys.modules["everos.service.memorize"]._get_engine()
        assert await asyncio.wrap_future(self.call(engine.wait_idle(timeout=_PATIENCE)))
        await self.indexed()

    async def indexed(self) -> None:
        """Wait until the index has caught up with the markdown files.

        The watcher misses files in folders that are new: when nothing is queued any more, the scanner looks for them.
        """
        end = time.monotonic() + _PATIENCE
        while behind := self.behind():
            assert time.monotonic() < end, f"waited in vain for {behind}"
            if not self._queued():
                await asyncio.wrap_future(self.call(self._scanner.scan_once()))
            await asyncio.sleep(0.02)

    async def runs(self, strategy: str) -> list[Any]:
        """The records of the runs of a strategy."""
        engine = sys.modules["everos.service.memorize"]._get_engine()
        return await asyncio.wrap_future(self.call(engine.list_runs(strategy)))

    async def _start(self) -> None:
        app = sys.modules["everos.entrypoints.api.app"].create_app()
        self._lifespan = app.router.lifespan_context(app)
        cascade = importlib.import_module("everos.memory.cascade.orchestrator")
        scanner, worker = cascade.CascadeScanner, cascade.CascadeWorker

        def on_demand(*args: Any, **more: Any) -> Any:
            self._scanner = scanner(*args, **more | {"scan_interval_seconds": 3600})
            return self._scanner

        def quick(*args: Any, **more: Any) -> Any:
            return worker(*args, **more | {"poll_interval_seconds": 0.02})

        with patch.multiple(cascade, CascadeScanner=on_demand, CascadeWorker=quick):
            await self._lifespan.__aenter__()
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        self._client = httpx.AsyncClient(transport=transport, base_url="http://everos", timeout=60)

    async def _stop(self) -> None:
        await self._client.aclose()
        await self._lifespan.__aexit__(None, None, None)

    def _reconcile(self) -> Callable[..., Any]:
        """Compare files and index, as EverOS does. EverOS takes a file that is being written for a removed file."""
        reconcile = sys.modules["everos.memory.cascade.scanner"].reconcile

        def compare(*args: Any) -> list[Any]:
            found = reconcile(*args)
            return [it for it in found if it.change_type != "deleted" or not (self.folder / it.md_path).exists()]

        return compare

    def _load_target_case(self, skills: Any) -> Callable[..., Any]:
        """Before 1.5 EverOS reads a skill from the index. With a late index EverOS tries once more and gives up."""
        load = skills._load_target_case

        async def load_once_indexed(*args: Any, **more: Any) -> Any:
            await self.indexed()
            return await load(*args, **more)

        return load_once_indexed

    def behind(self) -> set[str]:
        """Markdown files that were written, changed or removed and are not indexed as they are."""
        files = [path for path in self.folder.glob("*/*/*/**/*.md") if path.relative_to(self.folder).parts[0][0] != "."]
        there = {str(file.relative_to(self.folder)): file.stat().st_mtime for file in files}
        indexed = {
            path: mtime
            for path, mtime, change, status in self._ledger()
            if status in ("done", "failed") and change != "deleted"
        }
        changed = {path for path, mtime in there.items() if indexed.get(path, 0.0) < mtime - 0.001}
        return self._queued() | changed | (indexed.keys() - there.keys())

    def _queued(self) -> set[str]:
        return {path for path, _, _, status in self._ledger() if status in ("pending", "processing")}

    def _ledger(self) -> list[tuple[str, float, str, str]]:
        """The state of each file in EverOS: path, time and kind of the last change, result."""
        with sqlite3.connect(f"file:{next(self.folder.glob('.index/sqlite/system.db'))}?mode=ro", uri=True) as db:
            return db.execute("SELECT md_path, mtime, change_type, status FROM md_change_state").fetchall()


class Memory:
    """One user of EverOS."""

    def __init__(self, everos: Everos, user: str) -> None:
        self.everos, self.user = everos, user
        self._time = START

    async def add(self, *texts: str, session: str = "", days: int = 0) -> Any:
        """Add turns one minute apart. A turn with the prefix "> " is of the assistant."""
        messages = [self.turn(text, days=days) for text in texts]
        return await self.everos.post("add", session_id=session or self.session, messages=messages)

    async def flush(self, session: str = "") -> Any:
        return await self.everos.post("flush", session_id=session or self.session)

    async def tell(self, *texts: str, session: str = "", days: int = 0) -> None:
        """Add turns, close the episode of the session and wait until a search can find the episode."""
        await self.add(*texts, session=session, days=days)
        await self.flush(session)
        await self.everos.settled()

    async def search(self, query: str, method: str = "hybrid", **more: Any) -> Any:
        owner = {} if "agent_id" in more else {"user_id": self.user}
        return await self.everos.post("search", **owner, **({"query": query, "method": method, "top_k": 3} | more))

    async def find(self, query: str) -> None:
        """Search until EverOS returns an episode.

        EverOS reports a file as indexed while a second run of its indexer still replaces the rows of the file.
        """
        end = time.monotonic() + _PATIENCE
        while not (await self.search(query))["episodes"]:
            assert time.monotonic() < end, f"no episode of {self.user}: {self.everos._ledger()}"
            await asyncio.sleep(0.1)

    async def get(self, kind: str = "episode") -> Any:
        return await self.everos.post("get", user_id=self.user, memory_type=kind)

    @property
    def session(self) -> str:
        return f"{self.user}-chat"

    def turn(self, text: str, *, days: int = 0, user: str = "") -> dict[str, Any]:
        """A message for `add`."""
        self._time += 60_000
        said = text.startswith("> ")
        sender = "bot" if said else user or self.user
        return {
            "sender_id": sender,
            "sender_name": sender.title(),
            "role": "assistant" if said else "user",
            "timestamp": self._time + days * DAY,
            "content": text.removeprefix("> "),
        }

    def files(self, kind: str) -> list[Path]:
        """The markdown files of this user: "episodes", ".atomic_facts"."""
        return list(self.everos.folder.glob(f"*/*/users/{self.user}/{kind}/*.md"))


async def until(condition: Callable[[], object], seconds: float = _PATIENCE) -> None:
    """Poll `condition`."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        await asyncio.sleep(0.02)


def _modules() -> list[Any]:
    return [module for name, module in sys.modules.items() if name.split(".")[0] == "everos"]


def _unset() -> dict[tuple[str, str], object]:
    """The parts that EverOS has not built yet: private names of its modules, None or False at first."""
    return {
        (module.__name__, name): value
        for module in _modules()
        for name, value in vars(module).items()
        if name.startswith("_") and not name.startswith("__") and (value is None or value is False)
    }


def _forget(unset: dict[tuple[str, str], object]) -> None:
    """Reset the parts of EverOS."""
    for (module, name), value in unset.items():
        setattr(sys.modules[module], name, value)
    for module in _modules():
        for value in list(vars(module).values()):
            if hasattr(value, "cache_clear"):
                value.cache_clear()
