"""Addresses of a backend's web page, for people to open: a trace, a span in it, a search.

`find_page` looks for the page that belongs to an OTLP endpoint, `read_page` reads the one that a user names.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import parse_qs, urlencode, urlsplit

from memtrace_otel import semconv

_LIMIT = 100
"""Traces that a search shows."""
_CONNECT_SECONDS = 0.5
_JAEGER_PORT, _GRAFANA_PORT = 16686, 3000
NO_PAGE = f"no page answers on the receiver's host, port {_JAEGER_PORT} or {_GRAFANA_PORT}: name it by --ui"
"""What is said when `find_page` finds none."""
_DATASOURCE = "tempo"
"""uid of the data source in `deploy/grafana`."""
_MICROSECOND, _MILLISECOND = 1_000, 1_000_000


class PageError(ValueError):
    """An address of a page that cannot be used. Says what was given and what is needed."""


class Page(Protocol):
    """A backend's web page. Every method returns an URL; times are nanoseconds since the epoch."""

    def trace(self, trace_id: str, span_id: str = "") -> str:
        """The trace, with the span found in it when one is given."""
        ...

    def search(self, service: str, attributes: Mapping[str, str], since: int, until: int) -> str:
        """The traces in which one span of `service` has all the attributes and started in the time given."""
        ...


@dataclass(frozen=True, slots=True)
class JaegerPage:
    """Jaeger's own page at `base`."""

    base: str

    def trace(self, trace_id: str, span_id: str = "") -> str:
        """See `Page`; the page marks the span and scrolls to it."""
        found = f"?{urlencode({'uiFind': span_id})}" if span_id else ""
        return f"{self.base}/trace/{trace_id}{found}"

    def search(self, service: str, attributes: Mapping[str, str], since: int, until: int) -> str:
        """See `Page`."""
        query = {
            "service": service,
            "tags": json.dumps(attributes, separators=(",", ":")),
            "start": since // _MICROSECOND,
            "end": until // _MICROSECOND + 1,
            "lookback": "custom",
            "limit": _LIMIT,
        }
        return f"{self.base}/search?{urlencode(query)}"


@dataclass(frozen=True, slots=True)
class GrafanaPage:
    """Grafana Explore at `base` on the Tempo data source of this uid (or name)."""

    base: str
    datasource: str = _DATASOURCE

    def trace(self, trace_id: str, span_id: str = "") -> str:
        """See `Page`; Explore opens the span."""
        return self._explore(trace_id, "now-1h", "now", span_id)

    def search(self, service: str, attributes: Mapping[str, str], since: int, until: int) -> str:
        """See `Page`."""
        return self._explore(traceql(service, attributes), str(since // _MILLISECOND), str(until // _MILLISECOND + 1))

    def _explore(self, query: str, since: str, until: str, span_id: str = "") -> str:
        source = {"type": "tempo", "uid": self.datasource}
        one = {"refId": "A", "datasource": source, "queryType": "traceql", "query": query, "limit": _LIMIT}
        pane: dict[str, object] = {
            "datasource": self.datasource,
            "queries": [one],
            "range": {"from": since, "to": until},
        }
        if span_id:
            pane["panelsState"] = {"trace": {"spanId": span_id}}
        panes = json.dumps({"mt": pane}, separators=(",", ":"))
        return f"{self.base}/explore?{urlencode({'schemaVersion': 1, 'panes': panes, 'orgId': 1})}"


def traceql(service: str, attributes: Mapping[str, str]) -> str:
    """Return the TraceQL query for traces in which one span of `service` has all the attributes."""
    wanted = {f"resource.{semconv.SERVICE_NAME}": service} if service else {}
    wanted |= {f"span.{name}": value for name, value in attributes.items()}
    return (
        "{ " + " && ".join(f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in wanted.items()) + " }"
    )


def failures(page: Page, service: str, failure_type: str, since: int, until: int) -> str:
    """Return the address of all failing traces of one failure type."""
    return page.search(service, {semconv.FAILURE_TYPE: failure_type}, since, until)


def read_page(text: str) -> Page:
    """Return the page that `jaeger=URL` or `tempo=URL` names; `?datasource=UID` of the URL is Grafana's data source.

    Raises PageError for anything else.
    """
    kind, _, url = text.partition("=")
    try:
        parts = urlsplit(url)
        if kind not in ("jaeger", "tempo") or parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError
    except ValueError:
        wanted = "jaeger=http://localhost:16686 or tempo=http://localhost:3000"
        raise PageError(f"{text!r} names no page: {wanted} is needed") from None
    base = parts._replace(query="", fragment="").geturl().rstrip("/")
    if kind == "jaeger":
        return JaegerPage(base)
    return GrafanaPage(base, parse_qs(parts.query).get("datasource", [_DATASOURCE])[0])


def find_page(endpoint: str) -> Page | None:
    """Return the page that listens on the host of an OTLP endpoint: Jaeger, else Grafana, else None."""
    host = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}").hostname or "localhost"
    named = f"[{host}]" if ":" in host else host
    if _listens((host, _JAEGER_PORT)):
        return JaegerPage(f"http://{named}:{_JAEGER_PORT}")
    return GrafanaPage(f"http://{named}:{_GRAFANA_PORT}") if _listens((host, _GRAFANA_PORT)) else None


def _listens(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, _CONNECT_SECONDS).close()
    except OSError:
        return False
    return True
