"""What the configurations of `collector/` promise, as far as it can be read in them."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from memtrace_otel import semconv
from memtrace_otel.capture.redact_patterns import read_patterns

A = "a1" * 18
KEY = "sk-proj-" + "a1B2c3D4" * 4
FOLDER = Path(__file__).parents[3] / "collector"


def read(name: str) -> dict[str, Any]:
    return cast(dict[str, Any], yaml.safe_load((FOLDER / f"{name}.yaml").read_text("utf-8")))


NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml") if path.stem != "builder")
EXPORTERS = [
    pytest.param(settings, id=f"{name}/{exporter}")
    for name in NAMES
    for exporter, settings in read(name).get("exporters", {}).items()
    if exporter != "prometheus"
]


def test_strings_and_arrays_are_redacted_alike() -> None:
    processors = read("redaction")["processors"]
    groups = [group for group in processors["transform/contents"]["trace_statements"] if "conditions" in group]
    assert len(groups) == 2
    for group in groups:
        found = [re.search(r'"value", "(.*)", "\*{4}"', statement) for statement in group["statements"]]
        assert [one[1].replace("\\\\", "\\") for one in found if one] == processors["redaction"]["blocked_values"]


SECRETS = {
    "sk-": KEY,
    "rk_live_": f"rk_live_{A}",
    "ghs_": f"ghs_{A}",
    "github_pat_": f"github_pat_{A}",
    "glpat-": f"glpat-{A}",
    "ASIA": "ASIAIOSFODNN7EXAMPLE",
    "AIza": "AIza" + "b" * 35,
    "xoxb-": "xoxb-1234567890-abcdef",
    "hf_": f"hf_{A}",
    "m0-": f"m0-{A}",
    "lsv2_": f"lsv2_pt_{A}",
    "npm_": f"npm_{A}",
    "pypi-": "pypi-" + "a1" * 30,
    "SG.": f"SG.{A}.{A}",
    "gsk_": f"gsk_{A}",
    "xai-": f"xai-{A}",
    "pplx-": f"pplx-{A}",
    "r8_": f"r8_{A}",
    "pcsk_": f"pcsk_2a_{A}",
    "tvly-": f"tvly-dev-{A}",
    "hvs.": f"hvs.{A}",
    "dapi": "dapi" + "0af1" * 8,
    "dop_v1_": "dop_v1_" + "0af1" * 16,
    "shpat_": "shpat_" + "0af1" * 8,
    "ntn_": f"ntn_{A}",
    "lin_api_": f"lin_api_{A}",
    "figd_": f"figd_{A}",
    "telegram": "123456789:AA" + "Hd" * 16,
    "hooks.slack": "hooks.slack.com/services/T00000000/B00000000/XXXX",
    "ya29.": f"ya29.{A}",
    "GOCSPX-": f"GOCSPX-{A}",
    "AQ.": f"AQ.{A}",
    "Q~": "abc8Q~" + "aB1~" * 9,
    "xapp-": f"xapp-1-{A}",
    "discord": "MTA1NTY3ODkwMTIzNDU2Nzg5.GaBcDe." + "aB1-" * 7,
    "webhooks": "discord.com/api/webhooks/1055678901234567890/" + A,
    "SK": "SK" + "0a1b" * 8,
    "key-": "key-" + "0a1b" * 8,
    "whsec_": f"whsec_{A}",
    "dckr_": f"dckr_pat_{A}",
    "glrt-": f"glrt-{A}",
    "glsa_": f"glsa_{A}",
    "NRAK-": f"NRAK-{A}",
    "NRAL": "0a1b" * 9 + "NRAL",
    "sntry": f"sntrys_{A}",
    "sentry": "https://" + "0a1b2c3d" * 4 + "@o1.ingest.sentry.io/4",
    ".atlasv1.": f"AbCdEfGh123456.atlasv1.{A}{A}",
    "sq0": f"sq0atp-{A}",
    "EAAA": f"EAAA{A}{A}",
    "access_token$": "access_token$production$" + "0a1b" * 4 + "$" + "0a1b" * 8,
    "secret_": f"secret_{A}{A}",
    "pat": "patAbCdEfGh123456." + "0a1b" * 16,
    "AGE-SECRET-KEY-": "AGE-SECRET-KEY-1" + "QPZRY9X8" * 7,
    "curl": "curl -u ana:s3cr3t https://h",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    "private_key": "-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----",
    "private_key, cut": "-----BEGIN OPENSSH PRIVATE KEY-----\nMIIB",
    "bearer": "Authorization: Bearer abcdef0123456789.-_",
    "url_password": "postgres://me:s3cr3t@host/db",
    "url_password, with @": "postgres://bob@example.org:s3@cr3t@host/db",
    "url_signature": "https://b.example/k?X-Amz-Algorithm=A&X-Amz-Signature=s3cr3t&X-Amz-Expires=60",
    "url_signature, sig": "https://b.example/k?sv=1&sig=s3cr3t#top",
    "url_signature, key": "/k?AWSAccessKeyId=s3cr3t",
}
"""One for each alternative of capture's expressions."""


def redact(text: str) -> str:
    """What the Collector makes of it; RE2 and Python mean the same by these expressions, but for the end of a text."""
    for expression in read("redaction")["processors"]["redaction"]["blocked_values"]:
        text = re.sub(expression.replace(r"\z", r"\Z"), "****", text, flags=re.ASCII)
    return text


@pytest.mark.parametrize("text", SECRETS.values(), ids=SECRETS)
def test_what_capture_removes_by_default_is_removed_here_as_well(text: str) -> None:
    assert read_patterns("secrets").apply(text, Counter()) != text
    left = redact(f"before {text} ")
    assert left.startswith("before ")
    assert "****" in left
    for part in ("s3cr3t", "cr3t", "MIIB", "abcdef0123", A, *([text] if "/" not in text else [])):
        assert part not in left


