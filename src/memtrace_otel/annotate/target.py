"""Where OTLP goes: the standard `OTEL_EXPORTER_OTLP_*` variables, read as the SDK's exporters read them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from opentelemetry.environment_variables import OTEL_LOGS_EXPORTER
from opentelemetry.util.re import parse_env_headers

Signal = Literal["traces", "logs"]
_PREFIX = "OTEL_EXPORTER_OTLP_"
_TIMEOUT = 10.0
_UNUSABLE = "holds a character that no header may hold"


class TargetError(ValueError):
    """A setting says where OTLP goes in a form that cannot be used. Names the setting and what it needs."""


@dataclass(frozen=True, slots=True)
class Target:
    """One OTLP receiver of one signal. `certificate`, `client_key` and `client_certificate` are paths of PEM files."""

    signal: Signal
    protocol: Literal["grpc", "http/protobuf"]
    endpoint: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    timeout: float = _TIMEOUT
    gzip: bool = False
    insecure: bool = False
    certificate: str = ""
    client_key: str = ""
    client_certificate: str = ""

    def __str__(self) -> str:
        """Name the receiver in messages: never the headers, nor what else in the URL may be a secret."""
        return _shown(self.endpoint)

    @property
    def ledger(self) -> str:
        """The name under which a store remembers what was sent to it."""
        return f"{self.signal} {self}"


def read_targets(
    endpoint: str | None = None, environ: Mapping[str, str] | None = None
) -> tuple[Target | None, Target | None]:
    """Return where the spans and the events of verdicts go; no events where OTEL_LOGS_EXPORTER is `none`."""
    env = os.environ if environ is None else environ
    wants_logs = env.get(OTEL_LOGS_EXPORTER, "").strip().lower() != "none"
    return read_target("traces", endpoint, env), read_target("logs", endpoint, env) if wants_logs else None


def read_target(signal: Signal, endpoint: str | None = None, environ: Mapping[str, str] | None = None) -> Target | None:
    """Return where `signal` goes, None when nobody said. `endpoint` stands for OTEL_EXPORTER_OTLP_ENDPOINT.

    The protocol is grpc by default, as in the SDK. Raises TargetError for a protocol, timeout or URL of another form.
    """
    env = os.environ if environ is None else environ

    def read_from(name: str) -> str:
        own = f"{_PREFIX}{signal.upper()}_{name}"
        return own if env.get(own) else f"{_PREFIX}{name}"

    def setting(name: str, default: str = "") -> str:
        return env.get(read_from(name)) or default

    own = env.get(f"{_PREFIX}{signal.upper()}_ENDPOINT", "") if endpoint is None else ""
    base = endpoint or env.get(f"{_PREFIX}ENDPOINT", "")
    if not own and not base:
        return None
    read = read_from("ENDPOINT") if own else f"{_PREFIX}ENDPOINT"
    protocol = setting("PROTOCOL", "grpc")
    if protocol not in ("grpc", "http/protobuf"):
        raise TargetError(f"{read_from('PROTOCOL')} is {protocol!r}: only grpc and http/protobuf are known")
    url = own or (base if protocol == "grpc" else f"{base.rstrip('/')}/v1/{signal}")
    try:
        scheme = urlsplit(url).scheme
    except ValueError as error:
        raise TargetError(f"{read} is no URL: {error}") from None
    if protocol == "http/protobuf" and scheme not in ("http", "https"):
        raise TargetError(f"{read} is {_shown(own or base)!r}: a URL with http:// or https:// is needed")
    try:
        timeout = float(setting("TIMEOUT", str(_TIMEOUT)))
    except ValueError:
        raise TargetError(f"{read_from('TIMEOUT')} is {setting('TIMEOUT')!r}: seconds are needed") from None
    return Target(
        signal=signal,
        protocol=protocol,
        endpoint=url,
        headers=_headers(setting("HEADERS"), protocol, read_from("HEADERS")),
        timeout=timeout,
        gzip=setting("COMPRESSION").strip().lower() == "gzip",
        insecure=_insecure(url, setting("INSECURE")),
        certificate=setting("CERTIFICATE"),
        client_key=setting("CLIENT_KEY"),
        client_certificate=setting("CLIENT_CERTIFICATE"),
    )


def _headers(given: str, protocol: str, read: str) -> Mapping[str, str]:
    """Read the headers; an error names the setting that was `read` alone, they may be secrets."""
    items = [item.strip() for item in given.split(",") if item.strip()]
    if not all(item.partition("=")[0].strip() and "=" in item for item in items):
        raise TargetError(f"{read} is not name=value, between commas")
    if not given.isprintable():
        raise TargetError(f"{read} {_UNUSABLE}")
    headers = parse_env_headers(given, liberal=True)
    if not all(value.isascii() and value.isprintable() for value in headers.values()):
        raise TargetError(f"{read} {_UNUSABLE}")
    if protocol == "grpc" and any(name.endswith("-bin") for name in headers):
        raise TargetError(f"{read} names a header with -bin at its end, whose value gRPC wants in bytes")
    return headers


def _shown(url: str) -> str:
    """A URL without user, password and query."""
    scheme, separator, rest = url.rpartition("://")
    return scheme + separator + rest.partition("?")[0].rpartition("@")[2]


def _insecure(url: str, flag: str) -> bool:
    """Tell whether gRPC goes in clear text: the scheme says so, without one the flag does."""
    scheme = urlsplit(url).scheme if "://" in url else ""
    return scheme == "http" if scheme in ("http", "https") else flag.strip().lower() == "true"
