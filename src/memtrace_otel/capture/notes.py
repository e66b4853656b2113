"""What a running operation notes: what it read and wrote, what is said of it, and why it knows less than it should."""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import Token
from typing import TYPE_CHECKING

from opentelemetry.trace import Span
from opentelemetry.util.types import AttributeValue

from memtrace_otel.capture.attributes import admit
from memtrace_otel.capture.config import config
from memtrace_otel.capture.content import show
from memtrace_otel.capture.guard import guarded, note_drop, note_error, note_misuse
from memtrace_otel.capture.layout import Read, Written, number
from memtrace_otel.capture.origins import Key, Version, next_version, origins
from memtrace_otel.capture.values import words
from memtrace_otel.model import make_ref
from memtrace_otel.semconv import Action, Incomplete, RefKind, Role

if TYPE_CHECKING:
    from memtrace_otel.capture.operations import Operation

_ROOTS = frozenset({RefKind.MESSAGE, RefKind.QUERY, RefKind.EXPECTED, RefKind.PROMPT, RefKind.DOCUMENT})
_ROLES = {str(role): str(role) for role in Role}
_ACTIONS = {str(action): str(action) for action in Action}
_NONE, _DELETE, _HIT = str(Action.NONE), str(Action.DELETE), str(Role.HIT)
_LIVING = frozenset({str(Role.HIT), str(Role.CANDIDATE), str(Role.PREVIOUS)})  # parts of a record that is in the store
_BY_TEXT = frozenset({RefKind.FACT, RefKind.COMPLETION})  # only their texts name them
_CONTEXT = f"{RefKind.CONTEXT}:"
_origins = origins()


class Notes:
    """The part of an `Operation` that its user writes to. No method raises because of our own code."""

    __slots__ = (
        *("_active", "_admitted", "_incomplete", "_inputs", "_origin", "_outer", "_outputs", "_recording", "_sources"),
        *("_token", "_unpublished", "kind", "scope", "span", "system"),
    )

    by_text = False  # whether only their texts name its variables

    system: str
    kind: str
    scope: str
    span: Span
    _active: bool
    _recording: bool
    _origin: str
    _outer: Operation | None
    """The operation around it."""
    _token: Token[Operation | None] | None
    """None while it is not the current one."""
    _inputs: list[Read]
    _outputs: list[Written]
    _sources: list[list[int] | None]
    _unpublished: dict[Key, Version]
    _incomplete: dict[str, None]
    _admitted: dict[str, int]

    @property
    def origin(self) -> str:
        """`<trace id>-<span id>`, '' before the start and when no SDK is set up."""
        return self._origin

    def unpublished(self, key: Key) -> Version | None:
        """The newest version of a variable that this operation and those around it have written, and not published."""
        return max(filter(None, [around._unpublished.get(key) for around in self._and_around()]), default=None)

    def families(self) -> list[str]:
        """What it is a part of, the nearest first: itself, the operations around it, its trace."""
        return [*[around._origin for around in self._and_around()], self._origin[:32]]

    def _and_around(self) -> list[Notes]:
        found: list[Notes] = [self]
        while (outer := found[-1]._outer) is not None:
            found.append(outer)
        return found

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
        """Record an input and return its index. `origin` None looks up the version that this process wrote last; a hit,
        candidate or previous version of a record that it has deleted was written by somebody else. So was one of other
        words, where a record is always read as it was written (`verbatim`)."""
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
        """Record an output and return its index. `sources` are the indices of the inputs that fed it: none where it
        comes from none of them, None for all.

        Operations below this one find the version at once, others when this one has ended well or given the context
        back.
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
                limits = config().of(self.system)
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
        """Ref of what a retrieval made for the answer, '' when it has no identity: `content`, which the inputs with
        these indices fed. One that says nothing of it handed over its hits."""
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
        """Set an attribute of the span. Texts, also those in a sequence, are redacted and cut at the preview limit; all
        attributes together may take half the bytes of a span: what is past them is cut, or dropped and counted."""
        if self._active and (shown := self._shown(name, value)) is not None:
            self.span.set_attribute(name, shown)

    @guarded("operation.mark", None)
    def mark(self, reason: str) -> None:
        """Say why this span knows less than it should (`memtrace.incomplete`)."""
        if self._active:
            self._incomplete[
                str(reason) if type(reason) is Incomplete else show(str(reason), config().of(self.system))
            ] = None

    def unmark(self, reason: str) -> None:
        """Take a reason back."""
        if self._active:
            self._incomplete.pop(str(reason), None)

    def _shown(self, name: str, value: object) -> AttributeValue | None:
        """What of an attribute there is room for, None when there is none."""
        shown, less = admit(name, value, self._admitted, config().of(self.system))
        if less is not None:
            self.mark(less)
        if shown is None:
            note_drop("attributes", 1, self.system)
        return shown

    def _failed(self, where: str, error: Exception) -> None:
        note_error(where, error, self.system)
        self._incomplete[str(Incomplete.GUARD)] = None

    def _known(self, sources: Iterable[int]) -> list[int]:
        """Those that `read` has returned; -1 stands for an input that could not be recorded."""
        given = list(sources)
        if given and max(given) >= len(self._inputs):
            note_misuse("sources", f"an output of {self.system} has sources that nothing read: left out", self.system)
            self.mark(Incomplete.MALFORMED)
        return [source for source in given if 0 <= source < len(self._inputs)]

    def _left_out(self) -> int:
        """A variable without a name cannot be recorded."""
        note_misuse("ref", f"a variable of {self.system} has no ref, `<kind>:<id>`: it is left out", self.system)
        self.mark(Incomplete.MALFORMED)
        return -1

    def _unknown(self, what: str, instead: str, known: Iterable[str]) -> str:
        """A word that the wire contract does not know counts as the most general one."""
        why = f"unknown {what} in an operation of {self.system}, recorded as {instead!s}; known: {', '.join(known)}"
        note_misuse(what, why, self.system)
        return str(instead)

    def _find(self, kind: str, ref: str, role: str, text: str, scope: str | None, verbatim: bool) -> str:
        """Origin of the newest version of `ref`, '' when this process did not write it."""
        key = (self.scope if scope is None else scope), ref
        version = self._unpublished.get(key) if self._outer is None else self.unpublished(key)
        families = self.families() if self.by_text or kind in _BY_TEXT else ()
        origin = _origins.newest(key, version, text != "" and role in _LIVING, families, text, verbatim)
        if not origin:
            self.mark(Incomplete.UNKNOWN_ORIGIN)
        return origin

    def _text(self, content: object) -> str:
        text, faithful = words(content)
        if not faithful:
            self.mark(Incomplete.UNSERIALISABLE)
        return text if faithful else ""  # two that cannot be read must not have one digest

    @guarded("operation.publish", None)
    def _publish(self) -> None:
        """Let every operation of this process find what was written: a failed one has changed no record."""
        if self._unpublished:
            made, self._unpublished = self._unpublished, {}
            _origins.publish(made, self.families() if self.by_text else ())

    def _doubt(self) -> None:
        """It failed: nobody reads what it was writing, unless the store shows just that."""
        if self._unpublished:
            _origins.doubt(self._unpublished)
