"""Write docs/reference/cases.md: the verdicts on the programs of ../shared/cases, at a fixed start and now.

    python ../shared/cases/run.py --product . --json build/cases.json
    python scripts/cases_page.py build/cases.json > build/cases.md && mv build/cases.md docs/reference/cases.md

The page itself keeps the column of the start; `--start` writes that column anew.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "cases.md"
ROW = re.compile(r"\| (\S+) \| (\d+) \| ([^|]*) \| ([^|]*) \| ([^|]*) \|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="JSON of run.py")
    parser.add_argument("--start", action="store_true", help="these results are the start")
    options = parser.parse_args()
    rows: dict[tuple[str, int], tuple[str, str]] = {}
    seen: dict[str, int] = {}
    for result in json.loads(options.results.read_text()):
        case = result["case"]
        seen[case] = seen.get(case, 0) + 1
        rows[case, seen[case]] = (result["kind"], result["status"].lower())
    page = "" if options.start else PAGE.read_text()
    start = {(case, int(number)): before for case, number, _, before, _ in ROW.findall(page)}
    right = {"start": 0, "now": 0}
    lines: list[str] = []
    for (case, number), (kind, now) in rows.items():
        before = start.get((case, number), now)
        right["start"] += before == "pass"
        right["now"] += now == "pass"
        lines.append(f"| {case} | {number} | {kind} | {before} | {now} |")
    print(f"""# Programs with a known right verdict

Each row is one failed answer of a small program, rebuilt from a public bug report (`../shared/cases`). The program runs
under observation, and `attribute` gives a verdict. `pass` means that type, operation and reason are right.

```sh
python ../shared/cases/run.py --product . --json build/cases.json
python scripts/cases_page.py build/cases.json > build/cases.md && mv build/cases.md docs/reference/cases.md
```

Right answers: {right["start"]} of {len(lines)} at the start of issue 30, {right["now"]} now.

| case | answer | kind | at the start | now |
|---|---|---|---|---|""")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
