"""The OpenTelemetry SDK: is there a provider, does it keep the spans whole, and where do they go?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from memtrace_otel import settings
from memtrace_otel.doctor.finding import Finding, ok, problem, warning
from memtrace_otel.doctor.program import EDIT_CONFIG, EXPORTER, OURS, ObservedProgram

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
    name = program.environ.get("OTEL_CONFIG_FILE")
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
    said = [line for line in program.log if "onfig" in line and _HARMLESS not in line]
    if said:
        yield problem("config file", f"{name}: {said[-1]}", EDIT_CONFIG)
        return
    yield ok("config file", f"{name}; variables of the SDK with a place in that file are ignored")


def check_provider(program: ObservedProgram) -> Iterator[Finding]:
    """A provider of the SDK with an exporter."""
    if OURS not in program.packages:
        return
    if not program.sdk:
        if unknown := program.unknown_exporter():
            said = f"no tracer provider of the SDK: {EXPORTER} names {unknown}, which is not installed"
            yield problem("provider", said, f"export {EXPORTER}=memtrace")
            return
        reason = program.log[-1] if program.log else f"the provider is {program.provider or 'unknown'}"
        yield problem(
            "provider",
            f"no tracer provider of the SDK: {reason}",
            "unset OTEL_PYTHON_DISTRO OTEL_PYTHON_CONFIGURATOR"
            if program.environ.get("OTEL_PYTHON_CONFIGURATOR") or program.environ.get("OTEL_PYTHON_DISTRO")
            else program.rerun,
        )
        return
    yield ok("provider", program.provider)
    in_file = f"{EDIT_CONFIG}  # {_IN_FILE}" if program.environ.get("OTEL_CONFIG_FILE") else ""
    if not program.exporters:
        yield problem(
            "exporter",
            "no span exporter: what is recorded goes nowhere"
            + (f" ({program.log[-1]})" if program.log else "" if in_file else f" ({EXPORTER}=none?)"),
            in_file or f"export {EXPORTER}=memtrace",
        )
    elif not any(exporter.kind == OUR_EXPORTER for exporter in program.exporters):
        kinds = ", ".join(exporter.kind for exporter in program.exporters)
        yield warning(
            "exporter",
            f"spans go to {kinds}, not to a database that `attribute` and `report` read",
            in_file or f"export {EXPORTER}=otlp,memtrace",
        )
    else:
        yield ok("exporter", ", ".join(exporter.path or exporter.kind for exporter in program.exporters))


def check_sampler(program: ObservedProgram) -> Finding | None:
    """A write that was sampled out is missing when an answer fails weeks later."""
    if not program.sdk:
        return None
    if program.kept < 1:
        return problem(
            "sampler",
            f"{program.sampler.partition(',')[0]} keeps {program.kept:.0%} of new traces: memory writes are lost, "
            "and with them the cause of later failures",
            "unset OTEL_TRACES_SAMPLER OTEL_TRACES_SAMPLER_ARG"
            if not program.environ.get("OTEL_CONFIG_FILE")
            else f"{EDIT_CONFIG}  # tracer_provider: sampler: parent_based: root: always_on",
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
            yield problem("limits", f"{limit} is {value}: {harm}", _raise_limit(limit, program))
    preview = program.setting(settings.PREVIEW_BYTES.name)
    if not low and preview and program.length is not None and program.length < int(preview):
        low = True
        yield warning(
            "limits",
            f"values are cut at {program.length} characters, before the preview limit of {preview} bytes",
            _raise_limit("ATTRIBUTE_VALUE_LENGTH_LIMIT", program),
        )
    if not low:
        yield ok("limits", "room for every operation")


def _raise_limit(limit: str, program: ObservedProgram) -> str:
    names = [name for name in (f"OTEL_SPAN_{limit}", f"OTEL_{limit}") if program.environ.get(name)]
    if program.environ.get("OTEL_CONFIG_FILE") or not names:
        return f"{EDIT_CONFIG}  # tracer_provider: limits: {limit.lower()}"
    return f"unset {' '.join(names)}"
