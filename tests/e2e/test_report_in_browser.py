"""The report in a real browser: it renders, it is inert, it asks nobody for anything, its pictures fit."""

from __future__ import annotations

import html
import re
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from memtrace_otel.model import OperationSpan, content_digest
from memtrace_otel.otlp import encode_request
from memtrace_otel.report import render_report
from memtrace_otel.sources import SqliteStore
from tests.e2e.browser import Browser, find_browser
from tests.unit.report.stories import ALL, Story

ATTACK = "<script>document.documentElement.id='owned'</script><img src=http://tracker.test/x.png>"
LOST_LIGHT, LOST_DARK = (0xC2, 0x26, 0x2E), (0xFF, 0x7B, 0x78)
PAPER_LIGHT, PAPER_DARK = (0xF6, 0xF5, 0xF2), (0x14, 0x16, 0x1A)
DARK = "--blink-settings=preferredColorScheme=0"
"""Chromium has no flag of its own for a reader who prefers dark pages."""
BROWSER_ITSELF = re.compile(r"[\w-]+\.(?:google|googleapis|gvt1)\.com\b")
"""Hosts that Chromium asks of its own accord: the time, updates of its lists."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    return find_browser(tmp_path_factory.mktemp("profile"))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page that the command makes of the recorded stories, every text of them hostile."""
    story = Story()
    for number, tell in enumerate(ALL):
        story.scope = f"{number:016x}"
        tell(story)
    return make_report(tmp_path_factory.mktemp("report"), [with_attack(span) for span in story.spans])


def with_attack(span: OperationSpan) -> OperationSpan:
    outputs = tuple(replace(v, content=f"{v.content} {ATTACK}" if v.content else "") for v in span.outputs)
    return replace(span, name=f"{span.name} {ATTACK}", outputs=outputs)


def make_report(folder: Path, spans: list[OperationSpan]) -> Path:
    with SqliteStore.open(folder / "run.db") as store:
        store.add_request(encode_request(spans))
        store.decode()
    command = [sys.executable, "-m", "memtrace_otel.cli", "report", "--db", str(folder / "run.db")]
    command += ["--output", str(folder / "report.html")]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "report.html"


def with_script(page: Path, script: str) -> Path:
    """A copy of the page without its policy, and with a script that looks at it."""
    copy = page.with_name(f"looked-at-{content_digest(script)}.html")
    text = without_policy(page.read_text("utf-8"))
    copy.write_text(text.replace("</body>", f"<script>{script}</script></body>"), "utf-8")
    return copy


