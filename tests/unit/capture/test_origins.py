"""Which versions a process knows the origin of."""

from __future__ import annotations

from memtrace_otel.capture import configure, origins


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


def test_a_version_taken_back_leaves_the_one_before() -> None:
    table = origins()
    assert table.wrote("s", "memory:1", "one") is None
    before = table.wrote("s", "memory:1", "two")
    table.take_back("s", "memory:1", "two", before)
    assert table.find("s", "memory:1") == "one"
    table.take_back("s", "memory:1", "one", None)
    assert table.find("s", "memory:1") == ""
    assert len(table) == 0


def test_a_version_written_meanwhile_stays() -> None:
    table = origins()
    table.wrote("s", "memory:1", "failed")
    table.wrote("s", "memory:1", "later")
    table.take_back("s", "memory:1", "failed", None)
    assert table.find("s", "memory:1") == "later"


def test_a_record_that_lives_is_not_the_one_deleted_here() -> None:
    table = origins()
    table.wrote("s", "memory:1", "one")
    table.wrote("s", "memory:1", "deletion", deleted=True)
    assert table.find("s", "memory:1", living=True) == ""
    assert table.find("s", "memory:1") == "deletion"
