"""A log that is damaged in its middle: SQLite reads it up to there and forgets the commits behind, without a word.

Whoever opens the file looks whether the log has commits that SQLite did not take over, keeps a copy of it before it is
written over, and says so; `check` names the copy. A log whose end was being written when the power went is no damage:
each commit is on disk before the next one is begun.

Format: https://www.sqlite.org/fileformat2.html#walformat. The index of the log would tell more, but who opens and
closes that file takes the locks of SQLite away from all other connections of the process.
"""

from __future__ import annotations

import logging
import os
import shutil
import struct
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import Connection, DatabaseError
from typing import BinaryIO

_logger = logging.getLogger(__name__)
_HEADER, _FRAME = 32, 24
_LEAST_PAGE, _MOST_PAGE = 512, 65536
_LITTLE_ENDIAN = 0x377F0682
_MASK = 0xFFFFFFFF


def copy_of(path: Path) -> Path:
    """Return where the damaged log of a database is kept."""
    return path.with_name(f"{path.name}-wal.damaged")


@dataclass(frozen=True, slots=True)
class Log:
    """The log as it was found: its header, the size of a frame, and the headers of frames by their number from 0."""

    head: bytes
    size: int
    frames: dict[int, bytes]


def read_log(path: Path) -> Log | None:
    """Read the log of a database that nobody has to have opened; None when there is none."""
    try:
        with open(f"{path}-wal", "rb") as log:
            head = log.read(_HEADER)
            if len(head) < _HEADER:
                return None
            page = struct.unpack(">I", head[8:12])[0]
            if not _LEAST_PAGE <= page <= _MOST_PAGE:  # the header is damaged: SQLite takes nothing over
                return None
            size = page + _FRAME
            count = (os.fstat(log.fileno()).st_size - _HEADER) // size
            frames = {number: os.pread(log.fileno(), _FRAME, _HEADER + number * size) for number in range(count)}
    except OSError:
        return None
    return Log(head, size, {number: frame for number, frame in frames.items() if frame[8:16] == head[16:24]})


def keep_damaged(connection: Connection, path: Path, log: Log) -> None:
    """Copy the log, as it was before the database was opened, when commits in it are lost. Never raises OSError."""
    try:
        _, taken_over, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    except DatabaseError:  # the disk is full, the file cannot be written: who writes is told
        return
    commits = [number for number, frame in log.frames.items() if number >= taken_over >= 0 and frame[4:8] != bytes(4)]
    try:
        with open(f"{path}-wal", "rb") as file:
            if file.read(_HEADER) != log.head or not any(_is_followed(file, log, number) for number in commits):
                return  # begun anew meanwhile; or the last commit was not finished
            _logger.error(
                "%s: the log is damaged, %d commits in it are lost; see %s", path, len(commits), copy_of(path)
            )
            with copy_of(path).open("xb") as copy:
                file.seek(0)
                shutil.copyfileobj(file, copy)
    except OSError:  # a copy is there already, the disk is full
        return


def _is_followed(file: BinaryIO, log: Log, number: int) -> bool:
    """Tell whether the next frame was written after this one: checksums run on from frame to frame."""
    if number + 1 not in log.frames:
        return False
    file.seek(_HEADER + (number + 1) * log.size)
    frame = file.read(log.size)
    order = "<" if struct.unpack(">I", log.head[:4])[0] == _LITTLE_ENDIAN else ">"
    first, second = struct.unpack(">II", log.frames[number][16:24])
    for one, other in struct.iter_unpack(f"{order}II", frame[:8] + frame[_FRAME:]):
        first = (first + one + second) & _MASK
        second = (second + other + first) & _MASK
    return frame[16:24] == struct.pack(">II", first, second)
