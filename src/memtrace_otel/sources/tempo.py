"""Grafana Tempo as a `TraceSource`: traces by id (API v2), searches by TraceQL.

Every condition is on one span: before compaction Tempo keeps late spans apart from their trace.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import cast

from google.protobuf.message import DecodeError as ProtobufError

from memtrace_otel import semconv, settings
from memtrace_otel.model import OperationSpan, is_origin
from memtrace_otel.otlp import DecodeError, decode_request
from memtrace_otel.otlp.json import json_to_request
from memtrace_otel.semconv import Incomplete
from memtrace_otel.sources.errors import SourceLimitError
from memtrace_otel.sources.http import BackendApi, RefusedError, objects, span_id, trace_id
from memtrace_otel.sources.remote import Found, RemoteSource, TooMuchError
from memtrace_otel.sources.tempo_reply import read_trace_reply
from memtrace_otel.sources.wanted import Wanted, operation_names

_TRACES = 5000
_SECOND = 1_000_000_000
_LATE = 3600 * _SECOND
"""A span that comes more than two minutes late is filed under the time it came: searches look so much further."""
_WEEK = 7 * 24 * 3600 * _SECOND - _LATE - _SECOND
"""What Tempo searches at once unless it is told otherwise (`query_frontend.search.max_duration`)."""
_HIDDEN_SECONDS = (0.1, 0.3, 0.6)
"""For a moment while it moves a trace from memory to its log, Tempo gives none of it by id."""
_FOUND = 20_000
_PARTIAL = ("PARTIAL", 1)
"""The status of a trace in JSON that is not given whole."""
_PLAIN = re.compile(r"[0-9A-Za-z_:-]+")
_BLANK = r"[\s\v\pZ\x1c-\x1f\x85]*"
"""In Go's regexps what `str.strip` takes off."""
_PARSED_BYTES, _MARK = 1024, "\0"


@dataclass(slots=True)
class _Limits:
    """Traces, and time (ns), of one search, as far as Tempo has said that it takes no more."""

    traces: int = _TRACES
    time: int = _WEEK


