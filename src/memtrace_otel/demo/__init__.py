"""The demo: a self-written story, a scripted model, an assistant on a real Mem0, and what was planted into it."""

from memtrace_otel.demo.planted import Comparison, Planted, compare
from memtrace_otel.demo.run import Answer, DemoError, DemoRun, Progress, run_demo, shown

__all__ = ["Answer", "Comparison", "DemoError", "DemoRun", "Planted", "Progress", "compare", "run_demo", "shown"]
