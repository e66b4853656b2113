"""The diagnostic report: verdicts and the evolution of facts as one HTML file, as tables and as trees."""

from memtrace_otel.report.render import page_templates, render_report, write_private

__all__ = ["page_templates", "render_report", "write_private"]
