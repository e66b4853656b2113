"""A background process as the server sees it: started, woken, restarted when it dies, and ended."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress

from memtrace_otel.serve.metrics import Metrics
from memtrace_otel.serve.progress import Process, Progress

_logger = logging.getLogger(__name__)
_RESTART_SECONDS = 1.0
_STOP_SECONDS = 10.0


class Child:
    """Runs the module of a background process, which ends when this process ends."""

    def __init__(self, name: Process, arguments: tuple[str, ...], metrics: Metrics) -> None:
        self._name = name
        self._arguments = arguments
        self._metrics = metrics
        self._stopping = False
        self._process = self._start()
        self._thread = threading.Thread(target=self._follow, name=f"memtrace-{name}", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Wake the process."""
        pipe = self._process.stdin
        assert pipe is not None
        with suppress(
            OSError, ValueError
        ):  # the pipe is full, or the process has ended; the next one starts with a step
            os.write(pipe.fileno(), b"\n")

    def stop(self) -> None:
        """Wait for the end of the present step, then end the process; its next work stays on disk."""
        self._stopping = True
        pipe = self._process.stdin
        assert pipe is not None
        try:
            pipe.close()
            self._process.wait(_STOP_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
        self._thread.join()

    def _start(self) -> subprocess.Popen[bytes]:
        # -P: a file of the working directory must not stand in for a module
        command = [sys.executable, "-P", "-m", f"memtrace_otel.serve.{self._name}", *self._arguments]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)  # a commit does not wait for a process that hangs
        return process

    def _follow(self) -> None:
        while True:
            pipe = self._process.stdout
            assert pipe is not None
            for line in pipe:
                try:
                    self._metrics.progressed(Progress.read(line))
                except (ValueError, KeyError, TypeError):
                    _logger.warning("the %s process wrote a line that is no report", self._name)
            status = self._process.wait()
            if self._stopping:
                return
            _logger.warning("the %s process ended (status %d) and is started again", self._name, status)
            self._metrics.restarted(self._name)
            time.sleep(_RESTART_SECONDS)
            if self._stopping:
                return
            try:
                self._process = self._start()
            except OSError as error:  # no memory or process left; the next round tries again
                _logger.warning("the %s process cannot be started: %s", self._name, error)
                continue
            if self._stopping:  # `stop` closed the pipe of the process before
                assert self._process.stdin is not None
                self._process.stdin.close()
