"""Environment variables for a program that records to the embedded database, and sends spans to a backend."""

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
"""Variables with the endpoint and the credentials of the OTLP exporter."""
_OF_ONE_SIGNAL = re.compile(r"OTEL_EXPORTER_OTLP_(TRACES|LOGS|METRICS)_(ENDPOINT|PROTOCOL|INSECURE)")
"""Variables with an endpoint for one signal only."""


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


def sending_environment(environ: Mapping[str, str], endpoint: str) -> dict[str, str]:
    """Return `environ` with OTLP of every signal going to `endpoint`, whatever it said of receivers before.

    `endpoint` is `http(s)://host:port`, without a scheme in clear text; the protocol is HTTP when the port is 4318 or
    there is a path, gRPC otherwise, unless the environment names one. Headers, certificates and time-outs stay. Raises
    LaunchError for what is no such address, and where the environment's headers are those of another receiver.
    """
    url = endpoint if "://" in endpoint else f"http://{endpoint}"
    protocol = _protocol(environ, url, "--otlp-endpoint", endpoint)
    named = [name for name in (f"{_OTLP}ENDPOINT", f"{_OTLP}TRACES_ENDPOINT") if environ.get(name)]
    secret = [name for name in (f"{_OTLP}HEADERS", f"{_OTLP}TRACES_HEADERS") if environ.get(name)]
    if secret and any(urlsplit(environ[name]).netloc != urlsplit(url).netloc for name in named):
        raise LaunchError(
            f"{' and '.join(secret)} would go to {endpoint}, but {' and '.join(named)} says whose they are; type: "
            f"unset {' '.join(named)} (or give that receiver)"
        )
    made = {name: value for name, value in environ.items() if not _OF_ONE_SIGNAL.fullmatch(name)}
    made |= {f"{_OTLP}ENDPOINT": url.rstrip("/").removesuffix(_HTTP_PATH), f"{_OTLP}PROTOCOL": protocol}
    wanted = [name for name in _wanted(environ) if name.partition("_")[0] != "otlp"]
    return made | {"OTEL_TRACES_EXPORTER": ",".join([*wanted, "otlp"])}


def _protocol(environ: Mapping[str, str], url: str, option: str, given: str) -> str:
    """The protocol that the environment names, else the one that an OTLP address goes by: HTTP when its port or a path
    says so."""
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError
        by_url = "http/protobuf" if parts.port == _HTTP_PORT or parts.path.strip("/") else "grpc"
    except ValueError:
        raise LaunchError(f"{option} {given} is no URL; for example: http://localhost:4317") from None
    protocol = environ.get(f"{_OTLP}TRACES_PROTOCOL") or environ.get(f"{_OTLP}PROTOCOL") or by_url
    if protocol == "grpc" and parts.scheme == "http" and parts.port is None:  # gRPC would try 443
        raise LaunchError(f"{option} {given} names no port; for example: http://{parts.hostname}:4317")
    return protocol


def _send_to(environ: dict[str, str], endpoint: str) -> None:
    """Send traces, and nothing else, to `endpoint`."""
    protocol = _protocol(environ, endpoint, "--otlp", endpoint)
    parts = urlsplit(endpoint)
    wanted = _wanted(environ)
    taken = sorted(name for name, value in environ.items() if value and _BACKEND.fullmatch(name))
    taken += ["OTEL_TRACES_EXPORTER"] * any(name.partition("_")[0] == "otlp" for name in wanted)
    if taken:  # there is one exporter: it would leave the user's backend, and take its credentials along
        raise LaunchError(
            f"the environment already names an OTLP backend ({', '.join(taken)}), which goes on getting the spans: "
            f"leave --otlp out; or, to send them to {endpoint} instead, type: unset {' '.join(taken)}"
        )
    environ[f"{_OTLP}TRACES_PROTOCOL"] = protocol
    if protocol != "grpc" and not parts.path.endswith(_HTTP_PATH):
        endpoint = parts._replace(path=parts.path.rstrip("/") + _HTTP_PATH).geturl()
    environ[f"{_OTLP}TRACES_ENDPOINT"] = endpoint
    environ["OTEL_TRACES_EXPORTER"] = ",".join([*wanted, "otlp"])
