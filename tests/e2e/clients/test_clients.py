"""The OpenTelemetry SDKs of Node, Go and Java against a running server: what they send arrives equal."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from memtrace_otel.model import AttributeValue, Event, Link, OperationSpan
from memtrace_otel.sources import SqliteStore
from tests.integration.serve.conftest import Start

HERE = Path(__file__).parent
START = 1_700_000_000_000_000_000
LINKED = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
RESOURCE: dict[str, AttributeValue] = {"service.name": "client", "place": "Zürich 東京 🧠", "empty": ""}
ATTRIBUTES: dict[str, AttributeValue] = {
    "text": "naïve 東京 🧠\n\t\"'\\",
    "empty": "",
    "yes": True,
    "no": False,
    "zero": 0,
    "int": -9007199254740991,
    "double": 0.1,
    "texts": ["a", "", "ü"],
    "ints": [1, 0, -3],
    "doubles": [0.5, -2.25, 1e300],
    "bools": [True, False],
    "none": [],
}
TYPED: dict[str, AttributeValue] = {"least": -(2**63), "whole": 2.0}
"""What JavaScript cannot tell from other numbers."""

COMMANDS = {
    "node": ("node", "{folder}/client.cjs"),
    "go": ("{folder}/client",),
    "java": ("java", "-cp", "{folder}:{folder}/lib/*", "Client"),
}
CASES = [(language, protocol) for language in COMMANDS for protocol in ("grpc", "http/protobuf")]


def send(language: str, *arguments: str) -> dict[str, str]:
    """Run a client, which has been told that everything was taken; return the ids that it made."""
    built = subprocess.run([str(HERE / "build.sh"), language], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    command = [part.format(folder=built.stdout.strip()) for part in COMMANDS[language]]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.mark.parametrize(("language", "protocol"), [*CASES, ("node", "http/json")])
def test_what_a_client_sends_arrives_equal(start: Start, language: str, protocol: str) -> None:
    server = start()
    sent = send(language, protocol, f"http://{server.grpc}" if protocol == "grpc" else server.http)
    server.until(lambda: server.metric("decoded_spans") == 3)
    assert server.metric("rejected_spans") == 0
    assert server.terminate() == 0
    with SqliteStore.open(server.database, create=False) as store:
        turn, search, judge = store.trace(sent["trace"])

    assert (turn.span_id, turn.name, turn.parent_id, turn.status) == (sent["turn"], "turn", "", "ok")
    assert (turn.start, turn.end) == (START + 1, START + 999_999_999)
    for span in (turn, search, judge):
        assert span.resource == RESOURCE

    assert (search.span_id, search.parent_id, search.name) == (sent["search"], sent["turn"], "search ✓ 記憶")
    assert (search.start, search.end) == (START + 123_456_789, START + 987_654_321)
    assert (search.status, search.status_message) == ("error", "nicht gefunden ✗")
    assert (search.kind, search.instrumentation_scope) == ("retrieve", "memtrace_otel.clients")
    assert [(variable.ref, variable.origin) for variable in search.inputs] == [
        ("query:1", ""),
        ("memory:m1", "-".join(LINKED)),
    ]
    assert typed(search) == typed_values(ATTRIBUTES | ({} if language == "node" else TYPED))
    link = {"memtrace.link.type": "retrieved", "memtrace.link.refs": ["memory:m1"]}
    assert search.links == (Link(*LINKED, link),)
    assert search.events == (
        Event("cache miss ✗", START + 200_000_000, {"count": 3, "key": ""}),
        Event("bare", START + 200_000_001, {}),
    )
    assert search.incomplete == ()

    assert (judge.kind, judge.parent_id, judge.start) == ("judge", sent["turn"], START + 999_999_999)
    assert judge.attributes == {
        "gen_ai.evaluation.name": "correctness",
        "gen_ai.evaluation.score.label": "fail",
        "gen_ai.evaluation.score.value": 0.25,
        "gen_ai.evaluation.explanation": "außerhalb",
    }
    assert judge.inputs[0].origin == f"{sent['trace']}-{sent['turn']}"


def typed(span: OperationSpan) -> dict[str, str]:
    return typed_values(dict(span.attributes))


def typed_values(values: dict[str, AttributeValue]) -> dict[str, str]:
    """In Python 1, 1.0 and True are equal; their texts are not."""
    return {key: repr(value) for key, value in values.items()}


def test_a_client_whose_tool_is_missing_is_named(tmp_path: Path) -> None:
    for tool in ("bash", "dirname", "cat", "sha256sum", "cut", "mkdir", "mktemp", "rm"):
        (tmp_path / tool).symlink_to(subprocess.check_output(["which", tool], text=True).strip())
    copy = tmp_path / "tests" / "e2e" / "clients"
    (copy / "go").mkdir(parents=True)
    for name in ("build.sh", "go/go.mod"):
        (copy / name).write_bytes((HERE / name).read_bytes())
    done = subprocess.run(
        ["bash", str(copy / "build.sh"), "go"], env={"PATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "the client of Go needs go on PATH" in done.stderr
