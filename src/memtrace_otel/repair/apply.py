"""Apply the offer of a run, and take it back; what was applied is recorded in `applied.json` of the run."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from memtrace_otel.repair.subjects import RepairError
from memtrace_otel.report import write_private

APPLIED = "applied.json"
ENVIRONMENT = "env"


def assignments(texts: Mapping[str, str]) -> list[str]:
    """Return shell commands, one for each component: `export EXTRACTION_PROMPT='...'`."""
    return [f"export {name.upper().replace(' ', '_')}={shlex.quote(text)}" for name, text in texts.items()]


def apply(directory: Path, texts: Mapping[str, str], to: str) -> None:
    """Write the offer of a run as a JSON object to a file, or note that it goes to the environment.

    The record comes before the file: an application that was stopped can be taken back. Raises RepairError when the
    record is damaged.
    """
    entries = applied(directory)
    entry: dict[str, Any] = {"time": time.time_ns(), "to": to, "before": None}
    if to == ENVIRONMENT:
        _keep(directory, [*entries, entry])
        return
    path = Path(to).resolve()
    before = _content(path)
    try:
        other = set(json.loads(before or "{}")) - set(texts)
    except (TypeError, ValueError):
        raise RepairError(f"{path} is no JSON object; give another file") from None
    if other:
        raise RepairError(f"{path} also holds {', '.join(map(str, sorted(other, key=str)))}; give another file")
    text = json.dumps(texts, ensure_ascii=False, indent=1) + "\n"
    _keep(directory, [*entries, entry | {"to": str(path), "before": before, "after": text}])
    _replace(path, text)


def revert(directory: Path) -> str:
    """Undo the last application and return where it had gone. Raises RepairError when there is nothing to undo."""
    entries = applied(directory)
    if not entries:
        raise RepairError(f"nothing of {directory} is applied")
    *others, last = entries
    if last["to"] != ENVIRONMENT:
        path = Path(last["to"])
        if _content(path) not in (last["after"], last["before"], None):
            raise RepairError(f"{path} was changed since; its earlier text is in {directory / APPLIED}")
        if last["before"] is None:
            path.unlink(missing_ok=True)
        else:
            _replace(path, last["before"])
    _keep(directory, others)
    return str(last["to"])


def applied(directory: Path) -> list[dict[str, Any]]:
    """Return what is applied: time (ns), file or `env`, and the text of the file before and after.

    Raises RepairError when the record is damaged.
    """
    path = directory / APPLIED
    try:
        entries: Any = json.loads(_content(path) or "[]")
        if not all({"time", "to", "before"} <= set(one) for one in entries):
            raise ValueError("an entry lacks a key")
    except (ValueError, TypeError) as error:
        raise RepairError(f"{path} is damaged: {error}") from error
    return cast("list[dict[str, Any]]", entries)


def applied_seconds(directory: Path) -> float:
    """Return the time of the last application in seconds since the epoch, 0 for none or a damaged record."""
    try:
        return max((one["time"] / 1e9 for one in applied(directory)), default=0.0)
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0


def _keep(directory: Path, entries: list[dict[str, Any]]) -> None:
    _replace(directory / APPLIED, json.dumps(entries, ensure_ascii=False, indent=1))


def _content(path: Path) -> str | None:
    """Return the text of a file, None when there is none. Raises RepairError."""
    try:
        return path.read_text("utf-8") if path.exists() else None
    except (OSError, UnicodeDecodeError) as error:
        raise RepairError(f"{path} cannot be read: {error}") from error


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    new = path.with_name(f"{path.name}.new")
    try:
        write_private(new, text)
        os.replace(new, path)
    except OSError as error:
        raise RepairError(f"{path} cannot be written: {error}") from error
