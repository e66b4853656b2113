"""OTLP receivers: the reason why a receiver takes nothing, and the command that helps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memtrace_otel.doctor import Finding, State
from memtrace_otel.doctor.endpoint import check_endpoints
from memtrace_otel.doctor.program import Exporter
from tests.unit.doctor.conftest import MakeProgram

HTTP = Exporter("OTLPSpanExporter", "http/protobuf", "http://there:4318/v1/traces", reached=True, answered=False)
GRPC = Exporter("OTLPSpanExporter", "grpc", "there:4317", reached=True, answered=False)


def finding(program: MakeProgram, exporter: Exporter, **environ: str) -> Finding:
    [found] = check_endpoints(program(exporters=[exporter], environ=environ))
    return found


def test_a_receiver_that_answers_is_right(program: MakeProgram) -> None:
    assert finding(program, replace(HTTP, answered=True)).state == State.OK


@pytest.mark.parametrize(
    ("exporter", "found", "remedy"),
    [
        (replace(HTTP, reached=False, error="refused"), "not reachable: refused", "EXPORTER=memtrace"),
        (replace(HTTP, endpoint="http://there:4317/v1/traces"), "port of grpc", "PROTOCOL=grpc"),
        (replace(GRPC, endpoint="there:4318"), "port of http/protobuf", "PROTOCOL=http/protobuf"),
        (replace(HTTP, error="code: 401, reason"), "refuses the credentials", "HEADERS='authorization"),
        (replace(GRPC, error="StatusCode.UNAUTHENTICATED"), "refuses the credentials", "HEADERS='authorization"),
        (replace(HTTP, error="code: 302, a redirect to /login"), "is no OTLP receiver", "ENDPOINT=http://there:4318"),
        (replace(HTTP, error="a web page (text/html) with status 200"), "is no OTLP receiver", "ENDPOINT="),
        (replace(GRPC, error="StatusCode.UNIMPLEMENTED"), "is no OTLP receiver", "ENDPOINT=http://there:4317"),
        (replace(HTTP, error="code: 503"), "takes no spans at the moment", "doctor"),
        (replace(HTTP, error="[SSL: WRONG_VERSION_NUMBER]"), "does not speak TLS", "ENDPOINT=http://"),
        (replace(HTTP, error="certificate verify failed"), "not trusted", "CERTIFICATE=ca.pem"),
        (replace(HTTP, error="code: 418"), "does not take spans by http/protobuf: code: 418", "PROTOCOL=grpc"),
    ],
)
def test_each_reason_is_named_with_its_remedy(
    program: MakeProgram, exporter: Exporter, found: str, remedy: str
) -> None:
    told = finding(program, exporter)
    assert told.state == State.PROBLEM
    assert found in told.found
    assert remedy in told.remedy


def test_secrets_of_an_endpoint_are_not_shown(program: MakeProgram) -> None:
    url = "http://ana:hush@there:4318/v1/traces?key=secret7"
    told = finding(program, replace(HTTP, endpoint=url, error=f"cannot post to {url} as ana:hush"))
    assert not {"hush", "secret7"} & set(told.found.replace(":", " ").replace("@", " ").replace("?", " ").split())
    assert "secret7" not in told.found
