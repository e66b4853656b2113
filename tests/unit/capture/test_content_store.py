"""Whole contents outside of spans: where they lie, that they come back, and that storing harms nobody."""

from __future__ import annotations

import hashlib
import hmac
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from opentelemetry.instrumentation.utils import is_instrumentation_enabled

from memtrace_otel.capture import drops
from memtrace_otel.capture.content_store import (
    FAILURES,
    QUEUE_BYTES,
    QUEUE_ITEMS,
    RETRY,
    ContentError,
    ContentStore,
    Directory,
    content_store,
    open_backend,
    public_url,
    read_content,
)

TEXT = "Ana moved to Lisbon. É assim.\n"


class Stuck:
    """A place that takes nothing until told to."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.names: list[str] = []

    def write(self, name: str, data: bytes) -> None:
        self.open.wait(30)
        self.names.append(name)

    def read(self, name: str, limit: int) -> bytes:
        raise OSError


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Stuck:
    place = Stuck()
    monkeypatch.setattr("memtrace_otel.capture.content_store.open_backend", lambda url: place)
    return place


def test_a_content_lies_under_its_digest_and_comes_back(tmp_path: Path) -> None:
    store = ContentStore(str(tmp_path))
    uri = store.put(TEXT)
    assert store.flush()
    digest = hashlib.sha256(TEXT.encode()).hexdigest()
    assert uri == f"{tmp_path.as_uri()}/sha256/{digest[:2]}/{digest}"
    assert read_content(uri, str(tmp_path)) == TEXT


def test_a_key_shows_in_the_name_and_is_needed_to_read(tmp_path: Path) -> None:
    store = ContentStore(tmp_path.as_uri(), "k3y")
    uri = store.put(TEXT)
    assert store.flush()
    assert uri.endswith(hmac.new(b"k3y", TEXT.encode(), "sha256").hexdigest())
    assert "/hmac-sha256/" in uri
    assert read_content(uri, str(tmp_path), key="k3y") == TEXT
    for key in ("", "other"):
        with pytest.raises(ContentError):
            read_content(uri, str(tmp_path), key=key)
    assert "k3y" not in repr(store)


def test_reading_takes_the_key_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ContentStore(tmp_path.as_uri(), "k3y")
    uri = store.put(TEXT)
    assert store.flush()
    monkeypatch.setenv("MEMTRACE_DIGEST_KEY", "k3y")
    assert read_content(uri, str(tmp_path)) == TEXT
    monkeypatch.setenv("MEMTRACE_DIGEST_KEY", "other")
    assert read_content(uri, str(tmp_path), key="k3y") == TEXT
    with pytest.raises(ContentError, match="not what its name says"):
        read_content(uri, str(tmp_path))


def test_only_the_owner_reads_files(tmp_path: Path) -> None:
    root = tmp_path / "made by us"
    store = ContentStore(str(root))
    path = Path(unquote(urlsplit(store.put(TEXT)).path))
    assert store.flush()
    assert path.stat().st_mode & 0o777 == 0o600
    assert {folder.stat().st_mode & 0o777 for folder in (root, path.parent, path.parent.parent)} == {0o700}
    assert [file.name for file in root.rglob("*") if file.is_file()] == [path.name]  # no draft stays


def test_a_content_is_written_once(tmp_path: Path) -> None:
    first, second = ContentStore(str(tmp_path)), ContentStore(str(tmp_path))
    uri = first.put(TEXT)
    assert first.flush()
    path = Path(urlsplit(uri).path)
    before = path.stat().st_mtime_ns, path.stat().st_ino
    assert first.put(TEXT) == second.put(TEXT) == uri
    assert first.flush()
    assert second.flush()
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before


def test_containers_that_share_a_directory_do_not_disturb_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process of each is number 1; another writes the same content while this one does."""
    replace = os.replace

    def meanwhile(draft: Path, path: Path) -> None:
        monkeypatch.setattr(os, "replace", replace)
        Directory(str(tmp_path)).write("a/b/content", b"text")
        assert draft.read_bytes() == b"text"
        replace(draft, path)

    monkeypatch.setattr(os, "replace", meanwhile)
    Directory(str(tmp_path)).write("a/b/content", b"text")
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == ["content"]
    assert (tmp_path / "a/b/content").read_bytes() == b"text"