def test_a_sample_stands_for_every_prefix_that_capture_knows() -> None:
    hints = {hint for rule in read_patterns("secrets").rules for hint in rule.hints if rule.name == "api_key"}
    known = {*("_test_", "_live_"), *("ghp_", "gho_", "ghu_", "ghr_", "AKIA"), *("shpca_", "shppa_", "shpss_")}
    known |= {"gldt-", "glft-", "glcbt-", "glptt-", "glc_", "NRII-", "NRJS-", "NRRA-", "NRIQ-", "hvb.", "hvr."}
    known |= {"AC", "MD", "Mj", "Mz", "ND", "NT", "Nj", "Nz", "OD", "OT"}
    assert {hint for hint in hints - known if not any(hint in text for text in SECRETS.values())} == set()


@pytest.mark.parametrize(
    "text",
    [
        "a risk-adjusted sk-learn pipeline",
        "the bearer of bad news, basic training",
        "see https://example.org:8080/a@b and ana@example.org",
        '{"a":"https://h:80/x","mail":"ana@example.org"}',
        "https://b.example/k?page=2&design=blue",
        "at 12345678:30",
    ],
)
def test_other_texts_are_left_as_they_are(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("settings", EXPORTERS)
def test_every_exporter_keeps_its_queue_on_disk_and_never_gives_up(settings: dict[str, Any]) -> None:
    assert settings["sending_queue"]["storage"].startswith("file_storage/")
    assert settings["retry_on_failure"]["max_elapsed_time"] == 0


def test_tempo_has_collectors_wait_where_a_queue_goes_out_too_fast() -> None:
    """A refusal without a time to wait is permanent to them, and its spans are gone."""
    assert read("../deploy/tempo/config")["distributor"]["retry_after_on_resource_exhausted"] == "2s"


def test_tempo_does_not_discard_what_it_has_acknowledged() -> None:
    """As it does past 10,000 traces, and past 5 MB of one, unless these are set; 0 is no limit."""
    defaults = read("../deploy/tempo/config")["overrides"]["defaults"]
    assert defaults["ingestion"]["max_traces_per_user"] == 0
    assert defaults["global"]["max_bytes_per_trace"] == 0


def test_sampling_waits_for_runs_of_a_minute_and_for_others_until_their_root() -> None:
    sampling = read("sampling")["processors"]["tail_sampling"]
    assert sampling["decision_wait"] == "${env:SAMPLING_WAIT:-60s}"
    assert sampling["decision_wait_after_root_received"] == "${env:SAMPLING_WAIT_AFTER_ROOT:-5s}"


@pytest.mark.parametrize("name", ["agent", "gateway", "kafka-consumer"])
def test_the_memory_limiter_comes_first(name: str) -> None:
    for pipeline in read(name)["service"]["pipelines"].values():
        if pipeline["receivers"] != ["isolate"]:  # what comes by it has passed one
            assert pipeline["processors"][0] == "memory_limiter"


@pytest.mark.parametrize("name", NAMES)
def test_listeners_are_on_loopback_unless_the_environment_says_otherwise(name: str) -> None:
    text = (FOLDER / f"{name}.yaml").read_text("utf-8")
    assert "0.0.0.0" not in text
    assert all(host.startswith("127.0.0.1") for host in re.findall(r"(?:endpoint|host): \$\{env:\w+:-(.*?)\}", text))


def test_names_are_those_of_the_wire() -> None:
    text = (FOLDER / "gateway.yaml").read_text("utf-8") + (FOLDER / "shards.yaml").read_text("utf-8")
    written = set(re.findall(r'"(memtrace[._][\w.-]+)"', text)) - {"memtrace-attribution"}
    known = {value for name, value in vars(semconv).items() if name.isupper() and isinstance(value, str)}
    assert written <= known
    (pattern,) = re.findall(r'gen_ai.operation.name"\], "\^(.*)\$\$"\)', text)
    assert {name for name in semconv.KIND_OF_OPERATION if re.fullmatch(pattern, name)} == {*semconv.KIND_OF_OPERATION}


def test_every_evaluation_that_serve_knows_is_marked() -> None:
    groups = read("gateway")["processors"]["transform/mark"]["trace_statements"]
    statements = {group["context"]: " ".join(group["statements"]) for group in groups}
    for name in (semconv.EVALUATION_LABEL, semconv.EVALUATION_SCORE):
        assert f'span.attributes["{name}"] != nil' in statements["span"]
    assert f'spanevent.name == "{semconv.EVALUATION_EVENT}"' in statements["spanevent"]


def test_the_image_is_built_by_the_builder_of_the_same_version() -> None:
    version = read("builder")["dist"]["version"]
    assert f"cmd/builder@v{version} " in (FOLDER / "Dockerfile").read_text("utf-8")
    for part in ("fit", "isolate"):
        assert f"path: ./{part}" in (FOLDER / "builder.yaml").read_text("utf-8")
        assert f"COPY {part} ./{part}\n" in (FOLDER / "Dockerfile").read_text("utf-8")


@pytest.mark.parametrize("name", ["agent", "gateway"])
def test_what_comes_in_has_its_secrets_removed_before_it_is_cut_and_leaves(name: str) -> None:
    """Metrics have no queue that drops what is large."""
    for signal, pipeline in read(name)["service"]["pipelines"].items():
        if "otlp" in pipeline["receivers"]:
            assert "redaction" in pipeline["processors"]
            assert (pipeline["processors"][-1] == "fit") == (signal != "metrics")
