"""The pages: what they show, what they refuse, and that texts of traces stay texts."""

from __future__ import annotations

import csv
import html
import io
import json
import logging
import re
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from memtrace_otel.graph import load_scope
from memtrace_otel.health import examine, read_thresholds
from memtrace_otel.pages import JaegerPage
from memtrace_otel.web.app import Pages
from memtrace_otel.web.security import AnnotatorsError, read_annotators
from memtrace_otel.web.store import Filter, PageStore
from tests.unit.report.stories import ALL, Story
from tests.unit.web.conftest import HOST, SAME_SITE, filled, told

HOSTILE = "<script>document.documentElement.id='owned'</script>\u202e\x1b[31m\x00\"'>" + "W" * 1_000_000


def answers(client: TestClient, path: str = "/failures") -> list[str]:
    return re.findall(r'href="/failure/([0-9a-f-]{49})"', client.get(path).text)


def every_page(store: PageStore, client: TestClient) -> list[str]:
    answer, scope = answers(client)[0], store.scopes()[0].scope
    ref = re.search(r"record\?ref=([^\"]+)", client.get(f"/memory/{scope}").text)
    assert ref
    paths = ["/failures", "/failures?view=cause", f"/failure/{answer}", "/memories", f"/memory/{scope}"]
    paths.append(f"/memory/{scope}/health")
    return [*paths, f"/memory/{scope}/record?ref={ref[1]}", "/review", f"/review/{answer}", "/login"]


def test_the_list_has_every_failure_once_and_each_has_a_page(client: TestClient) -> None:
    found = answers(client)
    assert len(found) == len(set(found)) == len(ALL)
    for answer in found:
        page = client.get(f"/failure/{answer}")
        assert page.status_code == 200
        assert '<svg class="timeline"' in page.text
        assert "Candidates of the search" in page.text


@pytest.mark.parametrize(
    "chosen",
    [
        Filter(type="deletion"),
        Filter(scope="0000000000000002"),
        Filter(sure="101"),
        Filter(until="2020-01-01"),
        Filter(reviewed="yes"),
        Filter(service="nobody"),
    ],
)
def test_a_filter_leaves_what_it_says(store: PageStore, client: TestClient, chosen: Filter) -> None:
    wanted = 1 if chosen.type or chosen.scope else 0
    assert len(store.failures(chosen)) == wanted
    query = "&".join(f"{name}={value}" for name, value in chosen.given().items())
    assert len(answers(client, f"/failures?{query}")) == wanted


def test_until_a_date_includes_the_day(store: PageStore) -> None:
    last = datetime.fromtimestamp(max(row["answered"] for row in store.failures(Filter())) / 1e9, UTC)
    assert len(store.failures(Filter(until=f"{last:%Y-%m-%d}"))) == len(ALL)
    assert len(store.failures(Filter(until=f"{last:%Y-%m-%dT00:00:00}"))) < len(ALL)


def test_counts_causes_and_bars_add_up(store: PageStore) -> None:
    assert sum(store.found(Filter()).counts.values()) == len(ALL)
    assert sum(row["count"] for row in store.found(Filter()).over_time()[2]) == len(ALL)
    for cause in store.causes(Filter()):
        assert len(store.failures(Filter(cause=cause["operation"], type=cause["failure_type"]))) == cause["count"]


@pytest.mark.parametrize("own", [True, False], ids=["this process", "another process"])
def test_kept_results_follow_every_change_of_the_file(tmp_path: Path, own: bool) -> None:
    with filled(tmp_path / "run.db", told()) as store, PageStore.open(tmp_path / "run.db") as other:
        queue, found = len(store.queue()), store.found(Filter())
        assert store.found(Filter()) is found
        (store if own else other).withdraw_verdicts([store.verdicts()[0].attribution_id])
        assert len(store.found(Filter()).rows) == len(found.rows) - 1
        assert len(store.queue()) == queue  # now a healthy answer


def test_a_search_goes_by_form_and_its_text_into_no_address(client: TestClient) -> None:
    question = re.search(r'class="question">([^<]+)<', client.get("/failures").text)
    assert question
    page = client.post("/failures", data={"text": html.unescape(question[1]).upper()})
    assert 0 < len(re.findall(r'href="/failure/', page.text)) < len(ALL)
    assert not [address for address in re.findall(r'(?:href|action)="([^"]*)"', page.text) if "text=" in address]
    assert client.post("/failures", data={"text": "%"}).text.count('href="/failure/') == 0


@pytest.mark.parametrize("view", ["", "cause"])
def test_every_choice_after_a_search_keeps_the_text(client: TestClient, view: str) -> None:
    page = client.post("/failures", data={"text": "a", "view": view}).text
    addresses = re.findall(r'formaction="([^"]+)"', page)
    assert addresses
    assert len(re.findall(r'href="/failures\?', page)) == 0
    for address in addresses:
        assert 'name="text" value="a"' in client.post(html.unescape(address), data={"text": "a"}).text


