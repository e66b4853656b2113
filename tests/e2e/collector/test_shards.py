"""Two `serve`, each for half of the memory scopes: what belongs to a scope stays together, judgements go to both."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.backends.service import running, wait_for
from tests.e2e.collector.processes import Collector, Serve
from tests.e2e.collector.spans import memory, new_trace, span, tell


def test_scopes_stay_together(tmp_path: Path) -> None:
    serves = Serve(tmp_path, "serve_0"), Serve(tmp_path, "serve_1")
    names = {"MEMTRACE_SERVE": serves[0].otlp, "MEMTRACE_SERVE_1": serves[1].otlp}
    gateway = Collector(tmp_path, "gateway", "redaction", "shards", **names)
    scopes = [f"{digit:x}" * 16 for digit in range(16)]
    by_scope = {scope: [memory(new_trace(), "a fact", scope=scope) for _ in range(3)] for scope in scopes}
    named = memory(new_trace(), "a fact", scope="team-7")
    bare = span(new_trace(), "chat", "respond", scope="")
    judge = span(new_trace(), "memtrace.judge", "judge", scope="")
    halves = [{one.span_id for scope in half for one in by_scope[scope]} for half in (scopes[:8], scopes[8:])]
    expected = [halves[0] | {named.span_id, bare.span_id, judge.span_id}, halves[1] | {judge.span_id}]
    with running(serves[0]), running(serves[1]), running(gateway):
        tell(gateway.otlp, [*(one for spans in by_scope.values() for one in spans), named, bare, judge])
        wait_for(lambda: [serve.span_ids() for serve in serves] == expected, "each span where it belongs")
