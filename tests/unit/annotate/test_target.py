"""The standard OTLP variables, read as the SDK's exporters read them."""

from __future__ import annotations

import pytest
from opentelemetry.environment_variables import OTEL_LOGS_EXPORTER

from memtrace_otel.annotate.target import TargetError, read_target, read_targets

BASE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318/", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}


def test_nothing_is_sent_when_nobody_said_where() -> None:
    assert read_target("traces", environ={}) is None


def test_http_appends_the_path_to_the_common_endpoint_only() -> None:
    target = read_target("logs", environ=BASE)
    assert target is not None
    assert target.endpoint == "http://collector:4318/v1/logs"
    own = {**BASE, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://other/otlp"}
    target = read_target("traces", environ=own)
    assert target is not None
    assert target.endpoint == "http://other/otlp"


def test_the_endpoint_argument_wins_over_the_environment() -> None:
    environ = {**BASE, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://other/otlp"}
    target = read_target("traces", "http://mine:9", environ)
    assert target is not None
    assert target.endpoint == "http://mine:9/v1/traces"


def test_protocol_is_grpc_by_default_and_signal_settings_win() -> None:
    target = read_target("traces", environ={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"})
    assert target is not None
    assert (target.protocol, target.endpoint, target.insecure) == ("grpc", "http://collector:4317", True)
    environ = {
        **BASE,
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20all",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "authorization=Bearer%20traces",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "3",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
    }
    target = read_target("traces", environ=environ)
    assert target is not None
    assert (target.headers, target.timeout, target.gzip) == ({"authorization": "Bearer traces"}, 3.0, True)


@pytest.mark.parametrize(
    ("url", "flag", "insecure"),
    [
        ("http://c:4317", "", True),
        ("https://c:4317", "true", False),
        ("c:4317", "", False),
        ("c:4317", "true", True),
    ],
)
def test_grpc_is_in_clear_text_when_scheme_or_flag_say_so(url: str, flag: str, insecure: bool) -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_INSECURE": flag}
    target = read_target("traces", environ=environ)
    assert target is not None
    assert target.insecure is insecure


def test_a_target_names_itself_without_secrets() -> None:
    target = read_target("traces", "http://user:secret@collector:4318", BASE)
    assert str(target) == "http://collector:4318/v1/traces"
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "user:secret@collector:4317"}
    assert str(read_target("traces", environ=environ)) == "collector:4317"
    environ = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector/traces?api-key=secret"}
    assert str(read_target("traces", environ=environ)) == "http://collector/traces"
    with pytest.raises(TargetError) as raised:
        read_target("traces", "ftp://user:secret@collector", BASE)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, "PROTOCOL is 'http/json'"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"}, "ENDPOINT is 'collector:4318'"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://[::1"}, "ENDPOINT is no URL"),
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": "soon"}, "TIMEOUT is 'soon'"),
        ({"OTEL_EXPORTER_OTLP_HEADERS": "authorization Bearer SECRET"}, "HEADERS is not name=value"),
        ({"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20SECRET%0ASECRET"}, "HEADERS holds a character"),
        ({"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer SECRET\nSECRET"}, "HEADERS holds a character"),
        (
            {"OTEL_EXPORTER_OTLP_HEADERS": "x-bin=SECRET", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "HEADERS names a header with -bin",
        ),
    ],
)
def test_a_malformed_setting_is_named(change: dict[str, str], message: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(TargetError, match=message) as raised:
        read_target("traces", environ={**BASE, **change})
    assert "SECRET" not in str(raised.value) + caplog.text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PROTOCOL", "http/json"),
        ("ENDPOINT", "collector:4318"),
        ("ENDPOINT", "http://[::1"),
        ("TIMEOUT", "soon"),
        ("HEADERS", "none"),
    ],
)
def test_a_malformed_setting_of_one_signal_is_named_as_it_was_read(name: str, value: str) -> None:
    with pytest.raises(TargetError, match=rf"^OTEL_EXPORTER_OTLP_LOGS_{name} is ") as raised:
        read_targets(environ={**BASE, f"OTEL_EXPORTER_OTLP_LOGS_{name}": value})
    assert ("collector:4318" in str(raised.value)) == (value == "collector:4318")
    traces, logs = read_targets(environ={**BASE, f"OTEL_EXPORTER_OTLP_LOGS_{name}": value, OTEL_LOGS_EXPORTER: "none"})
    assert (traces is None, logs) == (False, None)
