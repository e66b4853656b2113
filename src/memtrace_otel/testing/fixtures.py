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
    """The fixtures of the contracts. The subclass names its `instrumentor` and has a fixture `program`."""

    instrumentor: type[BaseInstrumentor]
    reading: tuple[str, str] = (OpKind.RETRIEVE, Role.HIT)
    """Kind of the operation that reads memory, and the role in which it reads records."""

    @pytest.fixture(autouse=True)
    def default_settings(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Content capture off by default; no state of another test."""
        monkeypatch.delenv(settings.CAPTURE_CONTENT.env, raising=False)
        use_config(None)
        origins().forget()
        recall.forget()
        yield
        use_config(None)

    @pytest.fixture
    def spans(self) -> Started:
        """The spans recorded by `provider`."""
        return Started()

    @pytest.fixture
    def provider(self, spans: Started) -> TracerProvider:
        """The tracer provider of the application."""
        provider = TracerProvider()
        provider.add_span_processor(spans)
        return provider

    @pytest.fixture
    def instrument(self, provider: TracerProvider) -> Iterator[Callable[[], None]]:
        """A function that instruments; undone at the end of the test."""
        yield lambda: self.instrumentor().instrument(tracer_provider=provider, skip_dep_check=True)
        if self.instrumentor().is_instrumented_by_opentelemetry:
            self.instrumentor().uninstrument()

    def places(self) -> list[tuple[Any, str]]:
        """The replaced functions, as owners and names. An instrumentor without `patches` needs an override."""
        patches: Any = getattr(self.instrumentor(), "patches", None)
        return patches.wrapped() if patches is not None else []


def own(owner: Any, name: str) -> object:
    """The attribute in the namespace of a class or module, without base classes."""
    return cast(dict[str, object], vars(owner)).get(name)
