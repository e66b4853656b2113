"""The contract suite of stores: one that keeps its promises passes, each careless one fails."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial

import pytest

from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp.decode import DecodeError, decode_request
from memtrace_otel.testing import Fill
from tests.contract.stores import SpanStore, StoreContract


class ToyStore:
    """A `SpanStore` in memory."""

    def __init__(self) -> None:
        self._inbox: list[bytes] = []
        self._spans: dict[str, OperationSpan] = {}

    def add_request(self, body: bytes) -> None:
        self._inbox.append(body)

    def decode(self) -> int:
        before = len(self._spans)
        while self._inbox:
            try:
                spans = decode_request(self._inbox.pop(0))
            except DecodeError:
                continue
            for span in spans:
                self._keep(span)
        return len(self._spans) - before

    def _keep(self, span: OperationSpan) -> None:
        self._spans.setdefault(span.origin, span)

    def _sorted(self) -> list[OperationSpan]:
        self.decode()
        return sorted(self._spans.values(), key=lambda span: span.start)

    def trace(self, trace_id: str) -> list[OperationSpan]:
        return [span for span in self._sorted() if span.trace_id == trace_id]

    def spans(
        self,
        *,
        scope: str | None = None,
        kinds: Collection[str] = (),
        since: int | None = None,
        until: int | None = None,
    ) -> Iterator[OperationSpan]:
        for span in self._sorted():
            within = (since is None or span.start >= since) and (until is None or span.start < until)
            if within and scope in (None, span.scope) and (not kinds or span.kind in kinds):
                yield span

    def readers(self, origin: str, *, kinds: Collection[str] = ()) -> list[OperationSpan]:
        found = [span for span in self._sorted() if not kinds or span.kind in kinds]
        return [span for span in found if any(variable.origin == origin for variable in span.inputs)]

    def trace_ids(self, *, scope: str | None = None) -> list[str]:
        return list(dict.fromkeys(span.trace_id for span in self._sorted() if scope in (None, span.scope)))


class LastContentWins(ToyStore):
    def _keep(self, span: OperationSpan) -> None:
        self._spans[span.origin] = span


class SpanIdAlone(ToyStore):
    def _keep(self, span: OperationSpan) -> None:
        self._spans.setdefault(span.span_id, span)


class OrderOfArrival(ToyStore):
    def _sorted(self) -> list[OperationSpan]:
        self.decode()
        return list(self._spans.values())


class OrderOfIds(ToyStore):
    def _sorted(self) -> list[OperationSpan]:
        return sorted(super()._sorted(), key=lambda span: (span.start, span.span_id))


class DecodesWhenTold(ToyStore):
    def _sorted(self) -> list[OperationSpan]:
        return sorted(self._spans.values(), key=lambda span: span.start)


class StopsAtTheUnreadable(ToyStore):
    def decode(self) -> int:
        before = len(self._spans)
        while self._inbox:
            try:
                spans = decode_request(self._inbox[0])
            except DecodeError:
                break
            del self._inbox[0]
            for span in spans:
                self._keep(span)
        return len(self._spans) - before


class CountsEveryDelivery(ToyStore):
    def decode(self) -> int:
        count = 0
        for body in self._inbox:
            try:
                count += len(decode_request(body))
            except DecodeError:
                continue
        super().decode()
        return count


class UntilIncluded(ToyStore):
    def spans(self, *, until: int | None = None, **conditions: object) -> Iterator[OperationSpan]:  # type: ignore[override]
        return super().spans(until=None if until is None else until + 1, **conditions)  # type: ignore[arg-type]


class ReadersOncePerInput(ToyStore):
    def readers(self, origin: str, *, kinds: Collection[str] = ()) -> list[OperationSpan]:
        return [span for span in self._sorted() for variable in span.inputs if variable.origin == origin]


class KindsOverlooked(ToyStore):
    def readers(self, origin: str, *, kinds: Collection[str] = ()) -> list[OperationSpan]:
        return super().readers(origin)


class PartsLeftOut(ToyStore):
    def _keep(self, span: OperationSpan) -> None:
        if not span.part:
            super()._keep(span)


class UnknownIsAnError(ToyStore):
    def trace(self, trace_id: str) -> list[OperationSpan]:
        found = super().trace(trace_id)
        if not found:
            raise KeyError(trace_id)
        return found


class OldClocksLeftOut(ToyStore):
    def _keep(self, span: OperationSpan) -> None:
        if span.start:
            super()._keep(span)


class TestToyStore(StoreContract):
    @pytest.fixture
    def store(self) -> ToyStore:
        return ToyStore()

    @pytest.fixture
    def fill(self, store: ToyStore) -> Fill:
        return partial(self.fill_store, store)


def promises() -> list[str]:
    return [name for name in dir(StoreContract) if name.startswith("test_")]


@pytest.mark.parametrize("careless", ToyStore.__subclasses__())
def test_a_careless_store_is_found_out(careless: type[ToyStore]) -> None:
    assert any(is_broken(name, careless()) for name in promises())


def test_a_careful_one_is_not() -> None:
    assert not any(is_broken(name, ToyStore()) for name in promises())


def is_broken(promise: str, store: SpanStore) -> bool:
    suite = StoreContract()
    test = getattr(suite, promise)
    names = test.__func__.__code__.co_varnames[1 : test.__func__.__code__.co_argcount]
    given = {"store": store, "fill": partial(suite.fill_store, store)}
    try:
        test(**{name: given[name] for name in names})
    except (AssertionError, KeyError):
        return True
    return False
