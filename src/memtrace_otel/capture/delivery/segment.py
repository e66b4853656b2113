"""One spool file: spans of one process as OTLP requests, each marked as live or delivered.

    file   = magic, record*
    record = state (1 byte: live or delivered), length and CRC-32 of the body (4 bytes each, big-endian), body

The owner holds a lock on the file, which the system releases when the process dies. A damaged record is skipped; a
truncated record ends the file.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from zlib import crc32

try:
    import fcntl
except ImportError:  # Windows: no lock shows whether an owner is dead, so files are not adopted
    fcntl = None  # type: ignore[assignment]

MAGIC = b"MTSPOOL1"
_HEADER = struct.Struct(">BII")
_DELIVERED, _LIVE = b"\x00", 1
MAX_RECORD = 64 << 20
"""Bytes of the longest body."""
_FLAGS = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


@dataclass(frozen=True, slots=True)
class Record:
    """A request in the spool, with its file and offset."""

    segment: Segment
    offset: int
    body: bytes


class Segment:
    """An open, locked spool file. Not thread-safe; every method may raise OSError."""

    def __init__(self, path: Path, descriptor: int, size: int) -> None:
        self.path = path
        self.size = size
        self.live_bytes = size - len(MAGIC)
        self._descriptor = descriptor
        self.lost = 0
        """Damaged records that `read` met; the rest of a truncated file counts as one."""
        self._cursor = len(MAGIC)  # everything before it was delivered

    @classmethod
    def create(cls, path: Path) -> Segment | None:
        """Make a new file that only its owner may read; None if another process adopted it at once."""
        descriptor = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
        if not _lock(descriptor):
            os.close(descriptor)
            return None
        segment = cls(path, descriptor, len(MAGIC))
        try:
            segment._write(MAGIC, 0)
        except OSError:  # else every attempt on a full disk would cost the program a descriptor
            segment.remove()
            raise
        return segment

    @classmethod
    def adopt(cls, path: Path) -> Segment | None:
        """Take over the file of a dead process; None while its owner lives, and if another user may have written it."""
        if fcntl is None:
            return None
        descriptor = os.open(path, _FLAGS)
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and is_own(found) and _lock(descriptor):
            return cls(path, descriptor, max(len(MAGIC), os.fstat(descriptor).st_size))
        os.close(descriptor)
        return None

    def append(self, bodies: Sequence[bytes]) -> list[Record]:
        """Write requests in one step; they survive the death of the process, not of the machine."""
        if any(len(body) > MAX_RECORD for body in bodies):  # `read` refuses them
            raise OSError(errno.EFBIG, "a record is too long", str(self.path))
        data = b"".join(_HEADER.pack(_LIVE, len(body), crc32(body)) + body for body in bodies)
        length = len(data)
        # One statement: a finalizer or signal handler may append a span at any other point.
        start, self.size = self.size, self.size + length
        try:
            self._write(data, start)
        except OSError:
            os.ftruncate(self._descriptor, start)
            self.size = start
            raise
        self.live_bytes += length
        ends = accumulate((_HEADER.size + len(body) for body in bodies), initial=start)
        return [Record(self, offset, body) for offset, body in zip(ends, bodies, strict=False)]

    def read(self, records: int, size: int) -> list[Record]:
        """Return the oldest live records: at most `records`, and at most `size` bytes if several."""
        found: list[Record] = []
        offset, total = self._cursor, 0
        while len(found) < records and offset < self.size:
            header = os.pread(self._descriptor, _HEADER.size, offset)
            state, length, checksum = _HEADER.unpack(header.ljust(_HEADER.size, b"\xff"))
            end = offset + _HEADER.size + length
            if end > self.size:  # truncated, or a damaged length: the next record cannot be found
                self.lost += 1
                self.live_bytes -= self.size - offset
                self.size = offset
                break
            if state == _LIVE:
                body = os.pread(self._descriptor, length, offset + _HEADER.size) if length <= MAX_RECORD else b""
                if len(body) == length and crc32(body) == checksum:
                    total += length
                    if found and total > size:
                        break
                    found.append(Record(self, offset, body))
                else:
                    self.lost += 1
                    self._forget(offset, end)
            elif offset == self._cursor:
                self._cursor = end
            offset = end
        return found

    def acknowledge(self, record: Record) -> None:
        """Mark a record as delivered."""
        self._forget(record.offset, record.offset + _HEADER.size + len(record.body))

    def remove(self) -> None:
        """Delete the file."""
        try:
            self.path.unlink(missing_ok=True)
        finally:
            self.close()

    def close(self) -> None:
        """Close the file; the next process adopts it. Later calls raise OSError."""
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)

    def _forget(self, offset: int, end: int) -> None:
        os.pwrite(self._descriptor, _DELIVERED, offset)
        self.live_bytes -= end - offset
        if offset == self._cursor:
            self._cursor = end

    def _write(self, data: bytes, offset: int) -> None:
        if os.pwrite(self._descriptor, data, offset) != len(data):
            raise OSError(errno.ENOSPC, "the disk is full", str(self.path))


def is_own(found: os.stat_result) -> bool:
    """Whether this user owns a file or directory, and no other user can write to it."""
    return not hasattr(os, "geteuid") or (found.st_uid == os.geteuid() and not found.st_mode & 0o022)


def _lock(descriptor: int) -> bool:
    """Lock the file; False if another process holds the lock or has removed the file."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return os.fstat(descriptor).st_nlink > 0
