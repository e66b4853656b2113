"""Where stores and checkpointers keep what they hold: in memory, alone with their object, or in a database."""

from __future__ import annotations

import inspect
import json
import os
import sqlite3
import sys
from typing import Any, cast
from urllib.parse import unquote, urlsplit
from weakref import WeakKeyDictionary

_IN_MEMORY = (("langgraph.store.memory", "InMemoryStore"), ("langgraph.checkpoint.memory", "InMemorySaver"))


def in_memory(holder: Any) -> bool:
    """Whether it is one of LangGraph's own in-memory classes or derived from one; imports nothing."""
    classes = (getattr(sys.modules.get(module), name, None) for module, name in _IN_MEMORY)
    return any(isinstance(made, type) and isinstance(holder, made) for made in classes)


class Databases:
    """The SQLite file or PostgreSQL database behind each store and checkpointer. Asked once: a name may be relative,
    and the program may move to another folder."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Any, str | None] = WeakKeyDictionary()

    def of(self, holder: Any) -> str | None:
        """Real path of the file, or server, port and name of the database; '' for a database in memory, None when the
        holder does not say. No credentials. Equal for plain and async clients."""
        try:
            if holder not in self._known:
                connection = getattr(holder, "conn", None)
                self._known[holder] = postgresql_of(connection) or _database_of(connection)
            return self._known[holder]
        except TypeError:  # not hashable
            return None


def postgresql_of(connection: Any) -> str | None:
    """Host, port and name of the database that a connection or connection pool of psycopg 3 is for, None for others. A
    pool says what it was told, with libpq's defaults; no socket is opened and nobody waited for."""
    try:
        told: Any = getattr(connection, "info", None)
        if hasattr(told, "dbname"):
            return _place(told.host, told.port, told.dbname)
        conninfo, pq = sys.modules.get("psycopg.conninfo"), sys.modules.get("psycopg.pq")
        text = getattr(connection, "conninfo", None)
        if not isinstance(text, str) or conninfo is None or pq is None:
            return None
        given = conninfo.conninfo_to_dict(text, **(getattr(connection, "kwargs", None) or {}))
        defaults = {row.keyword.decode(): row.val.decode() for row in pq.Conninfo.get_defaults() if row.val}
        host, port, name, user = (given.get(key) or defaults.get(key) for key in ("host", "port", "dbname", "user"))
        return _place(host, port, name or user)
    except Exception:  # closed, or a connection that only looks like one of psycopg
        return None


def _place(host: object, port: object, name: object) -> str:
    """A socket's folder is no host: on it the port tells the server."""
    server = str(host or "")
    return json.dumps(["postgresql", "" if server.startswith(("/", "@")) else server, str(port), str(name)])


def _database_of(connection: Any) -> str | None:
    if isinstance(connection, sqlite3.Connection):
        cursor = sqlite3.Cursor(connection)
        cursor.row_factory = None  # whatever the connection makes of its rows
        try:
            rows = cast(list[tuple[int, object, str | bytes]], cursor.execute("PRAGMA database_list").fetchall())
        except sqlite3.Error:  # closed, or of another thread
            return None
        return _real(os.fsdecode(rows[0][2])) if rows else None  # the first is the connection's own
    connector = getattr(connection, "_connector", None)  # aiosqlite: its thread alone may ask the connection itself
    if not inspect.isfunction(connector):
        return None
    database = inspect.getclosurevars(connector).nonlocals.get("database")
    named = isinstance(database, str | bytes | os.PathLike)
    return _real(os.fsdecode(cast("str | bytes | os.PathLike[str]", database))) if named else None


def _real(name: str) -> str:
    if name.startswith("file:"):
        uri = urlsplit(name)
        name = "" if "mode=memory" in uri.query else unquote(uri.path)
    return os.path.realpath(name) if name not in ("", ":memory:") else ""
