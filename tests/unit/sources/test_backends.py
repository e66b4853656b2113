"""Addresses of backends, the requests to Jaeger and Tempo, and their odd replies. tests/e2e has the real backends."""

from __future__ import annotations

import base64
import json
import re
import time
from collections import Counter
from itertools import pairwise

import pytest

from memtrace_otel.model import parse_time
from memtrace_otel.sources import AddressError, SourceError, open_source
from memtrace_otel.sources.jaeger import JaegerSource
from memtrace_otel.sources.query import SpanQuery
from memtrace_otel.sources.tempo import TempoSource, traceql
from memtrace_otel.testing import contract_span
from tests.unit.sources.backend_api import Answer, Reply, answering

SPAN = contract_span(0xABC, 1, kind="retrieve")
ORIGIN = f"{1:032x}-{2:016x}"


@pytest.mark.parametrize(
    ("url", "kind", "shown"),
    [
        ("jaeger+http://backend", JaegerSource, "http://backend:16686"),
        ("tempo+http://backend", TempoSource, "http://backend:3200"),
        ("tempo+https://backend:443/tempo/", TempoSource, "https://backend:443/tempo"),
        ("jaeger+http://[::1]:1/", JaegerSource, "http://[::1]:1"),
        ("jaeger+http://backend/base?service=a&service=b", JaegerSource, "http://backend:16686/base"),
    ],
)
def test_an_address_names_the_kind_and_the_place_of_a_backend(url: str, kind: type, shown: str) -> None:
    source = open_source(url)
    assert (type(source), str(source)) == (kind, shown)


@pytest.mark.parametrize(
    "url",
    [
        "http://x",
        "jaeger",
        "jaeger+ftp://x",
        "zipkin+http://x",
        "tempo+http://",
        "tempo+http://x:port",
        "tempo+http://x?q",
        "tempo+http://x/\u00e9",
        "tempo+http://x/a b",
        "tempo+http://a..b",
    ],
)
def test_another_address_is_refused(url: str) -> None:
    with pytest.raises(AddressError, match=re.escape(repr(url))):
        open_source(url)


def test_a_password_in_the_url_is_refused_and_not_repeated() -> None:
    for url in ("tempo+http://me:s3cret@x", "http://me:s3cret@x", "tempo+http://me:s3cret@x:port"):
        with pytest.raises(AddressError) as raised:
            open_source(url)
        assert "s3cret" not in str(raised.value)


def test_token_and_headers_go_with_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMTRACE_SOURCE_TOKEN", "s3cret")
    monkeypatch.setenv("MEMTRACE_SOURCE_HEADERS", "X-Scope-OrgID=team-a, x-two=a=b,x-three=c%2Cd%20e")
    with answering(lambda path, query: (200, b"{}")) as asked:
        assert open_source(f"tempo+{asked.url}").trace("a" * 32) == []
        assert open_source(f"jaeger+{asked.url}").trace("a" * 32) == []
    for _, _, headers in asked.requests:
        given = [headers[name] for name in ("authorization", "x-scope-orgid", "x-two", "x-three")]
        assert given == ["Bearer s3cret", "team-a", "a=b", "c,d e"]


@pytest.mark.parametrize("headers", ["nonsense", "=x", "a=b\r\nc: d", "a=b%0D%0Ac: d"])
def test_headers_in_another_form_are_refused_and_not_repeated(headers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMTRACE_SOURCE_HEADERS", headers)
    with pytest.raises(AddressError) as raised:
        open_source("tempo+http://x")
    assert headers not in str(raised.value)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        (SpanQuery(), "{  }"),
        (SpanQuery(scopes=frozenset({""})), "{  }"),
        (SpanQuery(scopes=frozenset("a")), '{ span.memtrace.scope = "a" }'),
        (SpanQuery(scopes=frozenset("ab")), '{ span.memtrace.scope =~ "a|b" }'),
        (
            SpanQuery(scopes=frozenset({'"', ".*"})),
            '{ (span.memtrace.scope = "\\"" || span.memtrace.scope = ".*") }',
        ),
        (
            SpanQuery(scopes=frozenset({"a", "b", ".*"})),
            '{ (span.memtrace.scope =~ "a|b" || span.memtrace.scope = ".*") }',
        ),
        (
            SpanQuery(names=frozenset({"memory:1", "memory:2", ORIGIN}), kinds=frozenset({"judge"})),
            f'{{ span.memtrace.op.kind = "judge" && (span.memtrace.inputs.origins = "{ORIGIN}"'
            ' || span.memtrace.outputs =~ "memory:1|memory:2") }',
        ),
        (
            SpanQuery(names=frozenset({ORIGIN}), kinds=frozenset({"judge"})),
            f'{{ span.memtrace.op.kind = "judge" && span.memtrace.inputs.origins = "{ORIGIN}" }}',
        ),
    ],
)
def test_a_query_is_traceql(query: SpanQuery, text: str) -> None:
    assert traceql(query) == text


