"""The record of applications and the file: neither is lost when the other cannot be read or is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from memtrace_otel.repair.apply import APPLIED, applied, apply, revert
from memtrace_otel.repair.subjects import RepairError

TEXTS = {"answering prompt": "new"}


@pytest.mark.parametrize("record", ["[{", "{}x", "[1]", '[{"time": 1}]', "7", "\udcff"])
def test_a_damaged_record_is_an_error_and_the_file_stays(tmp_path: Path, record: str) -> None:
    (tmp_path / APPLIED).write_bytes(record.encode("utf-8", "surrogateescape"))
    (file := tmp_path / "prompts.json").write_text("{}")
    with pytest.raises(RepairError, match=APPLIED):
        apply(tmp_path, TEXTS, str(file))
    assert file.read_text() == "{}"


@pytest.mark.parametrize("before", ["{}", None])
@pytest.mark.parametrize("now", ["applied", "not yet written", "deleted"])
def test_an_application_is_taken_back(tmp_path: Path, before: str | None, now: str) -> None:
    file = tmp_path / "prompts.json"
    if before is not None:
        file.write_text(before)
    apply(tmp_path, TEXTS, str(file))
    if now == "deleted" or (now != "applied" and before is None):
        file.unlink()
    elif before is not None and now != "applied":
        file.write_text(before)
    assert revert(tmp_path) == str(file)
    assert (file.read_text() if file.exists() else None) == before
    assert applied(tmp_path) == []


@pytest.mark.parametrize("content", [b'{"port": 80, "answering prompt": "old"}', b"PROMPT = 1", b"[1]", b"\xff"])
def test_a_file_with_anything_else_is_not_replaced(tmp_path: Path, content: bytes) -> None:
    (file := tmp_path / "settings.json").write_bytes(content)
    with pytest.raises(RepairError, match=r"settings\.json"):
        apply(tmp_path, TEXTS, str(file))
    assert file.read_bytes() == content
    assert applied(tmp_path) == []


def test_a_file_that_was_changed_since_is_not_reverted(tmp_path: Path) -> None:
    file = tmp_path / "prompts.json"
    apply(tmp_path, TEXTS, str(file))
    file.write_text("mine")
    with pytest.raises(RepairError, match="changed since"):
        revert(tmp_path)
    assert file.read_text() == "mine"
