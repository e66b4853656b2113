"""What a forked child does first: locks that the parent's threads held are nobody's there."""

from __future__ import annotations

import os
from collections.abc import Callable


def after_fork(function: Callable[[], None]) -> Callable[[], None]:
    """Call `function` in every forked child from now on, in the order of these calls; also as a decorator."""
    if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
        os.register_at_fork(after_in_child=function)
    return function
