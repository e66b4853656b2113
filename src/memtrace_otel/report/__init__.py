"""The diagnostic report: verdicts and the evolution of facts as one HTML file, as tables and as trees."""

from memtrace_otel.report.render import render_report, write_private

__all__ = ["render_report", "write_private"]
