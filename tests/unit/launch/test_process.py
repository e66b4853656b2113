"""Nobody notices who started the program: streams, signals, exit status, terminal."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time

import pytest

RUN = """
import os, sys
from memtrace_otel.launch import leave_like, run_process
leave_like(run_process(sys.argv[1:], os.environ))
"""
SAY_SIGNALS = """
import signal, sys, time
count = 0
def told(number, frame):
    global count
    count += 1
    print(signal.Signals(number).name, flush=True)
for name in sys.argv[1:]:
    signal.signal(getattr(signal, name), told)
print("ready", flush=True)
end = time.monotonic() + 20
while not count and time.monotonic() < end:
    time.sleep(0.01)
time.sleep(0.3)  # a second one would come now
sys.exit(40 + count)
"""


def runner(*command: str) -> list[str]:
    return [sys.executable, "-c", RUN, *command]


def program(code: str, *arguments: str) -> list[str]:
    return runner(sys.executable, "-c", code, *arguments)


@pytest.mark.parametrize("status", [0, 1, 2, 77, 255])
def test_streams_and_exit_status_pass_through(status: int) -> None:
    code = "import sys; print(sys.stdin.read()[::-1]); print('e', file=sys.stderr); sys.exit(int(sys.argv[1]))"
    done = subprocess.run(program(code, str(status)), input="abc", capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (status, "cba\n", "e\n")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL", "SIGSEGV", "SIGINT"])
def test_a_program_killed_by_a_signal_shows_as_such(name: str) -> None:
    code = f"import os, signal; signal.signal(signal.SIGINT, signal.SIG_DFL); os.kill(os.getpid(), signal.{name})"
    assert subprocess.run(program(code), capture_output=True).returncode == -signal.Signals[name]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"])
def test_signals_reach_the_program_once(name: str) -> None:
    number = signal.Signals[name]
    before = signal.signal(number, signal.SIG_DFL)  # tests started with nohup or `&` ignore some of them
    process = subprocess.Popen(program(SAY_SIGNALS, name), stdout=subprocess.PIPE, text=True, start_new_session=True)
    signal.signal(number, before)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.stdout.read() == f"{name}\n"
    assert process.returncode == 41


def test_an_ignored_signal_stays_ignored() -> None:
    code = "import signal; print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)"
    nohup = "import signal, os, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    done = subprocess.run([sys.executable, "-c", nohup, *program(code)], capture_output=True, text=True)
    assert done.stdout == "True\n"


def test_control_c_on_a_terminal_reaches_the_program_once() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, program(SAY_SIGNALS, "SIGINT"))
    said = b""
    while b"ready" not in said:
        said += os.read(terminal, 1000)
    os.write(terminal, b"\x03")
    deadline = time.monotonic() + 20
    while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(ended[1]) == 41
