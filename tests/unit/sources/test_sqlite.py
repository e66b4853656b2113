"""The embedded store: files it refuses, requests it cannot read, verdicts and what was sent."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from memtrace_otel.otlp import encode_request
from memtrace_otel.sources import SourceError, SqliteStore, StoreStats
from memtrace_otel.sources.database import TranslatedErrors, connect
from memtrace_otel.testing import contract_span
from tests.unit.otlp.spans import random_span


def test_random_spans_are_read_back_whatever_the_order_of_delivery(tmp_path: Path) -> None:
    rng = random.Random(3)
    spans = {span.origin: span for span in (random_span(rng) for _ in range(120))}
    expected = sorted(spans.values(), key=lambda span: (span.start, span.origin))
    for attempt in range(3):
        delivered = list(spans.values()) * 2
        rng.shuffle(delivered)
        with SqliteStore.open(tmp_path / f"{attempt}.db") as store:
            while delivered:
                count = rng.randrange(1, 20)
                store.add_request(encode_request(delivered[:count]))
                del delivered[:count]
            assert sorted(store.spans(), key=lambda span: (span.start, span.origin)) == expected


def test_spans_are_there_after_the_file_is_opened_again(tmp_path: Path) -> None:
    span = contract_span(1, 1)
    with SqliteStore.open(tmp_path / "a.db") as store:
        store.add_request(encode_request([span]))
    with SqliteStore.open(tmp_path / "a.db", create=False) as store:
        assert store.trace(span.trace_id) == [span]


def test_missing_folders_are_created(tmp_path: Path) -> None:
    SqliteStore.open(tmp_path / "new" / "folder" / "a.db").close()
    assert (tmp_path / "new" / "folder" / "a.db").exists()


def refused(path: Path, *, create: bool) -> str:
    """Return the reason for which `path` is not opened, which must leave the file as it is."""
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(SourceError) as caught:
        SqliteStore.open(path, create=create)
    assert (path.read_bytes() if path.is_file() else None) == before
    assert str(path) in str(caught.value)
    return caught.value.reason


def test_another_schema_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    SqliteStore.open(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    for create in (True, False):
        assert refused(path, create=create).startswith(
            "the file has schema version 99, this program needs version 1: give another file"
        )


def test_another_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE own (x)")
    connection.close()
    for create in (True, False):
        assert "not one of memtrace-otel" in refused(path, create=create)


@pytest.mark.parametrize("content", [b"no database at all, but long enough to be read as one" * 100, b"short"])
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(content)
    for create in (True, False):
        assert "not a database" in refused(path, create=create)


def test_a_reader_creates_no_database(tmp_path: Path) -> None:
    assert "no such database" in refused(tmp_path / "absent.db", create=False)
    assert not (tmp_path / "absent.db").exists()
    (tmp_path / "empty.db").touch()
    assert "empty" in refused(tmp_path / "empty.db", create=False)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    assert "unable to open" in refused(tmp_path, create=True)


def test_a_damaged_file_raises_store_error(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with SqliteStore.open(path) as store:
        store.add_request(encode_request([contract_span(1, n + 1) for n in range(500)]))
        store.decode()
    content = bytearray(path.read_bytes())
    content[8192:] = b"\xa5" * (len(content) - 8192)
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"a\.db"), SqliteStore.open(path) as store:
        list(store.spans())


def test_undecodable_requests_are_quarantined(tmp_path: Path) -> None:
    good, cut = encode_request([contract_span(1, 1)]), encode_request([contract_span(1, 2)])[:-2]
    with SqliteStore.open(tmp_path / "a.db") as store:
        for body in (cut, b"\x00\x01garbage", good, b""):
            store.add_request(body)
        assert store.decode() == 1
        assert store.stats().quarantined == 2
        assert store.stats().waiting == 0
        assert all("OTLP" in reason for reason in store.quarantined())
    with sqlite3.connect(tmp_path / "a.db") as connection:
        assert [body for (body,) in connection.execute("SELECT body FROM quarantine ORDER BY id")] == [
            cut,
            b"\x00\x01garbage",
        ]
    connection.close()


def test_only_the_undecodable_spans_of_a_request_are_quarantined(tmp_path: Path) -> None:
    request = ExportTraceServiceRequest.FromString(encode_request([contract_span(1, 1), contract_span(1, 2)]))
    request.resource_spans[0].scope_spans[0].spans[0].span_id = b"short"
    with SqliteStore.open(tmp_path / "a.db") as store:
        store.add_request(request.SerializeToString())
        assert list(store.spans()) == [contract_span(1, 2)]
        assert store.quarantined() == ["span '' has a span id of 5 bytes instead of 8"]
    with sqlite3.connect(tmp_path / "a.db") as connection:
        (body,) = connection.execute("SELECT body FROM quarantine").fetchone()
    connection.close()
    kept = ExportTraceServiceRequest.FromString(body)
    assert [span.span_id for span in kept.resource_spans[0].scope_spans[0].spans] == [b"short"]
    assert kept.resource_spans[0].resource == request.resource_spans[0].resource


def test_a_failed_transaction_is_rolled_back(tmp_path: Path) -> None:
    def bodies() -> object:
        yield encode_request([contract_span(1, 1)])
        raise RuntimeError("source broke")

    with SqliteStore.open(tmp_path / "a.db") as store:
        with pytest.raises(RuntimeError, match="source broke"):
            store.add_requests(bodies())  # type: ignore[arg-type]
        assert store.stats().spans == 0
        store.add_request(encode_request([contract_span(1, 2)]))
        assert store.stats().spans == 1


def test_a_time_past_the_range_of_sqlite_is_read_back(tmp_path: Path) -> None:
    request = ExportTraceServiceRequest.FromString(encode_request([contract_span(1, 1)]))
    request.resource_spans[0].scope_spans[0].spans[0].start_time_unix_nano = 2**64 - 1
    with SqliteStore.open(tmp_path / "a.db") as store:
        store.add_request(request.SerializeToString())
        (span,) = store.spans()
        assert span.start == 2**64 - 1


def test_statistics_count_spans_traces_and_scopes(tmp_path: Path) -> None:
    spans = [
        contract_span(1, 1, 5, kind="create", scope="a" * 16),
        contract_span(1, 2, 6, kind="update", scope="a" * 16),
        contract_span(2, 3, 7),
    ]
    with SqliteStore.open(tmp_path / "a.db") as store:
        assert store.stats() == StoreStats(0, 0, 0, 0, 0, 0, 0, 0)
        store.add_request(encode_request(spans))
        assert store.stats() == StoreStats(
            spans=3, traces=2, operations=2, scopes=1, waiting=0, quarantined=0, first=5 * 10**9, last=7 * 10**9
        )


def test_the_newest_verdict_on_an_answer_is_returned(tmp_path: Path) -> None:
    with SqliteStore.open(tmp_path / "a.db") as store:
        assert store.verdict("answer1") is None
        assert store.save_verdict("answer1", "id1", "first")
        assert store.save_verdict("answer2", "id2", "other")
        assert store.save_verdict("answer1", "id3", "second")
        assert not store.save_verdict("answer1", "id1", "the same id again")
        newest = store.verdict("answer1")
        assert newest is not None
        assert (newest.attribution_id, newest.document) == ("id3", "second")
        assert [verdict.document for verdict in store.verdicts()] == ["other", "second"]


def test_withdrawing_a_verdict_deletes_the_older_verdicts_on_its_answer(tmp_path: Path) -> None:
    one, other = f"{'a' * 32}-{'1' * 16}", f"{'b' * 32}-{'f' * 16}"
    with SqliteStore.open(tmp_path / "a.db") as store:
        for number, answer in enumerate((one, other, one, one)):
            store.save_verdict(answer, f"id{number}", str(number))
        assert [verdict.document for verdict in store.verdicts("a" * 32)] == ["3"]
        store.withdraw_verdicts(["id2"])
        assert [verdict.document for verdict in store.verdicts()] == ["1", "3"]
        store.withdraw_verdicts(["id3", "unknown"])
        assert [verdict.document for verdict in store.verdicts()] == ["1"]
        assert store.verdict(one) is None


def test_an_id_is_sent_once_to_each_target(tmp_path: Path) -> None:
    with SqliteStore.open(tmp_path / "a.db") as store:
        store.mark_sent("jaeger", ["a", "b", "a"])
        assert store.unsent("jaeger", ["c", "b", "a", "c"]) == ["c"]
        assert store.unsent("tempo", ["a", "b"]) == ["a", "b"]
        assert (store.has_sent("jaeger"), store.has_sent("tempo")) == (True, False)
    with SqliteStore.open(tmp_path / "a.db") as store:
        assert store.unsent("jaeger", ["a", "d"]) == ["d"]


def test_the_newest_verdict_is_the_last_saved_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SqliteStore.open(tmp_path / "a.db") as store:
        for number, now in enumerate((9 * 10**18, 5, 7)):
            monkeypatch.setattr("time.time_ns", lambda now=now: now)
            store.save_verdict(f"answer{number % 2}", f"id{number}", str(number))
        newest = store.verdict("answer0")
        assert newest is not None
        assert newest.document == "2"
        assert [verdict.document for verdict in store.verdicts()] == ["1", "2"]


JUMPS = (1_700_000_000_000_000_000, 1, 4_000_000_000_000_000_000, -5_000_000_000, 1_700_000_000_000_000_001)
"""What the clock of this machine says, one request after the other: set back, ahead, before 1970."""


def test_a_jumping_clock_loses_and_reorders_no_span(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spans = [contract_span(number, number, 100 - number, scope="a" * 16) for number in range(1, len(JUMPS) + 1)]
    with SqliteStore.open(tmp_path / "a.db") as store:
        for span, now in zip(spans, JUMPS, strict=True):
            monkeypatch.setattr("time.time_ns", lambda now=now: now)
            store.add_request(encode_request([span]))
            store.add_request(b"\xff no request")
            store.decode()
        assert list(store.spans()) == spans[::-1]  # by the clock of whoever made them
        pruned = store.prune(before=spans[-2].start)  # by the same
        assert (pruned.spans, list(store.spans())) == (1, spans[-2::-1])
        assert len(store.quarantined()) == 3  # by this machine's: what was received before goes
        assert store.check() == []


def test_a_request_for_a_moved_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with SqliteStore.open("spans.db") as store:
        store.add_request(encode_request([contract_span(1, 1)]))
        monkeypatch.chdir("/")  # its path is meant from where it was opened
        store.add_request(encode_request([contract_span(1, 2)]))
        waiting = store.waiting()[0]
        (tmp_path / "spans.db").rename(tmp_path / "moved.db")
        for _ in range(3):
            with pytest.raises(SourceError, match="moved, removed or replaced"):
                store.add_request(encode_request([contract_span(1, 3)]))
        assert store.waiting()[0] == waiting


def test_the_error_of_a_full_disk_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    connection = connect(path, create=True)
    connection.execute("PRAGMA max_page_count = 1")  # not one more than there are
    with pytest.raises(SourceError, match=r"full; free some megabytes"), TranslatedErrors(path):
        connection.execute("CREATE TABLE more (id)")
    connection.close()
    no_index = sqlite3.OperationalError("disk I/O error")  # nor room for the index of the log
    no_index.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
    with pytest.raises(SourceError, match="I/O"), TranslatedErrors(path):
        raise no_index
