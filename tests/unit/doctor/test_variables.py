"""Variables of OpenTelemetry that cannot be used are named, alone, and what is to be typed mends them."""

from __future__ import annotations

from pathlib import Path

import pytest

from memtrace_otel.doctor import Fault, State
from memtrace_otel.doctor.variables import find_faults, names_components, without
from tests.unit.doctor.conftest import Examine, one

PYTHON = Path("python")
INSTALLED = {"opentelemetry_traces_exporter": ["otlp", "memtrace", "console"], "opentelemetry_id_generator": ["random"]}

OTLP_EXPORTERS = ["otlp", "otlp_proto_grpc", "otlp_proto_http"]
NO_OTHERS = {f"OTEL_{signal}_EXPORTER": "none" for signal in ("METRICS", "LOGS")}


def faults(**environ: str) -> list[Fault]:
    return list(find_faults(environ, INSTALLED, PYTHON))


@pytest.mark.parametrize(
    ("variable", "value", "remedy"),
    [
        ("OTEL_PYTHON_ID_GENERATOR", "nonsense", "unset OTEL_PYTHON_ID_GENERATOR"),
        ("OTEL_PYTHON_TRACER_PROVIDER", "nonsense", "unset OTEL_PYTHON_TRACER_PROVIDER"),
        ("OTEL_PYTHON_METER_PROVIDER", "nonsense", "unset OTEL_PYTHON_METER_PROVIDER"),
        ("OTEL_PYTHON_CONFIGURATOR", "nonsense", "unset OTEL_PYTHON_CONFIGURATOR"),
        ("OTEL_TRACES_EXPORTER", "memtrace, nonsense", "export OTEL_TRACES_EXPORTER=memtrace"),
        ("OTEL_TRACES_EXPORTER", "otlp,", "export OTEL_TRACES_EXPORTER=otlp"),
        ("OTEL_TRACES_EXPORTER", "nonsense", "export OTEL_TRACES_EXPORTER=memtrace"),
        ("OTEL_METRICS_EXPORTER", "nonsense", "export OTEL_METRICS_EXPORTER=none"),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "many", "unset OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon", "unset OTEL_EXPORTER_OTLP_TIMEOUT"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "unset OTEL_EXPORTER_OTLP_PROTOCOL"),
        (
            "OTEL_PROPAGATORS",
            "b3,baggage",
            "python -m pip install opentelemetry-propagator-b3  # or: export OTEL_PROPAGATORS=baggage",
        ),
    ],
)
def test_what_keeps_everything_from_being_set_up(variable: str, value: str, remedy: str) -> None:
    [fault] = faults(**{variable: value})
    assert (fault.variable, fault.fatal, fault.remedy) == (variable, True, remedy)
    assert fault.finding().state is State.PROBLEM
    assert faults(**without({variable: value}, [fault])) == []


@pytest.mark.parametrize(
    "variable", ["OTEL_TRACES_SAMPLER", "OTEL_PYTHON_CONTEXT", "OTEL_PYTHON_DISTRO", "OTEL_BSP_SCHEDULE_DELAY"]
)
def test_what_is_replaced_by_its_default(variable: str) -> None:
    [fault] = faults(**{variable: "nonsense"})
    assert (fault.fatal, fault.remedy, fault.finding().state) == (False, f"unset {variable}", State.WARNING)
    assert without({variable: "nonsense"}, [fault]) == {variable: "nonsense"}


@pytest.mark.parametrize(("argument", "named"), [("0,1", 1), ("1.5", 1), ("nan", 1), ("0.1", 0), ("1", 0)])
def test_a_share_that_cannot_be_read_keeps_all(argument: str, named: int) -> None:
    told = faults(OTEL_TRACES_SAMPLER="TraceIdRatio", OTEL_TRACES_SAMPLER_ARG=argument)
    assert [fault.variable for fault in told] == ["OTEL_TRACES_SAMPLER_ARG"] * named
    assert not any(fault.fatal for fault in told)
    assert faults(OTEL_TRACES_SAMPLER="always_on", OTEL_TRACES_SAMPLER_ARG=argument) == []


