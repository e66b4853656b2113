"""Contents that other instrumentations put on spans of theirs: our switch, redaction and limits do not reach them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from memtrace_otel import semconv, settings
from memtrace_otel.doctor.finding import Finding, ok, warning
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
_CHECK = "contents of others"
_UNTOUCHED = "redaction and the preview limit here do not reach them"
_PLACE = re.compile(r"\.\d+\.")
_SHOWN = 3


def check_foreign_instrumentations(program: ObservedProgram) -> Iterator[Finding]:
    """Instrumentations that will write contents: what is set here, the switch and the redaction, is not theirs."""
    on = program.setting(settings.CAPTURE_CONTENT.name) in settings.CONTENT_ON
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
        if not writing:
            continue
        said = f"{', '.join(writing)} puts contents on its spans"
        if on:
            yield ok(_CHECK, f"{said}, too: {_UNTOUCHED}")
        else:
            yield warning(_CHECK, f"{said}, although they are off here, and they are recorded", convention.remedy)


def check_foreign_contents(spans: Iterable[OperationSpan]) -> Iterator[Finding]:
    """Contents that spans of others hold. A warning where those of ours were recorded without, or redacted."""
    found: defaultdict[tuple[str, Convention], Counter[str]] = defaultdict(Counter)
    off = redacted = False
    for span in spans:
        off |= Incomplete.CONTENT_OFF in span.incomplete
        redacted |= any(reason.startswith(f"{Incomplete.REDACTED}:") for reason in span.incomplete)
        if span.instrumentation_scope.startswith(semconv.SCOPE_PREFIX):
            continue
        for name, convention in dict.fromkeys(_contents(span)):
            found[span.instrumentation_scope, convention][name] += 1
    for (scope, convention), names in sorted(found.items(), key=lambda item: -item[1].total()):
        who = f"{scope or 'an unnamed scope'} has put"
        where = f"on its spans ({_named(names)}), and the database holds them"
        if off:
            yield warning(_CHECK, f"contents are off here, but {who} some {where}", convention.remedy)
        elif redacted:
            yield warning(_CHECK, f"contents are redacted here, but {who} some {where} as they were", convention.remedy)
        else:
            yield ok(_CHECK, f"{who} contents {where}: {_UNTOUCHED}")


def _named(names: Counter[str]) -> str:
    """The attributes, those of a list under one name, the most frequent ones first."""
    kinds: Counter[str] = Counter()
    for name, count in names.items():
        kinds[_PLACE.sub(".*.", name)] += count
    shown = [kind for kind, _ in kinds.most_common(_SHOWN)] + ["..."] * (len(kinds) > _SHOWN)
    return f"{names.total()} attribute{'s' * (names.total() != 1)}: {', '.join(shown)}"


def _contents(span: OperationSpan) -> Iterator[tuple[str, Convention]]:
    for attributes in (span.attributes, *(event.attributes for event in span.events)):
        for name, value in attributes.items():
            for convention in CONVENTIONS:
                if value not in _HIDDEN and convention.names.fullmatch(name):
                    yield name, convention
