"""One of each backend for all end-to-end tests, and their logs where a test fails."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from tests.e2e.backends.jaeger import Jaeger, running_jaeger
from tests.e2e.backends.service import RUNNING
from tests.e2e.backends.tempo import SEARCHABLE, Tempo, running_tempo
from tests.e2e.monitored import Monitored
from tests.e2e.monitored import monitored as running_monitored


@pytest.fixture(scope="session")
def jaeger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jaeger]:
    with running_jaeger(tmp_path_factory.mktemp("jaeger")) as jaeger:
        yield jaeger


@pytest.fixture(scope="session")
def badger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jaeger]:
    """A Jaeger that keeps its spans on disk."""
    with running_jaeger(tmp_path_factory.mktemp("badger"), "badger") as jaeger:
        yield jaeger


@pytest.fixture(scope="session")
def tempo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tempo]:
    with running_tempo(tmp_path_factory.mktemp("tempo"), **SEARCHABLE) as tempo:
        yield tempo


@pytest.fixture(scope="session")
def monitored(tmp_path_factory: pytest.TempPathFactory, jaeger: Jaeger, tempo: Tempo) -> Iterator[Monitored]:
    with running_monitored(tmp_path_factory.mktemp("monitored"), jaeger, tempo) as monitored:
        yield monitored


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        report.sections += [(f"log of {one.name}: {one.log}", one.tail()) for one in RUNNING]
    return report
