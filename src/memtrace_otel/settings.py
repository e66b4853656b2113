"""The one table of settings. `docs/reference/settings.md` is checked against it.

The first match wins: a Python argument or an option of `OTEL_CONFIG_FILE` (both by `override`), the environment, the
default. A value is read when a caller asks, so that late configuration counts. Capture reads its values once
(`capture.config`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T", str, int, float, bool)

_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_overrides: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """The current value of a setting and its source: `argument`, `environment` or `default`. `problem` explains an
    unusable value of the environment."""

    value: T
    source: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """One row: environment variable, default (its type is that of the values) and help.

    `alias` is the name in Python and YAML, unless that is the variable without `MEMTRACE_`. Values may be restricted to
    `choices` (in any case), to numbers of at least `least` or to regular expressions (`regex`). A `secret` is never
    printed.
    """

    env: str
    default: T
    help: str
    alias: str = ""
    choices: tuple[str, ...] = ()
    least: float | None = None
    regex: bool = False
    secret: bool = False

    @property
    def name(self) -> str:
        """Name as a Python argument and in YAML."""
        return self.alias or self.env.removeprefix("MEMTRACE_").lower()

    @property
    def accepted(self) -> str:
        """The allowed values, in words."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.regex:
            return "a regular expression"
        word = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[type(self.default)]
        return word if self.least is None else f"{word} of at least {self.least:g}"

    def read(self, environ: Mapping[str, str] | None = None) -> T:
        """Return the current value. An unusable value counts as not given (observing never harms)."""
        return self.find(environ).value

    def find(self, environ: Mapping[str, str] | None = None) -> Found[T]:
        """Return the current value with its source; with `environ`, of this environment alone."""
        if environ is None and self.name in _overrides:
            return Found(_overrides[self.name], "argument")
        raw = (os.environ if environ is None else environ).get(self.env)
        if not raw:  # OpenTelemetry: an empty variable is an unset one
            return Found(self.default, "default")
        try:
            return Found(self.convert(raw), "environment")
        except ValueError as error:
            return Found(self.default, "default", str(error))

    def convert(self, value: object) -> T:
        """Return `value` (text, Python or YAML) as this setting's type.

        ValueError names the setting and its allowed values, and never quotes a secret.
        """
        try:
            return cast("T", self._converted(value))
        except (TypeError, ValueError, OverflowError, re.error):
            shown = "this value" if self.secret else repr(value)[:100]
            raise ValueError(f"{self.name} ({self.env}) takes {self.accepted}, not {shown}") from None

    def shown(self, value: object) -> str:
        """Return `value` as the environment would hold it; `set` or an empty text for a secret."""
        if self.secret:
            return "set" if value else ""
        return str(value).lower() if isinstance(value, bool) else str(value)

    def _converted(self, value: object) -> str | float:
        kind = type(self.default)
        if kind is bool:
            return value if isinstance(value, bool) else _one_of(_WORDS, str(value).strip().lower())
        if kind is not str:
            number = cast("float", kind(cast("str", value)))
            if isinstance(value, bool) or not isfinite(number) or (self.least is not None and number < self.least):
                raise ValueError
            if isinstance(value, float) and number != value:
                raise ValueError  # 1.5 is no whole number
            return number
        if isinstance(value, bytes):
            raise TypeError
        text = str(value) if isinstance(value, int | float) else os.fspath(cast("str", value))
        if self.choices:
            return _one_of({choice.lower(): choice for choice in self.choices}, text.strip().lower())
        if self.regex:
            re.compile(text)
        return text


def _one_of(known: Mapping[str, Any], word: str) -> Any:
    if word not in known:
        raise ValueError
    return known[word]


CONTENT_ON = frozenset({"SPAN_ONLY", "SPAN_AND_EVENT"})
"""Values of the standard switch that put contents on spans."""


def captures_content(environ: Mapping[str, str] | None = None) -> bool:
    """Whether contents go on spans."""
    return CAPTURE_CONTENT.read(environ) in CONTENT_ON


