"""Which versions a process knows the origin of."""

from __future__ import annotations

from memtrace_otel.capture import configure, origins
from memtrace_otel.capture.origins import next_version


def test_the_bound_is_the_setting_of_the_moment() -> None:
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


def test_what_was_written_first_is_not_the_newest_though_it_is_published_last() -> None:
    table = origins()
    slow = next_version("slow")
    table.wrote("s", "memory:1", "quick")
    table.publish({("s", "memory:1"): slow})
    assert table.find("s", "memory:1") == "quick"
    assert len(table) == 1


def test_a_record_that_lives_is_not_the_one_deleted_here() -> None:
    table = origins()
    table.wrote("s", "memory:1", "one")
    table.wrote("s", "memory:1", "deletion", deleted=True)
    assert table.find("s", "memory:1", living=True) == ""
    assert table.find("s", "memory:1") == "deletion"


def test_what_failed_to_be_written_is_found_by_those_who_read_just_that() -> None:
    table, key = origins(), ("s", "memory:1")

    def read(text: str) -> str:
        return table.newest(key, None, True, text=text)

    table.publish({key: next_version("one", text="Lisbon")})
    table.doubt({key: next_version("failed", text="Porto")})
    assert [read("Porto"), read("Lisbon"), read("Faro")] == ["failed", "one", ""]
    assert table.find("s", "memory:1") == "one"
    table.doubt({key: next_version("again", text="Lisbon")})  # it need not have happened
    assert read("Lisbon") == "one"
    table.doubt({key: next_version("deletion", deleted=True, text="Lisbon")})
    assert read("Lisbon") == "one"
    table.publish({key: next_version("two", text="Braga")})
    assert [read("Porto"), read("Faro")] == ["two", "two"]  # a store may keep a text in words of its own
