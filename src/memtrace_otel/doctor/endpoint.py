"""OTLP receivers: is somebody there, and does it take what is sent?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from shlex import quote
from urllib.parse import urlsplit

from memtrace_otel.doctor.finding import Finding, ok, problem
from memtrace_otel.doctor.program import Exporter, ObservedProgram
from memtrace_otel.doctor.remedies import change_sdk

_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_HEADERS = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
_EXPORTER_IN_FILE = "tracer_provider: processors: - batch: {exporter: {%s: {%s}}}"
_NO_SCHEME = "grpc://"  # gRPC takes `host:port`
_PORT_OF = {"grpc": 4317, "http/protobuf": 4318}
_IN_FILE_NAME = {"grpc": "otlp_grpc", "http/protobuf": "otlp_http"}
_HTTP_PATH = "/v1/traces"
_USER = re.compile(r"(?<=://)[^/?#]*@")
_STATUS_OF = {
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "UNIMPLEMENTED": 404,
    "RESOURCE_EXHAUSTED": 429,
    "UNAVAILABLE": 503,
}
"""Codes of gRPC as those of HTTP that mean the same."""
_PHRASES = {status.phrase: status.value for status in HTTPStatus}
_NOT_TLS = re.compile("WRONG_VERSION_NUMBER|wrong version number")
_BAD_CERTIFICATE = re.compile("CERTIFICATE_VERIFY_FAILED|certificate verify failed", re.IGNORECASE)
_NOT_HTTP2 = re.compile("HTTP/2|SETTINGS frame|failed to connect|Socket closed|Connection reset|recvmsg")
_NOT_HTTP = re.compile("BadStatusLine|Connection aborted|RemoteDisconnected|Connection reset")
_PROXY = re.compile("proxy", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Reason:
    """Why a receiver takes nothing, what to type, and what to write into the exporter of a configuration file."""

    said: str
    command: str
    option: str


def check_endpoints(program: ObservedProgram) -> Iterator[Finding]:
    """Every OTLP exporter of the program."""
    for exporter in program.exporters:
        if exporter.protocol:
            yield _check(exporter, program)


def _check(exporter: Exporter, program: ObservedProgram) -> Finding:
    endpoint = _public(exporter.endpoint)
    if exporter.reached and exporter.answered:
        return ok("endpoint", f"{endpoint} takes spans by {exporter.protocol}")
    error = exporter.error
    for secret in filter(None, _secrets(exporter.endpoint)):  # messages of HTTP libraries name the whole URL
        error = error.replace(secret, "***")
    reason = _reason(exporter, error, program.environ)
    in_file = _EXPORTER_IN_FILE % (_IN_FILE_NAME[exporter.protocol], reason.option)
    return problem("endpoint", f"{endpoint} {reason.said}", change_sdk(program, reason.command, in_file))


def _reason(exporter: Exporter, error: str, environ: Mapping[str, str]) -> _Reason:
    protocol, environ_names = exporter.protocol, [name for name in _VARIABLES if environ.get(name)]
    variable = next(iter(environ_names), _VARIABLES[1])
    other = next(name for name in _PORT_OF if name != protocol)
    host = _host(exporter.endpoint)
    told = f"({error})" if error else ""
    speak = f"export {_protocol_variable(environ)}={other}"
    speak_in_file = f"...}}}}}} -> {_IN_FILE_NAME[other]}: {{endpoint: ..."
    if _port(exporter.endpoint) == _PORT_OF[other]:
        said = f"is spoken to in {protocol}, but {_PORT_OF[other]} is the port of {other}"
        return _Reason(said, speak, speak_in_file)
    if _PROXY.search(error) and (proxy := _proxy_variable(environ)):
        said = f"is asked through the proxy of {proxy}, which does not pass it on {told}"
        return _Reason(said, f"export NO_PROXY={host} no_proxy={host}", "endpoint: ...")
    if protocol != "grpc" and "://" not in exporter.endpoint:
        there = _with_scheme(exporter.endpoint, "http", variable)
        return _Reason("does not begin with http:// or https://", f"export {variable}={there}", f"endpoint: {there}")
    if not exporter.reached:
        where = f"http://<collector>:{_PORT_OF[protocol]}"
        remedy = f"export {variable}={where}  # where it listens"
        if not environ_names:
            remedy = "export OTEL_TRACES_EXPORTER=memtrace  # or start a collector there"
        return _Reason(f"is not reachable: {error}", remedy, f"endpoint: {where}")
    if protocol == "grpc" and "@" in exporter.endpoint:
        plain = _with_scheme(exporter.endpoint, "http", variable)
        said = f"cannot be resolved, as the endpoint names a user: gRPC takes credentials in {_HEADERS[1]}"
        return _Reason(said, f"export {variable}={plain}", f"endpoint: {plain}")
    if _NOT_TLS.search(error):
        plain = _with_scheme(exporter.endpoint, "http", variable)
        return _Reason("is spoken to by TLS, but does not speak it", f"export {variable}={plain}", f"endpoint: {plain}")
    if _BAD_CERTIFICATE.search(error):
        command = "export OTEL_EXPORTER_OTLP_CERTIFICATE=ca.pem  # of the authority that signed its certificate"
        return _Reason(f"shows a certificate that is not trusted {told}", command, "tls: {ca_file: ca.pem}")
    if (_NOT_HTTP2 if protocol == "grpc" else _NOT_HTTP).search(error):
        by_tls = f"export {variable}={_with_scheme(exporter.endpoint, 'https', variable)}"
        said = f"is there, but does not answer in {protocol}: it may speak {other}, or TLS {told}"
        return _Reason(said, f"{speak}  # or: {by_tls}", speak_in_file)
    return _refused(exporter, _status(error), error, variable, environ)


def _refused(exporter: Exporter, status: int, error: str, variable: str, environ: Mapping[str, str]) -> _Reason:
    """It answered that it does not take spans."""
    endpoint = _public(exporter.endpoint)
    parts = urlsplit(_url(endpoint))
    if status in (401, 403):
        name = next((name for name in _HEADERS if environ.get(name)), _HEADERS[1])
        shown = f"the credentials in {name}" if environ.get(name) else "a request without credentials"
        said = f"does not accept {shown} (401)" if status == 401 else f"forbids {shown} to write here (403)"
        headers = "headers: [{name: authorization, value: Bearer <token>}]"
        return _Reason(said, f"export {name}='authorization=Bearer%20<token>'  # one that may write", headers)
    if status in (404, 405):
        if exporter.protocol != "grpc" and parts.path != _HTTP_PATH:
            there = parts._replace(path=_HTTP_PATH).geturl()
            said = f"is not where OTLP over HTTP is taken ({status}): the path is {_HTTP_PATH}"
            return _Reason(said, f"export {_VARIABLES[0]}={there}", f"endpoint: {there}")
        port = _PORT_OF[exporter.protocol]
        there = f"http://{_host(exporter.endpoint)}:{port}"
        said = f"is a server that takes no OTLP by {exporter.protocol} here ({status})"
        path = _HTTP_PATH if exporter.protocol != "grpc" else ""
        of_variable = path if variable == _VARIABLES[0] else ""
        command = f"export {variable}={there}{of_variable}  # where the receiver listens, {port} as a rule"
        return _Reason(said, command, f"endpoint: {there}{path}")
    ask = f"curl -i -X POST -H 'content-type: application/x-protobuf' {quote(endpoint)}"
    if exporter.protocol == "grpc":
        ask = "memtrace-otel doctor"
    if status in (429, 502, 503, 504):
        said = f"cannot take spans at the moment ({status}: behind, or not ready yet): they wait on disk until it can"
        return _Reason(said, f"{ask}  # again, until it takes them; give the receiver more room", "endpoint: ...")
    said = f"does not take spans by {exporter.protocol}: {error}"
    return _Reason(said, f"{ask}  # its answer and its log say why", "endpoint: ...")


def _status(error: str) -> int:
    """The status that an exporter's message names, in numbers of HTTP; 0 for none."""
    if found := re.search(r"code: (\d{3})\b", error):
        return int(found[1])
    if found := re.search(r"StatusCode\.(\w+)", error):
        return _STATUS_OF.get(found[1], 0)
    if found := re.search(r"Transient error (.+?) encountered", error):
        return _PHRASES.get(found[1], 0)
    return 0


