"""`memtrace-otel serve`: receive OTLP, keep it, decode it, attribute failures; one SQLite file, three processes.

The server (`server`) takes requests and commits them; two background processes work on what is in the file: `decoding`
turns it into spans, `attributing` looks at these and attributes. Nothing is imported here: they need less than it does.
"""
