"""Our own metrics on their way to operators: sent where the environment says, and shown to a Prometheus scrape."""

from memtrace_otel.monitoring.export import export_metrics

__all__ = ["export_metrics"]
