"""Runs of the OpenAI Agents SDK (`openai-agents`): each run is one turn, in whichever task the SDK calls the model."""

from __future__ import annotations

from opentelemetry import trace

from memtrace_otel.capture import recall
from memtrace_otel.instrumentation.base import Patches, Points
from memtrace_otel.instrumentation.steps import Call, Step


def run(call: Call[Patches]) -> Step:
    """`AgentRunner.run`, `run_sync`, `run_streamed`: the outermost run is a turn, its final output the reply."""
    around = recall.shared.get()
    in_span = trace.get_current_span().get_span_context().is_valid
    turn = None if around or in_span else recall.share_turn()
    result = yield
    output = getattr(result, "final_output", None)
    replied = turn or around or recall.turn_here()
    if replied is not None and isinstance(output, str):
        replied.returns([output])
    if turn is not None:
        recall.unshare_turn(turn)


POINTS: Points = {
    "agents.run": {"AgentRunner.run": run, "AgentRunner.run_sync": run, "AgentRunner.run_streamed": run},
}
