"""Addresses of a backend's web page, for people to open: a trace, a span in it, a search.

`find_page` looks for the page that belongs to an OTLP endpoint, `read_page` reads the one that a user names.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import Protocol
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from memtrace_otel import semconv
from memtrace_otel.hosts import host_of, listens

_LIMIT = 100
"""Traces that a search shows."""
_ASK_SECONDS = 2.0
_PATIENCE = 5.0
"""Seconds in which a backend shows what it got."""
_PAUSE_SECONDS = 0.5
_JAEGER_PORT, _GRAFANA_PORT = 16686, 3000
NO_PAGE = f"no page answers on the receiver's host, port {_JAEGER_PORT} or {_GRAFANA_PORT}: name it by --ui"
"""What is said when `find_page` finds none."""
UNSURE = "if this is your backend: the page does not show the trace; give another address with --ui"
"""What is said of a page that `find_page` is not sure of."""
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

    def trace_api(self, trace_id: str) -> str:
        """What the page itself asks for the trace."""
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

    def trace_api(self, trace_id: str) -> str:
        """See `Page`."""
        return f"{self.base}/api/traces/{trace_id}"

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

    def trace_api(self, trace_id: str) -> str:
        """See `Page`; Grafana hands it to Tempo, for who may see that without a login."""
        return f"{self.base}/api/datasources/proxy/uid/{quote(self.datasource, '')}/api/traces/{trace_id}"

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


@dataclass(frozen=True, slots=True)
class FoundPage:
    """A page on a receiver's host. It is `sure` that its backend is the receiver's when it has the trace."""

    page: Page
    sure: bool


def find_page(endpoint: str, trace_id: str, patience: float = _PATIENCE) -> FoundPage | None:
    """Return the page (Jaeger's, Grafana's) on the host of an OTLP endpoint that has this trace within `patience` (s).

    Else one that listens there and cannot be asked, or says no: it may be of another backend. None when there is none.
    """
    host = host_of(endpoint)
    named = f"[{host}]" if ":" in host else host
    known = {
        _JAEGER_PORT: JaegerPage(f"http://{named}:{_JAEGER_PORT}"),
        _GRAFANA_PORT: GrafanaPage(f"http://{named}:{_GRAFANA_PORT}"),
    }
    pages: list[Page] = [page for port, page in known.items() if listens(host, port)]
    end = time.monotonic() + patience
    while pages:
        told = [_has(page.trace_api(trace_id)) for page in pages]
        if True in told:
            return FoundPage(pages[told.index(True)], True)
        if False not in told or time.monotonic() >= end:
            return FoundPage(pages[told.index(None) if None in told else 0], False)
        time.sleep(_PAUSE_SECONDS)
    return None


def _has(url: str) -> bool | None:
    """Tell whether what a page asks for is there, None when that is not said: a login is wanted, for example."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=_ASK_SECONDS)
    try:
        connection.request("GET", parts.path, headers={"accept": "application/json"})
        reply = connection.getresponse()
        if reply.status == 200:  # other servers on these ports answer everything with a page
            return reply.headers.get_content_type() == "application/json"
        return False if reply.status == 404 else None
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()
