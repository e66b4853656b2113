"""Lets something happen at every write that one piece of work makes, and looks at what is left each time.

    python -m tests.integration.sources.faults FAULT WORK FOLDER

The work is done once to count its writes. Then a child does it again for each of them, and with the fault `kill` dies
of SIGKILL before that write; with `torn` it dies in the middle of it, and with `full` no write succeeds from there on,
and the work has to say so (both at every fifth). Then the file is opened, has to be sound and to hold what was
acknowledged; the work is done again and has to end as if nothing had happened. Prints the outcome as JSON.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from tests.integration.sources.disk import before_each_write
from tests.integration.sources.works import WORKS, Work

Half = Callable[[], None]


def main(fault: str, name: str, folder: str) -> None:
    happen = FAULTS[fault]
    work, template = WORKS[name], Path(folder) / "template"
    template.mkdir()
    work.prepare(template / "a.db")
    writes = 0

    def count(_: Half) -> None:
        nonlocal writes
        writes += 1

    gc.freeze()  # what is here now is shared with every child
    path = copied(template)
    status, said = in_child(lambda say: (before_each_write(count), work.run(path, say), say(f"writes {writes}")))
    assert status == 0, said
    total = int(said[-1].removeprefix("writes "))
    expected = work.state(path)
    work.verify(path, said[:-1])
    faults = [
        f"{fault} at write {number} of {total}: {wrong}"
        for number in range(1, total + 1, STEPS[fault])
        if (wrong := wrong_after(number, happen, work, copied(template), expected))
    ]
    print(json.dumps({"writes": total, "faults": faults}))


def kill(half: Half) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def torn(half: Half) -> None:
    half()
    os.kill(os.getpid(), signal.SIGKILL)


def full(half: Half) -> None:
    raise OSError(errno.ENOSPC, "no space left")


FAULTS = {"kill": kill, "torn": torn, "full": full}
STEPS = {"kill": 1, "torn": 5, "full": 5}
"""Every write, or every fifth: neighbours are parts of one page, and the tests have to end."""


def wrong_after(number: int, happen: Callable[[Half], None], work: Work, path: Path, expected: object) -> str:
    """Return what is wrong when something happened from the `number`-th write on, '' when nothing is."""
    left = number

    def hook(half: Half) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            happen(half)

    status, said = in_child(lambda say: (before_each_write(hook), work.run(path, say)))
    if happen is full:
        # A write that is not needed for the answer (the log is copied when the file is closed) may fail unheard.
        if status != 0 and not said[-1].startswith(f"StoreError: {path}: "):
            return f"the refusal was {said[-1]}"
    elif status != -signal.SIGKILL:
        return f"the child ended with {status}: {said}"
    try:
        work.verify(path, said)
        work.run(path, lambda _: None)
        if (state := work.state(path)) != expected:
            return f"the work done again ends in {state}, not in {expected}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def in_child(task: Callable[[Callable[[str], None]], object]) -> tuple[int, list[str]]:
    """Run `task(say)` in a fork; return its exit status (negative: the signal) and what it said before it died."""
    reader, writer = os.pipe()

    def say(text: str) -> None:
        os.write(writer, f"{text}\n".encode())

    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            task(say)
            os._exit(0)
        except BaseException as error:
            say(f"{type(error).__name__}: {error}")
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read().splitlines()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said


def copied(template: Path) -> Path:
    """A fresh copy of the prepared files."""
    folder = template.parent / "copy"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(template, folder)
    return folder / "a.db"


if __name__ == "__main__":
    main(*sys.argv[1:])
