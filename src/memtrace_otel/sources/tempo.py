"""Grafana Tempo as a `TraceSource`: traces by id (API v2), searches by TraceQL.

Every condition of a search is on one span: before compaction Tempo keeps late spans apart from their trace. Traces are
read as JSON: protobuf with a string that Tempo cut within a character cannot be decoded.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import cast

from memtrace_otel import semconv, settings
from memtrace_otel.model import OperationSpan, is_origin
from memtrace_otel.otlp import decode_request
from memtrace_otel.otlp.json import json_to_request
from memtrace_otel.semconv import Incomplete
from memtrace_otel.sources.http import BackendApi, ReplyError, objects, span_id, trace_id
from memtrace_otel.sources.query import SpanQuery, operation_names
from memtrace_otel.sources.reader import Found, TooMuchError
from memtrace_otel.sources.remote import RemoteSource

_TRACES = 5000
_SECOND = 1_000_000_000
_LATE = 3600 * _SECOND
"""Tempo files a span that comes more than two minutes late under its arrival: searches look so much further (ns)."""
_WEEK = 7 * 24 * 3600 * _SECOND - _LATE - _SECOND
"""The longest search of Tempo's defaults (`query_frontend.search.max_duration`)."""
_HIDDEN_SECONDS = (0.1, 0.3, 0.6)
"""While Tempo moves a trace from memory to its log, the trace cannot be read by id: pauses before further tries."""
_FOUND = 20_000
_PARTIAL = ("PARTIAL", 1)
"""The status of a trace that is not returned whole."""
_PLAIN = re.compile(r"[0-9A-Za-z_:-]+")
_BLANK = r"[\s\v\pZ\x1c-\x1f\x85]*"
"""White space of `str.strip` as a regular expression of Go."""
_PARSED_BYTES, _MARK = 1024, "\0"


@dataclass(slots=True)
class _Limits:
    """Most traces and longest time (ns) of one search, reduced when Tempo refuses more."""

    traces: int = _TRACES
    time: int = _WEEK


class TempoSource(RemoteSource):
    """Tempo 2.7 or newer."""

    _probe = "/api/search?limit=1"

    def __init__(self, api: BackendApi, hours: int | None = None, services: Collection[str] = ()) -> None:
        super().__init__(api, hours, services)
        self._limits = _Limits()
        self._found: set[str] = set()
        """Traces that a search has found."""

    def _read(self, trace_id: str) -> list[OperationSpan]:
        spans = self._read_now(trace_id)
        for seconds in _HIDDEN_SECONDS:
            if spans or trace_id not in self._found:
                return spans
            time.sleep(seconds)
            spans = self._read_now(trace_id)
        self._found.discard(trace_id)
        return spans

    def _read_now(self, trace_id: str) -> list[OperationSpan]:
        reply = self._api.get_json(f"/api/v2/traces/{trace_id}", may_miss=True)
        trace = reply.get("trace")
        document = cast("dict[str, object]", trace) if isinstance(trace, dict) else dict[str, object]()
        spans = decode_request(json_to_request({"resourceSpans": [], **document}))
        if reply.get("status") in _PARTIAL:
            return [replace(span, incomplete=(*span.incomplete, Incomplete.BOUNDED)) for span in spans]
        return spans

    def _search(self, query: SpanQuery, since: int, until: int) -> Found:
        last = until + min(_LATE, until - since)
        search = {"q": traceql(query), "start": since // _SECOND, "end": -(-last // _SECOND), "spss": 1}
        try:
            document = self._api.get_json("/api/search", {**search, "limit": self._limits.traces})
        except ReplyError as error:
            if "exceeds max limit" in str(error):
                self._limits.traces //= 2
            elif "range specified" in str(error):
                self._limits.time = (until - since) // 2
            else:
                raise
            raise TooMuchError(str(error)) from None
        traces = {trace_id(trace): _matching(trace) for trace in objects(document, "traces")}
        if len(self._found) > _FOUND:
            self._found.clear()
        self._found.update(traces)
        if len(traces) >= self._limits.traces:
            raise TooMuchError(f"{self._limits.traces} or more", traces)
        return traces

    def _search_length(self) -> int:
        return self._limits.time


def _matching(trace: Mapping[str, object]) -> list[str]:
    """Return the ids of the matching spans that Tempo names: one of each group."""
    return [span_id(span) for group in objects(trace, "spanSets") for span in objects(group, "spans")]


def traceql(query: SpanQuery) -> str:
    """Return the TraceQL of a query; more spans may match."""
    conditions = [_not_ours(), _any(_failing())] if query.failing else []
    if query.kinds:
        names = [name for kind in query.kinds for name in operation_names(kind)]
        kinds = [_equal(f"span.{semconv.OP_KIND}", query.kinds)]
        conditions.append(_any([*kinds, *([_equal(f"span.{semconv.GEN_AI_OPERATION_NAME}", names)] if names else [])]))
    if query.scopes and "" not in query.scopes:
        conditions.append(_equal(f"span.{semconv.SCOPE}", query.scopes))
    if query.names:
        origins = set(filter(is_origin, query.names))
        naming = (semconv.INPUTS_ORIGINS, origins), (semconv.OUTPUTS, query.names - origins)
        conditions.append(_any([_equal(f"span.{attribute}", names) for attribute, names in naming if names]))
    # Tempo returns the spans of one part of a trace, but every group of spans.
    return _avoid_cuts(f"{{ {' && '.join(conditions)} }}{' | by(span:id)' if query.failing else ''}")


def _avoid_cuts(query: str) -> str:
    """Return the query with spaces before attributes that lie across a multiple of 1,024 bytes.

    Tempo's parser loses characters there. A mark is in front of each attribute.
    """
    laid_out, *rest = query.split(_MARK)
    size = len(laid_out.encode())
    for part in rest:
        left = _PARSED_BYTES - size % _PARSED_BYTES
        padded = " " * left + part if len(part.partition(" ")[0]) >= left else part
        laid_out += padded
        size += len(padded.encode())
    return laid_out


def _not_ours() -> str:
    return f"{_MARK}resource.{semconv.SERVICE_NAME} != {_quoted(semconv.ATTRIBUTION_SERVICE)}"


def _failing() -> list[str]:
    """Return conditions: a failing label in any spelling, a score below the threshold.

    Tempo compares an integer score with integers only.
    """
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
    """Return the condition that an attribute, or an element of it, is one of the values, which are foreign texts."""
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
