"""The attribution as a trace of its own, in real time: what was concluded, about which span, from which steps."""

from __future__ import annotations

import json
from dataclasses import replace

from memtrace_otel import semconv
from memtrace_otel.annotate import identity
from memtrace_otel.annotate.attributes import EXPLANATION_BYTES, REASON_BYTES, clip, incomplete, verdict_attributes
from memtrace_otel.annotate.evaluation import evaluation_event
from memtrace_otel.annotate.marker import link
from memtrace_otel.model import AttributeValue, Link, OperationSpan, Step, Verdict, is_origin, make_origin, split_origin
from memtrace_otel.version import __version__

MAX_STEPS = 32
"""Most evidence steps that get a span; the source and the loss are at the ends, so the middle is what gives way."""

_ANNOTATOR = {"rules": "CODE", "human": "HUMAN"}


def attribution_trace(verdict: Verdict, started: int, ended: int) -> list[OperationSpan]:
    """Return the root `memtrace.attribute` and one child per step; times are nanoseconds since the epoch.

    The root has exactly one link, to the failing answer, and the annotation keys of OpenInference (spec "Annotations
    and Evaluations"), so that readers of that convention attach the result to the answer.
    """
    answer = verdict.failure.answer_span
    resource: dict[str, AttributeValue] = {
        semconv.SERVICE_NAME: semconv.ATTRIBUTION_SERVICE,
        semconv.SERVICE_VERSION: __version__,
    }
    ended = max(ended, started + 1)
    attributes = verdict_attributes(verdict)
    root = OperationSpan(
        trace_id=identity.trace_id(verdict),
        span_id=identity.span_id(verdict, "root"),
        name=semconv.ATTRIBUTION_ROOT_SPAN,
        start=started,
        end=ended,
        incomplete=incomplete(verdict, attributes),
        attributes={**attributes, **_annotation(verdict)},
        resource=resource,
        instrumentation_scope=semconv.ATTRIBUTION_SCOPE,
        links=(link(answer.trace_id, answer.span_id, semconv.LinkType.EVALUATES),),
        events=(evaluation_event(verdict, ended),),
    )
    children = [_child(verdict, root, position, step) for position, step in enumerate(_steps(verdict))]
    return [root, *children, *_calls(verdict, root)]


def _steps(verdict: Verdict) -> list[Step]:
    steps = list(verdict.evidence)
    if len(steps) > MAX_STEPS:
        steps = steps[: MAX_STEPS // 2] + steps[-MAX_STEPS // 2 :]
    if verdict.span_id:
        decisive = Step(semconv.DECISIVE_STEP, verdict.variable, make_origin(verdict.trace_id, verdict.span_id))
        steps.append(decisive)
    return steps


def _child(verdict: Verdict, root: OperationSpan, position: int, step: Step) -> OperationSpan:
    decisive = step.role == semconv.DECISIVE_STEP
    attributes: dict[str, AttributeValue] = {semconv.STEP_POSITION: position, semconv.STEP_ROLE: step.role}
    optional = {
        semconv.STEP_REF: step.ref,
        semconv.STEP_ORIGIN: step.origin,
        semconv.STEP_NOTE: clip(step.note, REASON_BYTES),
    }
    attributes.update({name: value for name, value in optional.items() if value})
    return replace(
        root,
        span_id=identity.span_id(verdict, f"step {position}"),
        parent_id=root.span_id,
        name=f"{semconv.ATTRIBUTION_EVIDENCE_SPAN} {step.role}",
        incomplete=(),
        attributes=attributes,
        events=(),
        links=_step_links(step, semconv.LinkType.ATTRIBUTED_TO if decisive else semconv.LinkType.CONSIDERED),
    )


def _calls(verdict: Verdict, root: OperationSpan) -> list[OperationSpan]:
    """Return two spans for each step of the agent: the call of the model, and below it the tool that ran."""
    found: list[OperationSpan] = []
    for number, call in enumerate(verdict.calls):
        chat = replace(
            root,
            span_id=identity.span_id(verdict, f"call {number}"),
            parent_id=root.span_id,
            name=f"{semconv.CHAT} {verdict.model}",
            start=call.started,
            end=call.ended,
            incomplete=(),
            attributes={
                semconv.GEN_AI_OPERATION_NAME: semconv.CHAT,
                semconv.GEN_AI_REQUEST_MODEL: verdict.model,
                semconv.GEN_AI_USAGE_INPUT_TOKENS: call.tokens,
            },
            events=(),
            links=(),
        )
        found.append(chat)
        if call.tool:
            attributes: dict[str, AttributeValue] = {
                semconv.GEN_AI_OPERATION_NAME: semconv.EXECUTE_TOOL,
                semconv.GEN_AI_TOOL_NAME: call.tool,
                semconv.GEN_AI_TOOL_CALL_ARGUMENTS: clip(call.arguments, EXPLANATION_BYTES),
                semconv.GEN_AI_TOOL_CALL_RESULT: clip(call.result, EXPLANATION_BYTES),
            }
            tool = replace(
                chat,
                span_id=identity.span_id(verdict, f"tool {number}"),
                parent_id=chat.span_id,
                name=f"{semconv.EXECUTE_TOOL} {call.tool}",
                start=call.ended,
                attributes=attributes,
            )
            found.append(tool)
    return found


def _step_links(step: Step, kind: semconv.LinkType) -> tuple[Link, ...]:
    if not is_origin(step.origin):
        return ()
    return (link(*split_origin(step.origin), kind, *([step.ref] if step.ref else [])),)


def _annotation(verdict: Verdict) -> dict[str, AttributeValue]:
    """Return the OpenInference form. The identifier names the producer: a later verdict replaces the shown one."""
    metadata = {
        "attribution_id": verdict.attribution_id,
        "method": verdict.method,
        "model": verdict.model,
        "tokens": str(verdict.tokens or ""),
        "variable": verdict.variable,
        "operation": make_origin(verdict.trace_id, verdict.span_id) if verdict.span_id else "",
    }
    fields: dict[str, AttributeValue] = {
        "name": semconv.ATTRIBUTION_EVALUATION,
        "score": verdict.confidence,
        "label": verdict.failure_type,
        "annotator_kind": _ANNOTATOR.get(verdict.method, "LLM"),
        "identifier": semconv.ATTRIBUTION_SCOPE,
        "metadata": json.dumps({name: value for name, value in metadata.items() if value}),
    }
    if verdict.reason:
        fields["explanation"] = clip(verdict.reason, EXPLANATION_BYTES)
    annotation = {f"{semconv.OPENINFERENCE_ANNOTATION}.{name}": value for name, value in fields.items()}
    return {semconv.OPENINFERENCE_SPAN_KIND: "EVALUATOR", **annotation}
