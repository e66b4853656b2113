"""One memory operation as a span: the handle that instrumentors, decorators and users write to."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar, Token
from functools import wraps
from types import TracebackType
from typing import Any, TypeVar, cast

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.util.types import AttributeValue

from memtrace_otel import semconv
from memtrace_otel.capture import recall
from memtrace_otel.capture.config import CaptureConfig, config
from memtrace_otel.capture.content import as_text, describe, preview, variable_ref
from memtrace_otel.capture.guard import guard, guarded, note_drop
from memtrace_otel.capture.layout import Entry, Part, lay_out
from memtrace_otel.capture.origins import origins
from memtrace_otel.model import is_origin, make_origin, make_ref, ref_kind, split_origin
from memtrace_otel.semconv import Action, Incomplete, LinkType, OpKind, RefKind, Role
from memtrace_otel.version import __version__

F = TypeVar("F", bound=Callable[..., Any])

_ROOTS = frozenset({RefKind.MESSAGE, RefKind.QUERY, RefKind.EXPECTED, RefKind.PROMPT, RefKind.DOCUMENT})
_ROLES = frozenset(Role)
_WRITING = frozenset({OpKind.INGEST, OpKind.EXTRACT, OpKind.DECIDE, OpKind.CREATE, OpKind.UPDATE, OpKind.DELETE})
_READING = frozenset({OpKind.RETRIEVE, OpKind.RERANK})
_RECORDS = frozenset({RefKind.MEMORY, RefKind.STATE, RefKind.CHUNK, RefKind.DOCUMENT})
_MAX_FLOW = 4096  # index pairs; building more would be felt by the program
_sequence = itertools.count(1)
_current: ContextVar[Operation | None] = ContextVar("memtrace_current_operation", default=None)

LINK_OF_ROLE = {
    Role.HIT: LinkType.RETRIEVED,
    Role.CONTEXT: LinkType.RETRIEVED,
    Role.CANDIDATE: LinkType.CONSIDERED,
    Role.PREVIOUS: LinkType.SUPERSEDES,
    Role.ANSWER: LinkType.EVALUATES,
}


def get_tracer(name: str = semconv.SCOPE_PREFIX, provider: trace.TracerProvider | None = None) -> trace.Tracer:
    """The tracer of one of our instrumentation scopes."""
    return trace.get_tracer(name, __version__, tracer_provider=provider, schema_url=semconv.SCHEMA_URL)


def current_operation() -> Operation | None:
    """The innermost memtrace operation running in this context."""
    return _current.get()


class Operation:
    """A running memory operation; made by `operation(...)`, used once.

    No method raises because of our own code. `read` and `wrote` take contents always; whether a content reaches the
    span is decided by OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT.
    """

    __slots__ = (
        "_flow",
        "_hits",
        "_incomplete",
        "_inputs",
        "_options",
        "_origin",
        "_outputs",
        "_recalled",
        "_span_token",
        "_token",
        "_unsourced",
        "kind",
        "scope",
        "span",
        "system",
    )

    def __init__(
        self,
        name: str | None = None,
        *,
        kind: str,
        system: str,
        scope: str = "",
        tracer: trace.Tracer | None = None,
        span_kind: SpanKind = SpanKind.INTERNAL,
        attributes: Mapping[str, AttributeValue] | None = None,
        parent: otel_context.Context | None = None,
        inputs: Mapping[str, str] | None = None,
        output: str = "",
        action: str = Action.DERIVE,
    ) -> None:
        self.kind, self.system, self.scope = str(kind), system, scope
        self._options = (name, tracer, span_kind, attributes, parent, inputs, output, action)
        self.span: Span = trace.INVALID_SPAN
        self._origin = ""
        self._inputs: list[Entry] = []
        self._outputs: list[Entry] = []
        self._flow: list[tuple[int, int]] = []
        self._unsourced: list[int] = []
        self._recalled: list[recall.Recalled] = []
        self._hits = 0
        self._incomplete: dict[str, None] = {}
        self._token: Token[Operation | None] | None = None
        self._span_token: Token[otel_context.Context] | None = None

    # --- life ----------------------------------------------------------------------------------------------------
    @guarded("operation.start", None)
    def start(self) -> None:
        """Start the span and make it current."""
        name, tracer, span_kind, attributes, parent, *_ = self._options
        first: dict[str, AttributeValue] = {semconv.OP_KIND: self.kind, semconv.SYSTEM: self.system}
        if self.scope:
            first[semconv.SCOPE] = self.scope
        if name in semconv.KIND_OF_OPERATION:
            first[semconv.GEN_AI_OPERATION_NAME] = str(name)
        first.update(attributes or {})
        self.span = (tracer or get_tracer()).start_span(
            name or semconv.SPAN_NAME_PREFIX + self.kind, context=parent, kind=span_kind, attributes=first
        )
        context = self.span.get_span_context()
        if context.is_valid:
            self._origin = make_origin(f"{context.trace_id:032x}", f"{context.span_id:016x}")
        if self.span.is_recording():
            self.span.set_attribute(semconv.SEQ, next(_sequence))
        self._span_token = otel_context.attach(trace.set_span_in_context(self.span, parent))
        self._token = _current.set(self)

    @guarded("operation.end", None)
    def end(self, error: BaseException | None = None) -> None:
        """Write variables and links to the span and end it; `error` is what the observed code raised."""
        self.leave()
        if error is None:
            with guard("operation.remember"):
                self._remember()
        try:
            if self.span.is_recording():
                self._write(error)
        finally:
            self.span.end()

    def leave(self) -> None:
        """Give the context back (in another context than that of `start` there is nothing to give)."""
        if self._token is not None:
            with guard("operation.context"):
                _current.reset(self._token)
        if self._span_token is not None:
            otel_context.detach(self._span_token)
        self._token = self._span_token = None

    def __enter__(self) -> Operation:
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

    # --- what happened -------------------------------------------------------------------------------------------
    @property
    def origin(self) -> str:
        """`<trace id>-<span id>`, '' before the start and when no SDK is set up."""
        return self._origin

    @property
    def captures_content(self) -> bool:
        """Whether contents may be put on this span."""
        return config().content

    @guarded("operation.read", -1)
    def read(
        self,
        ref: str,
        *,
        role: str = Role.OTHER,
        content: object = None,
        origin: str | None = None,
        score: float | None = None,
        scope: str | None = None,
    ) -> int:
        """Record an input and return its index. `origin` None looks the version up among those this process wrote."""
        text = self._text(content)
        if origin is None:
            is_root = ref_kind(ref) in _ROOTS
            origin = "" if is_root else origins().find(self.scope if scope is None else scope, ref)
            if not origin and not is_root:
                self.mark(Incomplete.UNKNOWN_ORIGIN)
        self._inputs.append(Entry(ref, role=str(role), origin=origin, content=text, score=_number(score)))
        if self.kind == OpKind.RETRIEVE and role in (Role.HIT, Role.QUERY):
            self._hits += role == Role.HIT
            if text:
                self._recalled.append(recall.Recalled(ref, origin, text, self.scope, self.origin))
        return len(self._inputs) - 1

    @guarded("operation.wrote", -1)
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
        """Record an output and return its index. `sources` are the indices of the inputs that fed it, None for all."""
        text = self._text(content)
        index = len(self._outputs)
        self._outputs.append(
            Entry(ref, role=str(role), content=text, action=str(action), store=store, event_time=event_time)
        )
        if sources is None:
            self._unsourced.append(index)
        else:
            self._flow.extend((source, index) for source in sources if source >= 0)
        own = self.origin
        if own and action != Action.NONE:
            origins().wrote(self.scope, ref, own)
        return index

    def returned_records(self, kind: str, contents: Sequence[object]) -> None:
        """Record what a retrieval returned: stored records are its hits, and the context they make is its output."""
        for content in contents:
            self.read(variable_ref(kind, content), role=Role.HIT, content=content)
        if self.origin:
            context = make_ref(RefKind.CONTEXT, split_origin(self.origin)[1])
            self.wrote(context, role=Role.CONTEXT, content="\n".join(as_text(content)[0] for content in contents))

    @guarded("operation.set", None)
    def set(self, name: str, value: AttributeValue) -> None:
        """Set an attribute of the span. Strings are cut at the preview limit."""
        if isinstance(value, str):
            value, _ = preview(value, config().preview_bytes)
        self.span.set_attribute(name, value)

    @guarded("operation.become", None)
    def become(self, name: str, kind: str) -> None:
        """Rename a running operation whose nature only its result shows."""
        self.kind = str(kind)
        self.span.update_name(name)
        self.span.set_attribute(semconv.OP_KIND, self.kind)

    @guarded("operation.mark", None)
    def mark(self, reason: str) -> None:
        """Say why this span knows less than it should (`memtrace.incomplete`)."""
        self._incomplete[str(reason)] = None

    @guarded("operation.unmark", None)
    def unmark(self, reason: str) -> None:
        """Take a reason back."""
        self._incomplete.pop(str(reason), None)

    # --- at the end ----------------------------------------------------------------------------------------------
    def _text(self, content: object) -> str:
        text, faithful = as_text(content)
        if not faithful:
            self.mark(Incomplete.UNSERIALISABLE)
        return text

    def _remember(self) -> None:
        """Let later model calls of this turn find what was retrieved."""
        own = self.origin
        outer = _current.get()  # a search inside a write is not the turn's
        if self.kind == OpKind.RETRIEVE and own and (outer is None or outer.kind not in _WRITING):
            queries = [item for item in self._recalled if ref_kind(item.ref) == RefKind.QUERY]
            hits = [item for item in self._recalled if ref_kind(item.ref) != RefKind.QUERY]
            turn = recall.turn_of(split_origin(own)[0])
            turn.retrieved(own, queries[-1] if queries else None, hits, self._hits)
        if self.kind == OpKind.RESPOND and own:
            for answer in (v for v in self._outputs if ref_kind(v.ref) == RefKind.ANSWER):
                turn = recall.turn_of(split_origin(own)[0])
                turn.answered(recall.Recalled(answer.ref, own, answer.content))

    def _write(self, error: BaseException | None) -> None:
        limits = config()
        if not limits.content and any(v.content for v in (*self._inputs, *self._outputs)):
            self.mark(Incomplete.CONTENT_OFF)
        inputs = [self._finished(v, limits, inline=not v.origin) for v in self._inputs]
        outputs = [self._finished(v, limits, inline=True) for v in self._outputs]
        flow = self._flow
        if len(flow) + len(self._unsourced) * len(inputs) > _MAX_FLOW:
            flow = []  # every input counts as source of every output
            self.mark(Incomplete.BUDGET)
        if flow and self._unsourced:  # some outputs name their sources: then the others name all
            flow = sorted(
                {*flow, *((i, o) for o in self._unsourced for i in range(len(inputs)))}, key=lambda p: p[::-1]
            )
        parts, dropped = lay_out(inputs, outputs, flow, limits)
        if dropped:
            self.mark(Incomplete.BUDGET)
            note_drop("variables", dropped)
        if self.scope:
            self.span.set_attribute(semconv.SCOPE, self.scope)
        self._write_part(self.span, parts[0])
        if self._incomplete:
            self.span.set_attribute(semconv.INCOMPLETE, list(self._incomplete))
        if error is not None:
            self.span.set_attribute(semconv.ERROR_TYPE, type(error).__qualname__)
            described = f"{type(error).__name__}: {error}" if limits.content else type(error).__name__
            self.span.set_status(Status(StatusCode.ERROR, preview(described, 200)[0]))
        for number, part in enumerate(parts[1:], 1):
            self._write_continuation(number, part)

    def _finished(self, entry: Entry, limits: CaptureConfig, *, inline: bool) -> Entry:
        """The entry as it goes on the span: digest and size of the whole content, content only as a preview."""
        if not entry.content:
            return entry
        described = describe(entry.content, limits, inline=inline)
        for reason in described.reasons:
            self.mark(reason)
        ref, role, origin, _, _, score, action, _, store, event_time = entry
        return Entry(
            ref,
            role,
            origin,
            described.digest,
            described.shown,
            score,
            action,
            described.size,
            store or described.store,
            event_time,
        )

    def _write_part(self, span: Span, part: Part) -> None:
        span.set_attributes(part.attributes())
        own = self.origin
        by_origin: dict[str, list[Entry]] = {}
        for variable in part.inputs:
            if variable.origin and variable.origin != own and is_origin(variable.origin):
                by_origin.setdefault(variable.origin, []).append(variable)
        for origin, variables in by_origin.items():
            trace_id, span_id = split_origin(origin)
            target = SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(TraceFlags.SAMPLED))
            link_type = LINK_OF_ROLE.get(cast(Role, variables[0].role), LinkType.DERIVED_FROM)
            refs = [v.ref for v in variables[:16]]  # the arrays name them all
            span.add_link(target, {semconv.LINK_TYPE: str(link_type), semconv.LINK_REFS: refs})

    def _write_continuation(self, number: int, part: Part) -> None:
        tracer = self._options[1] or get_tracer()
        attributes: dict[str, AttributeValue] = {
            semconv.OP_KIND: self.kind,
            semconv.SYSTEM: self.system,
            semconv.PART: number,
            semconv.SEQ: next(_sequence),
        }
        if self.scope:
            attributes[semconv.SCOPE] = self.scope
        span = tracer.start_span(
            semconv.SPAN_NAME_PREFIX + self.kind, context=trace.set_span_in_context(self.span), attributes=attributes
        )
        try:
            self._write_part(span, part)
        finally:
            span.end()

    # --- as a decorator ------------------------------------------------------------------------------------------
    def __call__(self, function: F) -> F:
        """Wrap a function or coroutine function: every call is one operation of these options.

        `inputs` maps parameter names to ref kinds, `output` is the ref kind of the returned value (a list gives one
        output per item). Raises TypeError for a generator function, whose body runs after the call has returned.
        """
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"operation() cannot decorate the generator function {function!r}")
        name, tracer, span_kind, attributes, parent, inputs, output, action = self._options
        code_name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', repr(function))}"
        signature = inspect.signature(function) if inputs else inspect.Signature()

        def fresh() -> Operation:
            return Operation(
                name,
                kind=self.kind,
                system=self.system,
                scope=self.scope,
                tracer=tracer,
                span_kind=span_kind,
                attributes={semconv.CODE_FUNCTION_NAME: code_name, **(attributes or {})},
                parent=parent,
            )

        def given(made: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            with guard("operation.arguments"):
                bound = signature.bind(*args, **kwargs).arguments if inputs else {}
                for parameter, kind in (inputs or {}).items():
                    for value in _items(bound.get(parameter)):
                        made.read(variable_ref(kind, value), role=_role_of(kind), content=value)

        def returned(made: Operation, result: object) -> None:
            with guard("operation.result"):
                values = _items(result) if output else []
                if self.kind in _READING and output in _RECORDS:
                    made.returned_records(output, values)
                    return
                for value in values:
                    made.wrote(variable_ref(output, value), action=action, role=_role_of(output), content=value)

        if inspect.iscoroutinefunction(function):
            awaited = cast(Callable[..., Awaitable[Any]], function)

            @wraps(function)
            async def call_async(*args: Any, **kwargs: Any) -> Any:
                with fresh() as made:
                    given(made, args, kwargs)
                    result = await awaited(*args, **kwargs)
                    returned(made, result)
                return result

            return cast(F, call_async)

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with fresh() as made:
                given(made, args, kwargs)
                result = function(*args, **kwargs)
                returned(made, result)
            return result

        return cast(F, call)


operation = Operation
"""`with operation("search_memory", kind="retrieve", system="my_rag") as op: ...`, or as a decorator."""


def _items(value: object) -> list[object]:
    if value is None:
        return []
    return list(cast(Iterable[object], value)) if isinstance(value, list | tuple) else [value]


def _role_of(kind: str) -> str:
    """The role that a variable of this kind plays unless told otherwise."""
    if kind == RefKind.MEMORY:
        return Role.HIT
    return kind if kind in _ROLES else Role.OTHER


def _number(score: object) -> float | None:
    return float(score) if isinstance(score, int | float) and not isinstance(score, bool) else None
