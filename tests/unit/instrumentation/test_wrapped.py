"""A program pickles and copies wrapped functions as if they were not wrapped."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import pickle
import subprocess
import sys
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
def test_an_unpickled_function_is_observed(seen: list[str], name: str, protocol: int) -> None:
    function = FUNCTIONS[name]()
    back = pickle.loads(pickle.dumps(function, protocol))
    assert called(back, name) == called(function, name)
    assert len(seen) >= 2
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]


def test_a_process_without_this_package_reads_the_pickles(seen: list[str]) -> None:
    functions = [(FUNCTIONS[name](), arguments(name)) for name in FUNCTIONS]
    done = subprocess.run([sys.executable, "-c", RUN], input=pickle.dumps(functions), capture_output=True, check=False)
    assert done.stdout.decode().splitlines() == [called(FUNCTIONS[name](), name) for name in FUNCTIONS], done.stderr


def test_a_pickle_made_before_the_instrumentation_is_observed(
    recording: Recording, request: pytest.FixtureRequest
) -> None:
    data = {name: pickle.dumps(FUNCTIONS[name]()) for name in FUNCTIONS}
    seen: list[str] = request.getfixturevalue("seen")
    for name, pickled in data.items():
        before = len(seen)
        called(pickle.loads(pickled), name)
        assert len(seen) > before, name


def test_a_process_pool_runs_wrapped_functions(seen: list[str]) -> None:
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


def test_a_deep_copied_method_is_bound_to_a_deep_copy_of_its_object(seen: list[str]) -> None:
    notes = Notes("Bob")
    tool = {"notes": notes, "search": notes.search}
    other = copy.deepcopy(tool)
    other["notes"].owner = "Cleo"  # pyright: ignore[reportAttributeAccessIssue]
    assert [each["search"]("tea") for each in (tool, other)] == ["Bob: tea", "Cleo: tea"]  # pyright: ignore
    assert copy.copy(notes.search).__self__ is notes
    assert seen == ["Notes.search", "Notes.search"]
