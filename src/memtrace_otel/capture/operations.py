"""One memory operation as a span: the handle that instrumentors, decorators and users write to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import Token
from time import perf_counter
from types import TracebackType
from typing import Any, TypeVar, cast

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from memtrace_otel import semconv
from memtrace_otel.capture import turns
from memtrace_otel.capture.abandoned import abandon, collecting, settle_abandoned
from memtrace_otel.capture.config import config
from memtrace_otel.capture.decorator import Recipe, decorate, name_of
from memtrace_otel.capture.guard import guard, guarded, note_drop, note_error, note_misuse
from memtrace_otel.capture.layout import flow_of, lay_out
from memtrace_otel.capture.metrics import operation_ended
from memtrace_otel.capture.notes import Notes
from memtrace_otel.capture.records import record_attributes
from memtrace_otel.capture.running import current_operation, running
from memtrace_otel.capture.tracing import active_tracer
from memtrace_otel.capture.writing import described, next_sequence, shown_error, write_continuation, write_part
from memtrace_otel.semconv import Action, Incomplete, OpKind

F = TypeVar("F", bound=Callable[..., Any])

_KINDS = {str(kind): str(kind) for kind in OpKind}
_RETRIEVE, _RESPOND = str(OpKind.RETRIEVE), str(OpKind.RESPOND)
_UNKNOWN_TURN = str(Incomplete.UNKNOWN_TURN)
_UNREADABLE = frozenset(map(str, (Incomplete.GUARD, Incomplete.MALFORMED, Incomplete.UNSERIALISABLE)))
"""What was found may be among what could not be recorded."""


class Operation(Notes):
    """A running memory operation; made by `operation(...)`, used once.

    No method raises because of our own code. `read` and `wrote` take contents always; whether a content reaches the
    span is decided by OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT. While nothing would record the span
    (`tracing.active_tracer`), no method does anything.

    `name` is one of the GenAI operation names, `purpose` what the memory system itself calls the operation.
    """

    __slots__ = (
        *("_attributes", "_has_searched", "_is_own", "_left", "_parent", "_recipe", "_sequence", "_span_kind"),
        *("_span_token", "_started", "_tracer", "error_type", "name", "purpose"),
    )

    def __init__(
        self,
        name: str | None = None,
        *,
        kind: str,
        system: str,
        scope: str = "",
        purpose: str = "",
        tracer: trace.Tracer | None = None,
        span_kind: SpanKind = SpanKind.INTERNAL,
        attributes: Mapping[str, AttributeValue] | None = None,
        parent: otel_context.Context | None = None,
        inputs: Mapping[str, str] | None = None,
        output: str = "",
        action: str = Action.DERIVE,
        each: str = "",
    ) -> None:
        self.name, self.kind, self.system, self.scope, self.purpose = name, kind, system, scope, purpose
        self._tracer, self._span_kind, self._attributes, self._parent = tracer, span_kind, attributes, parent
        self._recipe = inputs or {}, output, action, each
        self.error_type = ""
        """What failed, where the type of the exception does not say it (a status of HTTP)."""
        self.span = trace.INVALID_SPAN
        self._origin = ""
        self._outer = None
        self._active = self._recording = self._is_own = False

    # --- life ----------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Start the span and make it current."""
        try:
            tracer = active_tracer(self._tracer)
            if tracer is None:
                return
            settle_abandoned()
            self._tracer, self._active, self._started = tracer, True, perf_counter()
            self._inputs, self._outputs, self._sources = [], [], []
            self._unpublished, self._incomplete, self._admitted = {}, {}, {}
            self._left: tuple[otel_context.Context, Operation | None] | None = None
            self._has_searched = False
            self._token = None
            self._span_token: Token[otel_context.Context] | None = None
            self.kind = _KINDS.get(self.kind) or self._unknown("kind", OpKind.OTHER, _KINDS)
            self.name = self.name or semconv.SPAN_NAME_PREFIX + self.kind
            self.span = tracer.start_span(self.name, self._parent, self._span_kind, self._first_attributes())
            context = self.span.get_span_context()
            if context.is_valid:
                self._origin = "%032x-%016x" % (context.trace_id, context.span_id)  # noqa: UP031  # f-strings are slower
            if self.span.is_recording():
                self._recording, self._sequence = True, next_sequence()
            if self.kind == _RESPOND and turns.may_lack_turn(self._origin, alone=self.is_alone()):
                self._incomplete[_UNKNOWN_TURN] = None
            self._outer = current_operation()
            self.resume()
        except Exception as error:
            note_error("operation.start", error)

    def resume(self) -> None:
        """Make what was current at `leave` current again: the span, or one that was opened below it."""
        if not self._active or collecting():
            return
        context, operation = self._left or (trace.set_span_in_context(self.span, self._parent), self)
        self._span_token = otel_context.attach(context)
        self._token = running.set(operation)

    def leave(self) -> None:
        """Give the context back (in another context than that of `start` there is nothing to give)."""
        left = otel_context.get_current(), running.get()
        if not collecting() and self._give_back():
            self._left = left
            self._publish()  # what is done meanwhile may read it

    def _give_back(self) -> bool:
        if not self._active or self._token is None or self._span_token is None:
            return False
        token, span_token = self._token, self._span_token
        self._token = self._span_token = None
        try:
            running.reset(token)
        except ValueError:
            return False  # another context than that of `start`
        otel_context.detach(span_token)
        return True

    def end(self, error: BaseException | None = None) -> None:
        """Write variables and links to the span and end it; `error` is what the observed code raised."""
        if not self._active:
            return
        if collecting():
            abandon(lambda: self.end(error))
            return
        self._give_back()
        try:
            self._tell(error)
        finally:
            self._close(error)

    def _tell(self, error: BaseException | None) -> None:
        """Leave to the turn what it is to know, and to the span what happened."""
        if self._outer is not None and (self.kind == _RETRIEVE or self._has_searched):
            self._outer._has_searched = True
        try:
            if _UNKNOWN_TURN in self._incomplete and turns.lacks_nothing(self._inputs, self._started, self.is_alone()):
                del self._incomplete[_UNKNOWN_TURN]
            if error is None:
                self._publish()
                self._remember()
            else:
                self._doubt()
        except Exception as failure:
            self._failed("operation.end", failure)
        try:
            if self._recording and self._tracer is not None:
                self._write(self._tracer, error)
        except Exception as failure:
            self._failed("operation.end", failure)
            with guard("operation.end"):
                self.span.set_attributes({semconv.SEQ: self._sequence, semconv.INCOMPLETE: list(self._incomplete)})

    def _close(self, error: BaseException | None) -> None:
        self._active, self._outer, self._unpublished = False, self._outer and self._outer.or_around(), {}
        try:
            self.span.end()
            failed = "" if error is None else self.error_type or type(error).__qualname__
            seconds = perf_counter() - self._started
            name, reasons, given = self.name or "", self._incomplete, self._attributes
            operation_ended(self.system, self.kind, name, seconds, failed, reasons, given)
        except Exception as failure:
            note_error("operation.end", failure)

    def __enter__(self) -> Operation:
        if self._recipe[0] or self._recipe[1]:
            why = "`inputs` and `output` are for decorated functions; in a `with` use read and wrote"
            note_misuse("inputs", why, self.system)
        self._is_own = True
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.end(error)

    async def __aenter__(self) -> Operation:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.end(error)

    def or_around(self) -> Operation | None:
        """This operation; after its end the innermost one around it that has not ended."""
        operation = self
        while operation is not None and not operation._active:
            operation = operation._outer
        return operation

    def is_alone(self) -> bool:
        """Whether the span begins a trace."""
        return getattr(self.span, "parent", None) is None

    @guarded("operation.become", None)
    def become(self, name: str, kind: str) -> None:
        """Rename a running operation whose nature only its result shows."""
        self.name, self.kind = name, _KINDS.get(kind) or self._unknown("kind", OpKind.OTHER, _KINDS)
        self.unmark(Incomplete.UNKNOWN_TURN)
        self.span.update_name(name)
        self.span.set_attribute(semconv.OP_KIND, self.kind)

    def __call__(self, function: F) -> F:
        """Wrap a function, coroutine function, generator function or async generator function: every call is one
        operation of these options. Without a `scope` it has that of the operation around it, of the same system.

        `inputs` maps parameter names to ref kinds: their values are recorded as they are before the call, each item of
        a list, tuple or set as one input. `output` is the ref kind of the returned value: each item of these is one
        output, each yielded item of a generator, or a single one with the whole text when an answer, completion or
        context is streamed. An input that comes back as the same variable, of equal kind and text, is no output. `each`
        names the parameter whose n-th item alone the n-th returned item was made of; by default every input fed every
        output.
        """
        for wrapper in (classmethod, staticmethod):  # a decorator below this one
            if type(function) is wrapper:
                method: Any = getattr(function, "__func__", None)
                return cast(F, wrapper(self(method)))
        attributes = {semconv.CODE_FUNCTION_NAME: name_of(function), **(self._attributes or {})}

        def fresh() -> Operation:
            around = None if self.scope else current_operation()
            made = _Decorated(
                self.name,
                kind=self.kind,
                system=self.system,
                scope=around.scope if around is not None and around.system == self.system else self.scope,
                purpose=self.purpose,
                tracer=self._tracer,
                span_kind=self._span_kind,
                attributes=attributes,
                parent=self._parent,
                output=self._recipe[1],
            )
            made._is_own = True
            return made

        return decorate(function, Recipe(*self._recipe), self._tracer, fresh)

    def _first_attributes(self) -> dict[str, AttributeValue]:
        """What a sampler may want to know."""
        attributes: dict[str, AttributeValue] = {semconv.OP_KIND: self.kind, semconv.SYSTEM: self.system}
        if self.name in semconv.KIND_OF_OPERATION:
            attributes[semconv.GEN_AI_OPERATION_NAME] = self.name
        if self.purpose or self._attributes:
            purpose = {semconv.OP_PURPOSE: self.purpose} if self.purpose else {}
            for name, value in {**purpose, **(self._attributes or {})}.items():
                if (shown := self._shown(name, value)) is not None:
                    attributes[name] = shown
        return attributes

    def _remember(self) -> None:
        """Let later model calls of this turn find what was retrieved and answered."""
        if not self._origin:
            return
        alone = self.is_alone()
        if self.kind == _RESPOND:
            turns.responded(self._origin, self._inputs, self._outputs, alone=alone)
        elif self.kind == _RETRIEVE and not self._is_step():
            turns.searched(self._origin, self.scope, self._inputs, self.context(), self._incomplete, alone=alone)

    def _is_step(self) -> bool:
        around = current_operation()
        return around is not None and turns.is_step(self.system, around.kind, around.system)

    def _shows_found(self) -> bool:
        """Whether its variables show what it found, as those of a search that is no part of another do."""
        around = current_operation()
        apart = around is None or around.kind == _RESPOND or (around.system != self.system and not self._is_step())
        return self.kind == _RETRIEVE and apart and _UNREADABLE.isdisjoint(self._incomplete)

    @guarded("operation.records", dict[str, AttributeValue]())
    def _records(self) -> dict[str, AttributeValue]:
        """What the variables of a user's own operation show of records in the standard's words, but for what is said.
        Instrumentors count themselves."""
        shown = record_attributes(self.kind, self._inputs, self._outputs, found=self._shows_found())
        if not shown or (self._has_searched and not shown.get(semconv.GEN_AI_MEMORY_RECORD_COUNT)):
            return {}  # what was found is a part's
        said: Mapping[str, object] = getattr(self.span, "attributes", None) or {}
        return {name: value for name, value in shown.items() if name not in self._admitted and name not in said}

    def _write(self, tracer: trace.Tracer, error: BaseException | None) -> None:
        limits = config().of(self.system)
        inputs, outputs, reasons = described(self._inputs, self._outputs, limits)
        for reason in reasons:
            self._incomplete[str(reason)] = None
        flow, too_many = flow_of(self._sources, len(self._inputs))
        if too_many:
            self.mark(Incomplete.BUDGET)
        records = self._records() if self._is_own and error is None else {}
        taken = sum(self._admitted.values()) + len("".join([*self._incomplete, *records, *map(str, records.values())]))
        parts, dropped = lay_out(inputs, outputs, flow, limits, taken)
        if dropped:
            self.mark(Incomplete.BUDGET)
            note_drop("variables", dropped, self.system)
        attributes: dict[str, AttributeValue] = {semconv.SEQ: self._sequence, **records}
        if self.scope:
            attributes[semconv.SCOPE] = self.scope
        if self._incomplete:
            attributes[semconv.INCOMPLETE] = list(self._incomplete)
        if error is not None:
            attributes[semconv.ERROR_TYPE] = self.error_type or type(error).__qualname__
            self.span.set_status(Status(StatusCode.ERROR, shown_error(error, limits)))
        write_part(self.span, attributes, parts[0], self._origin)
        for nth, part in enumerate(parts[1:], 1):
            attributes = {semconv.OP_KIND: self.kind, semconv.SYSTEM: self.system, semconv.PART: nth}
            if self.scope:
                attributes[semconv.SCOPE] = self.scope
            write_continuation(tracer, self.span, attributes, part, self._origin)


class _Decorated(Operation):
    """An operation whose variables are arguments and results: nothing but their texts names them."""

    __slots__ = ()
    by_text = True

    def _shows_found(self) -> bool:
        return bool(self._recipe[1]) and super()._shows_found()
