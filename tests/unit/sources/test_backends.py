"""`--source`, the queries that go to Jaeger and Tempo, and odd replies of theirs. The real ones are in tests/e2e."""

from __future__ import annotations

import base64
import json
import re
import ssl
import threading
import time
from collections import Counter
from itertools import pairwise

import pytest
from google.protobuf.message import DecodeError

from memtrace_otel.model import parse_time
from memtrace_otel.otlp import encode_request
from memtrace_otel.sources import SourceError, SourceLimitError, StoreError, open_source
from memtrace_otel.sources.http import UnreachableError
from memtrace_otel.sources.jaeger import JaegerSource
from memtrace_otel.sources.tempo import TempoSource, traceql
from memtrace_otel.sources.tempo_reply import read_trace_reply
from memtrace_otel.sources.wanted import Wanted
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
    ],
)
def test_a_url_names_the_backend_and_its_place(url: str, kind: type, shown: str) -> None:
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
def test_another_one_is_refused(url: str) -> None:
    with pytest.raises(SourceError, match=re.escape(repr(url))):
        open_source(url)


def test_a_password_in_the_url_is_refused_and_not_repeated() -> None:
    for url in ("tempo+http://me:s3cret@x", "http://me:s3cret@x", "tempo+http://me:s3cret@x:port"):
        with pytest.raises(SourceError) as raised:
            open_source(url)
        assert "s3cret" not in str(raised.value)


def test_tenant_token_and_headers_go_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMTRACE_SOURCE_TENANT", "team-a")
    monkeypatch.setenv("MEMTRACE_SOURCE_TOKEN", "s3cret")
    monkeypatch.setenv("MEMTRACE_SOURCE_HEADERS", "X-One=1, x-two=a=b,x-three=c%2Cd%20e")
    with answering(lambda path, query: (404, b"")) as asked:
        assert open_source(f"tempo+{asked.url}").trace("a" * 32) == []
        assert open_source(f"jaeger+{asked.url}").trace("a" * 32) == []
    (_, _, tempo), (_, _, jaeger) = asked.requests
    assert (tempo["x-scope-orgid"], jaeger["x-tenant"]) == ("team-a", "team-a")
    given = [tempo[name] for name in ("authorization", "x-one", "x-two", "x-three")]
    assert given == ["Bearer s3cret", "1", "a=b", "c,d e"]


