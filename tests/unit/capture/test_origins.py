"""The table of origins: newest versions, deletions, bounds."""

from __future__ import annotations

from memtrace_otel.capture import configure, origins
from memtrace_otel.capture.origins import next_version


def test_number_of_entries_follows_the_setting() -> None:
    table = origins()
    for n in range(100):
        table.wrote("s", f"memory:{n}", f"origin {n}")
    assert len(table) == 100
    try:
        configure(origin_entries=10)
        table.wrote("s", "memory:100", "origin 100")
        assert len(table) == 10
        assert table.find("s", "memory:91") == "origin 91"
        assert table.find("s", "memory:90") == ""
    finally:
        configure(origin_entries=None)


def test_newest_version_is_the_last_written_one() -> None:
    table = origins()
    slow = next_version("slow")
    table.wrote("s", "memory:1", "quick")
    table.publish({("s", "memory:1"): slow})
    assert table.find("s", "memory:1") == "quick"
    assert len(table) == 1


def test_record_that_is_read_after_its_deletion_has_an_unknown_origin() -> None:
    table = origins()
    table.wrote("s", "memory:1", "one")
    table.wrote("s", "memory:1", "deletion", deleted=True)
    assert table.find("s", "memory:1", living=True) == ""
    assert table.find("s", "memory:1") == "deletion"


def test_verbatim_record_with_another_text_has_an_unknown_origin() -> None:
    table, key = origins(), ("s", "memory:1")
    table.publish({key: next_version("one", text="Lisbon")})
    found = [table.newest(key, None, True, text=text, verbatim=True) for text in ("Lisbon", "Porto")]
    assert found == ["one", ""]
