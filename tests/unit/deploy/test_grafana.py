"""Grafana's files: dashboards by its schema, alerts as Prometheus has them, every name one that exists."""

from __future__ import annotations

import copy
import json
import re
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from docs.reference.registry import tables
from memtrace_otel.model import Attributed
from memtrace_otel.pipeline.metrics import WatchCounters, show_repair
from memtrace_otel.serve.metrics import Metrics
from memtrace_otel.serve.progress import Progress, Seen
from tests.unit.deploy.schema import problems

DEPLOY = Path(__file__).parents[3] / "deploy"
GRAFANA = DEPLOY / "grafana"
DASHBOARDS = sorted((GRAFANA / "dashboards").glob("*.json"))
RULES = sorted((DEPLOY / "prometheus").glob("memtrace.*.yml"))
_NAME = re.compile(r"\b(?:memtrace|gen_ai|otelcol)[_:][a-z0-9_:]+")
_OF_THE_COLLECTOR = {
    f"otelcol_exporter_{name}"
    for name in (
        "queue_size",
        "queue_capacity",
        "send_failed_spans",
        "send_failed_log_records",
        "enqueue_failed_log_records",
    )
}
"""What the Collector of collector/builder.yaml (0.158) shows of its exporters; its counters have no `_total`."""


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def targets(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return [target for panel in dashboard["panels"] for target in panel.get("targets", ())]


def sources() -> set[str]:
    document = yaml.safe_load((GRAFANA / "provisioning" / "datasources" / "memtrace.yml").read_text())
    return {source["uid"] for source in document["datasources"]}


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboards_follow_grafanas_schema(path: Path) -> None:
    assert problems(read(path)) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda board: board.update(titel="x"),
        lambda board: board.update(title=3),
        lambda board: board["panels"][1]["gridPos"].update(w="4"),
        lambda board: board["panels"][1]["options"].update(graphMode="pie"),
        lambda board: board["panels"][1]["options"].update(graphmode="area"),
        lambda board: targets(board)[0].update(expression="up"),
        lambda board: targets(board)[0].update(expr=["up"]),
        lambda board: board["templating"]["list"][0].update(type="datasources"),
    ],
)
def test_a_damaged_dashboard_is_found(damage: Any) -> None:
    board = copy.deepcopy(read(DASHBOARDS[0]))
    damage(board)
    assert len(problems(board)) >= 1


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    for path in DASHBOARDS:
        panels = read(path)["panels"]
        ids = [panel["id"] for panel in panels]
        assert len(set(ids)) == len(ids)
        places = [panel["gridPos"] for panel in panels]
        cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
        assert len(set(cells)) == len(cells)
        assert max(x for x, _ in cells) < 24


def test_data_sources_are_provisioned() -> None:
    for path in DASHBOARDS:
        board = read(path)
        chosen = {
            f"${{{one['name']}}}": one["query"] for one in board["templating"]["list"] if one["type"] == "datasource"
        }
        assert set(chosen.values()) <= sources()
        used = {panel["datasource"]["uid"] for panel in board["panels"] if "datasource" in panel}
        used |= {target["datasource"]["uid"] for target in targets(board)}
        assert used == set(chosen)
    document = yaml.safe_load((GRAFANA / "provisioning" / "alerting" / "memtrace.yml").read_text())
    queries = [query for group in document["groups"] for rule in group["rules"] for query in rule["data"]]
    assert {query["datasourceUid"] for query in queries} <= sources() | {"__expr__"}


def test_lists_of_failing_answers_have_a_verdict_once() -> None:
    """Its attribution trace, and the marker in the causing one, say the same of it."""
    queries = [one.get("query", "") for path in DASHBOARDS for one in targets(read(path))]
    verdicts = [one for one in queries if '"$service"' in one and "memtrace.failure." in one]
    assert len(verdicts) == 2
    assert all('resource.service.name !~ "memtrace-(attribution|canary)"' in one for one in verdicts)


def test_a_canary_that_has_never_arrived_is_not_as_old_as_the_epoch() -> None:
    """Its time is 0 until then."""
    asked = [one["expr"] for path in DASHBOARDS for one in targets(read(path)) if "last_success" in one.get("expr", "")]
    assert asked == ["time() - (memtrace_canary_last_success_seconds > 0)"]


def test_grafana_has_the_alerts_of_prometheus() -> None:
    written = runpy.run_path(str(GRAFANA / "alerts.py"))
    assert written["TARGET"].read_text() == written["render"](), "run: python deploy/grafana/alerts.py"
    rules = [rule for group in written["alert_rules"]()["groups"] for rule in group["rules"]]
    source = yaml.safe_load((DEPLOY / "prometheus" / "memtrace.alerts.yml").read_text())
    alerts = [rule for group in source["groups"] for rule in group["rules"]]
    assert [(rule["title"], rule["data"][0]["model"]["expr"]) for rule in rules] == [
        (alert["alert"], alert["expr"]) for alert in alerts
    ]
    assert len({rule["uid"] for rule in rules}) == len(rules)
    assert all(len(rule["uid"]) <= 40 for rule in rules)
    boards = {read(path)["uid"] for path in DASHBOARDS}
    assert {rule["annotations"]["__dashboardUid__"] for rule in rules} <= boards
    text = json.dumps([rule["annotations"] for rule in rules])
    assert "$value " not in text
    assert "$externalLabels" not in text
    assert "${" not in text  # Grafana would put an environment variable there


def test_every_metric_that_is_asked_for_exists() -> None:
    metrics = Metrics()
    failed = Attributed("update", "mem0", "assistant", False, 1, "a" * 32, "b" * 16)
    metrics.progressed(Progress(attributed=(failed,), seen=Counter({(Seen.ANSWERS, "mem0", "assistant"): 1})))
    WatchCounters(watched := CollectorRegistry())
    show_repair(watched, float)
    exposed = set(
        re.findall(r"^([a-z_]+)(?:\{| )", (metrics.exposition("")[0] + generate_latest(watched)).decode(), re.MULTILINE)
    )
    for metric in tables.read_registry()["metrics"]:  # of applications, by way of a Collector
        unit = {"s": "_seconds", "1": "_ratio"}.get(metric["unit"], "")
        exposed.add(metric["name"].replace(".", "_") + unit + ("_total" if metric["instrument"] == "counter" else ""))
    exposed |= _OF_THE_COLLECTOR
    for source in (DEPLOY.parent / "collector").glob("*/*.go"):
        exposed.update(re.findall(r'Int64Counter\(\s*"(\w+)"', source.read_text("utf-8")))
    recorded = {
        rule["record"]
        for path in RULES
        for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"]
        if "record" in rule
    }
    labels = {attribute["key"].replace(".", "_") for attribute in tables.read_registry()["attributes"]}
    expressions = [target["expr"] for path in DASHBOARDS for target in targets(read(path)) if "expr" in target]
    for path in RULES:
        expressions += [rule["expr"] for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]
    asked = {name for expression in expressions for name in _NAME.findall(expression)}
    assert asked - labels - recorded - exposed == set()
    assert len(asked) > 20
