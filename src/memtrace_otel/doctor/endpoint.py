"""Check of OTLP receivers: is the endpoint reachable, and does the receiver take spans?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from memtrace_otel.doctor.finding import Finding, ok, problem
from memtrace_otel.doctor.program import Exporter, ObservedProgram

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_HEADERS = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
_PORTS = {"grpc": 4317, "http/protobuf": 4318}
_NOT_TLS = re.compile("wrong.version.number", re.IGNORECASE)
_BAD_CERTIFICATE = re.compile("certificate.verify.failed", re.IGNORECASE)
_UNAUTHORISED = re.compile(r"code: 40[13]\b|UNAUTHENTICATED|PERMISSION_DENIED")
_WRONG_PATH = re.compile(r"code: (404|405|3\d\d)\b|UNIMPLEMENTED|web page")
_BUSY = re.compile(r"code: (429|50[234])\b|RESOURCE_EXHAUSTED|UNAVAILABLE|Transient error")


def check_endpoints(program: ObservedProgram) -> Iterator[Finding]:
    """Check every OTLP exporter of the program."""
    for exporter in program.exporters:
        if not exporter.protocol:
            continue
        endpoint = public_endpoint(exporter.endpoint)
        if exporter.reached and exporter.answered:
            yield ok("endpoint", f"{endpoint} takes spans by {exporter.protocol}")
            continue
        reason, command = _reason(exporter, program.environ)
        in_file = "tracer_provider: processors: - batch: exporter: the same in this file"
        yield problem("endpoint", f"{endpoint} {reason}", program.change(command, in_file))


def _reason(exporter: Exporter, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return why the receiver takes nothing, and the command that helps."""
    error = exporter.error.replace(exporter.endpoint, public_endpoint(exporter.endpoint))
    for secret in _secrets(exporter.endpoint):
        error = error.replace(secret, "***")
    variable = next((name for name in _ENDPOINTS if environ.get(name)), _ENDPOINTS[1])
    port = _PORTS[exporter.protocol]
    other = next(name for name in _PORTS if name != exporter.protocol)
    speak_other = f"export OTEL_EXPORTER_OTLP_PROTOCOL={other}"
    parts = _parts(exporter.endpoint)
    path = "/v1/traces" if exporter.protocol != "grpc" and variable == _ENDPOINTS[0] else ""
    receiver = f"export {variable}=http://{parts[0] or '<collector>'}:{port}{path}"
    if parts[1] == _PORTS[other]:
        return f"uses {exporter.protocol}, but port {_PORTS[other]} is the port of {other}", speak_other
    if not exporter.reached:
        return f"is not reachable: {error}", receiver if environ.get(
            variable
        ) else "export OTEL_TRACES_EXPORTER=memtrace"
    if _NOT_TLS.search(error):
        return "does not speak TLS, but the endpoint begins with https", receiver
    if _BAD_CERTIFICATE.search(error):
        return f"shows a certificate that is not trusted ({error})", "export OTEL_EXPORTER_OTLP_CERTIFICATE=ca.pem"
    if _UNAUTHORISED.search(error):
        return f"refuses the credentials ({error})", f"export {_HEADERS[1]}='authorization=Bearer%20<token>'"
    if _WRONG_PATH.search(error):
        return f"is no OTLP receiver ({error})", receiver
    if _BUSY.search(error):
        return f"takes no spans at the moment; spans wait on disk ({error})", "memtrace-otel doctor  # again, later"
    return f"does not take spans by {exporter.protocol}: {error}", f"{speak_other}  # or look into the receiver's log"


def public_endpoint(endpoint: str) -> str:
    """Return an endpoint without user, password and query."""
    try:
        parts = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
    except ValueError:
        return "an endpoint that is no URL"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl().removeprefix("//")


def _parts(endpoint: str) -> tuple[str, int | None]:
    try:
        parts = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
        return parts.hostname or "", parts.port
    except ValueError:
        return "", None


def _secrets(endpoint: str) -> list[str]:
    try:
        parts = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
    except ValueError:
        return [endpoint]
    return [secret for secret in (parts.query, parts.password, parts.username) if secret]
