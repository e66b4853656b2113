"""`open_source`: the backend at an address such as `jaeger+http://localhost`, for `--source` and `--look-in`."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qs, unquote, urlsplit

from memtrace_otel import settings
from memtrace_otel.sources.errors import AddressError
from memtrace_otel.sources.http import BackendApi
from memtrace_otel.sources.jaeger import JaegerSource
from memtrace_otel.sources.remote import RemoteSource
from memtrace_otel.sources.tempo import TempoSource

_BACKENDS: Mapping[str, tuple[type[RemoteSource], int]] = {
    "jaeger": (JaegerSource, 16686),
    "tempo": (TempoSource, 3200),
}
"""By the beginning of an address: the class, the usual port."""


def open_source(url: str, *, hours: int | None = None, timeout: float | None = None) -> RemoteSource:
    """Return the source of `jaeger+http://host[:port][/path]`, also `tempo` and `+https`; no request is made yet.

    `?service=NAME`, repeated, names the services of Jaeger to search. The backend is searched `hours` back, a request
    takes at most `timeout` seconds; MEMTRACE_SOURCE_* hold the defaults, token and headers. Raises AddressError.
    """
    kind, _, address = url.partition("+")
    if kind not in _BACKENDS:
        raise AddressError(
            f"{_shown(url)}: the address must begin with jaeger+http://, jaeger+https://, tempo+http:// or tempo+https://"
        )
    source, usual_port = _BACKENDS[kind]
    try:
        parts = urlsplit(address)
        port = parts.port or usual_port
        host = (parts.hostname or "").encode("idna").decode()
        services = parse_qs(parts.query, strict_parsing=True).pop("service", []) if parts.query else []
    except ValueError as error:
        raise AddressError(f"{_shown(url)}: {error}") from None
    if parts.scheme not in ("http", "https") or not host or parts.fragment or bool(parts.query) != bool(services):
        raise AddressError(f"{_shown(url)}: a URL such as {kind}+http://host:{usual_port} is needed")
    if "@" in parts.netloc:
        headers = f"{settings.SOURCE_HEADERS.env}=authorization=Basic ..."
        raise AddressError(f"{_shown(url)}: the URL holds a password: give it by {headers}")
    if not parts.path.isascii() or not parts.path.isprintable() or " " in parts.path:
        raise AddressError(f"{_shown(url)}: the path holds a character that has to be written as %XX")
    base = f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}{parts.path.rstrip('/')}"
    return source(BackendApi(base, _headers(), timeout=timeout), hours, services)


def _headers() -> dict[str, str]:
    headers: dict[str, str] = {}
    for item in filter(None, settings.SOURCE_HEADERS.read().split(",")):
        name, equals, value = (unquote(part).strip() for part in item.partition("="))
        if not name or not equals:
            raise AddressError(f"{settings.SOURCE_HEADERS.env} is not name=value, between commas")
        headers[name.lower()] = value
    if token := settings.SOURCE_TOKEN.read():
        headers["authorization"] = f"Bearer {token}"
    if any(not value.isprintable() or not value.isascii() for value in headers.values()):
        raise AddressError("a header for the backend holds a character that no header may hold")
    return headers


def _shown(url: str) -> str:
    return repr(url.rpartition("@")[2][:200])
