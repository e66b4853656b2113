"""Whole contents outside of spans: written once, in the background, under the digest of what they hold.

A content lies at `<store>/<algorithm>/<first two digits>/<digest>`, where the digest is the full SHA-256 of the stored
bytes, or their HMAC-SHA-256 under MEMTRACE_DIGEST_KEY. A directory needs nothing; any other store needs fsspec.
"""

from __future__ import annotations

import atexit
import hashlib
import hmac
import logging
import math
import os
import re
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Protocol, cast
from urllib.parse import unquote, urlsplit

from memtrace_otel import settings
from memtrace_otel.capture.child_exit import before_child_exits
from memtrace_otel.capture.fork import after_fork
from memtrace_otel.capture.guard import note_drop, note_error
from memtrace_otel.capture.sigterm import before_spans_are_saved
from memtrace_otel.capture.tracing import observe_nothing_here

QUEUE_BYTES = 16 << 20
QUEUE_ITEMS = 4096
KNOWN = 16_384
"""Digests remembered as written."""
EXIT_WAIT = 5.0
"""Seconds that the end of the process may wait for contents that are still to be written."""
SIGTERM_WAIT = 2.0
"""The same where SIGTERM ends it; the spans are still to be saved then."""
FAILURES = 2
"""Writes that fail in a row until the store counts as out of order."""
RETRY = 10.0
"""Seconds until a store that is out of order gets another content to try."""
READ_BYTES = 64 << 20

_NAME = re.compile(r"(sha256|hmac-sha256)/([0-9a-f]{2})/(\2[0-9a-f]{62})")
_USER = re.compile(r"(?<=://)[^/?#]*@")
_logger = logging.getLogger("memtrace_otel.capture")


class ContentError(Exception):
    """A content cannot be read: it lies elsewhere, is missing, too large, or is not what its name says."""


class Backend(Protocol):
    """A place of named byte strings; both methods raise what the place raises."""

    def write(self, name: str, data: bytes) -> None:
        """Store `data` whole or not at all; nothing to do when the name is there."""
        ...

    def read(self, name: str, limit: int) -> bytes:
        """Return at most `limit` bytes."""
        ...


class Directory:
    """A local directory: files of mode 0600 in directories of mode 0700, each appearing whole."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)

    def write(self, name: str, data: bytes) -> None:
        path = self._root / name
        if path.exists():
            return
        for folder in (self._root, path.parent.parent, path.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{token_hex(8)}")  # in containers every process may be number 1
        try:
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
            os.replace(draft, path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise

    def check(self) -> None:
        """Raise unless files can be made here, or in the first folder above that is there."""
        there = next(folder for folder in (self._root, *self._root.parents) if folder.exists())
        if not there.is_dir():
            raise NotADirectoryError
        if not os.access(there, os.W_OK | os.X_OK):
            raise PermissionError

    def read(self, name: str, limit: int) -> bytes:
        with open(self._root / name, "rb") as file:
            return file.read(limit)


class Remote:
    """Any file system that fsspec knows; raises ImportError when fsspec, or its package for this URL, is not there."""

    def __init__(self, url: str) -> None:
        try:
            from fsspec.core import url_to_fs  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]
        except ImportError:
            raise ImportError("it needs fsspec: pip install 'memtrace-otel[content]'") from None
        self._system, self._root = cast("tuple[object, str]", url_to_fs(url))

    def _call(self, method: str, *args: object, **kwargs: object) -> object:
        return cast(Callable[..., object], getattr(self._system, method))(*args, **kwargs)

    def write(self, name: str, data: bytes) -> None:
        path = f"{self._root.rstrip('/')}/{name}"
        with suppress(FileNotFoundError):
            if self._call("size", path) == len(data):  # else a write was cut off
                return
        try:
            self._call("pipe_file", path, data)
        except FileNotFoundError:  # directories below the store are ours to make, the store (a bucket) is not
            folder = path.rpartition("/")[0]
            for made in (folder.rpartition("/")[0], folder):
                with suppress(FileExistsError):
                    self._call("mkdir", made, create_parents=False)
            self._call("pipe_file", path, data)

    def read(self, name: str, limit: int) -> bytes:
        return cast(bytes, self._call("cat_file", f"{self._root.rstrip('/')}/{name}", start=0, end=limit))


def open_backend(url: str) -> Backend:
    """The place that a store URL names: a path or `file://` is a directory, everything else is fsspec's."""
    parts = urlsplit(url)
    if "://" not in url:
        return Directory(os.path.abspath(os.path.expanduser(url)))
    if parts.scheme == "file":
        return Directory(unquote(parts.path))
    return Remote(url)


