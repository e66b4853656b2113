"""What `run` adds to the environment, and what it leaves as the user set it."""

from __future__ import annotations

from pathlib import Path

import pytest

from memtrace_otel.launch import LaunchError, recording_environment, sending_environment, trace_exporters

CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


def made(environ: dict[str, str], **arguments: object) -> dict[str, str]:
    given = {"database": Path("run.db"), "name": "app"} | arguments
    return recording_environment(environ, **given)  # type: ignore[arg-type]


def test_nothing_is_needed() -> None:
    assert made({"HOME": "/root"}) == {
        "HOME": "/root",
        "OTEL_TRACES_EXPORTER": "memtrace",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
        "OTEL_SERVICE_NAME": "app",
        "MEMTRACE_DB": str(Path("run.db").absolute()),
        "MEMTRACE_JOIN_PROVIDER": "true",
    }


@pytest.mark.parametrize(
    ("environ", "exporters"),
    [
        ({}, ["memtrace"]),
        ({"OTEL_TRACES_EXPORTER": "none"}, ["memtrace"]),
        ({"OTEL_TRACES_EXPORTER": ""}, ["memtrace"]),
        ({"OTEL_TRACES_EXPORTER": "memtrace"}, ["memtrace"]),
        ({"OTEL_TRACES_EXPORTER": "otlp , console"}, ["otlp", "console", "memtrace"]),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317"}, ["otlp", "memtrace"]),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4317"}, ["otlp", "memtrace"]),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317", "OTEL_TRACES_EXPORTER": "none"}, ["memtrace"]),
    ],
)
def test_the_database_is_added_to_where_spans_already_go(environ: dict[str, str], exporters: list[str]) -> None:
    assert trace_exporters(environ) == exporters


def test_what_the_user_set_stays() -> None:
    environ = {
        "OTEL_SERVICE_NAME": "shop",
        "OTEL_METRICS_EXPORTER": "otlp",
        "OTEL_LOGS_EXPORTER": "console",
        CONTENT: "SPAN_AND_EVENT",
        "MEMTRACE_JOIN_PROVIDER": "false",
    }
    assert environ.items() <= made(environ, content=True).items()
    assert "OTEL_SERVICE_NAME" not in made({"OTEL_RESOURCE_ATTRIBUTES": "service.name=shop"})


def test_arguments_win() -> None:
    assert made({"OTEL_SERVICE_NAME": "shop"}, service="other")["OTEL_SERVICE_NAME"] == "other"
    assert made({CONTENT: "SPAN_ONLY"}, content=False)[CONTENT] == "NO_CONTENT"
    assert made({CONTENT: "true"}, content=True)[CONTENT] == "SPAN_ONLY"
    assert CONTENT not in made({})


