"""Home-made memory: notes or a profile that a program keeps itself and puts into the prompt of each call.

No search and no record tells of this memory. The prompts of the calls that open like the prompt of the answer are its
versions, and the questions of these calls are the messages told.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from memtrace_otel.attribution.dates import day_of
from memtrace_otel.attribution.lineage import RECORD_KINDS, Lineage, Version
from memtrace_otel.attribution.search_results import Hit, SearchResults
from memtrace_otel.attribution.source_messages import Source, asked_of
from memtrace_otel.attribution.text import terms
from memtrace_otel.model import Failure, OperationSpan, ref_kind
from memtrace_otel.semconv import Action, OpKind, RefKind, Role

_OPENING = 16  # characters: "You are a cook. " and more are alike in two calls of one assistant
_BLANK_LINE = "\n\n"  # between notes and message
TOOL_CALL = re.compile(r'\["([^"]+)", ?"\{.*\}"\]$', re.DOTALL)
_LABEL = re.compile(r"^[^\W\d_]+: +")  # "Message: "
_QUOTED = 8  # characters of a reply that a prompt repeats by more than chance


@dataclass(frozen=True, slots=True)
class PromptMemory:
    """The versions of the text in the prompt, oldest first, the messages told, and the results with the last text."""

    versions: tuple[Version, ...]
    messages: tuple[Source, ...]
    results: SearchResults


def prompt_memory(lineage: Lineage, answer: OperationSpan, results: SearchResults) -> PromptMemory | None:
    """Return the memory in the prompts of the calls like the answer, None where no prompt repeats what was told, or
    where the answer has another memory."""
    own, scope = _prompt(lineage, answer), lineage.scope(answer)
    fetched = "\n".join(tool_results(lineage, answer))
    shown = {lineage.content(v, read) for v, read in lineage.reads(answer) if v.role == Role.PROMPT}
    kinds = {ref_kind(hit.ref) for hit in results.hits if hit.content not in shown}  # notes may count as a summary
    if results.searches or (kinds - ({RefKind.STATE} if fetched else set[str]())) & RECORD_KINDS:
        return None
    calls = [s for s in lineage.spans if s.kind == OpKind.RESPOND and s.start <= answer.start]
    calls = [s for s in calls if lineage.scope(s) in (scope, "")] if own else []
    alike = [(s, text) for s in calls if (text := _prompt(lineage, s)) and _opens_alike(text, own)]
    versions: list[Version] = []
    since, rewritten = 0, False
    for span, prompt in alike:
        text = f"{prompt}\n{fetched}" if fetched and span.origin == answer.origin else prompt
        if not versions or text != versions[-1].content:
            writer = _writer(calls, text, since, span)
            rewritten |= writer is not span
            keys = [key for role in (Role.PROMPT, Role.QUERY) for v, key in lineage.reads(span) if v.role == role]
            read = next((key for key in keys if all(key != v.key for v in versions)), keys[0])
            versions.append(Version(read, writer, text, day_of(span.start), Action.UPDATE))
        since = span.start
    told = [source for s, _ in alike if s.origin != answer.origin for source in _told(lineage, s, versions)]
    others = [s for s in calls if all(s.origin != span.origin for span, _ in alike)]
    told += [source for s in others for source in _told(lineage, s, versions) if source.written]
    if not (rewritten or any(_is_kept(source, versions) for source in told)):
        return None
    last = versions[-1]
    hit = Hit(last.ref, last.origin, lineage.record(last.key), last.content, last.day, 1, answer)
    return PromptMemory(tuple(versions), tuple(told), replace(results, hits=(*results.hits, hit)))


def own_prompt(
    lineage: Lineage, failure: Failure, results: SearchResults, messages: Sequence[Source], *, everywhere: bool
) -> PromptMemory | None:
    """Return what tells a word of the expected answer where no message does: the prompt of the answer as a hit, and the
    questions of earlier calls with the same instructions, which the prompt does not repeat. None without instructions,
    and where nothing tells such a word.

    An answer with a search has another memory: its prompt is no hit, and these questions were stored nowhere, which
    only a graph of every memory (`everywhere`) shows."""
    answer, wanted = failure.answer_span, terms(failure.expected) - terms(failure.question)
    own = _prompt(lineage, answer)
    if (
        not own
        or (results.searches and not everywhere)
        or any(wanted & terms(source.message.content) for source in messages)
    ):
        return None
    calls = [s for s in lineage.spans if s.kind == OpKind.RESPOND and s.start < answer.start]
    calls = [s for s in calls if _opens_alike(_prompt(lineage, s), own)]
    told = tuple(s for call in calls for s in _told(lineage, call, []) if wanted & terms(s.message.content))
    keys = [key for role in (Role.PROMPT, Role.QUERY) for v, key in lineage.reads(answer) if v.role == role]
    hit = Hit(keys[0].ref, keys[0].origin, lineage.record(keys[0]), own, day_of(answer.start), 1, answer)
    hits = (*results.hits, hit) if wanted & terms(own) and not results.searches else results.hits
    versions = () if results.searches else tuple(source.message for source in told)
    return PromptMemory(versions, told, replace(results, hits=hits)) if told or hits != results.hits else None


def _prompt(lineage: Lineage, span: OperationSpan) -> str:
    """Return the instructions and what the program wrote before the message of the user, '' without both."""
    given = {v.role: lineage.content(v, read) for v, read in lineage.reads(span) if v.role in (Role.PROMPT, Role.QUERY)}
    notes = given.get(Role.QUERY, "").rpartition(_BLANK_LINE)[0]
    return "\n".join(filter(None, (given.get(Role.PROMPT), notes)))


def tool_results(lineage: Lineage, span: OperationSpan) -> Iterator[str]:
    """Yield the results of tool calls in the conversation that a call was given: a tool may read the notes."""
    called = 0
    for variable, read in lineage.reads(span):
        text = lineage.content(variable, read) if variable.role == Role.HISTORY else ""
        if TOOL_CALL.match(text):
            called += 1
        elif called and text:
            called -= 1
            yield text


def _opens_alike(one: str, other: str) -> bool:
    """Whether two prompts begin with the same line, as far as the opening goes."""
    first, second = (text.partition("\n")[0][:_OPENING] for text in (one, other))
    length = min(len(first), len(second))
    return length > 0 and first[:length] == second[:length]


def _writer(calls: list[OperationSpan], text: str, since: int, reader: OperationSpan) -> OperationSpan:
    """Return the call whose reply the text repeats since the call before, else the call that was given the text."""
    replies = ((s, o.content) for s in reversed(calls) if since <= s.start < reader.start for o in s.outputs)
    return next((s for s, reply in replies if _repeats(text, reply)), reader)


def _told(lineage: Lineage, call: OperationSpan, versions: list[Version]) -> Iterator[Source]:
    """Yield the questions of a call as messages, with the texts of its tool calls, or of its reply in JSON, that a
    later prompt repeats."""
    texts = [text for output in call.outputs for text in _texts(output.content)]
    noted = tuple(
        replace(version, content=text)
        for version in versions
        for text in texts
        if version.span.start > call.start and _repeats(version.content, text)
    )
    for asked in asked_of(lineage, call):
        message = _LABEL.sub("", asked.content.rpartition(_BLANK_LINE)[2].strip())
        yield Source(replace(asked, content=message), "", call, bool(noted), (), noted)


def _is_kept(source: Source, versions: list[Version]) -> bool:
    """Whether a later prompt repeats a message, or what a tool call took from the message."""
    later = (version.content for version in versions if version.span.start > source.extraction.start)
    return bool(source.written) or any(_repeats(text, source.message.content) for text in later)


def _repeats(prompt: str, text: str) -> bool:
    return len(text) >= _QUOTED and text in prompt


def _texts(reply: str) -> list[str]:
    """Return the texts in a reply in JSON, of a tool call (as recorded: `["name", "{...}"]`) those of its arguments."""
    try:
        return list(_leaves(json.loads(reply)))
    except (ValueError, RecursionError):
        return []


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        items = cast(list[Any], value)
        is_call = len(items) == 2 and all(isinstance(item, str) for item in items) and items[1].startswith("{")
        yield from _texts(items[1]) if is_call else (leaf for item in items for leaf in _leaves(item))
    elif isinstance(value, dict):
        yield from _leaves(list(cast(dict[str, Any], value).values()))
