"""The turn of an agent: from the user's message to the end of the workflow that `run` has started."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, cast

from memtrace_otel.capture import guard
from memtrace_otel.instrumentation.llamaindex.answers import ANSWERING, Answering, open_answer
from memtrace_otel.instrumentation.llamaindex.calls import Call
from memtrace_otel.instrumentation.llamaindex.nodes import message_text
from memtrace_otel.instrumentation.steps import Step


def run(call: Call) -> Step:
    """`run` of an agent or of several: model calls, tools and memory are steps of its one answer."""
    if ANSWERING.get() is not None:
        return
    asked = call.kwargs.get("user_msg") or next(iter(call.args), None)
    answering = open_answer(call, asked if isinstance(asked, str) else message_text(asked))
    handler = yield
    turn = cast("asyncio.Future[Any] | None", getattr(handler, "_result_task", handler))  # early ones are futures
    if isinstance(turn, asyncio.Future):
        call.detach(answering.operation)
        turn.add_done_callback(partial(_finish, answering))


def _finish(answering: Answering, turn: asyncio.Future[Any]) -> None:
    error = asyncio.CancelledError() if turn.cancelled() else turn.exception()
    with guard("llamaindex.agent"):
        answering.conclude("" if error else str(turn.result()), whole=True)
    answering.operation.end(error)
