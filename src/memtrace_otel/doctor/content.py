"""Our settings: contents, digests, and values that cannot be used."""

from __future__ import annotations

from collections.abc import Iterator

from memtrace_otel import settings
from memtrace_otel.doctor.finding import Finding, ok, problem, warning
from memtrace_otel.doctor.program import ObservedProgram

_CONTENT = settings.CAPTURE_CONTENT
_TURN_ON = f"export {_CONTENT.env}=SPAN_ONLY"


def check_content(program: ObservedProgram) -> Iterator[Finding]:
    """The switch for contents: without them most verdicts are `unknown`."""
    if _CONTENT.name not in program.settings:
        return
    value = program.settings[_CONTENT.name]
    if value.problem:
        given = program.environ.get(_CONTENT.env, "")
        yield problem("content", f"{_CONTENT.env} is {given!r}, which means off; {_CONTENT.accepted}", _TURN_ON)
    elif value.value not in settings.CONTENT_ON:
        yield warning("content", f"{value.value}: no contents on spans, so most verdicts will be `unknown`", _TURN_ON)
    else:
        yield ok("content", f"{value.value}: contents go on spans")


def check_digest_key(program: ObservedProgram) -> Finding | None:
    """Digests leave the machine; those of short texts can be guessed unless they are keyed."""
    if settings.DIGEST_KEY.name not in program.settings:
        return None
    if program.setting(settings.DIGEST_KEY.name):
        return ok("digest key", "set")
    if not any(exporter.protocol for exporter in program.exporters):
        return ok("digest key", "none needed")
    if program.setting(_CONTENT.name) in settings.CONTENT_ON:
        said = "contents that redaction changes have another digest in every process: no lineage joins them across"
    else:
        said = "contents are off, but digests of short texts, which can be guessed, leave this machine"
    return warning(
        "digest key", said, f"export {settings.DIGEST_KEY.env}=$(openssl rand -hex 32)  # the same for all processes"
    )


def check_settings(program: ObservedProgram) -> Iterator[Finding]:
    """Values that cannot be used count as not given."""
    for name, value in program.settings.items():
        if value.problem and name != _CONTENT.name:
            setting = settings.NAMES.get(name)
            env = setting.env if setting else name
            yield warning("settings", f"{value.problem}; {value.value or 'empty'} is used", f"unset {env}")


def check_usable(program: ObservedProgram) -> Iterator[Finding]:
    """Redaction and store of contents: what these settings name has to be there."""
    withheld = "so no content leaves the program"
    install = f"{program.python} -m pip install 'memtrace-otel[content]'  # fsspec, and its package for this URL"
    for setting, harm, remedy in (
        (
            settings.REDACT_PATTERNS,
            withheld,
            f"export {settings.REDACT_PATTERNS.env}={settings.REDACT_PATTERNS.default}",
        ),
        (
            settings.REDACT_CALLBACK,
            withheld,
            f"unset {settings.REDACT_CALLBACK.env}  # or `module:function` on its path",
        ),
        (settings.CONTENT_STORE, "so no content is stored", f"export {settings.CONTENT_STORE.env}=~/memtrace-contents"),
    ):
        if why := program.unusable.get(setting.name):
            missing = setting is settings.CONTENT_STORE and why in ("ImportError", "ModuleNotFoundError")
            yield problem("settings", f"{setting.env} cannot be used, {harm}: {why}", install if missing else remedy)
