"""The instrumentor contract of this project: the public contract, every way of calling a system, and broken hooks."""

from __future__ import annotations

from collections.abc import Mapping

from memtrace_otel import testing
from memtrace_otel.testing.fixtures import Observed
from tests.harness.harmless import HarmlessContract
from tests.harness.ways import WAYS


class InstrumentorContract(testing.InstrumentorContract, HarmlessContract):
    """The public contract, and: no hook can hurt, no way of calling is left out."""

    elsewhere: Mapping[type[Observed], str] = {}
    """The `WAYS` that another class of tests goes, and that class: `package.module:Class`, or one of this module."""
    cannot: Mapping[type[Observed], str] = {}
    """The `WAYS` that nobody can go with this system, and why."""

    # --- what is used ----------------------------------------------------------------------------------------------
    def test_no_way_of_using_it_is_left_out(self) -> None:
        for way in WAYS:
            why = self.cannot.get(way, "").strip()
            if isinstance(self, way):
                assert not why, f"{type(self).__name__} goes by {way.__name__}, which it says nobody can: {why}"
                other = type(self)
            elif not why:
                other = self.named(self.elsewhere.get(way) or _untold(type(self), way))
                assert issubclass(other, way), (other, way)
                assert other.instrumentor is self.instrumentor, (other, self.instrumentor)
            else:
                continue
            assert all(getattr(other, test) for test in vars(way) if test.startswith("test_")), (other, way)


def _untold(kind: type[Observed], way: type[Observed]) -> str:
    raise AssertionError(
        f"{kind.__name__} leaves out {way.__name__}: derive from it, name the class that does in `elsewhere`, "
        "or say in `cannot` why nobody can"
    )
