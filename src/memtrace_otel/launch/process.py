"""Run a program with the same standard streams, signals and exit status as without the launcher."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import FrameType

_FORWARDED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
_OF_THE_KEYBOARD = ("SIGINT", "SIGQUIT")


def run_process(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run `command` to its end and return its status as in `subprocess`: negative if a signal killed the program.

    Signals to this process are forwarded, except signals of the keyboard: the terminal sends these to both processes.
    """
    waiting: list[int] = []  # signals that arrived before the start of the program
    program: subprocess.Popen[bytes] | None = None

    def forward(number: int, frame: FrameType | None) -> None:
        if program is None:
            waiting.append(number)
        elif not (signal.Signals(number).name in _OF_THE_KEYBOARD and _in_foreground()):
            program.send_signal(number)

    numbers = [signal.Signals[name] for name in _FORWARDED if hasattr(signal, name)]
    # Ignored signals (nohup, a background job of a shell) stay ignored: the program inherits this.
    before = {number: signal.getsignal(number) for number in numbers}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, forward)
    try:
        program = subprocess.Popen(command, env=dict(environ))
        for number in waiting:
            program.send_signal(number)
        return program.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def replace_process(command: Sequence[str], environ: Mapping[str, str]) -> None:
    """Replace this process by `command`; does not return."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvpe(command[0], list(command), dict(environ))


def leave_like(status: int) -> None:
    """End this process with the exit status of the program, or by the signal that killed the program."""
    if status < 0:
        if hasattr(signal, "SIGKILL") and -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        _forbid_core()
        os.kill(os.getpid(), -status)
    sys.exit(status)


def _in_foreground() -> bool:
    """Whether this process is in the foreground job of a terminal, which receives the signals of the keyboard."""
    try:
        with open("/dev/tty", "rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except (OSError, AttributeError):
        return False


def _forbid_core() -> None:
    """Forbid a core file of this process: the program has written its own."""
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
