"""An OpenAI-compatible endpoint: one call at a time, within budgets, and a file of earlier replies.

No method raises for the endpoint: `Asked.problem` says why there is no reply.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast
from urllib.parse import urlsplit

from memtrace_otel import settings

if TYPE_CHECKING:
    import openai

T = TypeVar("T")
Message = Mapping[str, str]
"""`role` and `content` of one message of a chat request."""
MAX_CHARACTERS = 1200
"""Longest text of a trace given to a model as data. Of a longer text, the two ends are given."""
LOCAL = "nli:"
"""Begins the name of a local cross-encoder, which no endpoint serves."""
_FAILURES = 3
"""Calls in a row that fail before the endpoint counts as dead."""
_RETRIES = 2
_OPENAI = "https://api.openai.com/v1"
_NOT_SET = (
    "no endpoint is set: export OPENAI_BASE_URL=http://localhost:8000/v1, or OPENAI_API_KEY=... for api.openai.com"
)
_UNREADABLE = (AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError)


@dataclass(frozen=True, slots=True)
class Asked(Generic[T]):
    """What one call gave: the reply as read, None with a `problem`. `tokens` were spent for this call."""

    reply: T | None
    tokens: int = 0
    problem: str = ""


class Endpoint:
    """The endpoint of OPENAI_BASE_URL. Budgets bound one object of this class; safe for use in several threads."""

    def __init__(self, client: openai.OpenAI | None = None, *, max_cost: float | None = None) -> None:
        """Raise ValueError when `max_cost` is given and no price is set."""
        name = settings.MODEL.read()
        self.model = "" if name.startswith(LOCAL) else name
        """The model of MEMTRACE_MODEL, '' for none and for a local cross-encoder."""
        self.calls = self.tokens = 0
        self._prices = settings.MODEL_INPUT_PRICE.read(), settings.MODEL_OUTPUT_PRICE.read()
        self.cost = 0.0 if any(self._prices) else None
        """What the replies cost, in the unit of the prices; None without prices."""
        if max_cost is not None and self.cost is None:
            envs = f"{settings.MODEL_INPUT_PRICE.env} and {settings.MODEL_OUTPUT_PRICE.env}"
            raise ValueError(f"a bound on the cost needs the prices of the model: set {envs}")
        self._max_cost, self._closed = max_cost, False
        self.url = str(client.base_url) if client else _named_url()
        """The base URL, '' for none."""
        self._failed = 0
        self._lock = threading.Lock()
        self._client = client
        self.file = ReplyFile(Path(settings.MODEL_CACHE.read()).expanduser())

    def check(self) -> None:
        """Raise ValueError when no endpoint is set; contents never go to a server that nobody named."""
        if not self.url:
            raise ValueError(_NOT_SET)

    def ask(
        self,
        messages: Sequence[Message],
        read: Callable[[str], T],
        *,
        model: str = "",
        schema: Mapping[str, Any] | None = None,
    ) -> Asked[T]:
        """Return what `read` makes of the reply; `read` raises ValueError, KeyError or TypeError for a useless one."""
        if refusal := self._take_call():
            return Asked(None, problem=refusal)
        asked = self._call(messages, read, model or self.model, schema)
        with self._lock:
            self._failed = self._failed + 1 if asked.problem else 0
        return asked

    def ask_text(
        self, messages: Sequence[Message], *, model: str = "", schema: Mapping[str, Any] | None = None
    ) -> Asked[str]:
        """Return the reply as text: the reply to an equal request before, at no cost, else a new one."""
        key = digest(self.url, model or self.model, list(map(dict, messages)), schema)
        if known := self.file.find([key]).get(key):
            return Asked(known[0])
        asked = self.ask(messages, str, model=model, schema=schema)
        if asked.reply is not None:
            self.file.keep({key: (asked.reply, "")})
        return asked

    def _take_call(self) -> str:
        """Count one call; return why no call is made, '' for a call."""
        with self._lock:
            if self._closed:
                return "the command was stopped"
            if self._failed >= _FAILURES:
                return "the endpoint failed before"
            if self.calls >= settings.MODEL_CALLS.read():
                return f"{settings.MODEL_CALLS.env} calls were made"
            if self.tokens >= settings.MODEL_TOKENS.read():
                return f"{settings.MODEL_TOKENS.env} tokens were spent"
            if self._max_cost is not None and self.cost is not None and self.cost >= self._max_cost:
                return f"the bound on the cost, {self._max_cost:g}, is reached"
            self.calls += 1
            return ""

    def close(self) -> None:
        """Make no further call: threads at work end soon."""
        with self._lock:
            self._closed = True

    def _call(
        self, messages: Sequence[Message], read: Callable[[str], T], model: str, schema: Mapping[str, Any] | None
    ) -> Asked[T]:
        import openai

        if not self.url:
            return Asked(None, problem=_NOT_SET)
        form = {"type": "json_schema", "json_schema": {"name": "answers", "strict": True, "schema": schema}}
        try:
            client = self._client or openai_client()
            completion = client.chat.completions.create(
                model=model,
                messages=cast("Any", messages),
                temperature=0,
                response_format=cast("Any", form if schema else openai.NOT_GIVEN),
                timeout=settings.MODEL_SECONDS.read(),
            )
        except openai.APIStatusError as error:
            return Asked(None, problem=f"{_named(self.url)} answered with status {error.status_code}")
        except (openai.OpenAIError, ValueError) as error:
            return Asked(None, problem=f"{_named(self.url)} did not answer: {type(error).__name__}")
        tokens = self._count(completion)
        try:
            message = completion.choices[0].message
            if message.refusal or not message.content:
                return Asked(None, tokens, "the model refused")
            return Asked(read(message.content), tokens)
        except _UNREADABLE:
            return Asked(None, tokens, "the model's reply is not what was asked for")

    def _count(self, completion: Any) -> int:
        """Count the tokens of a reply, and what they cost; return the tokens."""
        usage = getattr(completion, "usage", None)
        sent, total = (getattr(usage, name, 0) or 0 for name in ("prompt_tokens", "total_tokens"))
        with self._lock:
            self.tokens += total
            if self.cost is not None:
                self.cost += (sent * self._prices[0] + max(0, total - sent) * self._prices[1]) / 1e6
        return total


def _named_url() -> str:
    """Return the base URL that the environment names, '' for none. A key alone names api.openai.com."""
    return os.environ.get("OPENAI_BASE_URL") or (_OPENAI if os.environ.get("OPENAI_API_KEY") else "")


def _named(url: str) -> str:
    """Return the endpoint as messages name it, without user, password and query."""
    parts = urlsplit(url)
    return f"the endpoint {parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')} (OPENAI_BASE_URL)"


def shown(text: str, most: int = MAX_CHARACTERS) -> str:
    """Return an untrusted text on one line without unprintable characters; of a long text the two ends."""
    line = "".join(c for c in " ".join(text.split()) if c.isprintable())
    half = most // 2
    return line if len(line) <= most else f"{line[:half]} … {line[-half:]}"


def digest(*parts: object) -> str:
    """Return the key of a request in the file of replies; the parts are JSON values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def openai_client() -> openai.OpenAI:
    """Return a client of OPENAI_BASE_URL and OPENAI_API_KEY; local servers need no key. The client retries with
    backoff: after a refused or lost connection, a timeout, the statuses 408, 409, 429 and 5xx.

    Raises ValueError when neither is set: contents never go to a server that nobody named.
    """
    import openai

    if not _named_url():
        raise ValueError(_NOT_SET)
    return openai.OpenAI(api_key=os.environ.get("OPENAI_API_KEY") or "none", max_retries=_RETRIES)


class ReplyFile:
    """Pairs of texts by key, in a SQLite file that only its owner can read.

    A file that cannot be used is left out: every reply is asked for again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def find(self, keys: Iterable[str]) -> dict[str, tuple[str, str]]:
        """Return the known pairs."""
        found: dict[str, tuple[str, str]] = {}
        try:
            with closing(self._open()) as file:
                for key in keys:
                    row = file.execute("SELECT answer, words FROM answer WHERE key = ?", (key,)).fetchone()
                    if row:
                        found[key] = (str(row[0]), str(row[1]))
        except (sqlite3.Error, OSError):
            return {}
        return found

    def keep(self, pairs: Mapping[str, tuple[str, str]]) -> None:
        """Add pairs."""
        try:
            with closing(self._open()) as file, file:
                rows = [(key, *pair) for key, pair in pairs.items()]
                file.executemany("INSERT OR REPLACE INTO answer VALUES (?, ?, ?)", rows)
        except (sqlite3.Error, OSError, UnicodeError):
            return

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.touch(mode=0o600)
        file = sqlite3.connect(self._path, timeout=10)
        file.execute("CREATE TABLE IF NOT EXISTS answer(key TEXT PRIMARY KEY, answer TEXT, words TEXT)")
        return file
