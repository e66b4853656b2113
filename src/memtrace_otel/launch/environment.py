"""The environment in which a program writes its spans to the embedded database, and further on to a backend."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from memtrace_otel import settings
from memtrace_otel.launch.program import LaunchError

_OTLP = "OTEL_EXPORTER_OTLP_"
_HTTP_PORT = 4318
_HTTP_PATH = "/v1/traces"
_BACKEND = re.compile(
    r"OTEL_EXPORTER_OTLP_(TRACES_)?(ENDPOINT|HEADERS)"
    r"|OTEL_PYTHON_EXPORTER_OTLP_(HTTP|GRPC)_(TRACES_)?CREDENTIAL_PROVIDER"
)
"""Where the environment's own OTLP exporter sends traces, and what it shows there to be let in."""


def recording_environment(
    environ: Mapping[str, str],
    *,
    database: Path,
    name: str,
    service: str | None = None,
    content: bool | None = None,
    endpoint: str | None = None,
) -> dict[str, str]:
    """Return `environ` with what makes a program record to `database`; what the user set stays unless an argument wins.

    `name` is the service name when nobody gave one, `content` None leaves the switch as it is, `endpoint` is an OTLP
    receiver that gets the spans as well. Raises LaunchError where the environment rules recording out, or names another
    receiver already.
    """
    if environ.get("OTEL_CONFIG_FILE"):
        raise LaunchError(
            "OTEL_CONFIG_FILE decides where spans go, so that `run` cannot add its database; type: unset "
            "OTEL_CONFIG_FILE (or add the exporter `memtrace` there and use opentelemetry-instrument instead of `run`)"
        )
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        raise LaunchError("OTEL_SDK_DISABLED switches all recording off; type: unset OTEL_SDK_DISABLED")
    made = dict(environ)
    if endpoint:
        _send_to(made, endpoint)
    made["OTEL_TRACES_EXPORTER"] = ",".join(trace_exporters(made))
    for signal in ("METRICS", "LOGS"):
        made.setdefault(f"OTEL_{signal}_EXPORTER", "none")
    if service or not (made.get("OTEL_SERVICE_NAME") or "service.name=" in made.get("OTEL_RESOURCE_ATTRIBUTES", "")):
        made["OTEL_SERVICE_NAME"] = service or name
    made[settings.DB_PATH.env] = str(database.absolute())
    if not made.get(settings.JOIN_PROVIDER.env):
        made[settings.JOIN_PROVIDER.env] = "true"  # plain `python` is what it is compared with
    if content is not None and content != settings.captures_content(environ):
        made[settings.CAPTURE_CONTENT.env] = "SPAN_ONLY" if content else "NO_CONTENT"
    return made


def trace_exporters(environ: Mapping[str, str]) -> list[str]:
    """Return the trace exporters: ours, after those that the user already sends traces to."""
    default = "otlp" if environ.get(f"{_OTLP}ENDPOINT") or environ.get(f"{_OTLP}TRACES_ENDPOINT") else ""
    return [*_wanted(environ, default), "memtrace"]


def _wanted(environ: Mapping[str, str], default: str = "") -> list[str]:
    """The trace exporters of others that the environment names."""
    names = (name.strip() for name in (environ.get("OTEL_TRACES_EXPORTER") or default).split(","))
    return [name for name in names if name not in ("", "none", "memtrace")]


def _send_to(environ: dict[str, str], endpoint: str) -> None:
    """Send traces, and nothing else, to `endpoint`: by HTTP when its port or a path says so."""
    try:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError
        by_http = parts.port == _HTTP_PORT or bool(parts.path.strip("/"))
    except ValueError:
        raise LaunchError(f"--otlp {endpoint} is no URL; for example: http://localhost:4317") from None
    wanted = _wanted(environ)
    taken = sorted(name for name, value in environ.items() if value and _BACKEND.fullmatch(name))
    taken += ["OTEL_TRACES_EXPORTER"] * any(name.partition("_")[0] == "otlp" for name in wanted)
    if taken:  # there is one exporter: it would leave the user's backend, and take its credentials along
        raise LaunchError(
            f"the environment already names an OTLP backend ({', '.join(taken)}), which goes on getting the spans: "
            f"leave --otlp out; or, to send them to {endpoint} instead, type: unset {' '.join(taken)}"
        )
    protocol = environ.get(f"{_OTLP}TRACES_PROTOCOL") or environ.get(f"{_OTLP}PROTOCOL")
    protocol = environ[f"{_OTLP}TRACES_PROTOCOL"] = protocol or ("http/protobuf" if by_http else "grpc")
    if protocol != "grpc" and not parts.path.endswith(_HTTP_PATH):
        endpoint = parts._replace(path=parts.path.rstrip("/") + _HTTP_PATH).geturl()
    environ[f"{_OTLP}TRACES_ENDPOINT"] = endpoint
    environ["OTEL_TRACES_EXPORTER"] = ",".join([*wanted, "otlp"])
