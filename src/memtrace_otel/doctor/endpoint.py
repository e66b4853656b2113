"""OTLP receivers: is somebody there, and does it take what is sent?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from memtrace_otel.doctor.finding import Finding, ok, problem
from memtrace_otel.doctor.program import Exporter, ObservedProgram

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PORT_OF = {"grpc": 4317, "http/protobuf": 4318}


def check_endpoints(program: ObservedProgram) -> Iterator[Finding]:
    """Every OTLP exporter of the program."""
    for exporter in program.exporters:
        if exporter.protocol:
            yield _check(exporter, program.environ)


def _check(exporter: Exporter, environ: Mapping[str, str]) -> Finding:
    check, endpoint = "endpoint", _without_password(exporter.endpoint)
    if exporter.reached and exporter.answered:
        return ok(check, f"{endpoint} takes spans by {exporter.protocol}")
    other = next(protocol for protocol in _PORT_OF if protocol != exporter.protocol)
    if _port(exporter.endpoint) == _PORT_OF[other]:
        return problem(
            check,
            f"{endpoint} is spoken to in {exporter.protocol}, but {_PORT_OF[other]} is the port of {other}",
            f"export OTEL_EXPORTER_OTLP_PROTOCOL={other}",
        )
    if not exporter.reached:
        named = next((name for name in _ENDPOINTS if environ.get(name)), "")
        remedy = f"export {named}=http://<collector>:{_PORT_OF[exporter.protocol]}  # where it listens"
        if not named:
            remedy = "export OTEL_TRACES_EXPORTER=memtrace  # or start a collector there"
        return problem(check, f"{endpoint} is not reachable: {exporter.error}", remedy)
    return problem(
        check,
        f"{endpoint} does not take spans by {exporter.protocol}: {exporter.error}",
        f"export OTEL_EXPORTER_OTLP_PROTOCOL={other}  # or set OTEL_EXPORTER_OTLP_HEADERS when it asks for a key",
    )


def _port(endpoint: str) -> int | None:
    try:
        return urlsplit(endpoint if "://" in endpoint else f"//{endpoint}").port
    except ValueError:
        return None


def _without_password(endpoint: str) -> str:
    scheme, separator, rest = endpoint.rpartition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"
