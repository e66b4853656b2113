"""Writes the alerts of deploy/prometheus/memtrace.alerts.yml as Grafana alert rules:

    python deploy/grafana/alerts.py

For who alerts from Grafana instead of Alertmanager; the recording rules stay in Prometheus.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
SOURCE = HERE.parent / "prometheus" / "memtrace.alerts.yml"
TARGET = HERE / "provisioning" / "alerting" / "memtrace.yml"
_HEAD = "# Written by deploy/grafana/alerts.py from deploy/prometheus/memtrace.alerts.yml; change it there.\n"
_DASHBOARD_OF = {"memtrace-failures": "memtrace-failures"}
"""By group; that of the others is the health of memory."""
_JAEGER = "traces"
"""An annotation with a link to its page: Grafana has its own, in `tempo`."""
_TEMPLATES = (
    ("$externalLabels.grafana }}{{ . }}/", "externalURL }}{{ . }}"),  # ends with a slash
    ("$value", "$values.A.Value"),
)


def alert_rules() -> dict[str, Any]:
    """Return the provisioning document."""
    groups = yaml.safe_load(SOURCE.read_text("utf-8"))["groups"]
    return {
        "apiVersion": 1,
        "groups": [
            {
                "orgId": 1,
                "name": group["name"],
                "folder": "memtrace",
                "interval": "1m",
                "rules": [_rule(rule, _DASHBOARD_OF.get(group["name"], "memtrace-health")) for rule in group["rules"]],
            }
            for group in groups
        ],
    }


def _rule(rule: dict[str, Any], dashboard: str) -> dict[str, Any]:
    """A series that the expression returns is an alert, whatever its value; without any, all is well."""
    prometheus = {"refId": "A", "expr": rule["expr"], "instant": True, "range": False, "editorMode": "code"}
    return {
        "uid": re.sub(r"(?<!^)(?=[A-Z])", "-", rule["alert"]).lower(),
        "title": rule["alert"],
        "condition": "B",
        "data": [
            _query("prometheus", prometheus),
            _query("__expr__", {"refId": "B", "type": "math", "expression": "is_number($A)"}),
        ],
        "noDataState": "OK",
        "execErrState": "Error",
        "for": rule.get("for", "0s"),
        "annotations": {key: _template(text) for key, text in rule["annotations"].items() if key != _JAEGER}
        | {"__dashboardUid__": dashboard},
        "labels": rule["labels"],
    }


def _query(source: str, model: dict[str, Any]) -> dict[str, Any]:
    window = {"from": 600, "to": 0}
    return {"refId": model["refId"], "relativeTimeRange": window, "datasourceUid": source, "model": model}


def _template(text: str) -> str:
    for old, new in _TEMPLATES:
        text = text.replace(old, new)
    return text


def render() -> str:
    """Return the content of the file."""
    return _HEAD + yaml.safe_dump(alert_rules(), sort_keys=False, allow_unicode=True, width=10_000)


if __name__ == "__main__":
    TARGET.write_text(render(), "utf-8")
