"""Streams of the `openai` package, passed through unchanged while their text is collected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import wrapt

from memtrace_otel.capture import guard
from memtrace_otel.instrumentation.abandoned import abandon
from memtrace_otel.instrumentation.openai.calls import call_text, delta_calls, delta_text

_MAX_CHUNKS = 100_000


@dataclass(frozen=True, slots=True)
class Streamed:
    """What a stream said: its text, its tool calls as text, its last chunk, and whether it was read to its end."""

    text: str
    calls: str
    last: object
    whole: bool


Done = Callable[[Streamed, BaseException | None], None]
"""Takes what a stream said and what it raised."""


class _Collector:
    """The text seen so far; `done` is called once: at the end of the stream, its closing, its error or its disposal."""

    def __init__(self, done: Done) -> None:
        self._done, self._ended = done, False
        self._texts: list[str] = []
        self._calls: dict[int, tuple[str, str]] = {}
        self._last: object = None

    def see(self, chunk: object) -> None:
        with guard("openai.stream"):
            self._last = chunk
            text = delta_text(chunk)
            if text and len(self._texts) < _MAX_CHUNKS:
                self._texts.append(text)
            for index, name, arguments in delta_calls(chunk):
                known = self._calls.get(index, ("", ""))
                if len(known[1]) < _MAX_CHUNKS:
                    self._calls[index] = (known[0] + name, known[1] + arguments)

    def end(self, error: BaseException | None = None, *, whole: bool = False) -> None:
        if not self._ended:
            self._ended = True
            with guard("openai.stream"):
                self._done(self._said(whole), error)

    def stop(self, error: BaseException) -> None:
        """The stream has raised: its end, or an error."""
        if isinstance(error, StopIteration | StopAsyncIteration):
            self.end(whole=len(self._texts) < _MAX_CHUNKS)
        else:
            self.end(error)

    def __del__(self) -> None:
        if not self._ended:
            self._ended = True
            abandon(partial(self._done, self._said(False), None))

    def _said(self, whole: bool) -> Streamed:
        calls = "\n".join(call_text(*call) for call in self._calls.values())
        return Streamed("".join(self._texts), calls, self._last, whole)


class ObservedStream(wrapt.ObjectProxy):  # pyright: ignore[reportMissingTypeArgument]
    """A sync or async stream that reports its whole text when it has ended; in all else the stream itself."""

    _self_stream: Any
    _self_collector: _Collector

    def __init__(self, stream: Any, done: Done) -> None:
        super().__init__(stream)  # pyright: ignore[reportUnknownMemberType]
        self._self_stream = stream
        self._self_collector = _Collector(done)

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        try:
            chunk = next(self._self_stream)
        except BaseException as error:
            self._self_collector.stop(error)
            raise
        self._self_collector.see(chunk)
        return chunk

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        try:
            chunk = await self._self_stream.__anext__()
        except BaseException as error:
            self._self_collector.stop(error)
            raise
        self._self_collector.see(chunk)
        return chunk

    def __enter__(self) -> Any:
        self._self_stream.__enter__()
        return self

    def __exit__(self, *exc: Any) -> Any:
        self._self_collector.end()
        return self._self_stream.__exit__(*exc)

    async def __aenter__(self) -> Any:
        await self._self_stream.__aenter__()
        return self

    async def __aexit__(self, *exc: Any) -> Any:
        self._self_collector.end()
        return await self._self_stream.__aexit__(*exc)

    def close(self) -> Any:
        self._self_collector.end()
        return self._self_stream.close()
