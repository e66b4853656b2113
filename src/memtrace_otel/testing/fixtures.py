"""Fixtures of the instrumentor contracts: fresh capture state, recorded spans, provider, and the instrumentor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from opentelemetry.instrumentation.instrumentor import (
    BaseInstrumentor,  # pyright: ignore[reportMissingTypeStubs]
)
from opentelemetry.sdk.trace import TracerProvider

from memtrace_otel import settings
from memtrace_otel.capture import origins, recall, use_config
from memtrace_otel.semconv import OpKind, Role
from memtrace_otel.testing.programs import Started


class Observed:
    """The fixtures of every contract here. The subclass names its `instrumentor` and has a fixture `program`."""

    instrumentor: type[BaseInstrumentor]
    config: pytest.Config
    reading: tuple[str, str] = (OpKind.RETRIEVE, Role.HIT)
    """Kind of the operation that reads memory, and the role in which it reads records."""
    wraps_nothing: bool = False
    """True for an instrumentor that replaces no name: it gives the system a callback, say."""

    @pytest.fixture(autouse=True)
    def default_settings(self, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> Iterator[None]:
        """Content capture off unless a test asks for it; nothing remembered of another test."""
        self.config = pytestconfig
        monkeypatch.delenv(settings.CAPTURE_CONTENT.env, raising=False)
        use_config(None)
        origins().forget()
        recall.forget()
        yield
        use_config(None)

    @pytest.fixture
    def spans(self) -> Started:
        """What is recorded while `instrumented`."""
        return Started()

    @pytest.fixture
    def provider(self, spans: Started) -> TracerProvider:
        """The tracer provider of the application."""
        provider = TracerProvider()
        provider.add_span_processor(spans)
        return provider

    @pytest.fixture
    def instrument(self, provider: TracerProvider) -> Iterator[Callable[[], None]]:
        """Instruments when called; undone at the end of the test."""
        yield lambda: self.instrumentor().instrument(tracer_provider=provider, skip_dep_check=True)
        if self.instrumentor().is_instrumented_by_opentelemetry:
            self.instrumentor().uninstrument()

    def places(self) -> list[tuple[Any, str]]:
        """What is wrapped now: owners and names. For an instrumentor without `patches` the subclass says it."""
        patches: Any = getattr(self.instrumentor(), "patches", None)
        return patches.wrapped() if patches is not None else []

    def known_places(self) -> list[tuple[Any, str]]:
        """The same, and not nothing for want of knowing."""
        places = self.places()
        assert places or self.wraps_nothing, (
            f"nothing tells what {self.instrumentor.__name__} wraps, so nothing could be checked: "
            "let `places` return it, or set `wraps_nothing = True`"
        )
        return places


def own(owner: Any, name: str) -> object:
    """The attribute in the namespace of a class or module itself."""
    return cast(dict[str, object], vars(owner)).get(name)
