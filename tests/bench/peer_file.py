"""The same workload as the peer keeps it: its graph, exported the way its users write it."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from smartcomment.runtime import ExecNetwork
from smartcomment.schema.operation import OpEdge, OpRecord
from smartcomment.schema.session import Session
from smartcomment.schema.variable import Variable

from memtrace_otel.model import OperationSpan
from memtrace_otel.semconv import OpKind
from tests.bench import workload

__all__ = ["export", "recorded"]


def export(operations: int, path: Path) -> None:
    """Write the peer's graph of the workload to `path`, as indented JSON."""
    _write(recorded(operations), path)


def recorded(operations: int) -> ExecNetwork:
    """The workload in the peer's graph: its own objects, put in directly, which is far quicker than its recording."""
    recorder = _Recorder()
    for turn in workload.turns(operations):
        for span in turn:
            recorder.add(span)
    return recorder.graph


def _write(graph: Any, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        json.dump(graph.export_graph(), file, indent=4, ensure_ascii=False)


class _Recorder:
    """Each ref is a variable of the peer, each write its next version; a search yields the versions that it found."""

    def __init__(self) -> None:
        self.graph = ExecNetwork(user_id="bench", project_id="bench")
        self._driver = self.graph._driver
        session = Session(graph_id=self.graph.graph_id, session_name="bench", filename=__file__, lineno=1)
        self._driver.add_session(session)
        own = {"user_id": "bench", "project_id": "bench", "session_id": session.session_id}
        self._own = {"graph_id": self.graph.graph_id, "filename": __file__, "lineno": 1, **own}
        self._versions: Counter[str] = Counter()
        self._found: list[str] = []

    def add(self, span: OperationSpan) -> None:
        operation = OpRecord(op_name=span.name, category=span.kind, **self._own)
        self._driver.add_operation(operation)
        read = [self._read(variable.ref, variable.content) for variable in span.inputs]
        if span.kind == OpKind.RETRIEVE:
            self._found = read[1:]
            sources, targets = read[:1], read[1:]
        else:
            sources = [*read[:1], *self._found] if span.kind == OpKind.RESPOND else read
            targets = [self._write(variable.ref, variable.content) for variable in span.outputs] or [
                self._write(f"score:{span.span_id}", "1.0")
            ]
        for source in sources:
            for target in targets:
                self._driver.add_edge(
                    OpEdge(
                        op_id=operation.op_id,
                        category=span.kind,
                        source_full_node_id=source,
                        target_full_node_id=target,
                        **self._own,
                    )
                )

    def _read(self, ref: str, content: str) -> str:
        known = self._versions[ref]
        return f"{ref}@{known}" if known else self._write(ref, content)

    def _write(self, ref: str, content: str) -> str:
        self._versions[ref] += 1
        kind, version = ref.partition(":")[0], self._versions[ref]
        self._driver.add_node(Variable(name=ref, value=content, category=kind, version=version, **self._own))
        return f"{ref}@{version}"


if __name__ == "__main__":
    export(int(sys.argv[1]), Path(sys.argv[2]))