def override(values: Mapping[str, object]) -> None:
    """Set values by name for this process, before the environment. None removes such a value.

    Raises ValueError for an unknown name or an unusable value, and then sets nothing. `memtrace_otel.configure` also
    makes capture read its values again.
    """
    global _overrides
    for name in values:
        if name not in NAMES:
            raise ValueError(f"{name} is no setting of memtrace-otel; known are {', '.join(sorted(NAMES))}")
    converted: dict[str, Any] = {
        name: None if value is None else NAMES[name].convert(value) for name, value in values.items()
    }
    _overrides = {name: value for name, value in {**_overrides, **converted}.items() if value is not None}


CAPTURE_CONTENT = Setting(
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT",
    "NO_CONTENT",
    "Standard switch. SPAN_ONLY and SPAN_AND_EVENT put contents on spans; NO_CONTENT and EVENT_ONLY do not. "
    "Refs, origins, digests and sizes are always on spans.",
    alias="capture_content",
    choices=("NO_CONTENT", "SPAN_ONLY", "EVENT_ONLY", "SPAN_AND_EVENT"),
)
DB_PATH = Setting(
    "MEMTRACE_DB", "memtrace.db", "SQLite file that OTEL_TRACES_EXPORTER=memtrace writes and commands read."
)
DIGEST_KEY = Setting(
    "MEMTRACE_DIGEST_KEY",
    "",
    "Key of content digests and scope ids (HMAC-SHA-256). Empty: plain SHA-256, and a key of the process for "
    "contents that redaction changes.",
    secret=True,
)
PREVIEW_BYTES = Setting(
    "MEMTRACE_PREVIEW_BYTES", 16_384, "Longest content kept on a span, in UTF-8 bytes per variable.", least=1
)
REDACT_PATTERNS = Setting(
    "MEMTRACE_REDACT_PATTERNS",
    "secrets",
    "Removes parts of contents: names of rules (`secrets`, `personal`, `email`, ...), `none`, or regular expressions; "
    "items between line ends or `;;`.",
)
REDACT_KEYS = Setting(
    "MEMTRACE_REDACT_KEYS",
    "secrets",
    "Keys whose values are removed from contents, between commas; `secrets` means the built-in keys, `none` no key.",
)
REDACT_CALLBACK = Setting(
    "MEMTRACE_REDACT_CALLBACK", "", "`module:function` that returns the text of a content that may leave, or None."
)
SPAN_BYTES = Setting(
    "MEMTRACE_SPAN_BYTES", 8192, "Byte budget of one span; past it variables go to continuation spans.", least=1
)
SPAN_LINKS = Setting(
    "MEMTRACE_SPAN_LINKS", 32, "Link budget of one span; past it origins go to continuation spans.", least=1
)
SPAN_PARTS = Setting(
    "MEMTRACE_SPAN_PARTS",
    64,
    "Most continuation spans of one operation; further variables are counted as dropped.",
    least=1,
)
ORIGIN_ENTRIES = Setting(
    "MEMTRACE_ORIGIN_ENTRIES",
    100_000,
    "Variable versions whose origin a process remembers (oldest forgotten first).",
    least=1,
)
RECORD_ORIGIN = Setting(
    "MEMTRACE_RECORD_ORIGIN",
    False,
    "Write `memtrace_origin` into the metadata of records of Mem0 and EverOS, so that another process "
    "knows the writer.",
)
JUDGE_EXPECTED = Setting(
    "MEMTRACE_JUDGE_EXPECTED",
    r"(?im)^[^\w\n]{0,16}([<\[])?(?:gold|golden|expected|reference|ideal|ground[ _-]?truth|correct(?=[ _-]?answer))"
    r"(?:[ _-]?answers?[^\w\n:=]{0,16}[:=\]>][^\S\n]*(?:\n(?![^\n:]{0,40}(?::\s|[\]>])))?"
    r"|(?(1)[\]>]|[^\w\n:=]{0,16}[:=])[^\S\n]*)(?P<expected>\S.*)$",
    "Regular expression that finds the expected answer in the prompt of a judging model call (group `expected`).",
    regex=True,
)
EVALUATION_THRESHOLD = Setting(
    "MEMTRACE_EVALUATION_THRESHOLD", 0.5, "An evaluation score below this makes a trace failing."
)
MARKER_STATUS = Setting(
    "MEMTRACE_MARKER_STATUS",
    "error",
    "Status of marker spans: `error` (red in the backend) or `unset`.",
    choices=("error", "unset"),
)
MAX_IMPORT_BYTES = Setting(
    "MEMTRACE_MAX_IMPORT_BYTES", 2 << 30, "Largest file (after decompression) that `import` reads.", least=1
)
PROCESSOR = Setting(
    "MEMTRACE_PROCESSOR",
    "lossless",
    "Span processor under opentelemetry-instrument: `lossless` in place of each batch processor, or `stock`.",
    choices=("lossless", "stock"),
)
JOIN_PROVIDER = Setting(
    "MEMTRACE_JOIN_PROVIDER",
    False,
    "Under opentelemetry-instrument, a tracer provider of the program makes the spans, and the exporters of the "
    "environment get the spans, too. `memtrace-otel run` turns this on.",
)
SPOOL_DIR = Setting(
    "MEMTRACE_SPOOL_DIR",
    "",
    "Directory of the spans that wait on disk. Empty: `memtrace-otel/spool` in the user's state directory, "
    "or a private temporary directory.",
)
SPOOL_BYTES = Setting(
    "MEMTRACE_SPOOL_BYTES", 256 << 20, "Most bytes that wait on disk per destination of spans; 0: no spool.", least=0
)
BLOCK_MS = Setting(
    "MEMTRACE_BLOCK_MS",
    50,
    "Longest wait of the observed program for room in the queue of spans, in milliseconds.",
    least=0,
)

