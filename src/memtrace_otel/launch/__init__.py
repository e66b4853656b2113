"""Start an unmodified Python program under observation, with the embedded database beside it."""

from memtrace_otel.launch.environment import recording_environment, sending_environment, trace_exporters
from memtrace_otel.launch.process import leave_like, replace_process, run_process
from memtrace_otel.launch.program import LaunchError, Program, check_python, find_program
from memtrace_otel.launch.recorded import Recorded, read_recorded

__all__ = [
    "LaunchError",
    "Program",
    "Recorded",
    "check_python",
    "find_program",
    "leave_like",
    "read_recorded",
    "recording_environment",
    "replace_process",
    "run_process",
    "sending_environment",
    "trace_exporters",
]
