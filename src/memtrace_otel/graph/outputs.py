"""Which outputs are new versions, which repeat a version written inside the operation, which only look."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from memtrace_otel.graph.assembly import Assembly
from memtrace_otel.graph.keys import ROOT_KINDS, STORED_KINDS, TURN_KINDS, VersionKey
from memtrace_otel.graph.writes import CHANGES, Write, WriteIndex
from memtrace_otel.model import OperationSpan, Variable, is_origin, ref_kind
from memtrace_otel.semconv import READING_KINDS, WRITING_ACTIONS, Action, Incomplete, OpKind


def writes_version(span: OperationSpan, output: Variable) -> bool:
    """Tell whether an output is a new version: not one left alone, not a stored record that a reading span lists."""
    return is_writing(span.kind, output.ref, output.action)


def is_writing(kind: str, ref: str, action: str) -> bool:
    """As `writes_version`, of an operation's kind and an output's ref and action."""
    if action == Action.NONE:
        return False
    return not (kind in READING_KINDS and action not in WRITING_ACTIONS and ref_kind(ref) in STORED_KINDS)


def changes(span: OperationSpan, output: Variable) -> bool:
    """Tell whether an output changes an earlier version, as far as its action, or else the operation's kind, says."""
    named = output.action in (Action.ADD, Action.NONE)
    return output.action in CHANGES or (not named and span.kind in (OpKind.UPDATE, OpKind.DELETE))


def creates(span: OperationSpan, output: Variable) -> bool:
    """Tell whether an output is a version that changes no earlier one."""
    return writes_version(span, output) and not changes(span, output)


class Versions:
    """Resolves (ref, origin) to the one version that is meant."""

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self.operations = assembly.operations
        declared = [
            Write(VersionKey(output.ref, span.origin), span, output)
            for span in assembly.operations.values()
            for output in span.outputs
            if writes_version(span, output)
        ]
        last = {write.version: write for write in declared}  # one span, one version: its last output of a ref counts
        self.repeats = _repeated(last, assembly)
        """Version listed by an outer operation -> the version that an operation inside it wrote."""
        self.written = {version: write for version, write in last.items() if version not in self.repeats}
        self.failed = self._failed()
        """Versions that are none unless their content is read: nobody outside names the failed operation as origin."""
        self.index = WriteIndex(assembly)
        self._join_owners()
        for version, write in self.written.items():
            self.index.add(write, failed=version in self.failed)
        self.index.close()

    def read(self, reader: OperationSpan, variable: Variable) -> tuple[VersionKey, bool]:
        """Return (version read, inferred). A key with origin '' is a root or unknown."""
        if is_origin(variable.origin):
            origin = self._assembly.main(variable.origin)
            if origin != reader.origin:  # nothing is its own source
                return self._follow(variable.ref, origin, reader, variable)
        elif variable.origin:
            self._assembly.gaps[variable.ref].add((reader.origin, Incomplete.UNKNOWN_ORIGIN))
        return self._infer(reader, variable)

    def looked_at(self, span: OperationSpan, output: Variable) -> tuple[VersionKey, bool]:
        """Return (version, inferred) that an operation listed as an output without writing it."""
        given = next((v for v in span.inputs if v.ref == output.ref), None)
        return self.read(span, given or output)

    def _follow(self, ref: str, origin: str, reader: OperationSpan, variable: Variable) -> tuple[VersionKey, bool]:
        """Go from an operation that merely passed a version on to the one that wrote it."""
        seen: set[str] = set()
        while origin not in seen:
            seen.add(origin)
            version = VersionKey(ref, origin)
            if version in self.repeats:
                origin = self.repeats[version].origin
                continue
            span = self._assembly.operations.get(origin)
            if (
                version in self.written
                or span is None
                or not passes_on(span.kind, (output.ref for output in span.outputs), ref)
            ):
                return version, False
            reader = span
            variable = next((v for v in span.inputs if v.ref == ref), Variable(ref, digest=variable.digest))
            origin = self._assembly.main(variable.origin) if is_origin(variable.origin) else ""
            if not origin:
                break
        return self._infer(reader, variable)

    def _infer(self, reader: OperationSpan, variable: Variable) -> tuple[VersionKey, bool]:
        found = self.index.find(reader, variable)
        if found is not None:
            return found.version, True
        if ref_kind(variable.ref) not in ROOT_KINDS:
            self._assembly.gaps[variable.ref].add((reader.origin, Incomplete.UNKNOWN_ORIGIN))
        return VersionKey(variable.ref, "", self._assembly.scopes[reader.origin]), False

    def _failed(self) -> set[VersionKey]:
        failed = {version for version, write in self.written.items() if write.failed}
        for span in self.operations.values() if failed else ():
            for variable in span.inputs:
                version = VersionKey(variable.ref, self._assembly.main(variable.origin))
                version = self.repeats.get(version, version)
                if version in failed and not self._within(span, version.origin):
                    failed.discard(version)
        return failed

    def _within(self, span: OperationSpan, origin: str) -> bool:
        """Tell whether a span is that of an origin or inside it: what it reads need not have been stored."""
        return span.origin == origin or self._assembly.encloses(origin, span.origin)

    def _join_owners(self) -> None:
        """Tell which scopes mean one record by a ref.

        An operation that writes it anew, and creates none, goes on with the version that it names. Who only looks at
        that of another scope means the same, too, unless it has created one of its own or looks at several: nobody
        joins two by looking.
        """
        index, scopes = self.index, self._assembly.scopes
        for span in self._assembly.operations.values():
            scope = scopes[span.origin]
            for variable in span.inputs:
                if variable.origin and scope and ref_kind(variable.ref) not in TURN_KINDS:
                    origin = self._assembly.main(variable.origin)
                    writer = scopes.get(origin, "")
                    if writer and writer != scope and self._lists(origin, variable.ref):
                        writes = any(o.ref == variable.ref and changes(span, o) for o in span.outputs)
                        (index.join if writes else index.look)(variable.ref, scope, writer)
        index.join_lookers(
            (version.ref, scopes[version.origin])
            for version, write in self.written.items()
            if creates(write.operation, write.output) and version not in self.failed
        )

    def _lists(self, origin: str, ref: str) -> bool:
        span = self.operations.get(origin)
        return span is not None and any(output.ref == ref for output in span.outputs)


