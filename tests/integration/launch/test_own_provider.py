"""A program that sets a tracer provider of its own, as every tutorial says: under `memtrace-otel run` its backend gets
what it gets from plain `python`, and the database gets it as well."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from memtrace_otel.sources import SqliteStore

HEAD = """
import os, sys
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SimpleSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from memtrace_otel import operation

backend = open("backend.log", "a", buffering=1)
tell = lambda span: f"{span.resource.attributes['service.name']} {span.name}\\n"
to_backend = lambda: SimpleSpanProcessor(ConsoleSpanExporter(out=backend, formatter=tell))
shop = Resource.create({"service.name": "shop"})

def remember(name="create_memory"):
    with operation(name, kind="create", system="notes", scope="s") as op:
        op.wrote("memory:1", action="ADD", content="x")

def checkout(tracer=None):
    with (tracer or trace.get_tracer("app")).start_as_current_span("checkout"):
        remember()
"""
TUTORIAL = """
provider = TracerProvider(resource=shop)
provider.add_span_processor(to_backend())
trace.set_tracer_provider(provider)
checkout()
"""
WAYS = {
    "as in the tutorial": TUTORIAL,
    "processor added later": """
trace.set_tracer_provider(TracerProvider(resource=shop))
trace.get_tracer_provider().add_span_processor(to_backend())
checkout()
""",
    "tracer taken before": """
tracer = trace.get_tracer("app")
provider = TracerProvider(resource=shop)
provider.add_span_processor(to_backend())
trace.set_tracer_provider(provider)
checkout(tracer)
""",
    "tracer of the provider": """
from opentelemetry.trace import set_tracer_provider
provider = TracerProvider(resource=shop)
provider.add_span_processor(to_backend())
set_tracer_provider(provider)
checkout(provider.get_tracer("app"))
""",
    "in a forked worker": f"""
if child := os.fork():
    os.waitpid(child, 0)
else:
    {TUTORIAL.strip().replace(chr(10), chr(10) + "    ")}
    provider.force_flush()
    os._exit(0)
