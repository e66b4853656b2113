"""Model calls of LangChain, by chat models and text completion models: `respond` spans for every provider.

The wrapped methods are those of a provider's class, below the layers of LangChain. So a span of another instrumentation
for the call is current, and gets our attributes. The OpenAI instrumentor records models on the `openai` package.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast

from opentelemetry.trace import Span

from memtrace_otel.capture import current_operation, guard
from memtrace_otel.capture.adoption import announced, mark_step
from memtrace_otel.capture.finalizers import report_later, report_waiting
from memtrace_otel.instrumentation.chat_history.messages import Message, ModelReply, Request, choices_of, get
from memtrace_otel.instrumentation.chat_history.model_call import (
    CALLER,
    RECORDED_PACKAGES,
    Caller,
    ModelCall,
    is_answer,
)
from memtrace_otel.instrumentation.langchain.messages import calls_of, message_of, sources, text_in
from memtrace_otel.instrumentation.langchain.runs import span_of_run
from memtrace_otel.instrumentation.langchain.state import Call
from memtrace_otel.instrumentation.langchain.streams import Observer, observed
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.semconv import Incomplete

_MAX_CHUNKS = 100_000

REPLIES: ContextVar[list[Any] | None] = ContextVar("memtrace_langchain_replies", default=None)
"""Set by an operation that collects the replies (messages) of the model calls inside it."""


@dataclass(frozen=True, slots=True)
class _Text:
    """A reply of a text completion model."""

    content: str


def answer(call: Call) -> Step:
    """`_generate`, `_agenerate`: a model call without streaming."""
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
        above = Caller(call.instance, _prompt(call))
        call.carry(CALLER, above)
        result = yield
        sources.note_reply(above.reply, *_ids(call, *_replies(result)))
        return
    if any(isinstance(prompt, str) for prompt in _given(call)[1:]):
        return  # a batch of texts to complete has no single answer
    asked = _model_call(call)
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
    above = CALLER.get()
    if above is not None and above.model is call.instance:
        return  # the method of a base class: the overriding method records its chunks
    chunks = yield
    handed = observed(chunks, _Chunks(call, recorded))
    if handed is not None:
        call.hand_out(handed)


class _Chunks(Observer):
    """A streamed reply. Between two chunks the program runs, and the operation is not current."""

    where = "langchain.stream"

    def __init__(self, call: Call, recorded: Span | None) -> None:
        self._call, self._recorded = call, recorded
        self._messages: list[Any] = []
        self._error: BaseException | None = None
        self._asked: ModelCall | None = None
        self._caller: Caller | None = None

    def start(self) -> None:
        """Begin the model call; one through the `openai` package is recorded by the instrumentor of that package."""
        if _is_openai(self._call.instance):
            self._caller = Caller(self._call.instance, _prompt(self._call))
            return
        with self._announced():
            asked = _model_call(self._call)
            asked.operation.start()
            asked.operation.leave()
            self._asked = asked

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Make the operation current, and note an exception of the model."""
        if self._asked is not None:
            with guard(self.where):
                self._asked.operation.resume()
        try:
            with self._announced():
                yield
        except BaseException as error:
            self._error = error
            raise
        finally:
            if self._asked is not None:
                with guard(self.where):
                    self._asked.operation.leave()

    @contextmanager
    def _announced(self) -> Generator[None]:
        span, caller = announced.set(self._recorded), CALLER.set(self._caller)
        try:
            yield
        finally:
            CALLER.reset(caller)
            announced.reset(span)

    def see(self, item: object) -> None:
        """Keep a chunk; of a model on the `openai` package only the first chunk, which has the id."""
        if len(self._messages) < (_MAX_CHUNKS if self._caller is None else 1):
            self._messages.append(_message(item))

    def end(self) -> None:
        """Record the reply now; later if the program left the stream, since a finalizer may have closed the stream."""
        if self.whole or self._error is not None:
            self._record()
        else:
            report_later(self._record)

    def _record(self) -> None:
        if self._caller is not None:
            sources.note_reply(self._caller.reply, *_ids(self._call, *self._messages[:1]))
        if self._asked is None:
            return
        self._asked.operation.mark(Incomplete.GUARD)
        with guard(self.where):
            if self._error is None:
                whole = self.whole and len(self._messages) < _MAX_CHUNKS
                _finish(self._call, self._asked, self._messages, whole=whole)
            else:
                self._asked.fail()
            self._asked.operation.unmark(Incomplete.GUARD)
        self._asked.operation.end(self._error)


def _model_call(call: Call) -> ModelCall:
    request = Request(_model(call.instance), _prompt(call))
    return ModelCall(request, call.patches.tracer, call.patches.system, _provider(call.instance))


def _prompt(call: Call) -> tuple[Message, ...]:
    return tuple(Message("user", one, "") if isinstance(one, str) else message_of(one) for one in _given(call))


def _given(call: Call) -> Sequence[Any]:
    """The input of a model: messages, or texts to complete."""
    arguments = call.arguments()
    named = (arguments[name] for name in ("messages", "prompts", "prompt") if name in arguments)
    given = next(named, call.args[0] if call.args else ())
    return [given] if isinstance(given, str) else given


def _replies(result: Any) -> list[Any]:
    """The message of a reply: the first choice."""
    choices = cast(Sequence[Any], result.generations[:1])
    if choices and isinstance(choices[0], list):  # for each text to complete its choices
        choices = cast(Sequence[Any], choices[0])
    return [_message(choice) for choice in choices[:1]]


def _message(generation: object) -> Any:
    """The message of a generation, or the text of a text completion."""
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
    sources.note_reply(asked.reply, *_ids(call, *messages[:1]))


def _ids(call: Call, *messages: Any) -> list[str]:
    """Ids of the message of this call: the id of the run, and its own if already set."""
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
