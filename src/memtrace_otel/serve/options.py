"""Options of `serve`, checked before anything is opened."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from memtrace_otel import settings
from memtrace_otel.annotate.target import read_targets
from memtrace_otel.hosts import is_loopback
from memtrace_otel.sources import open_source

_TOKEN_CHARACTERS = 16


class ServeError(Exception):
    """A server that cannot start. The message says what to change."""


@dataclass(frozen=True, slots=True)
class Options:
    """Addresses (port 0 is any free port), database, token, TLS files (PEM), and the backend to look into before
    verdicts are sent (as for `open_source`; empty for none). `ui_port`: where the pages are, None for no pages;
    `annotators`: the file of the people who may read them; `repair`: the run whose application the metrics show."""

    database: Path
    host: str = "127.0.0.1"
    grpc_port: int = 4317
    http_port: int = 4318
    token: str = ""
    certificate: Path | None = None
    key: Path | None = None
    look_in: str = ""
    ui_port: int | None = None
    annotators: Path | None = None
    repair: Path | None = None

    def check(self) -> None:
        """Raise ServeError for options that cannot be used, AddressError or TargetError for a wrong backend address."""
        if not is_loopback(self.host) and not self.token:
            raise ServeError(
                f"{self.host} can be reached from other machines: set a token ({settings.SERVE_TOKEN.env}), "
                "which senders give as `authorization: Bearer <token>`"
            )
        if self.ui_port is not None and not is_loopback(self.host) and self.annotators is None:
            raise ServeError(
                f"{self.host} can be reached from other machines: name annotators and tokens (--annotators)"
            )
        if not (self.token.isascii() and self.token.isprintable() and self.token.strip() == self.token):
            raise ServeError(
                f"{settings.SERVE_TOKEN.env}: a token is of printable ASCII without blanks at its ends, "
                "because a header cannot hold any other"
            )
        if not self.database.parent.is_dir():
            raise ServeError(f"{self.database}: the folder {self.database.parent} does not exist")
        if (self.certificate is None) != (self.key is None):
            raise ServeError("--tls-cert and --tls-key are only used together")
        if self.certificate:
            try:
                ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(self.certificate, self.key)
            except OSError as error:
                reason = error.strerror or str(error)
                if isinstance(error, ssl.SSLError):
                    reason = "not a certificate in PEM with its key without a password"
                raise ServeError(f"{self.certificate}, {self.key}: {reason}") from None
        target, _ = read_targets()
        if self.look_in:
            open_source(self.look_in)
            if target is None:
                raise ServeError("--look-in needs a receiver of verdicts: OTEL_EXPORTER_OTLP_ENDPOINT is not set")

    def warnings(self) -> list[str]:
        """Return what makes a server that other machines reach unsafe."""
        if is_loopback(self.host):
            return []
        found: list[str] = []
        if self.certificate is None:
            found.append(
                f"{self.host} is served in plain text: the network can read the token and every content; "
                "encrypt with --tls-cert and --tls-key, or serve behind a proxy that does"
            )
        if len(self.token) < _TOKEN_CHARACTERS or len(set(self.token)) < _TOKEN_CHARACTERS // 2:
            found.append(
                f"{settings.SERVE_TOKEN.env} is easy to guess; use {_TOKEN_CHARACTERS} random characters or more, "
                "for example of `openssl rand -hex 16`"
            )
        return found


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises ServeError when the address is in use, or not one of this machine."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise ServeError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
