"""Versions of variables: which outputs are new versions, which version a read saw, which version replaces which."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from memtrace_otel.graph.assembly import Assembly
from memtrace_otel.graph.keys import ROOT_KINDS, STORED_KINDS, TURN_KINDS, VersionKey
from memtrace_otel.graph.writes import CHANGES, Write, WriteIndex
from memtrace_otel.model import OperationSpan, Variable, is_origin, ref_kind
from memtrace_otel.semconv import READING_KINDS, WRITING_ACTIONS, Action, Incomplete, OpKind


def writes_version(span: OperationSpan, output: Variable) -> bool:
    """Return whether an output is a new version: not left alone, not a stored record that a reading span lists."""
    if output.action == Action.NONE:
        return False
    lists = span.kind in READING_KINDS and output.action not in WRITING_ACTIONS
    return not (lists and ref_kind(output.ref) in STORED_KINDS)


def changes(span: OperationSpan, output: Variable) -> bool:
    """Return whether an output changes an earlier version, by its action, else by the kind of the operation."""
    named = output.action in (Action.ADD, Action.NONE)
    return output.action in CHANGES or (not named and span.kind in (OpKind.UPDATE, OpKind.DELETE))


class Supersession(NamedTuple):
    """`new` replaces `old`. `inferred`: known by the order of time only, not by an input of role `previous`."""

    new: VersionKey
    old: VersionKey
    inferred: bool


class Versions:
    """Finds the version that a read or a listed output means."""

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self._operations = assembly.operations
        last: dict[VersionKey, Write] = {}
        """One span writes one version of a ref: its last output of the ref counts."""
        for span in self._operations.values():
            for output in span.outputs:
                if writes_version(span, output):
                    version = VersionKey(output.ref, span.origin)
                    last[version] = Write(version, span, output)
        self.repeats = _repeated(last, assembly)
        """Version listed by an outer operation -> the version that an operation inside wrote."""
        self.written = {version: write for version, write in last.items() if version not in self.repeats}
        self._failed = self._find_failed()
        self._index = WriteIndex(assembly)
        self._join_owners()
        for version, write in self.written.items():
            self._index.add(write, failed=version in self._failed)
        self._index.close()

    def read(self, reader: OperationSpan, variable: Variable) -> tuple[VersionKey, bool]:
        """Return (version read, inferred). A key with origin '' is a root or unknown."""
        if is_origin(variable.origin):
            origin = self._assembly.main(variable.origin)
            if origin != reader.origin:  # no operation is its own source
                return self._follow(variable.ref, origin, reader, variable)
        elif variable.origin:
            self._assembly.gaps[variable.ref].add((reader.origin, Incomplete.UNKNOWN_ORIGIN))
        return self._infer(reader, variable)

    def looked_at(self, span: OperationSpan, output: Variable) -> tuple[VersionKey, bool]:
        """Return (version, inferred) of an output that the operation lists without writing it."""
        given = next((v for v in span.inputs if v.ref == output.ref), None)
        return self.read(span, given or output)

    def supersessions(
        self, previous: Mapping[VersionKey, list[VersionKey]], exists: Callable[[VersionKey], bool]
    ) -> Iterator[Supersession]:
        """Yield the replacements of every record: those that a write names, else the version written before.

        `previous` are the versions that a write names as replaced; `exists` says whether a version is in the graph.
        """
        for writes in self._index.histories():
            replaces = {write.version: list(dict.fromkeys(previous.get(write.version, ()))) for write in writes}
            for new, olds in replaces.items():
                yield from (Supersession(new, old, False) for old in olds)
            evolving = [write for write in writes if write.evolves]
            place = {write.version: position for position, write in enumerate(evolving)}
            # Named replacements against time (skewed clocks): only then can an inferred replacement close a circle.
            skewed = any(place.get(old, -1) >= place[new] for new in place for old in replaces[new])
            for position, write in enumerate(evolving):
                if replaces[write.version]:
                    continue
                if position:
                    old = evolving[position - 1].version
                    if skewed and _leads_to(old, write.version, replaces):
                        continue
                else:
                    old = VersionKey(write.version.ref, "", self._assembly.scopes[write.version.origin])
                    if not changes(write.operation, write.output) or not exists(old):
                        continue
                replaces[write.version] = [old]
                yield Supersession(write.version, old, True)

    def _follow(self, ref: str, origin: str, reader: OperationSpan, variable: Variable) -> tuple[VersionKey, bool]:
        """Follow operations that pass a version on, to the operation that wrote the version."""
        seen: set[str] = set()
        while origin not in seen:
            seen.add(origin)
            version = VersionKey(ref, origin)
            if version in self.repeats:
                origin = self.repeats[version].origin
                continue
            span = self._operations.get(origin)
            if version in self.written or span is None or not _passes_on(span, ref):
                return version, False
            reader = span
            variable = next((v for v in span.inputs if v.ref == ref), Variable(ref, digest=variable.digest))
            origin = self._assembly.main(variable.origin) if is_origin(variable.origin) else ""
            if not origin:
                break
        return self._infer(reader, variable)

    def _infer(self, reader: OperationSpan, variable: Variable) -> tuple[VersionKey, bool]:
        found = self._index.find(reader, variable)
        if found is not None:
            return found.version, True
        if ref_kind(variable.ref) not in ROOT_KINDS:
            self._assembly.gaps[variable.ref].add((reader.origin, Incomplete.UNKNOWN_ORIGIN))
        return VersionKey(variable.ref, "", self._assembly.scopes[reader.origin]), False

    def _find_failed(self) -> set[VersionKey]:
        """Return the versions of failed operations that no operation outside names as origin.

        Such a version exists only where its content is read.
        """
        failed = {version for version, write in self.written.items() if write.failed}
        for span in self._operations.values() if failed else ():
            for variable in span.inputs:
                version = VersionKey(variable.ref, self._assembly.main(variable.origin))
                version = self.repeats.get(version, version)
                if version in failed and not self._is_within(span, version.origin):
                    failed.discard(version)
        return failed

    def _is_within(self, span: OperationSpan, origin: str) -> bool:
        """Return whether a span is that of an origin or inside it: its inputs need not have been stored."""
        return span.origin == origin or self._assembly.hierarchy.encloses(origin, span.origin)

    def _join_owners(self) -> None:
        """Join two scopes where an operation of one scope changes a record that the operation read from the other."""
        scopes = self._assembly.scopes
        for span in self._operations.values():
            scope = scopes[span.origin]
            for variable in span.inputs:
                if variable.origin and scope and ref_kind(variable.ref) not in TURN_KINDS:
                    origin = self._assembly.main(variable.origin)
                    writer = scopes.get(origin, "")
                    writes = any(o.ref == variable.ref and changes(span, o) for o in span.outputs)
                    if writer and writer != scope and writes and self._lists(origin, variable.ref):
                        self._index.join(variable.ref, scope, writer)

    def _lists(self, origin: str, ref: str) -> bool:
        span = self._operations.get(origin)
        return span is not None and any(output.ref == ref for output in span.outputs)


def _passes_on(span: OperationSpan, ref: str) -> bool:
    """Return whether an operation without a write of a ref passes on the version of another operation."""
    lists = any(output.ref == ref for output in span.outputs)
    return lists or (span.kind in READING_KINDS and ref_kind(ref) in STORED_KINDS)


def _repeated(writes: Mapping[VersionKey, Write], assembly: Assembly) -> dict[VersionKey, VersionKey]:
    """Find outputs that an operation lists because an operation inside wrote them: outer version -> innermost."""
    together: defaultdict[tuple[str, str], dict[str, Write]] = defaultdict(dict)
    for write in writes.values():
        together[write.operation.trace_id, write.version.ref][write.version.origin] = write
    inner: dict[VersionKey, Write] = {}
    for group in together.values():
        if len(group) < 2:
            continue
        for write in group.values():
            enclosing = assembly.hierarchy.enclosing(write.version.origin)
            outer = next((group[origin] for origin in enclosing if origin in group), None)
            if outer is None or outer.deletes != write.deletes or (write.failed and not outer.failed):
                continue
            if outer.output.digest and write.output.digest and outer.output.digest != write.output.digest:
                continue
            known = inner.get(outer.version)
            if known is None or known.order < write.order:
                inner[outer.version] = write
    innermost: dict[VersionKey, VersionKey] = {}
    for outer_version in inner:
        passed = [outer_version]
        while (version := inner[passed[-1]].version) in inner and version not in innermost:
            passed.append(version)
        innermost.update(dict.fromkeys(passed, innermost.get(version, version)))
    return innermost


def _leads_to(start: VersionKey, goal: VersionKey, replaces: Mapping[VersionKey, list[VersionKey]]) -> bool:
    seen: set[VersionKey] = set()
    waiting = [start]
    while waiting:
        version = waiting.pop()
        if version == goal:
            return True
        if version not in seen:
            seen.add(version)
            waiting.extend(replaces.get(version, ()))
    return False
