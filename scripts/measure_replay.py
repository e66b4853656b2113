"""Measure replay on generated cases: planted faults verified, deliberately wrong verdicts refuted.

    memtrace-otel bench generate --system mem0 --cases 60 --out bench
    python scripts/measure_replay.py bench

The scripted model of a case answers again. The right verdict names the planted type and operation. Wrong verdicts blame
other operations for the same fact. Answers of paraphrase cases are compared by the story, in place of a model that
reads.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import openai

from memtrace_otel.attribution import attribute, find_failures
from memtrace_otel.attribution.endpoint import Endpoint
from memtrace_otel.attribution.entailment import Answer, Replies, Reply, Text
from memtrace_otel.attribution.evidence import Evidence
from memtrace_otel.attribution.lineage import lineage_of
from memtrace_otel.attribution.replay import Verifier, known_replayers
from memtrace_otel.attribution.replay.notebook import notebook_of
from memtrace_otel.bench import real
from memtrace_otel.bench.faults import fault_of
from memtrace_otel.bench.generate import (
    MANIFEST,
    MEMORY_TYPES,
    SPANS,
    Plan,
    _correction,  # pyright: ignore[reportPrivateUsage]
    read_truths,
)
from memtrace_otel.bench.run import read_spans
from memtrace_otel.bench.simulated import Answering, Shape
from memtrace_otel.bench.stories import Story, Wording
from memtrace_otel.bench.story_model import StoryModel
from memtrace_otel.demo.model_server import serving
from memtrace_otel.graph import build_graph
from memtrace_otel.model import Verdict, make_origin, split_origin
from memtrace_otel.semconv import FailureType

_ATTEMPTS = 40


class StoryReader:
    """Says whether a text holds the right answer, in any words."""

    name = "story"

    def __init__(self, story: Story) -> None:
        self._story = story

    def read(self, question: str, piece: str, texts: Sequence[Text]) -> Replies:
        """Return the answers on texts."""
        story, contents = self._story, [text.content for text in texts]
        right = (story.is_right(c) or Answering(story, [c]).value() == story.value for c in contents)
        return Replies({t: Reply(Answer.YES if r else Answer.NO) for t, r in zip(texts, right, strict=True)})


def stories(plan: Plan, number: int) -> Iterator[Story]:
    """Yield the faulty stories of a case that were executed, the admitted one after the rejected ones."""
    system, code, wording = plan.case(number)
    for attempt in range(_ATTEMPTS):
        rng = Random(f"{plan.seed}/{number}/{attempt}")
        fault, actual = fault_of(code, rng), real.SYSTEMS[system]
        story = plan.story(rng, wording, _correction(actual, fault, Shape.ADDITIVE), fault.needs_slip)
        faulty = fault.plant(story, rng) if story else None
        if faulty and actual.fits(faulty):
            yield faulty


def wrong_verdicts(evidence: Evidence, verdict: Verdict, truth: dict[str, Any]) -> Iterator[Verdict]:
    """Yield verdicts of other types than the planted one on operations that worked on the same fact.

    Of a notebook: every other call that changed a line about the question.
    """
    blamed: list[tuple[FailureType, str, str]] = []
    if notebook := notebook_of(evidence):
        about = [c for c, gone, new in notebook.changes() if any(map(evidence.compare.about, (*gone, *new)))]
        written = (FailureType.EXTRACTION, FailureType.UPDATE, FailureType.DELETION)
        blamed += [
            (kind, call.origin, "") for call in about if call.origin not in truth["operations"] for kind in written
        ]
        blamed.append((FailureType.RETRIEVAL, verdict.failure.answer_span.origin, ""))
    for source in () if notebook else evidence.named[:1]:
        blamed.append((FailureType.EXTRACTION, source.extraction.origin, source.message.ref))
        records = {evidence.record(version) for version in source.written}
        own = [history for history in evidence.records if evidence.record(history[0]) in records]
        searches = evidence.results.searches or (verdict.failure.answer_span,)
        blamed += [(FailureType.RETRIEVAL, searches[-1].origin, h[-1].ref) for h in own if not h[-1].deleted]
        for kind, deleted in ((FailureType.UPDATE, False), (FailureType.DELETION, True)):
            changes = [v for h in own or evidence.records for v in h[1:] if v.deleted is deleted]
            changes = changes or [v for h in evidence.records for v in h[1:] if v.deleted is deleted]
            blamed += [(kind, version.origin, version.ref) for version in changes[-1:]]
    blamed.append((FailureType.RESPONSE, verdict.failure.answer_span.origin, ""))
    for kind, origin, variable in blamed:
        if kind != truth["failure_type"] or (notebook and origin not in truth["operations"]):
            trace_id, span_id = split_origin(origin)
            found = replace(verdict, failure_type=kind, trace_id=trace_id, span_id=span_id, variable=variable)
            yield replace(found, alternatives=())


def planted_verdict(evidence: Evidence, verdict: Verdict, truth: dict[str, Any]) -> Verdict:
    """Return the verdict that names the planted type and operation; the variable is the record of the named message."""
    records = [version.ref for source in evidence.named for version in source.written]
    variable = records[-1] if records and truth["failure_type"] == FailureType.RETRIEVAL else ""
    trace_id, span_id = split_origin(truth["operations"][-1])
    found = replace(verdict, failure_type=truth["failure_type"], trace_id=trace_id, span_id=span_id, variable=variable)
    return replace(found, alternatives=())


def measure(directory: Path, plan: Plan, truth: dict[str, Any], counts: Counter[tuple[str, ...]]) -> None:
    """Count the outcomes of one case."""
    story = next(islice(stories(plan, truth["number"]), sum(truth["rejected"].values()), None))
    graph = build_graph(list(read_spans(directory / SPANS / f"{truth['file']}.pb.gz")))
    failures = [f for f in find_failures(graph) if f.answer_span.origin == truth["answer"]]
    aliases = {story.asking.question: story.texts["elsewhere"]} if story.asking.demoted else {}
    with tempfile.TemporaryDirectory() as folder, serving(StoryModel(story), aliases) as server:
        os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"] = server.base_url, "none"
        os.environ["MEMTRACE_MODEL_CACHE"] = str(Path(folder) / "replies.db")
        reader = StoryReader(story) if truth["wording"] == Wording.PARAPHRASE else None
        client = openai.OpenAI(base_url=server.base_url, api_key="none")
        run = Verifier(Endpoint(client), replayers=known_replayers(), reader=reader)
        for failure in failures:
            verdict = replace(attribute(graph, failure), alternatives=())
            evidence = Evidence(lineage_of(graph), failure)
            rows = [("wrong", wrong) for wrong in wrong_verdicts(evidence, verdict, truth)]
            origin = make_origin(verdict.trace_id, verdict.span_id) if verdict.span_id else ""
            if verdict.failure_type == truth["failure_type"] and origin in truth["operations"]:
                rows.append(("planted", verdict))
            else:
                same = origin in truth["operations"]
                rows.append(("planted operation, another type" if same else "wrong by the rules", verdict))
                rows.append(("planted, missed by the rules", planted_verdict(evidence, verdict, truth)))
            for row, one in rows:
                replay = run(graph, one).replay
                assert replay
                counts[row, str(replay.outcome)] += 1
                if replay.outcome != ("verified" if row.startswith("planted") else "refuted"):
                    print(truth["case"], truth["fault"], truth["wording"], row, one.failure_type, replay, flush=True)


def main() -> None:
    """Measure every failing case with one planted fault in a memory or an answer."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    directory = Path(sys.argv[1])
    manifest: dict[str, Any] = json.loads((directory / MANIFEST).read_text("utf-8"))
    low, high = manifest["messages"]
    plan = Plan(manifest["seed"], manifest["cases"], tuple(manifest["systems"]), tuple(manifest["faults"]), (low, high))
    counts: Counter[tuple[str, ...]] = Counter()
    for truth in read_truths(directory):
        if truth["failure_type"] in MEMORY_TYPES and "pair" not in truth:
            measure(directory, plan, truth, counts)
    for row, count in sorted(counts.items()):
        print(*row, count)


if __name__ == "__main__":
    main()