class TempoSource(RemoteSource):
    """Tempo 2.7 or newer."""

    _there = "/api/search?limit=1"

    _finest = _SECOND

    def __init__(self, api: BackendApi, hours: int | None = None) -> None:
        super().__init__(api, hours)
        self._limits = _Limits()
        self._found: set[str] = set()

    def _read(self, trace_id: str) -> list[OperationSpan]:
        spans = self._read_now(trace_id)
        for seconds in _HIDDEN_SECONDS:
            if spans or trace_id not in self._found:
                return spans
            time.sleep(seconds)
            spans = self._read_now(trace_id)
        self._found.discard(trace_id)  # it is not there any more
        return spans

    def _read_now(self, trace_id: str) -> list[OperationSpan]:
        path = f"/api/v2/traces/{trace_id}"
        body = self.api.get(path, accept="application/protobuf", may_miss=True)
        try:
            trace, partial = read_trace_reply(body)
            spans = decode_request(trace)
        except (DecodeError, ProtobufError):
            # one byte that is no UTF-8, such as where Tempo cuts a string, makes all of it unreadable; in JSON none is
            spans, partial = self._in_json(trace_id, self.api.get_json(path, may_miss=True))
        # too large for Tempo to give it whole: what is there counts, and says so
        return (
            [replace(span, incomplete=(*span.incomplete, Incomplete.BOUNDED)) for span in spans] if partial else spans
        )

    def _in_json(self, trace_id: str, reply: Mapping[str, object]) -> tuple[list[OperationSpan], bool]:
        """Return the spans of a trace, and whether they are a part of it."""
        trace = reply.get("trace")
        try:
            spans = decode_request(json_to_request(cast("dict[str, object]", trace if isinstance(trace, dict) else {})))
        except DecodeError as error:
            raise SourceLimitError(str(self), f"trace {trace_id}: {error}", is_reply=True) from None
        return spans, reply.get("status") in _PARTIAL

    def _search(self, wanted: Wanted, since: int, until: int) -> Found:
        last = until + min(_LATE, until - since)
        query = {"q": traceql(wanted), "start": since // _SECOND, "end": -(-last // _SECOND)}
        try:
            document = self.api.get_json("/api/search", {**query, "limit": self._limits.traces, "spss": 1})
        except RefusedError as error:
            if "exceeds max limit" in error.reason:
                self._limits.traces //= 2
            elif "range specified" in error.reason:
                self._limits.time = (until - since) // 2
            else:
                raise
            raise TooMuchError(error.reason) from None
        found = objects(document, "traces")
        traces = {trace_id(trace): _matching(trace) for trace in found}
        if len(self._found) > _FOUND:
            self._found.clear()
        self._found.update(traces)
        if len(found) >= self._limits.traces:
            raise TooMuchError(f"{self._limits.traces} or more", traces)
        return traces

    def _at_once(self) -> int:
        return self._limits.time


def _matching(trace: Mapping[str, object]) -> list[str]:
    """The ids of its spans that match, as far as Tempo names them: of each group one."""
    return [span_id(span) for group in objects(trace, "spanSets") for span in objects(group, "spans")]


def traceql(wanted: Wanted) -> str:
    """Return the query for spans like `wanted`; more may match."""
    all = [_ours()] if wanted.failing else []
    if wanted.failing:
        all.append(_any(_failing()))
    if wanted.kinds:
        names = [name for kind in wanted.kinds for name in operation_names(kind)]
        kinds = [_equal(f"span.{semconv.OP_KIND}", wanted.kinds)]
        all.append(_any([*kinds, *([_equal(f"span.{semconv.GEN_AI_OPERATION_NAME}", names)] if names else [])]))
    if wanted.scopes and "" not in wanted.scopes:
        all.append(_equal(f"span.{semconv.SCOPE}", wanted.scopes))
    if wanted.names:
        origins = set(filter(is_origin, wanted.names))
        naming = (semconv.INPUTS_ORIGINS, origins), (semconv.OUTPUTS, wanted.names - origins)
        all.append(_any([_equal(f"span.{attribute}", names) for attribute, names in naming if names]))
    # Of spans apart from each other Tempo gives those of one part, but every group.
    return _laid_out(f"{{ {' && '.join(all)} }}{' | by(span:id)' if wanted.failing else ''}")


def _laid_out(query: str) -> str:
    """Return the query with spaces before those of its attributes that would lie across a multiple of 1,024 bytes,
    where Tempo's parser loses characters. A mark is in front of each."""
    laid_out, *rest = query.split(_MARK)
    size = len(laid_out.encode())
    for part in rest:
        left = _PARSED_BYTES - size % _PARSED_BYTES
        padded = " " * left + part if len(part.partition(" ")[0]) >= left else part
        laid_out += padded
        size += len(padded.encode())
    return laid_out


def _ours() -> str:
    return f"{_MARK}resource.{semconv.SERVICE_NAME} != {_quoted(semconv.ATTRIBUTION_SERVICE)}"


def _failing() -> list[str]:
    """A failing label in any writing, or a score below the threshold: of an integer Tempo compares integers only."""
    labels = "|".join(sorted(label.replace("_", "[ _]") for label in semconv.FAILING_LABELS))
    threshold = settings.EVALUATION_THRESHOLD.read()
    low = (f"{threshold:f}", f"{int(threshold) + (threshold > int(threshold)):d}")
    return [
        condition
        for on in ("span", "event")
        for condition in (
            f"{_MARK}{on}.{semconv.EVALUATION_LABEL} =~ {_quoted(f'(?i){_BLANK}({labels}){_BLANK}')}",
            *(f"{_MARK}{on}.{semconv.EVALUATION_SCORE} < {number}" for number in low),
        )
    ]


def _equal(attribute: str, values: Iterable[str]) -> str:
    """A condition that an attribute, or an element of it, is one of the values. Those are anybody's."""
    values = sorted(values)
    plain = [value for value in values if _PLAIN.fullmatch(value)]
    if len(plain) < 2:
        return _any([f"{_MARK}{attribute} = {_quoted(value)}" for value in values])
    others = [f"{_MARK}{attribute} = {_quoted(value)}" for value in values if value not in plain]
    return _any([f"{_MARK}{attribute} =~ {_quoted('|'.join(plain))}", *others])


def _any(conditions: list[str]) -> str:
    return conditions[0] if len(conditions) == 1 else f"({' || '.join(conditions)})"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
