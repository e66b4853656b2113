"""Spans that wait on disk for their receiver."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from memtrace_otel import settings
from memtrace_otel.doctor.finding import Finding, ok, problem, warning
from memtrace_otel.doctor.program import ObservedProgram
from memtrace_otel.doctor.remedies import change_setting

_OLD_SECONDS = 60
_ALMOST = 0.9
_LEAST_FREE = 10 << 20


def check_spool(program: ObservedProgram) -> Iterator[Finding]:
    """The directories of the program's exporters, and the others beside them."""
    folders = [Path(exporter.spool) for exporter in program.exporters if exporter.spool]
    if not folders:
        return
    limit = int(program.setting(settings.SPOOL_BYTES.name) or settings.SPOOL_BYTES.default)
    quiet = True
    if limit and (why := _unwritable(folders[0])):
        quiet = False
        yield warning(
            "spool",
            f"nothing can wait on disk in {folders[0].parent}: {why}; what the queue has no room for is dropped",
            change_setting(program, settings.SPOOL_DIR, "~/.local/state/memtrace-otel/spool"),
        )
    for folder in folders:
        size, newest = _waiting(folder)
        if limit and size >= _ALMOST * limit:
            quiet = False
            yield problem(
                "spool",
                f"{_megabytes(size)} of {_megabytes(limit)} wait in {folder}: what comes next is dropped",
                change_setting(program, settings.SPOOL_BYTES, limit * 4),
            )
        elif size and time.time() - newest <= _OLD_SECONDS:
            quiet = False
            recently = "written less than a minute ago: the program at work, or its next run, sends them"
            yield ok("spool", f"{_megabytes(size)} wait in {folder}, {recently}")
        elif size:
            quiet = False
            yield warning(
                "spool",
                f"{_megabytes(size)} wait in {folder}; the next run with the same receiver and service sends them",
                program.rerun,
            )
    base = folders[0].parent
    others = [path for path in base.iterdir() if path not in folders] if base.is_dir() else []
    waiting = [(size, path) for path in others if (size := _waiting(path)[0])]
    if waiting:
        quiet = False
        yield warning(
            "spool",
            f"{_megabytes(sum(size for size, _ in waiting))} wait in {base} for other receivers, headers or services",
            "export OTEL_SERVICE_NAME=...  # that of the program which left them, then run it",
        )
    if quiet:
        yield ok("spool", f"nothing waits in {base}")


def _unwritable(folder: Path) -> str:
    """Why nothing can be written below `folder`, '' when it can."""
    there = next(path for path in (folder, *folder.parents) if os.path.exists(path))
    if not there.is_dir():
        return f"{there} is no directory"
    if not os.access(there, os.W_OK | os.X_OK):
        return f"{there} cannot be written"
    free = shutil.disk_usage(there).free
    return f"{free >> 20} MiB are left there" if free < _LEAST_FREE else ""


def _waiting(folder: Path) -> tuple[int, float]:
    """Return the bytes that wait in `folder` and when it was last written to."""
    try:
        found = [path.stat() for path in folder.glob("*.spool")]
    except OSError:
        return 0, 0.0
    return sum(stat.st_size for stat in found), max((stat.st_mtime for stat in found), default=0.0)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 100_000 else f"{size / 1e3:.1f} kB"
