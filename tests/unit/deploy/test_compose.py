"""The compose files: pinned, closed to others, true to what they mount."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "deploy" / "compose").glob("*.yaml"))
_REFERRED = re.compile(r"\$\{(?:env:)?(\w+)")

Service = dict[str, Any]


def read(path: Path) -> dict[str, Any]:
    return cast(dict[str, Any], yaml.safe_load(path.read_text("utf-8")))


def services(path: Path) -> dict[str, Service]:
    """The services of a file, with what they extend."""
    return {name: whole(path, service) for name, service in read(path)["services"].items()}


def whole(path: Path, service: Service) -> Service:
    """A service on top of the one that it extends: maps are merged, commands replaced, other lists joined."""
    if "extends" not in service:
        return service
    extended = service["extends"]
    base = services(path.with_name(extended["file"]))[extended["service"]]
    merged = {**base, **{key: value for key, value in service.items() if key != "extends"}}
    if "environment" in service:
        merged["environment"] = {**base.get("environment", {}), **service["environment"]}
    merged["volumes"] = [*base.get("volumes", []), *service.get("volumes", [])]
    return merged


def mounts(path: Path, service: Service) -> dict[str, Path]:
    """Folders of this repository by where they are mounted."""
    found = [mount.split(":") for mount in service.get("volumes", [])]
    return {inside: (path.parent / outside).resolve() for outside, inside, *_ in found if outside.startswith(".")}


ALL = [
    pytest.param(path, service, id=f"{path.stem}/{name}") for path in FILES for name, service in services(path).items()
]


def test_there_are_files() -> None:
    assert {path.stem for path in FILES} == {"jaeger", "tempo", "kafka"}


@pytest.mark.parametrize(("path", "service"), ALL)
def test_images_are_pinned_or_built_here(path: Path, service: Service) -> None:
    if "build" not in service:
        assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+(\.\d+)?", service["image"])
        return
    build: dict[str, str] = service["build"] if "context" in service["build"] else {"context": service["build"]}
    context = (path.parent / build["context"]).resolve()
    assert (context / build.get("dockerfile", "Dockerfile")).is_file()


@pytest.mark.parametrize(("path", "service"), ALL)
def test_nothing_is_published_past_loopback(path: Path, service: Service) -> None:
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    assert service.get("network_mode", "") == ("" if "ports" in service else "service:pod")


@pytest.mark.parametrize(("path", "service"), ALL)
def test_volumes_and_configurations_are_there(path: Path, service: Service) -> None:
    mounted = mounts(path, service)
    assert all(folder.is_dir() for folder in mounted.values()), mounted
    named = [mount.split(":")[0] for mount in service.get("volumes", []) if not mount.startswith(".")]
    assert set(named) <= set(read(path)["volumes"])
    for file in re.findall(r"-config(?:\.file)?=(\S+)", " ".join(service.get("command", []))):
        assert any(file.startswith(f"{inside}/") for inside in mounted), file
        assert inside_repository(mounted, file).is_file()


@pytest.mark.parametrize(("path", "service"), ALL)
def test_the_environment_is_what_the_configurations_ask_for(path: Path, service: Service) -> None:
    mounted = mounts(path, service)
    files = re.findall(r"-config(?:\.file)?=(\S+)", " ".join(service.get("command", [])))
    asked = {name for file in files for name in _REFERRED.findall(inside_repository(mounted, file).read_text("utf-8"))}
    if files:
        assert {name for name in service.get("environment", {}) if not name.startswith("OTEL_")} <= asked


@pytest.mark.parametrize("file", ["tempo", "kafka"])
def test_grafana_has_the_data_sources_that_run(file: str) -> None:
    running = services(ROOT / "deploy" / "compose" / f"{file}.yaml")
    document = read(ROOT / "deploy" / "grafana" / "provisioning" / "datasources" / "memtrace.yml")
    uids = {source["uid"] for source in document["datasources"]}
    assert uids <= set(running)
    told = [
        one for source in document["datasources"] for one in source["jsonData"].get("exemplarTraceIdDestinations", ())
    ]
    assert {destination["datasourceUid"] for destination in told} <= uids


@pytest.mark.parametrize("file", ["tempo", "kafka"])
def test_what_messages_link_to_is_published(file: str) -> None:
    running = services(ROOT / "deploy" / "compose" / f"{file}.yaml")
    published = {port.split(":")[1]: port.split(":")[2] for port in running["pod"]["ports"]}
    for name, port in (
        ("prometheus", "9090"),
        ("alertmanager", "9093"),
    ):  # where they listen by default, on every interface
        command = running[name]["command"]
        assert f"--web.external-url=http://localhost:{port}" in command
        assert published[port] == port
        assert not any(option.startswith("--web.listen-address") for option in command)


@pytest.mark.parametrize("file", ["tempo", "kafka"])
def test_what_the_guides_ask_of_tempo_and_serve_is_published(file: str) -> None:
    running = services(ROOT / "deploy" / "compose" / f"{file}.yaml")
    ports = running["pod"]["ports"]
    assert "127.0.0.1:3200:3200" in ports
    assert running["tempo"]["environment"]["TEMPO_HOST"] == "0.0.0.0"
    (serve,) = [port.split(":")[2] for port in ports if port.startswith("127.0.0.1:24318:")]
    assert f"http://:{serve}" in running["report"]["command"]


@pytest.mark.parametrize("file", ["tempo", "kafka"])
def test_the_metrics_of_every_collector_are_scraped(file: str) -> None:
    path = ROOT / "deploy" / "compose" / f"{file}.yaml"
    running = services(path)
    collectors = [one for one in running.values() if "/etc/collector/" in " ".join(one.get("command", []))]
    ports = {one["environment"].get("COLLECTOR_METRICS_PORT", 8888) for one in collectors}
    jobs = read(ROOT / "deploy" / "prometheus" / "prometheus.yml")["scrape_configs"]
    (job,) = [job for job in jobs if job["job_name"] == "collector"]
    groups: list[Any] = list(job["static_configs"])
    ((pattern,),) = [more["files"] for more in job["file_sd_configs"]]
    more = mounts(path, running["prometheus"]).get(str(Path(pattern).parent))
    for found in more.glob(Path(pattern).name) if more else ():
        groups += yaml.safe_load(found.read_text("utf-8"))
    assert {target for group in groups for target in group["targets"]} == {f"localhost:{port}" for port in ports}


def inside_repository(mounted: dict[str, Path], file: str) -> Path:
    """The file of this repository that is mounted there."""
    inside = next(folder for folder in mounted if file.startswith(f"{folder}/"))
    return mounted[inside] / file.removeprefix(f"{inside}/")
