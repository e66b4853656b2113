"""Store locations, on objects with the attributes of the libraries."""

from __future__ import annotations

import gc
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from memtrace_otel.instrumentation.store_location import Places, postgresql_of


@dataclass(eq=False)
class Holder:
    """A store on a client."""

    _client: Any


class Client(SimpleNamespace):
    """An object of a library, with weak references."""


class Notes:
    """A custom store that keeps all data in the object."""

    def __init__(self) -> None:
        self.notes: dict[str, str] = {}
        self.lock = threading.RLock()


def local(location: str) -> Client:
    """Of Qdrant in this process."""
    return Client(_client=Client(location=location, persistent=location != ":memory:"))


def test_a_folder_is_named_by_its_real_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places, store = Places(), Holder(local("notes"))
    monkeypatch.chdir(tmp_path)
    assert places.of(store) == places.of(Holder(local(str(tmp_path / "notes")))) == str(tmp_path / "notes")
    monkeypatch.chdir("/")
    assert places.of(store) == str(tmp_path / "notes")


@pytest.mark.parametrize("make", [lambda: local(":memory:"), lambda: Client(store={}), Notes])
def test_an_in_memory_store_has_a_name_of_its_own(make: Any) -> None:
    places = Places()
    one, other = make(), make()
    assert places.of(one) == places.of(Holder(one)) == places.of(Holder(one))
    assert len({"", places.of(one), places.of(other), places.of(make()), Places().of(one)}) == 5
    del one, other
    gc.collect()
    assert not places._known  # pyright: ignore[reportPrivateUsage]


def test_an_unknown_client_has_no_location() -> None:
    class Lazy:
        @property
        def client(self) -> Any:
            raise AssertionError("the program connects here")

    class Cached(Notes):
        def __init__(self, url: str) -> None:
            super().__init__()
            self.url = url

    holders = (Lazy(), Cached("redis://one"), SimpleNamespace(notes={}, client=Lazy()), Holder(None), object(), None)
    assert {Places().of(holder) for holder in holders} == {""}


def test_each_chroma_database_has_its_own_location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(eq=False)
    class Chroma:
        persist_directory: str = ""
        is_persistent: bool = True
        chroma_server_host: str | None = None
        database: str = "default"

        def get_settings(self) -> Chroma:
            return self

    monkeypatch.chdir(tmp_path)
    clients = [
        Chroma("notes"),
        Chroma(str(tmp_path / "notes")),
        Chroma(chroma_server_host="one"),
        Chroma(chroma_server_host="two"),
        Chroma("notes", database="another"),
    ]
    here, there, *others = [Places().of(Holder(client)) for client in clients]
    assert here == there
    assert len({here, *others}) == 4


class Told:
    """`connection.info` of psycopg; empty for a closed connection."""

    def __init__(self, host: str, dbname: str, port: int = 5432, *, closed: bool = False) -> None:
        self.dbname, self.port, self._host, self._closed = dbname, port, host, closed
        self.user, self.password = "ann", "secret"

    @property
    def host(self) -> str:
        if self._closed:
            raise RuntimeError("the connection is closed")
        return self._host


class Saver:
    """A custom checkpointer on a connection like that of psycopg."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.conn = type("Connection", (), {"info": Told(*args, **kwargs)})()


def test_postgresql_databases_are_told_apart_without_credentials() -> None:
    known = Places()
    place = known.of(Saver("db.example", "one"))
    assert place == '["postgresql", "db.example", "5432", "one"]'
    assert known.of(Saver("db.example", "one")) == place
    others = [Saver("db.example", "two"), Saver("other.example", "one"), Saver("db.example", "one", 6432)]
    assert len({place, *map(known.of, others)}) == 4
    assert known.of(Saver("/run/postgresql", "one")) == '["postgresql", "", "5432", "one"]'


def test_a_closed_connection_has_no_location_and_raises_nothing() -> None:
    assert Places().of(Saver("db.example", "one", closed=True)) == ""
    assert Places().of(type("Saver", (), {"conn": object()})()) == ""


def test_a_postgresql_pool_has_the_location_of_its_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    def parsed(conninfo: str, **given: Any) -> dict[str, Any]:
        return dict(pair.split("=") for pair in conninfo.split()) | given

    default = SimpleNamespace(keyword=b"port", val=b"5432")
    pq = SimpleNamespace(Conninfo=SimpleNamespace(get_defaults=lambda: [default]))
    monkeypatch.setitem(sys.modules, "psycopg.conninfo", cast(Any, SimpleNamespace(conninfo_to_dict=parsed)))
    monkeypatch.setitem(sys.modules, "psycopg.pq", cast(Any, pq))
    pool = SimpleNamespace(conninfo="host=db.example user=ann password=secret", kwargs={"dbname": "one"})
    assert postgresql_of(pool) == Places().of(Saver("db.example", "one"))
    pool.kwargs = {}
    assert postgresql_of(pool) == '["postgresql", "db.example", "5432", "ann"]'  # libpq: the user's own


class Anything:
    """A client with every attribute, like that of MongoDB."""

    def __getattr__(self, name: str) -> Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __call__(self, *args: object) -> None:
        raise TypeError


def test_a_client_with_dynamic_attributes_is_not_queried() -> None:
    assert Places().of(Holder(Anything())) == Places().of(SimpleNamespace(client=Anything(), db=Anything())) == ""


def test_none_has_no_location() -> None:
    assert Places().of(None) == ""
