"""Who may send."""

from __future__ import annotations

import pytest

from memtrace_otel.otlp.receiver import is_loopback
from memtrace_otel.otlp.receiver.access import is_allowed


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.1", "example.org", "localhost.example.org", "127.0.0"])
def test_anything_else_may_be_reached(host: str) -> None:
    assert not is_loopback(host)


def test_a_token_has_to_be_borne() -> None:
    assert is_allowed("", "")
    assert is_allowed("Bearer s3cret", "s3cret")
    assert is_allowed("bearer  s3cret ", "s3cret")
    for wrong in ("", "Bearer", "Bearer s3cre", "Basic s3cret", "s3cret", "Bearer é"):
        assert not is_allowed(wrong, "s3cret")
