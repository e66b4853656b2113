"""Contents of other instrumentations, before they are written and after."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from memtrace_otel import settings
from memtrace_otel.doctor import Finding, State
from memtrace_otel.doctor.foreign import check_foreign_contents, check_foreign_instrumentations
from memtrace_otel.doctor.program import Instrumentor, ObservedProgram, Package, SettingValue
from memtrace_otel.model import Event, OperationSpan

OURS = OperationSpan("1" * 32, "1" * 16, kind="retrieve", incomplete=("content_off",))
THEIRS = OperationSpan("1" * 32, "2" * 16, name="ChatOpenAI")
OPENINFERENCE, UTIL_GENAI = "openinference.instrumentation.langchain", "opentelemetry.util.genai.handler"


def written(name: str, scope: str = OPENINFERENCE, value: str = "I live in Lisbon") -> list[Finding]:
    spans = [OURS, replace(THEIRS, instrumentation_scope=scope, attributes={name: value, "llm.model_name": "m"})]
    return list(check_foreign_contents(spans))


@pytest.mark.parametrize(
    ("name", "scope", "remedy"),
    [
        ("input.value", OPENINFERENCE, "OPENINFERENCE_HIDE_INPUTS=true OPENINFERENCE_HIDE_OUTPUTS=true"),
        ("llm.input_messages.0.message.content", OPENINFERENCE, "OPENINFERENCE_HIDE_INPUTS=true"),
        ("gen_ai.prompt.0.content", "opentelemetry.instrumentation.openai.v1", "export TRACELOOP_TRACE_CONTENT=false"),
        ("gen_ai.input.messages", UTIL_GENAI, "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=NO_CONTENT"),
    ],
)
def test_contents_on_spans_of_others_are_named(name: str, scope: str, remedy: str) -> None:
    [found] = written(name, scope)
    assert found.state == State.WARNING
    assert name.replace(".0.", ".*.") in found.found
    assert scope in found.found
    assert remedy in found.remedy
    assert "Lisbon" not in found.found


def test_contents_in_events_of_others_are_named() -> None:
    event = Event("gen_ai.client.inference.operation.details", 1, {"gen_ai.output.messages": "[...]"})
    [found] = check_foreign_contents([OURS, replace(THEIRS, instrumentation_scope=UTIL_GENAI, events=(event,))])
    assert "gen_ai.output.messages" in found.found


def test_nothing_to_say() -> None:
    assert not written("input.value", value="__REDACTED__")
    assert not written("input.mime_type")
    assert not written("gen_ai.retrieval.query.text", "memtrace_otel.langchain")


def test_contents_of_others_are_named_while_ours_are_on() -> None:
    messages = {f"llm.input_messages.{n}.message.content": "I live in Lisbon" for n in range(3)}
    shown = replace(THEIRS, instrumentation_scope=OPENINFERENCE, attributes={"input.value": "Lisbon", **messages})
    [found] = check_foreign_contents([replace(OURS, incomplete=()), shown])
    assert found.state == State.OK
    assert "4 attributes: llm.input_messages.*.message.content, input.value)" in found.found
    assert "redaction" in found.found


def test_contents_of_others_beside_redacted_ones_are_a_warning() -> None:
    shown = replace(THEIRS, instrumentation_scope=OPENINFERENCE, attributes={"input.value": "key=4711"})
    [found] = check_foreign_contents([shown, replace(OURS, incomplete=("redacted:secret",))])
    assert found.state == State.WARNING
    assert "OPENINFERENCE_HIDE_INPUTS=true" in found.remedy


def program(content: str = "NO_CONTENT", **environ: str) -> ObservedProgram:
    name = "openinference-instrumentation-langchain"
    return ObservedProgram(
        environ=environ,
        python=Path("python"),
        version=(3, 11),
        packages={name: Package("0.1.80", ["openinference-instrumentation>=0.1.27", "langchain; extra == 'test'"])},
        instrumentors=[Instrumentor("langchain", name, (), active=False, error="")],
        settings={settings.CAPTURE_CONTENT.name: SettingValue(content, "", "")},
        log=(),
    )


def test_an_instrumentation_that_will_write_contents_is_named() -> None:
    [found] = check_foreign_instrumentations(program(OPENINFERENCE_HIDE_INPUTS="true"))
    assert found.state == State.WARNING
    assert "openinference-instrumentation-langchain" in found.found
    assert "OPENINFERENCE_HIDE_OUTPUTS=true" in found.remedy


def test_one_that_may_write_them_is_named_as_well() -> None:
    [found] = check_foreign_instrumentations(program("SPAN_ONLY"))
    assert found.state == State.OK
    assert "openinference-instrumentation-langchain" in found.found
    assert "redaction" in found.found


def test_an_instrumentation_that_hides_them_is_not() -> None:
    hidden = {"OPENINFERENCE_HIDE_INPUTS": "True", "OPENINFERENCE_HIDE_OUTPUTS": "true"}
    assert not list(check_foreign_instrumentations(program(**hidden)))
    assert not list(check_foreign_instrumentations(program(OTEL_PYTHON_DISABLED_INSTRUMENTATIONS="langchain")))
