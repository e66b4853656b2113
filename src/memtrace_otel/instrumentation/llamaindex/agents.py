"""Turns of agents, from the message of the user to the end of the workflow that `run` starts, and of workflows."""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import ContextVar
from functools import partial
from typing import Any, cast

from opentelemetry import trace

from memtrace_otel.capture import guard, recall
from memtrace_otel.instrumentation.llamaindex.answers import ANSWERING, REPLY, Answering, Reply, open_answer
from memtrace_otel.instrumentation.llamaindex.nodes import message_text
from memtrace_otel.instrumentation.llamaindex.retrieval import SEARCHES, Served, served_here
from memtrace_otel.instrumentation.llamaindex.state import Call
from memtrace_otel.instrumentation.steps import Step

_SEARCHES = 256  # newest searches of a turn, which the outputs of its tools are compared with
_turn: ContextVar[Answering | None] = ContextVar("memtrace_llamaindex_turn", default=None)
"""The answer of the agent around; None inside an agent that works for another agent."""


def run(call: Call) -> Step:
    """`run` of one agent or of several: model calls, tools and memory are steps of one answer."""
    if ANSWERING.get() is not None:
        call.carry(_turn, None)
        yield
        return
    asked = call.kwargs.get("user_msg") or next(iter(call.args), None)
    question = asked if isinstance(asked, str) else message_text(asked)
    answering = open_answer(call, question, call.patches.scope_of_chat(call.kwargs.get("memory")))
    call.carry(_turn, answering)
    if answering.operation.origin:  # the answer ends in another context; feedback in this one finds it
        recall.turn_of(answering.operation.origin[:32])
    answering.quote(question, served_here())
    call.carry(SEARCHES, (deque[Served](maxlen=_SEARCHES),))
    handler = yield
    turn = cast(
        "asyncio.Future[Any] | None", getattr(handler, "_result_task", handler)
    )  # in early releases the handler is the future
    if isinstance(turn, asyncio.Future):
        call.detach(answering.operation)
        turn.add_done_callback(partial(_finish, answering))


def run_workflow(call: Call) -> Step:
    """`run` of a workflow: each step has a copy of this context. Without a span around, a shared turn joins them."""
    alone = not trace.get_current_span().get_span_context().is_valid and recall.shared.get() is None
    turn = recall.share_turn() if alone else None
    yield
    if turn is not None:
        recall.unshare_turn(turn)


def call_tool(call: Call) -> Step:
    """`_call_tool`: the output of a tool is part of the next prompt. The searches of this and earlier tools are its
    sources."""
    answering, of_turn = ANSWERING.get(), SEARCHES.get()[:1]
    if answering is None or not of_turn:
        return
    of_tool = deque[Served](maxlen=_SEARCHES)
    call.carry(SEARCHES, (*of_turn, of_tool))
    output = yield
    answering.quote(str(output.content), list(of_turn[0]), list(of_tool))


def finalize(call: Call) -> Step:
    """`finalize` of an agent: its last text goes into its memory; a ReAct agent puts its thoughts before the text."""
    answering, arguments = _turn.get(), call.arguments()
    said = message_text(getattr(arguments.get("output"), "response", None)).rpartition("Answer:")[2].strip()
    if answering is not None and said:
        call.carry(REPLY, Reply(arguments.get("memory"), answering.operation, said))
    yield


def _finish(answering: Answering, turn: asyncio.Future[Any]) -> None:
    error = asyncio.CancelledError() if turn.cancelled() else turn.exception()
    with guard("llamaindex.agent"):
        answering.conclude("" if error else str(turn.result()), whole=True)
    answering.operation.end(error)
