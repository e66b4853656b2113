"""Variables of OpenTelemetry whose values nothing can read or that name what is not installed.

Most of them keep everything from being set up, some even the program from importing OpenTelemetry. So they are looked
at before anything else, and all the rest is judged as it is without those; with the others OpenTelemetry itself shows
what it does.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from memtrace_otel.doctor.finding import Finding, problem, warning

Components = Mapping[str, Collection[str]]
"""Names of the entry points of a Python, by group."""

_NOTHING = "nothing is set up"
_CRASH = "whatever imports OpenTelemetry fails"
_DEFAULT = "the default is used"


@dataclass(frozen=True, slots=True)
class _Named:
    """A variable that names entry points of a group: what comes of an unknown one, names that are there without asking,
    whether it counts although OTEL_CONFIG_FILE is set, and whether those names may be in capitals."""

    group: str
    harm: str
    builtin: frozenset[str]
    many: bool = False
    beside_file: bool = False
    any_case: bool = False


_EXPORTERS = frozenset({"console", "none"})
_NAMED = {
    "OTEL_PROPAGATORS": _Named(
        "opentelemetry_propagator", _CRASH, frozenset({"tracecontext", "baggage", "none"}), many=True, beside_file=True
    ),
    "OTEL_PYTHON_TRACER_PROVIDER": _Named("opentelemetry_tracer_provider", _CRASH, frozenset(), beside_file=True),
    "OTEL_PYTHON_METER_PROVIDER": _Named("opentelemetry_meter_provider", _CRASH, frozenset(), beside_file=True),
    "OTEL_PYTHON_CONTEXT": _Named(
        "opentelemetry_context", _DEFAULT, frozenset({"contextvars_context"}), beside_file=True
    ),
    "OTEL_PYTHON_DISTRO": _Named("opentelemetry_distro", _DEFAULT, frozenset({"distro"}), beside_file=True),
    "OTEL_PYTHON_CONFIGURATOR": _Named(
        "opentelemetry_configurator", _NOTHING, frozenset({"configurator"}), beside_file=True
    ),
    "OTEL_TRACES_EXPORTER": _Named("opentelemetry_traces_exporter", _NOTHING, _EXPORTERS | {"memtrace"}, many=True),
    "OTEL_METRICS_EXPORTER": _Named("opentelemetry_metrics_exporter", _NOTHING, _EXPORTERS, many=True),
    "OTEL_LOGS_EXPORTER": _Named("opentelemetry_logs_exporter", _NOTHING, _EXPORTERS, many=True),
    "OTEL_PYTHON_ID_GENERATOR": _Named("opentelemetry_id_generator", _NOTHING, frozenset({"random"})),
    "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": _Named(
        "opentelemetry_resource_detector", _DEFAULT, frozenset({"otel", "service_instance", "*", ""}), many=True
    ),
    "OTEL_TRACES_SAMPLER": _Named(
        "opentelemetry_traces_sampler",
        _DEFAULT,
        frozenset(
            f"{prefix}{name}" for prefix in ("", "parentbased_") for name in ("always_on", "always_off", "traceidratio")
        ),
        any_case=True,
    ),
}
_INSTEAD = {"OTEL_TRACES_EXPORTER": "memtrace", "OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}
"""What to name where nothing of a value is left; the default of the others is fine."""
_PACKAGES = {
    **dict.fromkeys(("b3", "b3multi"), "opentelemetry-propagator-b3"),
    "jaeger": "opentelemetry-propagator-jaeger",
    "ottrace": "opentelemetry-propagator-ot-trace",
    "xray": "opentelemetry-propagator-aws-xray",
    **dict.fromkeys(("otlp", "otlp_proto_grpc", "otlp_proto_http"), "opentelemetry-exporter-otlp"),
    "prometheus": "opentelemetry-exporter-prometheus",
    "zipkin": "opentelemetry-exporter-zipkin",
}
"""What has to be installed for well-known names."""

_COUNT = re.compile(r"OTEL_(\w+_)?(ATTRIBUTE|EVENT|LINK)_(COUNT|VALUE_LENGTH)_LIMIT")
_BATCH = re.compile(r"OTEL_BSP_\w+")
_RATIO = "OTEL_TRACES_SAMPLER_ARG"
_SIGNALS = ("TRACES", "METRICS", "LOGS")
_OTLP = re.compile(rf"OTEL_EXPORTER_OTLP_(?:({'|'.join(_SIGNALS)})_)?(TIMEOUT|COMPRESSION|PROTOCOL)")
_PROTOCOLS = ("grpc", "http/protobuf")
_COMPRESSIONS = {"grpc": ("gzip",), "http/protobuf": ("gzip", "deflate", "none")}


@dataclass(frozen=True, slots=True)
class Fault:
    """A variable that cannot be used: why, what to type, what is left of its value (None: nothing), and whether without
    mending it nothing is recorded (`fatal`)."""

    variable: str
    found: str
    remedy: str
    left: str | None
    fatal: bool

    def finding(self) -> Finding:
        """The fault as a line of the doctor's."""
        return (problem if self.fatal else warning)("variable", self.found, self.remedy)


def names_components(environ: Mapping[str, str]) -> bool:
    """Whether a variable names something that may not be installed, so that its Python has to be asked."""
    return any(set(_names(name, environ)) - named.builtin for name, named in _NAMED.items())


