"""A page of a headless Chromium that can be looked at and clicked: its DevTools protocol over a pair of pipes."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from tests.e2e.browser import FLAGS, program

_READ, _WRITE = 3, 4
"""File descriptors on which Chromium expects the protocol."""
_SECONDS = 60


@dataclass
class Tab:
    """One page. Expressions are JavaScript; what is awaited becomes true within a minute or is an AssertionError."""

    _to: IO[bytes]
    _from: IO[bytes]
    _session: str = ""
    _number: int = 0

    def open(self, url: str, shows: str) -> None:
        """Load `url` and wait until the expression `shows` is true."""
        self._call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")
        self.wait(shows)

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression (what JSON can hold)."""
        given = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        reply = self._call("Runtime.evaluate", **given)
        assert "exceptionDetails" not in reply, f"{expression}: {reply['exceptionDetails']}"
        return reply["result"].get("value")

    def wait(self, shows: str) -> None:
        """Wait until the expression is true."""
        deadline = time.monotonic() + _SECONDS
        while not self.evaluate(f"Boolean({shows})"):
            assert time.monotonic() < deadline, f"not so: {shows}\n{self.evaluate('document.body?.innerText')}"[:3000]
            time.sleep(0.1)

    def click(self, element: str) -> None:
        """Click in the middle of the element that the expression gives."""
        x, y = self._middle(element)
        for type in ("mouseMoved", "mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=type, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str, code: str = "", *, ctrl: bool = False, shift: bool = False) -> None:
        """Press and release a key: its value and its place, for example `a` and `KeyA`."""
        place = code or (f"Digit{key}" if key.isdigit() else f"Key{key.upper()}" if len(key) == 1 else key)
        text = {} if ctrl or len(key) > 1 else {"text": key}
        number = 13 if key == "Enter" else ord(key.upper()) if len(key) == 1 else 27
        held = {"modifiers": 2 * ctrl + 8 * shift, "windowsVirtualKeyCode": number}
        self._call("Input.dispatchKeyEvent", type="keyDown", key=key, code=place, **held, **text)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key, code=place, **held)

    def always(self, script: str) -> None:
        """Run a script in every page from now on, before the scripts of the page."""
        self._call("Page.addScriptToEvaluateOnNewDocument", source=script)

    def resize(self, width: int, height: int) -> None:
        """Show the page as a telephone with a screen of this size would."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=True)

    def drag(self, element: str, by: int) -> None:
        """Move the element by so many pixels to the right."""
        x, y = self._middle(element)
        for type, to in (("mousePressed", x), ("mouseMoved", x + by), ("mouseReleased", x + by)):
            self._call("Input.dispatchMouseEvent", type=type, x=to, y=y, button="left", buttons=1, clickCount=1)

    def picture(self, image: Path, height: int | None = None) -> None:
        """Write what the window shows as PNG; the upper part of the page when a height (pixels) is given."""
        more: dict[str, Any] = {}
        if height:
            width = self.evaluate("innerWidth")
            more = {
                "clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1},
                "captureBeyondViewport": True,
            }
        image.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", format="png", **more)["data"]))

    def attach(self) -> None:
        """Take hold of the first page of the browser."""
        pages = [one for one in self._call("Target.getTargets")["targetInfos"] if one["type"] == "page"]
        self._session = self._call("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)["sessionId"]
        self._call("Page.enable")

    def _middle(self, element: str) -> tuple[float, float]:
        self.wait(f"document.readyState === 'complete' && {element}")  # the layout moves while the page loads
        x, y = self.evaluate(
            f"(e => {{ e.scrollIntoView({{block: 'nearest'}}); const box = e.getBoundingClientRect();"
            f" return [box.x + box.width / 2, box.y + box.height / 2] }})({element})"
        )
        return x, y

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._to.write(json.dumps(message).encode() + b"\0")
        self._to.flush()
        while True:
            reply = json.loads(self._message())
            if reply.get("id") == self._number:
                assert "error" not in reply, f"{method}: {reply['error']}"
                return cast("dict[str, Any]", reply["result"])

    def _message(self) -> bytes:
        parts: list[bytes] = []
        while (byte := self._from.read(1)) not in (b"\0", b""):
            parts.append(byte)
        assert byte, "the browser has ended"
        return b"".join(parts)


@contextmanager
def open_tab(profile: Path, width: int, height: int, *flags: str) -> Iterator[Tab]:
    """Run Chromium with a window of this size; it ends with the context."""
    there, to = os.pipe()
    back, answer = os.pipe()

    def arrange() -> None:  # in the child: the two ends under the numbers that Chromium expects
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (there, answer)]
        for number, end in zip((_READ, _WRITE), ends, strict=True):
            os.dup2(end, number)

    size = f"--window-size={width},{height}"
    command = [program(), *FLAGS, "--remote-debugging-pipe", f"--user-data-dir={profile}", size, *flags, "about:blank"]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, close_fds=False, preexec_fn=arrange
    )
    os.close(there)
    os.close(answer)
    with os.fdopen(to, "wb") as commands, os.fdopen(back, "rb") as replies:
        try:
            tab = Tab(commands, replies)
            tab.attach()
            yield tab
        finally:
            process.terminate()
            process.wait(20)