@pytest.mark.parametrize(
    ("endpoint", "protocol", "path"),
    [
        ("http://localhost:4317", "grpc", ""),
        ("https://collector", "grpc", ""),
        ("http://localhost:4318", "http/protobuf", "/v1/traces"),
        ("https://backend/otlp", "http/protobuf", "/v1/traces"),
        ("https://backend/otlp/v1/traces", "http/protobuf", ""),
    ],
)
def test_otlp_names_a_receiver_that_gets_traces_as_well(endpoint: str, protocol: str, path: str) -> None:
    environ = made({"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "otlp"}, endpoint=endpoint)
    assert environ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] == endpoint + path
    assert environ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] == protocol
    assert environ["OTEL_TRACES_EXPORTER"] == "console,otlp,memtrace"
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" not in environ
    chosen = made({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, endpoint=endpoint)
    assert chosen["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] == "grpc"
    assert chosen["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] == endpoint


def test_exporters_are_compared_by_name() -> None:
    environ = made({"OTEL_TRACES_EXPORTER": "notlp"}, endpoint="http://localhost:4317")
    assert environ["OTEL_TRACES_EXPORTER"] == "notlp,otlp,memtrace"
    environ = made({"OTEL_TRACES_EXPORTER": "none"}, endpoint="http://localhost:4317")
    assert environ["OTEL_TRACES_EXPORTER"] == "otlp,memtrace"


@pytest.mark.parametrize(
    "backend",
    [
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://backend", "OTEL_EXPORTER_OTLP_HEADERS": "api-key=1"},
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://backend"},
        {"OTEL_EXPORTER_OTLP_TRACES_HEADERS": "api-key=1"},
        {"OTEL_PYTHON_EXPORTER_OTLP_HTTP_TRACES_CREDENTIAL_PROVIDER": "cloud"},
        {"OTEL_TRACES_EXPORTER": "console, otlp"},
        {"OTEL_TRACES_EXPORTER": "otlp_proto_http"},
    ],
)
def test_otlp_neither_replaces_a_backend_nor_takes_its_credentials_along(backend: dict[str, str]) -> None:
    with pytest.raises(LaunchError, match=f"leave --otlp out; .* type: unset {' '.join(backend)}") as refused:
        made(backend, endpoint="http://localhost:4317")
    assert "api-key" not in str(refused.value)


@pytest.mark.parametrize("endpoint", ["localhost:4317", "ftp://x", "http://", "http://x:port"])
def test_an_endpoint_that_is_no_url_is_refused(endpoint: str) -> None:
    with pytest.raises(LaunchError, match="http://localhost:4317"):
        made({}, endpoint=endpoint)


@pytest.mark.parametrize("environ", [{"OTEL_CONFIG_FILE": "otel.yaml"}, {"OTEL_SDK_DISABLED": "True"}])
def test_what_rules_recording_out_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(LaunchError, match=f"unset {next(iter(environ))}"):
        made(environ)


@pytest.mark.parametrize(
    ("given", "endpoint", "protocol"),
    [
        ("http://localhost:4317", "http://localhost:4317", "grpc"),
        ("localhost:4317", "http://localhost:4317", "grpc"),
        ("https://backend", "https://backend", "grpc"),
        ("http://localhost:4318", "http://localhost:4318", "http/protobuf"),
        ("http://localhost:4318/v1/traces", "http://localhost:4318", "http/protobuf"),
        ("https://backend/otlp/", "https://backend/otlp", "http/protobuf"),
    ],
)
def test_every_signal_goes_to_the_address_given(given: str, endpoint: str, protocol: str) -> None:
    environ = sending_environment({"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://elsewhere:1", "HOME": "/root"}, given)
    assert environ == {
        "HOME": "/root",
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        "OTEL_TRACES_EXPORTER": "otlp",
    }


def test_headers_and_protocol_of_the_environment_stay() -> None:
    own = {"OTEL_EXPORTER_OTLP_HEADERS": "api-key=1", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}
    environ = sending_environment({**own, "OTEL_TRACES_EXPORTER": "console,otlp"}, "http://backend:9999")
    assert environ["OTEL_EXPORTER_OTLP_HEADERS"] == "api-key=1"
    assert environ["OTEL_EXPORTER_OTLP_PROTOCOL"] == "http/protobuf"
    assert environ["OTEL_TRACES_EXPORTER"] == "console,otlp"


def test_headers_of_another_receiver_do_not_go_along() -> None:
    own = {"OTEL_EXPORTER_OTLP_HEADERS": "api-key=1", "OTEL_EXPORTER_OTLP_ENDPOINT": "https://backend"}
    assert sending_environment(own, "https://backend")["OTEL_EXPORTER_OTLP_HEADERS"] == "api-key=1"
    with pytest.raises(LaunchError, match="type: unset OTEL_EXPORTER_OTLP_ENDPOINT") as refused:
        sending_environment(own, "http://localhost:4317")
    assert "api-key" not in str(refused.value)


def test_an_address_without_a_port_is_one_of_http_alone() -> None:
    """gRPC would go to port 443."""
    environ = {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
    assert sending_environment(environ, "backend")["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://backend"
    for send in (sending_environment, lambda environ, endpoint: made(environ, endpoint=endpoint)):
        with pytest.raises(LaunchError, match="names no port; for example: http://backend:4317"):
            send({}, "http://backend")


@pytest.mark.parametrize("endpoint", ["", "ftp://x", "http://", "http://x:port"])
def test_an_address_that_is_none_is_refused(endpoint: str) -> None:
    with pytest.raises(LaunchError, match="--otlp-endpoint"):
        sending_environment({}, endpoint)
