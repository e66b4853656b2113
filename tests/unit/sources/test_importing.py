"""An import changes the database wholly or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from memtrace_otel.otlp import encode_request
from memtrace_otel.otlp.files import InputError, OtlpBody, read_file
from memtrace_otel.sources import SqliteStore, StoreError
from memtrace_otel.sources.importing import import_requests
from memtrace_otel.testing import contract_span
from tests.otlp_json import request_to_json


def lines(count: int) -> list[str]:
    return [json.dumps(request_to_json(encode_request([contract_span(1, n + 1)]))) for n in range(count)]


def bodies(*paths: Path) -> Iterator[bytes]:
    for path in paths:
        for item in read_file(path):
            assert isinstance(item, OtlpBody)
            yield item.body


def test_every_request_of_every_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("\n".join(lines(5)))
    (tmp_path / "b").write_bytes(encode_request([contract_span(2, 1)]))
    assert import_requests(tmp_path / "x.db", bodies(tmp_path / "a", tmp_path / "b")) == 6
    assert import_requests(tmp_path / "x.db", bodies(tmp_path / "b")) == 0
    with SqliteStore.open(tmp_path / "x.db") as store:
        assert store.stats().spans == 6


def test_a_fault_in_the_last_line_leaves_the_database_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "good").write_text("\n".join(lines(3)))
    (tmp_path / "bad").write_text("\n".join([*lines(300), '{"resourceSpans": 1}']))
    import_requests(tmp_path / "x.db", bodies(tmp_path / "good"))
    before = (tmp_path / "x.db").read_bytes()
    with pytest.raises(InputError, match=r"bad:301: "):
        import_requests(tmp_path / "x.db", bodies(tmp_path / "bad"))
    assert (tmp_path / "x.db").read_bytes() == before


def test_a_fault_makes_no_database(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("\n".join([*lines(3), "{"]))
    with pytest.raises(InputError):
        import_requests(tmp_path / "x.db", bodies(tmp_path / "bad"))
    assert not (tmp_path / "x.db").exists()


def test_a_database_of_another_kind_is_refused_before_reading(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"mine" * 1000)

    def unread() -> Iterator[bytes]:
        raise AssertionError("read")
        yield b""

    with pytest.raises(StoreError, match="not a database"):
        import_requests(tmp_path / "x.db", unread())


def test_others_can_write_while_a_file_is_read(tmp_path: Path) -> None:
    def slow() -> Iterator[bytes]:
        yield encode_request([contract_span(1, 1)])
        with SqliteStore.open(tmp_path / "x.db") as other:
            other.add_request(encode_request([contract_span(1, 2)]))
        yield encode_request([contract_span(1, 3)])

    SqliteStore.open(tmp_path / "x.db").close()
    assert import_requests(tmp_path / "x.db", slow()) == 3
