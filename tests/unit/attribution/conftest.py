"""Fixtures of the tests with a scripted model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.model_stub import ModelStub


@pytest.fixture
def server() -> Iterator[ModelStub]:
    """A scripted model behind an OpenAI-compatible endpoint."""
    with ModelStub() as stub:
        yield stub


@pytest.fixture
def own_replies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file of remembered replies for this test alone."""
    monkeypatch.setenv("MEMTRACE_MODEL_CACHE", str(tmp_path / "replies.db"))


@pytest.fixture
def scripted(own_replies: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of the scripted model."""
    monkeypatch.setenv("MEMTRACE_MODEL", "scripted")