@pytest.mark.parametrize(
    ("exporter", "compression", "fatal"),
    [
        ("otlp", "brotli", [True]),
        ("otlp", "deflate", [True]),
        ("otlp", "none", [True]),
        ("otlp", "", [True]),
        ("otlp", "gzip", []),
        ("memtrace, otlp_proto_grpc", "deflate", [True]),
        ("otlp_proto_http", "brotli", [False]),
        ("otlp_proto_http", "deflate", []),
        ("otlp_proto_http", "", []),
        ("memtrace", "brotli", []),
    ],
)
def test_a_compression_is_judged_by_the_exporters_that_read_it(
    exporter: str, compression: str, fatal: list[bool]
) -> None:
    environ = {**NO_OTHERS, "OTEL_TRACES_EXPORTER": exporter, "OTEL_EXPORTER_OTLP_COMPRESSION": compression}
    told = list(find_faults(environ, {"opentelemetry_traces_exporter": OTLP_EXPORTERS}, PYTHON))
    assert [(fault.variable, fault.fatal) for fault in told] == [
        ("OTEL_EXPORTER_OTLP_COMPRESSION", is_) for is_ in fatal
    ]


def test_a_variable_of_one_signal_goes_before_that_of_all() -> None:
    environ = {**NO_OTHERS, "OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_COMPRESSION": "deflate"}
    assert faults(**environ, OTEL_EXPORTER_OTLP_TRACES_COMPRESSION="gzip") == []
    assert faults(**environ, OTEL_EXPORTER_OTLP_TRACES_PROTOCOL="http/protobuf") == []
    environ["OTEL_LOGS_EXPORTER"] = "otlp"
    [fault] = find_faults(
        {**environ, "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION": "gzip"},
        INSTALLED | {"opentelemetry_logs_exporter": ["otlp"]},
        PYTHON,
    )
    assert (fault.variable, fault.fatal) == ("OTEL_EXPORTER_OTLP_COMPRESSION", True)


@pytest.mark.parametrize("exporter", ["otlp_proto_grpc", "otlp_proto_http"])
def test_an_exporter_that_is_named_by_its_protocol_reads_none(exporter: str) -> None:
    environ = {**NO_OTHERS, "OTEL_TRACES_EXPORTER": exporter, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}
    assert list(find_faults(environ, {"opentelemetry_traces_exporter": OTLP_EXPORTERS}, PYTHON)) == []


@pytest.mark.parametrize("sampler", ["ALWAYS_OFF", "Parentbased_Always_Off"])
def test_what_the_user_has_switched_off_in_capitals_is_off(doctor: Examine, sampler: str) -> None:
    findings = doctor(OTEL_TRACES_SAMPLER=sampler)
    assert [found for found in findings if found.check == "variable"] == []
    assert "keeps 0% of new traces" in one(findings, "sampler").found


def test_the_rest_is_judged_with_what_opentelemetry_replaces(doctor: Examine) -> None:
    """With a distro that is not there nobody names an exporter."""
    assert "no span exporter" in one(doctor(OTEL_TRACES_EXPORTER=None, OTEL_PYTHON_DISTRO="nonsense"), "exporter").found


def test_what_is_fine() -> None:
    fine = {
        "OTEL_TRACES_EXPORTER": "otlp, memtrace",
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_PROPAGATORS": "tracecontext,baggage",
        "OTEL_SPAN_LINK_COUNT_LIMIT": "128",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "2.5",
        "OTEL_PYTHON_ID_GENERATOR": "",
    }
    assert faults(**fine) == []
    assert not names_components({"OTEL_TRACES_EXPORTER": "memtrace"})
    assert names_components(fine)


def test_a_file_voids_the_variables_that_have_a_place_in_it() -> None:
    wrong = {"OTEL_TRACES_EXPORTER": "nonsense", "OTEL_PROPAGATORS": "nonsense", "OTEL_EXPORTER_OTLP_TIMEOUT": "soon"}
    assert [fault.variable for fault in faults(OTEL_CONFIG_FILE="otel.yaml", **wrong)] == ["OTEL_PROPAGATORS"]


def test_an_exporter_that_is_not_set_up_needs_no_protocol() -> None:
    assert faults(OTEL_TRACES_EXPORTER="memtrace", OTEL_EXPORTER_OTLP_PROTOCOL="nonsense", **NO_OTHERS) == []


def test_all_else_is_judged_as_it_is_without_them(doctor: Examine) -> None:
    findings = doctor(OTEL_PYTHON_ID_GENERATOR="nonsense", OTEL_PROPAGATORS="nonsense", OTEL_PYTHON_CONTEXT="nonsense")
    said = [found.found for found in findings if found.check == "variable"]
    assert len(said) == 3
    assert {found.check for found in findings if found.state != State.OK} == {"variable", "recorded"}
    assert one(findings, "provider").state is State.OK


def test_a_value_that_only_the_sdk_refuses_is_blamed(doctor: Examine) -> None:
    found = one(doctor(OTEL_BSP_MAX_QUEUE_SIZE="-1"), "provider")
    assert (found.state, found.remedy) == (State.PROBLEM, "unset OTEL_BSP_MAX_QUEUE_SIZE")