def without_policy(page: str) -> str:
    text, count = re.subn(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    assert count == 1
    return text


def test_every_failing_answer_has_a_card_and_a_picture(browser: Browser, report: Path) -> None:
    dom = browser.dom(report)
    assert dom.count('<article class="card') == dom.count('<svg class="timeline"') == len(ALL)
    assert dom.count("✗ ") >= len(ALL)


def test_it_is_not_blank_and_shows_the_loss(browser: Browser, report: Path, tmp_path: Path) -> None:
    picture = browser.picture(report, tmp_path / "light.png", 1400, 2200)
    colours = picture.colours()
    assert (picture.width, picture.height) == (1400, 2200)
    assert colours.most_common(1)[0][0] in (PAPER_LIGHT, (255, 255, 255))
    assert colours[LOST_LIGHT] > 1000  # the filled flag of a decisive operation
    assert len(colours) > 100
    inked = sum(len(set(row)) > 2 for row in picture.rows)
    assert inked > picture.height / 2


def test_it_follows_a_reader_who_prefers_dark(browser: Browser, report: Path, tmp_path: Path) -> None:
    colours = browser.picture(report, tmp_path / "dark.png", 1400, 2200, DARK).colours()
    assert colours[PAPER_DARK] > 100_000
    assert colours[PAPER_LIGHT] == 0
    assert colours[LOST_DARK] > 1000


def owned(dom: str) -> bool:
    """Tell whether the script of the attack has run."""
    return re.search(r'<html[^>]* id="owned"', dom) is not None


def test_text_of_a_trace_runs_nothing(browser: Browser, report: Path) -> None:
    assert html.escape(ATTACK).partition("=")[0] in report.read_text("utf-8")  # it is there, as text
    assert not owned(browser.dom(report))
    assert not owned(browser.dom(with_script(report, "")))  # it is not the policy alone that holds it


def test_the_policy_stops_a_script_that_got_in_all_the_same(browser: Browser, report: Path) -> None:
    page = report.read_text("utf-8").replace("</body>", f"{ATTACK}</body>")
    stopped, running = report.with_name("stopped.html"), report.with_name("running.html")
    stopped.write_text(page, "utf-8")
    running.write_text(without_policy(page), "utf-8")
    assert owned(browser.dom(running))
    assert not owned(browser.dom(stopped))


def test_it_asks_nobody_for_anything(browser: Browser, report: Path) -> None:
    asking = report.with_name("asking.html")
    asking.write_text(ATTACK, "utf-8")
    with proxy() as (address, asked):
        browser.dom(asking, f"--proxy-server={address}")
        assert any("tracker.test" in line for line in asked)  # the proxy sees what a page asks for
        asked.clear()
        browser.dom(report, f"--proxy-server={address}")
        assert [line for line in asked if not BROWSER_ITSELF.search(line)] == []


@contextmanager
def proxy() -> Iterator[tuple[str, list[str]]]:
    """A proxy on loopback that writes down the first line of every request and serves none."""
    asked: list[str] = []

    class Refuse(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            asked.append(self.rfile.readline().decode("latin-1").strip())
            self.wfile.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Refuse) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
        server.shutdown()


def test_no_text_leaves_its_box(browser: Browser, report: Path) -> None:
    script = """
    let out = [], seen = 0;
    for (const node of document.querySelectorAll('.timeline .node')) {
      const box = node.querySelector('.box').getBBox();
      for (const text of node.querySelectorAll('text')) {
        const t = text.getBBox();
        seen += t.width > 0;
        if (t.x < box.x || t.x + t.width > box.x + box.width || t.y < box.y || t.y + t.height > box.y + box.height + 1)
          out.push(text.textContent);
      }
    }
    document.body.innerHTML = '<p id=seen>' + seen + '</p><p id=out></p>';
    document.getElementById('out').textContent = JSON.stringify(out);
    """
    dom = browser.dom(with_script(report, script))
    assert int(re.search(r'<p id="seen">(\d+)</p>', dom)[1]) > 200  # type: ignore[index]
    assert '<p id="out">[]</p>' in dom


@pytest.mark.parametrize("width", [500, 800, 1400])
def test_the_page_is_never_wider_than_its_window(browser: Browser, report: Path, width: int) -> None:
    script = "document.body.innerHTML = '<p>' + document.documentElement.scrollWidth + ' ' + innerWidth + '</p>'"
    dom = browser.dom(with_script(report, script), f"--window-size={width},900")
    used, there = map(int, re.search(r"<p>(\d+) (\d+)</p>", dom).groups())  # type: ignore[union-attr]
    assert used <= there == width


def test_a_tile_shows_the_cards_of_its_type_only(browser: Browser, report: Path) -> None:
    script = """
    const cards = [...document.querySelectorAll('.card')];
    const shown = () => cards.filter(card => getComputedStyle(card).display != 'none').length;
    const all = shown();
    document.getElementById('show-deletion').click();
    document.body.replaceChildren(`${all} of all, ${shown()} of one type`);
    """
    assert f"{len(ALL)} of all, 1 of one type" in browser.dom(with_script(report, script))


def test_no_failing_answer_still_makes_a_page(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "empty.html"
    page.write_text(render_report([], title="Nothing", source="run.db"), "utf-8")
    assert "No failing answers" in browser.dom(page)
    assert len(browser.picture(page, tmp_path / "empty.png", 900, 700).colours()) > 20
