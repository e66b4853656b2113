"""A real Kafka broker (KRaft: no ZooKeeper) on loopback."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from tests.e2e.backends.service import Service, free_ports, installed, listens, running

_JAVA = ("java", "-Xmx512m")


class Kafka:
    """A running broker; `broker` is its host:port. Topics come into being when something is written to them."""

    def __init__(self, broker: str, service: Service) -> None:
        self.broker = broker
        self.service = service


@contextmanager
def running_kafka(folder: Path, *, partitions: int = 4) -> Iterator[Kafka]:
    """Run one broker that is its own controller, its log and data in `folder`."""
    port, controller = free_ports(2)
    properties = folder / "kafka.properties"
    properties.write_text(
        "\n".join(
            (
                "process.roles=broker,controller",
                "node.id=1",
                f"controller.quorum.voters=1@127.0.0.1:{controller}",
                f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
                f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}",
                "controller.listener.names=CONTROLLER",
                f"log.dirs={folder / 'kafka-data'}",
                f"num.partitions={partitions}",
                "offsets.topic.replication.factor=1",
                "offsets.topic.num.partitions=4",
                "transaction.state.log.replication.factor=1",
                "transaction.state.log.min.isr=1",
                "share.coordinator.state.topic.replication.factor=1",
                "share.coordinator.state.topic.min.isr=1",
                "group.initial.rebalance.delay.ms=0",
            )
        ),
        "utf-8",
    )
    classes = ["-cp", f"{installed('kafka')}/*"]
    cluster = base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
    _format(classes, "-t", cluster, "-c", str(properties))
    command = [*_JAVA, *classes, "kafka.Kafka", properties]
    with running(Service("kafka", command, folder, healthy=listens(port))) as service:
        yield Kafka(f"127.0.0.1:{port}", service)


def _format(classes: list[str], *arguments: str) -> None:
    command = [*_JAVA, *classes, "kafka.tools.StorageTool", "format", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