def test_any_file_system_of_fsspec_will_do() -> None:
    url = "memory://bucket/contents"
    store = ContentStore(url)
    uri = store.put(TEXT)
    assert uri.startswith(f"{url}/sha256/")
    assert store.flush()
    assert not store.problem
    assert read_content(uri, url) == TEXT
    with pytest.raises(ContentError, match="more than 3 bytes"):
        read_content(uri, url, limit=3)


def test_fsspec_writes_where_the_standard_library_reads(tmp_path: Path) -> None:
    store = ContentStore(f"local://{tmp_path}")
    name = store.put(TEXT).removeprefix(store.url)
    assert store.flush()
    assert read_content(tmp_path.as_uri() + name, str(tmp_path)) == TEXT


def test_a_store_that_is_not_there_is_not_made_elsewhere(tmp_path: Path) -> None:
    store = ContentStore(f"local://{tmp_path}/typo")
    before = drops["content_store"]
    store.put(TEXT)
    assert store.flush()
    assert drops["content_store"] == before + 1
    assert list(tmp_path.iterdir()) == []


def test_spans_show_no_credentials_of_the_store() -> None:
    assert public_url("ftp://ana:s3cr3t@host/dir/?sig=abc#x") == "ftp://host/dir"
    store = ContentStore("ftp://ana:s3cr3t@host/dir?sig=abc")
    assert "s3cr3t" not in repr(store)
    assert store.url == "ftp://host/dir"


@pytest.mark.parametrize(
    "uri",
    [
        "file:///etc/passwd",
        "{base}/../../etc/passwd",
        "{base}/sha256/ab/../../../etc/passwd",
        "{base}/sha256/ab/" + "b" * 64,
        "{base}x/sha256/ab/ab" + "0" * 62,
        "http://169.254.169.254/sha256/ab/ab" + "0" * 62,
        "{base}/md5/ab/ab" + "0" * 62,
        "",
    ],
)
def test_a_reference_is_trusted_only_as_a_name(uri: str, tmp_path: Path) -> None:
    with pytest.raises(ContentError, match="does not point into"):
        read_content(uri.format(base=tmp_path.as_uri()), str(tmp_path))


def test_what_was_changed_in_the_store_is_refused(tmp_path: Path) -> None:
    store = ContentStore(str(tmp_path))
    uri = store.put(TEXT)
    assert store.flush()
    Path(urlsplit(uri).path).write_text("Ana moved to Porto.")
    with pytest.raises(ContentError, match="not what its name says"):
        read_content(uri, str(tmp_path))
    Path(urlsplit(uri).path).unlink()
    with pytest.raises(ContentError, match="cannot be read"):
        read_content(uri, str(tmp_path))


def test_a_stuck_store_blocks_nobody_and_drops_are_counted(stuck: Stuck) -> None:
    store = ContentStore("memory://stuck")
    before = drops["content_store"]
    uris = [store.put(f"text {n}") for n in range(QUEUE_ITEMS + 500)]  # a wait for the store would take 30 s each
    assert not stuck.names
    assert uris.count("") == 500
    assert drops["content_store"] == before + 500
    assert not store.flush(0.05)
    stuck.open.set()
    assert store.flush(10)
    assert len(stuck.names) == QUEUE_ITEMS
    assert store.put("text 4500") != ""


def test_a_store_that_gets_no_thread_drops_and_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, before = ContentStore(f"file://{tmp_path}"), drops["content_store"]
    with monkeypatch.context() as ending:
        ending.setattr(threading.Thread, "start", _refused)  # as when the interpreter ends
        assert store.put(TEXT) == ""
    assert drops["content_store"] == before + 1
    assert store.put(TEXT)
    assert store.flush(10)


def _refused(thread: threading.Thread) -> None:
    raise RuntimeError("can't create new thread at interpreter shutdown")


def test_the_queue_is_bounded_in_bytes(stuck: Stuck) -> None:
    store = ContentStore("memory://stuck")
    assert store.put("x" * (QUEUE_BYTES + 1)) == ""
    half = QUEUE_BYTES // 2
    assert [bool(store.put(letter * half)) for letter in "abc"] == [True, True, False]
    stuck.open.set()
    assert store.flush(10)


