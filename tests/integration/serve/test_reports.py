"""The report on one trace, from a running server."""

from __future__ import annotations

from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from memtrace_otel.otlp import encode_request
from tests.integration.serve.conftest import Server, Start
from tests.unit.report.stories import Story, overwritten


def asked(server: Server, path: str, **headers: str) -> tuple[int, str, dict[str, str]]:
    try:
        with urlopen(Request(f"{server.http}{path}", headers=headers), timeout=120) as reply:
            return reply.status, reply.read().decode(), dict(reply.headers)
    except HTTPError as error:
        return error.code, error.read().decode(), dict(error.headers)


@pytest.fixture
def story() -> Story:
    story = Story()
    overwritten(story)
    return story


def test_the_report_on_a_failing_trace(start: Start, story: Story) -> None:
    server = start()
    assert server.post("/v1/traces", encode_request(story.spans))[0] == 200
    trace_id = next(span.trace_id for span in story.spans if span.kind == "judge")
    status, page, headers = asked(server, f"/report/{trace_id}")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert page.count('<article class="card') == 1
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [(f"/report/{'0' * 31}a", 404, "no trace"), ("/report/x", 404, "32 hex digits"), ("/report/..%2f", 404, "")],
)
def test_what_is_not_there(start: Start, path: str, status: int, told: str) -> None:
    got, page, _ = asked(start(), path)
    assert (got, told in page) == (status, True)


def test_a_report_that_cannot_be_made_is_no_missing_trace(start: Start) -> None:
    server = start()
    server.database.rename(server.database.with_name("elsewhere.db"))
    status, page, _ = asked(server, f"/report/{'0' * 31}a")
    assert (status, "could not be made" in page) == (500, True)
    server.terminate()
    assert server.process.stderr is not None
    assert "spans.db" in server.process.stderr.read()


def test_metrics_answer_under_the_same_names(start: Start) -> None:
    server = start()
    assert asked(server, "/metrics", host="localhost:4318")[0] == 200
    assert asked(server, "/metrics", host="evil.test")[0] == 403
    bearer = "Bearer secret"
    assert asked(start(MEMTRACE_SERVE_TOKEN="secret"), "/metrics", host="any", authorization=bearer)[0] == 200


def test_who_may_not_read_it(start: Start) -> None:
    path = f"/report/{'0' * 31}a"
    open_server = start()
    assert asked(open_server, path, host="evil.test")[0] == 403
    assert asked(open_server, path, host="[abc")[0] == 403
    assert asked(open_server, path, origin="http://evil.test")[0] == 403
    assert asked(start(MEMTRACE_SERVE_TOKEN="secret"), path)[0] == 401
