"""The guide for instrumentors holds as it stands: its instrumentor and its tests run on a library made for it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "write-an-instrumentor.md"
LIBRARY = """
from dataclasses import dataclass
from itertools import count

ids = count()


@dataclass
class Record:
    id: str
    text: str
    score: float = 1.0


class Memory:
    def __init__(self, user):
        self.user, self.records = user, []

    def add(self, text):
        if not text:
            raise ValueError("nothing to remember")
        self.records.append(Record(f"r{next(ids)}", text))
        return self.records[-1]

    def search(self, query):
        words = {*query.lower().split()}
        return [record for record in self.records if words & {*record.text.lower().split()}]

    def close(self):
        self.records.clear()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The library as it would be installed, and the files of the guide."""
    (tmp_path / "shelf").mkdir()
    (tmp_path / "shelf" / "__init__.py").touch()
    (tmp_path / "shelf" / "memory.py").write_text(LIBRARY)
    installed = tmp_path / "shelf-2.1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf\nVersion: 2.1\n")
    entry = re.search(r"`(\[project\.entry-points\.(\w+)\] (\w+) = )\"", GUIDE.read_text("utf-8"))
    assert entry
    (installed / "entry_points.txt").write_text(f"[{entry[2]}]\n{entry[3]} = shelf_instrumentor:ShelfInstrumentor\n")
    for name, code in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL):
        (tmp_path / name).write_text(code)
    return tmp_path


def test_the_instrumentor_of_the_guide_keeps_the_contract(project: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", "test_shelf.py"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
