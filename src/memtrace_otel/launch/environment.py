"""The environment in which a program writes its spans to the embedded database, and further on to a backend."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from memtrace_otel import settings
from memtrace_otel.launch.program import LaunchError

_OTLP = "OTEL_EXPORTER_OTLP_"
_HTTP_PORT = 4318


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
    receiver that gets the spans as well. Raises LaunchError where the environment rules recording out.
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
    if content is not None and content != settings.captures_content(environ):
        made[settings.CAPTURE_CONTENT.env] = "SPAN_ONLY" if content else "NO_CONTENT"
    return made


def trace_exporters(environ: Mapping[str, str]) -> list[str]:
    """Return the trace exporters: ours, after those that the user already sends traces to."""
    default = "otlp" if environ.get(f"{_OTLP}ENDPOINT") or environ.get(f"{_OTLP}TRACES_ENDPOINT") else ""
    wanted = (name.strip() for name in (environ.get("OTEL_TRACES_EXPORTER") or default).split(","))
    return [name for name in wanted if name not in ("", "none", "memtrace")] + ["memtrace"]


def _send_to(environ: dict[str, str], endpoint: str) -> None:
    """Send to `endpoint`, by HTTP when its port or a path says so."""
    try:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError
        by_http = parts.port == _HTTP_PORT or bool(parts.path.strip("/"))
    except ValueError:
        raise LaunchError(f"--otlp {endpoint} is no URL; for example: http://localhost:4317") from None
    for name in ("ENDPOINT", "PROTOCOL"):
        environ.pop(f"{_OTLP}TRACES_{name}", None)  # it would win over what was asked for
    environ[f"{_OTLP}ENDPOINT"] = endpoint
    environ.setdefault(f"{_OTLP}PROTOCOL", "http/protobuf" if by_http else "grpc")
    if "otlp" not in environ.get("OTEL_TRACES_EXPORTER", "otlp"):
        environ["OTEL_TRACES_EXPORTER"] += ",otlp"
