"""Why a live record did not reach the answering model: the step that lost the record, and how."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from memtrace_otel.attribution.evidence import Evidence
from memtrace_otel.attribution.lineage import Version
from memtrace_otel.attribution.prompt_memory import TOOL_CALL, tool_results
from memtrace_otel.attribution.rules.finding import quoted
from memtrace_otel.attribution.search_results import Hit
from memtrace_otel.attribution.text import terms
from memtrace_otel.model import OperationSpan, ref_kind
from memtrace_otel.semconv import (
    GEN_AI_MEMORY_STORE_ID,
    GEN_AI_RETRIEVAL_TOP_K,
    OP_PURPOSE,
    OWNER_FIELDS,
    RETRIEVAL_FILTERS,
    RETRIEVAL_THRESHOLD,
    Incomplete,
    OpKind,
    RefKind,
    Role,
)

_STEPS = frozenset({OpKind.RETRIEVE, OpKind.RERANK, OpKind.ASSEMBLE})


class Miss(NamedTuple):
    """The operation that lost a record, how the operation lost the record (after "the record"), and the next step."""

    operation: OperationSpan
    how: str
    advice: str


def missed(evidence: Evidence, record: Version) -> Miss:
    """Return the first explanation that the trace supports, from the answer back to the store."""
    reasons: tuple[Callable[[Evidence, Version], Miss | None], ...] = (
        *(_not_asked, _not_handed_over, _cut_by_window, _ranked_out, _elsewhere),
    )
    return next(miss for reason in (*reasons, _not_found) if (miss := reason(evidence, record)) is not None)


def _not_asked(evidence: Evidence, record: Version) -> Miss | None:
    """No search of memory belongs to the answer."""
    answer = evidence.answer_span
    if evidence.results.searches:
        return None
    how = "was not handed to the answering model: memory was not asked, no search is recorded for this answer"
    if Incomplete.UNKNOWN_TURN in answer.incomplete:
        how = (
            "was not handed to the answering model, as far as is known: no span around the turn joins this answer "
            "with its search"
        )
        return Miss(answer, how, "Put a span around each turn, so that its search and its answer share a trace.")
    own = evidence.lineage.scope(answer)
    if (tool := _noted_by(evidence)) and not any(tool_results(evidence.lineage, answer)):
        how = f"was noted by {tool} in another conversation: memory was not asked, this answer called no tool"
        return Miss(answer, how, "Tell the model when to call its search tool.")
    if ref_kind(record.ref) == RefKind.QUERY:
        how = "was told in another conversation (thread), or was cut from the history of this one"
        return Miss(
            answer,
            how,
            "Give every turn of one user the same thread or session id, and check the window of the history.",
        )
    if ref_kind(record.ref) == RefKind.STATE and own != evidence.lineage.scope(record.span):
        how = "lies in another conversation (thread) than the one that was answered"
        return Miss(
            answer, how, "Give every turn of one user the same thread or session id, or a memory of all threads."
        )
    return Miss(answer, how, "Search memory before the answer, or tell the model when to call its search tool.")


def _noted_by(evidence: Evidence) -> str:
    """Return the tool that a model called with a missing piece of the expected answer, '' without one."""
    needs = [life.need for life in evidence.missing if life.need]
    for history in evidence.records:
        call = TOOL_CALL.match(history[-1].content)
        if call and any(evidence.compare.supports(history[-1].content, need, history[-1].day) for need in needs):
            return call[1]
    return ""


def _not_handed_over(evidence: Evidence, record: Version) -> Miss | None:
    """A search returned the record, and a later step or the prompt of the answer does not hold the record."""
    hit = _of(evidence, record, evidence.results.dropped)
    if hit is None:
        return None
    later = [s for s in evidence.results.searches if any(v.origin == hit.reader.origin for v in s.inputs)]
    if later:
        how = f"was hit {hit.rank} of the search, but {_named(later[0])} dropped the record"
        return Miss(later[0], how, f"Check the order and the limit of {_named(later[0])}.")
    how = f"was hit {hit.rank} of the search, but did not reach the model: the prompt does not hold the record"
    return Miss(evidence.answer_span, how, "Check the code that puts the hits of the search into the prompt.")


def _cut_by_window(evidence: Evidence, record: Version) -> Miss | None:
    """The context holds a part of the record: a window or a limit left out the rest."""
    hit = _of(evidence, record, evidence.results.hits)
    if hit is None or hit.content == record.content:
        return None
    how = f"was read, but the model was given only a part: {quoted(hit.content)}"
    return Miss(hit.reader, how, "Raise the limit of the window (messages or tokens), or summarise what leaves it.")


def _ranked_out(evidence: Evidence, record: Version) -> Miss | None:
    """A search considered the record and did not return the record."""
    low = _of(evidence, record, evidence.results.ranked_out)
    if low is None:
        return None
    search = low.reader
    dropping = _step_inside(evidence, record, search)
    place = f"candidate {low.rank} of {_count(search, Role.CANDIDATE)}"
    if dropping is not None:
        how = f"was {place} of the search, and {_named(dropping)} dropped the record"
        return Miss(dropping, how, f"Check what {_named(dropping)} keeps.")
    return Miss(search, *_below_the_bar(evidence, low, place))


def _below_the_bar(evidence: Evidence, low: Hit, place: str) -> tuple[str, str]:
    """Say which bar kept a candidate out: the threshold, k, or a filter that the trace does not show."""
    search, hits = low.reader, _count(low.reader, Role.HIT)
    limit, threshold = _number(search, GEN_AI_RETRIEVAL_TOP_K), _number(search, RETRIEVAL_THRESHOLD)
    score = _score(low)
    if score and threshold and score < threshold:  # 0 stands for an unknown score
        how = f"was {place} of the search with score {score:.3g}, below the threshold {threshold:g}"
        more = f" and raise k to {low.rank} or more (now {limit:g})" if limit and low.rank > limit else ""
        return how, f"Lower the threshold below {score:.3g}{more}."
    if hits and low.rank > hits and (limit is None or hits >= limit):
        how = f"was {place} of the search, which returned {_hits(hits)}{_equal_hits(evidence)}"
        now = f" (now {limit:g})" if limit else ""
        return how, f"{_once(evidence)} k to {low.rank} or more{now}."
    by = f"the filter on {filters}" if (filters := ", ".join(filter_fields(search))) else "a filter or an expiry date"
    if threshold:  # a candidate may have a distance as its score
        by = f"the threshold {threshold:g} or {by}"
    return f"was {place} of the search and was left out afterwards by {by}", f"Check {by} of the search and the record."


def _elsewhere(evidence: Evidence, record: Version) -> Miss | None:
    """The record is of a memory scope that was not searched."""
    scope = evidence.lineage.scope(record.span)
    searches = _lookups(evidence)
    if scope in {evidence.lineage.scope(search) for search in searches}:
        return None
    store = record.span.attributes.get(GEN_AI_MEMORY_STORE_ID)
    where = f" of {store}" if store else ""
    how = f"lies in a scope{where} that was not searched (another user, thread or namespace)"
    return Miss(searches[-1], how, "Write and search with the same user, thread and namespace.")


def _not_found(evidence: Evidence, record: Version) -> Miss:
    """The search of the scope did not even consider the record."""
    scope = evidence.lineage.scope(record.span)
    search = [s for s in _lookups(evidence) if evidence.lineage.scope(s) == scope][-1]
    hits = _count(search, Role.HIT)
    among = "the one hit" if hits == 1 else f"among the {hits} hits"
    how = f"is not {among} of the search{_equal_hits(evidence)}"
    if rewritten := _rewritten(evidence, search):
        return Miss(search, f"{how}, which asked for {quoted(rewritten)}", "Search with the words of the question.")
    if filters := ", ".join(filter_fields(search)):
        advice = f"Search without the filter on {filters}, or write records that match the filter."
        return Miss(search, f"{how}, which filtered by {filters}", advice)
    limit = _number(search, GEN_AI_RETRIEVAL_TOP_K)
    if limit and hits >= limit:
        advice = f"{_once(evidence)} k (now {limit:g}), or rerank more candidates."
        return Miss(search, f"{how} with k = {limit:g}", advice)
    if limit is None and hits:  # most searches return as many records as they may
        return Miss(
            search, f"{how}; k is not recorded", f"Raise k above {hits}, or record k and the candidates of the search."
        )
    return Miss(search, how, "Check the filters and the index of the search: it returned fewer records than it may.")


def _lookups(evidence: Evidence) -> list[OperationSpan]:
    """Return the operations that looked into the store: a step that only assembles looks into nothing."""
    searches = list(evidence.results.searches)
    return [search for search in searches if search.kind == OpKind.RETRIEVE] or searches


# --- what the trace says of a search -----------------------------------------------------------------------------
def _of(evidence: Evidence, record: Version, hits: tuple[Hit, ...]) -> Hit | None:
    name = evidence.record(record)
    return next((hit for hit in hits if hit.record == name), None)


def _step_inside(evidence: Evidence, record: Version, search: OperationSpan) -> OperationSpan | None:
    """Return the last step of a search that considered the record, None when the search itself did."""
    steps = [s for s in evidence.lineage.subtree(search) if s.kind in _STEPS and s.origin != search.origin]
    read = [s for s in steps if any(v.ref == record.ref for v in s.inputs)]
    kept = max((s.end for s in read if any(v.ref == record.ref and v.role == Role.HIT for v in s.inputs)), default=0)
    return max((s for s in read if s.end > kept), key=lambda s: (s.end, s.origin), default=None)


def _named(step: OperationSpan) -> str:
    return str(step.attributes.get(OP_PURPOSE) or step.name)


def _count(search: OperationSpan, role: Role) -> int:
    return sum(variable.role == role for variable in search.inputs)


def _hits(count: int) -> str:
    return "one hit" if count == 1 else f"{count} hits"


def _number(search: OperationSpan, name: str) -> float | None:
    value = search.attributes.get(name)
    return float(value) if isinstance(value, int | float) else None


def _score(hit: Hit) -> float | None:
    return next((v.score for v in hit.reader.inputs if v.ref == hit.ref and v.role == Role.CANDIDATE), None)


def filter_fields(search: OperationSpan) -> list[str]:
    """Return the names of the fields that a search filtered by, without the owner of the memory that was searched."""
    given = search.attributes.get(RETRIEVAL_FILTERS)
    fields = [str(one).partition("=")[0] for one in given] if isinstance(given, list | tuple) else []
    owner = next((field for field in OWNER_FIELDS if field in fields), "")
    return [field for field in fields if field != owner]


def _equal_hits(evidence: Evidence) -> str:
    """Say when several hits hold one text: they take the places of other records."""
    texts = [" ".join(hit.content.casefold().split()) for hit in evidence.results.hits if hit.content]
    most = max((texts.count(text) for text in texts), default=0)
    return f" ({most} of them with one text)" if most > 1 else ""


def _once(evidence: Evidence) -> str:
    """Begin the advice about k: duplicates come first."""
    return "Store each text once, or raise" if _equal_hits(evidence) else "Raise"


def _rewritten(evidence: Evidence, search: OperationSpan) -> str:
    """Return the query of a search when the query shares no word with the question."""
    question = evidence.wish.question
    for hit in evidence.results.hits:  # a prompt with its context may stand for the question
        question = question.replace(hit.content, " ")
    asked = terms(question)
    queries = (evidence.lineage.content(v, key) for v, key in evidence.lineage.reads(search) if v.role == Role.QUERY)
    return next((query for query in queries if query and asked and not asked & terms(query)), "")
