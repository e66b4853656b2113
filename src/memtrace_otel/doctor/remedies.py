"""What to type to change something: in the environment, or in OTEL_CONFIG_FILE where that decides."""

from __future__ import annotations

import re
from shlex import quote

from memtrace_otel import settings
from memtrace_otel.doctor.program import CONFIG_FILE, ObservedProgram

_OPTIONS = "instrumentation/development: python:"
_MESSAGES = (
    ("file_format", 'file_format: "1.0"'),
    ("disabled=true", "disabled: false"),
    (r"[Pp]lugin '([^']+)' not found", "leave {0} out, or install the package that has it"),
    (r"\(at ([^)]+)\)", "mend {0}"),
)
"""What to write for a message of the SDK about the file."""


def edit_file(program: ObservedProgram, what: str) -> str:
    """Open the configuration file, and the line to write there."""
    return f"${{EDITOR:-vi}} {quote(program.environ[CONFIG_FILE])}  # {what}"


def edit_what_is_told(program: ObservedProgram, reason: str) -> str:
    """Open the configuration file where `reason`, a message of the SDK, says that it is wrong."""
    file = quote(program.environ[CONFIG_FILE])
    if line := re.search(r"line (\d+)", reason):
        return f"${{EDITOR:-vi}} +{line[1]} {file}  # mend that line"
    for pattern, write in _MESSAGES:
        if found := re.search(pattern, reason):
            return f"${{EDITOR:-vi}} {file}  # {write.format(*found.groups()).replace(' -> ', ': ')}"
    return f"${{EDITOR:-vi}} {file}  # mend what the message names"


def edit_option(program: ObservedProgram, instrumentor: str, option: str) -> str:
    """Open the configuration file, and the option to write under an instrumentor."""
    return edit_file(program, f"{_OPTIONS} {instrumentor}: {{{option}}}")


def change_sdk(program: ObservedProgram, command: str, in_file: str) -> str:
    """`command` changes a variable of the SDK, `in_file` is the same in a configuration file, which voids them."""
    return edit_file(program, in_file) if program.environ.get(CONFIG_FILE) else command


def change_setting(
    program: ObservedProgram | None, setting: settings.AnySetting, value: object = None, note: str = ""
) -> str:
    """Give one of our settings a value that can be typed (None: none), where it stands now."""
    place = program.file.places.get(setting.name) if program else None
    if program and place:
        return edit_option(program, place, f"{setting.name}: {'null' if value is None else value}") + note
    return (f"unset {setting.env}" if value is None else f"export {setting.env}={value}") + note
