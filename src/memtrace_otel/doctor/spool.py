"""Spans that wait on disk for their receiver."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from memtrace_otel import settings
from memtrace_otel.doctor.finding import Finding, ok, problem, warning
from memtrace_otel.doctor.program import ObservedProgram

_OLD_SECONDS = 60
_ALMOST = 0.9


def check_spool(program: ObservedProgram) -> Iterator[Finding]:
    """The directories of the program's exporters, and the others beside them."""
    folders = [Path(exporter.spool) for exporter in program.exporters if exporter.spool]
    if not folders:
        return
    limit = int(program.setting(settings.SPOOL_BYTES.name) or settings.SPOOL_BYTES.default)
    quiet = True
    for folder in folders:
        size, newest = _waiting(folder)
        if limit and size >= _ALMOST * limit:
            quiet = False
            yield problem(
                "spool",
                f"{_megabytes(size)} of {_megabytes(limit)} wait in {folder}: what comes next is dropped",
                f"export {settings.SPOOL_BYTES.env}={limit * 4}  # until the receiver works again",
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


def _waiting(folder: Path) -> tuple[int, float]:
    """Return the bytes that wait in `folder` and when it was last written to."""
    try:
        found = [path.stat() for path in folder.glob("*.spool")]
    except OSError:
        return 0, 0.0
    return sum(stat.st_size for stat in found), max((stat.st_mtime for stat in found), default=0.0)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
