"""Python and packages: is what records installed where the program runs?"""

from __future__ import annotations

from collections.abc import Iterator

from memtrace_otel.doctor.finding import Finding, ok, problem, warning
from memtrace_otel.doctor.program import OURS, ObservedProgram, canonical, requirements
from memtrace_otel.version import __version__

_LOWEST_PYTHON = (3, 11)


def check_python(program: ObservedProgram) -> Finding:
    """The interpreter that runs the program."""
    version = ".".join(map(str, program.version))
    if program.version < _LOWEST_PYTHON:
        return problem(
            "python", f"Python {version} at {program.python}; 3.11 or newer is needed", "python3.11 -m venv .venv"
        )
    return ok("python", f"Python {version} at {program.python}")


def check_packages(program: ObservedProgram) -> Iterator[Finding]:
    """This package and what it needs, in that interpreter."""
    pip = f"{program.python} -m pip install"
    package = program.packages.get(OURS)
    if package is None:
        yield problem("packages", f"{OURS} is not installed for {program.python}", f"{pip} '{OURS}=={__version__}'")
        return
    if package.version != __version__:
        yield warning(
            "packages",
            f"{OURS} {package.version} records, {__version__} reads: what one writes the other may not know",
            f"{pip} '{OURS}=={__version__}'",
        )
    wrong: list[str] = []
    for requirement in requirements(package):
        found = program.packages.get(canonical(requirement.name))
        if found is None or not requirement.specifier.contains(found.version, prereleases=True):
            wrong.append(f"{requirement.name}{requirement.specifier}")
    if wrong:
        wanted = " ".join(f"'{name}'" for name in wrong)
        yield problem("packages", f"missing or outside the supported range: {', '.join(wrong)}", f"{pip} {wanted}")
        return
    sdk = program.packages["opentelemetry-sdk"].version
    yield ok("packages", f"{OURS} {package.version}, opentelemetry-sdk {sdk}")