""",
    "set twice": TUTORIAL.replace("checkout()", "trace.set_tracer_provider(provider)\ncheckout()"),
    "flushed, then killed": TUTORIAL + "provider.force_flush(); os._exit(0)",
    "shut down, then killed": TUTORIAL + "provider.shutdown(); os._exit(0)",
}


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "MEMTRACE_"))}
    return kept | {"XDG_STATE_HOME": str(tmp_path / "state"), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}


@pytest.fixture
def program(tmp_path: Path, environ: dict[str, str]) -> Program:
    return Program(tmp_path, environ)


class Program:
    """A program and what its own backend and the database got of it."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder, self.environ = folder, environ
        self.said = ""

    def start(self, code: str, *launcher: str, **environ: str) -> Program:
        (self.folder / "app.py").write_text(HEAD + code)
        command = [sys.executable, *launcher, sys.executable, "app.py"] if launcher else [sys.executable, "app.py"]
        changed = self.environ | environ
        done = subprocess.run(command, cwd=self.folder, env=changed, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        self.said = done.stderr
        return self

    def run(self, code: str, **environ: str) -> Program:
        return self.start(code, "-m", "memtrace_otel.cli", "run", "--", **environ)

    def instrument(self, code: str, **environ: str) -> Program:
        started = "from opentelemetry.instrumentation.auto_instrumentation import run; run()"
        quiet = {"OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}
        return self.start(code, "-c", started, **quiet | {"OTEL_TRACES_EXPORTER": "memtrace"} | environ)

    @property
    def backend(self) -> list[str]:
        return sorted((self.folder / "backend.log").read_text().splitlines())

    @property
    def database(self) -> list[str]:
        with SqliteStore.open(self.folder / "memtrace.db", create=False) as store:
            return sorted(f"{span.service} {span.name}" for span in store.spans())


BOTH = ["shop checkout", "shop create_memory"]


@pytest.mark.parametrize("way", WAYS)
def test_its_backend_gets_what_plain_python_gives_it_and_so_does_the_database(way: str, program: Program) -> None:
    assert program.start(WAYS[way]).backend == BOTH
    (program.folder / "backend.log").unlink()
    program.run(WAYS[way])
    assert program.backend == BOTH
    assert program.database == BOTH
    assert ("Overriding" in program.said) == (way == "set twice")


def test_its_sampler_decides_also_for_tracers_taken_before(program: Program) -> None:
    code = "tracer = trace.get_tracer('app')\n" + TUTORIAL.replace("resource=shop", "sampler=ALWAYS_OFF")
    program.run(code.replace("checkout()", "checkout(tracer)\nremember()"))
    assert program.backend == []


def test_what_is_recorded_after_its_shutdown_is_in_the_database(program: Program) -> None:
    program.run(TUTORIAL + "provider.shutdown()\nremember('create_late')")
    assert program.backend == BOTH
    assert program.database == [*BOTH[:1], "shop create_late", *BOTH[1:]]


def test_a_provider_that_is_never_set_works_on_its_own(program: Program) -> None:
    code = TUTORIAL.replace("trace.set_tracer_provider(provider)\n", "")
    program.run(code.replace("checkout()", "checkout(provider.get_tracer('app'))"))
    assert program.backend == BOTH[:1]
    assert program.database == ["app create_memory"]


FOREIGN = """
class Foreign(trace.TracerProvider):
    def __init__(self):
        self.inner = TracerProvider(resource=shop)
        self.inner.add_span_processor(to_backend())
    def get_tracer(self, *args, **kwargs):
        return self.inner.get_tracer(*args, **kwargs)
"""


def test_a_provider_that_takes_no_processors_is_the_programs_and_ours_goes_on(program: Program) -> None:
    program.run(f"{FOREIGN}\ntrace.set_tracer_provider(Foreign())\ncheckout()")
    assert program.backend == BOTH[:1]
    assert program.database == ["app create_memory"]
    assert "tracer provider, Foreign, takes no span processors: its spans are not recorded" in program.said


def test_a_wrapper_that_takes_processors_gets_ours(program: Program) -> None:
    adds = "    def add_span_processor(self, processor):\n        self.inner.add_span_processor(processor)\n"
    program.run(f"{FOREIGN}{adds}\ntrace.set_tracer_provider(Foreign())\ncheckout()")
    assert program.backend == program.database == BOTH


def test_what_the_launcher_set_can_be_added_to_and_set_again(program: Program) -> None:
    code = "now = trace.get_tracer_provider()\nnow.add_span_processor(to_backend())\ntrace.set_tracer_provider(now)\n"
    program.run(f"{code}{TUTORIAL}")
    assert program.backend == sorted(BOTH * 2)  # two processors write to it
    assert program.database == BOTH


def test_opentelemetry_instrument_refuses_it_unless_told(program: Program) -> None:
    program.instrument(TUTORIAL)
    assert program.backend == []
    assert "Overriding of current TracerProvider is not allowed" in program.said
    program.instrument(TUTORIAL, MEMTRACE_JOIN_PROVIDER="true", MEMTRACE_DB="joined.db")
    assert program.backend == BOTH
    assert "Overriding" not in program.said


def test_a_configuration_file_that_names_traces_only_will_do(program: Program) -> None:
    processors = "[{simple: {exporter: {memtrace: {path: memtrace.db}}}}]"
    file = program.folder / "otel.yaml"
    file.write_text(f'file_format: "1.0"\ntracer_provider: {{processors: {processors}}}\n')
    program.instrument(TUTORIAL, OTEL_CONFIG_FILE=str(file), MEMTRACE_JOIN_PROVIDER="true")
    assert program.backend == program.database == BOTH
    assert "memtrace" not in program.said


def test_run_leaves_it_refused_where_the_environment_says_so(program: Program) -> None:
    program.run(TUTORIAL, MEMTRACE_JOIN_PROVIDER="false")
    assert program.backend == []
    assert program.database == ["app checkout", "app create_memory"]


METRICS_AND_LOGS = """
from opentelemetry import _logs, metrics
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

sold = metrics.get_meter("app").create_counter("sold")
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider(metric_readers=[reader]))
sold.add(1)
remember()
logs = LoggerProvider()
_logs.set_logger_provider(logs)
assert _logs.get_logger_provider() is logs
scopes = [scope for of in reader.get_metrics_data().resource_metrics for scope in of.scope_metrics]
print(*[metric.name for scope in scopes for metric in scope.metrics if metric.name == "sold"], file=backend)
"""


def test_its_metrics_and_logs_are_not_taken_away_either(program: Program) -> None:
    for start in (program.start, program.run):
        start(METRICS_AND_LOGS)
        assert "Overriding" not in program.said
    assert program.backend == ["sold", "sold"]
    assert program.database == ["app create_memory"]


# --- the same receiver twice -------------------------------------------------------------------------------------
class Collector(ThreadingHTTPServer):
    """Counts the spans that it gets, by id."""

    def __init__(self) -> None:
        got = self.got = Counter[bytes]()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    for of_scope in of_resource.scope_spans:
                        got.update(span.span_id for span in of_scope.spans)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def collectors() -> Iterator[list[Collector]]:
    servers = [Collector(), Collector()]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    yield servers
    for server in servers:
        server.shutdown()
        server.server_close()


OTLP = """
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
provider = TracerProvider(resource=shop)
trace.set_tracer_provider(provider)
checkout()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter({arguments})))
checkout()
"""


def test_a_receiver_that_both_name_gets_each_span_once(program: Program, collectors: list[Collector]) -> None:
    one, other = collectors
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": one.url, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
    program.run(OTLP.format(arguments=""), **environ)
    assert sorted(one.got.values()) == [1] * 4
    assert program.database == sorted(BOTH * 2)
    one.got.clear()
    program.run(OTLP.format(arguments=f"endpoint='{other.url}/v1/traces'"), **environ)
    assert (sum(one.got.values()), sum(other.got.values())) == (4, 2)
    one.got.clear()
    other.got.clear()
    program.run(OTLP.format(arguments="headers={'tenant': 'a'}"), **environ)  # the same place, another tenant's
    assert sorted(one.got.values()) == [1, 1, 2, 2]