def check_store(url: str) -> None:
    """Raise what opening a store raises, and OSError for a directory that nothing can be written to. Writes
    nothing, and asks no other machine."""
    backend = open_backend(url)
    if isinstance(backend, Directory):
        backend.check()


def public_url(url: str) -> str:
    """The URL of a store as spans show it: absolute, without user, password and query."""
    if "://" not in url:
        return Path(url).expanduser().absolute().as_uri()
    return _USER.sub("", re.split(r"[?#]", url)[0]).rstrip("/")


def content_name(data: bytes, key: str = "") -> str:
    """Where bytes lie below the URL of a store."""
    algorithm = "hmac-sha256" if key else "sha256"
    digest = hmac.new(key.encode(), data, "sha256").hexdigest() if key else hashlib.sha256(data).hexdigest()
    return f"{algorithm}/{digest[:2]}/{digest}"


class ContentStore:
    """The store of this process. `put` returns at once: a thread writes, and what overflows its queue is dropped and
    counted (`content_store`). Nothing raises. `problem` says why nothing can be written, once that is known and until a
    write succeeds; meanwhile contents are dropped, but for one every `RETRY` seconds."""

    def __init__(self, url: str, key: str = "") -> None:
        self.url = public_url(url)
        self._target, self._key = url, key
        self._backend: Backend | None = None
        self._known: OrderedDict[str, None] = OrderedDict()
        self._reset()
        _stores.add(self)

    def __repr__(self) -> str:
        return f"ContentStore({self.url!r})"

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._queue: deque[tuple[str, bytes, str]] = deque()  # name, content, system
        self._bytes = 0
        self._started = False
        self.problem = ""
        self._failures, self._next_try = 0, math.inf

    def put(self, text: str, system: str = "") -> str:
        """Return the URI under which `text`, a content of `system`, will lie; '' when it was dropped."""
        data = text.encode("utf-8", "replace")
        name = content_name(data, self._key)
        with self._changed:
            if name in self._known:
                self._known.move_to_end(name)
                return f"{self.url}/{name}"
            full = len(self._queue) >= QUEUE_ITEMS or self._bytes + len(data) > QUEUE_BYTES
            if not self._accepts() or full or not (self._started or self._start()):
                note_drop("content_store", system=system)
                return ""
            self._queue.append((name, data, system))
            self._bytes += len(data)
            self._known[name] = None
            if len(self._known) > KNOWN:
                self._known.popitem(last=False)
            self._changed.notify_all()
        return f"{self.url}/{name}"

    def _start(self) -> bool:
        """Start the writer; False where no thread can be started (any more)."""
        _flush_before_executors_end()
        try:
            threading.Thread(target=self._write_all, name="memtrace-content-store", daemon=True).start()
        except RuntimeError:  # the interpreter ends
            return False
        self._started = True
        return True

    def _accepts(self) -> bool:
        if not self.problem:
            return True
        if time.monotonic() < self._next_try:
            return False
        self._next_try = time.monotonic() + RETRY
        return True

    def flush(self, timeout: float = EXIT_WAIT, *, last: bool = False) -> bool:
        """Wait until everything is written, at most `timeout` seconds; return whether it is. After the `last` time what
        is left is dropped and counted. SIGTERM may come amid `put`: to wait gives its lock to the writer."""
        deadline = time.monotonic() + timeout
        if not self._changed.acquire(timeout=timeout):
            return False
        try:
            written = self._changed.wait_for(lambda: not self._queue, max(0.0, deadline - time.monotonic()))
            if last and not written:
                self._give_up()
            return written
        finally:
            self._changed.release()

    def _give_up(self) -> None:
        for name, _, system in self._queue:
            self._known.pop(name, None)
            note_drop("content_store", system=system)
        self._queue.clear()
        self._bytes = 0

    def _write_all(self) -> None:
        observe_nothing_here()
        changed, queue = self._changed, self._queue
        while True:
            with changed:
                changed.wait_for(lambda: bool(queue))
                content = name, data, system = queue[0]  # stays there until it is written: `flush` waits for it
            written = self._write(name, data, system)
            with changed:
                if not queue or queue[0] is not content:  # given up meanwhile
                    continue
                queue.popleft()
                self._bytes -= len(data)
                if not written:
                    self._known.pop(name, None)
                    note_drop("content_store", system=system)
                changed.notify_all()

    def _write(self, name: str, data: bytes, system: str) -> bool:
        try:
            if self._backend is None:
                self._backend = open_backend(self._target)
            self._backend.write(name, data)
            self._failures, self.problem = 0, ""
            return True
        except Exception as error:
            self._failures += 1
            if self._backend is None and isinstance(error, ImportError | ValueError):
                self._stop(str(error) if isinstance(error, ImportError) else "no such kind of store", math.inf)
            elif self._failures >= FAILURES:
                self._stop(f"it takes nothing ({type(error).__name__})", time.monotonic() + RETRY)
            note_error("content_store", error, system)
            return False

    def _stop(self, problem: str, next_try: float) -> None:
        if not self.problem:
            _logger.warning("contents cannot be stored at %s: %s", self.url, problem)
        self.problem, self._next_try = problem, next_try


