"""Streams of the `openai` package, passed through unchanged while their text is collected."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import wrapt

from memtrace_otel.capture import guard
from memtrace_otel.capture.finalizers import report_later
from memtrace_otel.instrumentation.chat_history.messages import ModelReply, Part, call_text, choices_of, get
from memtrace_otel.instrumentation.openai.payloads import choices_in, delta_calls, delta_texts, is_raw, reply_of

_MAX_CHUNKS = 100_000
_LAST = frozenset({"response.completed", "response.incomplete", "response.failed"})
"""Events that hold the whole reply of a stream of the responses API."""


Done = Callable[[ModelReply, BaseException | None], None]
"""Receives the reply of a stream and the exception that ended the stream."""


class _Collector:
    """The text so far. `done` is called once, when the stream ends, closes, raises or is garbage-collected."""

    def __init__(self, done: Done) -> None:
        self._done, self._ended = done, False
        self._texts: list[tuple[int, str]] = []
        self._calls: dict[tuple[int, int], tuple[str, str]] = {}
        self._last: object = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """The stream has given a chunk, or has raised: its end, or an error."""
        with guard("openai.stream"):
            if isinstance(error, StopIteration | StopAsyncIteration):
                self.end(whole=len(self._texts) < _MAX_CHUNKS)
            elif error is not None:
                self.end(error)

    def see(self, chunk: object) -> None:
        """Note a chunk."""
        self._last = chunk
        for choice, text in delta_texts(chunk):
            if text and len(self._texts) < _MAX_CHUNKS:
                self._texts.append((choice, text))
        for choice, index, name, arguments in delta_calls(chunk):
            known = self._calls.get((choice, index), ("", ""))
            if len(known[1]) < _MAX_CHUNKS:
                self._calls[choice, index] = (known[0] + name, known[1] + arguments)
        if get(chunk, "type") in _LAST:  # other instrumentations end their span here
            self.end(whole=len(self._texts) < _MAX_CHUNKS)

    def end(self, error: BaseException | None = None, *, whole: bool = False) -> None:
        """Report the reply, once."""
        if self._ended:
            return
        self._ended = True
        self._done(self._said(whole), error)

    def __del__(self) -> None:
        with guard("openai.stream"):
            if not self._ended:
                self._ended = True
                report_later(partial(self._done, self._said(False), None))

    def _said(self, whole: bool) -> ModelReply:
        last = get(self._last, "response") or self._last
        numbers = (0, *sorted({choice for choice, _ in (*self._texts, *self._calls)} - {0}))
        collected = choices_of(*([self._choice(number)] for number in numbers))
        return reply_of(last, choices_in(last) or collected, whole=whole)

    def _choice(self, number: int) -> Part:
        calls = (call_text(*call) for (choice, _), call in self._calls.items() if choice == number)
        return "".join(text for choice, text in self._texts if choice == number), "\n".join(calls)


class ObservedStream(wrapt.ObjectProxy):  # pyright: ignore[reportMissingTypeArgument]
    """A proxy of a sync or async stream that reports its whole text at the end."""

    _self_stream: Any
    _self_collector: _Collector

    def __init__(self, stream: Any, collector: _Collector) -> None:
        super().__init__(stream)  # pyright: ignore[reportUnknownMemberType]
        self._self_stream = stream
        self._self_collector = collector

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        with self._self_collector:
            chunk = next(self._self_stream)
        with guard("openai.stream"):
            self._self_collector.see(chunk)
        return chunk

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        with self._self_collector:
            chunk = await self._self_stream.__anext__()
        with guard("openai.stream"):
            self._self_collector.see(chunk)
        return chunk

    def __enter__(self) -> Any:
        self._self_stream.__enter__()
        return self

    def __exit__(self, *exc: Any) -> Any:
        with guard("openai.stream"):
            self._self_collector.end()
        return self._self_stream.__exit__(*exc)

    async def __aenter__(self) -> Any:
        await self._self_stream.__aenter__()
        return self

    async def __aexit__(self, *exc: Any) -> Any:
        with guard("openai.stream"):
            self._self_collector.end()
        return await self._self_stream.__aexit__(*exc)

    def close(self) -> Any:
        with guard("openai.stream"):
            self._self_collector.end()
        return self._self_stream.close()


class ObservedRaw(wrapt.ObjectProxy):  # pyright: ignore[reportMissingTypeArgument]
    """A raw response whose stream is observed after the program has parsed the response."""

    _self_response: Any
    _self_collector: _Collector
    _self_stream: ObservedStream | None

    def __init__(self, response: Any, collector: _Collector) -> None:
        super().__init__(response)  # pyright: ignore[reportUnknownMemberType]
        self._self_response, self._self_collector, self._self_stream = response, collector, None

    def parse(self, *args: Any, **kwargs: Any) -> Any:
        parsed = self._self_response.parse(*args, **kwargs)
        with guard("openai.stream"):
            if self._self_stream is None and _is_stream(parsed):
                self._self_stream = ObservedStream(parsed, self._self_collector)
        return self._self_stream if self._self_stream == parsed else parsed


def observed(result: object, done: Done) -> Any:
    """An observed proxy of the result of a streaming request; None for other results."""
    kind = ObservedStream if _is_stream(result) else ObservedRaw if is_raw(result) else None
    return kind and kind(result, _Collector(done))


def _is_stream(result: object) -> bool:
    return hasattr(result, "__next__" if hasattr(result, "__iter__") else "__anext__")
