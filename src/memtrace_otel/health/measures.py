"""The measures of a memory's health: one table, each measure a function of the memory.

A function returns the operations with the fault as examples, and the number of operations that could have the fault.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from memtrace_otel.graph import VersionKey
from memtrace_otel.graph.keys import RECORD_KINDS
from memtrace_otel.health.memory import Example, Memory, values, words
from memtrace_otel.model import ref_kind
from memtrace_otel.semconv import WRITING_ACTIONS, Incomplete, OpKind, RefKind, Role

Measured = tuple[list[Example], int]

_DAY = 24 * 3600 * 10**9
_LEAST_WORDS = 4
"""Words of a message that has content."""
_SAME = 0.8
"""Shared words of near-duplicates, as a share of all their words."""
_GIVEN = frozenset({RefKind.MESSAGE, RefKind.DOCUMENT, RefKind.CHUNK})
_SIDE = frozenset({RefKind.QUERY, RefKind.PROMPT, RefKind.EXPECTED})
"""Kinds of inputs that no fact comes from."""


def no_write(memory: Memory) -> Measured:
    """Turns with content that wrote nothing."""
    told = [span for span in memory.tellings if len(words(memory.told(span))) >= _LEAST_WORDS]
    found = [span for span in told if not _changed(memory, span.origin)]
    return [Example(span.origin, memory.told(span)) for span in found], len(told)


def unparsed(memory: Memory) -> Measured:
    """Replies of a model that the system could not parse."""
    asked = [span for span in memory.spans if span.kind in (OpKind.EXTRACT, OpKind.DECIDE)]
    found = [span for span in asked if Incomplete.UNPARSED in span.incomplete]
    return [Example(span.origin, _reply(memory, span.origin)) for span in found], len(asked)


def never_read(memory: Memory) -> Measured:
    """Records older than N days that no search has returned, in a memory that is searched."""
    if not memory.searches:
        return [], 0
    before = memory.until - int(memory.unread_days * _DAY)
    old = [version for version in memory.written if memory.graph.time_of(version) < before]
    read = {version.ref for version in memory.written if memory.recalled(version)}
    return _shown(memory, [version for version in old if version.ref not in read]), len(old)


def zero_hits(memory: Memory) -> Measured:
    """Searches without a hit, in a memory that held records."""
    asked = [span for span in memory.searches if memory.live_at(span.start)]
    found = [span for span in asked if not memory.hits(span)]
    return [Example(span.origin, memory.question(span)) for span in found], len(asked)


def missed_words(memory: Memory) -> Measured:
    """Searches without a hit, although a record shares rare words of the query."""
    found: list[Example] = []
    for span in memory.searches:
        if memory.hits(span):
            continue
        rare = memory.rare(words(memory.question(span)))
        for version in memory.live_at(span.start) if rare else ():
            if rare & memory.words_of.get(version, frozenset()):
                found.append(Example(span.origin, f"{memory.question(span)} | {memory.graph.content(version)}"))
                break
    return found, len(memory.searches)


def rewritten(memory: Memory) -> Measured:
    """Updates that bring a record back to a text that the record had before."""
    found: list[VersionKey] = []
    for new, old in memory.updates:
        history = memory.graph.history(new.ref, memory.scope)
        before = {memory.graph.digest(version) for version in history[: history.index(old)]}
        if memory.graph.digest(new) in before - {"", memory.graph.digest(old)}:
            found.append(new)
    return _shown(memory, found), len(memory.updates)


def duplicates(memory: Memory) -> Measured:
    """Records with nearly the words of an older record."""
    held = sorted((version for version in memory.held if memory.words_of.get(version)), key=memory.graph.time_of)
    counts: defaultdict[str, int] = defaultdict(int)
    for version in held:
        for word in memory.words_of[version]:
            counts[word] += 1
    by_word: defaultdict[str, list[VersionKey]] = defaultdict(list)
    found: list[Example] = []
    for version in held:
        own = memory.words_of[version]
        # Of two such texts, one rarest fifth of the words of each cannot be missing in the other.
        rarest = sorted(own, key=lambda word: (counts[word], word))[: len(own) - int(_SAME * len(own)) + 1]
        for other in dict.fromkeys(older for word in rarest for older in by_word[word]):
            theirs = memory.words_of[other]
            if len(own & theirs) >= _SAME * len(own | theirs):
                texts = f"{memory.graph.content(other)} | {memory.graph.content(version)}"
                found.append(Example(memory.writer(version), texts))
                break
        for word in own:
            by_word[word].append(version)
    return found, len(held)


def empty_updates(memory: Memory) -> Measured:
    """Updates that leave the text as the text was."""
    digest = memory.graph.digest
    found = [new for new, old in memory.updates if digest(new) and digest(new) == digest(old)]
    return _shown(memory, found), len(memory.updates)


def self_fed(memory: Memory) -> Measured:
    """Records whose only source is a recalled record."""
    found = [version for version in memory.written if _sources(memory, version) == {"recalled"}]
    return _shown(memory, found), len(memory.written)


def lost_values(memory: Memory) -> Measured:
    """Writes that lost a number, an amount or a date: of the record before, or of the messages."""
    content = memory.graph.content
    found: list[Example] = []
    for new, old in memory.updates:
        before, after = values(content(old)), values(content(new))
        if content(new) and before.kept(content(new)) < len(before) > len(after):
            found.append(Example(memory.writer(new), f"{content(old)} | {content(new)}"))
    told = [span for span in memory.tellings if memory.told_values(span) and _changed(memory, span.origin)]
    for span in told:
        written = [version for inner in memory.below(span) for version in memory.writes(inner)]
        texts = [content(version) for version in written]
        if texts and all(texts) and not memory.told_values(span).kept("\n".join(texts)):
            found.append(Example(span.origin, f"{memory.told(span)} | {'; '.join(texts)}"))
    return found, len(memory.updates) + len(told)


def unshown(memory: Memory) -> Measured:
    """Hits of answered searches that no answer had in the prompt."""
    found: list[Example] = []
    total = 0
    for search in memory.searches:
        readers = memory.graph.operations(OpKind.RESPOND, trace_id=search.trace_id)
        read = {one.version for span in readers for one in memory.read(span, Role.CONTEXT, Role.HIT)}
        had = read.union(*map(memory.graph.sources, read))
        hits = memory.hits(search) if readers else []
        total += len(hits)
        found += [Example(search.origin, memory.graph.content(hit)) for hit in hits if hit not in had]
    return found, total


def growth(memory: Memory) -> Measured:
    """Records that the memory holds, per turn that told something."""
    made = {version.ref for version in memory.written}
    held = [version for version in memory.held if version.ref in made]
    return _shown(memory, held), len(memory.tellings)


def no_source(memory: Memory) -> Measured:
    """Records without a known source."""
    return _shown(memory, [v for v in memory.written if not _sources(memory, v)]), len(memory.written)


def leaks(memory: Memory) -> Measured:
    """Hits that belong to another owner."""
    found: list[Example] = []
    total = 0
    for search in memory.searches:
        hits = memory.hits(search)
        total += len(hits)
        owners = [memory.graph.scope_of_version(hit) for hit in hits]
        found += [
            Example(search.origin, memory.graph.content(hit))
            for hit, owner in zip(hits, owners, strict=True)
            if owner not in ("", memory.scope)
        ]
    return found, total


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure: `threshold` is the largest healthy share of the operations, `advice` one next step."""

    name: str
    threshold: float
    title: str
    advice: str
    measure: Callable[[Memory], Measured]


