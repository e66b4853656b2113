"""The pages of `memtrace-otel ui` in a real browser: two annotators by keys alone, hostile contents, small screens."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from memtrace_otel.model import Review
from memtrace_otel.web.store import PageStore
from tests.e2e.tab import Tab, open_tab
from tests.unit.web.conftest import filled, told

ATTACK = (
    "<script>document.documentElement.id='owned'</script><img src=x onerror=\"document.documentElement.id='owned'\">"
)
WATCH = """
window.violations = [];
document.addEventListener('securitypolicyviolation', event => violations.push(event.violatedDirective));
"""
AT_ONCE = "--force-prefers-reduced-motion"
"""No smooth scrolling: a click goes to the place where an element is."""
DARK = "--blink-settings=preferredColorScheme=0"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stories, with a script and a long word in every text."""

    def hostile(span):  # type: ignore[no-untyped-def]
        inputs = tuple(replace(v, content=f"{v.content} {ATTACK}" if v.content else "") for v in span.inputs)
        outputs = tuple(
            replace(v, content=f"{v.content} {ATTACK} {'W' * 10_000}\u202e" if v.content else "") for v in span.outputs
        )
        return replace(span, name=f"{span.name} {ATTACK}", inputs=inputs, outputs=outputs)

    path = tmp_path_factory.mktemp("ui") / "run.db"
    filled(path, [hostile(span) for span in told()]).close()
    return path


