"""The instrumentor contract passes for a good instrumentor and fails for each careless one."""

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
    SynchronousContract,
    ThreadedContract,
)
from tests.harness.faults import inject
from tests.unit.testing import toy
from tests.unit.testing.toy import ToyInstrumentor, ToyProgram


class TestToy(InstrumentorContract, SynchronousContract, CancelledContract, ThreadedContract, ReentrantContract):
    instrumentor = ToyInstrumentor

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
    for test in (
        "wire_contract",
        "contents_are_off_by_default",
        "results_are_the_same",
        "writer_and_no_later_ancestor",
    ):
        assert test in failed


def test_one_scope_for_all_memories_is_caught(pytester: pytest.Pytester) -> None:
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
WRONG_LINEAGE = {
    "no message": (MESSAGE, "", "comes_from_its_text"),
    "another message": (MESSAGE, MESSAGE.replace("=text", "=text + '!'"), "comes_from_its_text"),
    "another memory": (ADDED, ADDED.replace("=text", "=text + '!'"), "the_digest_of_its_write"),
    "another hit": (FOUND, FOUND.replace("call", "'nonsense' or call"), "the_digest_of_its_write"),
    "a hit without a content": (FOUND, "content='')", "the_digest_of_its_write"),
    "no query": (QUERY, "", "reads_its_query"),
    "another query": (QUERY, QUERY.replace("=query", "=query + '!'"), "reads_its_query"),
    "twice": (ADDED, ADDED + ADDED.replace("operation", AGAIN), "no_record_is_listed_twice"),
    "one owner": ("user=id(memory)", "user='everybody'", "two_owners_have_two_scopes"),
    "no owner": ("scope=scope(call.instance)", "scope=''", "two_owners_have_two_scopes"),
}


@pytest.mark.parametrize(("right", "wrong", "test"), WRONG_LINEAGE.values(), ids=WRONG_LINEAGE.keys())
def test_wrong_lineage_is_caught(pytester: pytest.Pytester, right: str, wrong: str, test: str) -> None:
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
    result = pytester.runpytest("-p", "no:cacheprovider", "-k", "hit or query or twice or owners")
    assert test in "\n".join(line for line in result.outlines if line.startswith("FAILED"))


@pytest.mark.parametrize(("kind", "outcomes", "caught"), [("Toy", 1, 1), ("Toy", 3, 0), ("Careless", 3, 1)])
def test_results_that_differ_without_the_instrumentor_are_accepted(
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
    result = pytester.runpytest("-p", "no:cacheprovider", "-k", "every_function")
    result.assert_outcomes(failed=caught, passed=1 - caught)


def test_an_unguarded_function_is_caught(pytester: pytest.Pytester) -> None:
    pytester.syspathinsert(Path(__file__).parents[3])
    pytester.makepyfile("""
        import pytest
        from tests.harness import HarmlessContract
        from tests.unit.testing.toy import ToyProgram, UnguardedInstrumentor

        class TestUnguarded(HarmlessContract):
            instrumentor = UnguardedInstrumentor

            @pytest.fixture
            def program(self):
                return ToyProgram
    """)
    pytester.runpytest("-p", "no:cacheprovider", "-k", "every_function").assert_outcomes(failed=1)


def test_origins_that_raise_are_met_by_what_an_operation_reads(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as undo:
        hits = inject("origins raise", monkeypatch, recording.provider, undo)
        with operation("search_memory", kind="retrieve", system="toy", tracer=recording.tracer) as search:
            search.read("memory:1", role="hit")
    assert hits.met["newest"] == 1
