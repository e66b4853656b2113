"""The OTLP receiver: HTTP and gRPC endpoints in front of an `Intake`, and the checks of what they take.

`http` and `grpc_server` need the packages of the extra `serve`; nothing here does.
"""

from memtrace_otel.otlp.receiver.access import is_loopback, is_own_name
from memtrace_otel.otlp.receiver.evaluations import check_logs
from memtrace_otel.otlp.receiver.intake import (
    Acknowledgement,
    BusyError,
    Cause,
    Intake,
    RequestError,
    Signal,
    TooLargeError,
)
from memtrace_otel.otlp.receiver.limits import Limits
from memtrace_otel.otlp.receiver.requests import Checked, check_traces

__all__ = [
    "Acknowledgement",
    "BusyError",
    "Cause",
    "Checked",
    "Intake",
    "Limits",
    "RequestError",
    "Signal",
    "TooLargeError",
    "check_logs",
    "check_traces",
    "is_loopback",
    "is_own_name",
]
