"""Which records loaded traces show two memories at, so that what others wrote by that name has a say in them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from memtrace_otel.graph.assembly import Assembly
from memtrace_otel.graph.keys import TURN_KINDS
from memtrace_otel.graph.outputs import changes, creates
from memtrace_otel.model import OperationSpan, is_origin, is_unique, ref_kind


class Meeting(NamedTuple):
    """A memory that read, by origin, what another one wrote of a record; `changes` says that it wrote it anew."""

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

    def shared(self) -> dict[str, set[str]]:
        """The records, ref -> scopes, that a loaded memory and another one meet at; and those that stay in doubt."""
        found = self.doubtful()
        for ref, reader, writer, _ in sorted(self._found):
            if own := {reader, writer}.intersection(self._memories):
                found.setdefault(ref, set()).update(map(str, own))
        return found

    def doubtful(self) -> dict[str, set[str]]:
        """The records, ref -> scopes, in which what is not loaded certainly may have a say: one memory wrote there anew
        what a loaded one had, or the reverse, so that both mean one record; or one that looked at the other's goes by
        the name alone, and did not create its own as far as is loaded."""
        by_name, created = self._names({meeting.ref for meeting in self._found})
        found: dict[str, set[str]] = {}
        for ref, reader, writer, changed in sorted(self._found):
            own = {reader, writer}.intersection(self._memories)
            if (changed and own) or (ref, reader) in by_name - created:
                found.setdefault(ref, set()).update(map(str, own or {reader}))
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
            if is_origin(variable.origin) and is_of_one_memory(variable.ref):
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

    def _names(self, refs: Collection[str]) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
        """Return (ref, scope) of those that change one of these records by name alone, or where a memory is loaded read
        it so; and of those that created it."""
        by_name, created = set[tuple[str, str]](), set[tuple[str, str]]()
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
        return by_name, created

    def _listing(self, refs: Collection[str]) -> Iterator[tuple[Assembly, OperationSpan]]:
        for trace_id, spans in self._traces.items():
            if any(v.ref in refs for span in spans for v in (*span.inputs, *span.outputs)):
                assembly = self._assembly(trace_id)
                yield from ((assembly, span) for span in assembly.operations.values())


def is_of_one_memory(ref: str) -> bool:
    """Tell whether a ref names a record in each memory another one, so that who means which is told by who reads."""
    return not is_unique(ref) and ref_kind(ref) not in TURN_KINDS


def names_written(spans: Iterable[OperationSpan]) -> set[str]:
    """Return the refs of such records among the outputs of spans."""
    return {output.ref for span in spans for output in span.outputs if is_of_one_memory(output.ref)}
