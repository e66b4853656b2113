"""Options of `serve`: refusals, warnings, repeated log lines."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from memtrace_otel.serve.options import Options, ServeError, listen
from memtrace_otel.serve.server import RepeatedLines, serve
from memtrace_otel.sources import AddressError


def test_a_certificate_that_is_not_pem_is_refused_with_its_file_name(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.der", tmp_path / "key.pem"
    certificate.write_bytes(b"\x30\x82\x01\x0a\x00")
    key.write_text("a key")
    with pytest.raises(ServeError) as caught:
        Options(tmp_path / "a.db", certificate=certificate, key=key).check()
    assert str(caught.value) == (f"{certificate}, {key}: not a certificate in PEM with its key without a password")


@pytest.mark.parametrize("token", ["t\u00f6k", "a\nb", "   ", "secret ", " secret", "secret\n"])
def test_a_token_that_no_header_can_hold_is_refused(tmp_path: Path, token: str) -> None:
    """A header loses blanks at its ends: whoever sends such a token is refused for ever."""
    with pytest.raises(ServeError, match="MEMTRACE_SERVE_TOKEN: a token is of printable ASCII") as caught:
        Options(tmp_path / "a.db", token=token).check()
    assert token not in str(caught.value)


def test_look_in_needs_a_receiver_of_verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looking = Options(tmp_path / "a.db", look_in="jaeger+http://localhost")
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    with pytest.raises(ServeError, match="OTEL_EXPORTER_OTLP_ENDPOINT is not set"):
        looking.check()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4317")
    looking.check()
    with pytest.raises(AddressError, match="zipkin"):
        Options(tmp_path / "a.db", look_in="zipkin+http://localhost").check()


def test_a_grpc_port_in_use_at_one_address_of_a_name_is_refused(tmp_path: Path) -> None:
    def ready(_: object) -> None:
        raise AssertionError("it listens at the other address")

    with listen("127.0.0.1", 0) as taken:
        options = Options(tmp_path / "a.db", "localhost", grpc_port=taken.getsockname()[1], http_port=0)
        with pytest.raises(ServeError, match="cannot listen on localhost"):
            serve(options, ready)


def test_off_loopback_plain_text_and_a_weak_token_give_warnings(tmp_path: Path) -> None:
    strong = "5f0c1a9be2d84736"
    assert Options(tmp_path / "a.db", token="secret").warnings() == []
    plain, weak = Options(tmp_path / "a.db", "0.0.0.0", token="secret").warnings()
    assert "plain text" in plain
    assert "easy to guess" in weak
    assert "secret" not in plain + weak
    assert len(Options(tmp_path / "a.db", "0.0.0.0", token="a" * 40, certificate=tmp_path).warnings()) == 1
    assert Options(tmp_path / "a.db", "0.0.0.0", token=strong, certificate=tmp_path).warnings() == []


def test_a_repeated_log_line_is_written_once_in_ten_seconds() -> None:
    repeated = RepeatedLines()

    def written(message: str, seconds: float) -> str:
        record = logging.LogRecord("name", logging.WARNING, "", 0, message, (), None)
        record.created = seconds
        return record.getMessage() if repeated.filter(record) else ""

    assert written("full", 100.0) == "full"
    assert [written("full", 101.0 + n) for n in range(3)] == ["", "", ""]
    assert written("other", 104.0) == "other"
    assert written("full", 111.0) == "full (3 repeated lines suppressed)"
    assert written("full", 122.0) == "full"
