"""`python -m memtrace_otel`."""

from memtrace_otel.cli import main

if __name__ == "__main__":
    main(prog_name="memtrace-otel")