def test_a_write_that_failed_is_counted_and_tried_again(tmp_path: Path) -> None:
    (tmp_path / "sha256").write_text("a file where a directory should be")
    store = ContentStore(str(tmp_path))
    before = drops["content_store"]
    assert store.put(TEXT)
    assert store.flush()
    assert drops["content_store"] == before + 1
    (tmp_path / "sha256").unlink()
    uri = store.put(TEXT)
    assert store.flush()
    assert read_content(uri, str(tmp_path)) == TEXT


def test_a_store_that_refuses_every_write_is_out_of_order_until_it_takes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "sha256").write_text("a file where a directory should be")
    store = ContentStore(str(tmp_path))
    with caplog.at_level(logging.WARNING, "memtrace_otel"):
        uris = [bool(store.put(f"text {n}")) and store.flush() for n in range(10)]
    assert uris == [True] * FAILURES + [False] * (10 - FAILURES)
    assert store.problem
    assert caplog.text.count("cannot be stored") == 1
    real = time.monotonic
    monkeypatch.setattr("memtrace_otel.capture.content_store.time.monotonic", lambda: real() + RETRY)
    assert [bool(store.put(f"text {n}")) and store.flush() for n in range(3)] == [True, False, False]
    (tmp_path / "sha256").unlink()
    monkeypatch.setattr("memtrace_otel.capture.content_store.time.monotonic", lambda: real() + 2 * RETRY + 1)
    uri = store.put(TEXT)
    assert store.flush()
    assert read_content(uri, str(tmp_path)) == TEXT
    assert store.problem == ""
    assert store.put("other")


def test_what_the_store_does_is_not_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    observed: list[bool] = []

    class Place:
        def write(self, name: str, data: bytes) -> None:
            observed.append(is_instrumentation_enabled())

    monkeypatch.setattr("memtrace_otel.capture.content_store.open_backend", lambda url: Place())
    store = ContentStore("memory://observed")
    store.put(TEXT)
    assert store.flush()
    assert observed == [False]


@pytest.mark.parametrize(
    ("url", "missing", "said"),
    [
        ("memory://x", "fsspec", "pip install 'memtrace-otel[content]'"),
        ("s3://bucket/x", "s3fs", "s3fs"),
        ("nonsense://x", "", "no such kind of store"),
    ],
)
def test_a_store_that_cannot_be_opened_says_what_is_missing(
    url: str, missing: str, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if missing:
        for name in [name for name in sys.modules if name.partition(".")[0] == missing]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, missing, None)  # makes `import` raise ImportError
    store = ContentStore(url)
    with caplog.at_level(logging.WARNING, "memtrace_otel"):
        store.put(TEXT)
        assert store.flush()
    assert said in store.problem
    assert said in caplog.text
    assert store.put(TEXT) == ""


def test_one_store_per_url_and_key(tmp_path: Path) -> None:
    assert content_store(str(tmp_path)) is content_store(str(tmp_path))
    assert content_store(str(tmp_path)) is not content_store(str(tmp_path), "key")


