"""SIGTERM ends a program that does not handle it without any clean-up; what waits is saved first."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType


def save_before_sigterm(save: Callable[[], None], hurry: Callable[[], None]) -> bool:
    """Call `save` when SIGTERM is about to end the process, then let it end as it would have: by the signal.

    Only where the default action is in place and from the main thread; a handler of the application, set before or
    later, is left alone. A second SIGTERM ends the process at once. The first process of a container has no default
    action: the system spares it, so that it goes on and `hurry` is called instead. Returns whether the handler was set.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if os.getpid() == 1:
            hurry()
            return
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            save()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    if os.name != "posix" or threading.current_thread() is not threading.main_thread():
        return False
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return False
    signal.signal(signal.SIGTERM, handle)
    return True
