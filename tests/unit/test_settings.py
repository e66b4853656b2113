"""Settings: one name per row, the order of sources, and errors that say what is accepted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import memtrace_otel
from memtrace_otel import settings
from memtrace_otel.capture import config

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def no_overrides() -> Iterator[None]:
    yield
    settings.override(dict.fromkeys(settings.NAMES))


def test_every_row_has_a_name_of_its_own() -> None:
    assert len(settings.NAMES) == len(settings.TABLE) == len({setting.env for setting in settings.TABLE})
    assert all(re.fullmatch(r"[a-z][a-z_]*", name) for name in settings.NAMES)
    assert settings.NAMES["preview_bytes"].env == "MEMTRACE_PREVIEW_BYTES"
    assert settings.NAMES["capture_content"] is settings.CAPTURE_CONTENT


def test_every_default_is_a_value_that_its_row_accepts() -> None:
    for setting in settings.TABLE:
        assert setting.convert(setting.default) == setting.default, setting.name


def test_an_argument_wins_over_the_environment_and_the_environment_over_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert settings.PREVIEW_BYTES.find() == settings.Found(16_384, "default")
    monkeypatch.setenv("MEMTRACE_PREVIEW_BYTES", "500")
    assert settings.PREVIEW_BYTES.find() == settings.Found(500, "environment")
    memtrace_otel.configure(preview_bytes=7)
    assert settings.PREVIEW_BYTES.find() == settings.Found(7, "argument")
    memtrace_otel.configure(preview_bytes=None)
    assert settings.PREVIEW_BYTES.read() == 500


def test_capture_looks_again_after_configure(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not config().content
    memtrace_otel.configure(capture_content="span_and_event", span_links="8")
    assert (config().content, config().span_links) == (True, 8)
    memtrace_otel.configure(capture_content="EVENT_ONLY")
    assert (config().content, config().span_links) == (False, 8)


def test_an_empty_variable_is_an_unset_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMTRACE_DB", "")
    assert settings.DB_PATH.find() == settings.Found("memtrace.db", "default")


def test_an_unusable_variable_counts_as_not_given_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    found = settings.CAPTURE_CONTENT.find()
    assert (found.value, found.source) == ("NO_CONTENT", "default")
    assert "SPAN_ONLY" in found.problem


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("preview_bytes", "many", "a whole number of at least 1"),
        ("preview_bytes", 0, "a whole number of at least 1"),
        ("preview_bytes", 1.5, "a whole number of at least 1"),
        ("preview_bytes", True, "a whole number of at least 1"),
        ("preview_bytes", float("inf"), "a whole number of at least 1"),
        ("evaluation_threshold", "nan", "a number"),
        ("record_origin", "perhaps", "true or false"),
        ("capture_content", True, "one of NO_CONTENT, SPAN_ONLY"),
        ("judge_expected", "(", "a regular expression"),
        ("db", b"x.db", "text"),
        ("db", ["x.db"], "text"),
    ],
)
def test_configure_refuses_what_cannot_be_used_and_says_what_can(name: str, value: object, accepted: str) -> None:
    with pytest.raises(ValueError, match=re.escape(accepted)) as refused:
        memtrace_otel.configure(span_links=3, **{name: value})
    assert str(refused.value).startswith(f"{name} ({settings.NAMES[name].env}) takes ")
    assert settings.SPAN_LINKS.read() == settings.SPAN_LINKS.default  # all or nothing


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"previewbytes is no setting .* preview_bytes"):
        memtrace_otel.configure(previewbytes=1)


def test_a_secret_is_in_no_message() -> None:
    with pytest.raises(ValueError, match="digest_key") as refused:
        memtrace_otel.configure(digest_key=["hush"])
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        ("db", Path("a/b.db"), "a/b.db"),
        ("digest_key", 1234, "1234"),  # YAML reads a key of digits as a number
        ("evaluation_threshold", 1, 1.0),
        ("record_origin", "Yes", True),
        ("marker_status", "UNSET", "unset"),
        ("preview_bytes", 10.0, 10),
    ],
)
def test_values_of_python_and_yaml_become_the_type_of_the_setting(name: str, value: object, read: object) -> None:
    memtrace_otel.configure(**{name: value})
    found = settings.NAMES[name].read()
    assert (found, type(found)) == (read, type(read))


def test_the_page_names_every_setting_as_python_and_yaml_do_and_says_the_same_of_it() -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()
    rows = {
        cells[0].strip(" |`"): (cells[1].strip(" `"), cells[-1].removesuffix(" |"))
        for line in page.splitlines()
        if (cells := line.split(" | "))[1:]
    }
    for setting in settings.TABLE:
        assert rows[setting.env] == (setting.name, setting.help)
