"""When the instrumentor acts: presence, version and import of Mem0."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, entry_points

import pytest

from memtrace_otel.instrumentation import instrumentor
from memtrace_otel.instrumentation.mem0 import Mem0Instrumentor


def test_the_entry_point_is_the_instrumentor() -> None:
    (point,) = entry_points(group="opentelemetry_instrumentor", name="memtrace_mem0")
    assert point.load() is Mem0Instrumentor


def test_an_absent_mem0_is_a_module_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(instrumentor, "version", absent)
    with pytest.raises(ModuleNotFoundError, match="mem0ai"):
        Mem0Instrumentor().instrument(skip_dep_check=True)
    assert not Mem0Instrumentor().is_instrumented_by_opentelemetry


@pytest.mark.parametrize("found", ["0.1.118", "3.0.0"])
def test_a_version_out_of_range_is_said_and_left_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, found: str
) -> None:
    monkeypatch.setattr(instrumentor, "version", lambda name: found)
    Mem0Instrumentor().instrument(skip_dep_check=True)
    assert Mem0Instrumentor().patches is None
    Mem0Instrumentor().uninstrument()
    assert found in caplog.text


def test_mem0_is_imported_by_the_application_and_not_by_us() -> None:
    """Mem0 reads its environment at import: an application may set it first, even under auto-instrumentation."""
    program = """
import os, sys
from memtrace_otel.instrumentation.mem0 import Mem0Instrumentor
Mem0Instrumentor().instrument()
assert "mem0" not in sys.modules
os.environ["MEM0_TELEMETRY"] = "False"
import mem0, wrapt
assert isinstance(vars(mem0.Memory)["add"], wrapt.FunctionWrapper)
assert isinstance(vars(mem0.AsyncMemory)["add"], wrapt.FunctionWrapper)
Mem0Instrumentor().uninstrument()
assert not isinstance(vars(mem0.Memory)["add"], wrapt.FunctionWrapper)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_removed_before_the_import_nothing_is_wrapped() -> None:
    program = """
import os
os.environ["MEM0_TELEMETRY"] = "False"
from memtrace_otel.instrumentation.mem0 import Mem0Instrumentor
Mem0Instrumentor().instrument()
Mem0Instrumentor().uninstrument()
import mem0, wrapt
assert not isinstance(vars(mem0.Memory)["add"], wrapt.FunctionWrapper)
Mem0Instrumentor().instrument()
assert isinstance(vars(mem0.Memory)["add"], wrapt.FunctionWrapper)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
