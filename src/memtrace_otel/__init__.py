"""memtrace-otel: the memory of LLM agents, debuggable with OpenTelemetry."""

from memtrace_otel.version import __version__

__all__ = ["__version__"]
