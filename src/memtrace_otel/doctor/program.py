"""The observed set-up of a program: its Python, packages, instrumentors, provider, exporters and settings.

`probe.py` collects the facts inside the program's own Python; the checks judge an `ObservedProgram` and run no code.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

_TIMEOUT_SECONDS = 60
_FAILED = "Failed to auto initialize OpenTelemetry"
OURS = "memtrace-otel"
CONFIG_FILE = "OTEL_CONFIG_FILE"


class ProbeError(Exception):
    """The program's Python cannot run the probe."""


@dataclass(frozen=True, slots=True)
class Package:
    """An installed distribution with its requirements (PEP 508 texts)."""

    version: str
    requires: Sequence[str]


@dataclass(frozen=True, slots=True)
class Instrumentor:
    """A registered instrumentor. `libraries` (requirements), `active` and `error` are known for ours only."""

    name: str
    package: str
    libraries: Sequence[str] = ()
    active: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True)
class Exporter:
    """A span exporter of the provider.

    OTLP exporters have `protocol`, `endpoint`, `reached` (a connection opened), `answered` (an empty export succeeded)
    and `error`. Our exporter has `path`. `spool` is the directory of spans that wait for this exporter.
    """

    kind: str
    protocol: str = ""
    endpoint: str = ""
    path: str = ""
    spool: str = ""
    reached: bool | None = None
    answered: bool | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class SettingValue:
    """A setting as the program reads it; a secret is `set` or empty. `problem` explains an unusable value."""

    value: str
    source: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ObservedProgram:
    """The set-up that `opentelemetry-instrument` makes for a program in `environ`.

    Package names are canonical (lower case, `-`). `kept` is the share of new traces that the sampler keeps.
    `attributes`, `links` and `length` are span limits; None means no limit. `log` holds the warnings logged while
    loading. `rerun` is the command that records the program.
    """

    environ: Mapping[str, str]
    python: Path
    version: tuple[int, ...]
    packages: Mapping[str, Package]
    instrumentors: Sequence[Instrumentor] = ()
    settings: Mapping[str, SettingValue] = field(default_factory=dict[str, SettingValue])
    log: Sequence[str] = ()
    exporters: Sequence[Exporter] = ()
    provider: str = ""
    sdk: bool = False
    sampler: str = ""
    kept: float = 1.0
    attributes: int | None = None
    links: int | None = None
    length: int | None = None
    rerun: str = "memtrace-otel run -- python app.py"

    def setting(self, name: str) -> str:
        """Return the value of one of our settings; empty when the program cannot read the setting."""
        return self.settings[name].value if name in self.settings else ""

    def change(self, command: str, in_file: str) -> str:
        """Return the remedy: `command`, or an edit of OTEL_CONFIG_FILE where that file decides."""
        name = self.environ.get(CONFIG_FILE)
        return f"${{EDITOR:-vi}} {name}  # {in_file}" if name else command

    @property
    def failure(self) -> str:
        """The logged reason why the SDK is not set up completely; empty when the SDK is."""
        logged = [line for line in self.log if line.startswith(_FAILED)] or ([] if self.sdk else list(self.log))
        if logged:
            return logged[-1].removeprefix(f"{_FAILED}: ")
        return "" if self.sdk else f"the provider is {self.provider or 'unknown'}"


def observe_program(python: Path, environ: Mapping[str, str], rerun: str) -> ObservedProgram:
    """Run the probe in `python` (about a second). Raises ProbeError when `python` cannot run the probe."""
    source = Path(__file__).with_name("probe.py").read_bytes()
    try:
        done = subprocess.run(
            [python, "-"], input=source, capture_output=True, env=dict(environ), timeout=_TIMEOUT_SECONDS
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ProbeError(f"{python} does not start: {error}") from None
    try:
        facts = json.loads(done.stdout)
    except ValueError:
        last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise ProbeError(f"{python} ended with status {done.returncode} while loading: {last}") from None
    return read_facts(facts, environ, rerun)


def read_facts(facts: Mapping[str, Any], environ: Mapping[str, str], rerun: str) -> ObservedProgram:
    """Return the program that the JSON object of the probe describes."""
    read: dict[str, Any] = {
        "environ": environ,
        "rerun": rerun,
        "python": Path(facts["python"]),
        "version": tuple(facts["version"]),
        "packages": {name: Package(**package) for name, package in facts["packages"].items()},
        "instrumentors": [Instrumentor(**row) for row in facts["instrumentors"]],
        "exporters": [Exporter(**row) for row in facts["exporters"]],
        "settings": {name: SettingValue(**row) for name, row in facts["settings"].items()},
    }
    return ObservedProgram(**{**facts, **read})


def requirements(package: Package, extras: Sequence[str] = ("",)) -> list[Requirement]:
    """Return the requirements that apply here with one of `extras`; an unreadable requirement is left out."""
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
    """Return the name of a distribution as `packages` has it."""
    return name.lower().replace("_", "-").replace(".", "-")
