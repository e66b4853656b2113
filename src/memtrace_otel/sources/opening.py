"""`--source`, `--look-in`: which backend, where, and who asks."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from memtrace_otel import settings
from memtrace_otel.sources.http import Address, BackendApi, Bounds
from memtrace_otel.sources.jaeger import JaegerSource
from memtrace_otel.sources.remote import RemoteSource
from memtrace_otel.sources.tempo import TempoSource

KINDS: Mapping[str, tuple[type[RemoteSource], int, str]] = {
    "jaeger": (JaegerSource, 16686, "x-tenant"),
    "tempo": (TempoSource, 3200, "x-scope-orgid"),
}
"""Backend -> class, usual port, header that names a tenant."""


class SourceError(ValueError):
    """The URL of a backend, or a setting for it, that cannot be used. Says what is needed, never quoting a secret."""


def open_source(url: str, *, hours: int | None = None) -> RemoteSource:
    """Return the source of `jaeger+http://host[:port][/path]`, also `tempo`, `+https`; nothing is asked for as yet.

    It is searched `hours` back, MEMTRACE_SOURCE_HOURS by default. Tenant, token, other headers, certificates and bounds
    come from the settings. Raises SourceError.
    """
    kind, _, address = url.partition("+")
    if kind not in KINDS:
        raise SourceError(f"{_shown(url)}: it begins with jaeger+http://, tempo+http:// or +https:// of these")
    source, port, tenant = KINDS[kind]
    secure = address.lower().startswith("https:")
    headers = _headers(tenant)
    bounds = Bounds(settings.SOURCE_REQUESTS.read(), settings.SOURCE_BYTES.read())
    return source(BackendApi(_address(url, address, port), headers, bounds, _tls() if secure else None), hours)


def _address(url: str, address: str, port: int) -> Address:
    try:
        parts = urlsplit(address)
        given = parts.port
        (parts.hostname or "").encode("idna")
    except ValueError as error:
        raise SourceError(f"{_shown(url)}: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise SourceError(f"{_shown(url)}: a URL such as {url.partition('+')[0]}+http://host:{port} is needed")
    if "@" in parts.netloc:
        raise SourceError(
            f"{_shown(url)}: the URL holds a password: give it by {settings.SOURCE_HEADERS.env}=authorization=Basic ..."
        )
    if not parts.path.isascii() or not parts.path.isprintable() or " " in parts.path:
        raise SourceError(f"{_shown(url)}: the path holds a character that has to be written as %XX")
    return Address(parts.scheme == "https", parts.hostname, port if given is None else given, parts.path.rstrip("/"))


def _headers(tenant_header: str) -> dict[str, str]:
    headers: dict[str, str] = {}
    for item in filter(None, settings.SOURCE_HEADERS.read().split(",")):
        name, equals, value = (unquote(part).strip() for part in item.partition("="))
        if not name or not equals:
            raise SourceError(f"{settings.SOURCE_HEADERS.env} is not name=value, between commas")
        headers[name.lower()] = value
    if tenant := settings.SOURCE_TENANT.read():
        headers[tenant_header] = tenant
    if token := settings.SOURCE_TOKEN.read():
        headers["authorization"] = f"Bearer {token}"
    if any(not value.isprintable() or not value.isascii() for value in headers.values()):
        raise SourceError("a header for the backend holds a character that no header may hold")
    return headers


def _tls() -> ssl.SSLContext:
    path = settings.SOURCE_CERTIFICATE.read()
    try:
        context = ssl.create_default_context()
        if path:
            context.load_verify_locations(path)
    except OSError as error:
        raise SourceError(f"{settings.SOURCE_CERTIFICATE.env}: {path}: {error.strerror or error}") from None
    return context


def _shown(url: str) -> str:
    return repr(url.rpartition("@")[2][:200])