SERVE_TOKEN = Setting(
    "MEMTRACE_SERVE_TOKEN",
    "",
    "Bearer token that senders to `serve` must give; needed for addresses off loopback.",
    secret=True,
)
MAX_REQUEST_BYTES = Setting(
    "MEMTRACE_MAX_REQUEST_BYTES", 20 << 20, "Largest request, unpacked, that `serve` takes.", least=1
)
INBOX_BYTES = Setting(
    "MEMTRACE_INBOX_BYTES",
    1 << 30,
    "Bytes that may wait to be decoded; past this bound `serve` refuses requests for the moment.",
    least=1,
)
QUIET_SECONDS = Setting(
    "MEMTRACE_QUIET_SECONDS",
    5.0,
    "`serve` and `watch` attribute a failing trace when no span arrived for so many seconds.",
    least=0,
)
SOURCE_TOKEN = Setting("MEMTRACE_SOURCE_TOKEN", "", "Bearer token that `--source` gives to the backend.", secret=True)
SOURCE_HEADERS = Setting(
    "MEMTRACE_SOURCE_HEADERS",
    "",
    "Other headers for the backend of `--source`, as in OTEL_EXPORTER_OTLP_HEADERS: `name=value` between commas. The "
    "tenant is X-Scope-OrgID (Tempo) or x-tenant (Jaeger).",
    secret=True,
)
SOURCE_HOURS = Setting(
    "MEMTRACE_SOURCE_HOURS",
    720,
    "How far back the backend of `--source` is searched for changes of a memory, in hours. Versions that an answer "
    "read are found by origin at any age.",
    least=1,
)
SOURCE_TIMEOUT = Setting(
    "MEMTRACE_SOURCE_TIMEOUT", 30.0, "Longest time of one request to the backend of `--source`, in seconds.", least=0
)
SOURCE_REQUESTS = Setting(
    "MEMTRACE_SOURCE_REQUESTS",
    2000,
    "Most requests to the backend of `--source` per failing trace. Past the bound the verdict is incomplete.",
    least=1,
)

MODEL = Setting(
    "MEMTRACE_MODEL",
    "",
    "Name of the model that `--method rules+model` and the agent ask, at OPENAI_BASE_URL; that a replay asks where the "
    "recorded answer names no model. nli:NAME: a local cross-encoder for `--method rules+model`.",
)
MODEL_CALLS = Setting("MEMTRACE_MODEL_CALLS", 200, "Most calls of the model by one command.", least=0)
MODEL_TOKENS = Setting(
    "MEMTRACE_MODEL_TOKENS", 1_000_000, "No call of the model is made after so many tokens of one command.", least=0
)
MODEL_SECONDS = Setting("MEMTRACE_MODEL_SECONDS", 60.0, "Longest time of one call of the model, in seconds.", least=0)
MODEL_INPUT_PRICE = Setting(
    "MEMTRACE_MODEL_INPUT_PRICE",
    0.0,
    "Price of a million tokens that the model reads, in any currency. Needed by a bound on the cost.",
    least=0,
)
MODEL_OUTPUT_PRICE = Setting(
    "MEMTRACE_MODEL_OUTPUT_PRICE",
    0.0,
    "Price of a million tokens that the model writes. Needed by a bound on the cost.",
    least=0,
)
AGENT_STEPS = Setting("MEMTRACE_AGENT_STEPS", 12, "Most replies of the model on one case of the agent.", least=1)
AGENT_TOKENS = Setting(
    "MEMTRACE_AGENT_TOKENS", 40_000, "The agent leaves a case after so many tokens of this case.", least=0
)
AGENT_SECONDS = Setting(
    "MEMTRACE_AGENT_SECONDS", 300.0, "The agent leaves a case after so many seconds of this case.", least=0
)
MODEL_CACHE = Setting(
    "MEMTRACE_MODEL_CACHE", "memtrace-answers.db", "SQLite file of the replies that models gave before."
)

HEALTH_THRESHOLDS = Setting(
    "MEMTRACE_HEALTH_THRESHOLDS",
    "",
    "Thresholds of `health` as NAME=NUMBER, separated by commas; `unread_days` are the days until a record counts as "
    "never read.",
)

AnySetting = Setting[str] | Setting[int] | Setting[float] | Setting[bool]
TABLE: tuple[AnySetting, ...] = (
    CAPTURE_CONTENT,
    DB_PATH,
    DIGEST_KEY,
    PREVIEW_BYTES,
    REDACT_PATTERNS,
    REDACT_KEYS,
    REDACT_CALLBACK,
    SPAN_BYTES,
    SPAN_LINKS,
    SPAN_PARTS,
    ORIGIN_ENTRIES,
    RECORD_ORIGIN,
    JUDGE_EXPECTED,
    EVALUATION_THRESHOLD,
    MARKER_STATUS,
    MAX_IMPORT_BYTES,
    PROCESSOR,
    JOIN_PROVIDER,
    SPOOL_DIR,
    SPOOL_BYTES,
    BLOCK_MS,
    SERVE_TOKEN,
    MAX_REQUEST_BYTES,
    INBOX_BYTES,
    QUIET_SECONDS,
    SOURCE_TOKEN,
    SOURCE_HEADERS,
    SOURCE_HOURS,
    SOURCE_TIMEOUT,
    SOURCE_REQUESTS,
    MODEL,
    MODEL_CALLS,
    MODEL_TOKENS,
    MODEL_SECONDS,
    MODEL_INPUT_PRICE,
    MODEL_OUTPUT_PRICE,
    AGENT_STEPS,
    AGENT_TOKENS,
    AGENT_SECONDS,
    MODEL_CACHE,
    HEALTH_THRESHOLDS,
)
NAMES: Mapping[str, AnySetting] = {setting.name: setting for setting in TABLE}
"""The rows by their name as a Python argument and in YAML."""
