"""Each reason why a program is not recorded, provoked for real, is named with what to type."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from memtrace_otel.doctor import State, observe_program
from memtrace_otel.doctor.packages import check_packages, check_python
from memtrace_otel.doctor.sdk import check_config_file
from memtrace_otel.version import __version__
from tests.unit.doctor.conftest import Examine, one

DISABLED = "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"
FAKE_INSTRUMENTOR = """
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor
class Fake(BaseInstrumentor):
    def instrumentation_dependencies(self):
        return ["mem0ai"]
    def _uninstrument(self, **kwargs):
        pass
"""


def install(folder: Path, name: str, version: str, *lines: str, entry_points: str = "") -> str:
    """Lay the metadata of a distribution into `folder`; return what PYTHONPATH needs."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines]))
    (info / "entry_points.txt").write_text(entry_points)
    return str(folder)


def test_a_program_that_is_recorded_has_no_problem(doctor: Examine, tmp_path: Path) -> None:
    findings = doctor()
    assert {finding.state for finding in findings if finding.check != "recorded"} == {State.OK}
    assert one(findings, "exporter").found == str(tmp_path / "memtrace.db")
    assert one(findings, "instrumentor memtrace_openai").found.startswith("watches openai ")
    assert one(findings, "recorded").remedy == "memtrace-otel run -- python app.py"
    assert not (tmp_path / "memtrace.db").exists()
    assert not (tmp_path / "state").exists()


def test_another_python_without_this_package(doctor: Examine, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "other"], check=True)
    python = tmp_path / "other" / "bin" / "python"
    found = one(doctor(python), "packages")
    assert found.state == State.PROBLEM
    assert found.remedy == f"{python} -m pip install 'memtrace-otel=={__version__}'"


def test_a_python_that_does_not_run(doctor: Examine, tmp_path: Path) -> None:
    found = one(doctor(tmp_path / "python"), "python")
    assert (found.state, found.remedy) == (State.PROBLEM, f"{tmp_path / 'python'} --version")


def test_versions_that_do_not_fit(environ: dict[str, str]) -> None:
    program = observe_program(Path(sys.executable), environ)
    assert check_python(replace(program, version=(3, 9, 2))).state == State.PROBLEM
    [found] = check_packages(program)
    assert found.state == State.OK
    old = {**program.packages, "opentelemetry-sdk": replace(program.packages["opentelemetry-sdk"], version="1.20.0")}
    [found] = check_packages(replace(program, packages=old))
    assert (found.state, "-m pip install 'opentelemetry-sdk" in found.remedy) == (State.PROBLEM, True)


def test_a_library_outside_the_supported_range(doctor: Examine, tmp_path: Path) -> None:
    found = one(doctor(PYTHONPATH=install(tmp_path / "site", "mem0ai", "9.1.0")), "instrumentor memtrace_mem0")
    assert found.state == State.PROBLEM
    assert "mem0ai 9.1.0 is outside the supported range" in found.found
    assert "-m pip install 'mem0ai" in found.remedy


@pytest.mark.parametrize(
    ("names", "remedy"),
    [
        ("memtrace_openai", f"unset {DISABLED}"),
        ("*", f"unset {DISABLED}"),
        ("requests , memtrace_openai", f"export {DISABLED}=requests"),
        ("requests,memtrace_mem0,memtrace_openai", f"export {DISABLED}=requests"),
    ],
)
def test_a_disabled_instrumentation(doctor: Examine, names: str, remedy: str) -> None:
    found = one(doctor(**{DISABLED: names}), "instrumentor memtrace_openai")
    assert (found.state, found.remedy) == (State.PROBLEM, remedy)


def test_another_instrumentation_of_the_same_memory_system(doctor: Examine, tmp_path: Path) -> None:
    entry = "[opentelemetry_instrumentor]\nmem0 = fake_mem0:Fake\n"
    path = install(tmp_path / "site", "mem0ai", "2.2.1")
    wanted = ("Requires-Dist: mem0ai>=1; extra == 'instruments'", "Provides-Extra: instruments")
    install(tmp_path / "site", "loongsuite-instrumentation-mem0", "1.0", *wanted, entry_points=entry)
    (tmp_path / "site" / "fake_mem0.py").write_text(FAKE_INSTRUMENTOR)
    found = one(doctor(PYTHONPATH=path), "instrumentation mem0")
    assert (found.state, found.remedy) == (State.WARNING, f"export {DISABLED}=mem0")
    assert not [f for f in doctor(PYTHONPATH=path, **{DISABLED: "mem0"}) if f.check == "instrumentation mem0"]
    ours_off = doctor(PYTHONPATH=path, **{DISABLED: "memtrace_mem0"})
    assert one(ours_off, "instrumentor memtrace_mem0").remedy == f"unset {DISABLED}"
    assert not [f for f in ours_off if f.check == "instrumentation mem0"]