def test_a_kind_is_also_searched_by_the_standard_operation_name() -> None:
    assert traceql(SpanQuery(kinds=frozenset({"update"}))) == (
        '{ (span.memtrace.op.kind = "update" || span.gen_ai.operation.name = "update_memory") }'
    )


def test_a_failing_label_may_have_any_white_space_around_it() -> None:
    """As Tempo's regexps name what `strip` takes off; tests/e2e asks the real one."""
    assert r'=~ "(?i)[\\s\\v\\pZ\\x1c-\\x1f\\x85]*(fail|' in traceql(SpanQuery(failing=True))


def test_no_attribute_of_a_query_crosses_a_multiple_of_1024_bytes() -> None:
    """Tempo's parser would lose characters there."""
    for many in (*range(1, 40), 100):
        origins = [f"{n:032x}-{n:016x}" for n in range(many)]
        refs = [f"memory:\u00e9 {n}" for n in range(many)]
        query = traceql(SpanQuery(kinds=frozenset({"update"}), names=frozenset(origins + refs)))
        names = [*re.finditer(r"span\.[a-z_.]+", query)]
        assert len(names) == 3 + many
        for name in names:
            first, last = (len(query[:at].encode()) for at in (name.start(), name.end()))
            assert first // 1024 == last // 1024
        assert [origin in query for origin in origins] == [True] * many
        assert re.sub(r" {2,}", " ", query).count('span.memtrace.outputs = "memory:') == many


@pytest.mark.parametrize("cause", ["too many", "too long", "limit"])
def test_tempo_is_searched_in_parts_and_its_limits_are_remembered(cause: str) -> None:
    def answer(path: str, query: dict[str, str]) -> Reply:
        if path != "/api/search":
            return 404, b""
        width = int(query["end"]) - int(query["start"])
        if cause == "too long" and width > 1000:
            return 400, b"range specified by start and end exceeds 16m"
        if cause == "limit" and int(query["limit"]) > 2:
            return 400, b"limit 4 exceeds max limit 2"
        many = 4 if cause == "too many" and width > 4000 else 1
        taken.append(query)
        return 200, json.dumps({"traces": [{"traceID": f"{n:x}"} for n in range(1, many + 1)]}).encode()

    taken: list[dict[str, str]] = []
    with answering(answer) as asked:
        source = open_source(f"tempo+{asked.url}", hours=1)
        assert isinstance(source, TempoSource)
        source._limits.traces = 4
        found = list(source._searched(SpanQuery(), None, None))
        if cause != "too many":
            asked.requests.clear()
            taken.clear()
            list(source._searched(SpanQuery(), None, None))
            assert len(taken) == len(asked.requests)  # none is refused
    assert {trace for _, _, traces in found for trace in traces} == {f"{1:032x}"}
    assert all(first[1] == second[0] for first, second in pairwise(found))


