"""Addresses of backends' pages. That they open what they name is seen in tests/e2e."""

from __future__ import annotations

import json
import socket
from urllib.parse import parse_qs, urlsplit

import pytest

from memtrace_otel import pages
from memtrace_otel.pages import GrafanaPage, JaegerPage, PageError, failures, find_page, read_page, traceql

TRACE, SPAN = "0" * 31 + "a", "b" * 16
SECOND = 1_000_000_000


def query(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


def test_a_trace_in_jaeger_with_the_span_to_find() -> None:
    page = JaegerPage("http://jaeger:16686")
    assert page.trace(TRACE) == f"http://jaeger:16686/trace/{TRACE}"
    assert page.trace(TRACE, SPAN) == f"http://jaeger:16686/trace/{TRACE}?uiFind={SPAN}"


def test_a_search_in_jaeger_has_its_own_times() -> None:
    url = failures(JaegerPage("http://jaeger/base"), "my shop", "update", 5 * SECOND, 7 * SECOND)
    assert url.startswith("http://jaeger/base/search?")
    asked = query(url)
    assert (asked["service"], json.loads(asked["tags"])) == ("my shop", {"memtrace.failure.type": "update"})
    assert (asked["start"], asked["end"], asked["lookback"]) == ("5000000", "7000001", "custom")


def test_a_search_in_grafana_is_traceql_with_its_own_times() -> None:
    url = failures(GrafanaPage("http://grafana:3000", "t1"), 'a "b" c', "update", 5 * SECOND, 7 * SECOND)
    (pane,) = json.loads(query(url)["panes"]).values()
    assert pane["range"] == {"from": "5000", "to": "7001"}
    assert pane["datasource"] == "t1"
    (one,) = pane["queries"]
    assert one["datasource"] == {"type": "tempo", "uid": "t1"}
    assert one["query"] == r'{ resource.service.name = "a \"b\" c" && span.memtrace.failure.type = "update" }'


def test_a_trace_in_grafana_with_the_span_to_open() -> None:
    (pane,) = json.loads(query(GrafanaPage("http://grafana:3000").trace(TRACE, SPAN))["panes"]).values()
    assert pane["queries"][0]["query"] == TRACE
    assert pane["panelsState"] == {"trace": {"spanId": SPAN}}


def test_a_search_in_every_service() -> None:
    assert traceql("", {"memtrace.scope": "s"}) == '{ span.memtrace.scope = "s" }'


@pytest.mark.parametrize(
    ("text", "page"),
    [
        ("jaeger=http://localhost:16686/", JaegerPage("http://localhost:16686")),
        ("jaeger=https://host/jaeger", JaegerPage("https://host/jaeger")),
        ("tempo=http://localhost:3000", GrafanaPage("http://localhost:3000", "tempo")),
        ("tempo=https://host/grafana/?datasource=P1", GrafanaPage("https://host/grafana", "P1")),
    ],
)
def test_a_page_is_read(text: str, page: pages.Page) -> None:
    assert read_page(text) == page


@pytest.mark.parametrize("text", ["", "jaeger", "http://localhost:16686", "zipkin=http://a", "tempo=localhost:3000"])
def test_what_names_no_page_is_refused(text: str) -> None:
    with pytest.raises(PageError, match=r"names no page: jaeger=http://localhost:16686 or tempo="):
        read_page(text)


@pytest.mark.parametrize(
    ("endpoint", "host"),
    [("http://10.0.0.1:4317", "10.0.0.1"), ("collector:4317", "collector"), ("http://[::1]:4318", "[::1]")],
)
def test_a_page_is_looked_for_on_the_host_of_the_receiver(
    endpoint: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    listening: set[int] = set()

    def connect(address: tuple[str, int], timeout: float) -> socket.socket:
        if address[1] not in listening:
            raise ConnectionRefusedError
        return socket.socket()

    monkeypatch.setattr(pages.socket, "create_connection", connect)
    assert find_page(endpoint) is None
    listening.add(3000)
    assert find_page(endpoint) == GrafanaPage(f"http://{host}:3000")
    listening.add(16686)
    assert find_page(endpoint) == JaegerPage(f"http://{host}:16686")
