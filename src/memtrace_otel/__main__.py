"""`python -m memtrace_otel`."""

from memtrace_otel.cli import main

main(prog_name="memtrace-otel")
