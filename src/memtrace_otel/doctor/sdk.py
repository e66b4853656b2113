"""The OpenTelemetry SDK: is there a provider, does it keep the spans whole, and where do they go?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from memtrace_otel import settings
from memtrace_otel.doctor.finding import Finding, ok, problem, warning
from memtrace_otel.doctor.program import CONFIG_FILE, EXPORTER, OURS, ObservedProgram
from memtrace_otel.doctor.remedies import change_sdk, edit_file, edit_what_is_told

OUR_EXPORTER = "MemtraceSpanExporter"
_CONFIGURATION = "opentelemetry-configuration"
_HARMLESS = "ignoring configurator kwargs"  # said at every start with a file
_IN_FILE = 'tracer_provider: processors: - batch: {exporter: {memtrace: {path: "./memtrace.db"}}}'
_LEAST_ATTRIBUTES = 64
_LEAST_LINKS = 32
_LEAST_LENGTH = 256
"""A ref and an origin are shorter; what is longer is content, which is cut at its own limit."""


def check_switch(program: ObservedProgram) -> Finding:
    """The switch for everything."""
    if program.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return problem("sdk", "OTEL_SDK_DISABLED switches all recording off", "unset OTEL_SDK_DISABLED")
    return ok("sdk", "not disabled")


def check_config_file(program: ObservedProgram) -> Iterator[Finding]:
    """The declarative configuration, when there is one."""
    name = program.environ.get(CONFIG_FILE)
    if not name:
        return
    if _CONFIGURATION not in program.packages:
        yield problem(
            "config file",
            f"OTEL_CONFIG_FILE is set, but {_CONFIGURATION} is not installed: nothing is set up",
            f"{program.python} -m pip install '{OURS}[config]'",
        )
        return
    if not Path(name).is_file():
        yield problem("config file", f"OTEL_CONFIG_FILE names {name}, which is no file", "unset OTEL_CONFIG_FILE")
        return
    told = [option["place"].rpartition(": ")[2] for option in program.file.wrong]  # by `check_options`
    said = [line for line in program.log if "onfig" in line and _HARMLESS not in line]
    said = [line for line in said if not any(f"'{name}'" in line for name in told)]
    if said:
        yield problem("config file", f"{name}: {said[-1]}", edit_what_is_told(program, said[-1]))
        return
    yield ok("config file", f"{name}; variables of the SDK with a place in that file are ignored")


def check_provider(program: ObservedProgram) -> Iterator[Finding]:
    """A provider of the SDK with an exporter."""
    if OURS not in program.packages:
        return
    if program.failure:
        said = "not all of the SDK is set up" if program.sdk else "no tracer provider of the SDK"
        yield problem("provider", f"{said}: {failure(program)}", mend_failure(program))
        return
    yield ok("provider", program.provider)
    if not program.exporters:
        yield problem(
            "exporter",
            "no span exporter: what is recorded goes nowhere" + (f" ({program.log[-1]})" if program.log else ""),
            change_sdk(program, f"export {EXPORTER}=memtrace", _IN_FILE),
        )
    elif not any(exporter.kind == OUR_EXPORTER for exporter in program.exporters):
        kinds = ", ".join(exporter.kind for exporter in program.exporters)
        yield warning(
            "exporter",
            f"spans go to {kinds}, not to a database that `attribute` and `report` read",
            change_sdk(program, f"export {EXPORTER}={','.join([*_named_exporters(program), 'memtrace'])}", _IN_FILE),
        )
    else:
        yield ok("exporter", ", ".join(exporter.path or exporter.kind for exporter in program.exporters))


def failure(program: ObservedProgram) -> str:
    """Why not all is set up; what is wrong with a file stands in its own finding."""
    file = program.environ.get(CONFIG_FILE)
    return f"it is not set up from {file}" if file else program.failure


def mend_failure(program: ObservedProgram) -> str:
    """What to type when not all is set up."""
    if file := program.environ.get(CONFIG_FILE):
        if not Path(file).is_file():
            return f"unset {CONFIG_FILE}"
        told = [line for line in program.log if _HARMLESS not in line]
        return edit_what_is_told(program, told[-1]) if told else edit_file(program, _IN_FILE)
    return f"unset {' '.join(program.blamed)}" if program.blamed else program.rerun


def _named_exporters(program: ObservedProgram) -> list[str]:
    """The exporters that the environment names, `otlp` when none."""
    return [name.strip() for name in (program.environ.get(EXPORTER) or "otlp").split(",")]


def check_sampler(program: ObservedProgram) -> Finding | None:
    """A write that was sampled out is missing when an answer fails weeks later."""
    if not program.sdk:
        return None
    if program.kept < 1:
        return problem(
            "sampler",
            f"{program.sampler.partition(',')[0]} keeps {program.kept:.0%} of new traces: memory writes are lost, "
            "and with them the cause of later failures",
            change_sdk(
                program,
                "unset OTEL_TRACES_SAMPLER OTEL_TRACES_SAMPLER_ARG",
                "tracer_provider: sampler: parent_based: root: always_on: {}",
            ),
        )
    return ok("sampler", "keeps every new trace")


def check_limits(program: ObservedProgram) -> Iterator[Finding]:
    """Limits of a span below what an operation needs."""
    if not program.sdk:
        return
    low = False
    for limit, value, least, harm in (
        ("ATTRIBUTE_COUNT_LIMIT", program.attributes, _LEAST_ATTRIBUTES, "the first ones of a span vanish"),
        ("LINK_COUNT_LIMIT", program.links, _LEAST_LINKS, "the first ones of a span vanish"),
        ("ATTRIBUTE_VALUE_LENGTH_LIMIT", program.length, _LEAST_LENGTH, "refs and origins are cut"),
    ):
        if value is not None and value < least:
            low = True
            yield problem("limits", f"{limit} is {value}: {harm}", _raise_limit(limit, least, program))
    preview = program.setting(settings.PREVIEW_BYTES.name)
    if not low and preview and program.length is not None and program.length < int(preview):
        low = True
        yield warning(
            "limits",
            f"values are cut at {program.length} characters, before the preview limit of {preview} bytes",
            _raise_limit("ATTRIBUTE_VALUE_LENGTH_LIMIT", int(preview), program),
        )
    if not low:
        yield ok("limits", "room for every operation")


def _raise_limit(limit: str, least: int, program: ObservedProgram) -> str:
    names = [name for name in (f"OTEL_SPAN_{limit}", f"OTEL_{limit}") if program.environ.get(name)]
    return change_sdk(program, f"unset {' '.join(names)}", f"tracer_provider: limits: {limit.lower()}: {least}")
