"""`demo --otlp-endpoint`: the addresses it prints open what they say. And the guide to searching: its searches, run;
and the configuration of Jaeger's page: its links."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

import pytest

from memtrace_otel import pages
from memtrace_otel.annotate import Annotation, annotate
from memtrace_otel.annotate.send import send
from memtrace_otel.annotate.target import Target
from memtrace_otel.demo.addresses import addresses
from memtrace_otel.demo.run import SERVICE
from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import encode_request
from memtrace_otel.pages import GrafanaPage, find_page
from memtrace_otel.pipeline.diagnose import diagnose
from memtrace_otel.semconv import ATTRIBUTION_SCOPE
from memtrace_otel.sources import SqliteStore
from tests.e2e.backends.jaeger import Jaeger, running_jaeger
from tests.e2e.backends.service import wait_for
from tests.e2e.backends.tempo import SEARCHABLE, Tempo, running_tempo
from tests.e2e.tab import Tab, open_tab

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "searching.md"
WRITES = {"create", "update", "delete"}


@dataclass(frozen=True)
class Shown:
    """A demo sent to Jaeger by its command and, span for span, to Tempo; what it printed; what its database holds."""

    addresses: dict[str, str]
    spans: list[OperationSpan]
    annotations: list[Annotation]

    def traces(self, spans: Iterable[OperationSpan]) -> set[str]:
        """The traces of the application's spans among these."""
        return {span.trace_id for span in spans if span.instrumentation_scope != ATTRIBUTION_SCOPE}

    def failing(self, failure_type: str = "") -> set[str]:
        """The failing traces."""
        verdicts = [annotation.verdict for annotation in self.annotations]
        return {one.failure.trace_id for one in verdicts if failure_type in ("", one.failure_type)}


@pytest.fixture(scope="module")
def jaeger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jaeger]:
    """One of its own: searches find this demo, and no other."""
    with running_jaeger(tmp_path_factory.mktemp("jaeger")) as jaeger:
        yield jaeger


@pytest.fixture(scope="module")
def tempo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tempo]:
    with running_tempo(tmp_path_factory.mktemp("tempo"), **SEARCHABLE) as tempo:
        yield tempo


