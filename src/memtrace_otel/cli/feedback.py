"""The command `feedback`: judge a recorded answer."""

from __future__ import annotations

from pathlib import Path

import click

from memtrace_otel import semconv
from memtrace_otel.cli.errors import clear_errors
from memtrace_otel.cli.options import check_trace_ids, database_option, examples


@click.command(
    epilog=examples(
        "memtrace-otel feedback 4bf92f3577b34da6a3ce929d0e0e4736 --label fail --expected '17 to 19 April'",
        "memtrace-otel feedback 4bf92f3577b34da6a3ce929d0e0e4736 --score 0.2 --db run.db",
        "memtrace-otel attribute 4bf92f3577b34da6a3ce929d0e0e4736",
    )
)
@click.argument("trace_id", callback=check_trace_ids)
@click.option("--label", default="", metavar="LABEL", help="fail, incorrect, thumbs_down ... or pass, correct ...")
@click.option("--score", type=float, help="Fails below MEMTRACE_EVALUATION_THRESHOLD; a label wins.")
@click.option("--expected", default="", metavar="TEXT", help="The right answer, for verdicts to compare with.")
@click.option("--explanation", default="", metavar="TEXT", help="The reason.")
@click.option(
    "--name",
    default=semconv.USER_FEEDBACK,
    show_default=True,
    help="The evaluated quality; the latest feedback of a name decides.",
)
@click.option("--time", default="", metavar="TIME", help="RFC 3339, UTC without a zone. Default: now.")
@database_option
@clear_errors
def feedback(
    trace_id: str,
    label: str,
    score: float | None,
    expected: str,
    explanation: str,
    name: str,
    time: str,
    database: Path,
) -> None:
    """Judge the newest answer to the user in a trace as wrong or right.

    The feedback becomes a judge span of the trace. The spans of the trace may arrive later. The latest feedback
    decides. Texts are redacted like contents, and dropped when contents are off here or were off in the recorded trace.
    A server on the same database attributes the failure.
    """
    from memtrace_otel.capture.feedback import feedback_redaction
    from memtrace_otel.otlp.feedback import encode_feedback
    from memtrace_otel.semconv import Incomplete
    from memtrace_otel.sources import SqliteStore

    with SqliteStore.open(database, create=False) as store:
        content_off = bool(expected or explanation) and any(
            Incomplete.CONTENT_OFF in span.incomplete for span in store.trace(trace_id.lower())
        )
        request = encode_feedback(
            trace_id,
            label=label,
            score=score,
            expected=expected,
            explanation=explanation,
            name=name,
            time=time,
            described=feedback_redaction(content_off=content_off),
        )
        known = store.waiting()[0] > 0 or store.is_known(trace_id)
        store.add_request(request)  # not decoded here, so that a server notices the request
    click.echo(f"feedback on trace {trace_id} is in {database}")
    if not known:
        click.echo("this trace is not recorded yet: the feedback waits for its spans", err=True)
