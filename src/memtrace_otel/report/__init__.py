"""Verdicts for people: one HTML page, and the same on a terminal."""

from memtrace_otel.report.render import render_report

__all__ = ["render_report"]
