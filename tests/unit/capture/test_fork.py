"""A child that was forked while other threads held every lock of ours goes on as if nobody had."""

from __future__ import annotations

import ast
import faulthandler
import gc
import os
import threading
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import memtrace_otel
from memtrace_otel.capture import fork, operation
from memtrace_otel.capture.config import use_redaction
from memtrace_otel.capture.delivery import LosslessSpanProcessor
from memtrace_otel.capture.redact_callback import CallbackRunner
from memtrace_otel.instrumentation.base import Patches
from memtrace_otel.instrumentation.store_location import ObjectNames

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")

SOURCES = Path(memtrace_otel.__file__).parent
KINDS = {"Lock", "RLock", "Condition"}
SECONDS = 10
"""Until a child that hangs says where, and ends."""
ELSEWHERE = {
    ("memtrace_otel.capture.delivery.queue", "Batch"),  # of a delivery, which a child makes anew
    ("memtrace_otel.capture.fork", ""),  # held by nobody: it is there for its type
    ("memtrace_otel.instrumentation.store_location", ""),  # so are these
}
Place = tuple[str, str]
"""Module, and the class whose instances hold a lock there ('': the module does)."""


def places() -> Iterator[Place]:
    """Where capture and the instrumentors make locks, as their sources say."""
    for path in sorted([*SOURCES.glob("capture/**/*.py"), *SOURCES.glob("instrumentation/**/*.py")]):
        module = ".".join(("memtrace_otel", *path.relative_to(SOURCES).with_suffix("").parts)).removesuffix(".__init__")
        for statement in ast.parse(path.read_text()).body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                continue  # it renews what is held elsewhere
            for node in ast.walk(statement):
                if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in KINDS:
                    yield module, statement.name if isinstance(statement, ast.ClassDef) else ""


def locks(root: object, name: str) -> dict[str, tuple[Place, Any]]:
    """Locks that can be reached from a module or an object over attributes and objects of ours, by their path."""
    found: dict[str, tuple[Place, Any]] = {}
    seen: set[int] = set()

    def look(owner: object, path: str) -> None:
        if id(owner) in seen:
            return
        seen.add(id(owner))
        for attribute, value in attributes(owner):
            place = (
                (owner.__name__, "")
                if isinstance(owner, ModuleType)
                else (type(owner).__module__, type(owner).__name__)
            )
            if type(value).__name__ in {"lock", *KINDS}:
                found[f"{path}.{attribute}"] = place, value
            elif type(value).__module__.startswith("memtrace_otel.") and not isinstance(value, type):
                if hasattr(value, "acquire"):
                    found[f"{path}.{attribute}"] = (type(value).__module__, type(value).__name__), value
                look(value, f"{path}.{attribute}")

    look(root, name)
    return found


def attributes(owner: object) -> Iterator[tuple[str, object]]:
    slots = [slot for kind in type(owner).__mro__ for slot in getattr(kind, "__slots__", ())]
    for attribute in [*getattr(owner, "__dict__", ()), *slots]:
        if hasattr(owner, attribute):
            yield attribute, getattr(owner, attribute)


class Guarded:
    """An object with a lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        fork.new_lock_after_fork(self)

    def work(self) -> None:
        pass


def system_classes() -> list[type]:
    """The classes of the instrumented systems whose instances hold a lock."""
    found = [place for place in places() if place[1] and place not in ELSEWHERE]
    return [
        getattr(import_module(module), name)
        for module, name in found
        if module.count(".") > 2 and module.startswith("memtrace_otel.instrumentation.")
    ]


class Process:
    """All that holds locks: the modules and an object of each class."""

    def __init__(self, folder: Path) -> None:
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.processor = LosslessSpanProcessor(InMemorySpanExporter())
        self.provider.add_span_processor(self.processor)
        self.tracer = self.provider.get_tracer("tests")
        self.names = ObjectNames()
        self.made: Mapping[str, object] = {
            "processor": self.processor,
            "callback": CallbackRunner(str.upper),
            "patches": Patches(self.tracer, "test"),
            **{kind.__name__: kind() for kind in system_classes()},
        }

    def locks(self) -> dict[str, tuple[Place, Any]]:
        modules: dict[str, object] = {module: import_module(module) for module, _ in places()}
        roots = {**modules, **self.made}
        return {path: lock for name, root in roots.items() for path, lock in locks(root, name).items()}

    def work(self) -> None:
        """Use what holds them."""
        with operation("search_memory", kind="retrieve", system="test", tracer=self.tracer) as search:
            search.read("query:1", role="query", content="what now")
            search.read("memory:1", role="hit", content="tea")
            search.wrote("context:1", content="tea " * 1000)
        with operation("answer", kind="generate", system="test", tracer=self.tracer) as answer:
            answer.read("context:1", role="context", content="tea " * 1000)
        self.names.name(Guarded())
        self.made["patches"].wrap(Guarded, "work", lambda call: iter(()))  # type: ignore[attr-defined]
        assert self.processor.force_flush()
        exporter = self.processor.exporter
        assert isinstance(exporter, InMemorySpanExporter)
        assert [span.name for span in exporter.get_finished_spans()] == ["search_memory", "answer"]


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")
    use_redaction(str.upper)
    made = Process(tmp_path / "other")
    yield made
    made.provider.shutdown()
    use_redaction(None)


@contextmanager
def held(all_locks: list[Any]) -> Generator[None]:
    """Another thread holds the locks."""
    ready, done = threading.Event(), threading.Event()

    def hold() -> None:
        different = {id(lock): lock for lock in all_locks}.values()
        taken = [lock for lock in different if lock.acquire(True, SECONDS)]
        ready.set()
        done.wait()
        for lock in reversed(taken):
            lock.release()

    gc.disable()  # whatever it would finalize might need one of them here, in the parent
    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    try:
        assert ready.wait(2 * SECONDS)
        yield
    finally:
        done.set()
        thread.join(SECONDS)
        gc.enable()


def said_by_child(do: Callable[[], object]) -> str:
    """What `do` returns or raises in a forked child, as text."""
    readable, writable = os.pipe()
    if (child := os.fork()) == 0:
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        try:
            said = repr(do())
        except BaseException as error:
            said = repr(error)
        os.write(writable, said.encode())
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return said or "it hung"


def test_every_lock_that_is_made_somewhere_is_looked_at(process: Process) -> None:
    assert set(places()) - ELSEWHERE == {place for place, _ in process.locks().values()}


def test_every_lock_is_free_in_a_child(process: Process) -> None:
    process.work()
    before = process.locks()
    with held([lock for _, lock in before.values()]):
        said = said_by_child(
            lambda: (
                [path for path, (_, lock) in process.locks().items() if not lock.acquire(False)]
                + sorted(before.keys() - process.locks().keys())
            )
        )
    assert said == "[]"


def test_a_child_works_on(process: Process) -> None:
    before = process.locks()
    with held([lock for _, lock in before.values()]):
        assert said_by_child(process.work) == "None"
    process.work()


def test_an_owner_of_a_lock_is_let_go() -> None:
    known = fork._owners  # pyright: ignore[reportPrivateUsage]
    owners = [Guarded() for _ in range(100)]
    before = len(known)
    last = weakref.ref(owners[-1])
    owners.clear()
    gc.collect()
    assert last() is None
    assert len(known) <= before - 100
