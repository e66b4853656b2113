"""Run a program so that nobody notices who started it: same standard streams, signals and exit status."""

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
    """Run `command` to its end and return its status as `subprocess` gives it: negative when a signal killed it.

    Signals sent to this process go on to the program; those of the keyboard reach it by themselves, as the terminal
    sends them to both.
    """
    waiting: list[int] = []  # came before the program was there
    program: subprocess.Popen[bytes] | None = None

    def forward(number: int, frame: FrameType | None) -> None:
        if program is None:
            waiting.append(number)
        elif not (signal.Signals(number).name in _OF_THE_KEYBOARD and _in_foreground()):
            program.send_signal(number)

    numbers = [signal.Signals[name] for name in _FORWARDED if hasattr(signal, name)]
    # What is ignored (nohup, a shell's background job) stays so: the program inherits it.
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
    """Become `command`; does not return."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvpe(command[0], list(command), dict(environ))


def leave_like(status: int) -> None:
    """End this process as the program ended: with its exit status, or by the signal that killed it."""
    if status < 0:
        if hasattr(signal, "SIGKILL") and -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        _forbid_core()
        os.kill(os.getpid(), -status)
    sys.exit(status)


def _in_foreground() -> bool:
    """Tell whether this process belongs to the foreground job of a terminal, to which the keyboard's signals go."""
    try:
        with open("/dev/tty", "rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except (OSError, AttributeError):
        return False


def _forbid_core() -> None:
    """The program has written its core, if any; this process would write a second one."""
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