@pytest.fixture(scope="module")
def address(database: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "memtrace_otel.cli", "ui", "--db", str(database), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        found = re.search(r"http://[\d.:]+", said)
        assert found, said
        yield found[0]
        process.terminate()
        assert "owned" not in process.stderr.read()


def log_in(tab: Tab, address: str, name: str) -> None:
    tab.always(WATCH)
    tab.open(f"{address}/login", "document.querySelector('input[name=given]')")
    tab.evaluate(f"document.querySelector('input[name=given]').value = {json.dumps(name)}")
    tab.click("document.querySelector('main button')")
    tab.wait("location.pathname === '/review'")


def reviews_of(database: Path, name: str) -> list[Review]:
    with PageStore.open(database) as store:
        return store.reviews(annotator=name)


@pytest.mark.parametrize("width", [390, 1280])
def test_every_page_fits_and_runs_nothing_of_a_trace(address: str, database: Path, tmp_path: Path, width: int) -> None:
    with open_tab(tmp_path / "profile", 1280, 900, *[DARK] * (width == 390)) as tab:
        log_in(tab, address, "looker")
        if width == 390:
            tab.resize(390, 844)
        tab.open(f"{address}/failures", "document.querySelector('ol.list a')")
        answer = tab.evaluate("document.querySelector('ol.list a').pathname")
        scope = "/memory/0000000000000000"
        tab.open(f"{address}{scope}", "document.querySelector('.plain a')")
        record = tab.evaluate("(a => a.pathname + a.search)(document.querySelector('.plain a'))")
        review = answer.replace("failure", "review")
        lists = ["/failures", "/failures?view=cause", "/memories", "/health", "/review", "/audit", "/login"]
        for path in [*lists, answer, scope, f"{scope}/health", record, review]:
            tab.open(f"{address}{path}", "document.querySelector('h1')")
            assert tab.evaluate("violations") == [], path
            assert tab.evaluate("document.documentElement.id") == "", path
            assert tab.evaluate("document.documentElement.scrollWidth") <= width, path
            unnamed = "[...document.querySelectorAll('input:not([type=hidden]), select, textarea, button')].filter("
            assert tab.evaluate(f"{unnamed}e => !(e.labels?.length || e.textContent.trim())).length") == 0, path


def test_a_slider_shows_the_memory_at_another_time(address: str, tmp_path: Path) -> None:
    with open_tab(tmp_path / "profile", 1280, 900, AT_ONCE) as tab:
        tab.open(f"{address}/memory/0000000000000002", "document.querySelector('[name=until]')")
        assert tab.evaluate("document.body.innerText.includes('forgotten')")
        tab.evaluate("document.querySelector('[name=until]').focus()")
        tab.press("ArrowLeft")
        tab.wait("location.search.includes('until=') && !document.body?.innerText.includes('forgotten')")


def test_two_annotators_review_by_keys_alone(address: str, database: Path, tmp_path: Path) -> None:
    with open_tab(tmp_path / "ada", 1280, 900) as ada, open_tab(tmp_path / "bob", 1280, 900) as bob:
        for tab, name in ((ada, "ada"), (bob, "bob")):
            log_in(tab, address, name)
            tab.open(f"{address}/review/next", "document.getElementById('review')")
        first = ada.evaluate("location.pathname")
        assert bob.evaluate("location.pathname") == first  # both annotate the same answers
        shown = "document.readyState === 'complete' && document.getElementById('review')?.dataset.shown"

        ada.press("2")
        ada.wait(f"{shown} === 'yes'")
        ada.open(f"{address}{first}", f"{shown} === 'yes'")  # a reload keeps the first choice
        assert ada.evaluate("document.querySelector('[name=label]:checked').value") == "update"
        assert bob.evaluate(shown) == "no"

        ada.press("j")
        ada.press("e")
        ada.press("j")
        ada.press("k")
        ada.press("!", "Digit3", shift=True)
        ada.press("n")
        for letter in "jx":  # in a text field, keys are text
            ada.press(letter)
        ada.press("Escape")
        ada.press("c")
        ada.press("5")
        ada.press("Escape")
        ada.press("?", "Slash", shift=True)
        ada.wait("document.getElementById('help').open")
        ada.press("Enter", ctrl=True)
        ada.wait(f"location.pathname !== {json.dumps(first)} && document.readyState === 'complete'")
        (review,) = reviews_of(database, "ada")
        assert (review.label, review.second_label, review.note, review.corrected) == ("update", "deletion", "jx", "5")
        assert review.blind
        assert review.operation
        assert review.evidence == (review.operation,)

        ada.press("z")
        ada.wait(f"location.pathname === {json.dumps(first)} && document.readyState === 'complete'")
        assert reviews_of(database, "ada") == []
        for key, label in (("x", "not_memory"), ("u", "cannot_tell"), ("h", "healthy")):
            ada.press(key)
            ada.wait(f"document.querySelector('[name=label]:checked')?.value === {json.dumps(label)}")
        ada.press("Enter")  # accepts a verdict, where there is one
        ada.press("Enter", ctrl=True)
        ada.wait(f"location.pathname !== {json.dumps(first)} && document.readyState === 'complete'")

        bob.press("h")
        bob.wait(f"{shown} === 'yes'")
        bob.press("Enter", ctrl=True)
        bob.wait(f"location.pathname !== {json.dumps(first)} && document.readyState === 'complete'")
        bob.open(f"{address}/review", "document.body.innerText.includes('kappa')")
        assert bob.evaluate("violations") == []
        assert [one.blind for one in reviews_of(database, "bob")] == [True]


def test_the_first_choice_works_without_the_script(address: str, database: Path, tmp_path: Path) -> None:
    with open_tab(tmp_path / "profile", 1280, 900, AT_ONCE) as tab:
        log_in(tab, address, "mouse")
        tab._call("Emulation.setScriptExecutionDisabled", value=True)
        tab.open(f"{address}/review/next", "document.getElementById('review')")
        tab.click("document.querySelector('[name=label][value=update]')")
        tab.click("document.querySelector('button[value=choose]')")
        tab.wait("document.getElementById('review')?.dataset.shown === 'yes'")
        tab.click("document.querySelector('button[value=save]')")
        tab.wait("document.getElementById('review')?.dataset.shown === 'no'")
    assert [one.label for one in reviews_of(database, "mouse")] == ["update"]
