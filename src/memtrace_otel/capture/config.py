"""The capture settings of this process, read once so that a hot path never touches the environment."""

from __future__ import annotations

from dataclasses import dataclass

from memtrace_otel import settings


@dataclass(frozen=True, slots=True)
class CaptureConfig:
    """What capture may put on a span and how much of it. Sizes are bytes."""

    content: bool
    digest_key: str
    preview_bytes: int
    span_bytes: int
    span_links: int
    span_parts: int
    origin_entries: int


_current: CaptureConfig | None = None


def config() -> CaptureConfig:
    """Return the configuration, reading the environment at the first call."""
    global _current
    if _current is None:
        _current = read_config()
    return _current


def read_config() -> CaptureConfig:
    """Read the configuration from the environment; values that make no sense fall back to their defaults."""

    def positive(setting: settings.Setting[int]) -> int:
        value = setting.read()
        return value if value > 0 else setting.default

    return CaptureConfig(
        content=settings.CAPTURE_CONTENT.read().strip().upper() in {"SPAN_ONLY", "SPAN_AND_EVENT"},
        digest_key=settings.DIGEST_KEY.read(),
        preview_bytes=positive(settings.PREVIEW_BYTES),
        span_bytes=positive(settings.SPAN_BYTES),
        span_links=positive(settings.SPAN_LINKS),
        span_parts=positive(settings.SPAN_PARTS),
        origin_entries=positive(settings.ORIGIN_ENTRIES),
    )


def use_config(value: CaptureConfig | None) -> None:
    """Replace the configuration (None: read the environment again at the next use)."""
    global _current
    _current = value