def test_a_change_at_the_end_of_a_long_record_is_shown(tmp_path: Path) -> None:
    story = Story(scope="00000000000000aa")
    long = "The flat has many rooms. " * 200
    for town in ("Lisbon", "Oslo"):
        story.say(f"{long} {town}", [f"{long} {town}"], "m1")
    with filled(tmp_path / "run.db", story.spans) as store:
        client = TestClient(Pages(store, {}).app(), HOST)
        page = client.get("/memory/00000000000000aa").text
    assert "<del>Lisbon</del> <ins>Oslo</ins>" in page


def test_a_long_list_is_paged(tmp_path: Path) -> None:
    with filled(tmp_path / "run.db", told()) as store:
        shown = [store.shown(store.found(Filter()), page, rows=3) for page in (1, 2, 3, 4)]
    assert [len(page) for page in shown] == [3, 3, len(ALL) - 6, 0]
    assert len({row["answer"] for page in shown for row in page}) == len(ALL)


def test_exports_hold_the_filtered_rows(client: TestClient) -> None:
    lines = client.post("/failures/export", data={"form": "jsonl", "type": "deletion"}).text.splitlines()
    assert [json.loads(line)["failure_type"] for line in lines] == ["deletion"]
    rows = list(csv.DictReader(io.StringIO(client.post("/failures/export", data={"form": "csv"}).text)))
    assert len(rows) == len(ALL)


def test_a_cell_that_a_spreadsheet_would_compute_is_quoted(tmp_path: Path) -> None:
    def dangerous(span):  # type: ignore[no-untyped-def]
        inputs = tuple(replace(v, content="=1+1") if v.role == "query" else v for v in span.inputs)
        return replace(span, inputs=inputs)

    with filled(tmp_path / "run.db", told(dangerous)) as store:
        client = TestClient(Pages(store, {}).app(), HOST, headers=SAME_SITE)
        text = client.post("/failures/export", data={"form": "csv"}).text
    assert {row["question"] for row in csv.DictReader(io.StringIO(text))} == {"'=1+1"}


def test_a_memory_shows_its_records_at_a_moment_and_what_changed(store: PageStore, client: TestClient) -> None:
    page = client.get("/memory/0000000000000000").text
    assert "<ins>" in page or "<del>" in page
    assert "No record was held." in client.get("/memory/0000000000000000?until=0").text
    assert "forgotten" in client.get("/memory/0000000000000002").text
    ref = re.search(r"record\?ref=([^\"]+)", page)
    assert ref
    life = client.get(f"/memory/0000000000000000/record?ref={ref[1]}").text
    assert "v2" in life
    assert "no recorded message" not in life.partition("v2")[0]


def test_a_memory_shows_the_measures_of_its_health(store: PageStore, client: TestClient) -> None:
    graph = load_scope(store, "0000000000000000")
    found = [one for one in examine(graph, 0, time.time_ns(), read_thresholds()) if one.scope == "0000000000000000"]
    page = "being measured"
    for _ in range(100):  # a page does not wait for the measures
        if "being measured" not in page:
            break
        page = client.get("/memory/0000000000000000/health").text
    assert found
    assert all(f"<b>{one.measure}</b> {one.count} of {one.total}" in page for one in found)


def test_a_page_links_into_the_backend(store: PageStore) -> None:
    client = TestClient(Pages(store, {}, JaegerPage("http://jaeger:16686")).app(), HOST)
    answer = answers(client)[0]
    assert (
        f'href="http://jaeger:16686/trace/{answer[:32]}?uiFind={answer[33:]}"' in client.get(f"/failure/{answer}").text
    )


def test_feedback_becomes_a_judgement(store: PageStore, client: TestClient) -> None:
    answer = answers(client)[0]
    assert client.post(f"/failure/{answer}/feedback", data={"label": "pass"}).status_code == 303
    assert any(span.name == "memtrace.judge" and span.system for span in store.trace(answer[:32]))


@pytest.mark.parametrize("answer", ["x", f"{1:032x}-{1:016x}"])
def test_feedback_on_an_unknown_answer_stores_nothing(store: PageStore, client: TestClient, answer: str) -> None:
    assert client.post(f"/failure/{answer}/feedback", data={"label": "pass"}).status_code == 404
    assert store.trace(f"{1:032x}") == []


