"""The spool: spans that wait on disk, bounded and private, adopted by the next process after this one dies."""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import tempfile
import threading
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace.export import SpanExporter

from memtrace_otel import settings
from memtrace_otel.capture.delivery.segment import Record, Segment, is_own
from memtrace_otel.capture.guard import guard, note_drop

_SEGMENT_BYTES = 8 << 20
_LOCK_SECONDS = 1.0
_MEASURE_SECONDS = 1.0
_SUFFIX = ".spool"
_OWN_HEADERS = ("content-encoding", "content-type", "user-agent")
"""Headers that an update of the exporter may change: the new version must find the spool of the old one."""


class SpoolFull(OSError):
    """The bound on the bytes of the directory is reached."""


class Spool:
    """The spool files of one destination in `directory`. Thread-safe; raises TimeoutError while another thread writes.

    All processes together keep at most `max_bytes` there, give or take a segment (8 MiB) each. The directory is
    made when the first span has to wait.
    """

    def __init__(self, directory: Path, max_bytes: int) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._segment_bytes = min(_SEGMENT_BYTES, max(1, max_bytes // 4))
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()  # re-entrant: a finalizer or signal handler may come in between
        self._segments: list[Segment] = []  # oldest first; the last one is written to when `_active`
        self._adopted: list[Segment] = []
        self._active = False
        self.appends = 0
        """Writes that succeeded."""
        self._foreign_bytes = 0
        self._measured = -math.inf

    @property
    def live_bytes(self) -> int:
        """Bytes that still have to be delivered by this process."""
        return sum(segment.live_bytes for segment in (*self._segments, *self._adopted))

    @property
    def own_empty(self) -> bool:
        """Whether nothing of this process waits."""
        return not self._segments

    @property
    def empty(self) -> bool:
        """Whether nothing of this process and of the adopted files waits."""
        return not self._segments and not self._adopted

    def append(self, *bodies: bytes) -> list[Record]:
        """Write requests, all or none. Raises OSError, SpoolFull and TimeoutError."""
        with self._locked():
            own = sum(segment.size for segment in (*self._segments, *self._adopted))
            if own + self._foreign() + sum(map(len, bodies)) > self._max_bytes:
                raise SpoolFull(f"{self._directory} holds {self._max_bytes} bytes")
            return self._write(bodies)

    def put_last(self, record: Record) -> None:
        """Move a record behind all others, even if the spool is full."""
        with self._locked():
            self._write((record.body,))
            record.segment.acknowledge(record)

    def oldest(self, records: int, size: int) -> list[Record]:
        """Return records to deliver, the own ones first: at most `records`, and at most `size` bytes if several."""
        with self._locked():
            while segments := self._segments or self._adopted:
                if found := segments[0].read(records, size):
                    return found
                self._active &= len(self._segments) > 1
                finished = segments.pop(0)
                if finished.lost:
                    note_drop("spool_damaged", finished.lost)
                finished.remove()
            return []

    def acknowledge(self, records: Iterable[Record]) -> None:
        """Forget delivered records."""
        with self._locked():
            for record in records:
                record.segment.acknowledge(record)

    def adopt(self) -> None:
        """Take over files of dead processes. Raises PermissionError for a directory that other users can write to."""
        if not os.path.exists(self._directory):
            return
        check_private(self._directory)
        with self._locked():
            for path in self._foreign_paths():
                with guard("spool.adopt"):
                    if segment := Segment.adopt(path):
                        self._adopted.append(segment)

    def close(self) -> None:
        """Close the files; records that were not delivered stay for the next process."""
        with self._locked():
            for segment in (*self._segments, *self._adopted):
                if segment.read(1, 0):
                    segment.close()
                else:
                    segment.remove()
            self._segments, self._adopted, self._active = [], [], False
            self._measured = -math.inf  # our files count as those of another process now

    def after_fork(self) -> None:
        """In a child: the files belong to the parent."""
        self._lock = threading.RLock()
        inherited = (*self._segments, *self._adopted)
        self._segments, self._adopted, self._active = [], [], False
        for segment in inherited:
            with guard("spool.fork"):
                segment.close()

    @contextmanager
    def _locked(self) -> Generator[None]:
        if not self._lock.acquire(timeout=_LOCK_SECONDS):
            raise TimeoutError("the spool is busy")
        try:
            yield
        finally:
            self._lock.release()

    def _write(self, bodies: Sequence[bytes]) -> list[Record]:
        if not self._active or self._segments[-1].size >= self._segment_bytes:
            self._segments.append(self._new_segment())
            self._active = True
        records = self._segments[-1].append(bodies)
        self.appends += 1
        return records

    def _new_segment(self) -> Segment:
        make_private(self._directory)
        while True:
            name = f"{os.getpid()}-{time.time_ns()}-{next(self._numbers)}{_SUFFIX}"
            if segment := Segment.create(self._directory / name):
                return segment

    def _foreign(self) -> int:
        """Bytes of other processes, measured at most once a second."""
        now = time.monotonic()
        if now - self._measured > _MEASURE_SECONDS:
            self._measured = now
            self._foreign_bytes = 0
            for path in self._foreign_paths():
                with guard("spool.measure"):
                    self._foreign_bytes += path.stat().st_size
        return self._foreign_bytes

    def _foreign_paths(self) -> list[Path]:
        own = {segment.path for segment in (*self._segments, *self._adopted)}
        return sorted(path for path in self._directory.glob(f"*{_SUFFIX}") if path not in own)


def make_private(directory: Path) -> None:
    """Make a directory that only this user can enter. Raises PermissionError as `check_private`."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_private(directory)


def check_private(directory: Path) -> None:
    """Raise PermissionError for a directory that other users own or can write to, and for a link."""
    if not is_own(directory.lstat()):
        raise PermissionError(13, "another user owns the directory or can write to it", str(directory))


def spool_directory(exporter: SpanExporter, base: str | Path | None = None) -> Path:
    """Return the directory of an exporter's spool below `base` (default: the setting MEMTRACE_SPOOL_DIR).

    A process adopts the spool of another one with the same exporter class, endpoint or file, headers (which may name a
    tenant) and OTEL_SERVICE_NAME. The name of the directory holds a digest of these.
    """
    module, kind, target, *headers = destination(exporter)
    identity = "\0".join([module, kind, target, os.environ.get("OTEL_SERVICE_NAME", ""), *headers])
    digest = hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()[:16]
    name = f"{type(exporter).__name__}-{digest}"
    return Path(base or settings.SPOOL_DIR.read() or _default_base()).absolute() / name


def destination(exporter: SpanExporter) -> tuple[str, ...]:
    """The destination of an exporter: module and name of its class, endpoint or file ('' for neither), headers."""
    kind = type(exporter)
    target = getattr(exporter, "path", None) or getattr(exporter, "_endpoint", "")
    return kind.__module__, kind.__qualname__, str(target), *_headers(exporter)


def _headers(exporter: SpanExporter) -> list[str]:
    """The headers of an OTLP exporter, from its private parts: newer exporters keep them in `_client`."""
    with guard("spool.headers"):
        holder: Any = exporter if hasattr(exporter, "_headers") else getattr(exporter, "_client", None)
        headers: dict[str, Any] = dict(getattr(holder, "_headers", None) or ())
        return sorted(f"{name.lower()}: {headers[name]}" for name in headers if name.lower() not in _OWN_HEADERS)
    return []


def _default_base() -> Path:
    """The user's state directory if it is writable, else a private directory for temporary files."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    place = Path(state) / "memtrace-otel" / "spool"
    # Not Path.exists, which raises for a path in a directory without permission.
    existing = next((path for path in place.parents if os.path.exists(path)), place)
    if os.path.isabs(state) and os.access(existing, os.W_OK | os.X_OK):
        return place
    user = os.geteuid() if hasattr(os, "geteuid") else "user"
    with suppress(FileNotFoundError):
        return Path(tempfile.gettempdir()) / f"memtrace-otel-{user}"
    return place  # not writable: an error is counted when a span has to wait
