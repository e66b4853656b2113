"""Models of LangChain that answer, chat models and those that complete a text: `respond` spans for every provider.

The methods wrapped are those that a provider's class defines, below all of LangChain's own layers, so that a span which
another instrumentation has for the call is the current one and is enriched. Models on the `openai` package are left to
its own instrumentor.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import AsyncGeneratorType, GeneratorType
from typing import Any, cast

from opentelemetry.trace import Span

from memtrace_otel.capture import current_operation, guard
from memtrace_otel.capture.adoption import announced, mark_step
from memtrace_otel.capture.finalizers import report_later, report_waiting
from memtrace_otel.instrumentation.chat_history.caller import ABOVE, RECORDED_PACKAGES, Above
from memtrace_otel.instrumentation.chat_history.messages import Message, ModelReply, Request, choices_of, get
from memtrace_otel.instrumentation.chat_history.model_call import ModelCall, is_answer
from memtrace_otel.instrumentation.langchain.calls import Call
from memtrace_otel.instrumentation.langchain.identity import said
from memtrace_otel.instrumentation.langchain.messages import calls_of, message_of, text_in
from memtrace_otel.instrumentation.langchain.runs import span_of_run
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.semconv import Incomplete

_MAX_CHUNKS = 100_000

REPLIES: ContextVar[list[Any] | None] = ContextVar("memtrace_langchain_replies", default=None)
"""Set by an operation whose steps are model calls and that wants to see the replies (messages)."""


@dataclass(frozen=True, slots=True)
class _Text:
    """A reply without a message around it."""

    content: str


def answer(call: Call) -> Step:
    """`_generate`, `_agenerate`: a call of a model that returns its reply whole."""
    report_waiting()
    if not call.enter("chat"):
        return
    call.carry(announced, span_of_run(call.arguments().get("run_manager")))
    replies = REPLIES.get()
    if not is_answer():
        mark_step(current_operation())
        if replies is not None:
            replies += _replies((yield))
        return
    if _is_openai(call.instance):
        above = Above(call.instance, _prompt(call))
        call.carry(ABOVE, above)
        result = yield
        said.note_reply(above.said, *_ids(call, *_replies(result)))
        return
    if any(isinstance(prompt, str) for prompt in _given(call)[1:]):
        return  # a batch of texts to complete: no answer is that of all
    asked = _asked(call)
    call.begin(asked.operation, on_error=asked.fail)
    result = yield
    _finish(call, asked, _replies(result), whole=True)


def stream(call: Call) -> Step:
    """`_stream`, `_astream`: the call of the model begins with the first chunk that the program asks for."""
    report_waiting()
    if not call.enter("chat"):
        return
    recorded = span_of_run(call.arguments().get("run_manager"))
    if not is_answer():
        call.carry(announced, recorded)
        mark_step(current_operation())
        return
    above = ABOVE.get()
    if above is not None and above.model is call.instance:
        return  # the method of a base class, whose chunks the one above it hands on
    chunks = yield
    if isinstance(chunks, GeneratorType):
        call.hand_out(_watched(_Streamed(call, recorded), cast(Generator[Any, Any, Any], chunks)))
    elif isinstance(chunks, AsyncGeneratorType):
        call.hand_out(_watched_async(_Streamed(call, recorded), cast(AsyncGenerator[Any, Any], chunks)))


def _watched(streamed: _Streamed, chunks: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    with guard("langchain.stream"):
        streamed.start()
    try:
        while True:
            with streamed.under_way():
                try:
                    chunk = next(chunks)
                except StopIteration as end:
                    streamed.whole = True
                    return end.value
            with guard("langchain.stream"):
                streamed.see(chunk)
            yield chunk
    finally:
        with guard("langchain.stream"):
            streamed.end()
        chunks.close()


async def _watched_async(streamed: _Streamed, chunks: AsyncGenerator[Any, Any]) -> AsyncGenerator[Any, Any]:
    with guard("langchain.stream"):
        streamed.start()
    try:
        while True:
            with streamed.under_way():
                try:
                    chunk = await anext(chunks)
                except StopAsyncIteration:
                    streamed.whole = True
                    return
            with guard("langchain.stream"):
                streamed.see(chunk)
            yield chunk
    finally:
        with guard("langchain.stream"):
            streamed.end()
        await chunks.aclose()


class _Streamed:
    """A reply that comes in chunks. Between them the program runs, and nothing of ours is current."""

    def __init__(self, call: Call, recorded: Span | None) -> None:
        self.whole = False
        self._call, self._recorded = call, recorded
        self._messages: list[Any] = []
        self._error: BaseException | None = None
        self._asked: ModelCall | None = None
        self._above: Above | None = None

    def start(self) -> None:
        """Begin when the first chunk is asked for. One on the `openai` package is only told what is known here."""
        if _is_openai(self._call.instance):
            self._above = Above(self._call.instance, _prompt(self._call))
            return
        with self._announced():
            asked = _asked(self._call)
            asked.operation.start()
            asked.operation.leave()
            self._asked = asked

    @contextmanager
    def under_way(self) -> Generator[None]:
        """While the model is asked for the next chunk; what it raises is noted."""
        if self._asked is not None:
            with guard("langchain.stream"):
                self._asked.operation.resume()
        try:
            with self._announced():
                yield
        except BaseException as error:
            self._error = error
            raise
        finally:
            if self._asked is not None:
                with guard("langchain.stream"):
                    self._asked.operation.leave()

    @contextmanager
    def _announced(self) -> Generator[None]:
        span, above = announced.set(self._recorded), ABOVE.set(self._above)
        try:
            yield
        finally:
            ABOVE.reset(above)
            announced.reset(span)

    def see(self, chunk: object) -> None:
        """Note a chunk; of a model on the `openai` package the first one tells the id."""
        if len(self._messages) < (_MAX_CHUNKS if self._above is None else 1):
            self._messages.append(_message(chunk))

    def end(self) -> None:
        """Record what came; of a stream that was left half-way later, since a collector may have closed it."""
        if self.whole or self._error is not None:
            self._settle()
        else:
            report_later(self._settle)

    def _settle(self) -> None:
        if self._above is not None:
            said.note_reply(self._above.said, *_ids(self._call, *self._messages[:1]))
        if self._asked is None:
            return
        self._asked.operation.mark(Incomplete.GUARD)
        with guard("langchain.stream"):
            if self._error is None:
                _finish(self._call, self._asked, self._messages, whole=self.whole and len(self._messages) < _MAX_CHUNKS)
            else:
                self._asked.fail()
            self._asked.operation.unmark(Incomplete.GUARD)
        self._asked.operation.end(self._error)


def _asked(call: Call) -> ModelCall:
    request = Request(_model(call.instance), _prompt(call))
    return ModelCall(request, call.patches.tracer, call.patches.system, _provider(call.instance))


def _prompt(call: Call) -> tuple[Message, ...]:
    return tuple(Message("user", one, "") if isinstance(one, str) else message_of(one) for one in _given(call))


def _given(call: Call) -> Sequence[Any]:
    """What a model is given: messages, or texts to complete."""
    arguments = call.arguments()
    named = (arguments[name] for name in ("messages", "prompts", "prompt") if name in arguments)
    given = next(named, call.args[0] if call.args else ())
    return [given] if isinstance(given, str) else given


def _replies(result: Any) -> list[Any]:
    """The message that a model has replied: the first choice."""
    choices = cast(Sequence[Any], result.generations[:1])
    if choices and isinstance(choices[0], list):  # for each text to complete its choices
        choices = cast(Sequence[Any], choices[0])
    return [_message(choice) for choice in choices[:1]]


def _message(generation: object) -> Any:
    """The message of what a model has generated; of one that completes texts the text."""
    text = get(generation, "text")
    return getattr(generation, "message", None) or _Text(text if isinstance(text, str) else "")


def _finish(call: Call, asked: ModelCall, messages: Sequence[Any], *, whole: bool) -> None:
    """Record a reply: a message, or the chunks of one."""
    text = "".join(text_in(getattr(message, "content", "")) for message in messages)
    calls = "\n".join(filter(None, map(calls_of, messages)))
    used = next((m.usage_metadata for m in reversed(messages) if getattr(m, "usage_metadata", None)), None)
    last = messages[-1] if messages else None
    told = cast("dict[str, Any]", getattr(last, "response_metadata", None) or {})
    id, model = getattr(last, "id", None), told.get("model_name") or told.get("model")
    reply = ModelReply(
        choices_of([(text, calls)]),
        id if isinstance(id, str) else "",
        model if isinstance(model, str) else "",
        get(used, "input_tokens"),
        get(used, "output_tokens"),
        whole,
    )
    asked.finish(reply)
    said.note_reply(asked.said, *_ids(call, *messages[:1]))


def _ids(call: Call, *messages: Any) -> list[str]:
    """What tells the message of this call from others: the id of the run, its own if it has one yet."""
    run = getattr(call.arguments().get("run_manager"), "run_id", None)
    return [str(id) for id in (run, *(getattr(message, "id", None) for message in messages)) if id]


def _is_openai(model: object) -> bool:
    """Whether the instrumentor of the `openai` package records the calls of this model: a chat model on it."""
    on_openai = any(base.__module__.startswith("langchain_openai.chat_models") for base in type(model).__mro__)
    return on_openai and "openai" in RECORDED_PACKAGES


def _model(model: object) -> str:
    name = getattr(model, "model_name", None) or getattr(model, "model", None)
    return name if isinstance(name, str) else ""


def _provider(model: Any) -> str:
    with guard("langchain.provider"):
        return str(model._get_ls_params().get("ls_provider") or model._llm_type)
    return "langchain"
