"""OTLP receivers: is somebody there, and does it take what is sent?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from memtrace_otel.capture.content_store import public_url
from memtrace_otel.doctor.finding import Finding, ok, problem
from memtrace_otel.doctor.program import EDIT_CONFIG, Exporter, ObservedProgram

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_EXPORTER_IN_FILE = "tracer_provider: processors: the endpoint, protocol or headers of this exporter"
_NO_SCHEME = "grpc://"  # gRPC takes `host:port`
_PORT_OF = {"grpc": 4317, "http/protobuf": 4318}


def check_endpoints(program: ObservedProgram) -> Iterator[Finding]:
    """Every OTLP exporter of the program."""
    for exporter in program.exporters:
        if exporter.protocol:
            yield _check(exporter, program.environ)


def _check(exporter: Exporter, environ: Mapping[str, str]) -> Finding:
    check, endpoint = "endpoint", _public(exporter.endpoint)
    error = exporter.error
    for secret in filter(None, _secrets(exporter.endpoint)):  # messages of HTTP libraries name the whole URL
        error = error.replace(secret, "***")
    if exporter.reached and exporter.answered:
        return ok(check, f"{endpoint} takes spans by {exporter.protocol}")
    in_file = f"{EDIT_CONFIG}  # {_EXPORTER_IN_FILE}" if environ.get("OTEL_CONFIG_FILE") else ""
    other = next(protocol for protocol in _PORT_OF if protocol != exporter.protocol)
    if _port(exporter.endpoint) == _PORT_OF[other]:
        return problem(
            check,
            f"{endpoint} is spoken to in {exporter.protocol}, but {_PORT_OF[other]} is the port of {other}",
            in_file or f"export OTEL_EXPORTER_OTLP_PROTOCOL={other}",
        )
    if not exporter.reached:
        named = next((name for name in _ENDPOINTS if environ.get(name)), "")
        remedy = f"export {named}=http://<collector>:{_PORT_OF[exporter.protocol]}  # where it listens"
        if not named:
            remedy = "export OTEL_TRACES_EXPORTER=memtrace  # or start a collector there"
        return problem(check, f"{endpoint} is not reachable: {error}", in_file or remedy)
    return problem(
        check,
        f"{endpoint} does not take spans by {exporter.protocol}: {error}",
        in_file
        or f"export OTEL_EXPORTER_OTLP_PROTOCOL={other}  # or OTEL_EXPORTER_OTLP_HEADERS when it asks for a key",
    )


def _port(endpoint: str) -> int | None:
    try:
        return urlsplit(_url(endpoint)).port
    except ValueError:
        return None


def _url(endpoint: str) -> str:
    return endpoint if "://" in endpoint else f"{_NO_SCHEME}{endpoint}"


def _public(endpoint: str) -> str:
    return public_url(_url(endpoint)).removeprefix(_NO_SCHEME)


def _secrets(endpoint: str) -> tuple[str | None, ...]:
    try:
        parts = urlsplit(_url(endpoint))
    except ValueError:
        return (endpoint,)
    return parts.query, parts.password, parts.username
