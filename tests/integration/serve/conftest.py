"""`memtrace-otel serve` as a process of its own, on free ports."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from memtrace_otel.serve.progress import Process
from memtrace_otel.sources import SqliteStore

Start = Callable[..., "Server"]


@dataclass
class Server:
    process: subprocess.Popen[str]
    database: Path
    grpc: str
    http: str

    def get(self, path: str) -> str:
        with urlopen(self.http + path, timeout=10) as reply:
            return reply.read().decode()

    def post(self, path: str, body: bytes, **headers: str) -> tuple[int, bytes, dict[str, str]]:
        """Return status, body and headers of the reply."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        request = Request(self.http + path, body, {"content-type": "application/x-protobuf", **names}, method="POST")
        try:
            with urlopen(request, timeout=30) as reply:
                return reply.status, reply.read(), {k.lower(): v for k, v in reply.headers.items()}
        except HTTPError as error:
            return error.code, error.read(), {k.lower(): v for k, v in error.headers.items()}

    def metric(self, name: str) -> float:
        lines = [line.split() for line in self.get("/metrics").splitlines()]
        return next(float(words[1]) for words in lines if words[0].startswith(f"memtrace_serve_{name}"))

    def restarts(self, process: Process) -> float:
        return self.metric(f'restarts_total{{process="{process}"}}')

    def until(self, condition: Callable[[], bool], seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "not within the time"
            time.sleep(0.05)

    def child(self, process: Process) -> int:
        """Return the process id of a background process."""
        found = subprocess.run(
            ["pgrep", "-P", str(self.process.pid), "-f", f"memtrace_otel.serve.{process}"],
            capture_output=True,
            check=True,
        )
        return int(found.stdout)

    @contextmanager
    def paused(self, process: Process) -> Iterator[None]:
        """Stop a background process for a while."""
        pid = self.child(process)
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def terminate(self) -> int:
        self.process.terminate()
        return self.process.wait(20)

    def errors(self) -> str:
        """Return the rest of standard error; the process has ended."""
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def span_ids(self) -> set[str]:
        """The spans in the file, what waits included."""
        with SqliteStore.open(self.database, create=False) as store:
            return {span.span_id for span in store.spans()}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start servers on `database`: arguments are options, keywords settings, `first` is code that Python runs before,
    `warnings` the lines before the line with the ports."""
    running: list[Server] = []

    def start(
        *options: str,
        database: Path = tmp_path / "spans.db",
        scheme: str = "http",
        first: str = "",
        warnings: int = 0,
        **environ: str,
    ) -> Server:
        program = f"{first}; from memtrace_otel.cli import main; main()"
        command = [sys.executable, *(("-c", program) if first else ("-m", "memtrace_otel.cli"))]
        command += ["serve", "--db", str(database)]
        command += ["--grpc-port", "0", "--http-port", "0", *options]
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "MEMTRACE_"))}
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**clean, **environ})
        assert process.stderr is not None
        *_, line = [process.stderr.readline() for _ in range(warnings + 1)]
        ports = re.findall(r" on \S+:(\d+)", line)
        assert len(ports) == 2, line + process.stderr.read()
        server = Server(process, database, f"localhost:{ports[0]}", f"{scheme}://localhost:{ports[1]}")
        running.append(server)
        return server

    yield start
    for server in running:
        server.process.kill()
        server.process.wait(10)
        assert server.process.stderr is not None
        server.process.stderr.close()
