"""Every query of the Grafana dashboards and alert rules, run by the real Prometheus and Tempo over planted failures.

Grafana itself cannot be had here; what it does with a query is done here: variables replaced, data source chosen.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from memtrace_otel.semconv import FailureType
from tests.e2e.application import SYSTEM
from tests.e2e.backends.service import wait_for
from tests.e2e.backends.tempo import Tempo
from tests.e2e.monitored import DEPLOY, FAILURES, SERVICE, Monitored

FOLDER = DEPLOY / "grafana"
_TRACE_ID = re.compile(r"[0-9a-f]{32}")
_NOT_HERE = re.compile(r"memtrace:capture_drops:|memtrace_canary_|memtrace_health_|offset 7d")
"""The metrics of applications come by way of a Collector, no canary runs, no server measures the health of a database,
and a week has not passed."""
NOT_PLANTED = {
    "Answers without a hit: retrievals that returned nothing",
    "Slow memory operations",
    "Verdicts made while something was missing",
}


@dataclass(frozen=True)
class Query:
    """One query of a panel or variable."""

    panel: str
    source: str
    model: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.panel} {self.model['refId']}"


def dashboards() -> Iterator[dict[str, Any]]:
    for path in sorted((FOLDER / "dashboards").glob("*.json")):
        yield json.loads(path.read_text())


QUERIES = [
    Query(panel["title"], target["datasource"]["type"], target)
    for board in dashboards()
    for panel in board["panels"]
    for target in panel.get("targets", ())
]
VARIABLES = sorted(
    {one["query"]["query"] for board in dashboards() for one in board["templating"]["list"] if one["type"] == "query"}
)


def replaced(text: str, monitored: Monitored) -> str:
    """What Grafana sends when the application and a failing trace are chosen: others have failures there, too."""
    values = {
        "$__rate_interval": "1m",
        "$__range": "1h",
        "$service": SERVICE,
        "$system": ".*",
        "$type": ".*",
        "$trace": min(monitored.failing),
    }
    for name, value in values.items():
        text = text.replace(name, value)
    assert "$" not in text
    return text


def ask(monitored: Monitored, query: Query) -> list[Any]:
    """The series of a panel of Prometheus, as it asks for them."""
    expression = replaced(query.model["expr"], monitored)
    if query.model.get("instant"):
        return monitored.prometheus.query(expression)
    now = time.time()
    window = {"start": str(now - 3600), "end": str(now), "step": "15"}
    return monitored.prometheus.get("/api/v1/query_range", query=expression, **window)["result"]


@pytest.mark.parametrize("query", [one for one in QUERIES if one.source == "prometheus"], ids=str)
def test_panels_of_prometheus_show_data(monitored: Monitored, query: Query) -> None:
    expression = query.model["expr"]
    series = ask(monitored, query)
    if _NOT_HERE.search(expression):
        assert series == []
    else:
        wait_for(lambda: ask(monitored, query) != [], f"data for {expression}")


@pytest.mark.parametrize("query", [one for one in QUERIES if one.source == "tempo"], ids=str)
def test_panels_of_tempo_show_the_planted_failures(monitored: Monitored, tempo: Tempo, query: Query) -> None:
    asked = replaced(query.model["query"], monitored)
    if _TRACE_ID.fullmatch(asked):  # Grafana fetches the trace
        names = {span.name for span in tempo.spans(asked)}
        assert {"chat", "memtrace.attribution update"} <= names
        return
    found = tempo.search(asked)
    assert not found & monitored.canary
    if query.panel in NOT_PLANTED:
        assert found == set()
    elif query.panel == "Failing answers and their decisive operations":
        assert found == monitored.failing
    else:
        assert found


def test_the_answer_to_a_query_of_tempo_has_the_columns_of_the_table(monitored: Monitored, tempo: Tempo) -> None:
    (query,) = [one for one in QUERIES if one.panel == "Failing answers and their decisive operations"]
    spans = tempo.matched(replaced(query.model["query"], monitored))
    assert len(spans) == FAILURES
    columns = {"memtrace.failure.type", "memtrace.failure.operation", "memtrace.failure.reason"}
    assert all(columns <= set(span) for span in spans)
    assert {span["memtrace.failure.operation"] for span in spans} == {"update_memory"}


@pytest.mark.parametrize("variable", VARIABLES)
def test_variables_offer_what_is_there(monitored: Monitored, variable: str) -> None:
    match = re.fullmatch(r"label_values\((.+), (\w+)\)", variable)
    assert match
    metric, label = match.groups()
    offered = monitored.prometheus.get(f"/api/v1/label/{label}/values", **{"match[]": metric})
    assert {"memtrace_system": SYSTEM, "service_name": SERVICE}[label] in offered


def test_the_types_that_can_be_chosen_are_all_there_are() -> None:
    chosen = [one["query"] for board in dashboards() for one in board["templating"]["list"] if one["type"] == "custom"]
    assert chosen == [",".join(FailureType)]


def test_of_the_alert_rules_only_the_planted_failures_return_a_series(monitored: Monitored) -> None:
    document = yaml.safe_load((FOLDER / "provisioning" / "alerting" / "memtrace.yml").read_text())
    rules = [rule for group in document["groups"] for rule in group["rules"]]
    wait_for(lambda: monitored.prometheus.query("memtrace:failures:1h >= 5") != [], "recorded failures")
    firing = {rule["title"]: monitored.prometheus.query(rule["data"][0]["model"]["expr"]) for rule in rules}
    assert {title for title, series in firing.items() if series} == {"MemoryFailures"}
    ((labels, value),) = firing["MemoryFailures"]
    assert (labels["memtrace_failure_type"], labels["service_name"], value) == ("update", SERVICE, FAILURES)
