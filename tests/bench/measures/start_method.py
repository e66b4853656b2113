"""What an operation costs in a big program that was started with `python -m`, against `python file.py`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.measure import Measure, at_most, progress

MODULES, CALLS, STARTS = 2_000, 500, 5

PROGRAM = f"""
import json, sys, time, types
from opentelemetry.sdk.trace import TracerProvider
from smartcomment import comment_graph, comment_session, comment_variable
from memtrace_otel.capture import operation
for number in range({MODULES}):
    module = types.ModuleType(f"big_{{number}}")
    module.__file__ = f"/big/{{number}}.py"
    sys.modules[module.__name__] = module
tracer = TracerProvider().get_tracer("bench")

def ours(n):
    with operation(kind="extract", system="bench", tracer=tracer) as op:
        op.read(f"message:{{n}}", role="message", content=f"message {{n}}")
        op.wrote(f"fact:{{n}}", content=f"fact {{n}}")

def taken(work, calls):
    work(0)
    started = time.thread_time()
    for n in range(calls):
        work(n)
    return (time.thread_time() - started) / calls * 1e6

mine = min(taken(ours, {CALLS}) for _ in range(5))
with comment_graph(), comment_session(session_name="s"):
    print(json.dumps([mine, taken(lambda n: comment_variable(f"value {{n}}"), 100)]))
"""


def measure() -> Iterator[Measure]:
    progress(f"python -m in a program of {MODULES:,} modules")
    runs: dict[str, list[list[float]]] = {"file": [], "module": []}
    with TemporaryDirectory() as folder:
        (Path(folder) / "bigprogram.py").write_text(PROGRAM)
        for _ in range(STARTS):
            for method, arguments in (("file", ["bigprogram.py"]), ("module", ["-m", "bigprogram"])):
                done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, check=True)
                runs[method].append(json.loads(done.stdout))
    (ours_file, _), (ours, theirs) = (
        (min(run[0] for run in runs[method]), min(run[1] for run in runs[method])) for method in ("file", "module")
    )
    name = f"operation in a program of {MODULES:,} modules started with python -m; ratio to python file.py"
    yield at_most(name, ours, 1.2, "us", peer=theirs, ratio=ours / ours_file)
