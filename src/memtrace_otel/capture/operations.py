"""`Operation`: one memory operation as a span, which instrumentors, decorators and programs write to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextvars import ContextVar, Token
from time import perf_counter
from types import TracebackType
from typing import cast

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from memtrace_otel import semconv
from memtrace_otel.capture.attributes import admit, record_attributes
from memtrace_otel.capture.config import config
from memtrace_otel.capture.content import show, utf8_bytes
from memtrace_otel.capture.finalizers import report_waiting
from memtrace_otel.capture.guard import guard, guarded, note_drop, note_error, note_misuse
from memtrace_otel.capture.layout import Read, Written, flow_of, lay_out, number
from memtrace_otel.capture.metrics import operation_ended
from memtrace_otel.capture.origins import Key, Version, next_version, origins, reader_here
from memtrace_otel.capture.records import shown_records
from memtrace_otel.capture.tracing import active_tracer
from memtrace_otel.capture.turn import has_own_turn, is_step, lacks_turn, responded, searched
from memtrace_otel.capture.values import words
from memtrace_otel.capture.writing import described, next_sequence, shown_error, write_continuation, write_part
from memtrace_otel.model import make_ref
from memtrace_otel.semconv import Action, Incomplete, OpKind, RefKind, Role

# A member of an Enum takes longer to hash than its text: the bench row "operation" needs the texts.
_KINDS = {str(kind): str(kind) for kind in OpKind}
_ROLES = {str(role): str(role) for role in Role}
_ACTIONS = {str(action): str(action) for action in Action}
_RETRIEVE, _RESPOND = str(OpKind.RETRIEVE), str(OpKind.RESPOND)
_NONE, _DELETE, _HIT = str(Action.NONE), str(Action.DELETE), str(Role.HIT)
_UNKNOWN_TURN, _UNKNOWN_ORIGIN = str(Incomplete.UNKNOWN_TURN), str(Incomplete.UNKNOWN_ORIGIN)
_ROOTS = frozenset({RefKind.MESSAGE, RefKind.QUERY, RefKind.EXPECTED, RefKind.PROMPT, RefKind.DOCUMENT})
_STORED_ROLES = frozenset({str(Role.HIT), str(Role.CANDIDATE), str(Role.PREVIOUS)})
"""Roles of a record that is in the store when an operation reads the record."""
_BY_TEXT = frozenset({RefKind.FACT, RefKind.COMPLETION})
"""Kinds of variables that only their text names."""
_UNREADABLE = frozenset(map(str, (Incomplete.GUARD, Incomplete.MALFORMED, Incomplete.UNSERIALISABLE)))
_CONTEXT = f"{RefKind.CONTEXT}:"
_origins = origins()

running = cast("ContextVar[Operation | None]", reader_here)
"""The operation that was made current last; it may have ended, since a task keeps the context that it began in."""


def current_operation() -> Operation | None:
    """The innermost memtrace operation of this context that has not ended."""
    operation = running.get()
    return operation and operation.or_around()


class Operation:
    """A running memory operation, used once.

    No method raises because of our own code. `read` and `wrote` always take contents; a content reaches the span only
    if OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT says so. While nothing would record the span
    (`tracing.active_tracer`), no method does anything.

    `name` is a GenAI operation name, `purpose` the memory system's own name of the operation.
    """

    __slots__ = (
        *("_active", "_admitted", "_attributes", "_has_searched", "_incomplete", "_inputs", "_is_own", "_left"),
        *("_origin", "_outer", "_outputs", "_parent", "_recording", "_sequence", "_sources", "_span_kind"),
        *("_span_token", "_started", "_token", "_tracer", "_unpublished"),
        *("error_type", "kind", "name", "purpose", "scope", "span", "system"),
    )

    by_text = False
    """Whether only their texts name the variables."""

    _admitted: dict[str, int]
    _incomplete: dict[str, None]
    _inputs: list[Read]
    _outputs: list[Written]
    _sources: list[list[int] | None]
    _unpublished: dict[Key, Version]
    _left: tuple[otel_context.Context, Operation | None] | None
    _outer: Operation | None
    _token: Token[Operation | None] | None
    _span_token: Token[otel_context.Context] | None

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
    ) -> None:
        self.name, self.kind, self.system, self.scope, self.purpose = name, kind, system, scope, purpose
        self._tracer, self._span_kind, self._attributes, self._parent = tracer, span_kind, attributes, parent
        self.error_type = ""
        """The error, if the type of the exception does not name it (an HTTP status)."""
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
            report_waiting()
            self._tracer, self._active, self._started = tracer, True, perf_counter()
            self._inputs, self._outputs, self._sources = [], [], []
            self._unpublished, self._incomplete, self._admitted = {}, {}, {}
            self._left = self._token = self._span_token = None
            self._has_searched = False
            self.kind = _KINDS.get(self.kind) or self._unknown("kind", OpKind.OTHER, _KINDS)
            self.name = self.name or semconv.SPAN_NAME_PREFIX + self.kind
            self.span = tracer.start_span(self.name, self._parent, self._span_kind, self._first_attributes())
            context = self.span.get_span_context()
            if context.is_valid:
                self._origin = f"{context.trace_id:032x}-{context.span_id:016x}"
            if self.span.is_recording():
                self._recording, self._sequence = True, next_sequence()
            if self.kind == _RESPOND and lacks_turn(self._origin, alone=self.is_alone()):
                self._incomplete[_UNKNOWN_TURN] = None
            self._outer = current_operation()
            self.resume()
        except Exception as error:
            note_error("operation.start", error)

    def resume(self) -> None:
        """Make current again what was current at `leave`: the span, or a span below it."""
        if not self._active:
            return
        context, operation = self._left or (trace.set_span_in_context(self.span, self._parent), self)
        self._span_token = otel_context.attach(context)
        self._token = running.set(operation)

    def leave(self) -> None:
        """Restore the context before `start`, if this is the same context."""
        left = otel_context.get_current(), running.get()
        if self._restore_context():
            self._left = left
            self._publish()  # other operations may read the outputs meanwhile

    def _restore_context(self) -> bool:
        if not self._active or self._token is None or self._span_token is None:
            return False
        token, span_token = self._token, self._span_token
        self._token = self._span_token = None
        try:
            running.reset(token)
        except ValueError:  # another context than that of `start`
            return False
        otel_context.detach(span_token)
        return True

    def end(self, error: BaseException | None = None) -> None:
        """Write variables and links to the span and end it; `error` is the exception of the observed code."""
        if not self._active:
            return
        self._restore_context()
        try:
            self._conclude(error)
        finally:
            self._close(error)

    def _conclude(self, error: BaseException | None) -> None:
        """Publish versions, searches and answers, and write the span."""
        if self._outer is not None and (self.kind == _RETRIEVE or self._has_searched):
            self._outer._has_searched = True
        try:
            if _UNKNOWN_TURN in self._incomplete and has_own_turn(self._inputs, self._started, alone=self.is_alone()):
                del self._incomplete[_UNKNOWN_TURN]
            if error is None:
                self._publish()
                self._remember()
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
            operation_ended(
                self.system, self.kind, self.name or "", seconds, failed, self._incomplete, self._attributes
            )
        except Exception as failure:
            note_error("operation.end", failure)

    def __enter__(self) -> Operation:
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
        """This operation; after its end the innermost operation around it that has not ended."""
        operation = self
        while operation is not None and not operation._active:
            operation = operation._outer
        return operation

    def is_alone(self) -> bool:
        """Whether the span begins a trace."""
        return getattr(self.span, "parent", None) is None

    # --- variables -----------------------------------------------------------------------------------------------
    @property
    def origin(self) -> str:
        """`<trace id>-<span id>`, '' before the start and without an SDK."""
        return self._origin

    @property
    def captures_content(self) -> bool:
        """Whether contents may be put on this span."""
        return self._recording and config().content

    def read(
        self,
        ref: str,
        *,
        role: str = Role.OTHER,
        content: object = None,
        origin: str | None = None,
        score: float | None = None,
        scope: str | None = None,
        verbatim: bool = False,
    ) -> int:
        """Record an input and return its index, -1 on failure.

        `origin` None looks up the last write of this process. If this process last deleted the record, or (`verbatim`)
        the content differs from its last write, the origin is unknown.
        """
        if not self._active:
            return -1
        try:
            kind, colon, _ = ref.partition(":")
            if not colon:
                return self._left_out()
            role = _ROLES.get(role) or self._unknown("role", Role.OTHER, _ROLES)
            text = content if type(content) is str else self._text(content)
            if origin is None:
                origin = "" if kind in _ROOTS else self._find(kind, ref, role, text, scope, verbatim)
            score = score if score is None or type(score) is float else number(score)
            self._inputs.append((ref, role, origin, text, score))
            return len(self._inputs) - 1
        except Exception as error:
            self._failed("operation.read", error)
            return -1

    def wrote(
        self,
        ref: str,
        *,
        action: str = Action.DERIVE,
        role: str = Role.OTHER,
        content: object = None,
        sources: Iterable[int] | None = None,
        store: str = "",
        event_time: str = "",
    ) -> int:
        """Record an output and return its index, -1 on failure. `sources` are the indices of the inputs that fed it:
        empty for no input, None for every input.

        Operations below this one find the version at once, other operations after a successful end or after `leave`.
        """
        if not self._active:
            return -1
        try:
            if ":" not in ref:
                return self._left_out()
            role = _ROLES.get(role) or self._unknown("role", Role.OTHER, _ROLES)
            action = _ACTIONS.get(action) or self._unknown("action", Action.DERIVE, _ACTIONS)
            text = content if type(content) is str else self._text(content)
            fed_by = None if sources is None else self._known(sources)
            if store or event_time:
                limits = config()
                store, event_time = show(store, limits), show(event_time, limits)
            self._outputs.append((ref, role, action, text, store, event_time))
            self._sources.append(fed_by)
            if self._origin and action != _NONE:
                self._unpublished[self.scope, ref] = next_version(self._origin, action == _DELETE, text)
                if self._token is None:
                    self._publish()
            return len(self._outputs) - 1
        except Exception as error:
            self._failed("operation.wrote", error)
            return -1

    def context(self, content: object = None, sources: Iterable[int] | None = None) -> str:
        """Ref of the context that a retrieval made for the answer, '' without an origin.

        `content` was made of the inputs `sources`; None: of the hits as they are."""
        if not self._origin:
            return ""
        for made in self._outputs:
            if made[0].startswith(_CONTEXT):
                return made[0]
        hits, ref = [one[3] for one in self._inputs if one[1] == _HIT], make_ref(RefKind.CONTEXT, self._origin[33:])
        given = "\n".join(hits) if content is None else content
        self.wrote(ref, role=Role.CONTEXT, content=given, sources=sources)
        return ref

    @guarded("operation.set", None)
    def set(self, name: str, value: AttributeValue) -> None:
        """Set an attribute of the span. Texts are redacted and cut at the preview limit.

        All attributes together take at most half the bytes of a span: the rest is cut, or dropped and counted."""
        if self._active and (shown := self._shown(name, value)) is not None:
            self.span.set_attribute(name, shown)

    @guarded("operation.mark", None)
    def mark(self, reason: str) -> None:
        """Add a reason why this span is incomplete (`memtrace.incomplete`)."""
        if self._active:
            known = type(reason) is Incomplete
            self._incomplete[str(reason) if known else show(str(reason), config())] = None

    def unmark(self, reason: str) -> None:
        """Remove a reason."""
        if self._active:
            self._incomplete.pop(str(reason), None)

    @guarded("operation.become", None)
    def become(self, name: str, kind: str) -> None:
        """Rename a running operation whose kind only its result shows."""
        self.name, self.kind = name, _KINDS.get(kind) or self._unknown("kind", OpKind.OTHER, _KINDS)
        self.unmark(Incomplete.UNKNOWN_TURN)
        self.span.update_name(name)
        self.span.set_attribute(semconv.OP_KIND, self.kind)

    # --- origins -------------------------------------------------------------------------------------------------
    def unpublished(self, key: Key) -> Version | None:
        """The newest version of a variable that this operation or one around it has written and not published."""
        return max(filter(None, [around._unpublished.get(key) for around in self._and_around()]), default=None)

    def families(self) -> list[str]:
        """Origins of this operation and of those around it, innermost first, and the trace id."""
        return [*[around._origin for around in self._and_around()], self._origin[:32]]

    def _and_around(self) -> list[Operation]:
        found: list[Operation] = [self]
        while (outer := found[-1]._outer) is not None:
            found.append(outer)
        return found

    def _find(self, kind: str, ref: str, role: str, text: str, scope: str | None, verbatim: bool) -> str:
        """Origin of the newest version of `ref`, '' if this process did not write it."""
        key = (self.scope if scope is None else scope), ref
        version = self._unpublished.get(key) if self._outer is None else self.unpublished(key)
        families = self.families() if self.by_text or kind in _BY_TEXT else ()
        origin = _origins.newest(key, version, text != "" and role in _STORED_ROLES, families, text, verbatim)
        if not origin:
            self._incomplete[_UNKNOWN_ORIGIN] = None
        return origin

    @guarded("operation.publish", None)
    def _publish(self) -> None:
        """Let every operation of this process find the outputs."""
        if self._unpublished:
            made, self._unpublished = self._unpublished, {}
            _origins.publish(made, self.families() if self.by_text else ())

    # --- problems ------------------------------------------------------------------------------------------------
    def _failed(self, where: str, error: Exception) -> None:
        note_error(where, error)
        self._incomplete[str(Incomplete.GUARD)] = None

    def _known(self, sources: Iterable[int]) -> list[int]:
        """The indices that `read` has returned; -1 is an input that could not be recorded."""
        given = list(sources)
        if given and max(given) >= len(self._inputs):
            note_misuse("sources", f"an output of {self.system} has sources that were not read: left out")
            self.mark(Incomplete.MALFORMED)
        return [source for source in given if 0 <= source < len(self._inputs)]

    def _left_out(self) -> int:
        note_misuse("ref", f"a variable of {self.system} has no ref, `<kind>:<id>`: it is left out")
        self.mark(Incomplete.MALFORMED)
        return -1

    def _unknown(self, what: str, instead: str, known: Iterable[str]) -> str:
        """Replace a word that is not in the wire contract by the most general one."""
        why = f"unknown {what} in an operation of {self.system}, recorded as {instead!s}; known: {', '.join(known)}"
        note_misuse(what, why)
        return str(instead)

    def _text(self, content: object) -> str:
        text, faithful = words(content)
        if not faithful:
            self.mark(Incomplete.UNSERIALISABLE)
        return text if faithful else ""  # two unreadable values must not have one digest

    # --- the span ------------------------------------------------------------------------------------------------
    def _first_attributes(self) -> dict[str, AttributeValue]:
        """The attributes that a sampler may use."""
        attributes: dict[str, AttributeValue] = {semconv.OP_KIND: self.kind, semconv.SYSTEM: self.system}
        if self.name in semconv.KIND_OF_OPERATION:
            attributes[semconv.GEN_AI_OPERATION_NAME] = self.name
        given = {semconv.OP_PURPOSE: self.purpose, **(self._attributes or {})} if self.purpose else self._attributes
        for name, value in (given or {}).items():
            if (shown := self._shown(name, value)) is not None:
                attributes[name] = shown
        return attributes

    def _shown(self, name: str, value: object) -> AttributeValue | None:
        """The part of an attribute that the span has room for, None for nothing."""
        shown, less = admit(name, value, self._admitted, config())
        if less is not None:
            self.mark(less)
        if shown is None:
            note_drop("attributes")
        return shown

    def _remember(self) -> None:
        """Add the search or answer to the turn."""
        if not self._origin:
            return
        alone = self.is_alone()
        if self.kind == _RESPOND:
            responded(self._origin, self._inputs, self._outputs, alone=alone)
        elif self.kind == _RETRIEVE and not self._is_step():
            certain = _UNKNOWN_ORIGIN not in self._incomplete
            searched(self._origin, self.scope, self._inputs, self.context(), certain=certain, alone=alone)

    def _is_step(self) -> bool:
        around = current_operation()
        return around is not None and is_step(self.system, around.kind, around.system)

    def _shows_found(self) -> bool:
        """Whether the inputs show every record that was found: this search is no step of another operation."""
        around = current_operation()
        apart = around is None or around.kind == _RESPOND or (around.system != self.system and not self._is_step())
        return self.kind == _RETRIEVE and apart and _UNREADABLE.isdisjoint(self._incomplete)

    @guarded("operation.records", dict[str, AttributeValue]())
    def _records(self) -> dict[str, AttributeValue]:
        """Standard attributes about records, of a program's own operation; instrumentors set them themselves."""
        shown = record_attributes(self.kind, self._inputs, self._outputs, found=self._shows_found())
        if not shown or (self._has_searched and not shown.get(semconv.GEN_AI_MEMORY_RECORD_COUNT)):
            return {}  # an operation below found the records
        given: Mapping[str, object] = getattr(self.span, "attributes", None) or {}
        return {name: value for name, value in shown.items() if name not in self._admitted and name not in given}

    def _write(self, tracer: trace.Tracer, error: BaseException | None) -> None:
        limits = config()
        inputs, outputs, reasons = described(self._inputs, self._outputs, limits)
        for reason in reasons:
            self._incomplete[str(reason)] = None
        flow, too_many = flow_of(self._sources, len(self._inputs))
        if too_many:
            self.mark(Incomplete.BUDGET)
        records = self._records() if self._is_own and error is None else {}
        records |= shown_records(self.name, self._inputs, self._outputs, self._admitted, limits)
        beside = utf8_bytes("".join([*self._incomplete, *records, *map(str, records.values())]))
        parts, dropped = lay_out(inputs, outputs, flow, limits, sum(self._admitted.values()) + beside)
        if dropped:
            self.mark(Incomplete.BUDGET)
            note_drop("variables", dropped)
        scope: dict[str, AttributeValue] = {semconv.SCOPE: self.scope} if self.scope else {}
        attributes: dict[str, AttributeValue] = {semconv.SEQ: self._sequence, **records, **scope}
        if self._incomplete:
            attributes[semconv.INCOMPLETE] = list(self._incomplete)
        if error is not None:
            attributes[semconv.ERROR_TYPE] = self.error_type or type(error).__qualname__
            self.span.set_status(Status(StatusCode.ERROR, shown_error(error, limits)))
        write_part(self.span, attributes, parts[0], self._origin)
        for nth, part in enumerate(parts[1:], 1):
            attributes = {semconv.OP_KIND: self.kind, semconv.SYSTEM: self.system, semconv.PART: nth, **scope}
            write_continuation(tracer, self.span, attributes, part, self._origin)
