"""A real headless Chromium: the page as it became, and a picture of it."""

from __future__ import annotations

import shutil
import struct
import subprocess
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

_NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--allow-pre-commit-input",  # else input before the first paint of a page is dropped
)
_SECONDS = 90
Pixel = tuple[int, int, int]


@dataclass(frozen=True)
class Browser:
    """Runs Chromium once per call, with a profile of its own."""

    program: str
    profile: Path

    def dom(self, page: Path, *flags: str) -> str:
        """Return the serialised document after loading."""
        return self._run(page, "--dump-dom", *flags).decode("utf-8")

    def picture(self, page: Path, image: Path, width: int, height: int, *flags: str) -> Picture:
        """Return what a window of this size shows."""
        self._run(page, f"--window-size={width},{height}", f"--screenshot={image}", *flags)
        return read_png(image.read_bytes())

    def _run(self, page: Path, *flags: str) -> bytes:
        command = [self.program, *FLAGS, f"--user-data-dir={self.profile}", *flags, page.as_uri()]
        done = subprocess.run(command, capture_output=True, timeout=_SECONDS)
        assert done.returncode == 0, done.stderr.decode("utf-8", "replace")[-2000:]
        return done.stdout


def find_browser(profile: Path) -> Browser:
    """Return the installed Chromium; a machine without one fails the tests, it does not skip them."""
    return Browser(program(), profile)


def program() -> str:
    """Return the path of the installed Chromium."""
    found = next((found for name in _NAMES if (found := shutil.which(name))), None)
    assert found, "no Chromium on PATH: run `scripts/backends install chromium`"
    return found


@dataclass(frozen=True)
class Picture:
    """Pixels of a screenshot, row by row."""

    width: int
    height: int
    rows: list[list[Pixel]]

    def colours(self) -> Counter[Pixel]:
        """How often each colour occurs."""
        return Counter(pixel for row in self.rows for pixel in row)


def read_png(data: bytes) -> Picture:
    """Decode a PNG of 8 bits per channel, RGB or RGBA, not interlaced: what Chromium writes."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks: dict[bytes, bytes] = {}
    place = 8
    while place < len(data):
        size, kind = struct.unpack_from(">I4s", data, place)
        chunks[kind] = chunks.get(kind, b"") + data[place + 8 : place + 8 + size]
        place += 12 + size
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (depth, colour in (2, 6), interlaced) == (8, True, 0)
    step = 3 if colour == 2 else 4
    raw, stride = zlib.decompress(chunks[b"IDAT"]), width * step
    before, rows = bytearray(stride), []
    for start in range(0, height * (stride + 1), stride + 1):
        line = bytearray(raw[start + 1 : start + 1 + stride])
        _unfilter(raw[start], line, before, step)
        rows.append([(line[x], line[x + 1], line[x + 2]) for x in range(0, stride, step)])
        before = line
    return Picture(width, height, rows)


def _unfilter(kind: int, line: bytearray, above: bytearray, step: int) -> None:
    for x in range(len(line)):
        left = line[x - step] if x >= step else 0
        corner = above[x - step] if x >= step else 0
        if kind == 1:
            line[x] = (line[x] + left) & 255
        elif kind == 2:
            line[x] = (line[x] + above[x]) & 255
        elif kind == 3:
            line[x] = (line[x] + (left + above[x]) // 2) & 255
        elif kind == 4:
            near = min((left, above[x], corner), key=lambda value: abs(left + above[x] - corner - value))
            line[x] = (line[x] + near) & 255
