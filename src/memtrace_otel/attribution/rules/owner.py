"""Find what another owner told: a memory of one user never supports the answer to another one."""

from __future__ import annotations

from memtrace_otel.attribution.comparison import AS_MUCH_ABOUT
from memtrace_otel.attribution.evidence import Evidence
from memtrace_otel.attribution.expectation import AnswerForm
from memtrace_otel.attribution.search_results import Hit
from memtrace_otel.attribution.source_messages import Source


def hit_of_another(evidence: Evidence) -> Hit | None:
    """Return the hit of another owner that the given answer comes from, None if a hit of the asking owner says as much.

    An answer that should have abstained comes from another owner when a search read several owners.
    """
    if evidence.is_right:
        return None
    about = evidence.compare.about
    behind = [hit for hit in evidence.results.hits if evidence.gives(hit.content, hit.day)]
    bar = AS_MUCH_ABOUT * max((about(hit.content) for hit in behind), default=0.0)
    behind = [hit for hit in behind if about(hit.content) >= bar]
    told_nothing = evidence.wish.form is AnswerForm.ABSTAIN
    if not told_nothing and any(not _is_of_another(evidence, hit) for hit in behind):
        return None
    return next((hit for hit in behind if _is_of_other_metadata(evidence, hit) or _is_of_several(evidence, hit)), None)


def told_by_another(evidence: Evidence, source: Source) -> bool:
    """Return whether a message is of another scope than the answer."""
    own = evidence.lineage.scope(evidence.answer_span)
    return bool(own and source.scope) and source.scope != own


def _is_of_another(evidence: Evidence, hit: Hit) -> bool:
    if _is_of_other_metadata(evidence, hit):
        return True
    lineage = evidence.lineage
    writer = lineage.span(hit.origin)
    own = lineage.scope(evidence.answer_span) or lineage.scope(hit.reader)
    return writer is not None and lineage.scope(writer) not in (own, "")


def _is_of_other_metadata(evidence: Evidence, hit: Hit) -> bool:
    """Return whether the metadata names another owner for the hit than for the records of the expected answer."""
    lineage = evidence.lineage
    known = [version for life in evidence.lives if not life.guessed for version in life.versions]
    owners = {lineage.owner(version.span)[1] for version in known}
    writer = lineage.span(hit.origin)
    owner = lineage.owner(writer)[1] if writer is not None else ""
    return bool(owner and owners) and owners.isdisjoint({owner, ""})


def _is_of_several(evidence: Evidence, hit: Hit) -> bool:
    """Return whether one search that read the record of the hit also read records of another scope."""
    lineage = evidence.lineage
    for search in evidence.results.searches:
        writers = (lineage.span(version.origin) for _, version in lineage.reads(search))
        scopes = {lineage.scope(writer) for writer in writers if writer is not None} - {""}
        if len(scopes) > 1 and any(variable.ref == hit.ref for variable in search.inputs):
            return True
    return False
