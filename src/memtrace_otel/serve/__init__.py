"""`memtrace-otel serve`: receive OTLP, keep it, decode it, attribute failures; one SQLite file, two processes.

This process takes requests and commits them; a second one decodes what waits in the file and attributes.
"""

from memtrace_otel.serve.options import Options, ServeError

__all__ = ["Options", "ServeError"]
