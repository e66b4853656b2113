"""Reads files of spans: OTLP/JSON (one request per line or per file), OTLP protobuf, graph JSON; gzip of each.

A JSON file of the Collector may also hold logs and metrics: evaluations among the logs are taken, as by the receiver.
Everything is checked here, so that an import can be refused before anything is written.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import cast

from memtrace_otel import semconv, settings
from memtrace_otel.otlp.decode import DecodeError, check_ids, check_wire_version, parse_request
from memtrace_otel.otlp.json import Json, json_to_logs, json_to_request
from memtrace_otel.otlp.receiver import Limits, RequestError, check_logs

MAX_DOCUMENT_BYTES = 256 << 20
"""Largest single request or graph, which is held in memory; the file is not."""

OTHER_LOGS = f"log records other than {semconv.EVALUATION_EVENT} in the context of a span"
METRICS = "requests of metrics"

_ALL = Limits(MAX_DOCUMENT_BYTES, MAX_DOCUMENT_BYTES, sys.maxsize, sys.maxsize)
"""An import is all or nothing: no record is dropped for its size."""
_TRACES, _LOGS = ("resourceSpans", "resource_spans"), ("resourceLogs", "resource_logs")
_METRICS = ("resourceMetrics", "resource_metrics")
_SNIFFED_BYTES = 1024
_GZIP = b"\x1f\x8b"
_JSON = re.compile(rb'(\xef\xbb\xbf)?\s*(\{\s*("[^\x00-\x1f"]|\})|\[)')


class InputError(ValueError):
    """A file that cannot be imported: path, line (from 1; 0 is the file as a whole) and reason."""

    def __init__(self, path: str | Path, line: int, reason: str) -> None:
        super().__init__(f"{path}:{line}: {reason}" if line else f"{path}: {reason}")
        self.path = str(path)
        self.line = line
        self.reason = reason


@dataclass(frozen=True, slots=True)
class OtlpBody:
    """A valid OTLP trace request in protobuf, found at `line`; evaluations of a logs request are judge spans in it."""

    body: bytes
    line: int = 0


@dataclass(frozen=True, slots=True)
class GraphDocument:
    """A smartcomment or MemTraceBench graph. Only the keys `graph_id` and `data` of its root are checked."""

    graph: Json
    line: int = 0


@dataclass(frozen=True, slots=True)
class Skipped:
    """Items at `line` that say nothing about memory: `count` of `OTHER_LOGS` or `METRICS`."""

    what: str
    count: int
    line: int = 0


Item = OtlpBody | GraphDocument | Skipped


def read_file(path: str | Path) -> Iterator[Item]:
    """Yield the items of the file, each one checked. Raises InputError at the first fault.

    Memory is bounded by the largest single request; the file, unpacked, by the setting `MEMTRACE_MAX_IMPORT_BYTES`.
    """
    path = Path(path)
    with _named_errors(path), path.open("rb") as file:
        stream = gzip.GzipFile(fileobj=file) if file.peek(2).startswith(_GZIP) else file
        start = stream.peek(_SNIFFED_BYTES)
        if not start:
            raise InputError(path, 0, "the file is empty")
        source = _Source(path, stream, settings.MAX_IMPORT_BYTES.read())
        if _JSON.match(start):
            yield from _read_json(source)
        else:
            yield _read_protobuf(source)


class _Source:
    """Reads a file up to a limit of inflated bytes."""

    def __init__(self, path: Path, stream: BufferedReader | gzip.GzipFile, limit: int) -> None:
        self.path = path
        self._stream = stream
        self._limit = limit
        self._left = limit

    def lines(self) -> Iterator[tuple[int, bytes]]:
        number = 0
        while line := self._taken(self._stream.readline(self._allowance()), number + 1):
            number += 1
            yield number, line

    def rest(self, line: int, start: bytes = b"") -> bytes:
        return start + self._taken(self._stream.read(self._allowance()), line)

    def _allowance(self) -> int:
        return min(self._left, MAX_DOCUMENT_BYTES) + 1

    def _taken(self, data: bytes, line: int) -> bytes:
        if len(data) > self._left:
            raise InputError(self.path, line, f"larger than {self._limit} bytes ({settings.MAX_IMPORT_BYTES.env})")
        if len(data) > MAX_DOCUMENT_BYTES:
            raise InputError(self.path, line, f"a single document larger than {MAX_DOCUMENT_BYTES} bytes")
        self._left -= len(data)
        return data


def _read_protobuf(source: _Source) -> OtlpBody:
    body = source.rest(0)
    try:
        _check(body)
    except DecodeError as error:
        raise InputError(source.path, 0, f"neither JSON nor a valid OTLP trace request in protobuf: {error}") from None
    return OtlpBody(body)


def _read_json(source: _Source) -> Iterator[Item]:
    """Read one document per line, or a document over several lines: then neither of the first two lines is one."""
    first = True
    lines = source.lines()
    for number, line in lines:
        if not line.strip():
            continue
        try:
            document = _parse(source.path, number, line)
        except InputError:
            following = next(lines, (0, b""))[1] if first else b""
            if not first or _is_document(following):
                raise
            document = _parse(source.path, number, source.rest(number, line + following))
        first = False
        yield from _items(source.path, number, document)


def _parse(path: Path, line: int, text: bytes) -> object:
    try:
        return json.loads(text.rstrip())
    except json.JSONDecodeError as error:
        where = line + error.lineno - 1
        raise InputError(path, where, f"invalid or cut off JSON: {error.msg} (column {error.colno})") from None
    except RecursionError:
        raise InputError(path, line, "JSON nested too deeply") from None
    except ValueError as error:
        raise InputError(path, line, f"invalid JSON: {error}") from None


def _is_document(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _items(path: Path, line: int, document: object) -> Iterator[Item]:
    if not isinstance(document, dict):
        raise InputError(
            path, line, f"not OTLP: a JSON {type(document).__name__} instead of an object with resourceSpans"
        )
    document = cast("Json", document)
    if "graph_id" in document and "data" in document:
        yield GraphDocument(document, line)
        return
    traces, logs, metrics = (not document.keys().isdisjoint(names) for names in (_TRACES, _LOGS, _METRICS))
    try:
        if logs:
            yield from _evaluations(path, line, json_to_logs(document))
        if metrics:
            yield Skipped(METRICS, 1, line)
        if traces or not (logs or metrics):
            body = json_to_request(document)
            _check(body)
            yield OtlpBody(body, line)
    except DecodeError as error:
        raise InputError(path, line, str(error)) from None


def _evaluations(path: Path, line: int, body: bytes) -> Iterator[OtlpBody | Skipped]:
    """Yield the evaluations of a logs request, and the number of its other records."""
    try:
        checked = check_logs(body, _ALL)
    except RequestError as error:
        raise InputError(path, line, str(error)) from None
    if checked.spans:
        yield OtlpBody(checked.body, line)
    if checked.rejected:
        yield Skipped(OTHER_LOGS, checked.rejected, line)


def _check(body: bytes) -> None:
    """Raise DecodeError unless every span of the request has valid ids and a wire version we read."""
    for group in parse_request(body):
        for reason in (check_wire_version(group), *map(check_ids, group.spans)):
            if reason:
                raise DecodeError(reason)


@contextmanager
def _named_errors(path: Path) -> Generator[None]:
    """Raise errors of the file system and of gzip as InputError."""
    try:
        yield
    except EOFError:
        raise InputError(path, 0, "the gzip data is cut off") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(path, 0, f"damaged gzip data: {error}") from None
    except OSError as error:
        raise InputError(path, 0, error.strerror or str(error)) from None
