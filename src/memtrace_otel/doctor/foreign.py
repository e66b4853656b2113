"""Contents that other instrumentations put on spans of theirs: our switch for contents does not hold them back."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from memtrace_otel import semconv, settings
from memtrace_otel.doctor.finding import Finding, warning
from memtrace_otel.doctor.instrumentors import disabled_names
from memtrace_otel.doctor.program import OURS, ObservedProgram, canonical, requirements
from memtrace_otel.model import OperationSpan
from memtrace_otel.semconv import Incomplete


@dataclass(frozen=True, slots=True, eq=False)
class Convention:
    """How a family of instrumentations writes contents: names of the attributes, what hides them (variables and their
    values), and the package that those require which do so unless told otherwise ('' when they have to be asked)."""

    names: re.Pattern[str]
    hide: Mapping[str, str]
    built_on: str = ""

    @property
    def remedy(self) -> str:
        """What to type."""
        return "export " + " ".join(f"{name}={value}" for name, value in self.hide.items())


_OFF = {settings.CAPTURE_CONTENT.env: "NO_CONTENT"}
_OPENLLMETRY = {"TRACELOOP_TRACE_CONTENT": "false"}
CONVENTIONS = (
    Convention(
        re.compile(
            r"(input|output)\.value|llm\.(input|output)_messages\.\d+\.message\..*(content|text|arguments)"
            r"|retrieval\.documents\.\d+\.document\.content"
        ),
        {"OPENINFERENCE_HIDE_INPUTS": "true", "OPENINFERENCE_HIDE_OUTPUTS": "true"},
        "openinference-instrumentation",
    ),
    Convention(
        re.compile(r"traceloop\.entity\.(input|output)|gen_ai\.(prompt|completion)\.\d+\..*(content|arguments)"),
        _OPENLLMETRY,
        "opentelemetry-semantic-conventions-ai",
    ),
    Convention(
        re.compile(
            r"gen_ai\.((input|output)\.messages|system_instructions|tool\.call\.(arguments|result)"
            r"|retrieval\.(documents|query\.text))"
        ),
        _OFF | _OPENLLMETRY,  # new versions of OpenLLMetry use these names, too
    ),
)
_HIDDEN = ("", "__REDACTED__")


def check_foreign_instrumentations(program: ObservedProgram) -> Iterator[Finding]:
    """Instrumentations that will write contents although they are off here."""
    if program.setting(settings.CAPTURE_CONTENT.name) in settings.CONTENT_ON:
        return
    disabled = disabled_names(program)
    for convention in CONVENTIONS:
        if not convention.built_on or all(
            program.environ.get(name, "").lower() == value for name, value in convention.hide.items()
        ):
            continue
        writing = sorted(
            {
                one.package
                for one in program.instrumentors
                if one.package != OURS
                and not disabled & {one.name, "*"}
                and one.package in program.packages
                and convention.built_on in {canonical(one.name) for one in requirements(program.packages[one.package])}
            }
        )
        if writing:
            yield warning(
                "contents of others",
                f"{', '.join(writing)} puts contents on its spans, although they are off here, and they are recorded",
                convention.remedy,
            )


def check_foreign_contents(spans: Iterable[OperationSpan]) -> Iterator[Finding]:
    """Contents that spans of others hold, where those of ours were recorded without."""
    kept = list(spans)
    if not any(Incomplete.CONTENT_OFF in span.incomplete for span in kept):
        return
    found: Counter[tuple[str, Convention]] = Counter()
    named: dict[tuple[str, Convention], str] = {}
    for span in kept:
        if span.instrumentation_scope.startswith(semconv.SCOPE_PREFIX):
            continue
        for name, convention in dict.fromkeys(_contents(span)):
            key = span.instrumentation_scope, convention
            named.setdefault(key, name)
            found[key] += 1
    for (scope, convention), count in found.most_common():
        yield warning(
            "contents of others",
            f"contents are off here, but {scope or 'an unnamed scope'} has put some on its spans ({count} attributes, "
            f"{named[scope, convention]} for one), and the database holds them",
            convention.remedy,
        )


def _contents(span: OperationSpan) -> Iterator[tuple[str, Convention]]:
    for attributes in (span.attributes, *(event.attributes for event in span.events)):
        for name, value in attributes.items():
            for convention in CONVENTIONS:
                if value not in _HIDDEN and convention.names.fullmatch(name):
                    yield name, convention
