"""`bench run`: attribute the cases of a directory in one mode; the truth is not read."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from memtrace_otel.attribution import attribute_trace, verdict_json
from memtrace_otel.attribution.methods import Ask, in_threads
from memtrace_otel.bench.baselines import first_loss
from memtrace_otel.bench.generate import case_files, write_file
from memtrace_otel.graph import build_graph
from memtrace_otel.graph.smartcomment import to_spans
from memtrace_otel.model import OperationSpan, Variable, Verdict, make_origin
from memtrace_otel.otlp import decode_request
from memtrace_otel.otlp.files import GraphDocument, OtlpBody, read_file
from memtrace_otel.semconv import (
    EVALUATION_EXPLANATION,
    GEN_AI_MEMORY_QUERY_TEXT,
    GEN_AI_MEMORY_RECORDS,
    Incomplete,
    OpKind,
    RefKind,
    Role,
)

RESULTS = "results"
_CHUNK = 16
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Mode:
    """What the method is given. `evidence`: the messages that told the answer; `expected`: the expected answer."""

    method: str = "rules"
    evidence: bool = False
    expected: bool = True
    content: bool = True

    @property
    def name(self) -> str:
        """Name of the results: method, then what is known."""
        given = [name for name in ("evidence", "expected", "content") if getattr(self, name)]
        return "-".join((self.method, *(given or ["nothing"])))

    def given(self, spans: Sequence[OperationSpan]) -> list[OperationSpan]:
        """Return the spans without what the mode withholds."""
        return [self._given(span) for span in spans]

    def _given(self, span: OperationSpan) -> OperationSpan:
        if not self.evidence:
            inputs = tuple(variable for variable in span.inputs if variable.role != Role.EVIDENCE)
            span = replace(span, evidence=(), inputs=inputs)
        if not self.expected and span.kind == OpKind.JUDGE:
            inputs = tuple(variable for variable in span.inputs if variable.role not in (Role.EXPECTED, Role.PROMPT))
            outputs = tuple(variable for variable in span.outputs if not variable.ref.startswith(RefKind.COMPLETION))
            attributes = {name: value for name, value in span.attributes.items() if name != EVALUATION_EXPLANATION}
            span = replace(span, inputs=inputs, outputs=outputs, attributes=attributes)
        if not self.content and span.kind:
            texts = (EVALUATION_EXPLANATION, GEN_AI_MEMORY_QUERY_TEXT, GEN_AI_MEMORY_RECORDS)
            span = replace(
                span,
                inputs=tuple(map(_without_content, span.inputs)),
                outputs=tuple(map(_without_content, span.outputs)),
                attributes={name: value for name, value in span.attributes.items() if name not in texts},
                incomplete=tuple(dict.fromkeys((*span.incomplete, str(Incomplete.CONTENT_OFF)))),
            )
        return span


def _without_content(variable: Variable) -> Variable:
    return replace(variable, content="")


def run(
    directory: Path,
    mode: Mode,
    *,
    processes: int | None = None,
    ask: Ask | None = None,
    concurrency: int = 1,
    progress: Progress = lambda d, t: None,
) -> Path:
    """Attribute every case, and return the file of results: one JSON object per line, in the order of the names.

    Rules run in `processes`. With `ask`, threads of this process ask a model about `concurrency` cases at a time.
    """
    paths = case_files(directory)
    size = 1 if ask else _CHUNK
    chunks = [paths[first : first + size] for first in range(0, len(paths), size)]
    found: list[dict[str, Any]] = []
    if ask:
        done = in_threads(lambda chunk: _attribute(chunk, mode, ask), chunks, concurrency)
    else:
        done = _in_processes(chunks, mode, min(processes or os.cpu_count() or 1, len(chunks)))
    for results in done:
        found += results
        progress(len(found), len(paths))
    found.sort(key=lambda result: str(result["file"]))
    path = directory / RESULTS / f"{mode.name}.jsonl"
    path.parent.mkdir(exist_ok=True)
    lines = [json.dumps({"mode": asdict(mode)}), *(json.dumps(result, ensure_ascii=False) for result in found)]
    write_file(path, ("\n".join(lines) + "\n").encode())
    return path


def _in_processes(chunks: Sequence[Sequence[Path]], mode: Mode, processes: int) -> Iterator[list[dict[str, Any]]]:
    if processes <= 1:
        yield from (_attribute(chunk, mode) for chunk in chunks)
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        futures = [pool.submit(_attribute, chunk, mode) for chunk in chunks]
        try:
            yield from (done.result() for done in as_completed(futures))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def read_verdicts(path: Path) -> list[dict[str, Any]]:
    """Return the verdicts of a file of results, as JSON objects."""
    return [said for line in path.read_bytes().splitlines()[1:] for said in json.loads(line)["verdicts"]]


def read_mode(directory: Path, name: str) -> Mode:
    """Return the mode of results."""
    with (directory / RESULTS / f"{name}.jsonl").open(encoding="utf-8") as lines:
        return Mode(**json.loads(next(lines))["mode"])


def read_spans(path: Path) -> Iterator[OperationSpan]:
    """Yield the spans of a case."""
    for item in read_file(path):
        if isinstance(item, OtlpBody):
            yield from decode_request(item.body)
        elif isinstance(item, GraphDocument):
            yield from to_spans(item.graph)


def _attribute(paths: Sequence[Path], mode: Mode, ask: Ask | None = None) -> list[dict[str, Any]]:
    return [{"file": path.name.partition(".")[0], **attributed(read_spans(path), mode, ask)} for path in paths]


def attributed(spans: Iterable[OperationSpan], mode: Mode, ask: Ask | None = None) -> dict[str, Any]:
    """Return the result on one file of spans: the verdicts, the seconds they took, what the lexical baseline says."""
    given = mode.given(list(spans))
    started = time.perf_counter()
    graph = build_graph(given)
    verdicts = [ask(graph, verdict) if ask else verdict for verdict in attribute_trace(graph)]
    seconds = (time.perf_counter() - started) / max(1, len(verdicts))
    return {
        "seconds": round(seconds, 4),
        "verdicts": [_verdict(verdict) for verdict in verdicts],
        "first_loss": first_loss(given),
    }


def _verdict(verdict: Verdict) -> Mapping[str, Any]:
    operations = [(verdict.trace_id, verdict.span_id), *((a.trace_id, a.span_id) for a in verdict.alternatives)]
    types = [verdict.failure_type, *(a.failure_type for a in verdict.alternatives)]
    ranked = [[str(type), make_origin(*ids) if ids[1] else ""] for type, ids in zip(types, operations, strict=True)]
    return {**verdict_json(verdict), "answer": verdict.failure.answer_span.origin, "ranked": ranked}
