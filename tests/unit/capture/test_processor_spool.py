"""What waits on disk: bounded, private, found again by another process, readable whatever cut it off."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.grpc import trace_exporter as grpc
from opentelemetry.exporter.otlp.proto.http import trace_exporter as http
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SpanExporter

from memtrace_otel.capture import drops
from memtrace_otel.capture.delivery import LosslessSpanProcessor
from memtrace_otel.capture.delivery.losses import Losses
from memtrace_otel.capture.delivery.queue import write_to_spool
from memtrace_otel.capture.delivery.segment import MAGIC, Segment
from memtrace_otel.capture.delivery.spool import Spool, SpoolFull, spool_directory
from memtrace_otel.sources.exporter import MemtraceSpanExporter

MANY = 1000


@pytest.fixture(autouse=True)
def no_drops() -> Iterator[None]:
    drops.clear()
    yield
    drops.clear()


def waiting(spool: Spool) -> list[bytes]:
    """Everything that waits, delivered piece by piece."""
    found: list[bytes] = []
    while records := spool.oldest(MANY, 1 << 20):
        found += [record.body for record in records]
        spool.acknowledge(records)
    return found


def left_behind(directory: Path, *bodies: bytes) -> Path:
    """A spool file of a process that is dead."""
    segment = Segment.create(directory / "1-1-1.spool")
    assert segment is not None
    segment.append(bodies)
    segment.close()
    return segment.path


def test_what_was_written_comes_back_in_order_and_once(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s", 1 << 20)
    for body in (b"one", b"", b"three"):
        spool.append(body)
    assert not spool.empty
    assert waiting(spool) == [b"one", b"", b"three"]
    assert spool.empty
    assert spool.live_bytes == 0
    assert list((tmp_path / "s").iterdir()) == []


def test_pieces_are_limited_by_number_and_size_but_never_empty(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s", 1 << 20)
    for body in (b"x" * 100, b"y" * 10, b"z" * 10):
        spool.append(body)
    assert [len(record.body) for record in spool.oldest(MANY, 50)] == [100]
    assert [len(record.body) for record in spool.oldest(2, 1000)] == [100, 10]


def test_only_the_user_can_read_it(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s", 1 << 20)
    spool.append(b"secret")
    (path,) = (tmp_path / "s").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("planted", ["open", "link"])
def test_a_directory_that_others_prepared_is_refused(tmp_path: Path, planted: str) -> None:
    directory = tmp_path / "s"
    if planted == "open":
        directory.mkdir()
        directory.chmod(0o777)
    else:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere").chmod(0o700)
        directory.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError):
        Spool(directory, 1 << 20).append(b"secret")
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("planted", ["open directory", "link", "open file", "foreign"])
def test_nothing_is_adopted_that_others_may_have_written(
    tmp_path: Path, planted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "s"
    directory.mkdir(mode=0o700)
    path = left_behind(directory, b"forged")
    if planted == "open directory":
        directory.chmod(0o777)
    elif planted == "link":
        directory.rename(tmp_path / "elsewhere")
        directory.symlink_to(tmp_path / "elsewhere")
    elif planted == "open file":
        path.chmod(0o666)
    else:
        somebody = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: somebody)
        assert Segment.adopt(path) is None
    spool = Spool(directory, 1 << 20)
    with suppress(PermissionError):
        spool.adopt()
    assert waiting(spool) == []
    assert path.exists()


def test_bytes_are_bounded_over_all_processes(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir(mode=0o700)
    left_behind(tmp_path / "s", b"x" * 600)
    spool = Spool(tmp_path / "s", 1000)
    spool.append(b"y" * 200)
    with pytest.raises(SpoolFull):
        spool.append(b"z" * 200)
    assert waiting(spool) == [b"y" * 200]


def test_requests_that_have_no_room_together_are_refused_together(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s", 1000)
    with pytest.raises(SpoolFull):
        spool.append(b"x" * 600, b"y" * 600)
    assert waiting(spool) == []
    spool.append(b"x" * 400, b"y" * 400)
    assert waiting(spool) == [b"x" * 400, b"y" * 400]


def test_room_comes_back_when_files_are_delivered(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s", 1000)
    for _ in range(20):
        spool.append(b"x" * 700)
        assert waiting(spool) == [b"x" * 700]


def test_no_bytes_allowed_means_no_file(tmp_path: Path) -> None:
    with pytest.raises(SpoolFull):
        Spool(tmp_path / "s", 0).append(b"x")
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("written", [0, 3, OSError(errno.ENOSPC, "full")])
def test_a_full_disk_costs_no_descriptor_and_no_file(
    tmp_path: Path, written: int | OSError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, data: bytes, offset: int) -> int:
        opened.append(descriptor)
        if isinstance(written, OSError):
            raise written
        return written

    opened: list[int] = []
    spool = Spool(tmp_path / "s", 1 << 20)
    monkeypatch.setattr("os.pwrite", full)
    with pytest.raises(OSError, match="full"):
        spool.append(b"x")
    (descriptor,) = opened
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(descriptor)
    assert list((tmp_path / "s").iterdir()) == []


def test_the_file_of_a_dead_process_is_adopted_and_removed_when_delivered(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir(mode=0o700)
    path = left_behind(tmp_path / "s", b"one", b"two")
    spool = Spool(tmp_path / "s", 1 << 20)
    spool.append(b"own")
    spool.adopt()
    spool.adopt()
    assert not spool.own_empty
    assert waiting(spool) == [b"own", b"one", b"two"]
    assert not path.exists()


def test_the_file_of_a_living_process_is_left_alone(tmp_path: Path) -> None:
    owner, other = Spool(tmp_path / "s", 1 << 20), Spool(tmp_path / "s", 1 << 20)
    owner.append(b"mine")
    other.adopt()
    assert other.empty
    owner.close()
    other.adopt()
    assert waiting(other) == [b"mine"]


def test_delivered_is_remembered_in_the_file(tmp_path: Path) -> None:
    owner, other = Spool(tmp_path / "s", 1 << 20), Spool(tmp_path / "s", 1 << 20)
    records = owner.append(b"one", b"two", b"three")
    owner.acknowledge([records[1]])
    owner.close()
    other.adopt()
    assert waiting(other) == [b"one", b"three"]
    assert drops == {}


@pytest.mark.parametrize("lost", range(1, 15))
def test_a_torn_tail_costs_the_last_record_only(tmp_path: Path, lost: int) -> None:
    (tmp_path / "s").mkdir(mode=0o700)
    path = left_behind(tmp_path / "s", b"one", b"two", b"three")
    path.write_bytes(path.read_bytes()[:-lost])
    spool = Spool(tmp_path / "s", 1 << 20)
    spool.adopt()
    assert waiting(spool) == [b"one", b"two"]
    assert drops["spool_damaged"] == (lost < 14)
    assert not path.exists()


def test_a_damaged_record_costs_itself_only(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir(mode=0o700)
    path = left_behind(tmp_path / "s", b"one", b"two", b"three", b"four")
    path.write_bytes(path.read_bytes().replace(b"two", b"TWO").replace(b"three", b"THREE"))
    spool = Spool(tmp_path / "s", 1 << 20)
    spool.adopt()
    assert [record.body for record in spool.oldest(1, 100)] == [b"one"]
    assert waiting(spool) == [b"one", b"four"]
    assert drops == {"spool_damaged": 2}
    assert spool.live_bytes == 0


def test_a_record_that_nobody_would_read_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s").mkdir(mode=0o700)
    left_behind(tmp_path / "s", b"x" * 1001, b"behind it")  # by a version that did
    monkeypatch.setattr("memtrace_otel.capture.delivery.segment.MAX_RECORD", 1000)
    spool = Spool(tmp_path / "s", 1 << 20)
    with pytest.raises(OSError, match="too long"):
        spool.append(b"one", b"x" * 1001)
    spool.append(b"x" * 1000)
    spool.adopt()
    assert waiting(spool) == [b"x" * 1000, b"behind it"]
    assert drops == {"spool_damaged": 1}


def test_a_span_too_long_for_the_spool_is_counted_and_the_others_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memtrace_otel.capture.delivery.queue.MAX_RECORD", 1000)
    tracer, spool = TracerProvider(shutdown_on_exit=False).get_tracer("tests"), Spool(tmp_path / "s", 1 << 20)
    made = [tracer.start_span(name) for name in ("one", "x" * 1000, "three")]
    records, left = write_to_spool([span._readable_span() for span in made], spool, Losses())  # type: ignore[attr-defined]
    assert [name in record.body for name, record in zip((b"one", b"three"), records, strict=True)] == [True, True]
    assert list(left) == []
    assert drops == {"span:unencodable": 1}


@pytest.mark.parametrize("content", [b"", MAGIC, b"x" * 500, MAGIC + b"\xff" * 500, MAGIC + b"\x00" * 500])
def test_a_file_of_anything_ends_without_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "s").mkdir(mode=0o700)
    (tmp_path / "s" / "9-9-9.spool").write_bytes(content)
    spool = Spool(tmp_path / "s", 1 << 20)
    spool.adopt()
    assert waiting(spool) == []
    assert spool.empty


def test_acknowledging_after_the_end_touches_no_other_file(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s", 1 << 20)
    records = spool.append(b"late")
    spool.close()
    innocent = tmp_path / "innocent"
    with innocent.open("w+b") as file:  # may get the number that the spool file had
        file.write(b"x" * 100)
        file.flush()
        with pytest.raises(OSError):  # noqa: PT011
            spool.acknowledge(records)
        assert innocent.read_bytes() == b"x" * 100


def test_the_destination_decides_on_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = MemtraceSpanExporter(path=tmp_path / "a.db"), MemtraceSpanExporter(path=tmp_path / "b.db")
    assert spool_directory(one, tmp_path) == spool_directory(MemtraceSpanExporter(tmp_path / "a.db"), tmp_path)
    assert len({spool_directory(exporter, tmp_path) for exporter in (one, two, ConsoleSpanExporter())}) == 3
    before = spool_directory(one, tmp_path)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "another")
    assert spool_directory(one, tmp_path) != before


@pytest.mark.parametrize("kind", [http.OTLPSpanExporter, grpc.OTLPSpanExporter])
def test_tenants_of_one_receiver_have_a_directory_each(
    kind: type[SpanExporter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def directory(headers: str, name: str = "OTEL_EXPORTER_OTLP_HEADERS") -> Path:
        monkeypatch.setenv(name, headers)
        return spool_directory(kind(), tmp_path)

    no_headers, first, second = (directory(given) for given in ("", "x-tenant=one,k=1", "x-tenant=two,k=1"))
    assert len({no_headers, first, second}) == 3
    assert directory("k=1,x-tenant=one") == first
    assert directory("x-tenant=one,k=1", "OTEL_EXPORTER_OTLP_TRACES_HEADERS") == first
    assert "one" not in first.name


def test_a_new_version_of_an_exporter_finds_what_the_one_before_it_left(tmp_path: Path) -> None:
    older, newer, odd = (http.OTLPSpanExporter() for _ in range(3))
    older._client._headers = {"user-agent": "an older version"}  # type: ignore[attr-defined]
    odd._client._headers = 7  # type: ignore[attr-defined]
    assert spool_directory(older, tmp_path) == spool_directory(newer, tmp_path) == spool_directory(odd, tmp_path)


def test_without_a_setting_it_is_in_the_users_state_or_a_private_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MEMTRACE_SPOOL_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert spool_directory(ConsoleSpanExporter()).parent == tmp_path / "state" / "memtrace-otel" / "spool"
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file" / "state"))
    assert spool_directory(ConsoleSpanExporter()).parent.name.startswith("memtrace-otel-")
    monkeypatch.setenv("MEMTRACE_SPOOL_DIR", str(tmp_path / "mine"))
    assert spool_directory(ConsoleSpanExporter()).parent == tmp_path / "mine"


def test_a_place_that_cannot_be_entered_or_found_raises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stat(path: object, **options: object) -> os.stat_result:
        if str(path).startswith(f"{closed}{os.sep}"):  # as for all but root
            raise PermissionError(errno.EACCES, "closed", str(path))
        return real(path, **options)  # type: ignore[arg-type]

    def nowhere() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    closed, real, access = tmp_path / "closed", os.stat, os.access
    closed.mkdir()
    monkeypatch.delenv("MEMTRACE_SPOOL_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(closed / "user" / "state"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(os, "stat", stat)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != closed and access(path, mode))
    LosslessSpanProcessor(ConsoleSpanExporter()).shutdown()
    assert spool_directory(ConsoleSpanExporter()).parent.name.startswith("memtrace-otel-")
    monkeypatch.setattr("tempfile.gettempdir", nowhere)
    LosslessSpanProcessor(ConsoleSpanExporter()).shutdown()
    assert spool_directory(ConsoleSpanExporter()).is_relative_to(closed)
    Spool(closed / "user" / "s", 1 << 20).adopt()
