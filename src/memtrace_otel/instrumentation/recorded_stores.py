"""Stores of one library inside a memory system that is instrumented itself."""

from __future__ import annotations

from contextvars import ContextVar

RECORDED: ContextVar[bool] = ContextVar("memtrace_store_is_recorded", default=False)
"""Whether a memory system is at work here that records what it does with its store: those of the store leave it to it.
Carried by the steps of the memory system."""