@pytest.fixture(scope="module")
def shown(jaeger: Jaeger, tempo: Tempo, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    folder = tmp_path_factory.mktemp("demo") / "run"
    command = [sys.executable, "-m", "memtrace_otel.cli", "demo", "--dir", folder, "--ui", f"jaeger={jaeger.url}"]
    quiet = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run(
        [*command, "--otlp-endpoint", jaeger.otlp_grpc], env=quiet, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    printed = re.findall(r"^  (\S.*?) {2,}(http://\S+)$", done.stdout.partition("In your backend")[2], re.MULTILINE)
    with SqliteStore.open(folder / "memtrace.db", create=False) as store:
        spans = list(store.spans())
        annotations = annotate([verdict for found in diagnose(store, store) for verdict in found.verdicts], store)
    assert sum(annotation.new for annotation in annotations) == 0  # the demo has written them
    for first in range(0, len(spans), 100):
        send(Target("traces", "grpc", tempo.otlp_grpc, insecure=True), encode_request(spans[first : first + 100]))
    ids = {span.trace_id for span in spans}
    for backend in (jaeger, tempo):
        wait_for(lambda backend=backend: sum(len(backend.spans(id)) for id in ids) == len(spans), "every span is there")
    wait_for(lambda: ids <= tempo.search("{}"), "Tempo's search finds every trace")  # some seconds after it has them
    return Shown(dict(printed), spans, annotations)


# --- the addresses -------------------------------------------------------------------------------------------------
def test_the_four_addresses_are_printed(shown: Shown) -> None:
    kinds = [re.sub(r"update|\(|\)", "", what).split() for what in shown.addresses]
    assert kinds == [
        ["failing", "trace"],
        ["trace", "that", "caused", "it"],
        ["its", "attribution"],
        ["all", "failures", "of", "type"],
    ]


def test_its_page_is_known_by_the_traces_that_it_has(
    shown: Shown, jaeger: Jaeger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "_JAEGER_PORT", urlsplit(jaeger.url).port)
    for trace_id, sure in ((min(shown.failing()), True), ("f" * 32, False)):
        found = find_page(jaeger.otlp_grpc, trace_id, patience=0)
        assert found is not None
        assert found.sure == sure


def test_failing_and_causing_trace_open_at_their_marker_and_name_each_other(shown: Shown, jaeger: Jaeger) -> None:
    failing, causing, attribution, _ = (urlsplit(url) for url in shown.addresses.values())
    found: list[dict[str, Any]] = []
    for url in (failing, causing):
        assert url.path.startswith("/trace/")
        (span_id,) = parse_qs(url.query)["uiFind"]
        (marker,) = (span for span in jaeger.trace(url.path[7:]) if span.span_id == span_id)
        assert marker.name == "memtrace.attribution update"
        found.append(marker.tags)
    assert found[0]["memtrace.failure.answer"] == found[1]["memtrace.failure.answer"]
    assert found[0]["memtrace.failure.answer"].startswith(failing.path[7:])
    assert found[0]["memtrace.failure.trace_id"] == causing.path[7:]
    (root,) = (span for span in jaeger.trace(attribution.path[7:]) if span.name == "memtrace.attribute")
    assert root.tags["memtrace.attribution.id"] == found[0]["memtrace.attribution.id"]


def test_the_search_in_jaeger_finds_the_failures_of_the_type_and_no_others(shown: Shown, jaeger: Jaeger) -> None:
    url = urlsplit(list(shown.addresses.values())[3])
    assert url.path == "/search"
    with urlopen(f"{jaeger.url}/api/traces?{url.query}") as reply:  # the page asks with the parameters of its address
        found = {trace["traceID"] for trace in json.load(reply)["data"]}
    assert found == shown.failing("update") != set()


def test_the_addresses_of_grafana_ask_tempo_for_the_same(shown: Shown, tempo: Tempo) -> None:
    panes = []
    for _, url in addresses(shown.annotations, GrafanaPage("http://localhost:3000")):
        (pane,) = json.loads(parse_qs(urlsplit(url).query)["panes"][0]).values()
        panes.append(pane)
    failing, causing, attribution, search = panes
    for pane in (failing, causing):
        spans = tempo.spans(pane["queries"][0]["query"])
        assert pane["panelsState"]["trace"]["spanId"] in {span.span_id for span in spans}
    assert "memtrace.attribute" in {span.name for span in tempo.spans(attribution["queries"][0]["query"])}
    times = {name: int(search["range"][key]) // 1000 for name, key in (("start", "from"), ("end", "to"))}
    assert tempo.search(search["queries"][0]["query"], **times) == shown.failing("update")


def test_a_receiver_that_is_not_there_is_told_before_the_story(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "memtrace_otel.cli", "demo", "--dir", tmp_path / "run"]
    done = subprocess.run([*command, "--otlp-endpoint", "http://127.0.0.1:9"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "cannot send traces to http://127.0.0.1:9" in done.stderr
    assert not (tmp_path / "run").exists()


# --- the guide to searching ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Search:
    """One search of the guide: the heading it stands under, its language, the text."""

    heading: str
    language: str
    text: str


def read_guide() -> Iterator[Search]:
    heading = ""
    for block in re.finditer(r"^## (.+)$|^```(traceql|jaeger)\n(.+?)\n```$", GUIDE.read_text("utf-8"), re.MULTILINE):
        if block[1]:
            heading = block[1]
        else:
            yield Search(heading, block[2], block[3])


@pytest.fixture(scope="module")
def chosen(shown: Shown) -> dict[str, str]:
    """Values for the words of the guide: a record that was updated and read again, the operation that updated it."""
    updates = [span for span in shown.spans if span.kind == "update"]
    read = {variable.origin for span in shown.spans for variable in span.inputs}
    update = next(span for span in updates if span.origin in read)
    record = update.outputs[0].ref.partition(":")[2]
    return {"SERVICE": SERVICE, "TRACE-SPAN": update.origin, "RECORD": record, "SCOPE": update.scope}


def expected(shown: Shown, chosen: dict[str, str]) -> dict[tuple[str, str, int], set[str]]:
    """What each search (heading, language, number there) has to find, by the records of the database."""
    memory, origin, scope = f"memory:{chosen['RECORD']}", chosen["TRACE-SPAN"], chosen["SCOPE"]
    operations = [span for span in shown.spans if span.kind]
    writing = shown.traces(span for span in operations if memory in {v.ref for v in span.outputs})
    reading = shown.traces(span for span in operations if memory in {v.ref for v in span.inputs})
    by_origin = shown.traces(span for span in operations if origin in {v.origin for v in span.inputs})
    searches = [span for span in operations if span.name == "search_memory"]
    empty = shown.traces(span for span in searches if not any(v.role == "hit" for v in span.inputs))
    kinds = {kind: shown.traces(s for s in operations if (s.scope, s.kind) == (scope, kind)) for kind in WRITES}
    retrieves = shown.traces(span for span in operations if (span.scope, span.kind) == (scope, "retrieve"))
    return {
        ("Failing traces by type", "traceql", 0): shown.failing("update"),
        ("Failing traces by type", "jaeger", 0): shown.failing("update"),
        ("Failing traces by type", "traceql", 1): shown.failing(),
        ("Failing traces by type", "jaeger", 1): shown.failing(),
        ("Everything that read what an operation wrote", "traceql", 0): by_origin,
        ("Everything that read what an operation wrote", "traceql", 1): reading,
        ("Everything that read what an operation wrote", "jaeger", 0): retrieves,
        ("The life of a record", "traceql", 0): writing | reading,
        ("The life of a record", "traceql", 1): writing,
        ("The life of a record", "jaeger", 0): writing,
        ("Empty retrievals", "traceql", 0): empty,
        ("Empty retrievals", "jaeger", 0): empty,
        ("Writes of a scope", "traceql", 0): set[str]().union(*kinds.values()),
        ("Writes of a scope", "jaeger", 0): kinds["update"],
    }


def run_guide(chosen: dict[str, str], jaeger: Jaeger, tempo: Tempo) -> dict[tuple[str, str, int], set[str]]:
    """What each search of the guide finds (as `expected`), with these values for its words."""
    found: dict[tuple[str, str, int], set[str]] = {}
    counted: dict[tuple[str, str], int] = {}
    for search in read_guide():
        text = search.text
        for word, value in chosen.items():
            text = text.replace(word, value)
        kind = (search.heading, search.language)
        place = (*kind, counted.setdefault(kind, 0))
        counted[kind] += 1
        if search.language == "traceql":
            found[place] = tempo.search(text)
        else:
            found[place] = jaeger.search(chosen["SERVICE"], dict(pair.split("=", 1) for pair in text.split()))
    return found


def test_every_search_of_the_guide_finds_exactly_its_traces(
    shown: Shown, chosen: dict[str, str], jaeger: Jaeger, tempo: Tempo
) -> None:
    wanted = expected(shown, chosen)
    assert run_guide(chosen, jaeger, tempo) == wanted
    assert all(wanted.values())


OWN_MEMORY = GUIDE.parent / "examples" / "own_memory.py"
SESSION = f"""
import runpy

notes = runpy.run_path({str(OWN_MEMORY)!r})["Notes"]("ann")
notes.remember("home", "Ann lives in Paris.")
notes.remember("home", "Ann lives in Lisbon.")
notes.remember("pet", "Ann has a dog.")
notes.forget("pet")
notes.search("Where does Ann live?")
notes.search("Which colour?")
"""


def test_they_find_what_a_memory_of_ones_own_did(jaeger: Jaeger, tempo: Tempo, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "memtrace_otel.cli", "run", "--db", str(tmp_path / "memtrace.db"), "--"]
    quiet = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    subprocess.run(
        [*command, sys.executable, "-c", SESSION], env=quiet | {"OTEL_SERVICE_NAME": "own-notes"}, check=True
    )
    with SqliteStore.open(tmp_path / "memtrace.db", create=False) as store:
        spans = sorted(store.spans(), key=lambda span: span.start)
    home, moved, pet, gone, where, colour = (span.trace_id for span in spans)
    for endpoint in (jaeger.otlp_grpc, tempo.otlp_grpc):
        send(Target("traces", "grpc", endpoint, insecure=True), encode_request(spans))
    wait_for(lambda: {span.trace_id for span in spans} <= tempo.search("{}"), "Tempo's search finds every trace")
    wait_for(lambda: all(jaeger.spans(span.trace_id) for span in spans), "every span is there")
    update = next(span for span in spans if span.kind == "update")
    words = {"SERVICE": "own-notes", "TRACE-SPAN": update.origin, "RECORD": "1", "SCOPE": update.scope}
    assert {place: found for place, found in run_guide(words, jaeger, tempo).items() if found} == {
        ("Everything that read what an operation wrote", "traceql", 0): {where},
        ("Everything that read what an operation wrote", "traceql", 1): {moved, where},
        ("Everything that read what an operation wrote", "jaeger", 0): {where, colour},
        ("The life of a record", "traceql", 0): {home, moved, where},
        ("The life of a record", "traceql", 1): {home, moved},
        ("The life of a record", "jaeger", 0): {home, moved},
        ("Empty retrievals", "traceql", 0): {colour},
        ("Empty retrievals", "jaeger", 0): {colour},
        ("Writes of a scope", "traceql", 0): {home, moved, pet, gone},
        ("Writes of a scope", "jaeger", 0): {moved},
    }


def test_what_the_guide_says_of_jaeger_and_lists_is_so(shown: Shown, chosen: dict[str, str], jaeger: Jaeger) -> None:
    assert jaeger.search(SERVICE, {"memtrace.inputs.origins": chosen["TRACE-SPAN"]}) == set()
    readers = expected(shown, chosen)["Everything that read what an operation wrote", "traceql", 0]
    found = jaeger.search(SERVICE, {"memtrace.scope": chosen["SCOPE"], "memtrace.op.kind": "retrieve"})
    assert readers <= found


# --- Jaeger's page ------------------------------------------------------------------------------------------------
LINKS = """
(tags => UIConfig().linkPatterns
  .filter(pattern => pattern.type === 'tags' && pattern.key in tags && pattern.value(tags[pattern.key]))
  .map(pattern => {
    const names = [...pattern.url.parameters, ...pattern.text.parameters];
    if (!names.every(name => name in tags)) return null;
    return [pattern.key, pattern.url.template(tags), pattern.text.template(tags)];
  }).filter(Boolean))
"""
"""What Jaeger's page (1.76, `model/link-patterns.ts`) makes of the patterns and the attributes of a span."""


@pytest.fixture(scope="module")
def page(jaeger: Jaeger, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """Jaeger's address in a browser, with the configuration as Jaeger has put it into its page."""
    config = (Path(__file__).parents[2] / "deploy" / "jaeger" / "ui.js").read_text("utf-8").strip()
    with urlopen(f"{jaeger.url}/") as reply:
        assert config in reply.read().decode()
    with open_tab(tmp_path_factory.mktemp("profile"), 800, 600) as tab:
        tab.open(f"{jaeger.url}/", "document.body")
        tab.evaluate(f"window.UIConfig = new Function({json.dumps(config + '; return UIConfig()')})")
        yield tab


def links(page: Tab, tags: dict[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """The links (address, text) of each attribute."""
    found: dict[str, list[tuple[str, str]]] = {}
    for key, url, text in page.evaluate(f"{LINKS}({json.dumps(tags)})"):
        found.setdefault(key, []).append((url, text))
    return found


def test_a_verdict_links_to_what_it_names(shown: Shown, jaeger: Jaeger, page: Tab) -> None:
    url = urlsplit(next(iter(shown.addresses.values())))
    (marker,) = (one for one in jaeger.trace(url.path[7:]) if one.span_id == parse_qs(url.query)["uiFind"][0])
    found = links(page, marker.tags)
    decisive = f"/trace/{marker.tags['memtrace.failure.trace_id']}?uiFind={marker.tags['memtrace.failure.span_id']}"
    assert found["memtrace.failure.trace_id"] == [(decisive, "the decisive operation")]
    assert found["memtrace.failure.span_id"] == found["memtrace.failure.trace_id"]
    trace_id, span_id = marker.tags["memtrace.failure.answer"].split("-")
    assert found["memtrace.failure.answer"] == [(f"/trace/{trace_id}?uiFind={span_id}", "the failing answer")]
    ((report, _),) = found["memtrace.failure.type"]
    assert urlsplit(report).path == f"/report/{trace_id}"
    steps = [step.split("|") for step in json.loads(marker.tags["memtrace.failure.evidence"])]
    assert len(steps) > 2
    assert found["memtrace.failure.evidence"] == [
        (f"/trace/{origin.replace('-', '?uiFind=')}", f"{role}: {ref}") for role, ref, origin in steps
    ]


def test_origins_link_to_the_spans_that_produced_what_was_read(shown: Shown, jaeger: Jaeger, page: Tab) -> None:
    search = next(s for s in shown.spans if s.name == "search_memory" and len({v.origin for v in s.inputs}) > 2)
    (shown_span,) = (one for one in jaeger.trace(search.trace_id) if one.span_id == search.span_id)
    found = links(page, shown_span.tags)["memtrace.inputs.origins"]
    origins = list(dict.fromkeys(variable.origin for variable in search.inputs if variable.origin))
    assert [url for url, _ in found] == [f"/trace/{origin.replace('-', '?uiFind=')}" for origin in origins]
    for (_, text), origin in zip(found, origins, strict=True):
        assert text == "produced " + ", ".join(dict.fromkeys(v.ref for v in search.inputs if v.origin == origin))


@pytest.mark.parametrize(
    "value", ["", "[", "7", '["x", null, {}]', '["javascript:alert(1)|x|y"]', "javascript:alert(1)"]
)
def test_what_is_no_origin_is_no_link(page: Tab, value: str) -> None:
    keys = ("inputs", "inputs.origins", "step.origin", "failure.answer", "failure.evidence", "failure.alternatives")
    assert links(page, {f"memtrace.{key}": value for key in (*keys, "failure.trace_id")}) == {}


@pytest.mark.parametrize("value", [7, True, "", "..//evil.example", "javascript:alert(1)"])
def test_a_link_of_several_attributes_holds_nothing_that_is_no_origin(page: Tab, value: object) -> None:
    tags = {"failure.type": "update", "failure.answer": value, "failure.trace_id": value, "failure.span_id": "b" * 16}
    found = links(page, {f"memtrace.{key}": one for key, one in tags.items()})
    assert {key: urlsplit(url).path for key, ((url, _),) in found.items()} == {
        "memtrace.failure.type": "/report/",
        "memtrace.failure.span_id": "/search",
    }
    assert {urlsplit(url).hostname for ((url, _),) in found.values()} <= {None, "localhost"}