_stores: weakref.WeakSet[ContentStore] = weakref.WeakSet()
_deadline = math.inf  # of the flush at the end of the process, once that has begun and until all is written
_opened: dict[tuple[str, str], ContentStore] = {}


def content_store(url: str, key: str = "") -> ContentStore:
    """The store of this process for a URL and a key."""
    if (url, key) not in _opened:
        _opened[url, key] = ContentStore(url, key)
    return _opened[url, key]


def read_content(uri: str, store: str, *, key: str | None = None, limit: int = READ_BYTES) -> str:
    """Read back a content that a span of `store` (a URL as in MEMTRACE_CONTENT_STORE) refers to by `uri`.

    `uri` comes with the telemetry, so it is trusted only as a name: ContentError when it does not lie in `store`, holds
    more than `limit` bytes, or does not have the digest that its name says. Keyed ones need the `key` they were written
    with; None is that of the settings (MEMTRACE_DIGEST_KEY).
    """
    key = settings.DIGEST_KEY.read() if key is None else key
    base = public_url(store)
    name = uri.removeprefix(base + "/") if uri.startswith(base + "/") else ""
    match = _NAME.fullmatch(name)
    if match is None:
        raise ContentError("the reference does not point into the content store")
    keyed = match[1] != "sha256"
    if keyed and not key:
        raise ContentError(
            "the content has a keyed digest: to check it takes MEMTRACE_DIGEST_KEY, or the argument `key`"
        )
    try:
        data = open_backend(store).read(name, limit + 1)
    except Exception as error:
        raise ContentError(f"the content cannot be read ({type(error).__name__})") from error
    if len(data) > limit:
        raise ContentError(f"the content has more than {limit} bytes")
    if not hmac.compare_digest(content_name(data, key if keyed else ""), name):
        raise ContentError("the content is not what its name says")
    return data.decode("utf-8", "replace")


def _flush_all(seconds: float | None = None) -> None:
    global _deadline  # of all calls together
    _deadline = min(_deadline, time.monotonic() + (EXIT_WAIT if seconds is None else seconds))
    written = [store.flush(max(0.0, _deadline - time.monotonic()), last=True) for store in list(_stores)]
    if all(written):
        _deadline = math.inf  # the main thread may end long before the others do


def _flush_before_executors_end() -> None:
    """File systems that are asynchronous inside (S3) need executors, and these end before `atexit`, last one first."""
    import concurrent.futures.thread  # noqa: F401  # pyright: ignore[reportUnusedImport]  # registers their end

    with suppress(AttributeError, RuntimeError):  # a private name of CPython's; at the end it refuses
        getattr(threading, "_register_atexit")(_flush_all)  # noqa: B009


@after_fork
def _after_fork() -> None:
    for store in _stores:
        store._reset()  # pyright: ignore[reportPrivateUsage]  # the parent writes what it had queued


atexit.register(_flush_all)
before_child_exits(_flush_all, priority=-900)
before_spans_are_saved(partial(_flush_all, SIGTERM_WAIT))