def test_another_instrumentation_of_model_calls_is_no_harm(doctor: Examine, tmp_path: Path) -> None:
    entry = "[opentelemetry_instrumentor]\nopenai = fake_openai:Fake\n"
    wanted = ("Requires-Dist: openai>=1; extra == 'instruments'", "Provides-Extra: instruments")
    path = install(tmp_path / "site", "some-instrumentation-openai", "1.0", *wanted, entry_points=entry)
    (tmp_path / "site" / "fake_openai.py").write_text(FAKE_INSTRUMENTOR)
    assert one(doctor(PYTHONPATH=path), "instrumentation openai").state == State.OK


def test_the_sdk_switched_off(doctor: Examine) -> None:
    found = one(doctor(OTEL_SDK_DISABLED="true"), "sdk")
    assert (found.state, found.remedy) == (State.PROBLEM, "unset OTEL_SDK_DISABLED")


def test_no_exporter(doctor: Examine) -> None:
    found = one(doctor(OTEL_TRACES_EXPORTER="none"), "exporter")
    assert (found.state, found.remedy) == (State.PROBLEM, "export OTEL_TRACES_EXPORTER=memtrace")


def test_an_exporter_that_is_no_database(doctor: Examine) -> None:
    found = one(doctor(OTEL_TRACES_EXPORTER="console"), "exporter")
    assert (found.state, found.remedy) == (State.WARNING, "export OTEL_TRACES_EXPORTER=console,memtrace")


@pytest.mark.parametrize(("sampler", "argument", "kept"), [("traceidratio", "0.25", "25%"), ("always_off", None, "0%")])
def test_a_sampler_that_drops_writes(doctor: Examine, sampler: str, argument: str | None, kept: str) -> None:
    found = one(doctor(OTEL_TRACES_SAMPLER=sampler, OTEL_TRACES_SAMPLER_ARG=argument), "sampler")
    assert found.state == State.PROBLEM
    assert f"keeps {kept} of new traces" in found.found
    assert found.remedy == "unset OTEL_TRACES_SAMPLER OTEL_TRACES_SAMPLER_ARG"


@pytest.mark.parametrize(
    ("variable", "value", "state"),
    [
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "20", State.PROBLEM),
        ("OTEL_ATTRIBUTE_COUNT_LIMIT", "20", State.PROBLEM),
        ("OTEL_SPAN_LINK_COUNT_LIMIT", "4", State.PROBLEM),
        ("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "40", State.PROBLEM),
        ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "1000", State.WARNING),
    ],
)
def test_limits_below_what_an_operation_needs(doctor: Examine, variable: str, value: str, state: State) -> None:
    found = one(doctor(**{variable: value}), "limits")
    assert (found.state, found.remedy) == (state, f"unset {variable}")


@pytest.mark.parametrize(
    ("value", "state"), [("true", State.PROBLEM), ("NO_CONTENT", State.WARNING), (None, State.WARNING)]
)
def test_contents_off(doctor: Examine, value: str | None, state: State) -> None:
    switch = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
    found = one(doctor(**{switch: value}), "content")
    assert (found.state, found.remedy) == (state, f"export {switch}=SPAN_ONLY")


def test_a_setting_that_cannot_be_used_and_a_key_that_is_not_shown(doctor: Examine) -> None:
    findings = doctor(MEMTRACE_SPAN_BYTES="many", MEMTRACE_DIGEST_KEY="hush")
    found = one(findings, "settings")
    assert (found.state, found.remedy) == (State.WARNING, "unset MEMTRACE_SPAN_BYTES")
    assert "8192 is used" in found.found
    assert "hush" not in str(findings)


@pytest.mark.parametrize(
    ("variable", "value", "remedy"),
    [
        ("MEMTRACE_REDACT_PATTERNS", "nosuchrule", "export MEMTRACE_REDACT_PATTERNS=secrets"),
        ("MEMTRACE_REDACT_CALLBACK", "no.such:thing", "unset MEMTRACE_REDACT_CALLBACK"),
    ],
)
@pytest.mark.parametrize("switch", ["SPAN_ONLY", "NO_CONTENT"])
def test_a_setting_that_leads_nowhere(doctor: Examine, variable: str, value: str, remedy: str, switch: str) -> None:
    findings = doctor(**{variable: value, "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": switch})
    found = one(findings, "settings")
    assert found.state == State.PROBLEM
    assert f"{variable} cannot be used" in found.found
    assert remedy in found.remedy


