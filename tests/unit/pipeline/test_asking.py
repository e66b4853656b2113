"""A model is asked about several cases at once, within budgets, and not again about what it decided."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from signal import SIGINT
from subprocess import PIPE, Popen
from threading import Barrier, Event

import pytest
from click.testing import CliRunner

from memtrace_otel.attribution.endpoint import Endpoint
from memtrace_otel.attribution.methods import Ask
from memtrace_otel.cli import main
from memtrace_otel.graph import EvolutionGraph
from memtrace_otel.model import OperationSpan, Verdict
from memtrace_otel.otlp import encode_request
from memtrace_otel.pipeline.diagnose import diagnose, record
from memtrace_otel.semconv import FailureType, OpKind, Role
from memtrace_otel.sources import SqliteStore
from tests.integration.model_stub import ModelStub
from tests.unit.graph.conftest import ALICE, put, seen, span
from tests.unit.pipeline.test_diagnose import failing

TRACES = (10, 20, 30, 40)


def cases() -> list[OperationSpan]:
    """Failures of one memory, and one of a memory of its own; each has an expected answer of its own."""
    spans = [one for trace in TRACES[:3] for one in failing(trace, ALICE, searched=True)] + failing(TRACES[3])
    wishes = {one.trace_id: put(f"expected:{n}", f"{n} April", role=Role.EXPECTED) for n, one in enumerate(spans)}
    return [replace(s, inputs=(*s.inputs[:2], wishes[s.trace_id])) if s.kind == OpKind.JUDGE else s for s in spans]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore.open(tmp_path / "run.db") as opened:
        opened.add_request(encode_request(cases()))
        yield opened


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MEMTRACE_MODEL", "scripted")
    monkeypatch.setenv("MEMTRACE_MODEL_CACHE", str(tmp_path / "replies.db"))


class Asked:
    """Stands in for an agent: blames the answer, and keeps which traces were asked about."""

    def __init__(self, meet: Callable[[], object] = lambda: None) -> None:
        self.traces: list[int] = []
        self._meet = meet

    def __call__(self, graph: EvolutionGraph, verdict: Verdict) -> Verdict:
        self.traces.append(int(verdict.failure.trace_id, 16))
        self._meet()
        made = verdict.blaming(verdict.failure.answer_span, FailureType.RESPONSE, "")
        return replace(made, method="agent", model="scripted", attribution_id=made.claim)


def run(store: SqliteStore, asked: Asked, concurrency: int = 1, most: int = 9) -> list[Verdict]:
    """Record the verdicts, and stop after `most`."""
    found: list[Verdict] = []
    endpoint = Endpoint()
    ask = Ask("agent", endpoint.model, endpoint, asked)
    for diagnosis in diagnose(store, store, ask=ask, concurrency=concurrency):
        found += [one.verdict for one in record(store, diagnosis)]
        if len(found) >= most:
            break
    return found


def test_several_cases_are_asked_at_once(store: SqliteStore, tmp_path: Path) -> None:
    together = Asked(lambda: barrier.wait(20))
    barrier = Barrier(len(TRACES))  # breaks unless every case is asked at the same time
    found = run(store, together, concurrency=len(TRACES))
    alone = Asked()
    with SqliteStore.open(tmp_path / "alone.db") as other:
        other.add_request(encode_request(cases()))
        in_turn = run(other, alone)
    assert sorted(together.traces) == sorted(alone.traces) == list(TRACES)
    ids = {verdict.failure.trace_id: verdict.attribution_id for verdict in found}
    assert ids == {verdict.failure.trace_id: verdict.attribution_id for verdict in in_turn}


def test_an_interrupted_run_goes_on(store: SqliteStore) -> None:
    asked = Asked()
    [first] = run(store, asked, most=1)
    again = Asked()
    found = run(store, again)
    assert sorted(again.traces) == [t for t in TRACES if t != int(first.failure.trace_id, 16)]
    assert first.attribution_id in {verdict.attribution_id for verdict in found}
    assert {verdict.method for verdict in found} == {"agent"}


@pytest.mark.parametrize("changed", ["nothing", "model", "version", "expected answer"])
def test_a_case_is_asked_again_when_the_question_to_the_model_is_another(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    run(store, Asked())
    if changed == "model":
        monkeypatch.setenv("MEMTRACE_MODEL", "larger")
    if changed == "version":
        monkeypatch.setattr("memtrace_otel.attribution.apply_rules.__version__", "99")
    if changed == "expected answer":
        answer = seen(f"answer:{2:016x}", f"{TRACES[0]:032x}-{2:016x}", role=Role.ANSWER)
        later = span(99, 3, OpKind.JUDGE, at=99, inputs=[answer, put("expected:e", "in May", role=Role.EXPECTED)],
                     attributes=cases()[2].attributes)  # fmt: skip
        store.add_request(encode_request([later]))
    again = Asked()
    run(store, again)
    every = [] if changed == "nothing" else [TRACES[0]] if changed == "expected answer" else list(TRACES)
    assert sorted(again.traces) == every


CANNOT_TELL = {"failure_type": "cannot_tell", "operation": "", "variable": "", "evidence": [], "second": "",
               "confidence": 0, "reason": ""}  # fmt: skip
ABSTAINS = json.dumps({"tool": "answer", "id": "", "text": "", "verdict": CANNOT_TELL})


def test_an_interrupt_waits_for_no_call_and_keeps_what_was_answered(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answered = {"failure_type": "response", "operation": "o1", "confidence": 0.9, "reason": "Said so."}
    blames = json.dumps({"tool": "answer", "id": "", "text": "", "verdict": CANNOT_TELL | answered})
    hangs = Event()
    command = [sys.executable, "-m", "memtrace_otel", "attribute", "--all", "--method", "agent"]
    command += ["--concurrency", "2", "--db", str(tmp_path / "run.db")]
    with ModelStub() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        server.script = [blames, *[lambda _: hangs.wait(60)] * 3]
        with Popen(command, stderr=PIPE) as run:
            for _ in range(600):
                if store.verdicts() and len(server.prompts) == 3:
                    break
                time.sleep(0.1)
            run.send_signal(SIGINT)
            run.wait(40)
        hangs.set()
        assert [json.loads(verdict.document)["method"] for verdict in store.verdicts()] == ["agent"]
        server.script = [blames] * 4
        again = CliRunner().invoke(main, command[3:])
    assert len(server.prompts) == 6, "three cases are left"
    assert "rules alone decided 0 of 4, the model 4;" in again.stderr


def test_a_bound_on_the_cost_ends_the_calls(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = ["attribute", "--all", "--method", "agent", "--concurrency", "1", "--max-cost", "3"]
    command += ["--db", str(tmp_path / "run.db")]
    with ModelStub() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        refused = CliRunner().invoke(main, command)
        assert (refused.exit_code, "MEMTRACE_MODEL_INPUT_PRICE" in refused.output) == (2, True)
        monkeypatch.setenv("MEMTRACE_MODEL_INPUT_PRICE", "1000000")
        monkeypatch.setenv("MEMTRACE_MODEL_OUTPUT_PRICE", "500000")
        server.script = [429, ABSTAINS, ABSTAINS, ABSTAINS]  # a refused call is made again, and costs nothing
        told = CliRunner().invoke(main, command).stderr
    assert len(server.prompts) == 3  # of a token read and a token written, 1.5 each reply
    assert "rules alone decided 0 of 4, the model 0; the model abstained in 2, failed in 2" in told
    assert "2 calls, 4 tokens, cost 3" in told
    assert "did not help in 2: the bound on the cost, 3, is reached" in told
