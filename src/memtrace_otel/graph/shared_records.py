"""Find records that two scopes share, so that writes of either scope are loaded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from memtrace_otel.graph.assembly import Assembly
from memtrace_otel.graph.keys import TURN_KINDS
from memtrace_otel.graph.versions import changes, creates
from memtrace_otel.model import OperationSpan, is_origin, is_unique, ref_kind


class Meeting(NamedTuple):
    """A scope that read, by origin, the record of another scope; `changes`: it also wrote the record."""

    ref: str
    reader: str
    writer: str
    changes: bool


class Meetings:
    """What loaded traces tell of memories that meet. `memories` are those that are loaded whole; of a trace the spans
    are asked for, and what they say about each other."""

    def __init__(
        self,
        traces: Mapping[str, list[OperationSpan]],
        assembly: Callable[[str], Assembly],
        memories: Collection[str | None],
    ) -> None:
        self._traces = traces
        self._assembly = assembly
        self._memories = memories
        self._found = set(self._meetings())

    def doubtful(self) -> dict[str, set[str]]:
        """The records, ref -> scopes, that memories not loaded looked at in another one, change by the name alone, and
        did not create as far as is loaded."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for ref, reader, _, _ in self._found:
            if reader not in self._memories and (ref, reader) in self._by_name:
                found[ref].add(reader)
        return found

    def shared(self) -> dict[str, set[str]]:
        """These, and the records that a loaded memory and another one both mean: one wrote anew what the other had, or
        goes by its name."""
        found = self.doubtful()
        for ref, reader, writer, changed in self._found:
            if changed or (ref, reader) in self._by_name:
                for own in {reader, writer}.intersection(self._memories):
                    found.setdefault(ref, set()).add(str(own))
        return found

    def _meetings(self) -> Iterator[Meeting]:
        loaded = {*self._memories, ""}
        foreign = {id for id, spans in self._traces.items() if any(span.scope not in loaded for span in spans)}
        for trace_id, spans in self._traces.items() if foreign else ():
            if trace_id in foreign or any(v.origin[:32] in foreign for span in spans for v in span.inputs):
                assembly = self._assembly(trace_id)
                for span in assembly.operations.values():
                    if scope := assembly.scopes[span.origin]:
                        yield from self._met(span, scope)

    def _met(self, span: OperationSpan, scope: str) -> Iterator[Meeting]:
        for variable in span.inputs:
            if is_origin(variable.origin) and not is_unique(variable.ref) and ref_kind(variable.ref) not in TURN_KINDS:
                writer = self._writer(variable.ref, variable.origin)
                if writer and writer != scope:
                    anew = any(output.ref == variable.ref and changes(span, output) for output in span.outputs)
                    yield Meeting(variable.ref, scope, writer, anew)

    def _writer(self, ref: str, origin: str) -> str:
        """Return the scope of a loaded operation that lists a ref, '' of another one."""
        if origin[:32] not in self._traces:
            return ""
        assembly = self._assembly(origin[:32])
        span = assembly.operations.get(main := assembly.main(origin))
        return assembly.scopes[main] if span and any(output.ref == ref for output in span.outputs) else ""

    @cached_property
    def _by_name(self) -> set[tuple[str, str]]:
        """(ref, scope) of those that change one of the records found by name alone, or where a memory is loaded read it
        so, and did not create it."""
        by_name, created = set[tuple[str, str]](), set[tuple[str, str]]()
        refs = {meeting.ref for meeting in self._found}
        for assembly, span in self._listing(refs) if refs else ():
            scope = assembly.scopes[span.origin]
            read = {v.ref for v in span.inputs if is_origin(v.origin)}
            for output in span.outputs:
                if changes(span, output) and output.ref not in read:
                    by_name.add((output.ref, scope))
                elif creates(span, output) and span.status != "error":
                    created.add((output.ref, scope))
            if scope in self._memories:
                by_name.update((v.ref, scope) for v in span.inputs if v.ref not in read)
        return by_name - created

    def _listing(self, refs: Collection[str]) -> Iterator[tuple[Assembly, OperationSpan]]:
        for trace_id, spans in self._traces.items():
            if any(v.ref in refs for span in spans for v in (*span.inputs, *span.outputs)):
                assembly = self._assembly(trace_id)
                yield from ((assembly, span) for span in assembly.operations.values())
