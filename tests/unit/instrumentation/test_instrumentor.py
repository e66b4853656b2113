"""The options of an instrumentor are the settings, by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import pytest

from memtrace_otel import settings
from memtrace_otel.capture import config
from memtrace_otel.instrumentation.base import Configuration
from tests.unit.testing.toy import ToyInstrumentor


@pytest.fixture(autouse=True)
def settings_back() -> Iterator[None]:
    yield
    settings.override(dict.fromkeys(settings.NAMES))


def test_instrument_applies_settings() -> None:
    ToyInstrumentor().instrument(preview_bytes=17, capture_content="SPAN_ONLY")
    try:
        assert (config().preview_bytes, config().content) == (17, True)
    finally:
        ToyInstrumentor().uninstrument()


def test_an_invalid_setting_is_logged_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    ToyInstrumentor().instrument(preview_bytes="many", span_links=7)
    try:
        assert config().span_links == 7
        assert config().preview_bytes == settings.PREVIEW_BYTES.default
        assert "preview_bytes" in caplog.text
    finally:
        ToyInstrumentor().uninstrument()


def test_the_declarative_configuration_has_every_setting() -> None:
    assert {field.name for field in fields(Configuration)} == set(settings.NAMES)
    assert ToyInstrumentor.configuration is Configuration
