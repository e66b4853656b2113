"""Where stores and checkpointers keep what they hold: in memory, alone with their object, or elsewhere."""

from __future__ import annotations

import sys
from typing import Any

_IN_MEMORY = (("langgraph.store.memory", "InMemoryStore"), ("langgraph.checkpoint.memory", "InMemorySaver"))


def in_memory(holder: Any) -> bool:
    """Whether it is one of LangGraph's own in-memory classes or derived from one; imports nothing."""
    classes = (getattr(sys.modules.get(module), name, None) for module, name in _IN_MEMORY)
    return any(isinstance(made, type) and isinstance(holder, made) for made in classes)
