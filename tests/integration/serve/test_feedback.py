"""A running server takes feedback and attributes the trace that it makes failing."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from memtrace_otel.otlp.sdk import encode_sdk_spans
from memtrace_otel.sources import SqliteStore
from tests.conftest import Recording
from tests.integration.serve.conftest import Server, Start
from tests.integration.serve.test_attribution import markers, verdicts
from tests.unit.test_cli import run, tell

UNKNOWN = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture
def told(recording: Recording, content_on: None) -> list[ReadableSpan]:
    """A story whose wrong answer nobody judged."""
    tell(recording)
    return [span for span in recording.spans() if span.name != "memtrace.judge"]


@pytest.fixture
def trace_id(recording: Recording, told: list[ReadableSpan]) -> str:
    context = recording.named("turn")[0].context
    assert context is not None
    return f"{context.trace_id:032x}"


def post(server: Server, document: object, **headers: str) -> tuple[int, str]:
    body = json.dumps(document).encode()
    status, reply, _ = server.post("/v1/feedback", body, **{"content_type": "application/json", **headers})
    return status, reply.decode()


def test_feedback_is_attributed_after_the_quiet_period_and_once(
    start: Start, told: list[ReadableSpan], trace_id: str
) -> None:
    server = start(MEMTRACE_QUIET_SECONDS="0.3")
    server.post("/v1/traces", encode_sdk_spans(told))
    time.sleep(1)
    assert server.metric("verdicts") == 0
    document = {"trace_id": trace_id, "label": "fail", "expected": "At 9:40"}
    assert post(server, document) == (200, "{}")
    server.until(lambda: server.metric("verdicts") == 1)
    assert verdicts(server) == ["update"]
    before = markers(server)
    assert post(server, document) == (200, "{}")
    time.sleep(1)
    assert (server.metric("verdicts"), markers(server)) == (1, before)


def test_an_unknown_trace_is_kept_until_its_spans_arrive(start: Start, told: list[ReadableSpan], trace_id: str) -> None:
    server = start(MEMTRACE_QUIET_SECONDS="0.3")
    assert post(server, {"trace_id": trace_id, "label": "fail", "expected": "At 9:40"}) == (200, "{}")
    time.sleep(1)
    assert server.metric("verdicts") == 0
    server.post("/v1/traces", encode_sdk_spans(told))
    server.until(lambda: server.metric("verdicts") == 1)
    assert verdicts(server) == ["update"]


def test_the_feedback_command_beside_a_server_leads_to_a_verdict(
    start: Start, told: list[ReadableSpan], trace_id: str
) -> None:
    server = start(MEMTRACE_QUIET_SECONDS="0.3")
    server.post("/v1/traces", encode_sdk_spans(told))
    server.until(lambda: server.metric("inbox_bytes") == 0)
    assert run("feedback", trace_id, "--label", "fail", "--expected", "At 9:40", "--db", server.database).exit_code == 0
    post(server, {"trace_id": UNKNOWN, "label": "pass"})  # else the server looks for what others wrote in 30 s
    server.until(lambda: server.metric("verdicts") == 1)
    assert verdicts(server) == ["update"]


def test_invalid_feedback_is_refused_with_a_reason(start: Start) -> None:
    server = start(MEMTRACE_MAX_REQUEST_BYTES=str(1 << 20))
    for document, status, reason in (
        ({"trace_id": "xyz", "label": "fail"}, 400, "32 hex digits"),
        ({"trace_id": UNKNOWN, "label": "meh"}, 400, "must be one of"),
        ({"trace_id": UNKNOWN, "label": "fail", "expected": "x" * 20_000}, 400, "longer than"),
        ({"trace_id": UNKNOWN, "label": "fail", "expected": "x" * 300_000}, 413, "262144"),
        ({"trace_id": UNKNOWN, "label": "fail", "expected": "x" * (2 << 20)}, 413, "larger than"),
    ):
        found, reply = post(server, document)
        assert (found, reason in json.loads(reply)["message"]) == (status, True)
    assert post(server, {}, content_type="text/plain")[0] == 415
    assert post(server, {"trace_id": UNKNOWN, "label": "fail"}, origin="http://localhost")[0] == 403
    assert server.span_ids() == set()


def test_texts_of_feedback_are_redacted(start: Start, told: list[ReadableSpan], trace_id: str) -> None:
    server = start(MEMTRACE_REDACT_PATTERNS="email")
    document = {"trace_id": trace_id, "label": "fail", "expected": "ask ana@example.org", "explanation": "bob@x.org"}
    assert post(server, document) == (200, "{}")
    assert server.terminate() == 0
    with SqliteStore.open(server.database) as store:
        (judge,) = store.trace(trace_id)
    assert judge.inputs[0].content == "ask [redacted: email]"
    assert judge.attributes["gen_ai.evaluation.explanation"] == "[redacted: email]"


def test_with_a_token_only_its_bearer_may_give_feedback(start: Start) -> None:
    server = start(MEMTRACE_SERVE_TOKEN="secret")
    document = {"trace_id": UNKNOWN, "label": "fail"}
    assert post(server, document)[0] == 401
    assert post(server, document, authorization="Bearer wrong")[0] == 401
    assert post(server, document, authorization="Bearer secret")[0] == 200


def test_feedback_is_refused_while_too_many_bytes_wait(start: Start) -> None:
    server = start(MEMTRACE_INBOX_BYTES="1")
    found = {post(server, {"trace_id": f"{number:032x}", "label": "fail"})[0] for number in range(1, 50)}
    assert found == {200, 429}


def test_feedback_survives_kill_9(start: Start, told: list[ReadableSpan], trace_id: str, tmp_path: Path) -> None:
    first = start(MEMTRACE_QUIET_SECONDS="3600")
    assert post(first, {"trace_id": trace_id, "label": "fail", "expected": "At 9:40"})[0] == 200
    first.kill()
    second = start(MEMTRACE_QUIET_SECONDS="0.3")
    second.post("/v1/traces", encode_sdk_spans(told))
    second.until(lambda: second.metric("verdicts") == 1)
    assert verdicts(second) == ["update"]
