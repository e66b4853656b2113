"""Planted failures of one type become one alert, whose message leads to the failing traces."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from urllib.request import Request, urlopen

import pytest

from tests.e2e.application import SYSTEM
from tests.e2e.backends.alertmanager import running_alertmanager
from tests.e2e.backends.jaeger import Jaeger
from tests.e2e.backends.service import wait_for
from tests.e2e.backends.tempo import Tempo
from tests.e2e.monitored import DEPLOY, FAILURES, SERVICE, Monitored

LABELS = {
    "alertname": "MemoryFailures",
    "memtrace_failure_type": "update",
    "memtrace_system": SYSTEM,
    "service_name": SERVICE,
    "severity": "warning",
}


@pytest.mark.parametrize(
    "command",
    [
        ("promtool", "check", "config", "prometheus/prometheus.yml"),
        (
            "promtool",
            "test",
            "rules",
            *map("prometheus/tests/{}.yml".format, ("hour", "week", "canary", "repair")),
        ),
        ("amtool", "check-config", "alertmanager/alertmanager.yml"),
    ],
    ids=" ".join,
)
def test_the_files_are_what_their_programs_want(command: tuple[str, ...]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd=DEPLOY)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("down", "muted"), [({}, True), ({"command": "watch"}, False)], ids=["serve", "watch"])
def test_silence_is_no_message_of_its_own_while_the_receiver_is_down(
    down: dict[str, str], muted: bool, tmp_path: Path
) -> None:
    assert "labels: {command: watch}\n" in (DEPLOY / "prometheus" / "prometheus.yml").read_text("utf-8")
    alerts = [{"alertname": "MemoryReceiverDown", "job": "memtrace", **down}, {"alertname": "MemorySilence"}]
    with running_alertmanager(tmp_path, DEPLOY / "alertmanager" / "alertmanager.yml") as alertmanager:
        body = json.dumps([{"labels": labels} for labels in alerts]).encode()
        with urlopen(Request(f"{alertmanager.url}/api/v2/alerts", body, {"content-type": "application/json"})):
            pass
        wait_for(lambda: len(alertmanager.alerts()) == len(alerts), "both alerts")
        inhibited = {one["labels"]["alertname"]: one["status"]["inhibitedBy"] != [] for one in alertmanager.alerts()}
    assert inhibited == {"MemoryReceiverDown": False, "MemorySilence": muted}


def webhook(monitored: Monitored) -> list[dict[str, Any]]:
    return [alert for message in monitored.messages.received.get("/webhook", ()) for alert in message["alerts"]]


def test_exactly_that_alert_fires_and_reaches_the_operator(monitored: Monitored) -> None:
    wait_for(lambda: webhook(monitored) != [], "a message")
    time.sleep(3)  # any other alert would have come as well: the rules are evaluated twice a second
    alerts = [(alert["state"], alert["labels"]) for alert in monitored.prometheus.alerts()]
    assert alerts == [("firing", LABELS)]  # and none is pending, which would fire after its minutes
    assert [alert["labels"] for alert in monitored.alertmanager.alerts()] == [LABELS]
    for alert in webhook(monitored):
        assert alert["status"] == "firing"
        assert alert["labels"] == LABELS
        assert alert["annotations"]["count"] == str(FAILURES)
        assert f"{FAILURES} answers of {SERVICE} failed by update errors" in alert["annotations"]["summary"]


def test_the_text_names_type_service_count_and_link(monitored: Monitored) -> None:
    wait_for(lambda: "/slack" in monitored.messages.received, "a message")
    (attachment,) = monitored.messages.received["/slack"][0]["attachments"]
    assert attachment["title"] == f"MemoryFailures: update of {SERVICE}"
    summary = f"{FAILURES} answers of {SERVICE} failed by update errors within an hour ({SYSTEM} answered)"
    assert attachment["text"].startswith(summary)
    annotations = webhook(monitored)[0]["annotations"]
    assert f"Failing traces: {annotations['traces']}\n" in attachment["text"]


def test_its_link_opens_the_failing_traces_in_jaeger(monitored: Monitored, jaeger: Jaeger) -> None:
    wait_for(lambda: webhook(monitored) != [], "a message")
    link = urlsplit(webhook(monitored)[0]["annotations"]["traces"])
    assert f"{link.scheme}://{link.netloc}{link.path}" == f"{jaeger.url}/search"
    with urlopen(link.geturl(), timeout=10) as page:
        assert page.status == 200
    # what the page asks for with the query of its address
    with urlopen(f"{jaeger.url}/api/traces?{link.query}", timeout=10) as reply:
        found = [trace["traceID"].zfill(32) for trace in json.load(reply)["data"]]
    assert sorted(found) == sorted(monitored.failing)


def test_its_other_link_asks_tempo_for_them(monitored: Monitored, tempo: Tempo) -> None:
    wait_for(lambda: webhook(monitored) != [], "a message")
    link = urlsplit(webhook(monitored)[0]["annotations"]["tempo"])
    (pane,) = json.loads(parse_qs(link.query)["panes"][0]).values()
    (query,) = pane["queries"]
    assert tempo.search(query["query"]) == monitored.failing


def test_exemplars_in_prometheus_point_at_the_failing_traces(monitored: Monitored) -> None:
    now = time.time()
    for metric in ("memtrace_attribution_failures_total", "memtrace_attribution_duration_seconds_bucket"):
        asked = {"query": metric, "start": str(now - 3600), "end": str(now + 60)}
        series = monitored.prometheus.get("/api/v1/query_exemplars", **asked)
        exemplars = [exemplar for one in series for exemplar in one["exemplars"]]
        assert exemplars
        assert {exemplar["labels"]["trace_id"] for exemplar in exemplars} <= monitored.failing | monitored.canary
        assert all(len(exemplar["labels"]["span_id"]) == 16 for exemplar in exemplars)
