"""The environments of observed programs and of this command. Some variables of programs break the import of the SDK."""

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
    """Hide from OpenTelemetry in this process the variables that configure observed programs."""
    _aside.update({name: value for name, value in os.environ.items() if _OF_PROGRAMS.fullmatch(name)})
    for name in _aside:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(_aside)
        _aside.clear()


def program_environment() -> dict[str, str]:
    """Return the environment as given to this command."""
    return {**os.environ, **_aside}