MEASURES = (
    Measure("no_write", 0.5, "turns with content and no write", "read the extraction prompt and its replies", no_write),
    Measure("unparsed", 0.0, "model replies that could not be parsed", "ask the model for JSON by schema", unparsed),
    Measure("never_read", 0.9, "writes never read", "store less, or check the filters of the searches", never_read),
    Measure("zero_hits", 0.2, "searches without a hit", "check filters, owner and threshold of the search", zero_hits),
    Measure(
        "missed_words",
        0.0,
        "searches without a hit although a record shares rare words",
        "lower the threshold of the search, or add a search by words",
        missed_words,
    ),
    Measure("rewritten", 0.0, "records rewritten back and forth", "show the decision the time of each fact", rewritten),
    Measure("duplicates", 0.1, "near-duplicates", "raise the number of neighbours that a write compares", duplicates),
    Measure("empty_updates", 0.2, "updates that change nothing", "skip updates with an equal text", empty_updates),
    Measure("self_fed", 0.0, "records made of recalled records only", "keep answers out of the extraction", self_fed),
    Measure("lost_values", 0.1, "writes that lost a value", "tell the prompt to keep numbers and dates", lost_values),
    Measure("unshown", 0.5, "hits that never reach a prompt", "raise the context budget, or lower k", unshown),
    Measure("growth", 5.0, "records per turn", "extract less, and merge records of one fact", growth),
    Measure("no_source", 0.1, "records without a known source", "record every program that writes it", no_source),
    Measure("leaks", 0.0, "hits of another owner", "filter the search by the owner", leaks),
)
"""Every measure, in the order of a memory's work."""


def _changed(memory: Memory, origin: str) -> bool:
    """Whether an operation, or an operation inside, changed a record."""
    span = memory.graph.operation(origin)
    spans = memory.below(span) if span else ()
    return any(
        output.action in WRITING_ACTIONS and ref_kind(output.ref) in RECORD_KINDS
        for inner in spans
        for output in inner.outputs
    )


def _reply(memory: Memory, origin: str) -> str:
    reads = memory.graph.inputs(origin)
    texts = (memory.graph.content(read.version) for read in reads if ref_kind(read.version.ref) == RefKind.COMPLETION)
    return next(filter(None, texts), "")


def _shown(memory: Memory, versions: list[VersionKey]) -> list[Example]:
    return [Example(memory.writer(version), memory.graph.content(version)) for version in versions]


def _sources(memory: Memory, version: VersionKey) -> set[str]:
    """Where a record comes from: `given` (a message, a document), `recalled` (a record); empty if unknown."""
    found: set[str] = set()
    seen, waiting = {version}, [version]
    while waiting:
        for source in memory.graph.sources(waiting.pop(), without=(Role.PREVIOUS, Role.CANDIDATE)):
            kind = ref_kind(source.ref)
            if source in seen or kind in _SIDE:
                continue
            seen.add(source)
            if kind in RECORD_KINDS - _GIVEN or (kind == RefKind.CHUNK and source.origin):
                found.add("recalled")
            elif kind in _GIVEN or (not source.origin and kind != RefKind.COMPLETION):
                found.add("given")
            else:
                waiting.append(source)
    return found
