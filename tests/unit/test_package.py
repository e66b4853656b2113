"""The shape of the package: public names, direction of imports, cost of an import, documented settings."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

import networkx
import pytest
from packaging.requirements import Requirement

import memtrace_otel
from memtrace_otel import semconv, settings

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "memtrace_otel"

MAY_IMPORT = {
    "version": set[str](),
    "semconv": set[str](),
    "settings": set[str](),
    "hosts": set[str](),
    "model": set[str](),
    "capture": {"model", "otlp"},  # otlp: the encoder, in the processor alone
    "instrumentation": {"capture", "model"},
    "otlp": {"model"},
    "sources": {"hosts", "model", "otlp"},
    "graph": {"model", "sources"},
    "attribution": {"graph", "model"},
    "health": {"attribution", "graph", "model"},
    "annotate": {"model", "otlp"},
}
EVERYWHERE = {"version", "semconv", "settings"}
ON_TOP = {
    "bench",
    "canary",
    "cli",
    "demo",
    "doctor",
    "launch",
    "pages",
    "pipeline",
    "repair",
    "report",
    "serve",
    "testing",
    "web",
}


def imported_packages(path: Path) -> set[str]:
    """Packages of ours that a module imports, at any depth of its code."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module == "memtrace_otel":
            names = [f"memtrace_otel.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("memtrace_otel.")}
    return found


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_imports_point_one_way(package: str) -> None:
    paths = [*(SOURCE / package).rglob("*.py"), *SOURCE.glob(f"{package}.py")]
    assert paths
    allowed = MAY_IMPORT[package] | EVERYWHERE | {package}
    wrong = {str(path.relative_to(SOURCE)): extra for path in paths if (extra := imported_packages(path) - allowed)}
    assert wrong == {}


def imported_modules(path: Path, modules: set[str]) -> set[str]:
    """Return the modules of ours that a module imports at its top level; imports for type checkers count."""
    tree = ast.parse(path.read_text())
    inside = {
        id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef) for n in ast.walk(f)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in inside:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in modules else node.module for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & modules


def test_no_modules_import_each_other_in_a_circle() -> None:
    paths = {
        ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__"): path
        for path in SOURCE.rglob("*.py")
    }
    graph = networkx.DiGraph(
        (name, other) for name, path in paths.items() for other in imported_modules(path, set(paths)) - {name}
    )
    assert [sorted(circle) for circle in networkx.strongly_connected_components(graph) if len(circle) > 1] == []


def test_few_modules_are_very_short() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in SOURCE.rglob("*.py") if path.name != "__init__.py"}
    assert sum(count < 50 for count in lines.values()) <= 25


def test_every_package_has_its_place_in_the_direction() -> None:
    packages = {path.name.removesuffix(".py") for path in SOURCE.iterdir() if not path.name.startswith("_")}
    packages -= {"py.typed"}
    assert packages <= set(MAY_IMPORT) | ON_TOP


def test_modules_stay_small() -> None:
    long = {str(p.relative_to(SOURCE)): n for p in SOURCE.rglob("*.py") if (n := len(p.read_text().splitlines())) > 500}
    assert long == {}


@pytest.mark.parametrize("name", memtrace_otel.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(memtrace_otel, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        memtrace_otel.nonsense  # noqa: B018


@pytest.mark.parametrize("module", ["memtrace_otel", "memtrace_otel.capture"])
def test_an_application_pays_for_nothing_it_does_not_use(module: str) -> None:
    code = f"import sys, {module}; print(*{{'opentelemetry.sdk', 'networkx', 'openai', 'rich'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_every_setting_is_documented_with_its_default_and_help() -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()
    rows = {line.split("|")[1].strip(" `"): line for line in page.splitlines() if line.startswith("| `")}
    assert set(rows) == {setting.env for setting in settings.TABLE}
    for setting in settings.TABLE:
        _, default, text = (cell.strip() for cell in rows[setting.env].split(" | ")[1:4])
        shown = setting.shown(setting.default)
        assert default == (f"`{shown}`".replace("|", "\\|") if shown else "empty")
        assert text.rstrip(" |") == setting.help.replace("|", "\\|")


def test_settings_that_cannot_be_parsed_give_their_default() -> None:
    assert settings.SPAN_BYTES.read({"MEMTRACE_SPAN_BYTES": "many"}) == settings.SPAN_BYTES.default
    assert settings.SPAN_BYTES.read({"MEMTRACE_SPAN_BYTES": "99"}) == 99
    assert settings.EVALUATION_THRESHOLD.read({"MEMTRACE_EVALUATION_THRESHOLD": "0.7"}) == 0.7


def test_semconv_is_the_only_place_with_wire_literals() -> None:
    names = {v for k, v in vars(semconv).items() if k.isupper() and isinstance(v, str) and v.startswith("memtrace.")}
    paths = [path for path in SOURCE.rglob("*.py") if path.name not in ("semconv.py", "version.py")]
    wrong = [
        f"{path.relative_to(SOURCE)}:{node.lineno} {node.value}"
        for path in paths
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in names
    ]
    assert wrong == []


def test_every_entry_point_loads() -> None:
    from importlib.metadata import distribution

    for entry in distribution("memtrace-otel").entry_points:
        if entry.group != "console_scripts":
            assert entry.load() is not None
    assert import_module("memtrace_otel.cli").main is not None


@pytest.mark.parametrize("module", ["memtrace_otel", "memtrace_otel.cli"])
def test_the_command_runs_as_a_module(module: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, "version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("memtrace-otel ")


def test_every_integration_test_has_an_environment_that_runs_it() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    run = set(options["testpaths"])
    for pins in (ROOT / "tests" / "environments").glob("*.txt"):
        run |= set(re.findall(r"^# tests: (.+)$", pins.read_text(), re.MULTILINE)[0].split())
    there = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests" / "integration").iterdir()
        if path.name.startswith("test_") or (path.is_dir() and any(path.glob("test_*.py")))
    }
    assert there - run == set()


def test_the_lowest_and_the_newest_version_of_every_system_are_tested() -> None:
    environments = {path.stem for path in (ROOT / "tests" / "environments").glob("*.txt")}
    systems = {path.name for path in (SOURCE / "instrumentation").iterdir() if (path / "__init__.py").exists()}
    for system in systems - {"chat_history"}:
        assert {f"{system}-lowest", f"{system}-newest"} <= environments


def test_the_extra_names_what_the_instrumentors_support() -> None:
    """Loading reads the extra, `instrument()` the classes."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extra = {str(Requirement(line.partition(";")[0])) for line in project["optional-dependencies"]["instruments-any"]}
    classes = [entry.load() for entry in entry_points(group="opentelemetry_instrumentor") if "memtrace" in entry.name]
    assert {str(Requirement(kind.requirement)) for kind in classes} == extra


@pytest.mark.parametrize("page", sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]), ids=lambda p: p.name)
def test_links_of_the_documentation_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []
