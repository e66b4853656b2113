"""Every span, attribute, link, event and metric name of the wire contract; the only place with literals.

Standard names come from the OpenTelemetry GenAI conventions (state: development, semantic-conventions-genai 1.42);
`memtrace.*` adds only what they lack: identity, flow, origin, scope, digest and verdict.
"""

from __future__ import annotations

from enum import StrEnum

WIRE_VERSION = "0.2"
SCHEMA_URL = "https://memtrace-otel.dev/schemas/0.2.0"
"""Schema of our instrumentation scopes: an identifier, never fetched."""

SCOPE_PREFIX = "memtrace_otel"
ATTRIBUTION_SCOPE = "memtrace_otel.attribution"
ATTRIBUTION_SERVICE = "memtrace-attribution"
CANARY_SERVICE = "memtrace-canary"
"""Service of the spans that `memtrace-otel canary` writes; alerts on failures leave it out."""
CANARY_SCOPE = "memtrace_otel.canary"
CANARY_SYSTEM = "canary"


class OpKind(StrEnum):
    """Values of `memtrace.op.kind`."""

    INGEST = "ingest"
    SEGMENT = "segment"
    EXTRACT = "extract"
    DECIDE = "decide"
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    CONSOLIDATE = "consolidate"
    INDEX = "index"
    RETRIEVE = "retrieve"
    RERANK = "rerank"
    ASSEMBLE = "assemble"
    RESPOND = "respond"
    JUDGE = "judge"
    OTHER = "other"


READING_KINDS = frozenset({OpKind.RETRIEVE, OpKind.RERANK, OpKind.ASSEMBLE, OpKind.RESPOND, OpKind.JUDGE})
"""Operations that write no memory."""
CHANGING_KINDS = frozenset(OpKind) - READING_KINDS
"""Operations that may change a record which others wrote: what a system calls ingestion, or an index, may update it."""


class RefKind(StrEnum):
    """Kinds of variables: the part of a ref before the colon."""

    MESSAGE = "message"
    QUERY = "query"
    DOCUMENT = "document"
    CHUNK = "chunk"
    FACT = "fact"
    MEMORY = "memory"
    STATE = "state"
    CONTEXT = "context"
    PROMPT = "prompt"
    COMPLETION = "completion"
    ANSWER = "answer"
    EXPECTED = "expected"


ROOT_KINDS = frozenset({RefKind.MESSAGE, RefKind.QUERY, RefKind.EXPECTED, RefKind.PROMPT, RefKind.DOCUMENT})
"""Kinds that come from outside: to have no origin is no gap in their lineage."""


class Role(StrEnum):
    """Part a variable plays in one operation."""

    MESSAGE = "message"
    QUERY = "query"
    HISTORY = "history"
    PROMPT = "prompt"
    PREVIOUS = "previous"
    CANDIDATE = "candidate"
    HIT = "hit"
    CONTEXT = "context"
    ANSWER = "answer"
    EXPECTED = "expected"
    EVIDENCE = "evidence"
    OTHER = "other"


class Action(StrEnum):
    """What an operation did to an output."""

    ADD = "ADD"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    NONE = "NONE"
    DERIVE = "DERIVE"


WRITING_ACTIONS = frozenset({Action.ADD, Action.UPDATE, Action.DELETE})
"""Actions that make a new version, whatever the operation."""


class LinkType(StrEnum):
    """Values of `memtrace.link.type`."""

    DERIVED_FROM = "derived_from"
    SUPERSEDES = "supersedes"
    RETRIEVED = "retrieved"
    CONSIDERED = "considered"
    EVALUATES = "evaluates"
    ATTRIBUTED_TO = "attributed_to"


class FailureType(StrEnum):
    """Values of `memtrace.failure.type`; the comment names the class of the published MemTrace taxonomy."""

    EXTRACTION = "extraction"  # ExtractionError
    UPDATE = "update"  # UpdateError
    DELETION = "deletion"  # DeletionError
    RETRIEVAL = "retrieval"  # RetrievalError
    RESPONSE = "response"  # ResponseError
    JUDGE = "judge"  # LLMAsAJudgeError
    ANNOTATION = "annotation"  # AnnotationError
    UNKNOWN = "unknown"


class ReplayOutcome(StrEnum):
    """Values of `memtrace.failure.replay`: what running again without the blamed fault showed."""

    VERIFIED = "verified"
    REFUTED = "refuted"
    NOT_REPRODUCIBLE = "not_reproducible"
    NOT_REPLAYABLE = "not_replayable"


class Incomplete(StrEnum):
    """Common values of `memtrace.incomplete`; other values are legal when read."""

    CONTENT_OFF = "content_off"
    TRUNCATED = "truncated"
    REDACTED = "redacted"  # written as `redacted:<rule>`: something was removed before a content left the process
    WITHHELD = "withheld"  # a content was not let out, because its redaction failed
    UNSERIALISABLE = "unserialisable"
    UNKNOWN_ORIGIN = "unknown_origin"
    UNKNOWN_TURN = "unknown_turn"  # an answer outside any span, after searches that nothing joins to their answers
    INFERRED = "inferred"  # some inputs were chosen among several that fit, by content
    BUDGET = "budget"  # variables past a limit were dropped, or not looked for
    GUARD = "guard"  # our own code failed while recording this operation
    # found while building a graph
    LOST_SPANS = "lost_spans"  # gaps in the sequence numbers of a process
    LOST_PARTS = "lost_parts"  # the span or a continuation of an operation is missing
    MISSING_OPERATION = "missing_operation"  # an origin names a span that is not there
    UNDECLARED_OUTPUT = "undeclared_output"  # an origin names a span that does not list the variable
    CONFLICT = "conflict"  # two contents under one span id
    BOUNDED = "bounded"  # the graph was cut at its size limit
    UNPARSED = "unparsed"  # the memory system could not read (part of) a model's reply and dropped it
    PENDING = "pending"  # the memory system has taken the input and works on it after its answer
    UNKNOWN_RECORD = "unknown_record"  # a model named a record that does not exist; its decision was dropped
    MALFORMED = "malformed"  # the span breaks the contract: ragged or wrongly typed arrays
    DROPPED = "dropped"  # the SDK dropped attributes or events of the span


# GenAI operation names of memory spans, by the kind of operation they stand for.
CREATE_MEMORY_STORE = "create_memory_store"
SEARCH_MEMORY = "search_memory"
CREATE_MEMORY = "create_memory"
UPDATE_MEMORY = "update_memory"
UPSERT_MEMORY = "upsert_memory"
DELETE_MEMORY = "delete_memory"
DELETE_MEMORY_STORE = "delete_memory_store"
CHAT = "chat"
RETRIEVAL = "retrieval"
EXECUTE_TOOL = "execute_tool"

KIND_OF_OPERATION: dict[str, OpKind] = {
    CREATE_MEMORY_STORE: OpKind.OTHER,
    SEARCH_MEMORY: OpKind.RETRIEVE,
    CREATE_MEMORY: OpKind.CREATE,
    UPDATE_MEMORY: OpKind.UPDATE,
    UPSERT_MEMORY: OpKind.INGEST,
    DELETE_MEMORY: OpKind.DELETE,
    DELETE_MEMORY_STORE: OpKind.DELETE,
    CHAT: OpKind.RESPOND,
    RETRIEVAL: OpKind.RETRIEVE,
}
"""Kind assumed for a GenAI span without `memtrace.op.kind` (another instrumentation wrote it)."""

SPAN_NAME_PREFIX = "memtrace."
"""Spans of inner steps that have no standard name are called `memtrace.<kind>`."""

# --- attributes of an operation span -----------------------------------------------------------------------------
OP_KIND = "memtrace.op.kind"
OP_PURPOSE = "memtrace.op.purpose"
"""What the memory system itself calls the operation, for example `message_buffer_update`."""
UPKEEP = "upkeep"
"""Purpose of a model call behind the reply to the user: a title, a summary, follow-up questions or notes."""
SYSTEM = "memtrace.system"
SCOPE = "memtrace.scope"
RECORD_OWNER = "memtrace.record.owner"
"""The one user or tenant that the metadata of all written records names, as 16 hex digits of a digest: a store of one
scope may hold records of several owners."""
OWNER_FIELDS = ("user_id", "agent_id", "run_id", "app_id")
"""Fields of Mem0 and of filters that name the owner of a memory; the first one given is the owner."""
SEQ = "memtrace.seq"
SEQ_BITS = 32
"""The lower bits of `memtrace.seq` count. Each process, also a forked one, draws those above, at most 21, so that
processes which share a resource have numbers of their own."""
PART = "memtrace.part"
INCOMPLETE = "memtrace.incomplete"
LOST = "memtrace.lost"
"""How many spans of its trace were dropped, on the span `memtrace.other` that tells of them (int)."""
EVIDENCE = "memtrace.evidence"
FLOW = "memtrace.flow"
EVENT_TIME = "memtrace.event.time"

INPUTS = "memtrace.inputs"
INPUTS_ROLES = "memtrace.inputs.roles"
INPUTS_ORIGINS = "memtrace.inputs.origins"
INPUTS_DIGESTS = "memtrace.inputs.digests"
INPUTS_CONTENTS = "memtrace.inputs.contents"
INPUTS_SCORES = "memtrace.inputs.scores"
INPUTS_STORES = "memtrace.inputs.stores"

OUTPUTS = "memtrace.outputs"
OUTPUTS_ROLES = "memtrace.outputs.roles"
OUTPUTS_ACTIONS = "memtrace.outputs.actions"
OUTPUTS_DIGESTS = "memtrace.outputs.digests"
OUTPUTS_SIZES = "memtrace.outputs.sizes"
OUTPUTS_CONTENTS = "memtrace.outputs.contents"
OUTPUTS_STORES = "memtrace.outputs.stores"

# --- carried over from an imported smartcomment graph ------------------------------------------------------------
SMARTCOMMENT_GRAPH_ID = "memtrace.smartcomment.graph_id"
SMARTCOMMENT_OP_ID = "memtrace.smartcomment.op_id"
SMARTCOMMENT_OP_NAME = "memtrace.smartcomment.op_name"
SMARTCOMMENT_CATEGORY = "memtrace.smartcomment.category"
SMARTCOMMENT_QUERY_ID = "memtrace.smartcomment.query_id"

# --- links -------------------------------------------------------------------------------------------------------
LINK_TYPE = "memtrace.link.type"
LINK_REFS = "memtrace.link.refs"

# --- standard attributes we write or read ------------------------------------------------------------------------
GEN_AI_OPERATION_NAME = "gen_ai.operation.name"
GEN_AI_PROVIDER_NAME = "gen_ai.provider.name"
GEN_AI_TOOL_NAME = "gen_ai.tool.name"
GEN_AI_TOOL_CALL_ARGUMENTS = "gen_ai.tool.call.arguments"
GEN_AI_TOOL_CALL_RESULT = "gen_ai.tool.call.result"
GEN_AI_REQUEST_MODEL = "gen_ai.request.model"
GEN_AI_RESPONSE_MODEL = "gen_ai.response.model"
GEN_AI_RESPONSE_ID = "gen_ai.response.id"
GEN_AI_USAGE_INPUT_TOKENS = "gen_ai.usage.input_tokens"
GEN_AI_USAGE_OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
GEN_AI_MEMORY_STORE_ID = "gen_ai.memory.store.id"
GEN_AI_MEMORY_RECORD_ID = "gen_ai.memory.record.id"
GEN_AI_MEMORY_RECORD_COUNT = "gen_ai.memory.record.count"
GEN_AI_MEMORY_QUERY_TEXT = "gen_ai.memory.query.text"
GEN_AI_MEMORY_RECORDS = "gen_ai.memory.records"
GEN_AI_RETRIEVAL_TOP_K = "gen_ai.retrieval.top_k"
GEN_AI_RETRIEVAL_QUERY_TEXT = "gen_ai.retrieval.query.text"
GEN_AI_RETRIEVAL_DOCUMENTS = "gen_ai.retrieval.documents"
GEN_AI_DATA_SOURCE_ID = "gen_ai.data_source.id"
CODE_FUNCTION_NAME = "code.function.name"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
ERROR_TYPE = "error.type"
SERVICE_NAME = "service.name"
SERVICE_VERSION = "service.version"
SERVICE_INSTANCE_ID = "service.instance.id"
PROCESS_PID = "process.pid"

# --- evaluation --------------------------------------------------------------------------------------------------
EVENT_NAME = "event.name"  # the attribute with the name of a log event in older OTLP, which has no field for the name
EVALUATION_EVENT = "gen_ai.evaluation.result"
EVALUATION_PREFIX = "gen_ai.evaluation."
EVALUATION_NAME = "gen_ai.evaluation.name"
EVALUATION_SCORE = "gen_ai.evaluation.score.value"
EVALUATION_LABEL = "gen_ai.evaluation.score.label"
EVALUATION_EXPLANATION = "gen_ai.evaluation.explanation"
USER_FEEDBACK = "user_feedback"
"""Name of the evaluation that feedback is, unless another one is given."""
FEEDBACK_SYSTEM = "feedback"

FAILING_LABELS = frozenset({"fail", "failed", "incorrect", "wrong", "not_relevant", "false", "negative", "thumbs_down"})
PASSING_LABELS = frozenset({"pass", "passed", "correct", "right", "relevant", "true", "positive", "thumbs_up"})

# --- the verdict -------------------------------------------------------------------------------------------------
UNUSED_SPAN = "memtrace.unused"  # at exit: the program imported a system, but called no recorded function
SUPPRESSED_SPAN = "memtrace.suppressed"  # at exit: calls were not recorded, since the program suppressed them
MARKER_SPAN = "memtrace.attribution"
ATTRIBUTION_ROOT_SPAN = "memtrace.attribute"
ATTRIBUTION_EVIDENCE_SPAN = "memtrace.evidence"
ATTRIBUTION_EVALUATION = "memtrace.attribution"
REVIEW_EVALUATION = "memtrace.review"
"""Name of the evaluation that a person's review is, and beginning of the attributes with its members."""
DECISIVE_STEP = "decisive"
"""Role of the attribution child that links to the decisive operation; the others have the role of their step."""

FAILURE_TYPE = "memtrace.failure.type"
FAILURE_TRACE_ID = "memtrace.failure.trace_id"
FAILURE_SPAN_ID = "memtrace.failure.span_id"
FAILURE_ANSWER = "memtrace.failure.answer"
FAILURE_WHEN = "memtrace.failure.when"
FAILURE_OPERATION = "memtrace.failure.operation"
FAILURE_VARIABLE = "memtrace.failure.variable"
FAILURE_CONFIDENCE = "memtrace.failure.confidence"
FAILURE_REASON = "memtrace.failure.reason"
FAILURE_ADVICE = "memtrace.failure.advice"
FAILURE_EVIDENCE = "memtrace.failure.evidence"
FAILURE_ALTERNATIVES = "memtrace.failure.alternatives"
FAILURE_COMPLETE = "memtrace.failure.complete"
FAILURE_REPLAY = "memtrace.failure.replay"
ATTRIBUTION_ID = "memtrace.attribution.id"
ATTRIBUTION_METHOD = "memtrace.attribution.method"
ATTRIBUTION_VERSION = "memtrace.attribution.version"
ATTRIBUTION_REPLACES = "memtrace.attribution.replaces"

STEP_POSITION = "memtrace.step.position"
STEP_ROLE = "memtrace.step.role"
STEP_REF = "memtrace.step.ref"
STEP_ORIGIN = "memtrace.step.origin"
STEP_NOTE = "memtrace.step.note"

OPENINFERENCE_SPAN_KIND = "openinference.span.kind"
OPENINFERENCE_ANNOTATION = "annotations.0.annotation"

METRIC_FAILURES = "memtrace.attribution.failures"
METRIC_INCOMPLETE = "memtrace.attribution.incomplete"
METRIC_REPLAYS = "memtrace.attribution.replays"
METRIC_DURATION = "memtrace.attribution.duration"
METRIC_RUNS = "memtrace.attribution.runs"
OUTCOME = "memtrace.attribution.outcome"

METRIC_CANARY_SUCCESS = "memtrace.canary.last_success"
METRIC_CANARY_DURATION = "memtrace.canary.duration"
METRIC_CANARY_LOST = "memtrace.canary.lost"
CANARY_STAGE = "memtrace.canary.stage"

METRIC_HEALTH = "memtrace.health.excess"
HEALTH_MEASURE = "memtrace.health.measure"

# --- metrics of capture itself ------------------------------------------------------------------------------------
METRIC_OPERATION_DURATION = "gen_ai.client.operation.duration"
METRIC_OPERATIONS = "memtrace.capture.operations"
METRIC_DROPS = "memtrace.capture.drops"
METRIC_TRUNCATIONS = "memtrace.capture.truncations"
METRIC_UNKNOWN_ORIGINS = "memtrace.capture.unknown_origins"
METRIC_QUEUE = "memtrace.capture.queue"
METRIC_SPOOL = "memtrace.capture.spool"
DROP_REASON = "memtrace.drop.reason"
MEMORY_OPERATIONS = frozenset(
    {
        CREATE_MEMORY_STORE,
        SEARCH_MEMORY,
        CREATE_MEMORY,
        UPDATE_MEMORY,
        UPSERT_MEMORY,
        DELETE_MEMORY,
        DELETE_MEMORY_STORE,
    }
)
"""Names whose duration we record; the duration of a model call belongs to whoever instruments the model."""

# --- how a retrieval ranked ---------------------------------------------------------------------------------------
RETRIEVAL_THRESHOLD = "memtrace.retrieval.threshold"
"""Lowest score that a hit may have (double)."""
RETRIEVAL_FILTERS = "memtrace.retrieval.filters"
"""Conditions on the metadata of hits, `field=value` or `field.operator=value`; values as digests unless contents are
captured (string[])."""
RETRIEVAL_SCORERS = "memtrace.retrieval.scorers"
"""What took part in the ranking: `semantic`, `bm25`, `entity` (string[])."""

# --- span events -------------------------------------------------------------------------------------------------
RETRY_EVENT = "memtrace.retry"
"""A memory system does something again that failed, in silence; carries RETRY_ATTEMPT."""
DEAD_LETTER_EVENT = "memtrace.dead_letter"
"""A memory system gave up background work for good; carries RETRY_ATTEMPT."""
FALLBACK_EVENT = "memtrace.fallback"
"""A memory system went on with a fixed choice where a model should have chosen."""
RETRY_ATTEMPT = "memtrace.retry.attempt"
"""Number of the attempt, from 1 (int)."""

# --- carried inside stored records (opt-in) ----------------------------------------------------------------------
RECORD_ORIGIN_KEY = "memtrace_origin"
