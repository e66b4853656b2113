"""Who a message of an earlier call is. No Mem0 needed."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime

from memtrace_otel.instrumentation.mem0.earlier_messages import EarlierMessages
from memtrace_otel.instrumentation.mem0.variables import Turn

ANN = "of ann", "session"
YES = Turn("message:told", "Yes.")


def shown(messages: EarlierMessages) -> str:
    """Ref of a message that the store has from now."""
    (turn,) = messages.find(ANN, [{"role": "user", "content": "Yes.", "created_at": datetime.now(UTC).isoformat()}])
    return turn.ref


def test_a_message_that_was_not_saved_is_no_later_one() -> None:
    messages = EarlierMessages()
    messages.save(ANN, [YES])  # and Mem0 raises
    assert shown(messages) != YES.ref


def test_a_message_saved_after_one_that_was_not_is_itself() -> None:
    messages = EarlierMessages()
    messages.save(ANN, [Turn("message:failed", "Yes.")])
    saved = messages.save(ANN, [YES])
    time = datetime.now(UTC)
    saved.ended = datetime.now(UTC)
    (turn,) = messages.find(ANN, [{"role": "user", "content": "Yes.", "created_at": time.isoformat()}])
    assert turn.ref == YES.ref


def test_long_calls_take_little_memory() -> None:
    messages = EarlierMessages()
    tracemalloc.start()
    try:
        messages.save(ANN, [Turn(f"message:{number}", f"I saw film {number}.") for number in range(10_000)])
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()
