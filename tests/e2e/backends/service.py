"""A program on loopback that a test starts, stops, kills and starts again; it never outlives the tests."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

ROOT = Path(__file__).parents[3]
RUNNING: list[Service] = []
"""What runs now: a test that fails shows their logs."""

_PATIENCE = 300
"""Seconds until a condition counts as never true: a busy machine fails no test."""
_TAIL = 3000
_PR_SET_PDEATHSIG = 1
_random = random.SystemRandom()
"""Tests seed `random`, and two processes of tests with one seed would take the same ports."""


class Service:
    """One program with fixed ports and data: it can be stopped or killed and started again, its log goes on."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        folder: Path,
        *,
        healthy: Callable[[], bool],
        environ: Mapping[str, str] | None = None,
        patience: float = 15,
    ) -> None:
        """Keep the log in `folder`; `healthy` tells whether it serves, and may raise OSError while it does not.

        `patience` is how many seconds it may take to end when it is asked to.
        """
        self.name, self.log = name, folder / f"{name}.log"
        self._command = [str(part) for part in command]
        self._environ = {**os.environ, **(environ or {})}
        self._healthy, self._patience = healthy, patience
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id; AssertionError when it does not run."""
        assert self._process is not None, f"{self.name} is not running"
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it is healthy; AssertionError with the end of its log otherwise."""
        assert self._process is None, f"{self.name} is running already"
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                env=self._environ,
                cwd=self.log.parent,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=_die_with_parent,
            )
        RUNNING.append(self)
        try:
            self._wait_until_healthy()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ask it to end and wait; kill it when it does not. Nothing happens when it does not run."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash does."""
        self._end(signal.SIGKILL)

    def tail(self) -> str:
        """Return the end of its log."""
        return self.log.read_text("utf-8", "replace")[-_TAIL:] if self.log.exists() else ""

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        RUNNING.remove(self)
        process.send_signal(how)
        try:
            process.wait(self._patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _wait_until_healthy(self) -> None:
        process, deadline = self._process, time.monotonic() + _PATIENCE
        assert process is not None
        while True:
            status = process.poll()
            assert status is None, f"{self.name} ended with status {status}; {self.log}:\n{self.tail()}"
            try:
                if self._healthy():
                    return
            except OSError:
                pass
            assert time.monotonic() < deadline, f"{self.name} is not healthy; {self.log}:\n{self.tail()}"
            time.sleep(0.1)


@contextmanager
def running(service: Service) -> Iterator[Service]:
    """Start the service and stop it at the end; the end of its log is shown where the test fails."""
    service.start()
    try:
        yield service
    except BaseException:
        print(f"--- log of {service.name}: {service.log}\n{service.tail()}")
        raise
    finally:
        service.stop()


def installed(name: str) -> Path:
    """Return where `scripts/backends` has put a program; one that is missing fails the test, it does not skip it."""
    found = subprocess.run([ROOT / "scripts" / "backends", "path", name], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    return Path(found.stdout.strip())


def ports_of(prefix: str, *names: str) -> tuple[dict[str, int], dict[str, str]]:
    """Return a free port per name, and the environment `{prefix}_{name}_PORT` that tells them."""
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    return ports, {f"{prefix}_{name}_PORT": str(port) for name, port in ports.items()}


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nobody listens on.

    They lie below the range from which the system takes ports of outgoing connections: a service that is stopped finds
    its port free when it starts again.
    """
    found: set[int] = set()
    while len(found) < count:
        port = _random.randrange(15_000, 32_000)
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.add(port)
    return list(found)


def answers(url: str) -> Callable[[], bool]:
    """Return a health check: `url` answers with status 200."""

    def check() -> bool:
        try:
            with urlopen(url, timeout=2) as reply:
                return reply.status == 200
        except URLError:
            return False

    return check


def listens(port: int) -> Callable[[], bool]:
    """Return a health check: somebody accepts connections on this port of loopback."""

    def check() -> bool:
        with socket.create_connection(("127.0.0.1", port), timeout=2):
            return True

    return check


def wait_for(holds: Callable[[], bool], what: str) -> None:
    """Wait until it holds; AssertionError after five minutes."""
    deadline = time.monotonic() + _PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"not within {_PATIENCE} s: {what}"
        time.sleep(0.1)


_libc = ctypes.CDLL(None)


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
