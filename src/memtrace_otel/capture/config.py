"""The capture settings of this process, read once: no operation reads the environment."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from memtrace_otel import settings

if TYPE_CHECKING:  # loaded only when content capture is on
    from memtrace_otel.capture.redact import Callback, Redaction


@dataclass(frozen=True, slots=True)
class CaptureConfig:
    """The content switch and the limits of spans. Sizes are bytes.

    Every content that leaves the process has gone through `redaction`.
    """

    content: bool
    digest_key: str = field(repr=False)
    preview_bytes: int
    span_bytes: int
    span_links: int
    span_parts: int
    origin_entries: int
    record_origin: bool = False
    redaction: Redaction | None = None


_current: CaptureConfig | None = None
_callback: Callback | None = None


def config() -> CaptureConfig:
    """Return the configuration, looking the settings up at the first call."""
    global _current
    if _current is None:
        _current = read_config()
    return _current


def read_config() -> CaptureConfig:
    """Read the settings; invalid values fall back to their defaults."""
    content = settings.captures_content()
    return CaptureConfig(
        content=content,
        digest_key=settings.DIGEST_KEY.read(),
        preview_bytes=settings.PREVIEW_BYTES.read(),
        span_bytes=settings.SPAN_BYTES.read(),
        span_links=settings.SPAN_LINKS.read(),
        span_parts=settings.SPAN_PARTS.read(),
        origin_entries=settings.ORIGIN_ENTRIES.read(),
        record_origin=settings.RECORD_ORIGIN.read(),
        redaction=redaction() if content else None,
    )


@cache
def redaction() -> Redaction | None:
    """The rules for every text that may leave the process; importing them takes some milliseconds."""
    from memtrace_otel.capture.redact import read_redaction

    return read_redaction(_callback)


def use_config(value: CaptureConfig | None) -> None:
    """Replace the configuration (None: look the settings up again at the next use)."""
    global _current
    redaction.cache_clear()
    _current = value


def use_redaction(callback: Callback | None) -> None:
    """Call `callback(text)` for each content, after patterns and keys; None: no callback.

    It returns the text that may leave, or None. When it raises or takes longer than 50 ms, the content is withheld.
    """
    global _callback
    _callback = callback
    use_config(None)


def configure(**values: object) -> None:
    """Set values of `docs/reference/settings.md` by name for this process: `configure(capture_content="SPAN_ONLY")`.

    They win over the environment and over what `OTEL_CONFIG_FILE` said; None gives a setting back to the environment.
    Raises ValueError for an unknown name or an unusable value, naming what is accepted; nothing is changed then.
    """
    settings.override(values)
    use_config(None)
