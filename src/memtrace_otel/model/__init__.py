"""Plain frozen records that cross module borders. Imports nothing of ours outside this package."""

from memtrace_otel.model.attributed import DURATION_BUCKETS, OUTCOMES, Attributed
from memtrace_otel.model.evaluations import (
    answers_named,
    evaluation_problem,
    has_evaluation,
    has_failing_evaluation,
    is_failing,
    is_known_label,
    judged_traces,
    label_and_score,
)
from memtrace_otel.model.refs import (
    content_digest,
    content_digests,
    encoded_refs,
    is_origin,
    is_trace_id,
    is_unique,
    make_origin,
    make_ref,
    ref_kind,
    split_origin,
    split_ref,
)
from memtrace_otel.model.reviews import LABELS, Label, Review, Status, read_review
from memtrace_otel.model.spans import AttributeValue, Event, Link, OperationSpan, Variable
from memtrace_otel.model.times import parse_time, rfc3339
from memtrace_otel.model.verdict_log import StoredVerdict, VerdictLog
from memtrace_otel.model.verdicts import Alternative, Failure, ModelCall, Replay, Step, Verdict, attribution_id

__all__ = [
    "DURATION_BUCKETS",
    "LABELS",
    "OUTCOMES",
    "Alternative",
    "AttributeValue",
    "Attributed",
    "Event",
    "Failure",
    "Label",
    "Link",
    "ModelCall",
    "OperationSpan",
    "Replay",
    "Review",
    "Status",
    "Step",
    "StoredVerdict",
    "Variable",
    "Verdict",
    "VerdictLog",
    "answers_named",
    "attribution_id",
    "content_digest",
    "content_digests",
    "encoded_refs",
    "evaluation_problem",
    "has_evaluation",
    "has_failing_evaluation",
    "is_failing",
    "is_known_label",
    "is_origin",
    "is_trace_id",
    "is_unique",
    "judged_traces",
    "label_and_score",
    "make_origin",
    "make_ref",
    "parse_time",
    "read_review",
    "ref_kind",
    "rfc3339",
    "split_origin",
    "split_ref",
]
