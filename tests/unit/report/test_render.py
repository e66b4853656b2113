"""The page: self-contained, inert whatever the traces hold, complete."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import ClassVar

import pytest

from memtrace_otel.graph import build_graph
from memtrace_otel.report import render_report, write_private
from memtrace_otel.report.wording import ORDER
from tests.unit.report.conftest import Diagnosed
from tests.unit.report.stories import FIRST_DAY, Story, overwritten

INVISIBLE = "\x07\x1b[31m\u061c\u200b\u200f\u3164\U000e0041"
ATTACK = (
    """<script>alert(1)</script>"><img src=x onerror=alert(1)> ' onload='x </svg></style><!-- {{ 7*7 }} &amp;"""
    + INVISIBLE
)


class Page(HTMLParser):
    """Elements and attributes of a page, and whether every element is closed in order."""

    VOID: ClassVar = {"meta", "input", "br", "img", "link"}

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: Counter[str] = Counter()
        self.classes: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.classes.update(dict(attrs).get("class", "").split())  # type: ignore[union-attr]
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def page(diagnosed: Diagnosed, *, title: str = "Memory failures") -> Page:
    graph, verdicts = diagnosed
    return Page(
        render_report(
            [(verdict, graph) for verdict in verdicts.values()], title=title, source="run.db", created=FIRST_DAY
        )
    )


def test_one_card_one_picture_and_one_line_of_the_index_for_each_verdict(diagnosed: Diagnosed) -> None:
    _, verdicts = diagnosed
    made = page(diagnosed)
    assert made.elements["article"] == made.classes["timeline"] == made.classes["of-type"] / 2 == len(verdicts)
    targets = [value for tag, name, value in made.attributes if tag == "a" and name == "href" and value != "#index"]
    ids = [value for _, name, value in made.attributes if name == "id"]
    assert targets == [f"#failure-{number}" for number in range(1, len(verdicts) + 1)]
    assert set(targets) <= {f"#{id}" for id in ids}
    assert len(ids) == len(set(ids))


def test_the_summary_counts_every_type(diagnosed: Diagnosed) -> None:
    graph, verdicts = diagnosed
    made = render_report([(verdict, graph) for verdict in verdicts.values()], title="t", source="s")
    counts = dict(re.findall(r'id="show-(\w+)"[^>]*><span class="count">(\d+)<', made))
    expected = Counter(str(verdict.failure_type) for verdict in verdicts.values())
    assert counts == {kind: str(expected[kind]) for kind in ORDER}


def test_the_page_needs_nothing_else(diagnosed: Diagnosed) -> None:
    made = page(diagnosed)
    assert not {"script", "link", "iframe", "object", "embed", "img", "image", "use", "base", "form"} & set(
        made.elements
    )
    pointing = [
        v for _, name, v in made.attributes if name in ("href", "src", "xlink:href", "data", "action", "poster")
    ]
    assert all(value.startswith("#") for value in pointing)
    policy = next(v for tag, name, v in made.attributes if tag == "meta" and name == "content")
    assert policy.startswith("default-src 'none'")
    assert "http" not in "".join(made.text) + "".join(v for _, name, v in made.attributes if name != "http-equiv")


def test_whatever_a_trace_holds_is_inert() -> None:
    story = Story(service=f"assistant {ATTACK}")
    overwritten(story)
    spans = [
        replace(
            span,
            name=f"{span.name} {ATTACK}",
            inputs=tuple(replace(v, content=f"{v.content} {ATTACK}") for v in span.inputs),
            outputs=tuple(replace(v, content=f"{v.content} {ATTACK}") for v in span.outputs),
        )
        for span in story.spans
    ]
    _, (verdict,) = story.diagnosed()
    failure = replace(
        verdict.failure, question=ATTACK, answer=ATTACK, expected=ATTACK, label=ATTACK, explanation=ATTACK
    )
    attacked = replace(
        verdict,
        failure=failure,
        reason=ATTACK,
        operation=ATTACK,
        variable=ATTACK,
        failure_type=ATTACK,
        method=ATTACK,
        evidence=tuple(replace(step, role=ATTACK, note=ATTACK) for step in verdict.evidence),
        alternatives=tuple(replace(other, failure_type=ATTACK) for other in verdict.alternatives),
    )
    html = render_report([(attacked, build_graph(spans))], title=ATTACK, source=ATTACK)
    made = Page(html)
    assert not {"script", "img", "image", "iframe"} & set(made.elements)
    assert not [name for _, name, _ in made.attributes if name.startswith("on")]
    assert made.classes["card"] == made.classes["timeline"] == 1
    assert "<script>alert(1)</script>" in "".join(made.text)
    assert html.count("<script") == 0
    assert "{{ 7*7 }}" in html  # trace text is never taken for a template
    assert not set(INVISIBLE.replace("[31m", "")) & set(html)


