"""Instrumentors: does something watch the memory systems that are installed?"""

from __future__ import annotations

from collections.abc import Iterator

from packaging.requirements import Requirement

from memtrace_otel.doctor.finding import Finding, ok, problem, warning
from memtrace_otel.doctor.program import (
    CONFIG_FILE,
    OURS,
    Instrumentor,
    ObservedProgram,
    canonical,
    requirements,
)
from memtrace_otel.doctor.remedies import edit_option
from memtrace_otel.doctor.sdk import failure, mend_failure

DISABLED = "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"
_LINKED = frozenset({"openai", "langchain-core", "langchain"})
"""Libraries whose calls may be recorded by another instrumentation as well: ours enrich its spans, or link to them."""


def check_instrumentors(program: ObservedProgram) -> Iterator[Finding]:
    """Each memory system that is installed: version, disabled, loaded."""
    if OURS not in program.packages:
        return  # `packages` says so
    ours = [one for one in program.instrumentors if one.package == OURS]
    if not ours:
        if program.failure:
            return  # `provider` says so
        reason = program.log[-1] if program.log else "the package has no entry points"
        yield problem(
            "instrumentors",
            f"none is registered: {reason}",
            f"{program.python} -m pip install --force-reinstall {OURS}",
        )
        return
    disabled = disabled_names(program)
    absent: list[str] = []
    for instrumentor in ours:
        check = f"instrumentor {instrumentor.name}"
        if instrumentor.error:
            yield problem(check, f"does not load: {instrumentor.error}", f"{program.python} -m pip install -U {OURS}")
            continue
        installed = [
            (requirement, program.packages[canonical(requirement.name)].version)
            for requirement in map(Requirement, instrumentor.libraries)
            if canonical(requirement.name) in program.packages
        ]
        if not installed:
            absent.append(instrumentor.name)
            continue
        yield _check_one(check, instrumentor, installed, disabled, program)
    if absent:
        yield ok("instrumentors", f"not needed, as their libraries are not installed: {', '.join(absent)}")


def _check_one(
    check: str,
    instrumentor: Instrumentor,
    installed: list[tuple[Requirement, str]],
    disabled: set[str],
    program: ObservedProgram,
) -> Finding:
    for requirement, version in installed:
        if not requirement.specifier.contains(version, prereleases=True):
            return problem(
                check,
                f"{requirement.name} {version} is outside the supported range {requirement.specifier}",
                f"{program.python} -m pip install '{requirement.name}{requirement.specifier}'",
            )
    libraries = ", ".join(f"{requirement.name} {version}" for requirement, version in installed)
    if disabled & {instrumentor.name, "*"}:
        ours = {one.name for one in program.instrumentors if one.package == OURS}
        left = sorted(disabled - ours - {"*"})  # one command for all of ours
        remedy = f"export {DISABLED}={','.join(left)}" if left else f"unset {DISABLED}"
        return problem(check, f"{libraries} is not watched: {DISABLED} names {instrumentor.name} or *", remedy)
    if instrumentor.name in program.file.off:
        told = f"{program.environ[CONFIG_FILE]} says `enabled: false` under {instrumentor.name}"
        remedy = edit_option(program, instrumentor.name, "enabled: true")
        return problem(check, f"{libraries} is not watched: {told}", remedy)
    if not instrumentor.active and program.failure:
        return problem(check, f"{libraries} is not watched: {failure(program)}", mend_failure(program))
    if not instrumentor.active:
        said = next((line for line in program.log if instrumentor.name in line), "the log does not say why")
        return problem(check, f"{libraries} is not watched: {said}", f"{program.python} -m pip install -U {OURS}")
    return ok(check, f"watches {libraries}")


def disabled_names(program: ObservedProgram) -> set[str]:
    """The names that the environment disables."""
    return {name.strip() for name in program.environ.get(DISABLED, "").split(",")} - {""}


def check_other_instrumentations(program: ObservedProgram) -> Iterator[Finding]:
    """Instrumentations of others for the libraries that ours watch."""
    disabled = disabled_names(program)
    watched = {  # by those of ours that are at work: the others double nothing
        canonical(Requirement(library).name)
        for one in program.instrumentors
        if one.package == OURS and one.active
        for library in one.libraries
    }
    for other in program.instrumentors:
        if other.package == OURS or other.package not in program.packages or disabled & {other.name, "*"}:
            continue
        wanted = requirements(program.packages[other.package], ("instruments", "instruments-any"))
        shared = sorted({canonical(requirement.name) for requirement in wanted} & watched & set(program.packages))
        if not shared:
            continue
        check = f"instrumentation {other.name}"
        if _LINKED.issuperset(shared):
            yield ok(check, f"{other.package} records the calls of {', '.join(shared)} as well; ours link to them")
            continue
        names = ",".join(sorted(disabled | {other.name}))
        yield warning(
            check,
            f"{other.package} watches {', '.join(shared)} as well: every operation appears twice",
            f"export {DISABLED}={names}",
        )
