"""The contract of instrumentors for the hosted clients of Mem0, against a loopback service with a store."""

from __future__ import annotations

import inspect
import json
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from mem0.client.main import AsyncMemoryClient, MemoryClient

from memtrace_otel.instrumentation.mem0 import Mem0Instrumentor
from tests.harness import (
    InstrumentorContract,
)
from tests.integration.mem0.test_client import Platform, _Handler

OWNED = frozenset({"get_all", "delete_all", "delete_users"})
"""Methods that take an owner."""


class Service(Platform):
    """Stores messages for each owner (`user_id`); a text with "fail" is refused."""

    def __init__(self) -> None:
        super().__init__()
        self.RequestHandlerClass = _Remembering
        self.records: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()

    def reply(self, method: str, path: str, asked: dict[str, Any]) -> Any:
        end = path.rstrip("/").rpartition("/")[2]
        with self._lock:
            if "messages" in asked:
                return self._add(asked)
            mine = [item for item in self.records.values() if item["user_id"] == _owner(asked)]
            if end == "search":
                return {"results": _found(asked["query"], mine)}
            if end in self.records:
                return self._one(method, end, asked)
            if end == "entities":
                return {"results": [{"type": "user", "name": "ann", "id": "e1"}]}
            if end == "history":
                return [{"new_memory": self.records[path.split("/")[-3]]["memory"], "event": "ADD"}]
            return {"results": mine, "message": "done"}

    def _add(self, asked: dict[str, Any]) -> Any:
        text = asked["messages"][-1]["content"]
        if "fail" in text:
            return 400, {"detail": "scripted"}
        user = asked["user_id"]
        id = f"{user}-{sum(item['user_id'] == user for item in self.records.values())}"
        self.records[id] = {"id": id, "memory": text, "user_id": asked["user_id"]}
        return {"results": [{"id": id, "event": "ADD", "data": {"memory": text}, "memory": text}]}

    def _one(self, method: str, id: str, asked: dict[str, Any]) -> Any:
        if method == "PUT":
            self.records[id]["memory"] = asked["text"]
        return self.records[id] if method != "DELETE" else {"message": self.records.pop(id) and "deleted"}


class _Remembering(_Handler):
    server: Service

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        place = urlsplit(self.path)
        asked = {**dict(parse_qsl(place.query)), **(json.loads(body) if body else {})}
        found: Any = {"user_email": "ann@example.org", "org_id": "o1", "project_id": "p1"}
        if "ping" not in place.path:
            found = self.server.reply(self.command, place.path, asked)
        self.reply_with(found)

    do_GET = do_POST = do_PUT = do_DELETE = answer


def _owner(asked: dict[str, Any]) -> str:
    filters = asked.get("filters") or {}
    return str(asked.get("user_id") or filters.get("user_id") or (filters.get("AND") or [{}])[0].get("user_id"))


def _found(query: str, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    words = set(re.findall(r"\w+", query.lower()))
    scored = [{**item, "score": len(words & set(re.findall(r"\w+", item["memory"].lower()))) / 10} for item in items]
    return sorted((item for item in scored if item["score"]), key=lambda item: -item["score"])


class Hosted:
    """A program that stores texts in the hosted service, for one owner."""

    def __init__(self, kind: Any, service: Service, owner: str) -> None:
        self.service, self.owner = service, owner
        self.client = kind(api_key="key", host=service.url)

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        result = getattr(self.client, method)(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    async def write(self, text: str) -> object:
        return _texts(await self.call("add", [{"role": "user", "content": text}], user_id=self.owner))

    async def read(self, query: str) -> object:
        return _texts(await self.call("search", query, filters={"AND": [{"user_id": self.owner}]}))

    async def explore(self) -> object:
        added = await self.call("add", [{"role": "user", "content": "I ride a bike."}], user_id=self.owner)
        one = added["results"][0]["id"]
        calls: list[tuple[Any, ...]] = [
            ("update", one, "I ride a horse."),
            ("get", one),
            ("get_all",),
            ("history", one),
            ("batch_update", [{"memory_id": one, "text": "I walk."}]),
            ("batch_delete", [{"memory_id": one}]),
            ("delete", one),
            ("delete_all",),
            ("delete_users",),
            ("reset",),
        ]
        seen = list[object]()
        for method, *args in calls:
            owner = {"filters": {"user_id": self.owner}} if method == "get_all" else {"user_id": self.owner}
            arguments: dict[str, Any] = {"text": args.pop()} if method == "update" else {}
            if method in OWNED:
                arguments = owner
            told = await self.call(method, *args, **arguments)
            seen.append(told)
        return json.dumps(seen).replace(self.owner, "ann")

    async def fail(self) -> object:
        return await self.write("Please fail.")

    async def close(self) -> None:
        pass


def _texts(result: Any) -> list[str]:
    return [item["memory"] for item in (result["results"] if isinstance(result, dict) else result)]


class TestMemoryClient(InstrumentorContract):
    instrumentor = Mem0Instrumentor

    @pytest.fixture(params=[MemoryClient, AsyncMemoryClient])
    def program(self, request: pytest.FixtureRequest) -> Iterator[Callable[[], Hosted]]:
        with Service() as service:
            thread = threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
            thread.start()
            numbers = iter(range(1_000))
            yield lambda: Hosted(request.param, service, f"ann{next(numbers)}")
            service.shutdown()
