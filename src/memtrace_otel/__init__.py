"""memtrace-otel: the memory of LLM agents, debuggable with OpenTelemetry.

The public names load on first use, so that `import memtrace_otel` costs an application nothing it does not need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from memtrace_otel.version import __version__

if TYPE_CHECKING:
    from memtrace_otel.attribution import attribute, find_failures
    from memtrace_otel.capture import configure, current_operation, feedback, operation, scope_id, variable_ref
    from memtrace_otel.graph import EvolutionGraph, build_graph, load_graph
    from memtrace_otel.model import OperationSpan, Variable, Verdict
    from memtrace_otel.sources import SqliteStore

__all__ = [
    "EvolutionGraph",
    "OperationSpan",
    "SqliteStore",
    "Variable",
    "Verdict",
    "__version__",
    "attribute",
    "build_graph",
    "configure",
    "current_operation",
    "feedback",
    "find_failures",
    "load_graph",
    "operation",
    "scope_id",
    "variable_ref",
]

_HOME = {
    "attribution": ("attribute", "find_failures"),
    "capture": ("configure", "current_operation", "feedback", "operation", "scope_id", "variable_ref"),
    "graph": ("EvolutionGraph", "build_graph", "load_graph"),
    "model": ("OperationSpan", "Variable", "Verdict"),
    "sources": ("SqliteStore",),
}


def __getattr__(name: str) -> object:
    for package, names in _HOME.items():
        if name in names:
            return getattr(import_module(f"memtrace_otel.{package}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
