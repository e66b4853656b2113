"""Fields of an operation span from and to its attributes, by section 3 of the wire contract.

Parallel arrays of different length or of wrong types never raise: a missing entry becomes the default, and the span is
marked `malformed`. On the wire NaN means "no score" and -1 means "no size", where only some variables have one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import TypeVar, cast

from memtrace_otel import semconv
from memtrace_otel.model import AttributeValue, OperationSpan, Variable

T = TypeVar("T")
_NUMBER = (int, float)


class FieldReader:
    """Takes typed fields out of plain attribute values; `rest` holds the other attributes."""

    def __init__(self, plain: Mapping[str, object]) -> None:
        self.rest = dict(plain)
        self.malformed = False

    def text(self, key: str) -> str:
        """Take a string; '' without the attribute."""
        value = self.rest.pop(key, None)
        return value if type(value) is str else self._checked(value, (str,), "")

    def integer(self, key: str) -> int | None:
        """Take an integer; None without the attribute."""
        return self._checked(self.rest.pop(key, None), (int,), None)

    def texts(self, key: str) -> list[str]:
        """Take an array of strings of any length."""
        return self._all_checked(self._array(key), (str,), "")

    def inputs(self) -> tuple[list[Variable], list[int]]:
        """Take the input variables and the wire index of each."""
        refs = self.texts(semconv.INPUTS)
        columns = zip(
            refs,
            self._column(semconv.INPUTS_ROLES, refs, (str,), ""),
            self._column(semconv.INPUTS_ORIGINS, refs, (str,), ""),
            self._column(semconv.INPUTS_DIGESTS, refs, (str,), ""),
            self._column(semconv.INPUTS_CONTENTS, refs, (str,), ""),
            self._column(semconv.INPUTS_SCORES, refs, _NUMBER, math.nan),
            self._column(semconv.INPUTS_STORES, refs, (str,), ""),
            strict=True,
        )
        return self._named(
            Variable(
                ref, role or "other", origin, digest, content, None if math.isnan(score) else float(score), store=store
            )
            for ref, role, origin, digest, content, score, store in columns
        )

    def outputs(self) -> tuple[list[Variable], list[int]]:
        """Take the output variables and the wire index of each."""
        refs = self.texts(semconv.OUTPUTS)
        columns = zip(
            refs,
            self._column(semconv.OUTPUTS_ROLES, refs, (str,), ""),
            self._column(semconv.OUTPUTS_ACTIONS, refs, (str,), ""),
            self._column(semconv.OUTPUTS_DIGESTS, refs, (str,), ""),
            self._column(semconv.OUTPUTS_SIZES, refs, (int,), -1),
            self._column(semconv.OUTPUTS_CONTENTS, refs, (str,), ""),
            self._column(semconv.OUTPUTS_STORES, refs, (str,), ""),
            self._column(semconv.EVENT_TIME, refs, (str,), ""),
            strict=True,
        )
        return self._named(
            Variable(
                ref,
                role or "other",
                digest=digest,
                content=content,
                action=action,
                size=size if size >= 0 else None,
                store=store,
                event_time=time,
            )
            for ref, role, action, digest, size, content, store, time in columns
        )

    def flow(self, inputs: list[int], outputs: list[int], part: int) -> tuple[tuple[int, int], ...] | None:
        """Take the flow pairs, given the wire indices of the variables with a ref.

        In a continuation (`part` > 0) the indices count over all parts of the operation and are not changed. An empty
        array says that no input fed an output. None: there is no array, or no pair can be read.
        """
        sources = {wire: kept for kept, wire in enumerate(inputs)}
        targets = {wire: kept for kept, wire in enumerate(outputs)}
        says_nothing = self.rest.get(semconv.FLOW) == []
        pairs: list[tuple[int, int]] = []
        for item in self.texts(semconv.FLOW):
            source, _, target = item.partition(">")
            try:
                pair = int(source), int(target)
                pairs.append(pair if part else (sources[pair[0]], targets[pair[1]]))
            except (ValueError, KeyError):
                self.malformed = True
        return tuple(pairs) if pairs or says_nothing else None

    def _named(self, variables: Iterable[Variable]) -> tuple[list[Variable], list[int]]:
        """Leave out variables without a ref, which would all look like one variable."""
        kept = [(variable, index) for index, variable in enumerate(variables) if variable.ref]
        return [variable for variable, _ in kept], [index for _, index in kept]

    def _column(self, key: str, refs: list[str], types: tuple[type[T], ...], default: T) -> list[T]:
        """Take the array parallel to `refs`, cut or filled to the same length; without it, all are defaults."""
        items = self._array(key)
        if items and len(items) != len(refs):
            self.malformed = True
        column = self._all_checked(items[: len(refs)], types, default)
        return column + [default] * (len(refs) - len(column))

    def _array(self, key: str) -> list[object]:
        value = self.rest.pop(key, None)
        if type(value) is list:  # the usual case
            return cast("list[object]", value)
        if isinstance(value, str):
            value = array_of_text(value)
        if value is None or isinstance(value, list):
            return cast("list[object]", value or [])
        self.malformed = True
        return []

    def _all_checked(self, items: list[object], types: tuple[type[T], ...], default: T) -> list[T]:
        if set(map(type, items)).issubset(types):
            return cast("list[T]", items)
        return [self._checked(item, types, default) for item in items]

    def _checked(self, value: object, types: tuple[type[T], ...], default: T) -> T:
        if isinstance(value, types) and not isinstance(value, bool):
            return value
        self.malformed = self.malformed or value is not None
        return default


def array_of_text(text: str) -> object:
    """Return the array of a JSON text, or the text itself when it holds no array.

    Jaeger's stores of the older model (Badger, Elasticsearch, Cassandra) keep arrays as text; an array with a NaN is ''
    there.
    """
    if not text:
        return None
    try:
        value = cast("object", json.loads(text)) if text.startswith("[") else text
    except (ValueError, RecursionError):
        return text
    return value


def write_fields(span: OperationSpan) -> dict[str, AttributeValue]:
    """Return the attributes of `span` with its fields; empty fields are left out."""
    values: dict[str, AttributeValue] = dict(span.attributes)
    named: list[tuple[str, AttributeValue]] = [
        (semconv.OP_KIND, span.kind),
        (semconv.SYSTEM, span.system),
        (semconv.SCOPE, span.scope),
        (semconv.PART, span.part),
        (semconv.INCOMPLETE, list(span.incomplete)),
        (semconv.EVIDENCE, list(span.evidence)),
    ]
    values.update({key: value for key, value in named if value})
    if span.flow is not None:
        values[semconv.FLOW] = [f"{source}>{target}" for source, target in span.flow]
    if span.seq is not None:
        values[semconv.SEQ] = span.seq
    if span.inputs:
        values.update(_write_inputs(span.inputs))
    if span.outputs:
        values.update(_write_outputs(span.outputs))
    return values


def _write_inputs(inputs: tuple[Variable, ...]) -> dict[str, AttributeValue]:
    values: dict[str, AttributeValue] = {
        semconv.INPUTS: [v.ref for v in inputs],
        semconv.INPUTS_ROLES: [v.role for v in inputs],
        semconv.INPUTS_ORIGINS: [v.origin for v in inputs],
        semconv.INPUTS_DIGESTS: [v.digest for v in inputs],
    }
    if any(v.content for v in inputs):
        values[semconv.INPUTS_CONTENTS] = [v.content for v in inputs]
    if any(v.store for v in inputs):
        values[semconv.INPUTS_STORES] = [v.store for v in inputs]
    if any(v.score is not None for v in inputs):
        values[semconv.INPUTS_SCORES] = [math.nan if v.score is None else float(v.score) for v in inputs]
    return values


def _write_outputs(outputs: tuple[Variable, ...]) -> dict[str, AttributeValue]:
    values: dict[str, AttributeValue] = {
        semconv.OUTPUTS: [v.ref for v in outputs],
        semconv.OUTPUTS_ROLES: [v.role for v in outputs],
        semconv.OUTPUTS_ACTIONS: [v.action for v in outputs],
        semconv.OUTPUTS_DIGESTS: [v.digest for v in outputs],
    }
    if any(v.size is not None for v in outputs):
        values[semconv.OUTPUTS_SIZES] = [-1 if v.size is None else v.size for v in outputs]
    if any(v.content for v in outputs):
        values[semconv.OUTPUTS_CONTENTS] = [v.content for v in outputs]
    if any(v.store for v in outputs):
        values[semconv.OUTPUTS_STORES] = [v.store for v in outputs]
    if any(v.event_time for v in outputs):
        values[semconv.EVENT_TIME] = [v.event_time for v in outputs]
    return values
