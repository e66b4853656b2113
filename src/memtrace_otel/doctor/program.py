"""What a program would get, asked of its own Python (`probe.py`)."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import join
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from memtrace_otel import settings

_SECONDS = 60
_LEAD_SOMEWHERE = (settings.REDACT_PATTERNS, settings.REDACT_CALLBACK)
OURS = "memtrace-otel"
SOME_COMMAND = ("python", "app.py")
EXPORTER = "OTEL_TRACES_EXPORTER"
CONFIG_FILE = "OTEL_CONFIG_FILE"
_FAILED = "Failed to auto initialize OpenTelemetry"


class ProbeError(Exception):
    """The program's Python could not be asked."""


@dataclass(frozen=True, slots=True)
class Package:
    """An installed distribution."""

    version: str
    requires: Sequence[str]


@dataclass(frozen=True, slots=True)
class Instrumentor:
    """A registered instrumentor. `libraries` (requirements), `modules` (their names in imports), `active` and `error`
    are known of ours only."""

    name: str
    package: str
    libraries: Sequence[str]
    active: bool
    error: str
    modules: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Exporter:
    """A span exporter of the provider. OTLP: endpoint and whether it was reached and answered. Ours: the database.

    `spool` is the directory of the spans that wait for it.
    """

    kind: str
    protocol: str
    endpoint: str
    path: str
    spool: str
    reached: bool | None
    answered: bool | None
    error: str


@dataclass(frozen=True, slots=True)
class SettingValue:
    """A setting as the program sees it; a secret's value is `set` or ''."""

    value: str
    source: str
    problem: str


@dataclass(frozen=True, slots=True)
class ConfigurationFile:
    """What OTEL_CONFIG_FILE says of instrumentations: those that are `off`; `places`, the instrumentor that each of our
    settings in it stands under; and what cannot be used (`place`, `problem` and a known name `like` it, or '')."""

    off: Sequence[str] = ()
    places: Mapping[str, str] = field(default_factory=dict[str, str])
    wrong: Sequence[Mapping[str, str]] = ()


@dataclass(frozen=True, slots=True)
class ObservedProgram:
    """What `opentelemetry-instrument` sets up for a program in `environ`.

    Package names are canonical (lower case, `-`). `kept` is the share of new traces that the sampler keeps;
    `attributes`, `links` and `length` are span limits, None when there is none; `log` is what was logged while loading,
    `unusable` why the values of settings, by name, lead nowhere, and `file` what OTEL_CONFIG_FILE says of
    instrumentations. `command` is the command line of the program, () when none is known, and `rerun` what to type to
    record it.
    """

    environ: Mapping[str, str]
    python: Path
    version: tuple[int, ...]
    packages: Mapping[str, Package]
    instrumentors: Sequence[Instrumentor]
    settings: Mapping[str, SettingValue]
    log: Sequence[str]
    exporters: Sequence[Exporter] = ()
    provider: str = ""
    sdk: bool = False
    sampler: str = ""
    kept: float = 1.0
    attributes: int | None = None
    links: int | None = None
    length: int | None = None
    unusable: Mapping[str, str] = field(default_factory=dict[str, str])
    file: ConfigurationFile = ConfigurationFile()
    command: Sequence[str] = ()
    rerun: str = f"memtrace-otel run -- {join(SOME_COMMAND)}"

    def setting(self, name: str) -> str:
        """The value of one of our settings, '' when the program has none of them."""
        return self.settings[name].value if name in self.settings else ""

    @property
    def failure(self) -> str:
        """Why nothing, or not all of it, was set up; '' when it was."""
        said = [line for line in self.log if line.startswith(_FAILED)] or ([] if self.sdk else list(self.log))
        if said:
            return said[-1].removeprefix(f"{_FAILED}: ")
        return "" if self.sdk else f"the provider is {self.provider or 'unknown'}"

    @property
    def blamed(self) -> list[str]:
        """The variables of OpenTelemetry that the reason names, also as an argument, or quotes the value of."""
        quoted = set(re.findall(r"""['"]([^'"]+)['"]""", self.failure))
        variables = {name: value for name, value in self.environ.items() if name.startswith("OTEL_")}
        return sorted(
            name
            for name, value in variables.items()
            if name in self.failure or name.removeprefix("OTEL_BSP_").lower() in self.failure or value in quoted
        )


def observe_program(python: Path, environ: Mapping[str, str]) -> ObservedProgram:
    """Ask `python` what a program gets in `environ`, in about a second; raises ProbeError when it cannot be asked."""
    return read_facts(_ask(python, environ), environ)


def observe_settings(python: Path, environ: Mapping[str, str]) -> ObservedProgram:
    """What `environ` says of our settings alone, quickly: `python` is asked only when some of them name something that
    has to be there, and imports nothing of the program's. Raises ProbeError."""
    found = {name: setting.find(environ) for name, setting in settings.NAMES.items()}
    values = {
        name: SettingValue(settings.NAMES[name].shown(value.value), value.source, value.problem)
        for name, value in found.items()
    }
    asked = any(found[setting.name].source != "default" for setting in _LEAD_SOMEWHERE)
    found_there = _ask(python, environ, "--settings") if asked else {}
    return ObservedProgram(environ, python, (), {}, (), values, (), **found_there)


def observe_components(python: Path, environ: Mapping[str, str]) -> dict[str, list[str]]:
    """The names of OpenTelemetry's entry points that `python` has, by group. Raises ProbeError."""
    return _ask(python, environ, "--components")


def _ask(python: Path, environ: Mapping[str, str], *arguments: str) -> dict[str, Any]:
    source = Path(__file__).with_name("probe.py").read_bytes()
    command = [python, "-", *arguments]
    try:
        done = subprocess.run(command, input=source, capture_output=True, env=dict(environ), timeout=_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        raise ProbeError(f"{python} cannot be asked: {error}") from None
    try:
        return json.loads(done.stdout)
    except ValueError:
        last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise ProbeError(f"{python} ended with status {done.returncode} while loading: {last}") from None


def read_facts(facts: dict[str, Any], environ: Mapping[str, str]) -> ObservedProgram:
    """Read what the probe printed."""
    read: dict[str, Any] = {
        "environ": environ,
        "python": Path(facts["python"]),
        "version": tuple(facts["version"]),
        "packages": {name: Package(**package) for name, package in facts["packages"].items()},
        "instrumentors": [Instrumentor(**row) for row in facts["instrumentors"]],
        "exporters": [Exporter(**row) for row in facts["exporters"]],
        "settings": {name: SettingValue(**row) for name, row in facts["settings"].items()},
        "file": ConfigurationFile(**facts.get("file", {})),
    }
    return ObservedProgram(**{**facts, **read})


def requirements(package: Package, extras: Sequence[str] = ("",)) -> list[Requirement]:
    """The requirements of a package that apply here with one of `extras`; what cannot be read is left out."""
    found: list[Requirement] = []
    for text in package.requires:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
            found.append(requirement)
    return found


def canonical(name: str) -> str:
    """The name under which a distribution is found in `packages`."""
    return name.lower().replace("_", "-").replace(".", "-")
