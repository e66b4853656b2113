"""OTLP receivers: nobody there, the wrong protocol, a receiver that refuses, one that takes spans."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from memtrace_otel.doctor import ObservedProgram, State
from memtrace_otel.doctor.endpoint import check_endpoints
from memtrace_otel.doctor.program import Exporter
from tests.unit.doctor.conftest import Examine, one


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture
def receiver() -> Iterator[HTTPServer]:
    """Answers each request with `status`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200 if self.path == "/login" else server.status)
            self.send_header("location", "/login")
            self.end_headers()

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(HTTPServer):
        status = 200

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def otlp(port: int, protocol: str) -> dict[str, str]:
    return {
        "OTEL_TRACES_EXPORTER": "otlp,memtrace",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://user:hush@127.0.0.1:{port}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
    }


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_closed_port(doctor: Examine, closed_port: int, protocol: str) -> None:
    found = one(doctor(**otlp(closed_port, protocol)), "endpoint")
    assert found.state == State.PROBLEM
    assert f"127.0.0.1:{closed_port}" in found.found
    assert "refused" in found.found
    assert found.remedy.startswith("export OTEL_EXPORTER_OTLP_ENDPOINT=http://")
    assert "hush" not in found.found


def test_nobody_at_the_default_endpoint(doctor: Examine) -> None:
    found = one(doctor(OTEL_TRACES_EXPORTER=None), "endpoint")
    assert found.state == State.PROBLEM
    assert found.remedy.startswith("export OTEL_TRACES_EXPORTER=memtrace")


@pytest.mark.parametrize(
    ("port", "protocol", "other"), [(4317, "http/protobuf", "grpc"), (4318, "grpc", "http/protobuf")]
)
def test_a_port_of_the_other_protocol(doctor: Examine, port: int, protocol: str, other: str) -> None:
    found = one(doctor(**otlp(port, protocol)), "endpoint")
    assert (found.state, found.remedy) == (State.PROBLEM, f"export OTEL_EXPORTER_OTLP_PROTOCOL={other}")


def test_a_receiver_that_takes_spans_and_one_that_refuses(doctor: Examine, receiver: HTTPServer) -> None:
    assert one(doctor(**otlp(receiver.server_port, "http/protobuf")), "endpoint").state == State.OK
    receiver.status = 401  # type: ignore[attr-defined]
    found = one(doctor(**otlp(receiver.server_port, "http/protobuf")), "endpoint")
    assert (found.state, "401" in found.found, "HEADERS" in found.remedy) == (State.PROBLEM, True, True)


def test_a_redirect_to_a_web_page_is_a_problem(doctor: Examine, receiver: HTTPServer) -> None:
    receiver.status = 307  # type: ignore[attr-defined]
    found = one(doctor(**otlp(receiver.server_port, "http/protobuf")), "endpoint")
    assert found.state == State.PROBLEM
    assert "code: 307, a redirect to another address" in found.found


def test_grpc_spoken_to_an_http_receiver(doctor: Examine, receiver: HTTPServer) -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{receiver.server_port}"}
    found = one(doctor(**otlp(receiver.server_port, "grpc") | endpoint), "endpoint")
    assert found.state == State.PROBLEM
    assert found.remedy.startswith("export OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf")


def test_a_user_in_an_endpoint_of_grpc(doctor: Examine, receiver: HTTPServer) -> None:
    found = one(doctor(**otlp(receiver.server_port, "grpc")), "endpoint")
    remedy = f"export OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:{receiver.server_port}"
    assert (found.state, found.remedy, "hush" in found.found) == (State.PROBLEM, remedy, False)


def test_tls_spoken_to_a_plain_receiver(doctor: Examine, receiver: HTTPServer) -> None:
    sent = otlp(receiver.server_port, "http/protobuf")
    found = one(
        doctor(**sent | {"OTEL_EXPORTER_OTLP_ENDPOINT": f"https://127.0.0.1:{receiver.server_port}"}), "endpoint"
    )
    remedy = f"export OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:{receiver.server_port}"
    assert (found.state, found.remedy) == (State.PROBLEM, remedy)


