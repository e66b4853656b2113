"""The OTLP receiver: HTTP and gRPC endpoints, and the limits and checks of what they take.

`http` and `grpc_server` need the packages of the extra `serve`; the other modules do not.
"""

from memtrace_otel.otlp.receiver.evaluations import check_logs
from memtrace_otel.otlp.receiver.requests import (
    Acknowledgement,
    BusyError,
    Cause,
    Checked,
    Count,
    InFlightBytes,
    Intake,
    Limits,
    RequestError,
    Signal,
    TooLargeError,
    check_traces,
    gunzip,
    read_json,
)

__all__ = [
    "Acknowledgement",
    "BusyError",
    "Cause",
    "Checked",
    "Count",
    "InFlightBytes",
    "Intake",
    "Limits",
    "RequestError",
    "Signal",
    "TooLargeError",
    "check_logs",
    "check_traces",
    "gunzip",
    "read_json",
]
