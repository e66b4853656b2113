"""Locations of stores, clients, checkpointers and graphs: equal names in two locations are two memories."""

from __future__ import annotations

import inspect
import json
import os
import secrets
import sqlite3
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from threading import Lock, RLock
from typing import Any, cast
from urllib.parse import unquote, urlsplit
from weakref import finalize

_CLIENTS = ("_async_engine", "_client", "_aclient", "client", "conn", "db")
_IN_MEMORY = (("langgraph.store.memory", "InMemoryStore"), ("langgraph.checkpoint.memory", "InMemorySaver"))
_PLAIN = (dict, defaultdict, OrderedDict, list, set, deque, bool, int, float, type(None), type(Lock()), type(RLock()))
"""Types of attributes of objects that keep all data in themselves."""


class ObjectNames:
    """Names of objects, by identity, for the lifetime of each object.

    No lock: a finalizer of the program may call `name` while its thread is inside.
    """

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def name(self, value: Any, new: str = "") -> str:
        """The name of an object, '' for a type without weak references.

        `new` is the name of a new object; '' makes a random name.
        """
        known = self._names.get(id(value))
        if known is not None:
            return known
        try:
            finalize(value, self._names.pop, id(value), None).atexit = False  # two threads may register two finalizers
        except TypeError:
            return ""
        return self._names.setdefault(id(value), new or secrets.token_hex(8))


class Places:
    """The location of each holder, found once: a path may be relative, and the program may change its folder."""

    def __init__(self) -> None:
        self._known: dict[int, str] = {}
        self._objects = ObjectNames()

    def of(self, holder: Any) -> str:
        """The location of a holder, without credentials.

        The real path of a local file or folder, equal in all processes; a random name for data in an object of this
        process; '' if unknown, as for most servers (a server has several addresses).
        """
        known = self._known.get(id(holder))
        if known is not None or holder is None:
            return known or ""
        place = self._find(holder)
        try:
            finalize(holder, self._known.pop, id(holder), None).atexit = False  # equal holders are not the same
        except TypeError:
            return place
        return self._known.setdefault(id(holder), place)

    def _find(self, holder: Any) -> str:
        for keeper in _keepers(holder):
            path = _path_of(keeper)
            if path is not None:
                return path or self._objects.name(keeper) or self._objects.name(holder)
        return ""


def _keepers(holder: Any) -> Iterator[Any]:
    """Objects that may know the location: the client or connection of a holder, the client inside it, the holder."""
    for name in _CLIENTS:
        client = _own(holder, name)
        if client is not None:
            yield from (keeper for keeper in (_own(client, "_client"), client) if keeper is not None)
    yield holder


def _path_of(keeper: Any) -> str | None:
    """Path or database of a keeper, '' for data in the object itself, None if unknown."""
    if _in_memory(keeper):
        return ""
    looks = (_qdrant, _chroma, _kuzu, _sqlalchemy, _sqlite, _aiosqlite, postgresql_of)
    try:
        return next((path for look in looks if (path := look(keeper)) is not None), None)
    except Exception:  # only similar to one of these types
        return None


def _own(holder: Any, name: str) -> Any:
    """An attribute of the object itself, None without one. No property is called: it may connect to a server."""
    for attributes in (getattr(holder, "__dict__", None), getattr(holder, "__pydantic_private__", None)):
        if isinstance(attributes, dict) and name in attributes:
            return cast(dict[str, Any], attributes)[name]
    return None


def _in_memory(keeper: Any) -> bool:
    """Whether data are in the object: in-memory classes of LangGraph, stores around a dict (LlamaIndex chat store,
    LangChain vector store), objects with containers only. Imports nothing."""
    classes = (getattr(sys.modules.get(module), name, None) for module, name in _IN_MEMORY)
    if any(isinstance(made, type) and isinstance(keeper, made) for made in classes):
        return True
    kept = cast(dict[str, object], getattr(keeper, "__dict__", None) or {}).values()
    alone = any(isinstance(value, dict | list) for value in kept) and all(type(value) in _PLAIN for value in kept)
    return alone or isinstance(_own(keeper, "store"), dict)