def test_a_proxy_in_the_way(doctor: Examine, receiver: HTTPServer, closed_port: int) -> None:
    sent = otlp(receiver.server_port, "http/protobuf") | {"http_proxy": f"http://127.0.0.1:{closed_port}"}
    found = one(doctor(**sent, NO_PROXY=None, no_proxy=None), "endpoint")
    remedy = "export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1"
    assert (found.state, found.remedy, "http_proxy" in found.found) == (State.PROBLEM, remedy, True)


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
@pytest.mark.parametrize(
    ("status", "code", "said", "remedy"),
    [
        (401, "UNAUTHENTICATED", "without credentials", "export OTEL_EXPORTER_OTLP_HEADERS='authorization=Bearer%20"),
        (403, "PERMISSION_DENIED", "forbids", "export OTEL_EXPORTER_OTLP_HEADERS="),
        (404, "UNIMPLEMENTED", "takes no OTLP", "export OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:431"),
        (429, "RESOURCE_EXHAUSTED", "429", "again, until it takes them"),
        (503, "UNAVAILABLE", "503", "again, until it takes them"),
        (500, "INTERNAL", "does not take spans", "its log"),
    ],
)
def test_why_a_receiver_refuses(status: int, code: str, said: str, remedy: str, protocol: str) -> None:
    error = (
        f"batch code: {status}, reason: x" if "http" in protocol else f"error code: StatusCode.{code}, error details: x"
    )
    endpoint = "http://collector:5000/v1/traces" if "http" in protocol else "collector:5000"
    exporter = Exporter("E", protocol, endpoint, "", "", True, False, error)
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:5000"}
    [found] = check_endpoints(ObservedProgram(environ, Path("python"), (3, 11), {}, [], {}, [], [exporter]))
    assert (found.state, said in found.found, remedy in found.remedy) == (State.PROBLEM, True, True), found
    file = {"OTEL_CONFIG_FILE": "otel.yaml"}
    [in_file] = check_endpoints(ObservedProgram(file, Path("python"), (3, 11), {}, [], {}, [], [exporter]))
    assert in_file.remedy.startswith("${EDITOR:-vi} otel.yaml  # tracer_provider: processors:")


def test_a_path_that_is_not_that_of_traces(doctor: Examine, receiver: HTTPServer) -> None:
    receiver.status = 404  # type: ignore[attr-defined]
    traces = f"http://127.0.0.1:{receiver.server_port}"
    sent = otlp(receiver.server_port, "http/protobuf") | {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": traces}
    found = one(doctor(**sent), "endpoint")
    assert found.remedy == f"export OTEL_EXPORTER_OTLP_TRACES_ENDPOINT={traces}/v1/traces"


def test_an_endpoint_without_a_scheme(doctor: Examine, receiver: HTTPServer) -> None:
    sent = otlp(receiver.server_port, "http/protobuf")
    found = one(doctor(**sent | {"OTEL_EXPORTER_OTLP_ENDPOINT": f"127.0.0.1:{receiver.server_port}"}), "endpoint")
    assert found.remedy == f"export OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:{receiver.server_port}"


def test_a_receiver_that_is_behind(doctor: Examine, receiver: HTTPServer) -> None:
    for status in (429, 503):
        receiver.status = status  # type: ignore[attr-defined]
        found = one(doctor(**otlp(receiver.server_port, "http/protobuf")), "endpoint")
        assert f"({status}: behind" in found.found


def test_digests_that_leave_the_machine_without_a_key(doctor: Examine, receiver: HTTPServer) -> None:
    sent = otlp(receiver.server_port, "http/protobuf")
    found = one(doctor(**sent, OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=None), "digest key")
    assert (found.state, found.remedy.startswith("export MEMTRACE_DIGEST_KEY=")) == (State.WARNING, True)
    found = one(doctor(**sent, OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="SPAN_ONLY"), "digest key")
    assert (found.state, "redaction" in found.found) == (State.WARNING, True)
    assert one(doctor(**sent, MEMTRACE_DIGEST_KEY="k"), "digest key").state == State.OK


@pytest.mark.parametrize("scheme", ["https://", ""])
@pytest.mark.parametrize(("reached", "answered"), [(False, None), (True, False), (True, True)])
def test_no_secret_of_an_endpoint_is_shown(scheme: str, reached: bool, answered: bool | None) -> None:
    secret = f"{scheme}ana:hush@collector.example:4318/v1/traces?api_key=QUIET#f"
    exporter = Exporter("E", "http/protobuf", secret, "", "", reached, answered, "refused: /v1/traces?api_key=QUIET")
    program = ObservedProgram({}, Path("python"), (3, 11), {}, [], {}, [], [exporter])
    [found] = check_endpoints(program)
    assert found.found.startswith(f"{scheme}collector.example:4318/v1/traces ")
    for text in ("ana", "hush", "QUIET"):
        assert text not in found.found + found.remedy
