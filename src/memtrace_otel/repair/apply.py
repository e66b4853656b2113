"""Apply the offer of a run, and take it back; what was applied is recorded in `applied.json` of the run."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memtrace_otel.repair.subjects import RepairError
from memtrace_otel.report import write_private

APPLIED = "applied.json"
ENVIRONMENT = "env"


def assignments(texts: Mapping[str, str]) -> list[str]:
    """Return shell commands, one for each component: `export EXTRACTION_PROMPT='...'`."""
    return [f"export {name.upper().replace(' ', '_')}={shlex.quote(text)}" for name, text in texts.items()]


def apply(directory: Path, texts: Mapping[str, str], to: str) -> None:
    """Write the offer of a run as a JSON object to a file, or note that it goes to the environment."""
    entry: dict[str, Any] = {"time": time.time_ns(), "to": to, "before": None}
    if to != ENVIRONMENT:
        path = Path(to).absolute()
        text = json.dumps(texts, ensure_ascii=False, indent=1) + "\n"
        entry |= {"to": str(path), "before": path.read_text("utf-8") if path.exists() else None, "after": text}
        write_private(path, text)
    _keep(directory, [*applied(directory), entry])


def revert(directory: Path) -> str:
    """Undo the last application and return where it had gone. Raises RepairError when there is nothing to undo."""
    entries = applied(directory)
    if not entries:
        raise RepairError(f"nothing of {directory} is applied")
    *others, last = entries
    if last["to"] != ENVIRONMENT:
        path = Path(last["to"])
        if not path.exists() or path.read_text("utf-8") != last["after"]:
            raise RepairError(f"{path} was changed since; its earlier text is in {directory / APPLIED}")
        if last["before"] is None:
            path.unlink()
        else:
            write_private(path, last["before"])
    _keep(directory, others)
    return str(last["to"])


def applied(directory: Path) -> list[dict[str, Any]]:
    """Return what is applied: time (ns), file or `env`, and the text of the file before and after."""
    path = directory / APPLIED
    return json.loads(path.read_text("utf-8")) if path.exists() else []


def applied_seconds(directory: Path) -> float:
    """Return the time of the last application in seconds since the epoch, 0 for none or a damaged record."""
    try:
        return max((one["time"] / 1e9 for one in applied(directory)), default=0.0)
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0


def _keep(directory: Path, entries: list[dict[str, Any]]) -> None:
    write_private(directory / APPLIED, json.dumps(entries, ensure_ascii=False, indent=1))
