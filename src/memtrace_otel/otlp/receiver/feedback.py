"""`POST /v1/feedback`: a JSON object as the trace request that it stands for."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

from memtrace_otel.otlp.feedback import FeedbackError, Text, as_given, encode_feedback
from memtrace_otel.otlp.receiver.intake import RequestError, TooLargeError

_TEXTS = frozenset({"trace_id", "label", "expected", "explanation", "name", "time"})
_SCORE = "score"
_BODY_BYTES = 1 << 18


def read_feedback(body: bytes, described: Callable[[str], Text] = as_given) -> bytes:
    """Return the trace request of feedback, fields as in `encode_feedback`; null is as good as no field.

    Raises RequestError.
    """
    if len(body) > _BODY_BYTES:
        raise TooLargeError(f"the feedback is larger than {_BODY_BYTES} bytes")
    try:
        document: object = json.loads(body)
    except (ValueError, RecursionError):
        raise RequestError("not JSON, cut off, or nested too deeply") from None
    if not isinstance(document, dict):
        raise RequestError("not feedback: no JSON object")
    given = {name: value for name, value in cast("dict[str, Any]", document).items() if value is not None}
    if not given.keys() <= _TEXTS | {_SCORE}:
        raise RequestError(f"feedback has no fields but {', '.join(sorted(_TEXTS | {_SCORE}))}")
    if "trace_id" not in given:
        raise RequestError("feedback needs a trace_id")
    for name, value in given.items():
        if name == _SCORE and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise RequestError("the score must be a number")
        if name != _SCORE and not isinstance(value, str):
            raise RequestError(f"{name} must be a string")
    try:
        return encode_feedback(**given, described=described)
    except FeedbackError as error:
        raise RequestError(str(error)) from None