def test_jaeger_is_searched_down_to_a_microsecond() -> None:
    second, moment = 1_700_000_000 * 10**6, 1_700_000_000 * 10**6 + 77
    starts = [second + n for n in range(0, 10**6, 4000)]

    def answer(path: str, query: dict[str, str]) -> Reply:
        if path == "/api/v3/services":
            return 200, b'{"services": ["a", "b"]}'
        if "judge" not in query.get("tags", "") or query["service"] == "b":
            found = [1] if query["service"] == "b" else []
        else:
            found = [start for start in starts if int(query["start"]) <= start < int(query["end"])]
        return 200, json.dumps({"data": [{"traceID": f"{n:x}", "spans": []} for n in found[:200]]}).encode()

    judged = SpanQuery(kinds=frozenset({"judge"}), failing=True)
    with answering(answer) as asked:
        source = open_source(f"jaeger+{asked.url}")
        times = list(source._searched(judged, second * 1000, (second + 10**6) * 1000))
        assert {f"{start:032x}" for start in starts} <= {trace for _, _, found in times for trace in found}
        assert source.incomplete == []
        starts = [moment + n // 10**6 for n in range(250)]  # more than can be told apart
        times = list(source._searched(judged, second * 1000, (second + 1000) * 1000))
    assert {f"{moment:032x}", f"{1:032x}"} == {trace for _, _, found in times for trace in found}
    assert "too many within 1e-06 s" in source.incomplete[0]


def test_jaeger_is_searched_for_the_usual_spellings_of_failing_labels() -> None:
    def answer(path: str, query: dict[str, str]) -> Reply:
        found = [] if "tags" in query else [{}]
        return 200, json.dumps({"services": ["a"]} if path == "/api/v3/services" else {"data": found}).encode()

    with answering(answer) as asked:
        open_source(f"jaeger+{asked.url}").failing(0)
    tags = [query["tags"] for path, query, _ in asked.requests if path == "/api/traces" and "tags" in query]
    labels = {json.loads(tag).get("gen_ai.evaluation.score.label") for tag in tags}
    assert labels >= {"incorrect", "Incorrect", "FAIL", "Not relevant", "Not Relevant", "NOT_RELEVANT", "not_relevant"}
    assert '{"memtrace.op.kind": "judge"}' in tags
    assert len(tags) == len(set(tags)) <= 40


@pytest.mark.parametrize("kind", ["jaeger", "tempo"])
def test_an_address_without_the_api_is_an_error_and_no_empty_backend(kind: str) -> None:
    with answering(lambda path, query: (404, b"")) as asked:
        for read in (lambda source: source.failing(0), lambda source: source.trace("a" * 32)):
            with pytest.raises(SourceError, match="HTTP 404"):
                read(open_source(f"{kind}+{asked.url}"))


def test_jaeger_is_searched_service_by_service_without_the_service_of_verdicts() -> None:
    def answer(path: str, query: dict[str, str]) -> Reply:
        if path == "/api/v3/services":
            return 200, b'{"services": ["a", "memtrace-attribution", "b"]}'
        return 200, json.dumps({"data": [{"traceID": query["service"], "spans": spans}]}).encode()

    label = {"key": "gen_ai.evaluation.score.label", "value": "pass"}
    spans = [
        {"spanID": "1", "tags": [{"key": "memtrace.op.kind", "value": "respond"}], "logs": []},
        {"spanID": "2", "tags": [{"key": "memtrace.op.kind", "value": "judge"}]},
        {"spanID": "3", "tags": [label]},
        {"spanID": "4", "logs": [{"fields": [label]}]},
    ]

    with answering(answer) as asked:
        source = open_source(f"jaeger+{asked.url}")
        found = source._search(SpanQuery(scopes=frozenset({"s"})), 0, 10**18)
    evaluations = [f"{number:016x}" for number in (2, 3, 4)]
    assert found == {"a".zfill(32): evaluations, "b".zfill(32): evaluations}
    assert {query["tags"] for path, query, _ in asked.requests if path == "/api/traces"} == {'{"memtrace.scope": "s"}'}


def of_services(*services: str) -> Answer:
    """A Jaeger that knows these and holds nothing."""

    def answer(path: str, query: dict[str, str]) -> Reply:
        return 200, json.dumps({"services": services} if path == "/api/v3/services" else {"data": []}).encode()

    return answer


def test_the_services_in_the_address_are_the_only_ones_searched() -> None:
    with answering(of_services("assistant", "judge", "other")) as asked:
        open_source(f"jaeger+{asked.url}?service=assistant&service=judge").trace_ids(scope="s")
    assert {query.get("service") for _, query, _ in asked.requests} == {"assistant", "judge"}


def test_a_warning_says_once_that_many_services_are_searched(caplog: pytest.LogCaptureFixture) -> None:
    with answering(of_services(*(f"other-{n}" for n in range(100)))) as asked:
        source = open_source(f"jaeger+{asked.url}")
        for _ in range(2):
            source.trace_ids(scope="s")
    assert [message for message in caplog.messages if "100 services are searched; ?service=NAME" in message]
    assert len(caplog.messages) == 1


def test_a_silent_service_of_jaeger_costs_one_search() -> None:
    def answer(path: str, query: dict[str, str]) -> Reply:
        if path == "/api/v3/services":
            return 200, b'{"services": ["busy", "silent"]}'
        found = [{"traceID": "1", "spans": []}] if query["service"] == "busy" and "tags" not in query else []
        return 200, json.dumps({"data": found}).encode()

    with answering(answer) as asked:
        assert open_source(f"jaeger+{asked.url}")._search(SpanQuery(failing=True), 0, 10**18) == {}
    searched = Counter(query["service"] for path, query, _ in asked.requests if path == "/api/traces")
    assert searched["silent"] == 1
    assert searched["busy"] > 30


def test_a_number_without_json_form_hides_no_trace_of_jaeger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jaeger's page fails at any search that finds such a trace, API v3 gives all of a service."""
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("the search is tried again"))
    odd = 77

    def judged(start: int) -> dict[str, object]:
        told = {"memtrace.op.kind": {"stringValue": "judge"}, "gen_ai.evaluation.score.label": {"stringValue": "fail"}}
        told |= {"gen_ai.evaluation.score.value": {"doubleValue": "NaN"}} if start == odd else {}
        span = {"traceId": f"{start:032x}", "spanId": f"{1:016x}", "startTimeUnixNano": str(start * 10**9)}
        attributes = [{"key": key, "value": value} for key, value in told.items()]
        return {"scopeSpans": [{"spans": [{**span, "attributes": attributes}]}]}

    def answer(path: str, query: dict[str, str]) -> Reply:
        if path == "/api/v3/services":
            return 200, b'{"services": ["a"]}'
        if path == "/api/traces":
            found = [n for n in range(1, 1001) if int(query["start"]) <= n * 10**6 < int(query["end"])][:200]
            traces = [{"traceID": f"{n:x}", "spans": []} for n in found]
            return (500, b"unsupported value: NaN") if odd in found else (200, json.dumps({"data": traces}).encode())
        if path == "/api/v3/traces":
            since, until = (parse_time(query[f"query.start_time_{end}"]) for end in ("min", "max"))
            found = [n for n in range(1, 1001) if since <= n * 10**9 < until][: int(query["query.num_traces"])]
        return 200, json.dumps({"result": {"resourceSpans": [judged(n) for n in found]}}).encode()

    query = SpanQuery(kinds=frozenset({"judge"}), failing=True)
    with answering(answer) as asked:
        times = list(open_source(f"jaeger+{asked.url}")._searched(query, 0, 1001 * 10**9))
    assert {trace for _, _, found in times for trace in found} == {f"{n:032x}" for n in range(1, 1001)}
    assert [found[f"{odd:032x}"] for _, _, found in times if f"{odd:032x}" in found] == [[f"{1:016x}"]]
    assert len(asked.requests) < 40