@pytest.mark.parametrize(
    "path", ["/failure/x", f"/failure/{'0' * 32}-{'0' * 16}", "/memory/none", "/nothing", "/static/../x"]
)
def test_what_is_not_there_is_404(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("since=never", "a time must be a date"),
        ("until=24h", "a time must be a date"),
        ("sure=much", "the least confidence must be a whole number"),
        ("page=one", "page must be a whole number"),
    ],
)
def test_a_wrong_filter_is_400_and_says_so(client: TestClient, query: str, reason: str) -> None:
    reply = client.get(f"/failures?{query}")
    assert reply.status_code == 400
    assert reason in reply.text


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.test"},
        {"host": "127.0.0.1.evil.test"},
        {"origin": "http://evil.test"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": HOST, "sec-fetch-site": "cross-site"},
        {"origin": HOST, "sec-fetch-site": "same-site"},
    ],
)
def test_a_form_of_another_site_is_refused(store: PageStore, client: TestClient, headers: dict[str, str]) -> None:
    answer = answers(client)[0]
    refused = client.post(f"/review/{answer}", data={"label": "update", "action": "save"}, headers=headers)
    assert refused.status_code == 403
    assert store.reviews() == []


def test_a_large_form_is_refused(client: TestClient) -> None:
    assert client.post("/failures", data={"text": "x" * 1_000_000}).status_code == 413


def test_hostile_contents_stay_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def hostile(span):  # type: ignore[no-untyped-def]
        inputs = tuple(replace(v, content=f"{v.content} {HOSTILE}" if v.content else "") for v in span.inputs)
        outputs = tuple(replace(v, content=f"{v.content} {HOSTILE}" if v.content else "") for v in span.outputs)
        return replace(span, name=f"{span.name} {HOSTILE[:60]}", inputs=inputs, outputs=outputs)

    caplog.set_level(logging.DEBUG)
    with filled(tmp_path / "run.db", [hostile(span) for span in told()[:12]]) as store:
        client = TestClient(Pages(store, {}).app(), HOST, headers=SAME_SITE, cookies={"memtrace_annotator": "ada"})
        for path in every_page(store, client):
            page = client.get(path)
            assert page.status_code == 200
            assert "<script>document" not in page.text
            assert not {"\u202e", "\x1b", "\x00"} & set(page.text)
            assert not [address for address in re.findall(r'(?:href|action)="([^"]*)"', page.text) if "WWW" in address]
            assert page.headers["content-security-policy"].startswith("default-src 'none'")
            assert "unsafe" not in page.headers["content-security-policy"]
            assert " style=" not in page.text
    assert "WWW" not in caplog.text


def test_off_loopback_only_people_with_a_token_read(store: PageStore, tmp_path: Path) -> None:
    people = tmp_path / "annotators.txt"
    people.write_text("Ada Lovelace 0123456789abcdef\n")
    app = Pages(store, read_annotators(people)).app()
    client = TestClient(app, "http://host.test", headers={"origin": "http://host.test"}, follow_redirects=False)
    for host in ("host.test", "host.test/static/", "host.test/static/?", "host.test/login"):
        assert client.get("/failures", headers={"host": host}).headers["location"] == "/login"
    assert client.post("/login", data={"given": "wrong"}).status_code == 403
    assert client.post("/login", data={"given": "0123456789abcdef"}).status_code == 303
    assert "Ada Lovelace" in client.get("/failures").text


@pytest.mark.parametrize("text", ["", "ada short\n", "0123456789abcdef\n", "a 0123456789abcdef\nb 0123456789abcdef\n"])
def test_annotators_without_a_token_of_their_own_are_refused(tmp_path: Path, text: str) -> None:
    people = tmp_path / "annotators.txt"
    people.write_text(text)
    with pytest.raises(AnnotatorsError):
        read_annotators(people)


def test_the_list_of_memories_counts_failures_and_begins_with_the_newest(store: PageStore, client: TestClient) -> None:
    text = client.get("/memories").text
    rows = re.findall(r"<code>(\w+)</code>.*?<td>(?:<a[^>]*>)?(\d+)(?:</a>)?</td></tr>", text)
    last = {one["scope"]: one["last"] for one in store.memories()}
    assert [scope for scope, _ in rows] == sorted(last, key=lambda scope: -last[scope])
    failures = [one["scope"] for one in store.failures(Filter())]
    assert {scope: int(count) for scope, count in rows} == {scope: failures.count(scope) for scope in last}
    assert '<a href="/memories" aria-current="page">' in text


def test_the_health_page_lists_the_worst_memory_first(tmp_path: Path) -> None:
    story = Story(scope="00000000000000aa")
    story.say("My flat is in Oslo.", ["My flat is in Oslo."], "m1")
    story.scope = "00000000000000bb"
    for number in range(4):
        story.say(f"I keep the bicycle number {number} in the cellar", [])
    with filled(tmp_path / "run.db", story.spans) as store:
        client = TestClient(Pages(store, {}).app(), HOST, headers=SAME_SITE)
        text = ""
        for _ in range(100):  # a page does not wait for the measures
            if "Reload" not in (text := client.get("/health").text):
                break
            time.sleep(0.05)
    assert text.index("00000000000000bb") < text.index("00000000000000aa")
    assert "no_write" in text
    assert "read the extraction prompt" in text
