"""The environment of programs, and that of this command: OpenTelemetry does not import with some of their variables."""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from contextlib import contextmanager

_OF_PROGRAMS = re.compile(
    r"OTEL_(PROPAGATORS|TRACES_SAMPLER(_ARG)?|PYTHON_(CONTEXT|ID_GENERATOR|(TRACER|METER|LOGGER)_PROVIDER)"
    r"|BSP_\w+|(\w+_)?(COUNT|VALUE_LENGTH)_LIMIT)"
)
_aside: dict[str, str] = {}


@contextmanager
def set_aside() -> Generator[None]:
    """Keep from OpenTelemetry in this process what says how programs are to be observed."""
    _aside.update({name: value for name, value in os.environ.items() if _OF_PROGRAMS.fullmatch(name)})
    for name in _aside:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(_aside)
        _aside.clear()


def program_environment() -> dict[str, str]:
    """The environment as it was given to this command."""
    return {**os.environ, **_aside}
