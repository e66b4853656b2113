"""Markdown to index: the background worker without a trace context, and files edited by a person."""

from __future__ import annotations

import re

import pytest

from memtrace_otel import semconv
from memtrace_otel.capture import origins, read_config, use_config
from memtrace_otel.graph import VersionKey
from tests.conftest import Recording
from tests.integration.everos.conftest import inputs, outputs, recorded
from tests.integration.everos.host import Memory

pytestmark = pytest.mark.usefixtures("instrumented")


async def test_the_index_operation_is_in_the_trace_of_the_write(ann: Memory, recording: Recording) -> None:
    await ann.tell("I live in Paris.")
    seen = recorded(recording)
    episodes = next(span for span in seen.all("cascade") if inputs(span, kind="memory:ep_"))
    (entry,) = episodes.inputs
    writer = seen.by_origin(entry.origin)
    assert writer.name == "create_memory"
    assert (episodes.trace_id, episodes.parent_id) == (writer.trace_id, writer.span_id)
    assert [link.span_id for link in episodes.links] == [writer.span_id]
    assert entry.digest == outputs(writer)[0].digest
    assert episodes.scope == writer.scope


async def test_an_entry_edited_by_hand_is_a_new_version(ann: Memory, recording: Recording, content_on: None) -> None:
    await ann.tell("I live in Paris.")
    (file,) = ann.files("episodes")
    file.write_text(file.read_text().replace("I live in Paris.", "I live in Lyon."))
    await ann.everos.settled()
    await ann.search("Where does Ann live?")
    seen = recorded(recording)
    edit = next(span for span in seen.all("cascade") if outputs(span))
    created = next(span for span in seen.named("create_memory") if span.outputs[0].ref.startswith("memory:ep_"))
    (previous,), (edited,) = inputs(edit, "previous"), outputs(edit)
    assert (previous.ref, previous.origin) == (edited.ref, created.origin)
    assert edited.action == "UPDATE"
    assert "Lyon" in edited.content
    hit = inputs(seen.named("search_memory")[0], "hit")[0]
    assert (hit.origin, hit.digest) == (edit.origin, edited.digest)


async def test_an_entry_removed_by_hand_has_a_tombstone(ann: Memory, recording: Recording) -> None:
    await ann.tell("I live in Paris.")
    await ann.tell("TOPIC I like tea.")
    (file,) = ann.files("episodes")
    first = re.compile(r"<!-- entry:(\w+) -->.*?<!-- /entry:\1 -->\n?", re.DOTALL)
    file.write_text(first.sub("", file.read_text(), count=1))
    await ann.everos.settled()
    seen = recorded(recording)
    (gone,) = seen.named("delete_memory")
    created = seen.named("create_memory")[0]
    (previous,), (tombstone,) = inputs(gone, "previous"), outputs(gone)
    assert (previous.origin, tombstone.action) == (created.origin, "DELETE")
    assert tombstone.ref == created.outputs[0].ref
    assert seen.graph.is_tombstone(VersionKey(tombstone.ref, gone.origin))


async def test_the_entries_of_a_deleted_file_have_tombstones(ann: Memory, recording: Recording) -> None:
    await ann.tell("I live in Paris.", "> Nice.")
    (file,) = ann.files(".atomic_facts")
    file.unlink()
    await ann.everos.settled()
    (gone,) = recorded(recording).named("delete_memory")
    assert [out.ref.startswith("memory:af_") for out in gone.outputs] == [True, True]
    assert all(v.origin for v in inputs(gone, "previous"))


async def test_origins_in_records_are_found_after_a_restart(
    ann: Memory, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMTRACE_RECORD_ORIGIN", "true")
    use_config(read_config())
    await ann.add("I live in Paris.")
    await ann.flush()
    await ann.everos.settled()
    (file,) = ann.files("episodes")
    writer = next(
        span for span in recorded(recording).named("create_memory") if span.outputs[0].ref.startswith("memory:ep_")
    )
    assert f"**{semconv.RECORD_ORIGIN_KEY}**: {writer.origin}" in file.read_text()
    origins().forget()  # as after a restart
    file.write_text(file.read_text().replace("Paris", "Lyon"))
    await ann.everos.settled()
    edit = next(span for span in recorded(recording).all("cascade") if outputs(span))
    assert [v.origin for v in inputs(edit, "previous")] == [writer.origin]