def _protocol_variable(environ: Mapping[str, str]) -> str:
    """The variable that decides on the protocol."""
    of_traces = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
    return of_traces if environ.get(of_traces) else "OTEL_EXPORTER_OTLP_PROTOCOL"


def _proxy_variable(environ: Mapping[str, str]) -> str:
    names = ("https_proxy", "http_proxy", "grpc_proxy", "all_proxy")
    return next((name for name in sorted(environ) if name.lower() in names and environ[name]), "")


def _with_scheme(endpoint: str, scheme: str, variable: str) -> str:
    """The endpoint under another scheme, as `variable` takes it: the path of traces is added to the general one."""
    parts = urlsplit(_url(_public(endpoint)))
    path = parts.path if variable == _VARIABLES[0] else parts.path.removesuffix(_HTTP_PATH)
    return parts._replace(scheme=scheme, path=path).geturl()


def _host(endpoint: str) -> str:
    try:
        return urlsplit(_url(endpoint)).hostname or ""
    except ValueError:
        return ""


def _port(endpoint: str) -> int | None:
    try:
        return urlsplit(_url(endpoint)).port
    except ValueError:
        return None


def _url(endpoint: str) -> str:
    return endpoint if "://" in endpoint else f"{_NO_SCHEME}{endpoint}"


def _public(endpoint: str) -> str:
    """The endpoint without user, password and query."""
    url = _USER.sub("", re.split(r"[?#]", _url(endpoint))[0])
    return url.rstrip("/").removeprefix(_NO_SCHEME)


def _secrets(endpoint: str) -> tuple[str | None, ...]:
    try:
        parts = urlsplit(_url(endpoint))
    except ValueError:
        return (endpoint,)
    return parts.query, parts.password, parts.username
