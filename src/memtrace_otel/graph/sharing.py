"""Which traces have a say in what a record's name means in one memory.

The same name in another memory is another record, unless somebody in one of them read what the other wrote; even then
it may be. Only the columns of the store are looked at: a trace too many costs time, and the rules that build a graph
decide.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import product
from typing import Protocol, runtime_checkable

from networkx.utils import UnionFind

from memtrace_otel.model import is_unique


@runtime_checkable
class SharingSource(Protocol):
    """A source that tells of which memories writers and readers are."""

    def writer_scopes(self, ref: str) -> Mapping[str, Collection[str]]:
        """Return the ids of the traces that list a variable among their outputs, each with the scopes that those who
        do may be of, '' for none; a few more may be among them."""
        ...

    def reader_scopes(self, trace_ids: Collection[str]) -> Iterable[tuple[str, str, Collection[str]]]:
        """Yield (one of these traces, a trace that read what a span of it produced, the scopes that the reader may be
        of); readers of the very scope of that span may be left out."""
        ...


def traces_sharing(source: SharingSource, ref: str, scopes: Collection[str]) -> set[str]:
    """Return the ids of the traces that tell who wrote a record, for readers in these scopes, '' for none."""
    writers = source.writer_scopes(ref)
    if is_unique(ref) or len({*scopes, *(one for some in writers.values() for one in some)} - {""}) < 2:
        return set(writers)
    groups: UnionFind[str] = UnionFind()
    joins: list[tuple[str, str]] = []
    for trace_id, reader, others in source.reader_scopes(list(writers)):
        for one, other in product(writers[trace_id], others):
            if one and other and one != other:
                groups.union(one, other)
                joins.append((one, reader))
    if "" in scopes:  # where all mean one record it is that one
        return {*writers, *(reader for _, reader in joins)}
    own = {groups[scope] for scope in scopes}
    written = {trace_id for trace_id, some in writers.items() if any(groups[one] in own for one in some)}
    return written.union(reader for one, reader in joins if groups[one] in own)
