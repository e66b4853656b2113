"""The command `serve`."""

from __future__ import annotations

from pathlib import Path

import click

from memtrace_otel import settings
from memtrace_otel.cli.errors import clear_errors, fail, tell_of_settings
from memtrace_otel.cli.options import database_option, examples, look_in_option, repair_option

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(
    epilog=examples(
        "memtrace-otel serve --db run.db",
        "OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4317 memtrace-otel serve --grpc-port 14317 --http-port 14318 "
        "--look-in jaeger+http://localhost",
        "MEMTRACE_SERVE_TOKEN=... memtrace-otel serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem",
    )
)
@database_option
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Listening address; off loopback a token is needed."
)
@click.option("--grpc-port", type=click.IntRange(0, 65535), default=4317, show_default=True, help="OTLP over gRPC.")
@click.option("--http-port", type=click.IntRange(0, 65535), default=4318, show_default=True, help="OTLP over HTTP.")
@look_in_option
@click.option(
    "--ui", "ui_port", type=click.IntRange(1, 65535), metavar="PORT", help="Serve the pages of `ui` on this port, too."
)
@click.option("--annotators", type=_FILE, help="As for `ui`: needed with --ui off loopback.")
@click.option("--tls-cert", type=_FILE, help="Certificate (PEM); with --tls-key.")
@click.option("--tls-key", type=_FILE, help="Private key (PEM).")
@repair_option
@clear_errors
def serve(
    database: Path,
    host: str,
    grpc_port: int,
    http_port: int,
    look_in: str,
    ui_port: int | None,
    annotators: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    run: Path | None,
) -> None:
    """Receive spans over OTLP into the database and attribute failed answers.

    An acknowledged request is on disk. Verdicts also go to OTEL_EXPORTER_OTLP_ENDPOINT, if the variable is set. GET
    /health and /metrics are on the HTTP port. SIGTERM and SIGINT end the server in order. Needs `pip install
    'memtrace-otel[serve]'`.
    """
    try:
        from memtrace_otel.serve.server import Listening
        from memtrace_otel.serve.server import serve as start
    except ModuleNotFoundError as error:
        if error.name not in ("prometheus_client", "starlette", "uvicorn"):
            raise
        fail(f"{error.name} is missing: pip install 'memtrace-otel[serve]', in a checkout pip install '.[serve]'")
    from memtrace_otel.serve.options import Options

    tell_of_settings()

    def ready(listening: Listening) -> None:
        at = f"[{listening.host}]" if ":" in listening.host else listening.host
        click.echo(
            f"memtrace-otel: OTLP over gRPC on {at}:{listening.grpc_port}, HTTP on {at}:{listening.http_port},"
            f" into {database}",
            err=True,
        )
        if ui_port is not None:
            click.echo(f"memtrace-otel: pages on http://{at}:{ui_port}/", err=True)

    token = settings.SERVE_TOKEN.read()
    addresses = (host, grpc_port, http_port, token, tls_cert, tls_key, look_in)
    start(Options(database, *addresses, ui_port, annotators, run), ready)
