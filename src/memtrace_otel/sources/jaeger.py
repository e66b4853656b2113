"""Jaeger as a `TraceSource`: traces by API v3, searches by the API of Jaeger's own page.

API v3 over HTTP ignores the attributes of a search (1.76), the page's API takes them. It searches one service at a
time, for attributes that are equal to a text: of an array the whole text, so that readers of an origin are looked for
among the spans of their kind. Nothing tells beforehand which services have such spans, nor do the names of their spans:
one of any name may take part or carry an evaluation. Badger, Elasticsearch and Cassandra give arrays back as JSON text,
which is read as well, and no link attributes, which nothing here needs.

The page's API fails at any trace with a number that JSON does not have (NaN, an infinity), and so does each search that
finds one; API v3 gives it. Where a search fails, API v3 is asked for all traces of that service and time.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import repeat
from typing import cast

from memtrace_otel import semconv, settings
from memtrace_otel.model import OperationSpan, has_evaluation, rfc3339
from memtrace_otel.otlp import DecodeError, decode_request
from memtrace_otel.otlp.fields import array_of_text
from memtrace_otel.otlp.json import json_to_request
from memtrace_otel.sources.errors import SourceLimitError
from memtrace_otel.sources.http import INTERNAL_ERROR, BackendApi, FailedError, listed, objects, span_id, trace_id
from memtrace_otel.sources.remote import AT_A_TIME, Found, RemoteSource, TooMuchError
from memtrace_otel.sources.wanted import Wanted, operation_names

_logger = logging.getLogger(__name__)
_TRACES, _WHOLE_TRACES = 200, 50
"""Most traces of one search: they come whole."""
_MANY = 50
"""So many services are worth a word: each one is asked in every search."""
_MANY_SEARCHES = 10
"""So many of one service are worth another one, first: for whether it has any trace in the time."""
_EVALUATION = (semconv.EVALUATION_LABEL, semconv.EVALUATION_SCORE)


class JaegerSource(RemoteSource):
    """Jaeger 1.35 or newer, v2 included."""

    _there = "/api/v3/services"
    _finest = 1000
    _finds_elements = False

    def __init__(self, api: BackendApi, hours: int | None = None) -> None:
        super().__init__(api, hours)
        self._warned: set[str] = set()

    def _read(self, trace_id: str) -> list[OperationSpan]:
        # raw: else times are moved where clocks seem to differ
        path = f"/api/v3/traces/{trace_id}"
        try:
            return _spans(self.api.get_json(path, {"raw_traces": "true"}, may_miss=True))
        except DecodeError as error:
            raise SourceLimitError(str(self), f"trace {trace_id}: {error}", is_reply=True) from None

    def _search(self, wanted: Wanted, since: int, until: int) -> Found:
        services = sorted(wanted.services) or self._services()
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            told = list(pool.map(self._of, services, repeat(wanted), repeat(since), repeat(until)))
        found = {trace_id: spans for traces, _ in told for trace_id, spans in traces.items()}
        if too_much := next((reason for _, reason in told if reason), ""):
            # a service that has none in all this time has none in a part of it
            some = (service for service, (traces, reason) in zip(services, told, strict=True) if traces or reason)
            raise TooMuchError(too_much, found, replace(wanted, services=frozenset(some)))
        return found

    def _for_failing(self) -> Collection[Wanted]:
        # apart: judgements, whatever they say, are many and divide the time; the many spellings of a label need not
        return Wanted(kinds=frozenset({semconv.OpKind.JUDGE}), failing=True), Wanted(failing=True)

    def _at_once(self) -> int:
        return 1 << 63

    def _services(self) -> list[str]:
        """Return those to search: what the setting names, else every one but our own."""
        services = self._kept.services if self._kept else None
        if services is None:
            services = self._named_or_known()
            if self._kept:
                self._kept.services = services
        return services

    def _named_or_known(self) -> list[str]:
        known = [str(name) for name in listed(self.api.get_json("/api/v3/services"), "services")]
        if named := {name for part in settings.SOURCE_SERVICES.read().split(",") if (name := part.strip())}:
            for name in sorted(named.difference(known)):
                self._warn_once(name, f"there is no service {name!r} ({settings.SOURCE_SERVICES.env}) as yet")
            return sorted(named)
        services = [name for name in known if name != semconv.ATTRIBUTION_SERVICE]
        self.api.advice = f"each of {len(services)} services is searched: {settings.SOURCE_SERVICES.env} can name some"
        if len(services) >= _MANY:
            self._warn_once("", self.api.advice)
        return services

    def _warn_once(self, about: str, message: str) -> None:
        if about not in self._warned:
            self._warned.add(about)
            _logger.warning("%s: %s", self, message)

    def _of(self, service: str, wanted: Wanted, since: int, until: int) -> tuple[Found, str]:
        """Return what is found in a service, and why that is not all."""
        searches = list(_tags(wanted))
        if len(searches) >= _MANY_SEARCHES and self._is_silent(service, since, until):
            return {}, ""
        found: dict[str, Collection[str]] = {}
        too_much = ""
        for tags in searches:
            try:
                traces = self._traces(service, tags, since, until, _TRACES)
            except TooMuchError as error:
                too_much = str(error)
            except _BrokenError:
                return self._looked_through(service, wanted, since, until)
            else:
                found |= {trace_id(trace): _such(trace, wanted) for trace in traces}
                if len(traces) >= _TRACES:
                    too_much = f"{_TRACES} or more of {service}"
            if too_much and self._middle(since, until):
                break
        return found, too_much

    def _is_silent(self, service: str, since: int, until: int) -> bool:
        """Tell whether a service has no trace at all."""
        try:
            return not self._traces(service, {}, since, until, 1)
        except (TooMuchError, _BrokenError):  # at a trace that no search may come upon
            return False

    def _traces(
        self, service: str, tags: Mapping[str, str], since: int, until: int, most: int
    ) -> list[Mapping[str, object]]:
        query: dict[str, str | int] = {"service": service, "limit": most}
        query |= {"start": since // 1000, "end": -(-until // 1000)}
        if tags:
            query["tags"] = json.dumps(tags)
        try:
            return objects(self.api.get_json("/api/traces", query, may_fail=True), "data")
        except SourceLimitError as error:
            if not error.is_reply:
                raise
            raise TooMuchError(error.reason) from None
        except FailedError as error:
            if error.status != INTERNAL_ERROR:
                raise
            raise _BrokenError from None

    def _looked_through(self, service: str, wanted: Wanted, since: int, until: int) -> tuple[Found, str]:
        """Return what `_of` does, found among all traces of the service; they are given whole: few at a time as long as
        the time can be divided."""
        most = _WHOLE_TRACES if self._middle(since, until) else _TRACES
        query = {
            "query.service_name": service,
            "query.start_time_min": rfc3339(since),
            "query.start_time_max": rfc3339(until + 999),
            "query.num_traces": most,
        }
        try:
            spans = _spans(self.api.get_json("/api/v3/traces", query, may_miss=True))
        except (SourceLimitError, DecodeError) as error:
            if isinstance(error, SourceLimitError) and not error.is_reply:
                raise
            return {}, str(error)
        traces: defaultdict[str, list[OperationSpan]] = defaultdict(list)
        for span in spans:
            traces[span.trace_id].append(span)
        found = {
            trace_id: [span.span_id for span in spans if (wanted.holds(span) if wanted.names else has_evaluation(span))]
            for trace_id, spans in traces.items()
            if wanted.names or any(map(wanted.holds, spans))
        }
        return found, f"{most} or more of {service}" if len(traces) >= most else ""


class _BrokenError(Exception):
    """The page's API fails at a trace there, or at anything."""


