"""A graph that grows is the graph of everything."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from memtrace_otel.graph import GrowingGraph, VersionKey, build_graph
from memtrace_otel.model import OperationSpan, Variable
from memtrace_otel.semconv import Action, OpKind, Role
from tests.unit.graph.conftest import ALICE, life_of_a_fact, origin_of, put, span
from tests.unit.graph.pictures import picture
from tests.unit.graph.test_properties import noise, parted_story


def portions(spans: list[OperationSpan], rng: random.Random) -> Iterator[list[OperationSpan]]:
    """The spans in any order, in portions of any size, some of them twice."""
    spans = [*spans, *rng.choices(spans, k=rng.randrange(5))]
    rng.shuffle(spans)
    while spans:
        size = rng.randrange(1, 6)
        yield spans[:size]
        spans = spans[size:]


@pytest.mark.parametrize("seed", range(30))
def test_a_story_that_comes_in_portions_is_the_story(seed: int) -> None:
    rng = random.Random(seed)
    spans = [replace(s, seq=n, resource={"service.name": "s"}) for n, s in enumerate(parted_story(), 1)]
    growing, so_far = GrowingGraph(), []
    for portion in portions(spans, rng):
        growing.extend(portion)
        so_far += portion
        assert picture(growing.graph) == picture(build_graph(so_far))
    assert growing.graph.slice_of_answer(origin_of(4, 1)) == build_graph(spans).slice_of_answer(origin_of(4, 1))


@pytest.mark.parametrize("seed", range(50))
def test_noise_that_comes_in_portions_is_the_same_noise(seed: int) -> None:
    """Wild parents, parts, origins, flows and times, and two contents under one id."""
    rng = random.Random(seed)
    growing, so_far = GrowingGraph(), []
    for portion in portions(noise(rng), rng):
        growing.extend(portion)
        so_far += portion
        whole = build_graph(so_far)
        assert picture(growing.graph) == picture(whole)
        assert growing.graph.graph == whole.graph
    for node in whole:
        assert growing.graph.ancestors(node) == whole.ancestors(node)
        if isinstance(node, VersionKey):
            assert growing.graph.history(node.ref) == whole.history(node.ref)


def test_questions_asked_in_between_do_not_stay(story: list[OperationSpan]) -> None:
    growing = GrowingGraph(story[:3])
    assert len(growing.graph.operations()) == 3
    growing.extend(story)
    assert len(growing.graph.operations()) == len(story)
    assert growing.extend(story) == set()


def test_only_what_hangs_together_is_built_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt that all share does not tie their memories together."""
    built: list[int] = []

    def counting(spans: object, **options: object) -> object:
        taken = list(spans)  # type: ignore[call-overload]
        built.append(len(taken))
        return build_part(taken, **options)  # type: ignore[arg-type]

    from memtrace_otel.graph.build import build_part

    monkeypatch.setattr("memtrace_otel.graph.extension.build_part", counting)
    writes = [
        span(n, 1, OpKind.CREATE, at=n, scope=ALICE,
             inputs=[put("prompt:p", "Extract", role=Role.PROMPT), put(f"message:{n}", "hi", role=Role.MESSAGE)],
             outputs=[put(f"memory:{n}", "hi", action=Action.ADD)])
        for n in range(1, 200)
    ]  # fmt: skip
    growing = GrowingGraph(writes)
    last = span(900, 1, OpKind.RETRIEVE, at=900, scope=ALICE,
                inputs=[Variable("memory:7", role=Role.HIT), put("prompt:p", "Extract", role=Role.PROMPT)])  # fmt: skip
    growing.extend([last])
    assert built == [199, 2]
    assert picture(growing.graph) == picture(build_graph([*writes, last]))


def test_digests_that_turn_out_to_be_keyed_make_all_contents_judged_anew() -> None:
    story = life_of_a_fact()
    keyed = [replace(s, outputs=tuple(replace(o, digest="0" * 16) for o in s.outputs)) for s in life_of_a_fact()]
    growing = GrowingGraph(story)
    growing.extend([replace(s, trace_id="f" * 32) for s in keyed])
    assert picture(growing.graph) == picture(build_graph([*story, *(replace(s, trace_id="f" * 32) for s in keyed)]))
