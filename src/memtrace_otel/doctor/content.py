"""Our settings: contents, digests, and values that cannot be used."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from memtrace_otel import settings
from memtrace_otel.doctor.finding import Finding, ok, problem, warning
from memtrace_otel.doctor.program import CONFIG_FILE, ObservedProgram
from memtrace_otel.doctor.remedies import change_setting, edit_file, edit_option

_CONTENT = settings.CAPTURE_CONTENT


def check_content(program: ObservedProgram) -> Iterator[Finding]:
    """The switch for contents: without them most verdicts are `unknown`."""
    if _CONTENT.name not in program.settings:
        return
    value = program.settings[_CONTENT.name]
    turn_on = change_setting(program, _CONTENT, "SPAN_ONLY")
    if value.problem:
        given = program.environ.get(_CONTENT.env, "")
        yield problem("content", f"{_CONTENT.env} is {given!r}, which means off; {_CONTENT.accepted}", turn_on)
    elif value.value not in settings.CONTENT_ON:
        yield warning("content", f"{value.value}: no contents on spans, so most verdicts will be `unknown`", turn_on)
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
    key = "$(openssl rand -hex 32)  # the same for all processes"
    return warning("digest key", said, change_setting(program, settings.DIGEST_KEY, key))


def check_settings(program: ObservedProgram) -> Iterator[Finding]:
    """Values that cannot be used count as not given."""
    for name, value in program.settings.items():
        if value.problem and name != _CONTENT.name:
            setting = settings.NAMES.get(name)
            env = setting.env if setting else name
            yield warning("settings", f"{value.problem}; {value.value or 'empty'} is used", f"unset {env}")


def check_names(program: ObservedProgram) -> Iterator[Finding]:
    """Variables that look like ours and are none."""
    known = {setting.env for setting in settings.TABLE}
    for name in sorted(program.environ):
        if name.startswith("MEMTRACE_") and name not in known and (right := get_close_matches(name, known, 1, 0.8)):
            yield warning("settings", f"{name} is no setting", f'export {right[0]}="${name}"')


def check_options(program: ObservedProgram) -> Iterator[Finding]:
    """The same in OTEL_CONFIG_FILE, where the name of a setting or of an instrumentor may be wrong, too."""
    for option in program.file.wrong:
        name, _, key = option["place"].partition(": ")
        if option["like"]:
            right = edit_option(program, name, f"{option['like']}: ...")
            remedy = right if key else edit_option(program, option["like"], "...")
        elif key in settings.NAMES:
            remedy = edit_option(program, name, f"{key}: <{settings.NAMES[key].accepted}>")
        else:
            remedy = edit_file(program, f"leave {option['place']} out")
        used = program.setting(key) if key in settings.NAMES else ""
        said = f"{program.environ[CONFIG_FILE]}: {option['problem']}" + (f"; {used} is used" if used else "")
        yield problem("settings", said, remedy)


def check_places(program: ObservedProgram) -> Iterator[Finding]:
    """Options of an instrumentor whose library is not there are not read."""
    loaded = {one.name for one in program.instrumentors if one.active}
    unread = [name for name, place in program.file.places.items() if place not in loaded]
    if unread and loaded and program.sdk:
        places = sorted({program.file.places[name] for name in unread})
        said = (
            f"{', '.join(unread)} under {', '.join(places)} in {program.environ[CONFIG_FILE]}: not loaded, so not read"
        )
        yield problem("settings", said, edit_option(program, sorted(loaded)[-1], f"{unread[0]}: ..."))


def check_usable(program: ObservedProgram) -> Iterator[Finding]:
    """Redaction: the rules and functions that these settings name must exist."""
    withheld = "so no content leaves the program"
    for setting, harm, remedy in (
        (settings.REDACT_PATTERNS, withheld, change_setting(program, settings.REDACT_PATTERNS, "secrets")),
        (
            settings.REDACT_CALLBACK,
            withheld,
            change_setting(program, settings.REDACT_CALLBACK, note="  # or `module:function` on its path"),
        ),
    ):
        if why := program.unusable.get(setting.name):
            yield problem("settings", f"{setting.env} cannot be used, {harm}: {why}", remedy)
