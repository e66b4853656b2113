"""What of a content goes on a span, what goes to the store, and what stays."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

from memtrace_otel import settings
from memtrace_otel.capture import CaptureConfig, as_text, config, configure, operation, read_config, use_config
from memtrace_otel.capture.content import describe, plain, scope_id, show, show_value, variable_ref
from memtrace_otel.capture.redact import EDGE, OWN_SEARCHED, SEARCHED
from memtrace_otel.capture.redact_callback import THREADS, WAIT
from memtrace_otel.capture.redact_patterns import NAMES
from memtrace_otel.model import content_digest
from tests.conftest import Recording

KEY = "sk-proj-" + "a1B2c3D4" * 4
LONG = "Ana moved to Lisbon in March. " * 1000


def limits(**values: object) -> CaptureConfig:
    configure(**values)
    return config()


@pytest.fixture(autouse=True)
def settings_of_this_test_only() -> object:
    yield
    configure(**dict.fromkeys(settings.NAMES))


def whole(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def test_a_dataclass_is_its_fields() -> None:
    @dataclass
    class Fact:
        text: str
        about: frozenset[str]

    assert as_text(Fact("likes tea", frozenset("ba"))) == ('{"about": ["a", "b"], "text": "likes tea"}', True)


def test_with_contents_off_nothing_leaves_but_digest_and_size() -> None:
    assert describe("é" + KEY, limits(), inline=True) == (whole("é" + KEY), 42, "", ())


@pytest.mark.parametrize("odd", [KEY, "password: hunter2", "é", "\ud800", "a" * 16_385])
def test_texts_are_looked_at_together_and_one_that_cannot_be_shown_as_it_is_tells(odd: str) -> None:
    used, texts = limits(capture_content="SPAN_ONLY"), ["", "Ana", "co-working", "1900" * 4096]
    assert plain(texts, used)
    for text in texts:
        assert describe(text, used, inline=True) == (text and whole(text), len(text), text, ())
    assert not plain([*texts, odd, "Lisbon"], used)


@pytest.mark.parametrize(
    "values",
    [
        {"redact_patterns": "(?i)ana"},  # may find something in any text
        {"redact_patterns": "emial"},  # not understood: nothing may leave
    ],
)
def test_no_text_is_plain_when_each_has_to_be_looked_at(values: dict[str, str]) -> None:
    assert not plain(["Lisbon"], limits(**{"capture_content": "SPAN_ONLY", **values}))


def test_nothing_is_described_as_nothing() -> None:
    withholding = limits(capture_content="SPAN_ONLY", redact_patterns="emial")
    assert describe("", withholding, inline=True) == ("", 0, "", ())


def test_a_preview_is_redacted_and_the_digest_is_of_the_original() -> None:
    described = describe(f"key {KEY}", limits(capture_content="SPAN_ONLY", digest_key="k"), inline=True)
    digest = content_digest(f"key {KEY}", "k")
    assert described == (digest, 44, "key [redacted: api_key]", ("redacted:api_key",))


def test_digests_let_nobody_guess_what_was_removed(recording: Recording) -> None:
    configure(capture_content="SPAN_ONLY", redact_patterns="personal")
    text, other = "call me at 555-123-4567", "call me at home"
    with operation("create_memory", kind="create", system="test", tracer=recording.tracer) as op:
        for content in (text, other):
            op.read(variable_ref("message", content), role="message", content=content)
            op.read("memory:1", role="hit", content=content, origin=f"{'1' * 32}-{'1' * 16}")
            op.wrote("memory:2", action="ADD", content=content)
    (span,) = recording.spans()
    assert whole(text) not in str(span.to_json())
    assert span.attributes is not None
    message, hit, *_ = span.attributes["memtrace.inputs.digests"]  # type: ignore[misc]
    assert [message, whole(other)] == list(span.attributes["memtrace.outputs.digests"])  # type: ignore[arg-type]
    assert hit == message  # versions are still told apart and matched
    assert span.attributes["memtrace.inputs"][0] == variable_ref("message", text) == f"message:{message}"  # type: ignore[index]
    configure(digest_key="k")
    assert variable_ref("message", text) == f"message:{content_digest(text, 'k')}"


def test_a_text_that_no_encoding_takes_costs_no_other(recording: Recording, content_on: None) -> None:
    with operation("create_memory", kind="create", system="test", tracer=recording.tracer) as op:
        op.read(variable_ref("message", "x", "id \ud83d"), role="message", content="ok")
        op.wrote("memory:1", action="ADD", content="smile \ud83d !")
        op.wrote("memory:2", action="ADD", content={"text": "smile \ud83d !"})
        op.set("memtrace.test", "\ud83d")
    (span,) = recording.spans()
    assert span.attributes is not None
    assert "unserialisable" in span.attributes["memtrace.incomplete"]  # type: ignore[operator]
    encoded = encode_spans([span]).SerializeToString()
    assert b"smile ? !" in encoded
    assert b"memtrace.inputs.contents" in encoded


class Unreadable:
    def __str__(self) -> str:
        raise ValueError


def test_ids_that_cannot_be_read_raise_nothing_and_equal_no_other() -> None:
    refs = {variable_ref("memory", "x", id) for id in ("id\ud83d", "id\ude00", "id \ud83d", Unreadable(), Unreadable())}
    assert len(refs) == 5
    assert all(ref.encode() for ref in refs)
    assert len({scope_id(user=user) for user in ("a\ud83d", "a\ude00", Unreadable(), Unreadable())}) == 4
    assert scope_id(user=7) == scope_id(user="7")


def test_values_of_attributes_are_shown_redacted() -> None:
    used = limits(capture_content="SPAN_ONLY")
    assert show_value([f"key={KEY}", "city=Lisbon"], used) == ["key=[redacted: api_key]", "city=Lisbon"]
    assert show_value((1, 2), used) == [1, 2]
    assert show_value(KEY, used) == "[redacted: api_key]"
    assert show_value(True, used) is True


def test_a_key_hides_digests_from_guessing() -> None:
    plain, keyed = describe("Ana", limits(), inline=True), describe("Ana", limits(digest_key="k"), inline=True)
    assert plain.digest != keyed.digest == describe("Ana", limits(digest_key="k"), inline=True).digest


def test_the_key_is_never_shown() -> None:
    assert "k3y-of-digests" not in repr(limits(digest_key="k3y-of-digests"))


def test_other_texts_are_shown_redacted_and_cut() -> None:
    used = limits(capture_content="SPAN_ONLY")
    assert show(f"ValueError: {KEY} refused", used, 200) == "ValueError: [redacted: api_key] refused"
    assert show("é" * 200, used, 9) == "éééé"
    assert show("x" * 50_000, used) == "x" * 16_384


def test_a_span_names_the_rules_that_removed_something(recording: Recording) -> None:
    configure(capture_content="SPAN_ONLY", redact_patterns="secrets,email", preview_bytes=1900)
    with operation("create_memory", kind="create", system="test", tracer=recording.tracer) as op:
        op.read("message:1", role="message", content=f"write to ana@example.org, {KEY}")
        op.wrote("memory:1", action="ADD", content=LONG)
    (span,) = recording.spans()
    assert span.attributes is not None
    assert span.attributes["memtrace.inputs.contents"] == ("write to [redacted: email], [redacted: api_key]",)
    assert set(span.attributes["memtrace.incomplete"]) >= {"redacted:email", "redacted:api_key", "truncated"}  # type: ignore[arg-type]


def test_a_structured_content_loses_its_secrets(recording: Recording, content_on: None) -> None:
    with operation("create_memory", kind="create", system="test", tracer=recording.tracer) as op:
        op.read("message:1", role="message", content={"role": "user", "auth": {"apiKey": "hunter2"}})
    (span,) = recording.spans()
    assert span.attributes is not None
    (content,) = span.attributes["memtrace.inputs.contents"]  # type: ignore[misc]
    assert json.loads(str(content)) == {"role": "user", "auth": {"apiKey": "[redacted: api_key]"}}


def test_configuration_is_read_once_and_again_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    assert config() is config()
    monkeypatch.setenv("MEMTRACE_PREVIEW_BYTES", "10")
    assert config().preview_bytes == 16_384
    use_config(read_config())
    assert config().preview_bytes == 10


SDK = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter()))
"""


def test_the_guide_does_what_it_says() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "guide" / "content.md").read_text()
    [redaction] = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", SDK + redaction], capture_output=True, text=True, check=True)
    (shown,) = json.loads(done.stdout)["attributes"]["memtrace.outputs.contents"]
    assert f"`{shown}`" in guide


def test_the_guide_names_every_rule_and_limit() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "guide" / "content.md").read_text()
    assert {name for name in NAMES if f"`{name}`" not in guide} == set()
    for amount in (EDGE, OWN_SEARCHED):
        assert f"{amount:,}" in guide
    assert f"{WAIT * 1000:g} ms" in guide
    assert f"{THREADS} threads" in guide
    assert SEARCHED == 1_000_000
