"""What a program does with functions besides calling them: pickle, copy, refer weakly; as if they were not wrapped."""

from __future__ import annotations

import asyncio
import copy
import functools
import gc
import inspect
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

from memtrace_otel.instrumentation.base import Patches
from memtrace_otel.instrumentation.steps import Call, Step
from tests.conftest import Recording
from tests.unit.instrumentation import toy_notes
from tests.unit.instrumentation.toy_notes import Notes, Shared

METHODS = ("search", "asearch", "named", "split")
FUNCTIONS: dict[str, Callable[[], Any]] = {
    **{f"bound {name}": functools.partial(getattr, Notes("Bob"), name) for name in METHODS},
    **{f"of the class: {name}": functools.partial(getattr, Notes, name) for name in METHODS},
    "overridden": lambda: Shared("Bob").search,
    "inherited": lambda: Shared("Bob").asearch,
    "embed": lambda: toy_notes.embed,
    "aembed": lambda: toy_notes.aembed,
}
RUN = """
import asyncio, pickle, sys
assert not any(name.startswith(("memtrace_otel", "wrapt")) for name in sys.modules)
for function, arguments in pickle.load(sys.stdin.buffer):
    result = function(*arguments)
    print(asyncio.run(result) if asyncio.iscoroutine(result) else result)
"""


@pytest.fixture
def seen(recording: Recording) -> Iterator[list[str]]:
    """Names of the observed calls of the toy, whose functions are wrapped."""
    names: list[str] = []

    def step(call: Call[Any]) -> Step:
        names.append(call.name.removeprefix("tests.unit.instrumentation.toy_notes."))
        yield

    patches = Patches(recording.tracer, "toy")
    patches.wrap_all(Notes, dict.fromkeys(METHODS, step))
    patches.wrap(Shared, "search", step)
    patches.wrap_all(toy_notes, {"embed": step, "aembed": step})
    yield names
    patches.remove()


def arguments(name: str) -> tuple[Any, ...]:
    return (Notes("Cleo"), "tea") if name in ("of the class: search", "of the class: asearch") else ("tea",)


def called(function: Any, name: str) -> Any:
    result = function(*arguments(name))
    return asyncio.run(result) if inspect.iscoroutine(result) else result


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("protocol", [0, pickle.HIGHEST_PROTOCOL])
def test_a_pickle_comes_back_wrapped(seen: list[str], name: str, protocol: int) -> None:
    function = FUNCTIONS[name]()
    back = pickle.loads(pickle.dumps(function, protocol))
    assert called(back, name) == called(function, name)
    assert len(seen) >= 2
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]


def test_a_process_that_knows_nothing_of_us_reads_the_pickles(seen: list[str]) -> None:
    functions = [(FUNCTIONS[name](), arguments(name)) for name in FUNCTIONS]
    done = subprocess.run([sys.executable, "-c", RUN], input=pickle.dumps(functions), capture_output=True, check=False)
    assert done.stdout.decode().splitlines() == [called(FUNCTIONS[name](), name) for name in FUNCTIONS], done.stderr


def test_what_was_pickled_without_us_is_observed(recording: Recording, request: pytest.FixtureRequest) -> None:
    data = {name: pickle.dumps(FUNCTIONS[name]()) for name in FUNCTIONS}
    seen: list[str] = request.getfixturevalue("seen")
    for name, pickled in data.items():
        before = len(seen)
        called(pickle.loads(pickled), name)
        assert len(seen) > before, name


def test_a_process_pool_takes_them(seen: list[str]) -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        assert list(pool.map(Notes("Bob").search, ["tea", "milk"])) == ["Bob: tea", "Bob: milk"]
        assert pool.submit(toy_notes.embed, "tea").result() == "embed: tea"
        assert pool.submit(Shared.named, "tea").result() == "Shared: tea"


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copies_are_called_and_observed(seen: list[str], name: str, copied: Callable[[Any], Any]) -> None:
    function = FUNCTIONS[name]()
    held = copied({"function": copied(function)})["function"]
    assert called(held, name) == called(function, name)
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :] != []


def test_a_deep_copy_of_a_method_is_of_a_deep_copy_of_its_object(seen: list[str]) -> None:
    notes = Notes("Bob")
    tool = {"notes": notes, "search": notes.search}
    other = copy.deepcopy(tool)
    other["notes"].owner = "Cleo"  # pyright: ignore[reportAttributeAccessIssue]
    assert [each["search"]("tea") for each in (tool, other)] == ["Bob: tea", "Cleo: tea"]  # pyright: ignore
    assert copy.copy(notes.search).__self__ is notes
    assert seen == ["Notes.search", "Notes.search"]


@pytest.mark.parametrize("kind", [Notes, Shared])
def test_a_weak_method_is_observed_and_lets_its_object_go(seen: list[str], kind: type[Notes]) -> None:
    known = kind("Bob")
    weak = weakref.WeakMethod(known.search)
    assert weak == weakref.WeakMethod(known.search)
    found = weak()
    assert found is not None
    assert (found("tea"), found == known.search) == (known.search("tea"), True)
    assert len(seen) == (4 if kind is Shared else 2)
    del found, known
    gc.collect()
    assert weak() is None


def test_weak_methods_of_coroutines_and_of_what_an_override_calls(seen: list[str]) -> None:
    notes = Shared("Bob")
    asearch = weakref.WeakMethod(notes.asearch)()
    assert asearch is not None
    assert inspect.iscoroutinefunction(asearch)
    assert asyncio.run(asearch("tea")) == "Bob: tea"
    overridden = weakref.WeakMethod(super(Shared, notes).search)()
    assert overridden is not None
    assert overridden("tea") == "Bob: tea"
    named = weakref.WeakMethod(Shared.named)()
    assert named is not None
    assert named("tea") == "Shared: tea"
    assert seen == ["Notes.asearch", "Notes.search", "Notes.named"]


def test_a_weak_method_outlives_the_instrumentation(recording: Recording) -> None:
    def step(call: Call[Any]) -> Step:
        yield

    patches = Patches(recording.tracer, "toy")
    patches.wrap(Notes, "search", step)
    notes = Notes("Bob")
    weak = weakref.WeakMethod(notes.search)
    patches.remove()
    gc.collect()
    found = weak()
    assert found is not None
    assert found("tea") == "Bob: tea"


def test_what_cannot_be_pickled_without_us_cannot_be_with_us(recording: Recording) -> None:
    def local(query: str) -> str:
        return query

    def step(call: Call[Any]) -> Step:
        yield

    around = Patches(recording.tracer, "toy").around
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(local)
    with pytest.raises(pickle.PicklingError):
        pickle.dumps(around(local, step))
    local.__qualname__ = "Notes.search"
    local.__module__ = toy_notes.__name__
    with pytest.raises(pickle.PicklingError, match="not the same object"):
        pickle.dumps(around(local, step))


def test_an_object_that_is_called_is_pickled_and_copied_as_what_it_is(seen: list[str], recording: Recording) -> None:
    def step(call: Call[Any]) -> Step:
        seen.append("partial")
        yield

    wrapped = Patches(recording.tracer, "toy").around(functools.partial(Notes("Bob").search, "tea"), step)
    assert pickle.loads(pickle.dumps(wrapped))() == copy.deepcopy(wrapped)() == copy.copy(wrapped)() == "Bob: tea"
    assert seen.count("partial") == 2  # the pickle is of what is called, without us