@pytest.mark.parametrize(
    "value",
    ['["a","memory:1"]', ["a", "memory:1"], '["\\u003e", "o"]', "[broken"],
    ids=["text", "list", "origin", "odd"],
)
def test_a_search_of_jaeger_names_the_spans_that_may_match_the_names(value: object) -> None:
    def answer(path: str, query: dict[str, str]) -> Reply:
        if path == "/api/v3/services":
            return 200, b'{"services": ["a"]}'
        traces = [{"traceID": f"{n:x}", "spans": [{"tags": tags}]} for n, tags in enumerate(told, 1)]
        return 200, json.dumps({"data": traces}).encode()

    key = "memtrace.inputs.origins" if value == '["\\u003e", "o"]' else "memtrace.outputs"
    told = [[{"key": key, "value": value}], [{"key": key, "value": '["b"]'}], [{"key": "other", "value": value}], []]
    query = SpanQuery(kinds=frozenset({"delete"}), names=frozenset({"memory:1", "o"}))
    with answering(answer) as asked:
        found = open_source(f"jaeger+{asked.url}")._search(query, 0, 10**18)
    assert [trace_id for trace_id, span_ids in found.items() if span_ids] == [f"{1:032x}"]
    assert len(found) == len(told)
    kinds = [query["tags"] for path, query, _ in asked.requests if path == "/api/traces"]
    assert kinds[:2] == ['{"memtrace.op.kind": "delete"}', '{"gen_ai.operation.name": "delete_memory"}']


