"""Metrics of this command to where the environment says, as `opentelemetry-instrument` does it for programs."""

from __future__ import annotations

import atexit
import logging
import os
from importlib.metadata import entry_points

from opentelemetry.environment_variables import OTEL_METRICS_EXPORTER
from opentelemetry.metrics import get_meter_provider, set_meter_provider
from opentelemetry.sdk.environment_variables import (
    OTEL_EXPORTER_OTLP_METRICS_ENDPOINT,
    OTEL_EXPORTER_OTLP_METRICS_PROTOCOL,
    OTEL_EXPORTER_OTLP_PROTOCOL,
    OTEL_SERVICE_NAME,
)

from memtrace_otel import semconv

_logger = logging.getLogger(__name__)
_GROUP = "opentelemetry_metrics_exporter"
_LAST_SECONDS = 5.0
"""So long the last values may take; the SDK tries a receiver that is gone for half a minute."""


def export_metrics(instance: str = "") -> bool:
    """Set up OpenTelemetry's MeterProvider for the exporters that OTEL_METRICS_EXPORTER names, and tell whether it did.

    Without that setting, OTLP is used when OTEL_EXPORTER_OTLP_METRICS_ENDPOINT is set; the endpoint of all signals
    is not enough, since receivers of traces often take no metrics. A provider that is there stays. The last values
    go out when the process ends, within five seconds. `instance` is the `service.instance.id` where
    OTEL_RESOURCE_ATTRIBUTES names none, '': one of each process.
    """
    names = _exporters()
    if not names:
        return False
    from opentelemetry.sdk.metrics import MeterProvider  # not for those who export nothing
    from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    if isinstance(get_meter_provider(), MeterProvider):
        return False
    readers: list[MetricReader] = []
    for name in names:
        found = next(iter(entry_points(group=_GROUP, name=name)), None)
        try:
            made = found.load()() if found else None
        except Exception as error:  # a setting of the exporter that it cannot use; what else there is goes on
            _logger.warning("the metrics exporter %s cannot be started: %s", name, error)
            continue
        if made is None:
            _logger.warning("%s names %r: no such exporter is installed", OTEL_METRICS_EXPORTER, name)
        else:
            readers.append(made if isinstance(made, MetricReader) else PeriodicExportingMetricReader(made))
    given = os.environ.get(OTEL_SERVICE_NAME) or semconv.ATTRIBUTION_SERVICE
    named: dict[str, str] = {semconv.SERVICE_NAME: given}
    if instance and semconv.SERVICE_INSTANCE_ID not in OTELResourceDetector().detect().attributes:
        named[semconv.SERVICE_INSTANCE_ID] = instance
    provider = MeterProvider(readers, Resource.create(named), shutdown_on_exit=False)
    atexit.register(provider.shutdown, _LAST_SECONDS * 1000)
    set_meter_provider(provider)
    return bool(readers)


def _exporters() -> list[str]:
    """The names of the exporters; that of OTLP says which protocol."""
    given = os.environ.get(OTEL_METRICS_EXPORTER, "")
    if not given.strip() and os.environ.get(OTEL_EXPORTER_OTLP_METRICS_ENDPOINT):
        given = "otlp"
    named = [name.strip() for name in given.split(",") if name.strip() not in ("", "none")]
    protocol = os.environ.get(OTEL_EXPORTER_OTLP_METRICS_PROTOCOL) or os.environ.get(OTEL_EXPORTER_OTLP_PROTOCOL, "")
    otlp = "otlp_proto_http" if protocol == "http/protobuf" else "otlp_proto_grpc"
    return [otlp if name == "otlp" else name for name in named]
