"""Jaeger as a `TraceSource`: traces by API v3, searches by the API of Jaeger's own page.

API v3 over HTTP ignores the attributes of a search (1.76), the API of the page uses them. A search is of one service
and compares an attribute with one text. An array is compared as a whole, so readers of an origin are searched for among
the spans of their kind. Badger, Elasticsearch and Cassandra return arrays as JSON text, which is decoded, and no link
attributes, which nothing here needs.

The API of the page fails at every trace with a number that JSON does not have (NaN, infinity). Where a search fails so,
API v3 is asked for all traces of this service and time.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import cast

from memtrace_otel import semconv
from memtrace_otel.model import OperationSpan, has_evaluation, rfc3339
from memtrace_otel.otlp import DecodeError, decode_request
from memtrace_otel.otlp.fields import array_of_text
from memtrace_otel.otlp.json import json_to_request
from memtrace_otel.sources.http import ReplyError, objects, span_id, trace_id, values
from memtrace_otel.sources.query import SpanQuery, operation_names
from memtrace_otel.sources.reader import PARALLEL, Found, TooMuchError
from memtrace_otel.sources.remote import RemoteSource

_logger = logging.getLogger(__name__)
_TRACES, _WHOLE_TRACES = 200, 50
"""Most traces of one search, which returns them whole: by the API of the page, and by API v3."""
_MANY_SERVICES = 50
_MANY_SEARCHES = 10
"""With so many searches of a service, one more search first tells whether the service has any trace in the time."""
_EVALUATION = (semconv.EVALUATION_LABEL, semconv.EVALUATION_SCORE)


class JaegerSource(RemoteSource):
    """Jaeger 1.35 or newer, v2 included. Without named services, every service that Jaeger knows is searched."""

    _probe = "/api/v3/services"
    _finest = 1000
    _finds_names = False

    def _read(self, trace_id: str) -> list[OperationSpan]:
        query = {"raw_traces": "true"}  # else Jaeger moves times where clocks seem to differ
        return _decode(self._api.get_json(f"/api/v3/traces/{trace_id}", query, may_miss=True))

    def _search(self, query: SpanQuery, since: int, until: int) -> Found:
        services = sorted(query.services) or self._services()
        with ThreadPoolExecutor(PARALLEL) as pool:
            results = list(pool.map(partial(self._search_service, query=query, since=since, until=until), services))
        found = {trace_id: spans for traces, _ in results for trace_id, spans in traces.items()}
        if too_much := next((reason for _, reason in results if reason), ""):
            # a service without a trace in this time has none in a part of it
            some = {service for service, (traces, why) in zip(services, results, strict=True) if traces or why}
            raise TooMuchError(too_much, found, replace(query, services=frozenset(some)))
        return found

    def _failing_queries(self) -> Collection[SpanQuery]:
        # two queries: there are many judge spans, which divide the time; the many spellings of a label need no division
        return SpanQuery(kinds=frozenset({semconv.OpKind.JUDGE}), failing=True), SpanQuery(failing=True)

    def _search_length(self) -> int:
        return 1 << 63

    def _services(self) -> list[str]:
        if self._named_services:
            return self._named_services
        services = self._cache.services if self._cache else None
        if services is None:
            known = values(self._api.get_json("/api/v3/services"), "services")
            services = [str(name) for name in known if name != semconv.ATTRIBUTION_SERVICE]
            if len(services) >= _MANY_SERVICES and "services" not in self._logged:
                self._logged.add("services")
                _logger.warning("%s: %d services are searched; ?service=NAME names some", self, len(services))
            if self._cache:
                self._cache.services = services
        return services

    def _search_service(self, service: str, query: SpanQuery, since: int, until: int) -> tuple[Found, str]:
        """Return what is found in a service, and why this is not all ('' when it is)."""
        searches = list(_searches(query))
        found: dict[str, Collection[str]] = {}
        too_much = ""
        try:
            if len(searches) >= _MANY_SEARCHES and not self._traces(service, {}, since, until, 1):
                return {}, ""
            for tags in searches:
                traces = self._traces(service, tags, since, until, _TRACES)
                found |= {trace_id(trace): _matching(trace, query) for trace in traces}
                if len(traces) >= _TRACES:
                    too_much = f"{_TRACES} or more of {service}"
                    if self._middle(since, until):
                        break
        except ReplyError:  # maybe at one trace, which API v3 can read, or the reply is too large
            return self._read_service(service, query, since, until)
        return found, too_much

    def _traces(
        self, service: str, tags: Mapping[str, str], since: int, until: int, limit: int
    ) -> list[Mapping[str, object]]:
        query: dict[str, str | int] = {"service": service, "limit": limit}
        query |= {"start": since // 1000, "end": -(-until // 1000)}
        if tags:
            query["tags"] = json.dumps(tags)
        return objects(self._api.get_json("/api/traces", query, may_fail=True), "data")

    def _read_service(self, service: str, query: SpanQuery, since: int, until: int) -> tuple[Found, str]:
        """Return what `_search_service` does, found among all traces of the service, a few at a time."""
        limit = _WHOLE_TRACES if self._middle(since, until) else _TRACES
        search = {
            "query.service_name": service,
            "query.start_time_min": rfc3339(since),
            "query.start_time_max": rfc3339(until + 999),
            "query.num_traces": limit,
        }
        try:
            spans = _decode(self._api.get_json("/api/v3/traces", search, may_miss=True))
        except (DecodeError, ReplyError) as error:
            if isinstance(error, ReplyError) and error.status:  # not a reply that is too large
                raise
            return {}, str(error)
        traces: defaultdict[str, list[OperationSpan]] = defaultdict(list)
        for span in spans:
            traces[span.trace_id].append(span)
        found = {
            trace_id: [span.span_id for span in spans if (query.matches(span) if query.names else has_evaluation(span))]
            for trace_id, spans in traces.items()
            if query.names or any(map(query.matches, spans))
        }
        return found, f"{limit} or more of {service}" if len(traces) >= limit else ""


def _decode(reply: Mapping[str, object]) -> list[OperationSpan]:
    """Return the spans of a reply of API v3. Raises DecodeError."""
    result = reply.get("result")
    document = cast("dict[str, object]", result) if isinstance(result, dict) else dict[str, object]()
    return decode_request(json_to_request({"resourceSpans": [], **document}))


def _matching(trace: Mapping[str, object], query: SpanQuery) -> list[str]:
    """Return the ids of the spans that may name what a search cannot ask for; without names: of the evaluations."""
    spans = objects(trace, "spans")
    if query.names:
        return [span_id(one) for one in spans if any(_may_name(tag, query.names) for tag in objects(one, "tags"))]
    return [span_id(one) for one in spans if any(map(_is_evaluation, _attributes(one)))]


def _may_name(tag: Mapping[str, object], names: frozenset[str]) -> bool:
    if tag.get("key") not in (semconv.INPUTS_ORIGINS, semconv.OUTPUTS):
        return False
    elements = array_of_text(str(tag.get("value")))
    return not isinstance(elements, list) or not names.isdisjoint(map(str, cast("list[object]", elements)))


def _attributes(span: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    yield from objects(span, "tags")
    for log in objects(span, "logs"):
        yield from objects(log, "fields")


def _is_evaluation(tag: Mapping[str, object]) -> bool:
    key = tag.get("key")
    return key in _EVALUATION or (key == semconv.OP_KIND and tag.get("value") == semconv.OpKind.JUDGE)


def _searches(query: SpanQuery) -> Iterator[dict[str, str]]:
    """Yield the attributes of each search that a query needs, {} for a search of all traces."""
    if query.failing and not query.kinds:
        yield from ({semconv.EVALUATION_LABEL: label} for label in _spellings())
    elif query.scopes and "" not in query.scopes:
        yield from ({semconv.SCOPE: scope} for scope in sorted(query.scopes))
    elif query.kinds:
        for kind in sorted(query.kinds):
            yield {semconv.OP_KIND: kind}
            yield from ({semconv.GEN_AI_OPERATION_NAME: name} for name in operation_names(kind))
    else:
        yield {}


def _spellings() -> list[str]:
    """Return the failing labels in their usual spellings: a search compares whole texts."""
    words = [text for label in semconv.FAILING_LABELS for text in (label, label.replace("_", " "))]
    return sorted({text for word in words for text in (word, word.capitalize(), word.title(), word.upper())})
