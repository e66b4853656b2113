"""What a program gets that `opentelemetry-instrument` starts: run by the program's own Python, prints one JSON object.

Stands alone: it is given to another interpreter on standard input, which may have neither this package nor
OpenTelemetry. Loads the real distro, configurator and instrumentors, looks at the provider that came out of it, asks
its sampler and connects to its receivers; nothing is written and no span is made.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, distribution, distributions, entry_points
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies_environment

CONNECT_SECONDS = 2.0
_SAMPLES = 256
_MAX_LOG = 50
_OURS = "memtrace-otel"


class Log(logging.Handler):
    """Keeps what OpenTelemetry and this package had to say."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1]:
            text += f": {record.exc_info[1]}"
        if len(self.lines) < _MAX_LOG and text not in self.lines:
            self.lines.append(text)


def canonical(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def packages() -> dict[str, dict[str, Any]]:
    """Every distribution: version and requirements with their extras; of two with one name the first is imported."""
    found: dict[str, dict[str, Any]] = {}
    for dist in distributions():
        if name := dist.metadata["Name"]:
            found.setdefault(canonical(name), {"version": dist.version, "requires": list(dist.requires or ())})
    return found


def modules(requirement: str) -> list[str]:
    """The names under which an installed library is imported."""
    name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
    with suppress(PackageNotFoundError):
        files = [file.parts for file in distribution(name).files or ()]
        return sorted({parts[0].removesuffix(".py") for parts in files if parts[-1].endswith(".py")} - {".."})
    return []


def instrumentors() -> list[dict[str, Any]]:
    """Every registered instrumentor; ours are asked for their libraries and whether they are at work."""
    found: list[dict[str, Any]] = []
    for entry in entry_points(group="opentelemetry_instrumentor"):
        package = canonical(entry.dist.name) if entry.dist else ""
        row: dict[str, Any] = {"name": entry.name, "package": package, "libraries": [], "active": False, "error": ""}
        row["modules"] = []
        if package == _OURS:
            try:
                instrumentor = entry.load()()
                row["libraries"] = list(instrumentor.instrumentation_dependencies())
                row["modules"] = [name for library in row["libraries"] for name in modules(library)]
                row["active"] = bool(instrumentor.is_instrumented_by_opentelemetry)
            except Exception as error:
                row["error"] = f"{type(error).__name__}: {error}"
        found.append(row)
    return found


def exporters(provider: Any) -> list[Any]:
    """The span exporters behind a provider, through whatever processors hold them."""
    from opentelemetry.sdk.trace.export import SpanExporter

    found: dict[int, Any] = {}
    seen: set[int] = set()

    def look(thing: Any, depth: int) -> None:
        if isinstance(thing, SpanExporter):
            found[id(thing)] = thing
            return
        if depth == 0 or id(thing) in seen or not type(thing).__module__.startswith(("opentelemetry", "memtrace_otel")):
            return
        seen.add(id(thing))
        names = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
        for name in [*getattr(thing, "__dict__", ()), *names]:
            value = getattr(thing, name, None)
            items: list[Any] = [*value] if isinstance(value, (tuple, list)) else [value]
            for item in items:
                look(item, depth - 1)

    look(getattr(provider, "_active_span_processor", None), 4)
    return list(found.values())


def receiver(exporter: Any) -> dict[str, Any]:
    """An exporter: its kind, and for OTLP whether its receiver can be reached and answers an empty export."""
    module = type(exporter).__module__
    row: dict[str, Any] = {
        "kind": type(exporter).__name__,
        "protocol": "",
        "endpoint": "",
        "path": str(getattr(exporter, "path", "")),
        "spool": spool(exporter),
        "reached": None,
        "answered": None,
        "error": "",
    }
    if not module.startswith("opentelemetry.exporter.otlp"):
        return row
    row["protocol"] = "grpc" if ".grpc." in module else "http/protobuf"
    endpoint = str(getattr(exporter, "_endpoint", ""))
    row["endpoint"] = endpoint
    parts = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((parts.hostname or "", port), CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        if not getproxies_environment():  # it may be reached through one
            return row | {"reached": False, "error": str(error)}
        row["error"] = str(error)
    log = Log()
    logging.getLogger("opentelemetry").addHandler(log)
    try:
        with http_replies() as replies:
            answered = exporter.export([]).name == "SUCCESS"
    except Exception as error:
        return row | {"reached": True, "answered": False, "error": f"{type(error).__name__}: {error}"}
    finally:
        logging.getLogger("opentelemetry").removeHandler(log)
    said = " ".join(filter(None, [row["error"], *log.lines[:1]]))
    for reply in replies if answered else ():  # the exporter takes both for a success, and the spans are lost
        status = (reply.history or [reply])[0].status_code
        if 300 <= status < 400:
            answered, said = False, f"code: {status}, a redirect to another address"
        elif "html" in reply.headers.get("content-type", "").lower():
            answered, said = False, f"a web page (status {reply.status_code}) instead of an OTLP reply"
    return row | {"reached": True, "answered": answered, "error": "" if answered else said}


@contextmanager
def http_replies() -> Iterator[list[Any]]:
    """Collect the replies that `requests`, which the OTLP/HTTP exporter uses, gets meanwhile."""
    replies: list[Any] = []
    try:
        from requests import Session
    except ImportError:
        yield replies
        return
    send = Session.send

    def noted(self: Any, request: Any, **options: Any) -> Any:
        replies.append(send(self, request, **options))
        return replies[-1]

    Session.send = noted
    try:
        yield replies
    finally:
        Session.send = send


def spool(exporter: Any) -> str:
    """Directory in which spans for this exporter wait, '' when this package is too old to have one."""
    try:
        from memtrace_otel.capture.processor.spool import spool_directory
    except ImportError:
        return ""
    return str(spool_directory(exporter))


def kept_share(sampler: Any) -> float:
    """Share of new traces that a sampler keeps: evenly spread ids, so that a ratio shows as what it is."""
    step = (1 << 64) // _SAMPLES
    results = [sampler.should_sample(None, (1 << 64) + number * step, "create_memory") for number in range(_SAMPLES)]
    return sum(result.decision.is_sampled() for result in results) / _SAMPLES


def provider_facts() -> dict[str, Any]:
    from opentelemetry import trace

    provider = trace.get_tracer_provider()
    facts: dict[str, Any] = {"provider": f"{type(provider).__module__}.{type(provider).__qualname__}", "sdk": False}
    try:
        from opentelemetry.sdk.trace import TracerProvider
    except ImportError:
        return facts
    if not isinstance(provider, TracerProvider):
        return facts
    limits = getattr(provider, "_span_limits", None)
    return facts | {
        "sdk": True,
        "sampler": provider.sampler.get_description(),
        "kept": kept_share(provider.sampler),
        "attributes": getattr(limits, "max_span_attributes", None),
        "links": getattr(limits, "max_links", None),
        "length": getattr(limits, "max_span_attribute_length", None) or getattr(limits, "max_attribute_length", None),
        "exporters": [receiver(exporter) for exporter in exporters(provider)],
    }


def settings_facts() -> dict[str, dict[str, str]]:
    """Our settings as the program sees them, options of OTEL_CONFIG_FILE included."""
    from memtrace_otel import settings

    facts: dict[str, dict[str, str]] = {}
    for setting in settings.TABLE:
        found = setting.find()
        facts[setting.name] = {"value": setting.shown(found.value), "source": found.source, "problem": found.problem}
    return facts


def unusable_facts(*, load: bool) -> dict[str, str]:
    """Settings that can be read, but whose values lead nowhere, and why: the program drops contents for them.

    `load` tells whether the module of a callback may be imported: it may be the program itself.
    """
    from memtrace_otel import settings

    found: dict[str, str] = {}
    with suppress(ImportError, AttributeError):  # this package may be too old to have them
        from memtrace_otel.capture.redaction.callback import find_callback, load_callback
        from memtrace_otel.capture.redaction.patterns import read_patterns

        if problems := read_patterns(settings.REDACT_PATTERNS.read()).problems:
            found[settings.REDACT_PATTERNS.name] = "; ".join(problems)
        use_callback = load_callback if load else find_callback
        if value := settings.REDACT_CALLBACK.read():
            try:
                use_callback(value)
            except Exception as error:
                found[settings.REDACT_CALLBACK.name] = f"{type(error).__name__}: {error}"
    return found


def file_facts() -> dict[str, Any]:
    """Of OTEL_CONFIG_FILE: the instrumentations that it switches off, our settings in it, each with the instrumentor
    that it stands under, and what of them cannot be used."""
    from memtrace_otel import settings

    off: list[str] = []
    places: dict[str, str] = {}
    wrong: list[dict[str, str]] = []
    ours = {entry.name for entry in entry_points(group="opentelemetry_instrumentor") if is_ours(entry)}
    for name, options in options_in_file().items():
        if not options.get("enabled", True):
            off.append(name)
        if name not in ours:
            if name.startswith("memtrace"):
                wrong.append(
                    {"place": name, "problem": f"no instrumentor has the name {name}", "like": like(name, ours)}
                )
            continue
        for option, value in options.items():
            if option == "enabled":
                continue
            if option not in settings.NAMES:
                said = {"problem": f"{option} is no setting", "like": like(option, settings.NAMES)}
                wrong.append({"place": f"{name}: {option}", **said})
                continue
            places[option] = name
            try:
                if value is not None:
                    settings.NAMES[option].convert(value)
            except ValueError as error:
                wrong.append({"place": f"{name}: {option}", "problem": str(error), "like": ""})
    return {"off": off, "places": places, "wrong": wrong}


def options_in_file() -> dict[str, dict[str, Any]]:
    """The options of instrumentations in OTEL_CONFIG_FILE; none when it cannot be read, which the SDK has told then."""
    file = os.environ.get("OTEL_CONFIG_FILE")
    with suppress(Exception):
        from opentelemetry.configuration import load_config_file  # pyright: ignore[reportMissingTypeStubs]

        told = load_config_file(file).instrumentation_development if file else None
        return {name: dict(options or {}) for name, options in ((told and told.python) or {}).items()}
    return {}


def like(name: str, known: Iterable[str]) -> str:
    return next(iter(get_close_matches(name, known, 1)), "")


def is_ours(entry: Any) -> bool:
    return bool(entry.dist) and canonical(entry.dist.name) == _OURS


def components() -> dict[str, list[str]]:
    """The names of OpenTelemetry's entry points, by group."""
    groups = entry_points()
    return {group: sorted(groups.select(group=group).names) for group in groups.groups if "opentelemetry_" in group}


def leave_the_spool_alone() -> None:
    """Keep our span processor out: it would send what waits on disk."""
    with suppress(ImportError):
        from memtrace_otel.capture import hooks

        hooks.post_instrument = lambda: None


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever prints while loading must not mix with the answer
    if sys.argv[1:] == ["--components"]:
        json.dump(components(), out)
    elif sys.argv[1:] == ["--settings"]:
        json.dump({"unusable": unusable_facts(load=False)}, out)
    else:
        json.dump(all_facts(), out)
    out.flush()
    os._exit(0)  # no shutdown of exporters, no atexit of what was loaded


def all_facts() -> dict[str, Any]:
    log = Log()
    logging.getLogger().addHandler(log)
    facts: dict[str, Any] = {
        "python": sys.executable,
        "version": list(sys.version_info[:3]),
        "packages": packages(),
        "exporters": [],
        "instrumentors": [],
        "settings": {},
    }
    for name in ("OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER"):
        os.environ[name] = "none"
    os.environ["OTEL_EXPORTER_OTLP_TIMEOUT"] = os.environ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT"] = str(CONNECT_SECONDS)
    try:
        from opentelemetry.instrumentation.auto_instrumentation import (  # pyright: ignore[reportMissingTypeStubs]
            initialize,
        )

        leave_the_spool_alone()
        initialize()
        facts |= {"instrumentors": instrumentors(), **provider_facts()}
        facts |= {"settings": settings_facts(), "unusable": unusable_facts(load=True)}
        facts |= {"file": file_facts()}
    except Exception as error:
        log.lines.append(f"{type(error).__name__}: {error}")
    facts["log"] = log.lines
    return facts


main()
