"""axe-core in a real browser finds no serious fault of accessibility on any page, light and dark."""

from __future__ import annotations

import json
from importlib.metadata import files
from pathlib import Path

import pytest

from tests.e2e.tab import open_tab
from tests.e2e.test_ui_in_browser import DARK, address, database, log_in

__all__ = ["address", "database"]  # fixtures

FOUND = """axe.run(document, {resultTypes: ['violations']}).then(result => result.violations
    .filter(one => ['serious', 'critical'].includes(one.impact))
    .map(one => [one.id, one.nodes.length, one.nodes[0].html.slice(0, 200), one.nodes[0].failureSummary]))"""


def axe() -> str:
    """Return the script of axe-core, which the package `axe-core-python` holds."""
    found = next(file for file in files("axe-core-python") or () if file.name == "axe.min.js")
    return found.read_text("utf-8")


@pytest.mark.parametrize("flags", [(), (DARK,)], ids=["light", "dark"])
def test_no_page_has_a_serious_fault_of_accessibility(address: str, tmp_path: Path, flags: tuple[str, ...]) -> None:
    script = axe()
    with open_tab(tmp_path / "profile", 1280, 900, *flags) as tab:
        log_in(tab, address, "looker")
        tab.open(f"{address}/failures", "document.querySelector('ol.list a')")
        answer = tab.evaluate("document.querySelector('ol.list a').pathname")
        scope = "/memory/0000000000000000"
        tab.open(f"{address}{scope}", "document.querySelector('.plain a')")
        record = tab.evaluate("(a => a.pathname + a.search)(document.querySelector('.plain a'))")
        lists = [
            "/failures",
            "/failures?view=cause",
            "/memories",
            "/health",
            "/review",
            "/audit",
            "/login",
            "/memory/none",
        ]
        review = answer.replace("failure", "review")
        faults: dict[str, object] = {}
        for path in [*lists, answer, scope, f"{scope}/health", record, review]:
            tab.open(f"{address}{path}", "document.querySelector('h1')")
            tab.evaluate(f"{script}; undefined")
            if found := tab.evaluate(FOUND):
                faults[path] = found
        assert faults == {}, json.dumps(faults, indent=1)
