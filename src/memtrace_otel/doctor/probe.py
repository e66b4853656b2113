"""Print what a program gets under `opentelemetry-instrument`, as one JSON object; runs inside the program's own Python.

The script stands alone: the interpreter reads the script from standard input and may have neither this package nor
OpenTelemetry. The script loads the real distro, configurator and instrumentors, asks the sampler and connects to the
receivers. The script writes nothing and makes no span.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
from contextlib import suppress
from importlib.metadata import distributions, entry_points
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

CONNECT_SECONDS = 2.0
_SAMPLES = 256
_MAX_LOG = 50
_OURS = "memtrace-otel"


class Log(logging.Handler):
    """Keeps warnings of OpenTelemetry and of this package."""

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
    """Every distribution with version and requirements; Python imports the first of two with one name."""
    found: dict[str, dict[str, Any]] = {}
    for dist in distributions():
        if name := dist.metadata["Name"]:
            found.setdefault(canonical(name), {"version": dist.version, "requires": list(dist.requires or ())})
    return found


def instrumentors() -> list[dict[str, Any]]:
    """Every registered instrumentor; ours with their libraries and state."""
    found: list[dict[str, Any]] = []
    for entry in entry_points(group="opentelemetry_instrumentor"):
        row: dict[str, Any] = {"name": entry.name, "package": canonical(entry.dist.name) if entry.dist else ""}
        if row["package"] == _OURS:
            try:
                instrumentor = entry.load()()
                row["libraries"] = list(instrumentor.instrumentation_dependencies())
                row["active"] = bool(instrumentor.is_instrumented_by_opentelemetry)
            except Exception as error:
                row["error"] = f"{type(error).__name__}: {error}"
        found.append(row)
    return found


def exporters(provider: Any) -> list[Any]:
    """The span exporters behind a provider, through any nesting of processors."""
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
    """An exporter; for OTLP also whether the receiver is reachable and answers an empty export."""
    module = type(exporter).__module__
    path = str(getattr(exporter, "path", ""))
    row: dict[str, Any] = {"kind": type(exporter).__name__, "path": path, "spool": spool(exporter)}
    if not module.startswith("opentelemetry.exporter.otlp"):
        return row
    endpoint = str(getattr(exporter, "_endpoint", ""))
    row |= {"protocol": "grpc" if ".grpc." in module else "http/protobuf", "endpoint": endpoint}
    parts = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((parts.hostname or "", port), CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        return row | {"reached": False, "error": str(error)}
    log = Log()
    logging.getLogger("opentelemetry").addHandler(log)
    try:
        if row["protocol"] != "grpc" and (wrong := not_a_receiver(endpoint)):
            return row | {"reached": True, "answered": False, "error": wrong}
        answered = exporter.export([]).name == "SUCCESS"
    except Exception as error:
        return row | {"reached": True, "answered": False, "error": f"{type(error).__name__}: {error}"}
    finally:
        logging.getLogger("opentelemetry").removeHandler(log)
    return row | {"reached": True, "answered": answered, "error": "" if answered else " ".join(log.lines[:1])}


def not_a_receiver(endpoint: str) -> str:
    """Why an HTTP endpoint that answers is no OTLP receiver: a redirect or a web page. Empty when nothing is wrong."""

    class NoRedirect(HTTPRedirectHandler):
        def redirect_request(self, *arguments: Any, **named: Any) -> None:
            return None

    request = Request(endpoint, data=b"", headers={"content-type": "application/x-protobuf"})
    try:
        with build_opener(NoRedirect).open(request, timeout=CONNECT_SECONDS) as reply:
            kind = reply.headers.get("content-type", "")
            return f"a web page ({kind}) with status {reply.status}" if "html" in kind else ""
    except HTTPError as error:
        where = error.headers.get("location", "nowhere")
        return f"code: {error.code}, a redirect to {where}" if 300 <= error.code < 400 else ""
    except (OSError, ValueError):
        return ""  # the export says what is wrong


def spool(exporter: Any) -> str:
    """Directory of the spans that wait for this exporter; empty when this package is too old to have one."""
    try:
        from memtrace_otel.capture.delivery.spool import spool_directory
    except ImportError:
        return ""
    return str(spool_directory(exporter))


def kept_share(sampler: Any) -> float:
    """Share of new traces that a sampler keeps, asked for evenly spread trace ids."""
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
    """Our settings as the program reads them, options of OTEL_CONFIG_FILE included."""
    from memtrace_otel import settings

    found = {setting: setting.find() for setting in settings.TABLE}
    return {
        setting.name: {"value": setting.shown(value.value), "source": value.source, "problem": value.problem}
        for setting, value in found.items()
    }


def leave_the_spool_alone() -> None:
    """Keep our span processor out: the processor would send spans that wait on disk."""
    with suppress(ImportError):
        from memtrace_otel.capture import hooks

        hooks.post_instrument = lambda: None


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
        facts |= {"instrumentors": instrumentors(), "settings": settings_facts(), **provider_facts()}
    except Exception as error:
        log.lines.append(f"{type(error).__name__}: {error}")
    facts["log"] = log.lines
    return facts


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of loaded modules must not mix with the JSON object
    json.dump(all_facts(), out)
    out.flush()
    os._exit(0)  # no shutdown of exporters, no atexit function of loaded modules


main()