def find_faults(environ: Mapping[str, str], installed: Components, python: Path) -> Iterator[Fault]:
    """Every variable of OpenTelemetry in `environ` that cannot be used, where `installed` is what `python` has."""
    for variable, named in _NAMED.items():
        if environ.get("OTEL_CONFIG_FILE") and not named.beside_file:
            continue
        names = _names(variable, environ)
        known = named.builtin.union(installed.get(named.group, ()))
        unknown = [name for name in names if name not in known]
        if unknown and not (named.any_case and environ[variable].lower() in named.builtin):
            left = ",".join(name for name in names if name in known) or _INSTEAD.get(variable)
            fatal = named.harm != _DEFAULT
            said = f"{variable} names {_listed(unknown)}, which is not installed: {named.harm}"
            yield Fault(variable, said, _mended(variable, left, unknown, python), left, fatal)
    in_file = bool(environ.get("OTEL_CONFIG_FILE"))
    for variable, value in sorted(environ.items()):
        if otlp := _OTLP.fullmatch(variable):
            wanted, spared = ("", False) if in_file else _otlp_wanted(otlp[1], otlp[2], value, environ)
        else:
            wanted, spared = _wanted(variable, value, environ) if value else "", _COUNT.fullmatch(variable) is None
        if wanted:
            said = f"{variable} is {value!r}, which is no {wanted}: {_DEFAULT if spared else _NOTHING}"
            yield Fault(variable, said, f"unset {variable}", None, fatal=not spared)


def without(environ: Mapping[str, str], faults: Collection[Fault]) -> dict[str, str]:
    """`environ` in which nothing is left of the fatal faults. The others stay: OpenTelemetry goes on in spite of them,
    and knows best how."""
    fatal = {fault.variable: fault.left for fault in faults if fault.fatal}
    kept = {name: value for name, value in environ.items() if name not in fatal}
    return kept | {name: left for name, left in fatal.items() if left}


def _names(variable: str, environ: Mapping[str, str]) -> list[str]:
    value = environ.get(variable, "")
    named = [name.strip() for name in value.split(",")] if _NAMED[variable].many else [value.strip()]
    return named if value else []


def _wanted(variable: str, value: str, environ: Mapping[str, str]) -> str:
    """What the value of a variable should be and is not, '' when it is fine."""
    text = value.strip()
    if _COUNT.fullmatch(variable):
        return "" if text.isdecimal() or not text else "whole number"
    if _BATCH.fullmatch(variable):
        return "" if text.removeprefix("-").isdecimal() else "whole number"
    if variable == _RATIO and not environ.get("OTEL_CONFIG_FILE"):
        by_ratio = environ.get("OTEL_TRACES_SAMPLER", "").lower().endswith("traceidratio")
        return "share from 0 to 1" if by_ratio and not (_is_number(text) and 0 <= float(text) <= 1) else ""
    return ""


def _otlp_wanted(signal: str | None, what: str, value: str, environ: Mapping[str, str]) -> tuple[str, bool]:
    """What a variable of OTLP, of one signal or of all, should be for the exporters that read it and is not, '' when it
    is fine; and whether they fall back, as those over HTTP do, or fail."""
    readers = [
        reader
        for each in ((signal,) if signal else _SIGNALS)
        if signal or not environ.get(f"OTEL_EXPORTER_OTLP_{each}_{what}")  # that of the signal goes first
        for reader in _otlp_exporters(each, environ)
    ]
    if what == "PROTOCOL":
        read = any(name == "otlp" for name, _ in readers)
        good = value.strip() in ("", *_PROTOCOLS) or not read
        return "" if good else f"protocol of this SDK ({', '.join(_PROTOCOLS)})", False
    text = value.strip().lower()
    for protocol in sorted({protocol for _, protocol in readers if protocol in _PROTOCOLS}):  # grpc, which fails, first
        spared = protocol != "grpc"
        if spared and not value:
            continue
        if what == "TIMEOUT" and not _is_number(text):
            return "number of seconds", spared
        if what == "COMPRESSION" and text not in _COMPRESSIONS[protocol]:
            return f"compression of OTLP over {protocol} ({', '.join(_COMPRESSIONS[protocol])})", spared
    return "", False


def _otlp_exporters(signal: str, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The OTLP exporters of a signal: names and protocols; one of them is what comes of no variable at all."""
    told = environ.get(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL") or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    by_name = {"otlp_proto_grpc": "grpc", "otlp_proto_http": "http/protobuf", "otlp": (told or "grpc").strip()}
    for name in environ.get(f"OTEL_{signal}_EXPORTER", "otlp").split(","):
        if protocol := by_name.get(name.strip()):
            yield name.strip(), protocol


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _mended(variable: str, left: str | None, unknown: Collection[str], python: Path) -> str:
    packages = sorted({_PACKAGES[name] for name in unknown if name in _PACKAGES})
    change = f"export {variable}={left}" if left else f"unset {variable}"
    if packages and all(name in _PACKAGES for name in unknown):
        return f"{python} -m pip install {' '.join(packages)}  # or: {change}"
    return change


def _listed(names: Collection[str]) -> str:
    return " and ".join(repr(name) if name else "an empty name" for name in names)
