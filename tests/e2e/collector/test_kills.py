"""SIGKILL of each part in turn beneath a running application: what was acknowledged arrives, and it never waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.backends.jaeger import Jaeger
from tests.e2e.backends.kafka import Kafka, running_kafka
from tests.e2e.backends.service import Service, running, wait_for
from tests.e2e.backends.tempo import Tempo, running_tempo
from tests.e2e.collector.application import Application
from tests.e2e.collector.processes import Collector, Serve
from tests.e2e.collector.spans import memory, new_trace, tell

_TIMES, _MORE = 2.0, 0.005
"""A request may take so many times as long while a part is dead as before, and so many seconds more: a busy machine."""
_WAITED = 1.0
"""Seconds. Who waits for an exporter once, waits until gRPC tries to connect again, or for a timeout of ten."""


@pytest.fixture(scope="module")
def tempo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tempo]:
    """One of its own: it is killed."""
    with running_tempo(tmp_path_factory.mktemp("killed")) as tempo:
        yield tempo


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with running_kafka(tmp_path_factory.mktemp("kafka")) as kafka:
        yield kafka


def kill_beneath(
    victim: Service,
    application: Application,
    capsys: pytest.CaptureFixture[str],
    settle: Callable[[], None] = lambda: None,
) -> None:
    """Let it run before, during and after the death of `victim`, and tell what its requests took.

    `settle` is called before the kill.
    """
    figures: list[str] = []
    means: dict[str, float] = {}
    for phase, seconds in (("before", 1.0), ("without", 4.0), ("after", 1.0)):
        if phase == "without":
            settle()
            victim.kill()
        elif phase == "after":
            victim.start()
        requests, busy, application.slowest = len(application.traces), application.busy, 0.0
        application.run(seconds)
        means[phase] = (application.busy - busy) / (len(application.traces) - requests)
        figures.append(f"{phase} {means[phase] * 1000:.2f} ms (slowest {application.slowest * 1000:.0f} ms)")
        assert application.slowest < _WAITED
    wait_for(application.delivered, "what was kept while nobody took it is acknowledged")
    with capsys.disabled():
        print(f"\n{victim.name} killed: own time of a request {', '.join(figures)}")
    assert means["without"] < _TIMES * means["before"] + _MORE


def assert_nothing_is_lost(application: Application, tempo: Tempo, *serves: Serve) -> None:
    wait_for(
        lambda: application.memory <= set[str]().union(*(serve.span_ids() for serve in serves)),
        "every memory span in serve",
    )
    shown_by(tempo, application)


def shown_by(tempo: Tempo, application: Application) -> None:
    """Wait until it shows every span of the application."""
    for trace_id, ids in application.traces.items():
        wait_for(
            lambda trace_id=trace_id, ids=ids: ids == {span.span_id for span in tempo.spans(trace_id)},
            f"trace {trace_id} in Tempo",
        )


@pytest.mark.timed
@pytest.mark.parametrize("victim", ["serve", "tempo", "gateway", "agent"])
def test_nothing_acknowledged_is_lost(
    victim: str, tempo: Tempo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    serve = Serve(tmp_path)
    backend = tempo.otlp_grpc.removeprefix("http://")
    gateway = Collector(
        tmp_path, "gateway", "redaction", name="gateway", BACKEND_OTLP=backend, MEMTRACE_SERVE=serve.otlp
    )
    agent = Collector(tmp_path, "agent", "redaction", name="agent", GATEWAY_OTLP=gateway.otlp)
    parts: dict[str, Service] = {"serve": serve, "tempo": tempo.service, "gateway": gateway, "agent": agent}

    def settle() -> None:
        """Tempo acknowledges what it holds in memory, and loses that with its process: it is written out before."""
        if victim == "tempo":
            shown_by(tempo, application)
            tempo.flush()

    with running(serve), running(gateway), running(agent):
        with Application(agent.otlp, tmp_path / "spool") as application:
            kill_beneath(parts[victim], application, capsys, settle)
        assert_nothing_is_lost(application, tempo, serve)


@pytest.mark.timed
@pytest.mark.parametrize("victim", ["kafka", "producer", "consumer"])
def test_nothing_acknowledged_is_lost_by_way_of_kafka(
    victim: str, tempo: Tempo, kafka: Kafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two `serve` behind Kafka, each with its half of the memory scopes."""
    names = {"KAFKA_BROKER": kafka.broker, "KAFKA_SPANS_TOPIC": f"spans-{victim}", "KAFKA_LOGS_TOPIC": f"logs-{victim}"}
    serves = Serve(tmp_path, "serve_0"), Serve(tmp_path, "serve_1")
    backend = tempo.otlp_grpc.removeprefix("http://")
    producer = Collector(
        tmp_path, "gateway", "redaction", "kafka-producer", name="producer", BACKEND_OTLP=backend, **names
    )
    targets = {"MEMTRACE_SERVE": serves[0].otlp, "MEMTRACE_SERVE_1": serves[1].otlp}
    consumer = Collector(tmp_path, "kafka-consumer", "shards", name="consumer", **names, **targets)
    parts: dict[str, Service] = {"kafka": kafka.service, "producer": producer, "consumer": consumer}
    with running(serves[0]), running(serves[1]), running(producer), running(consumer):
        with Application(producer.otlp, tmp_path / "spool") as application:
            kill_beneath(parts[victim], application, capsys)
        assert_nothing_is_lost(application, tempo, *serves)
        halves = [serve.span_ids() for serve in serves]
    assert not halves[0] & halves[1]
    assert all(halves)


def test_a_full_side_branch_is_not_felt_by_the_main_path(jaeger: Jaeger, tmp_path: Path) -> None:
    """Its queue holds 2.5 MB and `serve` is dead: nobody is refused, and no span comes twice because of it."""
    serve = Serve(tmp_path)
    backend = jaeger.otlp_grpc.removeprefix("http://")
    names = {"BACKEND_OTLP": backend, "MEMTRACE_SERVE": serve.otlp, "MEMTRACE_QUEUE_BYTES": "2500000"}
    with running(Collector(tmp_path, "gateway", "redaction", **names)) as gateway:
        assert isinstance(gateway, Collector)
        trace_id = new_trace()
        told = [tell(gateway.otlp, [memory(trace_id, "x" * 100_000)])[0].span_id for _ in range(40)]
        wait_for(lambda: len(jaeger.spans(trace_id)) == len(told), "the trace in Jaeger")
        assert sorted(span.span_id for span in jaeger.spans(trace_id)) == sorted(told)
        dropped = int(gateway.metric("memtrace_isolate_dropped_spans"))
        assert 0 < dropped < len(told)
        with running(serve):
            wait_for(lambda: len(serve.span_ids()) >= len(told) - dropped, "in serve what its queue held")
            assert serve.span_ids() < set(told)
