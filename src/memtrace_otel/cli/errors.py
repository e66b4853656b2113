"""Errors of commands: one line on standard error, and exit status 1 or 2."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import NoReturn, ParamSpec, TypeVar

import click

from memtrace_otel import settings

P = ParamSpec("P")
R = TypeVar("R")

NOTHING_FOUND, BAD_INPUT = 1, 2


def fail(message: str, status: int = BAD_INPUT) -> NoReturn:
    """Print a message on standard error and exit."""
    click.secho(f"memtrace-otel: {message}", fg="red" if status == BAD_INPUT else None, err=True)
    sys.exit(status)


def tell_of_settings() -> None:
    """Print a warning for each setting of the environment that cannot be used. For commands that run for long."""
    for setting in settings.TABLE:
        found = setting.find()
        if found.problem:
            click.secho(
                f"memtrace-otel: {found.problem}; {setting.shown(found.value) or 'empty'} is used",
                fg="yellow",
                err=True,
            )


def user_errors() -> tuple[type[Exception], ...]:
    """Return the errors that a user can cause. Any other error is a fault of ours and shows its traceback."""
    from memtrace_otel.annotate import SendError, TargetError
    from memtrace_otel.launch import LaunchError
    from memtrace_otel.otlp.feedback import FeedbackError
    from memtrace_otel.otlp.files import InputError
    from memtrace_otel.pipeline.diagnose import UnknownTraceError
    from memtrace_otel.serve.options import ServeError
    from memtrace_otel.sources import AddressError, SourceError

    return (
        InputError,
        SourceError,
        AddressError,
        SendError,
        TargetError,
        UnknownTraceError,
        LaunchError,
        ServeError,
        FeedbackError,
    )


def clear_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Turn the errors that a user can cause into one line and exit status 2."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except BrokenPipeError:  # the reader, such as `head`, has ended: click ends quietly
            raise
        except OSError as error:
            fail(f"{error.filename or 'input or output'}: {error.strerror or error}")
        except user_errors() as error:
            fail(str(error))

    return run
