"""The peer's equivalents, in a graph and a session of its own, as its documentation shows it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from smartcomment import comment_fn, comment_graph, comment_op, comment_session, setup_logger

setup_logger("CRITICAL")

__all__ = ["comment_fn", "comment_op", "recording"]


@contextmanager
def recording() -> Iterator[None]:
    """A graph that is being recorded; it is let go at the end, since the peer can let go of nothing before."""
    with comment_graph(), comment_session(session_name="bench"):
        yield
