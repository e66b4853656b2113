"""Addresses of backends' pages. That they open what they name is seen in tests/e2e."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from memtrace_otel import pages
from memtrace_otel.pages import FoundPage, GrafanaPage, JaegerPage, PageError, failures, find_page, read_page, traceql

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


@dataclass
class Host:
    """What a host answers: whether each page (by port) that listens has the trace, the next time it is asked."""

    answers: dict[int, list[bool | None]] = field(default_factory=dict[int, list[bool | None]])
    asked: list[str] = field(default_factory=list[str])
    waited: float = 0.0

    def listens(self, host: str, port: int) -> bool:
        return port in self.answers

    def has(self, url: str) -> bool | None:
        self.asked.append(url)
        answers = self.answers[urlsplit(url).port or 0]
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def sleep(self, seconds: float) -> None:
        self.waited += seconds


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    host = Host()
    monkeypatch.setattr(pages, "listens", host.listens)
    monkeypatch.setattr(pages, "_has", host.has)
    monkeypatch.setattr(pages.time, "sleep", host.sleep)
    monkeypatch.setattr(pages.time, "monotonic", lambda: host.waited)
    return host


@pytest.mark.parametrize(
    ("endpoint", "named"),
    [("http://10.0.0.1:4317", "10.0.0.1"), ("collector:4317", "collector"), ("http://[::1]:4318", "[::1]")],
)
def test_a_page_is_looked_for_on_the_host_of_the_receiver(endpoint: str, named: str, host: Host) -> None:
    assert find_page(endpoint, TRACE) is None
    host.answers[3000] = [True]
    assert find_page(endpoint, TRACE) == FoundPage(GrafanaPage(f"http://{named}:3000"), True)
    host.answers[16686] = [True]
    assert find_page(endpoint, TRACE) == FoundPage(JaegerPage(f"http://{named}:16686"), True)
    assert host.asked[-2:] == [
        f"http://{named}:16686/api/traces/{TRACE}",
        f"http://{named}:3000/api/datasources/proxy/uid/tempo/api/traces/{TRACE}",
    ]


@pytest.mark.parametrize(
    ("jaeger", "grafana", "port", "sure"),
    [
        ([False], [True], 3000, True),
        ([False, False, True], [False], 16686, True),
        ([False], [False, True], 3000, True),
        ([False], [None], 3000, False),
        ([None], [None], 16686, False),
        ([False], [False], 16686, False),
    ],
)
def test_a_page_is_of_the_backend_that_has_the_trace(
    jaeger: list[bool | None], grafana: list[bool | None], port: int, sure: bool, host: Host
) -> None:
    host.answers = {16686: jaeger, 3000: grafana}
    found = find_page("http://localhost:4317", TRACE)
    assert found is not None
    assert (urlsplit(found.page.trace(TRACE)).port, found.sure) == (port, sure)
    assert host.waited <= 6


def test_a_trace_that_is_late_is_waited_for_as_long_as_is_said(host: Host) -> None:
    host.answers = {16686: [False, True]}
    found = find_page("http://localhost:4317", TRACE, patience=0)
    assert (found and found.sure, host.waited) == (False, 0)


@pytest.mark.parametrize(
    ("status", "content_type", "has"),
    [
        (200, "application/json", True),
        (200, "text/html; charset=utf-8", False),  # of another server, whatever is asked
        (404, "application/json", False),
        (401, "application/json", None),
        (302, "text/html", None),
    ],
)
def test_what_a_page_answers(status: int, content_type: str, has: bool | None) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("content-type", content_type)
            self.send_header("location", "/login")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        assert pages._has(f"http://127.0.0.1:{server.server_port}/api/traces/{TRACE}") is has
        thread.join()
    assert pages._has(f"http://127.0.0.1:{server.server_port}/api/traces/{TRACE}") is None  # it is gone
