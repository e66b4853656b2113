"""What `opentelemetry-instrument` calls once the providers and instrumentors are in place."""

from __future__ import annotations

from memtrace_otel import settings
from memtrace_otel.capture.guard import guard


def post_instrument() -> None:
    """Put the lossless span processor in place, unless MEMTRACE_PROCESSOR=stock, and let the program set providers of
    its own with MEMTRACE_JOIN_PROVIDER=true. Never raises; twice is once."""
    with guard("post_instrument"):  # first: our own metrics go where the program's go
        if settings.JOIN_PROVIDER.read():
            from memtrace_otel.capture.provider_bridge import let_program_set_providers

            let_program_set_providers()
    with guard("post_instrument"):
        if settings.PROCESSOR.read() == "lossless":
            from memtrace_otel.capture.delivery.replacement import replace_batch_processors

            replace_batch_processors()
