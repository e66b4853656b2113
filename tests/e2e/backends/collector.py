"""A real OpenTelemetry Collector with a given configuration."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.backends.service import Service, installed, running


def complaints(*options: str) -> str:
    """Return what `collector validate` complains of, "" when nothing."""
    command = [installed("collector"), "validate", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return "" if done.returncode == 0 else done.stderr or f"status {done.returncode}"


@contextmanager
def running_collector(
    folder: Path, *configs: Path, environ: Mapping[str, str], healthy: Callable[[], bool], name: str = "collector"
) -> Iterator[Service]:
    """Run a Collector with these configuration files, merged in their order, its log in `folder`.

    `environ` is what the files refer to as `${env:NAME}`; `healthy` as in `Service`, usually `answers(...)` of the
    `health_check` extension or `listens(port)`.
    """
    command = [installed("collector"), *(f"--config={config}" for config in configs)]
    with running(Service(name, command, folder, healthy=healthy, environ=environ)) as service:
        yield service
