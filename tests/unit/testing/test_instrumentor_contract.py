"""The contract passes for a good instrumentor and fails for a careless one."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from memtrace_otel.capture import operation
from tests.conftest import Recording
from tests.harness import (
    CancelledContract,
    InstrumentorContract,
    ReentrantContract,
    StreamedContract,
    SynchronousContract,
    ThreadedContract,
)
from tests.harness.faults import inject
from tests.unit.testing import toy
from tests.unit.testing.toy import ToyInstrumentor, ToyProgram


class TestToy(InstrumentorContract, SynchronousContract, CancelledContract, ThreadedContract, ReentrantContract):
    instrumentor = ToyInstrumentor
    cannot = {StreamedContract: "it answers whole"}

    @pytest.fixture
    def program(self) -> type[ToyProgram]:
        return ToyProgram


def test_a_careless_instrumentor_is_caught(pytester: pytest.Pytester) -> None:
    pytester.syspathinsert(Path(__file__).parents[3])
    pytester.makepyfile("""
        import pytest
        from tests.harness import InstrumentorContract
        from tests.unit.testing.toy import CarelessInstrumentor, ToyProgram

        class TestCareless(InstrumentorContract):
            instrumentor = CarelessInstrumentor

            @pytest.fixture
            def program(self):
                return ToyProgram
    """)
    result = pytester.runpytest("-p", "no:cacheprovider")
    failed = "\n".join(line for line in result.outlines if line.startswith("FAILED"))
    for test in ("wire_contract", "contents_stay_inside", "results_are_the_same", "writer_and_no_later_ancestor"):
        assert test in failed


def test_an_instrumentor_that_takes_equal_memories_for_one_is_caught(pytester: pytest.Pytester) -> None:
    pytester.syspathinsert(Path(__file__).parents[3])
    pytester.makepyfile("""
        import pytest
        from memtrace_otel.capture import scope_id
        from tests.harness import InstrumentorContract, ThreadedContract
        from tests.unit.testing import toy

        class TestMixing(InstrumentorContract, ThreadedContract):
            instrumentor = toy.ToyInstrumentor

            @pytest.fixture
            def program(self, monkeypatch):
                monkeypatch.setattr(toy, "scope", lambda memory: scope_id("toy"))
                return toy.ToyProgram
    """)
    result = pytester.runpytest("-p", "no:cacheprovider", "-k", "keep_apart or writer")
    failed = sorted(line.split("::")[-1].split(" ")[0] for line in result.outlines if line.startswith("FAILED"))
    assert failed == ["test_tasks_at_the_same_time_keep_apart", "test_threads_keep_apart_and_lose_nothing"]


MESSAGE = "    operation.read(variable_ref(RefKind.MESSAGE, text), role=Role.MESSAGE, content=text)\n"
QUERY = "    operation.read(variable_ref(RefKind.QUERY, query), role=Role.QUERY, content=query)\n"
ADDED = "    operation.wrote(ref(call.instance, made), action=Action.ADD, content=text)\n"
AGAIN = "call.open('create_memory', OpKind.CREATE, scope=scope(call.instance))"
FOUND = "content=call.instance.records[id])"
LEADS_NOWHERE = {
    "no message": (MESSAGE, "", "is_what_was_written"),
    "another message": (MESSAGE, MESSAGE.replace("=text", "=text + '!'"), "is_what_was_written"),
    "another memory": (ADDED, ADDED.replace("=text", "=text + '!'"), "is_what_was_written"),
    "another hit": (FOUND, FOUND.replace("call", "'nonsense' or call"), "is_what_was_written"),
    "a hit without a content": (FOUND, "content='')", "is_what_was_written"),
    "no query": (QUERY, "", "was_asked_for"),
    "another query": (QUERY, QUERY.replace("=query", "=query + '!'"), "was_asked_for"),
    "twice": (ADDED, ADDED + ADDED.replace("operation", AGAIN), "recorded_twice"),
    "one owner": ("user=id(memory)", "user='everybody'", "scopes_of_their_own"),
    "no owner": ("scope=scope(call.instance)", "scope=''", "scopes_of_their_own"),
}


@pytest.mark.parametrize(("right", "wrong", "test"), LEADS_NOWHERE.values(), ids=LEADS_NOWHERE.keys())
def test_an_instrumentor_that_leads_nowhere_is_caught(
    pytester: pytest.Pytester, right: str, wrong: str, test: str
) -> None:
    source = Path(toy.__file__).read_text("utf-8")
    assert right in source
    pytester.makepyfile(
        wrongtoy=source.replace(right, wrong),
        test_wrong="""
            import pytest
            from tests.harness import InstrumentorContract
            from wrongtoy import ToyInstrumentor, ToyProgram

            class TestWrong(InstrumentorContract):
                instrumentor = ToyInstrumentor

                @pytest.fixture
                def program(self):
                    return ToyProgram
        """,
    )
    result = pytester.runpytest("-p", "no:cacheprovider", "-k", "what_is_found or twice or owners_have")
    assert test in "\n".join(line for line in result.outlines if line.startswith("FAILED"))


WAYS_LEFT_OUT = {
    "nothing is said": "",
    "of another kind": "elsewhere = {StreamedContract: 'TestCancelled'}",
    "of another instrumentor": "elsewhere = {StreamedContract: 'TestOthers'}",
    "without a reason": "cannot = {StreamedContract: ' '}",
    "of a class that is not collected": "elsewhere = {StreamedContract: 'Uncollected'}",
    "of a class that leaves its tests out": "elsewhere = {StreamedContract: 'TestNothing'}",
    "derived all the same": "cannot = {StreamedContract: 'it answers whole', CancelledContract: 'it never waits'}",
}


@pytest.mark.parametrize("told", WAYS_LEFT_OUT.values(), ids=WAYS_LEFT_OUT.keys())
def test_a_way_of_using_a_system_that_is_left_out_is_caught(pytester: pytest.Pytester, told: str) -> None:
    pytester.syspathinsert(Path(__file__).parents[3])
    pytester.makepyfile(f"""
        from tests.harness import *
        from tests.unit.testing.toy import CarelessInstrumentor, ToyInstrumentor

        class TestCancelled(CancelledContract):
            instrumentor = ToyInstrumentor

        class TestOthers(StreamedContract):
            instrumentor = CarelessInstrumentor

        class Uncollected(StreamedContract):
            instrumentor = ToyInstrumentor

        class TestNothing(StreamedContract):
            instrumentor = ToyInstrumentor
            test_a_stream_is_the_same_and_recorded_whole = None

        class TestForgetful(InstrumentorContract, SynchronousContract, CancelledContract, ThreadedContract,
                            ReentrantContract):
            instrumentor = ToyInstrumentor
            {told}
    """)
    pytester.runpytest("-p", "no:cacheprovider", "-k", "no_way_of").assert_outcomes(failed=1)


HOOKS_FORGOTTEN = {
    "nothing is said": "",
    "of a class that forgets it too": "beyond = {'toy': 'TestForgetful'}",
    "of another system": "beyond = {'toy': 'TestOther'}",
}


@pytest.mark.parametrize("told", HOOKS_FORGOTTEN.values(), ids=HOOKS_FORGOTTEN.keys())
def test_a_hook_that_no_program_comes_by_is_caught(pytester: pytest.Pytester, told: str) -> None:
    pytester.syspathinsert(Path(__file__).parents[3])
    pytester.makepyfile(f"""
        import pytest
        from memtrace_otel.instrumentation.openai import OpenAIInstrumentor
        from tests.harness import HarmlessContract
        from tests.unit.testing.toy import ToyInstrumentor, ToyProgram

        class TestOther(HarmlessContract):
            instrumentor = OpenAIInstrumentor

        class TestForgetful(HarmlessContract):
            instrumentor = ToyInstrumentor
            {told}

            @pytest.fixture
            def program(self):
                class Brief(ToyProgram):
                    async def explore(self):
                        return None  # never waits, which is wrapped, too
                return Brief
    """)
    result = pytester.runpytest("-p", "no:cacheprovider", "-k", "TestForgetful and hook and (raise or garbage or hang)")
    failed = sorted(line.split("[")[-1].split("]")[0] for line in result.outlines if line.startswith("FAILED"))
    assert {"garbage after", "garbage before", "raise after", "raise before"} <= {*failed}


@pytest.mark.parametrize(("kind", "outcomes", "caught"), [("Toy", 1, 1), ("Toy", 3, 0), ("Careless", 3, 1)])
def test_what_differs_without_us_is_told_from_what_we_change(
    pytester: pytest.Pytester, kind: str, outcomes: int, caught: int
) -> None:
    pytester.syspathinsert(Path(__file__).parents[3])
    pytester.makepyfile(f"""
        from itertools import cycle
        import pytest
        from tests.harness import HarmlessContract
        from tests.unit.testing import toy

        class TestFickle(HarmlessContract):
            instrumentor = toy.{kind}Instrumentor
            outcomes = {outcomes}

            @pytest.fixture
            def program(self):
                answers = cycle(["this", "that", "that"])

                class Fickle(toy.ToyProgram):
                    async def explore(self):
                        return next(answers)
                return Fickle
    """)
    result = pytester.runpytest("-p", "no:cacheprovider", "-k", "no_part")
    result.assert_outcomes(failed=caught, passed=1 - caught)


@pytest.mark.parametrize("in_parts", [True, False])
def test_a_function_that_nothing_guards_is_caught(pytester: pytest.Pytester, in_parts: bool) -> None:
    pytester.syspathinsert(Path(__file__).parents[3])
    pytester.makepyfile(f"""
        import pytest
        from tests.harness import HarmlessContract
        from tests.unit.testing.toy import ToyProgram, UnguardedInstrumentor

        class TestUnguarded(HarmlessContract):
            instrumentor = UnguardedInstrumentor
            in_parts = {in_parts}
            passing = frozenset({{"UnguardedInstrumentor.patch.<locals>.unguarded"}})

            @pytest.fixture
            def program(self):
                return ToyProgram
    """)
    result = pytester.runpytest("-p", "no:cacheprovider", "-k", "no_part", "-vv")
    harmful = "\n".join(line for line in result.outlines if line.startswith("E  "))
    assert "toy:count" in harmful
    assert ("toy:note" in harmful) != in_parts  # in shared runs it is one of those that raised


def test_origins_that_raise_are_met_by_what_an_operation_reads(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as undo:
        hits = inject("origins raise", monkeypatch, recording.provider, undo)
        with operation("search_memory", kind="retrieve", system="toy", tracer=recording.tracer) as search:
            search.read("memory:1", role="hit")
    assert hits.met["newest"] == 1


@pytest.mark.parametrize(("wraps_nothing", "caught"), [(False, 2), (True, 0)])
def test_an_instrumentor_that_does_not_tell_what_it_wraps_is_caught(
    pytester: pytest.Pytester, wraps_nothing: bool, caught: int
) -> None:
    pytester.syspathinsert(Path(__file__).parents[3])
    pytester.makepyfile(f"""
        import pytest
        from tests.harness import InstrumentorContract
        from tests.unit.testing.toy import ToyProgram, UntoldInstrumentor

        class TestUntold(InstrumentorContract):
            instrumentor = UntoldInstrumentor
            wraps_nothing = {wraps_nothing}

            @pytest.fixture
            def program(self):
                return ToyProgram
    """)
    result = pytester.runpytest("-p", "no:cacheprovider", "-k", "wrapper or gives_the_originals")
    result.assert_outcomes(failed=caught, passed=2 - caught)
    told = [line for line in result.outlines if "nothing tells what UntoldInstrumentor wraps" in line]
    assert bool(told) == bool(caught)