def passes_on(kind: str, listed: Iterable[str], ref: str) -> bool:
    """Tell whether an operation that did not write a ref merely handed it on, given the refs that it lists."""
    return ref in listed or (kind in READING_KINDS and ref_kind(ref) in STORED_KINDS)


def _repeated(writes: dict[VersionKey, Write], assembly: Assembly) -> dict[VersionKey, VersionKey]:
    """Find outputs that an operation lists because an operation inside it wrote them."""
    together: defaultdict[tuple[str, str], dict[str, Write]] = defaultdict(dict)
    for write in writes.values():
        together[write.operation.trace_id, write.version.ref][write.version.origin] = write
    inner: dict[VersionKey, Write] = {}
    for group in together.values():
        if len(group) < 2:
            continue
        for write in group.values():
            outer = next(
                (group[origin] for origin in assembly.enclosing(write.version.origin) if origin in group), None
            )
            if outer is None or outer.deletes != write.deletes or (write.failed and not outer.failed):
                continue
            if outer.output.digest and write.output.digest and outer.output.digest != write.output.digest:
                continue
            known = inner.get(outer.version)
            if known is None or known.order < write.order:
                inner[outer.version] = write
    return _innermost(inner)


def _innermost(inner: dict[VersionKey, Write]) -> dict[VersionKey, VersionKey]:
    """Follow repetitions inwards; without those that bad data makes go round."""
    found: dict[VersionKey, VersionKey | None] = {}
    for outer in inner:
        passed: list[VersionKey] = []
        version = outer
        while version in inner and version not in found:
            found[version] = None  # visited
            passed.append(version)
            version = inner[version].version
        found.update(dict.fromkeys(passed, found.get(version) if version in inner else version))
    return {outer: innermost for outer in inner if (innermost := found[outer]) is not None}
