"""Fixtures shared by all tests: a recording tracer provider and a fresh capture state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from memtrace_otel.capture import origins, read_config, recall, use_config
from memtrace_otel.capture.guard import drops

pytest_plugins = ["pytester"]


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes may hold a time (gzip): as names they differ between the workers of one run, which then stops."""
    return argname if isinstance(val, bytes) else None


class Recording:
    """A tracer provider whose finished spans can be looked at."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("tests")

    def spans(self) -> list[ReadableSpan]:
        """Finished spans in order of start."""
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def named(self, name: str) -> list[ReadableSpan]:
        """Finished spans of this name."""
        return [span for span in self.spans() if span.name == name]

    def clear(self) -> None:
        """Forget what was recorded."""
        self._exporter.clear()


@pytest.fixture
def recording() -> Recording:
    return Recording()


@pytest.fixture(autouse=True)
def fresh_capture(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No origins, turns or settings of another test; content capture is off unless a test asks for `content_on`."""
    monkeypatch.delenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", raising=False)
    use_config(None)
    origins().forget()
    recall.forget()
    before = drops.copy()
    yield
    use_config(None)
    print("dropped in this test:", dict(drops - before))  # shown with a failure


@pytest.fixture(autouse=True)
def own_spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans that a test cannot send are found by no other test, nor by the user's programs."""
    monkeypatch.setenv("MEMTRACE_SPOOL_DIR", str(tmp_path / "spool"))


@pytest.fixture
def content_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")
    use_config(read_config())
