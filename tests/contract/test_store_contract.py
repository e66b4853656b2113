"""The embedded store keeps the contract of every store."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from memtrace_otel.store import SqliteStore
from memtrace_otel.testing import Fill, StoreContract, UpkeepContract


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[SqliteStore]:
        with SqliteStore.open(tmp_path / "store.db") as store:
            yield store

    @pytest.fixture
    def fill(self, store: SqliteStore) -> Fill:
        return partial(self.fill_store, store)


class TestUpkeepOfSqliteStore(UpkeepContract):
    @pytest.fixture
    def upkeep(self, tmp_path: Path) -> Iterator[SqliteStore]:
        with SqliteStore.open(tmp_path / "store.db") as store:
            yield store