def _qdrant(keeper: Any) -> str | None:
    location = _own(keeper, "location")
    return _real(location) if isinstance(location, str) and _own(keeper, "persistent") is not None else None


def _chroma(keeper: Any) -> str | None:
    kind = type(cast(object, keeper))
    if not callable(getattr(kind, "get_settings", None)):  # some clients have every attribute
        return None
    settings = keeper.get_settings()
    host, port = getattr(settings, "chroma_server_host", None), getattr(settings, "chroma_server_http_port", None)
    folder = getattr(settings, "persist_directory", None) if getattr(settings, "is_persistent", False) else None
    parts = [
        os.path.realpath(folder) if isinstance(folder, str) and not host else None,
        *(host, port, getattr(keeper, "tenant", None), getattr(keeper, "database", None)),
    ]
    return json.dumps([None if part is None else str(part) for part in parts])


def _kuzu(keeper: Any) -> str | None:
    path = _own(keeper, "database_path")
    return _real(path) if isinstance(path, str) else None


def _sqlalchemy(keeper: Any) -> str | None:
    """An engine, or a store with the address of a database that makes its engine later."""
    sqlalchemy, asyncio = sys.modules.get("sqlalchemy"), sys.modules.get("sqlalchemy.ext.asyncio")
    if sqlalchemy is None or asyncio is None:
        return None
    url = keeper.url if isinstance(keeper, asyncio.AsyncEngine) else _own(keeper, "async_database_uri")
    try:
        address = sqlalchemy.make_url(url)
    except Exception:  # no address
        return None
    if address.get_backend_name() != "sqlite":
        return None
    return "" if address.query.get("mode") == "memory" else _real(address.database or "")


def _sqlite(connection: Any) -> str | None:
    if not isinstance(connection, sqlite3.Connection):
        return None
    cursor = sqlite3.Cursor(connection)
    cursor.row_factory = None  # the connection may have a row factory
    try:
        rows = cast(list[tuple[int, object, str | bytes]], cursor.execute("PRAGMA database_list").fetchall())
    except sqlite3.Error:  # closed, or of another thread
        return None
    return _real(os.fsdecode(rows[0][2])) if rows else None  # the first is the connection's own


def _aiosqlite(connection: Any) -> str | None:
    connector = getattr(connection, "_connector", None)  # only its thread may use the connection
    if not inspect.isfunction(connector):
        return None
    database = inspect.getclosurevars(connector).nonlocals.get("database")
    named = isinstance(database, str | bytes | os.PathLike)
    return _real(os.fsdecode(cast("str | bytes | os.PathLike[str]", database))) if named else None


def postgresql_of(connection: Any) -> str | None:
    """Host, port and name of the database of a connection or pool of psycopg 3, None for others.

    The location of a pool is that of its settings, with the defaults of libpq. No socket is opened.
    """
    try:
        told: Any = getattr(connection, "info", None)
        if isinstance(getattr(told, "dbname", None), str):
            return _database(told.host, told.port, told.dbname)
        conninfo, pq = sys.modules.get("psycopg.conninfo"), sys.modules.get("psycopg.pq")
        text = getattr(connection, "conninfo", None)
        if not isinstance(text, str) or conninfo is None or pq is None:
            return None
        given = conninfo.conninfo_to_dict(text, **(getattr(connection, "kwargs", None) or {}))
        defaults = {row.keyword.decode(): row.val.decode() for row in pq.Conninfo.get_defaults() if row.val}
        host, port, name, user = (given.get(key) or defaults.get(key) for key in ("host", "port", "dbname", "user"))
        return _database(host, port, name or user)
    except Exception:  # closed, or only similar to psycopg
        return None


def _database(host: object, port: object, name: object) -> str:
    """A location as JSON. The folder of a socket is no host; the port identifies the server."""
    server = str(host or "")
    return json.dumps(["postgresql", "" if server.startswith(("/", "@")) else server, str(port), str(name)])


def _real(name: str) -> str:
    if name.startswith("file:"):
        uri = urlsplit(name)
        name = "" if "mode=memory" in uri.query else unquote(uri.path)
    return os.path.realpath(name) if name not in ("", ":memory:") else ""
