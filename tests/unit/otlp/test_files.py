"""Files of spans: every form that is read, and every fault with its line and reason."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import decode_request, encode_request
from memtrace_otel.otlp.files import METRICS, OTHER_LOGS, GraphDocument, InputError, OtlpBody, Skipped, read_file
from memtrace_otel.otlp.json import json_to_logs
from memtrace_otel.otlp.receiver import Limits, check_logs
from tests.otlp_json import request_to_json
from tests.unit.otlp.spans import random_span

SPANS = [random_span(random.Random(seed)) for seed in range(3)]
BODY = encode_request(SPANS)
DOCUMENT = request_to_json(BODY)
LINE = json.dumps(DOCUMENT).encode()
DATA = Path(os.environ.get("MEMTRACE_DATA", Path(__file__).parents[3].parent / "shared" / "data"))
CONVERTER = DATA.parent / "eval" / "memeval_to_otlp.py"


def written(folder: Path, content: bytes) -> Path:
    path = folder / "input"
    path.write_bytes(content)
    return path


def fault(path: Path) -> InputError:
    """Return the error of reading `path` to its end."""
    with pytest.raises(InputError) as caught:
        list(read_file(path))
    assert str(path) in str(caught.value)
    assert caught.value.reason in str(caught.value)
    return caught.value


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("content", "requests"),
    [
        (LINE, 1),
        (LINE + b"\n", 1),
        (LINE + b"\n\n" + LINE + b"\r\n", 2),
        (json.dumps(DOCUMENT, indent=2).encode(), 1),
        (b"\n\n  " + json.dumps(DOCUMENT, indent="\t").encode() + b"\n", 1),
        (b"\xef\xbb\xbf" + LINE, 1),
        (BODY, 1),
    ],
    ids=["line", "newline", "lines", "pretty", "indented", "bom", "protobuf"],
)
def test_every_file_form_gives_the_same_spans(tmp_path: Path, content: bytes, requests: int, packed: bool) -> None:
    items = list(read_file(written(tmp_path, gzip.compress(content) if packed else content)))
    assert len(items) == requests
    for item in items:
        assert isinstance(item, OtlpBody)
        assert decode_request(item.body) == SPANS


def test_protobuf_that_begins_like_json_is_protobuf(tmp_path: Path) -> None:
    spans = (
        OperationSpan("a" * 32, "b" * 16, name="n" * name, resource={"k" * key: "v"})
        for key in range(40)
        for name in range(100)
    )
    body = next(body for span in spans if (body := encode_request([span])).startswith(b'\n{\n"'))
    (item,) = read_file(written(tmp_path, body))
    assert item == OtlpBody(body)


def test_lines_are_numbered(tmp_path: Path) -> None:
    items = list(read_file(written(tmp_path, LINE + b"\n\n" + LINE)))
    assert [item.line for item in items] == [1, 3]


def test_a_graph_is_returned_as_a_document(tmp_path: Path) -> None:
    graph = {"graph_id": "g1", "data": {"edges": []}}
    (item,) = read_file(written(tmp_path, json.dumps(graph, indent=1).encode()))
    assert item == GraphDocument(graph, 1)


EVALUATION = {"timeUnixNano": "7", "eventName": "gen_ai.evaluation.result", "traceId": "a" * 32, "spanId": "b" * 16}
OTHER = {"timeUnixNano": "8", "body": {"stringValue": "started"}}
METRIC = b'{"resourceMetrics": []}'


def logs(*records: object) -> bytes:
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]}
    return json.dumps({"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": records}]}]}).encode()


def test_evaluations_among_logs_are_the_judge_spans_that_the_receiver_makes(tmp_path: Path) -> None:
    written_by_collector = b"\n".join([METRIC, logs(OTHER, EVALUATION, OTHER), LINE, logs(OTHER), METRIC])
    metrics, judges, others, spans, *rest = read_file(written(tmp_path, written_by_collector))
    received = check_logs(json_to_logs(json.loads(logs(EVALUATION))), Limits.from_settings())
    assert judges == OtlpBody(received.body, 2)
    assert received.spans == 1
    assert others == Skipped(OTHER_LOGS, 2, 2)
    assert isinstance(spans, OtlpBody)
    assert decode_request(spans.body) == SPANS
    assert (metrics, rest) == (Skipped(METRICS, 1, 1), [Skipped(OTHER_LOGS, 1, 4), Skipped(METRICS, 1, 5)])


def with_span(**fields: object) -> bytes:
    span = {"traceId": "a" * 32, "spanId": "b" * 16, **fields}
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        (b"", 0, "empty"),
        (gzip.compress(b"", mtime=0), 0, "empty"),
        (b"\n \n", 0, "neither JSON"),
        (b"hello world\n", 0, "neither JSON nor a valid OTLP trace request"),
        (BODY[:-3], 0, "truncated"),
        (gzip.compress(LINE, mtime=0)[:-30], 0, "cut off"),
        (gzip.compress(LINE, mtime=0)[:20] + b"\xff" * 40, 0, "damaged gzip|cut off"),
        (LINE[:-10], 1, "cut off JSON"),
        (LINE[:-10] + b"\n", 1, "cut off JSON"),
        (LINE[:-10] + b"\n" + LINE, 1, "cut off JSON"),
        (LINE + b"\n" + LINE[:-10] + b"\n" + LINE, 2, "cut off JSON"),
        (LINE + b"\n[1]", 2, "a JSON list"),
        (b"[]", 1, "a JSON list"),
        (b"{}", 1, "no resourceSpans"),
        (LINE + b'\n{"resourceProfiles": []}', 2, "found: resourceProfiles"),
        (LINE + b'\n{"resourceLogs": {}}', 2, "cannot read resourceLogs"),
        (logs({"body": 5}), 1, "not a valid OTLP logs request"),
        (b'{"data": [{"traceID": "1"}]}', 1, "no resourceSpans"),
        (b'{"resourceSpans": {}}', 1, "cannot read resourceSpans"),
        (b'{"resourceSpans": [1]}', 1, "cannot read resourceSpans"),
        (with_span(traceId="xyz"), 1, "trace id of 2 bytes instead of 16"),
        (with_span(traceId="a" * 31), 1, "trace id of 23 bytes instead of 16"),
        (with_span(traceId="0" * 32), 1, "all-zero trace id"),
        (with_span(spanId=""), 1, "span id of 0 bytes"),
        (with_span(attributes=5), 1, "not a valid OTLP"),
        (with_span(startTimeUnixNano="noon"), 1, "not a valid OTLP"),
        (with_span(name=["x"]), 1, "not a valid OTLP"),
        (b'{"resourceSpans": "\xff\xfe"}', 1, "invalid JSON"),
        (b'{"a":' * 100_000, 1, "nested too deeply"),
    ],
)
def test_faults_name_line_and_reason(tmp_path: Path, content: bytes, line: int, reason: str) -> None:
    error = fault(written(tmp_path, content))
    assert error.line == line
    assert any(part in error.reason for part in reason.split("|")), error.reason


def test_a_pretty_document_names_the_line_of_its_fault(tmp_path: Path) -> None:
    lines = json.dumps(DOCUMENT, indent=1).splitlines()
    lines[6] = lines[6].replace('"', "", 1)
    assert fault(written(tmp_path, "\n".join(lines).encode())).line == 7


def test_spans_of_a_later_wire_version_are_refused(tmp_path: Path) -> None:
    def versioned(version: str) -> bytes:
        url = f"https://memtrace-otel.dev/schemas/{version}"
        return json.dumps({"resourceSpans": [{"scopeSpans": [{"schemaUrl": url, "spans": []}]}]}).encode()

    assert "wire version 9.2.0" in fault(written(tmp_path, versioned("9.2.0"))).reason
    assert "unknown wire version 'next'" in fault(written(tmp_path, versioned("next"))).reason
    assert len(list(read_file(written(tmp_path, versioned("0.1.7"))))) == 1
    assert len(list(read_file(written(tmp_path, versioned("0.0.1"))))) == 1


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    assert "No such file" in fault(tmp_path / "absent").reason
    assert "directory" in fault(tmp_path).reason


@pytest.mark.parametrize("content", [b"\n".join([LINE] * 3), b"\n".join([LINE, b"x" * 100_000]), BODY * 3])
def test_more_than_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setenv("MEMTRACE_MAX_IMPORT_BYTES", str(len(content) - 1))
    assert "MEMTRACE_MAX_IMPORT_BYTES" in fault(written(tmp_path, content)).reason


def test_a_gzip_bomb_is_cut_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMTRACE_MAX_IMPORT_BYTES", "1000000")
    bomb = gzip.compress(b'{"a": "' + b" " * 50_000_000)
    assert len(bomb) < 100_000
    assert "larger than 1000000 bytes" in fault(written(tmp_path, bomb)).reason


def test_a_single_document_has_its_own_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memtrace_otel.otlp.files.MAX_DOCUMENT_BYTES", len(LINE) + 1)
    assert len(list(read_file(written(tmp_path, LINE + b"\n" + LINE)))) == 2
    error = fault(written(tmp_path, LINE + b"\n" + LINE[:-1] + b"   }"))
    assert (error.line, "a single document larger than" in error.reason) == (2, True)


@pytest.mark.skipif(not CONVERTER.exists(), reason="development data (../shared/data or MEMTRACE_DATA) is absent")
def test_all_spans_of_the_recorded_runs_are_read(tmp_path: Path) -> None:
    runs = DATA / "memeval_conv26"
    command = [sys.executable, str(CONVERTER), str(runs / "runs.json.gz"), str(runs / "labels.json"), str(tmp_path)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    spans = [span for item in read_file(tmp_path / "spans.jsonl") for span in decode_request(item.body)]  # type: ignore[union-attr]
    assert len(spans) == int(said.split()[0]) > 1000
    assert all(span.kind and span.start for span in spans)
    assert not any("malformed" in span.incomplete for span in spans)
