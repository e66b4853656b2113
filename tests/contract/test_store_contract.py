"""The embedded store keeps the contract of every store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import encode_request
from memtrace_otel.sources import SqliteStore
from memtrace_otel.testing import Fill, RecordContract
from tests.contract.stores import DurableContract, StoreContract


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[SqliteStore]:
        with SqliteStore.open(tmp_path / "store.db") as store:
            yield store

    @pytest.fixture
    def fill(self, store: SqliteStore) -> Fill:
        return partial(self.fill_store, store)


class TestRecordsOfSqliteStore(RecordContract):
    @pytest.fixture
    def fill(self, tmp_path: Path) -> Iterator[Fill]:
        def fill(*requests: Sequence[OperationSpan]) -> SqliteStore:
            for spans in requests:
                store.add_request(encode_request(spans))
            store.decode()  # what waits is left to wait by these questions
            return store

        with SqliteStore.open(tmp_path / "store.db") as store:
            yield fill


class TestDurabilityOfSqliteStore(DurableContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Iterator[Callable[[], SqliteStore]]:
        with ExitStack() as stack:
            yield lambda: stack.enter_context(SqliteStore.open(tmp_path / "store.db"))
