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
    """Return the configuration, looking the settings up at the first call."""
    global _current
    if _current is None:
        _current = read_config()
    return _current


def read_config() -> CaptureConfig:
    """Look up the settings; values that make no sense fall back to their defaults."""
    return CaptureConfig(
        content=settings.CAPTURE_CONTENT.read() in {"SPAN_ONLY", "SPAN_AND_EVENT"},
        digest_key=settings.DIGEST_KEY.read(),
        preview_bytes=settings.PREVIEW_BYTES.read(),
        span_bytes=settings.SPAN_BYTES.read(),
        span_links=settings.SPAN_LINKS.read(),
        span_parts=settings.SPAN_PARTS.read(),
        origin_entries=settings.ORIGIN_ENTRIES.read(),
    )


def use_config(value: CaptureConfig | None) -> None:
    """Replace the configuration (None: look the settings up again at the next use)."""
    global _current
    _current = value


def configure(**values: object) -> None:
    """Set values of `docs/reference/settings.md` by name for this process: `configure(capture_content="SPAN_ONLY")`.

    They win over the environment and over what `OTEL_CONFIG_FILE` said; None gives a setting back to the environment.
    Raises ValueError for an unknown name or an unusable value, naming what is accepted; nothing is changed then.
    """
    settings.override(values)
    use_config(None)