def _spans(reply: Mapping[str, object]) -> list[OperationSpan]:
    """Return the spans of a reply of API v3. Raises DecodeError."""
    result = reply.get("result")
    document = cast("dict[str, object]", result) if isinstance(result, dict) else dict[str, object]()
    return decode_request(json_to_request({"resourceSpans": [], **document}))


def _may_hold(tag: Mapping[str, object], names: frozenset[str]) -> bool:
    if tag.get("key") not in (semconv.INPUTS_ORIGINS, semconv.OUTPUTS):
        return False
    elements = array_of_text(str(tag.get("value")))
    return not isinstance(elements, list) or not names.isdisjoint(map(str, cast("list[object]", elements)))


def _such(trace: Mapping[str, object], wanted: Wanted) -> list[str]:
    """The ids of its spans that may read or list what is wanted, which a search cannot ask for; where nothing is named,
    of those with an evaluation, as `has_evaluation` tells: a search gives whole traces."""
    spans = objects(trace, "spans")
    if wanted.names:
        return [span_id(one) for one in spans if any(_may_hold(tag, wanted.names) for tag in objects(one, "tags"))]
    return [span_id(one) for one in spans if any(map(_is_evaluation, _told(one)))]


def _told(span: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    yield from objects(span, "tags")
    for log in objects(span, "logs"):
        yield from objects(log, "fields")


def _is_evaluation(tag: Mapping[str, object]) -> bool:
    key = tag.get("key")
    return key in _EVALUATION or (key == semconv.OP_KIND and tag.get("value") == semconv.OpKind.JUDGE)


def _tags(wanted: Wanted) -> Iterator[dict[str, str]]:
    """Yield the attributes of each search that is needed, {} when none of them says what is wanted."""
    if wanted.failing and not wanted.kinds:
        yield from ({semconv.EVALUATION_LABEL: label} for label in _spellings())
    elif wanted.scopes and "" not in wanted.scopes:
        yield from ({semconv.SCOPE: scope} for scope in sorted(wanted.scopes))
    elif wanted.kinds:
        for kind in sorted(wanted.kinds):
            yield {semconv.OP_KIND: kind}
            yield from ({semconv.GEN_AI_OPERATION_NAME: name} for name in operation_names(kind))
    else:
        yield {}


def _spellings() -> list[str]:
    """The failing labels as they are usually written: a search compares whole texts."""
    words = [text for label in semconv.FAILING_LABELS for text in (label, label.replace("_", " "))]
    return sorted({text for word in words for text in (word, word.capitalize(), word.title(), word.upper())})
