"""Writes the tables of docs/reference/semantic-conventions.md from the registry beside this file.

    python docs/reference/registry/tables.py

The prose of the page is written by hand; what stands between `<!-- registry: NAME -->` and `<!-- end -->` is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
PAGE = HERE.parent / "semantic-conventions.md"
_BLOCK = re.compile(r"(<!-- registry: ([\w. -]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def read_registry() -> dict[str, list[dict[str, Any]]]:
    """Return the sections (`attributes`, `spans`, ...) of all definition files, put together."""
    sections: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(HERE.glob("*.yaml")):
        if path.name != "manifest.yaml":
            for name, entries in yaml.safe_load(path.read_text()).items():
                if isinstance(entries, list):
                    sections.setdefault(name, []).extend(entries)
    return sections


def attributes_of(refs: Iterable[Mapping[str, Any]], registry: Mapping[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Return the requirement level of every attribute that a list of references names, groups opened."""
    groups = {group["id"]: group for group in registry["attribute_groups"]}
    found: dict[str, Any] = {}
    for ref in refs:
        if "ref_group" in ref:
            found |= attributes_of(groups[ref["ref_group"]]["attributes"], registry)
        else:
            found[ref["ref"]] = ref.get("requirement_level", "recommended")
    return found


def render(page: str, registry: Mapping[str, list[dict[str, Any]]]) -> str:
    """Return the page with every block written anew."""

    def write(match: re.Match[str]) -> str:
        kind, _, argument = match[2].partition(" ")
        return match[1] + "\n" + "\n".join(_WRITERS[kind](registry, argument)) + "\n\n" + match[3]

    return _BLOCK.sub(write, page)


def _attributes(registry: Mapping[str, list[dict[str, Any]]], group: str) -> list[str]:
    """Name, type and meaning of the attributes of a group, or of those that begin with `group`."""
    defined = {attribute["key"]: attribute for attribute in registry["attributes"]}
    groups = {entry["id"]: entry for entry in registry["attribute_groups"]}
    levels = attributes_of(groups[group]["attributes"], registry) if group in groups else None
    rows = ["| attribute | type | needed | meaning |", "|---|---|---|---|"]
    for key in levels if levels is not None else (k for k in defined if k.startswith(group)):
        if key not in defined:
            continue  # a standard attribute: the GenAI conventions describe it
        attribute = defined[key]
        enum = isinstance(attribute["type"], dict)
        text = " ".join(part.strip() for part in (attribute["brief"], attribute.get("note", "")) if part)
        needed = _level(levels[key]) if levels is not None else ""
        rows.append(f"| `{key}` | {'enum' if enum else attribute['type']} | {needed} | {_cell(text)} |")
    return rows if levels is not None else [re.sub(r"^(\|[^|]*\|[^|]*\|)[^|]*\|", r"\1", row) for row in rows]


def _level(level: Any) -> str:
    if isinstance(level, str):
        return level.replace("_", "-")
    ((_, condition),) = level.items()
    return _cell(condition)


def _values(registry: Mapping[str, list[dict[str, Any]]], key: str) -> list[str]:
    """The values that an attribute, or the elements of an array, may have."""
    (attribute,) = (entry for entry in registry["attributes"] if entry["key"] == key)
    members = (
        attribute["type"]["members"]
        if isinstance(attribute["type"], dict)
        else attribute["annotations"]["memtrace"]["elements"]
    )
    return ["| value | meaning |", "|---|---|", *(f"| `{m['value']}` | {_cell(m['brief'])} |" for m in members)]


def _spans(registry: Mapping[str, list[dict[str, Any]]], _: str) -> list[str]:
    rows = ["| span | name | meaning |", "|---|---|---|"]
    for span in registry["spans"]:
        text = f"{span['brief']} {span.get('note', '')}"
        rows.append(f"| {span['type']} | {_cell(span['name']['note'])} | {_cell(text)} |")
    return rows


def _systems(registry: Mapping[str, list[dict[str, Any]]], _: str) -> list[str]:
    return [
        "| span of the conventions | written for | note |",
        "|---|---|---|",
        *(
            f"| `{entry['ref']}` | {_cell(entry['brief'])} | {_cell(entry.get('note', ''))} |"
            for entry in registry["span_refinements"]
        ),
    ]


def _events(registry: Mapping[str, list[dict[str, Any]]], _: str) -> list[str]:
    rows = ["| event | meaning | attributes |", "|---|---|---|"]
    for entry in [*registry["events"], *registry["event_refinements"]]:
        keys = ", ".join(f"`{key}`" for key in attributes_of(entry.get("attributes", ()), registry))
        text = f"{entry['brief']} {entry.get('note', '')}"
        rows.append(f"| `{entry.get('name', entry.get('ref'))}` | {_cell(text)} | {keys} |")
    return rows


def _metrics(registry: Mapping[str, list[dict[str, Any]]], _: str) -> list[str]:
    rows = ["| metric | instrument | unit | meaning | attributes |", "|---|---|---|---|---|"]
    for entry in [*registry["metrics"], *registry["metric_refinements"]]:
        keys = ", ".join(f"`{key}`" for key in attributes_of(entry.get("attributes", ()), registry))
        form = f"{entry.get('instrument', 'histogram')} | {entry.get('unit', 's')}"
        rows.append(f"| `{entry.get('name', entry.get('ref'))}` | {form} | {_cell(entry['brief'])} | {keys} |")
    return rows


_WRITERS = {
    "attributes": _attributes,
    "values": _values,
    "spans": _spans,
    "systems": _systems,
    "events": _events,
    "metrics": _metrics,
}


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(), read_registry()))
