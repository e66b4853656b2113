"""Addresses that one file of deploy/ names and another one listens on."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from memtrace_otel.serve.options import Options

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
_PORT = re.compile(r"(?<=[:-])\d{4,5}\b")


def test_the_report_link_leads_to_serve_in_compose() -> None:
    (link,) = re.findall(r"const REPORT = '(.*)'", (DEPLOY / "jaeger" / "ui.js").read_text("utf-8"))
    services = yaml.safe_load((DEPLOY / "compose" / "jaeger.yaml").read_text("utf-8"))["services"]
    published = {int(port.split(":")[1]): port.split(":")[2] for port in services["pod"]["ports"]}
    inside = published[urlsplit(link).port]
    serve = Options(Path("memtrace.db"))
    command = services["report"]["command"]
    assert command[command.index("--from") + 1] == f"http://:{inside}"
    assert not {"--http-port", "--host"} & {*services["memtrace"]["command"]}  # where it listens by default:
    assert command[command.index("--to") + 1] == f"{serve.host}:{serve.http_port}"
    values = [value for one in services.values() for value in one.get("environment", {}).values()]
    taken = {str(value).rpartition(":")[2] for value in values}
    assert inside not in taken


def test_the_receiver_to_be_replaced_is_the_port_of_no_part() -> None:
    text = (DEPLOY / "alertmanager" / "alertmanager.yml").read_text("utf-8")
    addresses = set(re.findall(r"http://(localhost:\d+)/", text))
    assert len(addresses) == 1
    files = [*DEPLOY.glob("*/*.y*ml"), *(ROOT / "collector").glob("*.yaml")]
    ports = {port for file in files if file.parent.name != "alertmanager" for port in _PORT.findall(file.read_text())}
    assert {"9095", "4317", "8888"} <= ports
    assert not {address.partition(":")[2] for address in addresses} & ports
    substituted = (ROOT / "tests" / "e2e" / "monitored.py").read_text("utf-8")
    assert all(f'"{address}"' in substituted for address in addresses)


def test_what_the_guide_starts_listens_on_loopback() -> None:
    text = (DEPLOY / "README.md").read_text("utf-8").replace("\\\n", " ")
    commands = re.findall(r"(?:prometheus|alertmanager) --config\.file=.*", text)
    assert len(commands) == 2
    for command in commands:
        assert "--web.listen-address=127.0.0.1:" in command
        assert command.startswith("prometheus") or "--cluster.listen-address= " in command  # none