def test_everything_is_written_before_the_process_ends(tmp_path: Path) -> None:
    code = (
        "import sys; from memtrace_otel.capture.content_store import ContentStore\n"
        "store = ContentStore(sys.argv[1])\n"
        "for n in range(500): store.put(f'text {n} ' * 100)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=60)
    assert sum(path.is_file() for path in tmp_path.rglob("*")) == 500


def test_a_file_system_that_needs_executors_is_written_to_before_the_process_ends(tmp_path: Path) -> None:
    code = (
        "import sys, memtrace_otel.capture.content_store as c\n"
        "from pathlib import Path\n"
        "class Asynchronous:\n"
        "    def write(self, name, data):\n"
        "        from concurrent.futures import ThreadPoolExecutor\n"
        "        ThreadPoolExecutor(1).submit((Path(sys.argv[1]) / name[-8:]).write_bytes, data).result()\n"
        "c.open_backend = lambda url: Asynchronous()\n"
        "store = c.ContentStore('memory://x')\n"
        "for n in range(200): store.put(f'text {n}')"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=60)
    assert len(list(tmp_path.iterdir())) == 200


def test_the_end_of_the_process_waits_only_so_long() -> None:
    code = (
        "import memtrace_otel.capture.content_store as c, threading\n"
        "class Hanging:\n"
        "    def write(self, name, data): threading.Event().wait()\n"
        "c.open_backend, c.EXIT_WAIT = lambda url: Hanging(), 0.5\n"
        "store = c.ContentStore('memory://x')\n"
        "store.put('text')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)  # else it would never end


def test_what_is_left_at_the_end_of_the_process_is_counted_once() -> None:
    code = (
        "import atexit, threading\n"
        "from memtrace_otel.capture import drops\n"
        "atexit.register(lambda: print(drops['content_store']))\n"  # runs last
        "import memtrace_otel.capture.content_store as c\n"
        "class Hanging:\n"
        "    def write(self, name, data): threading.Event().wait()\n"
        "c.open_backend, c.EXIT_WAIT = lambda url: Hanging(), 0.1\n"
        "store = c.ContentStore('memory://x')\n"
        "for n in range(3): store.put(f'text {n}')"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, timeout=60, stdout=subprocess.PIPE, text=True)
    assert done.stdout.split() == ["3"]


SLOW = """
import os, signal, sys, time
import memtrace_otel.capture.content_store as c
from memtrace_otel.capture.processor import LosslessSpanProcessor
from opentelemetry.sdk.trace.export import ConsoleSpanExporter
class Slow(c.Directory):
    def write(self, name, data):
        time.sleep(0.002)
        super().write(name, data)
c.open_backend = Slow
processor = LosslessSpanProcessor(ConsoleSpanExporter(), spool_dir=sys.argv[1] + "-spool")
store = c.ContentStore(sys.argv[1])
"""


@pytest.mark.parametrize(
    "end",
    [
        "for n in range(100): store.put(f'text {n}')\nos.kill(os.getpid(), signal.SIGTERM); time.sleep(60)",
        # amid `put`, which holds the lock that the writer needs
        "c.QUEUE_ITEMS, c.note_drop = 100, lambda reason, system: os.kill(os.getpid(), signal.SIGTERM)\n"
        "for n in range(200): store.put(f'text {n}')",
    ],
    ids=["between", "amid"],
)
def test_everything_is_written_before_sigterm_ends_the_process(tmp_path: Path, end: str) -> None:
    done = subprocess.run([sys.executable, "-c", SLOW + end, str(tmp_path / "contents")], timeout=60)
    assert done.returncode == -signal.SIGTERM
    assert sum(path.is_file() for path in (tmp_path / "contents").rglob("*")) >= 100


def test_a_thread_that_goes_on_after_the_main_one_has_its_time_too(tmp_path: Path) -> None:
    end = """
import threading
def serve():
    threading.main_thread().join()
    time.sleep(0.3)
    for n in range(100): store.put(f'text {n}')
store.put('of the main thread')
c.EXIT_WAIT = 0.2
c.SIGTERM_WAIT = 2.0
threading.Thread(target=serve).start()
"""
    assert subprocess.run([sys.executable, "-c", SLOW + end, str(tmp_path / "contents")], timeout=60).returncode == 0
    assert sum(path.is_file() for path in (tmp_path / "contents").rglob("*")) >= 5  # one without time of its own


def test_sigterm_waits_for_a_store_only_so_long(tmp_path: Path) -> None:
    hang = "Slow.write = lambda *_: time.sleep(3600)\nstore.put('text')\nos.kill(os.getpid(), signal.SIGTERM)"
    assert subprocess.run([sys.executable, "-c", SLOW + hang, str(tmp_path)], timeout=60).returncode == -signal.SIGTERM


def test_a_forked_child_stores_its_own(tmp_path: Path) -> None:
    store = ContentStore(str(tmp_path))
    store.put("parent")
    if (child := os.fork()) == 0:
        uri = store.put("child")
        os._exit(0 if store.flush() and read_content(uri, str(tmp_path)) == "child" else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert store.flush()


def test_a_child_of_multiprocessing_stores_everything_before_it_ends(tmp_path: Path) -> None:
    def put() -> None:
        for n in range(300):
            store.put(f"child {n}")

    store = ContentStore(str(tmp_path))
    child = multiprocessing.get_context("fork").Process(target=put)
    child.start()
    child.join()
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 300


def test_a_path_is_absolute_on_spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert public_url("contents") == (tmp_path / "contents").as_uri()
    open_backend("contents").write("sha256/a", b"x")
    assert (tmp_path / "contents" / "sha256" / "a").read_bytes() == b"x"