def test_a_report_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.touch(mode=0o644)
    write_private(path, "secret")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("secret", 0o600)


def test_each_picture_is_told_in_words(diagnosed: Diagnosed) -> None:
    graph, verdicts = diagnosed
    html = render_report([(verdicts["overwritten"], graph)], title="t", source="s")
    picture = html[html.index('<svg class="timeline"') :]
    assert 'role="img" aria-labelledby="failure-1-picture-title failure-1-picture-desc"' in picture
    description = re.search(r'<desc id="failure-1-picture-desc">(.*?)</desc>', picture, re.DOTALL)
    assert description is not None
    assert "v2 · update (Lost here: overwritten)" in description[1]


def test_no_failing_answer_is_said_so(diagnosed: Diagnosed) -> None:
    graph, _ = diagnosed
    made = page((graph, {}), title="All is well")
    assert "No failing answers" in made.text
    assert "All is well" in made.text
    assert made.elements["article"] == 0


def test_hundreds_of_verdicts_are_one_page(diagnosed: Diagnosed) -> None:
    graph, verdicts = diagnosed
    many = list(verdicts.values()) * 40
    made = Page(render_report([(verdict, graph) for verdict in many], title="t", source="s"))
    assert made.elements["article"] == len(many) >= 300


def test_missing_contents_are_named_as_missing(uncaptured: Diagnosed) -> None:
    made = page(uncaptured)
    text = " ".join(made.text)
    assert "Question not captured" in text
    assert "content not captured" in text
    assert "incomplete" in text
    assert "verdicts rest on a complete trace" in text


def test_a_long_text_is_cut_and_kept_in_full_beside(diagnosed: Diagnosed) -> None:
    graph, verdicts = diagnosed
    long = "All about the dentist. " * 200 + "The end."
    failure = replace(verdicts["overwritten"].failure, answer=long, question=long)
    made = Page(render_report([(replace(verdicts["overwritten"], failure=failure), graph)], title="t", source="s"))
    assert made.text.count(long) >= 2
    assert made.elements["details"] >= 2


@pytest.mark.parametrize("confidence", [-1.0, 0.0, 0.5, 7.0])
def test_the_meter_stays_within_its_track(diagnosed: Diagnosed, confidence: float) -> None:
    graph, verdicts = diagnosed
    html = render_report([(replace(verdicts["ignored"], confidence=confidence), graph)], title="t", source="s")
    levels = [int(level) for level in re.findall(r'class="level" width="(-?\d+)"', html)]
    assert levels
    assert all(0 <= level <= 100 for level in levels)


def test_an_unknown_failure_type_counts_as_unknown(diagnosed: Diagnosed) -> None:
    graph, verdicts = diagnosed
    html = render_report([(replace(verdicts["ignored"], failure_type="solar flare"), graph)], title="t", source="s")
    assert 'id="show-unknown"><span class="count">1<' in html


def test_the_same_verdicts_make_the_same_page(diagnosed: Diagnosed) -> None:
    graph, verdicts = diagnosed
    pages = {
        render_report([(verdict, graph) for verdict in verdicts.values()], title="t", source="s", created=FIRST_DAY)
        for _ in range(2)
    }
    assert len(pages) == 1