def test_settings_that_lead_somewhere(doctor: Examine) -> None:
    store = {"MEMTRACE_REDACT_CALLBACK": "builtins:str"}
    assert not [found for found in doctor(MEMTRACE_REDACT_PATTERNS="personal", **store) if found.check == "settings"]


# --- OTEL_CONFIG_FILE --------------------------------------------------------------------------------------------
YAML = """
file_format: "1.0"
tracer_provider:
  processors:
    - batch: {exporter: {memtrace: {path: "%s"}}}
instrumentation/development:
  python:
    memtrace_openai: {%s}
"""


def test_a_configuration_file_decides(doctor: Examine, tmp_path: Path) -> None:
    file = tmp_path / "otel.yaml"
    file.write_text(YAML % (tmp_path / "other.db", "capture_content: NO_CONTENT"))
    findings = doctor(OTEL_CONFIG_FILE=str(file), OTEL_TRACES_EXPORTER="none")
    assert one(findings, "config file").state == State.OK
    assert one(findings, "exporter").found == str(tmp_path / "other.db")
    assert one(findings, "content").state == State.WARNING  # although the environment says SPAN_ONLY


@pytest.mark.parametrize(
    ("processors", "check", "state"),
    [
        ("[simple: {exporter: {console: {}}}]", "exporter", State.WARNING),
        ('[batch: {exporter: {otlp_http: {endpoint: "http://127.0.0.1:1/v1/traces"}}}]', "endpoint", State.PROBLEM),
        ('[batch: {exporter: {otlp_http: {endpoint: "http://127.0.0.1:4317/v1/traces"}}}]', "endpoint", State.PROBLEM),
    ],
)
def test_what_only_the_configuration_file_can_mend(
    doctor: Examine, tmp_path: Path, processors: str, check: str, state: State
) -> None:
    file = tmp_path / "otel.yaml"
    file.write_text(f'file_format: "1.0"\ntracer_provider:\n  processors: {processors}\n')
    findings = doctor(OTEL_CONFIG_FILE=str(file), OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:4318")
    found = one(findings, check)
    assert (found.state, found.remedy.partition("  # ")[0]) == (state, f"${{EDITOR:-vi}} {file}")
    assert "tracer_provider: processors: - batch: {exporter: {" in found.remedy
    assert "OTEL_TRACES_EXPORTER" not in found.found


def test_an_instrumentor_that_the_configuration_file_switches_off(doctor: Examine, tmp_path: Path) -> None:
    file = tmp_path / "otel.yaml"
    file.write_text(
        'file_format: "1.0"\ninstrumentation/development:\n  python:\n    memtrace_openai: {enabled: false}\n'
    )
    found = one(doctor(OTEL_CONFIG_FILE=str(file)), "instrumentor memtrace_openai")
    assert found.state is State.PROBLEM
    assert "enabled: false" in found.found
    assert one(doctor(), "instrumentor memtrace_openai").state is State.OK


def test_a_configuration_file_that_cannot_be_used(doctor: Examine, tmp_path: Path) -> None:
    file = tmp_path / "otel.yaml"
    findings = doctor(OTEL_CONFIG_FILE=str(file))
    missing = one(findings, "config file")
    assert (missing.state, missing.remedy) == (State.PROBLEM, "unset OTEL_CONFIG_FILE")
    assert next(finding for finding in findings if finding.state is State.PROBLEM) is missing  # what to type first
    unwatched = one(findings, "instrumentor memtrace_openai")
    assert (unwatched.state, unwatched.remedy) == (State.PROBLEM, "unset OTEL_CONFIG_FILE")
    file.write_text('file_format: "1.0"\ntracer_provider: [1]\n')
    broken = one(doctor(OTEL_CONFIG_FILE=str(file)), "config file")
    assert (broken.state, broken.remedy.startswith(f"${{EDITOR:-vi}} {file}")) == (State.PROBLEM, True)
    file.write_text(YAML % (tmp_path / "other.db", "preview_byte: 1"))


@pytest.mark.parametrize(
    ("options", "said", "write"),
    [
        ("memtrace_openai: {preview_bytes: many}", "not 'many'", "preview_bytes: <a whole number of at least 1>"),
        ("memtrace_openai: {preview_bytes: 0}", "not 0", "preview_bytes: <a whole number of at least 1>"),
        ("memtrace_openai: {capture_content: true}", "not True", "capture_content: <one of NO_CONTENT, SPAN_ONLY"),
        ("memtrace_openai: {preview_byte: 1}", "preview_byte is no setting", "memtrace_openai: {preview_bytes: ...}"),
        ("memtrace_opnai: {preview_bytes: 1}", "the name memtrace_opnai", "memtrace_openai: {...}"),
        ("memtrace_openai: {digest_key: [hush]}", "takes text", "digest_key: <text>"),
    ],
)
def test_an_option_of_the_configuration_file_that_cannot_be_used(
    doctor: Examine, tmp_path: Path, options: str, said: str, write: str
) -> None:
    file = tmp_path / "otel.yaml"
    file.write_text(YAML.partition("    memtrace_openai")[0] % (tmp_path / "other.db") + f"    {options}\n")
    findings = doctor(OTEL_CONFIG_FILE=str(file))
    [found] = [finding for finding in findings if finding.state is State.PROBLEM]
    assert (found.check, said in found.found) == ("settings", True)
    assert found.remedy.startswith(f"${{EDITOR:-vi}} {file}  # instrumentation/development: python: ")
    assert write in found.remedy
    assert "hush" not in str(findings)


def test_a_setting_that_stands_in_the_file_is_changed_there(doctor: Examine, tmp_path: Path) -> None:
    file = tmp_path / "otel.yaml"
    file.write_text(YAML % (tmp_path / "other.db", "capture_content: NO_CONTENT, redact_patterns: nosuchrule"))
    findings = doctor(OTEL_CONFIG_FILE=str(file), MEMTRACE_SPAN_BYTES="many")
    under = f"${{EDITOR:-vi}} {file}  # instrumentation/development: python: memtrace_openai:"
    assert one(findings, "content").remedy == f"{under} {{capture_content: SPAN_ONLY}}"
    of_file, of_environment = sorted((found for found in findings if found.check == "settings"), key=lambda f: f.state)
    assert of_file.remedy == f"{under} {{redact_patterns: secrets}}"
    assert of_environment.remedy == "unset MEMTRACE_SPAN_BYTES"


@pytest.mark.parametrize(
    ("text", "write"),
    [
        ("tracer_provider: {}", 'file_format: "1.0"'),
        ('file_format: "9.0"', 'file_format: "1.0"'),
        ('file_format: "1.0"\ndisabled: true', "disabled: false"),
        ('file_format: "1.0"', "tracer_provider: processors: - batch: {exporter: {memtrace:"),
        (
            'file_format: "1.0"\ntracer_provider: {processors: [batch: {exporter: {nonsense: {}}}]}',
            "leave nonsense out, or install",
        ),
    ],
)
def test_what_to_write_into_a_file_that_sets_nothing_up(doctor: Examine, tmp_path: Path, text: str, write: str) -> None:
    file = tmp_path / "otel.yaml"
    file.write_text(text)
    wrong = [found for found in doctor(OTEL_CONFIG_FILE=str(file)) if found.state is State.PROBLEM]
    assert "provider" in {found.check for found in wrong}
    assert all(found.remedy.startswith(f"${{EDITOR:-vi}} {file}  # {write}") for found in wrong), wrong


def test_a_variable_of_ours_that_is_misspelt(doctor: Examine) -> None:
    found = one(doctor(MEMTRACE_PREVIEW_BYTE="5", MEMTRACE_OF_ANOTHER="1"), "settings")
    assert (found.state, found.remedy) == (State.WARNING, 'export MEMTRACE_PREVIEW_BYTES="$MEMTRACE_PREVIEW_BYTE"')


def test_options_of_an_instrumentor_that_is_not_loaded(doctor: Examine, tmp_path: Path) -> None:
    file = tmp_path / "otel.yaml"
    file.write_text((YAML % (tmp_path / "o.db", "span_parts: 9")).replace("memtrace_openai", "memtrace_everos"))
    [found] = [finding for finding in doctor(OTEL_CONFIG_FILE=str(file)) if finding.state is State.PROBLEM]
    assert "span_parts under memtrace_everos" in found.found
    assert "{span_parts: ...}" in found.remedy


def test_a_configuration_file_without_the_package_that_reads_it(environ: dict[str, str], tmp_path: Path) -> None:
    program = observe_program(Path(sys.executable), environ | {"OTEL_CONFIG_FILE": str(tmp_path / "otel.yaml")})
    packages = {name: package for name, package in program.packages.items() if name != "opentelemetry-configuration"}
    [found] = check_config_file(replace(program, packages=packages))
    assert (found.state, found.remedy) == (State.PROBLEM, f"{program.python} -m pip install 'memtrace-otel[config]'")