@pytest.mark.parametrize("headers", ["nonsense", "=x", "a=b\r\nc: d", "a=b%0D%0Ac: d"])
def test_headers_of_another_form_are_refused_unseen(headers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMTRACE_SOURCE_HEADERS", headers)
    with pytest.raises(SourceError) as raised:
        open_source("tempo+http://x")
    assert headers not in str(raised.value)


def test_a_certificate_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMTRACE_SOURCE_CERTIFICATE", "/no/such.pem")
    with pytest.raises(SourceError, match=r"MEMTRACE_SOURCE_CERTIFICATE: /no/such.pem"):
        open_source("tempo+https://x")
    assert isinstance(ssl.create_default_context(), ssl.SSLContext)


@pytest.mark.parametrize(
    ("wanted", "query"),
    [
        (Wanted(), "{  }"),
        (Wanted(scopes=frozenset({""})), "{  }"),
        (Wanted(scopes=frozenset("a")), '{ span.memtrace.scope = "a" }'),
        (Wanted(scopes=frozenset("ab")), '{ span.memtrace.scope =~ "a|b" }'),
        (
            Wanted(scopes=frozenset({'"', ".*"})),
            '{ (span.memtrace.scope = "\\"" || span.memtrace.scope = ".*") }',
        ),
        (
            Wanted(scopes=frozenset({"a", "b", ".*"})),
            '{ (span.memtrace.scope =~ "a|b" || span.memtrace.scope = ".*") }',
        ),
        (
            Wanted(names=frozenset({"memory:1", "memory:2", ORIGIN}), kinds=frozenset({"judge"})),
            f'{{ span.memtrace.op.kind = "judge" && (span.memtrace.inputs.origins = "{ORIGIN}"'
            ' || span.memtrace.outputs =~ "memory:1|memory:2") }',
        ),
        (
            Wanted(names=frozenset({ORIGIN}), kinds=frozenset({"judge"})),
            f'{{ span.memtrace.op.kind = "judge" && span.memtrace.inputs.origins = "{ORIGIN}" }}',
        ),
    ],
)
def test_what_is_wanted_is_traceql(wanted: Wanted, query: str) -> None:
    assert traceql(wanted) == query


def test_a_kind_is_also_told_by_the_standard_name_of_its_operation() -> None:
    assert traceql(Wanted(kinds=frozenset({"update"}))) == (
        '{ (span.memtrace.op.kind = "update" || span.gen_ai.operation.name = "update_memory") }'
    )


def test_a_failing_label_may_have_any_white_space_around_it() -> None:
    """As Tempo's regexps name what `strip` takes off; tests/e2e asks the real one."""
    assert r'=~ "(?i)[\\s\\v\\pZ\\x1c-\\x1f\\x85]*(fail|' in traceql(Wanted(failing=True))


def test_no_attribute_of_a_query_lies_across_a_kibibyte() -> None:
    """Tempo's parser would lose characters there."""
    for many in (*range(1, 40), 100):
        origins = [f"{n:032x}-{n:016x}" for n in range(many)]
        refs = [f"memory:\u00e9 {n}" for n in range(many)]
        query = traceql(Wanted(kinds=frozenset({"update"}), names=frozenset(origins + refs)))
        names = [*re.finditer(r"span\.[a-z_.]+", query)]
        assert len(names) == 3 + many
        for name in names:
            first, last = (len(query[:at].encode()) for at in (name.start(), name.end()))
            assert first // 1024 == last // 1024
        assert [origin in query for origin in origins] == [True] * many
        assert re.sub(r" {2,}", " ", query).count('span.memtrace.outputs = "memory:') == many


def test_the_envelope_of_tempo_is_opened() -> None:
    trace = encode_request([SPAN])
    size = bytes([len(trace) & 0x7F | 0x80, len(trace) >> 7])
    whole = b"\x0a" + size + trace + b"\x12\x02\x08\x01"
    assert read_trace_reply(whole) == (trace, "")
    assert read_trace_reply(whole + b"\x18\x01\x22\x03big") == (trace, "big")
    assert read_trace_reply(b"") == (b"", "")
    for cut in (whole[:-1], whole[:10], b"\x0a", b"\x0b", b"\xff" * 20):
        with pytest.raises(DecodeError):
            read_trace_reply(cut)


@pytest.mark.parametrize("cause", ["too many", "too long", "limit"])
def test_tempo_is_searched_in_parts_until_it_answers_whole_and_learns_what_it_takes(cause: str) -> None:
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
        found = list(source.keeping()._searched(Wanted(), None, None))
        if cause != "too many":
            asked.requests.clear()
            taken.clear()
            list(source.keeping()._searched(Wanted(), None, None))
            assert len(taken) == len(asked.requests)  # none is refused
    assert {trace for _, _, traces in found for trace in traces} == {f"{1:032x}"}
    assert all(first[1] == second[0] for first, second in pairwise(found))


def test_jaeger_is_searched_down_to_a_microsecond(caplog: pytest.LogCaptureFixture) -> None:
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

    judged = Wanted(kinds=frozenset({"judge"}), failing=True)
    with answering(answer) as asked:
        source = open_source(f"jaeger+{asked.url}")
        times = list(source._searched(judged, second * 1000, (second + 10**6) * 1000))
        assert {f"{start:032x}" for start in starts} <= {trace for _, _, found in times for trace in found}
        assert not caplog.text
        starts = [moment + n // 10**6 for n in range(250)]  # more than can be told apart
        times = list(source._searched(judged, second * 1000, (second + 1000) * 1000))
    assert {f"{moment:032x}", f"{1:032x}"} == {trace for _, _, found in times for trace in found}
    assert "too many traces within 1e-06 s" in caplog.text


def test_jaeger_is_asked_for_failing_labels_as_they_are_usually_written() -> None:
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
def test_an_address_that_is_none_of_a_backend_is_no_empty_backend(kind: str) -> None:
    with answering(lambda path, query: (404, b"")) as asked, pytest.raises(StoreError, match="HTTP 404"):
        open_source(f"{kind}+{asked.url}").failing(0)


def test_jaeger_is_asked_service_by_service_but_not_for_our_own_and_shows_the_evaluations() -> None:
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
        found = source._search(Wanted(scopes=frozenset({"s"})), 0, 10**18)
    evaluations = [f"{number:016x}" for number in (2, 3, 4)]
    assert found == {"a".zfill(32): evaluations, "b".zfill(32): evaluations}
    assert {query["tags"] for path, query, _ in asked.requests if path == "/api/traces"} == {'{"memtrace.scope": "s"}'}


def of_services(*services: str) -> Answer:
    """A Jaeger that knows these and holds nothing."""

    def answer(path: str, query: dict[str, str]) -> Reply:
        return 200, json.dumps({"services": services} if path == "/api/v3/services" else {"data": []}).encode()

    return answer


def test_of_many_services_those_are_asked_that_are_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MEMTRACE_SOURCE_SERVICES", " judge, assistant,,assitant")
    with answering(of_services("assistant", "judge", *(f"other-{n}" for n in range(100)))) as asked:
        source = open_source(f"jaeger+{asked.url}")
        for _ in range(2):
            source.keeping().find_traces(["s"])
    searched = Counter(query["service"] for path, query, _ in asked.requests if path == "/api/traces")
    assert searched == dict.fromkeys(("assistant", "assitant", "judge"), 2)  # one that is not there may come
    assert [message for message in caplog.messages if "'assitant'" in message] == caplog.messages[:1] == caplog.messages


def test_who_searches_each_of_many_services_is_told_once_what_would_need_fewer_requests(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MEMTRACE_SOURCE_REQUESTS", "150")
    with answering(of_services(*(f"other-{n}" for n in range(100)))) as asked:
        source = open_source(f"jaeger+{asked.url}")
        source.keeping().find_traces(["s"])
        with pytest.raises(SourceLimitError, match="each of 100 services is searched: MEMTRACE_SOURCE_SERVICES"):
            source.keeping().find_traces(["s"])
    assert len(caplog.messages) == 1
    assert "each of 100 services" in caplog.text


def test_a_silent_service_of_jaeger_is_asked_for_any_trace_alone_but_a_trace_that_fails_hides_no_other_one() -> None:
    def answer(path: str, query: dict[str, str]) -> Reply:
        if path == "/api/v3/services":
            return 200, b'{"services": ["broken", "busy", "silent"]}'
        if "tags" in query:
            return 200, b'{"data": []}'
        assert query["limit"] == "1"
        return (
            (500, b"") if query["service"] == "broken" else (200, b'{"data": []}'.replace(b"[]", of[query["service"]]))
        )

    of = {"busy": b'[{"traceID": "1", "spans": []}]', "silent": b"[]"}
    with answering(answer) as asked:
        source = open_source(f"jaeger+{asked.url}")
        source.api.hurry(5)
        assert source._search(Wanted(failing=True), 0, 10**18) == {}
    searched = Counter(query["service"] for path, query, _ in asked.requests if path == "/api/traces")
    assert searched["silent"] == 1
    assert searched["busy"] == searched["broken"] > 30


def test_a_number_that_json_does_not_have_hides_no_trace_of_jaeger(monkeypatch: pytest.MonkeyPatch) -> None:
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

    wanted = Wanted(kinds=frozenset({"judge"}), failing=True)
    with answering(answer) as asked:
        times = list(open_source(f"jaeger+{asked.url}")._searched(wanted, 0, 1001 * 10**9))
    assert {trace for _, _, found in times for trace in found} == {f"{n:032x}" for n in range(1, 1001)}
    assert [found[f"{odd:032x}"] for _, _, found in times if f"{odd:032x}" in found] == [[f"{1:016x}"]]
    assert len(asked.requests) < 40


def test_a_time_that_is_divided_is_searched_where_there_is_something() -> None:
    def answer(path: str, query: dict[str, str]) -> Reply:
        if path == "/api/v3/services":
            return 200, json.dumps({"services": ["busy", "few", *(f"other-{n}" for n in range(50))]}).encode()
        starts = {"busy": range(800), "few": [3]}.get(query["service"], [])
        found = [start for start in starts if int(query["start"]) <= start < int(query["end"])]
        return 200, json.dumps({"data": [{"traceID": f"{n:x}", "spans": []} for n in found[:200]]}).encode()

    with answering(answer) as asked:
        times = list(open_source(f"jaeger+{asked.url}")._searched(Wanted(scopes=frozenset({"s"})), 0, 1_000_000))
    assert {f"{start:032x}" for start in range(800)} == {trace for _, _, found in times for trace in found}
    searched = Counter(query["service"] for path, query, _ in asked.requests if path == "/api/traces")
    assert 1 < searched["few"] < searched["busy"]
    assert all(searched[f"other-{n}"] == 1 for n in range(50))


def test_several_services_of_jaeger_are_searched_at_a_time() -> None:
    both = threading.Barrier(2, timeout=10)

    def answer(path: str, query: dict[str, str]) -> Reply:
        if path == "/api/v3/services":
            return 200, b'{"services": ["a", "b"]}'
        both.wait()
        return 200, b'{"data": []}'

    with answering(answer) as asked:
        assert open_source(f"jaeger+{asked.url}").find_traces(["s"]) == {"s": []}


def test_one_run_asks_jaeger_once_which_services_there_are() -> None:
    with answering(of_services("a")) as asked:
        source = open_source(f"jaeger+{asked.url}").keeping()
        for scope in "st":
            source.find_traces([scope])
    assert [path for path, _, _ in asked.requests].count("/api/v3/services") == 1


@pytest.mark.parametrize(
    "value",
    ['["a","memory:1"]', ["a", "memory:1"], '["\\u003e", "o"]', "[broken"],
    ids=["text", "list", "origin", "odd"],
)
def test_jaeger_shows_those_that_may_touch_what_is_wanted(value: object) -> None:
    def answer(path: str, query: dict[str, str]) -> Reply:
        if path == "/api/v3/services":
            return 200, b'{"services": ["a"]}'
        traces = [{"traceID": f"{n:x}", "spans": [{"tags": tags}]} for n, tags in enumerate(told, 1)]
        return 200, json.dumps({"data": traces}).encode()

    key = "memtrace.inputs.origins" if value == '["\\u003e", "o"]' else "memtrace.outputs"
    told = [[{"key": key, "value": value}], [{"key": key, "value": '["b"]'}], [{"key": "other", "value": value}], []]
    wanted = Wanted(kinds=frozenset({"delete"}), names=frozenset({"memory:1", "o"}))
    with answering(answer) as asked:
        found = open_source(f"jaeger+{asked.url}")._search(wanted, 0, 10**18)
    assert [trace_id for trace_id, span_ids in found.items() if span_ids] == [f"{1:032x}"]
    assert len(found) == len(told)
    kinds = [query["tags"] for path, query, _ in asked.requests if path == "/api/traces"]
    assert kinds[:2] == ['{"memtrace.op.kind": "delete"}', '{"gen_ai.operation.name": "delete_memory"}']


@pytest.mark.parametrize("kind", ["jaeger", "tempo"])
@pytest.mark.parametrize(
    "body",
    [b'{"result": {"resourceSpans": 1}}', b'\x0a\x05{"re"', b'{"result": {"resourceSpans": [{"scopeSpans": 5}]}}'],
)
def test_a_trace_that_is_none_is_an_error(kind: str, body: bytes) -> None:
    with answering(lambda path, query: (200, body)) as asked, pytest.raises(SourceLimitError) as raised:
        open_source(f"{kind}+{asked.url}").trace("a" * 32)
    assert raised.value.is_reply  # a graph goes on without it


def test_a_trace_that_tempo_hides_for_a_moment_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tempo does so while it moves a trace; what no search has found may well not be there."""
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    trace = encode_request([SPAN])
    reply = b"\x0a" + bytes([len(trace) & 0x7F | 0x80, len(trace) >> 7]) + trace
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
        assert len(asked.requests) == 1
        assert source.trace_ids(scope=SPAN.scope) == [SPAN.trace_id]
        gone = len(asked.requests)
        assert source.trace("d" * 32) == []
        assert len(asked.requests) == gone + 1  # not there any more: that is believed


def test_tempo_names_the_failing_evaluations_of_a_trace() -> None:
    groups = [{"spans": [{"spanID": number}], "matched": 1} for number in ("1a", "2b" * 8)]
    found = json.dumps({"traces": [{"traceID": "c", "spanSets": groups}, {"traceID": "d"}]}).encode()
    with answering(lambda path, query: (200, found)) as asked:
        shown = open_source(f"tempo+{asked.url}")._search(Wanted(failing=True), 0, 10**18)
    assert shown == {f"{0xC:032x}": [f"{0x1A:016x}", "2b" * 8], f"{0xD:032x}": []}


def test_a_trace_that_tempo_gives_in_part_says_so() -> None:
    trace = encode_request([SPAN])
    reply = b"\x0a" + bytes([len(trace) & 0x7F | 0x80, len(trace) >> 7]) + trace + b"\x18\x01"
    with answering(lambda path, query: (200, reply)) as asked:
        (span,) = open_source(f"tempo+{asked.url}").trace(SPAN.trace_id)
    assert span.incomplete == ("bounded",)


@pytest.mark.parametrize("status", [None, "PARTIAL"])
def test_a_trace_of_tempo_with_a_text_that_is_cut_within_a_character_is_read(status: str | None) -> None:
    """Python's protobuf takes no such bytes; in JSON Tempo replaces them."""
    trace = encode_request([contract_span(0xABC, 1, kind="retrieve", attributes={"prompt": "caf_"})])
    reply = b"\x0a" + bytes([len(trace) & 0x7F | 0x80, len(trace) >> 7]) + trace.replace(b"caf_", b"caf\xc3")
    attributes = [{"key": "prompt", "value": {"stringValue": "caf\ufffd"}}]
    ids = {
        "traceId": base64.b64encode(bytes.fromhex(SPAN.trace_id)).decode(),
        "spanId": base64.b64encode(bytes.fromhex(SPAN.span_id)).decode(),
    }
    span = {**ids, "kind": "SPAN_KIND_INTERNAL", "attributes": attributes}
    document = {"trace": {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}, "status": status}
    with answering(lambda path, query: (200, replies.pop(0))) as asked:
        replies = [reply, json.dumps(document).encode()]
        (read,) = open_source(f"tempo+{asked.url}").trace(SPAN.trace_id)
    assert (read.origin, read.attributes) == (SPAN.origin, {"prompt": "caf\ufffd"})
    assert read.incomplete == (("bounded",) if status else ())
    assert [headers["accept"] for _, _, headers in asked.requests] == ["application/protobuf", "application/json"]


@pytest.mark.parametrize("status", [422, 500, 502, 503, 504])
@pytest.mark.parametrize("kind", ["jaeger", "tempo"])
def test_a_trace_that_the_backend_fails_at_stops_no_other_one(
    kind: str, status: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    damaged, down = "d" * 32, False

    def answer(path: str, query: dict[str, str]) -> Reply:
        return (status, b"broken block") if down or path.endswith(damaged) else (404, b"")

    with answering(answer) as asked:
        source = open_source(f"{kind}+{asked.url}").keeping()
        source.fetch([damaged, "e" * 32])
        assert "trace dddddddddddddddddddddddddddddddd is left out" in caplog.text
        asked.requests.clear()
        with pytest.raises(SourceLimitError, match="broken block") as raised:
            source.trace(damaged)
        assert raised.value.is_reply  # a graph goes on without it
        assert len(asked.requests) <= 2  # it was tried often enough
        down = status != 422
        for trace in (damaged, "f" * 32) if down else ():
            with pytest.raises(UnreachableError, match="broken block"):
                source.readable(trace)
