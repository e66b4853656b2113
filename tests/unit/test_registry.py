"""The registry in docs/reference is the single list of our attributes: equal to semconv.py and to what is written."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from memtrace_otel import semconv
from memtrace_otel.annotate import AttributionMetrics
from memtrace_otel.annotate.attribution_trace import attribution_trace
from memtrace_otel.annotate.evaluation import evaluation_event
from memtrace_otel.annotate.marker import marker
from memtrace_otel.canary import CanaryMetrics, Outcome, Stage
from memtrace_otel.capture import configure, metrics, operation
from memtrace_otel.capture.delivery.losses import Losses
from memtrace_otel.capture.guard import drops
from memtrace_otel.graph.smartcomment import to_spans
from memtrace_otel.health import Finding, record_health
from memtrace_otel.model import Replay, Review
from memtrace_otel.otlp import decode_request, encode_request
from memtrace_otel.web.annotations import review_attributes
from tests.conftest import Recording
from tests.unit.annotate.conftest import UPDATE, verdict_on
from tests.unit.graph.test_smartcomment import recorded as smartcomment_document

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reference" / "registry"
INSTRUMENTATION = ROOT / "src" / "memtrace_otel" / "instrumentation"
_spec = importlib.util.spec_from_file_location("registry_tables", FOLDER / "tables.py")
assert _spec is not None
assert _spec.loader is not None
tables = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tables)
REGISTRY: dict[str, list[dict[str, Any]]] = tables.read_registry()
ATTRIBUTES: dict[str, dict[str, Any]] = {entry["key"]: entry for entry in REGISTRY["attributes"]}

ENUMS: Mapping[str, type[StrEnum]] = {
    semconv.OP_KIND: semconv.OpKind,
    semconv.INPUTS: semconv.RefKind,
    semconv.OUTPUTS: semconv.RefKind,
    semconv.INPUTS_ROLES: semconv.Role,
    semconv.OUTPUTS_ROLES: semconv.Role,
    semconv.OUTPUTS_ACTIONS: semconv.Action,
    semconv.LINK_TYPE: semconv.LinkType,
    semconv.FAILURE_REPLAY: semconv.ReplayOutcome,
    semconv.FAILURE_TYPE: semconv.FailureType,
    semconv.INCOMPLETE: semconv.Incomplete,
}
PYTHON_TYPES: Mapping[str, Callable[[object], bool]] = {
    "string": lambda value: isinstance(value, str),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "double": lambda value: isinstance(value, float),
    "boolean": lambda value: isinstance(value, bool),
}
STABILITIES = {"stable", "development", "alpha", "beta", "release_candidate"}
# Of each section: the keys an entry must have, and those it may have (weaver, definition/2).
FORMS: Mapping[str, tuple[set[str], set[str]]] = {
    "attributes": ({"key", "type", "brief", "stability"}, {"note", "examples", "annotations"}),
    "attribute_groups": ({"id", "visibility"}, {"brief", "note", "stability", "attributes"}),
    "spans": ({"type", "kind", "name", "brief", "stability"}, {"note", "attributes"}),
    "span_refinements": ({"id", "ref"}, {"brief", "note", "attributes"}),
    "events": ({"name", "brief", "stability"}, {"note", "attributes"}),
    "event_refinements": ({"id", "ref"}, {"brief", "note", "attributes"}),
    "metrics": ({"name", "instrument", "unit", "brief", "stability"}, {"note", "attributes"}),
    "metric_refinements": ({"id", "ref"}, {"brief", "note", "attributes"}),
}


def named(*, suffix: str = "", prefix: str = "") -> set[str]:
    """Our literals of the constants with such names."""
    return {
        value
        for name, value in vars(semconv).items()
        if isinstance(value, str)
        and not isinstance(value, StrEnum)
        and name.isupper()
        and name.endswith(suffix)
        and name.startswith(prefix)
        and value.startswith("memtrace.")
    }


SPANS, EVENTS, METRICS = named(suffix="_SPAN"), named(suffix="_EVENT"), named(prefix="METRIC_")
OTHER_NAMES = {semconv.SPAN_NAME_PREFIX, semconv.ATTRIBUTION_EVALUATION, semconv.REVIEW_EVALUATION}
REVIEWED = review_attributes(Review("1-2", "ada", "update", note="seen"))


def problems(attributes: Mapping[str, object], allowed: Iterable[str]) -> list[str]:
    """What is wrong with attributes of ours that were really written."""
    found = []
    for key, value in attributes.items():
        if not key.startswith("memtrace."):
            continue
        if key not in ATTRIBUTES:
            found.append(f"{key} is not in the registry")
            continue
        if key not in allowed:
            found.append(f"{key} does not belong here")
        kind = ATTRIBUTES[key]["type"]
        name = "string" if isinstance(kind, dict) else kind
        items = list(value) if isinstance(value, list | tuple) else [value]
        if name.endswith("[]") != isinstance(value, list | tuple) or not all(
            PYTHON_TYPES[name.removesuffix("[]")](item) for item in items
        ):
            found.append(f"{key} is {value!r}, not {name}")
        known = values_of(key)
        if key in (semconv.INPUTS, semconv.OUTPUTS):
            items = [str(item).partition(":")[0] for item in items]
        if key == semconv.INCOMPLETE:
            items = [str(item).partition(":")[0] for item in items]
        if known and not set(items) <= known:
            found.append(f"{key} holds {set(items) - known}")
    return found


def values_of(key: str) -> set[object]:
    """The values that the registry lists for an attribute or its elements, none when they are open."""
    entry = ATTRIBUTES[key]
    if isinstance(entry["type"], dict):
        return {member["value"] for member in entry["type"]["members"]}
    elements = entry.get("annotations", {}).get("memtrace", {}).get("elements", ())
    return {element["value"] for element in elements}


def keys_of(section: str, name: str) -> set[str]:
    """The attributes that an entry of the registry may carry."""
    (entry,) = (e for e in REGISTRY[section] if name in (e.get("type"), e.get("name"), e.get("id")))
    return set(tables.attributes_of(entry.get("attributes", ()), REGISTRY))


# --- the same names and values as in semconv.py --------------------------------------------------------------------
def test_attributes_are_those_of_semconv() -> None:
    ours = named() - SPANS - EVENTS - METRICS - OTHER_NAMES | {semconv.EVIDENCE}
    ours |= {key for key in REVIEWED if key.startswith("memtrace.")}
    assert set(ATTRIBUTES) == ours
    assert len(REGISTRY["attributes"]) == len(ATTRIBUTES)


def test_spans_events_and_metrics_are_those_of_semconv() -> None:
    assert {entry["type"] for entry in REGISTRY["spans"]} == SPANS | {"memtrace.step"}
    assert {entry["name"] for entry in REGISTRY["events"]} == EVENTS
    assert {entry["name"] for entry in REGISTRY["metrics"]} == METRICS
    assert {entry["ref"] for entry in REGISTRY["metric_refinements"]} == {semconv.METRIC_OPERATION_DURATION}
    assert {entry["ref"] for entry in REGISTRY["event_refinements"]} == {semconv.EVALUATION_EVENT}


def test_values_are_those_of_semconv() -> None:
    assert {key for key in ATTRIBUTES if values_of(key)} == set(ENUMS)
    for key, enum in ENUMS.items():
        assert values_of(key) == set(enum), key
    enums = {value for value in vars(semconv).values() if isinstance(value, type) and issubclass(value, StrEnum)}
    assert enums - {StrEnum} == set(ENUMS.values())


def test_every_attribute_belongs_to_something() -> None:
    used: set[str] = set()
    for section in FORMS:
        for entry in REGISTRY.get(section, ()):
            used |= set(tables.attributes_of(entry.get("attributes", ()), REGISTRY))
    assert set(ATTRIBUTES) - used == set()
    standard = {value for name, value in vars(semconv).items() if name.isupper() and isinstance(value, str)}
    assert {key for key in used if not key.startswith("memtrace.")} <= standard


def test_every_instrumented_system_says_what_its_store_is() -> None:
    (system,) = (entry for entry in REGISTRY["attributes"] if entry["key"] == semconv.SYSTEM)
    refined = {entry["id"]: entry for entry in REGISTRY["span_refinements"]}
    for package in (path for path in INSTRUMENTATION.iterdir() if (path / "__init__.py").exists()):
        assert package.name in system["examples"]
        if any("GEN_AI_MEMORY_STORE_ID" in module.read_text() for module in package.glob("*.py")):
            assert f"`{semconv.GEN_AI_MEMORY_STORE_ID}`" in refined[f"gen_ai.memory.client.{package.name}"]["note"]


def test_versions_agree() -> None:
    manifest = yaml.safe_load((FOLDER / "manifest.yaml").read_text())
    assert manifest["schema_url"] == semconv.SCHEMA_URL
    assert all(entry["schema_url"] and entry["registry_path"] for entry in manifest["dependencies"])
    assert semconv.SCHEMA_URL in (FOLDER.parent / "semantic-conventions.md").read_text()


# --- the form that weaver reads ------------------------------------------------------------------------------------
def test_files_have_the_form_of_weaver() -> None:
    for path in FOLDER.glob("*.yaml"):
        if path.name != "manifest.yaml":
            content = yaml.safe_load(path.read_text())
            assert content["file_format"] == "definition/2"
            assert set(content) <= {"file_format", "imports", *FORMS}, path.name
    for section, (needed, possible) in FORMS.items():
        for entry in REGISTRY[section]:
            assert needed <= set(entry) <= needed | possible, (section, entry)
            assert entry.get("stability", "development") in STABILITIES
            for ref in entry.get("attributes", ()):
                assert set(ref) <= {"ref", "requirement_level"} or set(ref) == {"ref_group"}, ref
    for entry in REGISTRY["spans"]:
        assert entry["kind"] in ("internal", "client")
        assert set(entry["name"]) == {"note"}
    assert {entry["instrument"] for entry in REGISTRY["metrics"]} <= {"counter", "updowncounter", "gauge", "histogram"}


def test_types_and_examples_fit() -> None:
    for key, entry in ATTRIBUTES.items():
        kind = entry["type"]
        if isinstance(kind, dict):
            for member in kind["members"]:
                assert {"id", "value", "brief", "stability"} == set(member), key
            continue
        name = kind.removesuffix("[]")
        assert name in PYTHON_TYPES, key
        for example in entry["examples"]:
            items = example if kind.endswith("[]") else [example]
            assert isinstance(items, list)
            assert all(PYTHON_TYPES[name](item) for item in items), (key, example)


def test_every_brief_is_a_sentence() -> None:
    for section in FORMS:
        for entry in REGISTRY[section]:
            if brief := entry.get("brief"):
                assert brief.strip().endswith("."), brief


# --- what is really written ----------------------------------------------------------------------------------------
def test_spans_of_capture_carry_what_the_registry_says(recording: Recording) -> None:
    configure(capture_content="SPAN_ONLY", span_bytes=1500)
    tracer = recording.tracer
    try:
        with operation(kind="extract", system="mem0", purpose="facts", scope="0" * 16, tracer=tracer) as step:
            step.read("message:1", role="message", content="mail ana@example.org" * 200)
            step.wrote("fact:1", content="x", sources=[0], event_time="2023-05-08T13:56:00Z")
            step.wrote("memory:1", action="ADD", content="y" * 3000, sources=[0], store="s3://bucket/1")
            step.span.add_event(semconv.RETRY_EVENT, {semconv.RETRY_ATTEMPT: 2})
        with operation("search_memory", kind="retrieve", system="mem0", scope="0" * 16, tracer=tracer) as search:
            search.set(semconv.RECORD_OWNER, "0" * 16)
            search.set(semconv.RETRIEVAL_THRESHOLD, 0.1)
            search.set(semconv.RETRIEVAL_FILTERS, ["year.gte=2024"])
            search.set(semconv.RETRIEVAL_SCORERS, ["semantic"])
            for n in range(40):
                search.read(f"memory:{n % 2 + 1}", role="hit", content="y" * 3000, score=0.5)
    finally:
        configure(capture_content=None, span_bytes=None)
    seen: set[str] = set()
    for span in recording.spans():
        kind = "gen_ai.memory.client.mem0" if span.name == "search_memory" else "memtrace.step"
        section = "span_refinements" if span.name == "search_memory" else "spans"
        assert problems(span.attributes or {}, keys_of(section, kind)) == []
        seen |= set(span.attributes or {})
        for link in span.links:
            assert problems(link.attributes or {}, keys_of("attribute_groups", "memtrace.link")) == []
            seen |= set(link.attributes or {})
        for event in span.events:
            assert problems(event.attributes or {}, keys_of("events", event.name)) == []
    expected = keys_of("attribute_groups", "memtrace.memory") | keys_of("attribute_groups", "memtrace.link")
    assert {key for key in expected if key.startswith("memtrace.")} - seen == {semconv.EVIDENCE, semconv.INPUTS_STORES}


def test_a_span_that_breaks_the_registry_is_found() -> None:
    allowed = keys_of("spans", "memtrace.step")
    for wrong in (
        {semconv.SEQ: "17"},
        {semconv.SEQ: True},
        {semconv.INPUTS: "query:1"},
        {semconv.INPUTS: ["thing:1"]},
        {semconv.INPUTS_SCORES: [1]},
        {semconv.OP_KIND: "guess"},
        {semconv.FAILURE_TYPE: "update"},
        {"memtrace.unheard": 1},
    ):
        assert len(problems(wrong, allowed)) == 1, wrong
    assert problems({semconv.SEQ: 17, semconv.INCOMPLETE: ["redacted:email"], "other": object()}, allowed) == []


def test_the_span_that_tells_of_losses(recording: Recording) -> None:
    with operation(kind="extract", system="mem0", tracer=recording.tracer):
        pass
    losses = Losses()
    losses.note(recording.spans()[0], "test")
    (told,) = losses.take(1)
    assert semconv.LOST in (told.attributes or {})
    assert problems(told.attributes or {}, keys_of("spans", "memtrace.step")) == []


def test_spans_of_a_verdict_carry_what_the_registry_says() -> None:
    replay = Replay("verified", "the answer is right")
    verdict = verdict_on(UPDATE, attribution_id="5e88", replaces="4d77", advice="Raise k.", replay=replay)
    spans = list(decode_request(encode_request([marker(verdict, UPDATE), *attribution_trace(verdict, 1, 2)])))
    kinds = {entry["type"] for entry in REGISTRY["spans"]}
    seen: set[str] = set()
    for span in spans:
        kind = span.name.partition(" ")[0]
        assert kind in kinds
        assert problems(span.attributes, keys_of("spans", kind)) == []
        seen |= set(span.attributes)
        for link in span.links:
            assert problems(link.attributes, keys_of("attribute_groups", "memtrace.link")) == []
    expected = keys_of("spans", "memtrace.attribution") | keys_of("spans", "memtrace.evidence")
    assert expected - seen == {semconv.INCOMPLETE}
    event = evaluation_event(verdict, 1)
    assert problems(event.attributes, keys_of("event_refinements", "gen_ai.evaluation.result.memtrace")) == []


def test_the_event_of_a_review_carries_what_the_registry_says() -> None:
    assert problems(REVIEWED, keys_of("event_refinements", "gen_ai.evaluation.result.review")) == []


def test_imported_spans_carry_what_the_registry_says() -> None:
    text = json.dumps(smartcomment_document().document)
    allowed = keys_of("attribute_groups", "memtrace.smartcomment") | keys_of("spans", "memtrace.step")
    seen: set[str] = set()
    for span in to_spans(json.loads(text)):
        assert problems(span.attributes, allowed) == []
        seen |= set(span.attributes)
    assert keys_of("attribute_groups", "memtrace.smartcomment") - seen == set()


def test_metrics_are_made_as_the_registry_says(recording: Recording) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    metrics.publish(provider)
    drops["test"] += 1
    with operation("search_memory", kind="retrieve", system="mem0", tracer=recording.tracer) as search:
        search.read("memory:x", role="hit")
        search.mark("truncated")
    AttributionMetrics(provider).attributed(verdict_on(UPDATE, complete=False, replay=Replay("refuted", "")), 0.5)
    CanaryMetrics(provider).record(Outcome(Stage.MARKER, "", "", 1.0), 0.0)
    record_health([Finding("s", "mem0", "leaks", "", 1, 2, 0.5, 0.0, True, "", ())], provider)
    data = reader.get_metrics_data()
    assert data is not None
    made = [m for resource in data.resource_metrics for scope in resource.scope_metrics for m in scope.metrics]
    entries = {entry["name"]: entry for entry in REGISTRY["metrics"]}
    assert {metric.name for metric in made if metric.name.startswith("memtrace.")} == set(entries)
    for metric in made:
        if entry := entries.get(metric.name):
            assert (metric.unit, metric.description) == (entry["unit"], entry["brief"])
            kinds = {"histogram": "Histogram", "gauge": "Gauge"}
            assert type(metric.data).__name__ == kinds.get(entry["instrument"], "Sum")
            if entry["instrument"] not in kinds:
                assert metric.data.is_monotonic == (entry["instrument"] == "counter")
            always = {one["ref"] for one in entry.get("attributes", ()) if one["requirement_level"] == "required"}
            for point in metric.data.data_points:
                assert always <= set(point.attributes)
                assert problems(point.attributes, keys_of("metrics", metric.name)) == []


# --- the page ------------------------------------------------------------------------------------------------------
def test_the_page_shows_the_registry() -> None:
    page = tables.PAGE.read_text()
    assert page == tables.render(page, REGISTRY), "run: python docs/reference/registry/tables.py"


@pytest.mark.parametrize("key", sorted(ATTRIBUTES))
def test_every_attribute_is_on_the_page(key: str) -> None:
    assert f"`{key}`" in tables.PAGE.read_text()
