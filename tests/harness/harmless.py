"""Whatever of ours breaks: the observed program sees what it sees without us."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from memtrace_otel.instrumentation import steps
from memtrace_otel.instrumentation.threads import Namespace
from memtrace_otel.testing.fixtures import Observed, own
from memtrace_otel.testing.programs import Factory, explored, failure, finished, play
from tests.harness.faults import FAULTS, STEP_FAULTS, Hits, inject
from tests.harness.parts import break_each_once, break_part, count_calls, parts_of


class Breakable(Observed):
    """The fixtures of contracts whose tests break the instrumentor."""

    def named(self, place: str) -> type[Observed]:
        """The class of tests at `package.module:Class`, or `Class` in the module of this one; AssertionError when
        pytest does not collect it."""
        module, _, name = place.rpartition(":")
        home = import_module(module or type(self).__module__)
        found = getattr(home, name)
        file = Path(home.__file__ or "").name
        is_module = not module or any(fnmatch(file, form) for form in self.config.getini("python_files"))
        is_class = any(fnmatch(name, form) or name.startswith(form) for form in self.config.getini("python_classes"))
        assert is_module and is_class and getattr(found, "__test__", True), f"pytest does not collect {place}"  # noqa: PT018
        return found

    @pytest.fixture
    def broken(self, provider: TracerProvider, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Hits]]:
        """Breaks the hooks that are made from then on, when called with one of the faults."""
        with ExitStack() as undo:
            yield lambda fault: inject(fault, monkeypatch, provider, undo)


class HarmlessContract(Breakable):
    """Every hook and every function of an instrumentor breaks; a program that can `explore` shows that it is spared.

    Part of `InstrumentorContract`; alone, it is for a program whose spans are not the same from run to run.
    """

    beyond: Mapping[str, str] | str = {}
    """Modules of the instrumentor whose hooks the program does not come by, and the class of tests whose program does
    (`package.module:Class`, or one of this module); or the one class whose program comes by every hook."""
    declining: frozenset[str] = frozenset()
    """Steps, `<module>.<name>`, that return before their yield when the ends of all others raise: those leave them
    nothing to record."""
    in_parts: bool = True
    """False for a slow system: its parts share a few runs, in which each raises when it is called first."""
    outcomes: int = 1
    """How many runs without us may tell what the program sees: more where background work overtakes itself."""
    passing: frozenset[str] = frozenset()
    """Functions of the instrumentor that cannot be left out: they pass on what is the program's, and nothing else, or
    the SDK calls them, with a guard inside."""
    carriers: frozenset[str] = frozenset()
    """Names that are replaced by no step: what carries a context to where the system works on."""

    @pytest.mark.parametrize("fault", FAULTS)
    def test_no_hook_of_ours_can_hurt(
        self, program: Factory, instrument: Callable[[], None], fault: str, broken: Callable[[str], Hits]
    ) -> None:
        """Every hook raises or returns garbage, or what it calls hangs: results and errors of the program stay."""
        results, error = finished(explored(program)), finished(failure(program))
        hits = broken(fault)
        instrument()
        seen = finished(explored(program))
        raised = finished(failure(program))
        assert (type(raised), str(raised)) == (type(error), str(error))
        assert self.strange([seen], results, lambda: finished(explored(program))) == []
        hits.wait()
        if fault in STEP_FAULTS:
            spared = {name for name in hits.placed - hits.met.keys() if not self.is_met_elsewhere(name)}
            declining = self.declining if fault.endswith("after") else frozenset[str]()
            assert {".".join(name.split(".")[-2:]) for name in spared} - declining == set()

    def is_met_elsewhere(self, hook: str) -> bool:
        """Whether a hook, `<package>.<module>.<name>`, is in a module of another class of tests that comes by all."""
        package, module, _ = hook.rsplit(".", 2)
        place = self.beyond if isinstance(self.beyond, str) else self.beyond.get(module)
        if not place:
            return False
        other = self.named(place)
        assert issubclass(other, HarmlessContract), other
        comes_by = other.instrumentor.__module__ == package and isinstance(other.beyond, Mapping)
        assert comes_by, f"{place} does not come by {hook}"
        assert module not in other.beyond, f"{place} does not come by {hook}"
        return True

    def test_every_wrapper_can_be_broken(self, program: Factory, instrument: Callable[[], None]) -> None:
        """What is in place is a step, which the fault injection breaks, threads that keep the context, or a carrier."""
        instrument()
        asyncio.run(play(program))
        made = [(name, own(owner, name)) for owner, name in self.known_places()]
        others = {name for name, new in made if not isinstance(new, Namespace) and not is_step(new)}
        assert others - {"__init_subclass__"} <= self.carriers

    def test_no_part_of_ours_can_hurt(
        self, program: Factory, instrument: Callable[[], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each function of the instrumentor raises: always, one after the other, or when it is called first."""

        def seen() -> tuple[object, str]:
            return finished(explored(program)), repr(finished(failure(program)))

        def try_out(places: Collection[str]) -> None:
            try:
                tried.append((seen(), sorted(places)))
            except Exception as error:
                tried.append((error, sorted(places)))

        untraced = seen()
        instrument()
        left = [part for part in parts_of(self.instrumentor.__module__) if part[0].split(":")[1] not in self.passing]
        tried: list[tuple[object, list[str]]] = []
        if self.in_parts:
            with monkeypatch.context() as counting:
                calls = count_calls(left, counting)
                seen()
            for part in left:
                if calls[part[0]]:
                    with monkeypatch.context() as breaking:
                        break_part(part, breaking)
                        try_out([part[0]])
        else:  # what one hides that is called around it, comes up in the next run
            raised = {""}
            while raised:
                with monkeypatch.context() as breaking:
                    raised = break_each_once(left, breaking)
                    try_out(raised)
                left = [part for part in left if part[0] not in raised]
        strange = self.strange([saw for saw, _ in tried], untraced, seen)
        assert [(places, saw) for saw, places in tried if saw in strange] == []

    def strange(self, seen: Sequence[object], untraced: object, again: Callable[[], object]) -> list[object]:
        """What of that which the program saw it never sees without us; `again` runs it so, when there is a doubt."""
        left = [saw for saw in seen if saw != untraced]
        if left and self.instrumentor().is_instrumented_by_opentelemetry:
            self.instrumentor().uninstrument()
        for _ in range(1, self.outcomes):
            if left:
                other = again()
                left = [saw for saw in left if saw != other]
        return left


def is_step(function: Any) -> bool:
    """Whether a wrapper, or one inside of it, runs a step."""
    while function is not None:
        made = getattr(function, "_self_wrapper", None)
        if getattr(made, "__module__", "") == steps.__name__ and made is not None:
            return True
        function = getattr(function, "__wrapped__", None)
    return False
