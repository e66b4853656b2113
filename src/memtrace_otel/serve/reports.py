"""`GET /report/TRACE_ID`: the report on one trace, for a link in a backend's page.

`memtrace-otel report` makes it in a process of its own: what a large memory needs is not taken from the receiver. One
is made at a time.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
from pathlib import Path

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from memtrace_otel.hosts import is_own_name

_logger = logging.getLogger(__name__)
_SECONDS = 60
_ERROR_BYTES = 2000
"""Of what the process that makes a report says last."""
_WAITING = 8
"""Requests that may wait for their turn."""
_UNKNOWN = "memtrace-otel: no such trace"
_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}


class Reports:
    """Makes reports from `database`."""

    def __init__(self, database: Path, token: str) -> None:
        self._database = database
        self._token = token
        self._turn = asyncio.Semaphore(1)
        self._waiting = 0

    def route(self) -> Route:
        """Return the route of the endpoint."""
        return Route("/report/{trace_id}", self._report)

    async def _report(self, request: Request) -> Response:
        trace_id: str = request.path_params["trace_id"]
        if not is_by_own_name(request, self._token):
            return not_by_this_name()
        if len(trace_id) != 32 or not set(trace_id) <= set("0123456789abcdef"):
            return _text("a trace id is 32 hex digits\n", 404)
        if self._waiting >= _WAITING:
            return _text("other reports are being made\n", 503)
        self._waiting += 1
        try:
            async with self._turn:
                return await self._made(trace_id)
        finally:
            self._waiting -= 1

    async def _made(self, trace_id: str) -> Response:
        with tempfile.TemporaryDirectory() as folder:
            file, said = Path(folder) / "report.html", Path(folder) / "said"
            with said.open("wb") as errors:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", "memtrace_otel.cli", "report", trace_id),
                    *("--db", str(self._database), "--output", str(file), "--title", "Memory failures"),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=errors,
                )
            try:
                await asyncio.wait_for(process.wait(), _SECONDS)
            except TimeoutError:
                return _text(f"no report within {_SECONDS} s: try `memtrace-otel report {trace_id}`\n", 503)
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            if not file.exists():
                error = _end(said)
                if _UNKNOWN in error:
                    return _text(f"no trace {trace_id} here\n", 404)
                _logger.warning("no report on trace %s (status %d): %s", trace_id, process.returncode, error)
                return _text("the report could not be made: the log of the server says why\n", 500)
            return HTMLResponse(await asyncio.to_thread(file.read_bytes), headers=_HEADERS)


def is_by_own_name(request: Request, token: str) -> bool:
    """Tell whether a request bears the token or a loopback name."""
    return bool(token) or is_own_name(request.headers.get("host", ""))


def not_by_this_name() -> Response:
    """Return the answer to any other request."""
    return _text("not by this name\n", 403)


def _end(file: Path) -> str:
    with file.open("rb") as said:
        said.seek(max(0, file.stat().st_size - _ERROR_BYTES))
        return said.read().decode("utf-8", "replace").strip()


def _text(text: str, status: int) -> Response:
    return PlainTextResponse(text, status, _HEADERS)