@pytest.mark.parametrize("kind", ["jaeger", "tempo"])
@pytest.mark.parametrize("document", [{"resourceSpans": 1}, {"resourceSpans": [{"scopeSpans": 5}]}])
def test_a_reply_that_is_no_trace_is_noted(kind: str, document: object) -> None:
    def answer(path: str, query: dict[str, str]) -> Reply:
        body = {"result": document, "trace": document} if path.endswith("a" * 32) else {}
        return 200, json.dumps(body).encode()

    with answering(answer) as asked:
        source = open_source(f"{kind}+{asked.url}")
        assert source.trace("a" * 32) == []
    assert f"trace {'a' * 32} cannot be read" in source.incomplete[0]


def tempo_trace(**envelope: object) -> bytes:
    """The reply with SPAN: ids in base64, a string that was cut within a character."""
    ids = {
        "traceId": base64.b64encode(bytes.fromhex(SPAN.trace_id)).decode(),
        "spanId": base64.b64encode(bytes.fromhex(SPAN.span_id)).decode(),
    }
    attributes = [{"key": "prompt", "value": {"stringValue": "caf\ufffd"}}]
    span = {**ids, "kind": "SPAN_KIND_INTERNAL", "attributes": attributes}
    return json.dumps({"trace": {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}, **envelope}).encode()


def test_a_trace_that_tempo_found_but_cannot_read_yet_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tempo does so while it moves a trace; what no search has found may well not be there."""
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    reply = tempo_trace()
    found = json.dumps({"traces": [{"traceID": SPAN.trace_id}, {"traceID": "d" * 32}]}).encode()
    hidden = 2

    def answer(path: str, query: dict[str, str]) -> tuple[int, bytes]:
        nonlocal hidden
        if path == "/api/search":
            return 200, found
        hidden -= path.endswith(SPAN.trace_id)
        return (200, reply) if path.endswith(SPAN.trace_id) and hidden < 0 else (404, b"")

    with answering(answer) as asked:
        source = open_source(f"tempo+{asked.url}", hours=1)
        assert source.trace("e" * 32) == []
        assert len(asked.requests) == 2  # and once for whether the API is there
        assert source.trace_ids(scope=SPAN.scope) == [SPAN.trace_id]
        gone = len(asked.requests)
        assert source.trace("d" * 32) == []
        assert len(asked.requests) == gone + 1  # not there any more: that is believed


def test_tempo_names_the_failing_evaluations_of_a_trace() -> None:
    groups = [{"spans": [{"spanID": number}], "matched": 1} for number in ("1a", "2b" * 8)]
    found = json.dumps({"traces": [{"traceID": "c", "spanSets": groups}, {"traceID": "d"}]}).encode()
    with answering(lambda path, query: (200, found)) as asked:
        shown = open_source(f"tempo+{asked.url}")._search(SpanQuery(failing=True), 0, 10**18)
    assert shown == {f"{0xC:032x}": [f"{0x1A:016x}", "2b" * 8], f"{0xD:032x}": []}


@pytest.mark.parametrize("status", [None, "PARTIAL"])
def test_a_trace_of_tempo_is_read_and_says_when_it_is_a_part(status: str | None) -> None:
    with answering(lambda path, query: (200, tempo_trace(status=status))) as asked:
        (read,) = open_source(f"tempo+{asked.url}").trace(SPAN.trace_id)
    assert (read.origin, read.attributes) == (SPAN.origin, {"prompt": "caf\ufffd"})
    assert read.incomplete == (("bounded",) if status else ())


@pytest.mark.parametrize("status", [422, 500, 502, 503, 504])
@pytest.mark.parametrize("kind", ["jaeger", "tempo"])
def test_a_trace_that_the_backend_fails_at_leaves_the_others(
    kind: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    damaged, down = "d" * 32, False

    def answer(path: str, query: dict[str, str]) -> Reply:
        return (status, b"broken block") if down or path.endswith(damaged) else (200, b"{}")

    with answering(answer) as asked:
        source = open_source(f"{kind}+{asked.url}")
        with source.session() as reader:
            reader.fetch([damaged, "e" * 32])
            asked.requests.clear()
            assert reader.trace(damaged) == []
            assert asked.requests == []
        assert "broken block" in reader.incomplete[0]
        down = True
        for trace in (damaged, "f" * 32):
            with pytest.raises(SourceError, match="broken block"):
                source.trace(trace)
