"""`memtrace-otel graph`: each question on the command line gets the answer of the graph."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from memtrace_otel.cli import main
from memtrace_otel.graph import build_graph, load_scope
from memtrace_otel.graph.export import node_id
from memtrace_otel.otlp import encode_request
from memtrace_otel.semconv import Action, OpKind, Role
from memtrace_otel.sources import SqliteStore
from tests.unit.graph.conftest import ALICE, BOB, life_of_a_fact, origin_of, put, seen, span

PARIS, LISBON = origin_of(1, 3), origin_of(2, 3)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "story.db"
    with SqliteStore.open(path) as store:
        store.add_request(encode_request(life_of_a_fact()))
    return path


def run(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(main, ["graph", *map(str, arguments)], catch_exceptions=False)


def rows(*arguments: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*arguments, "--json").stdout.splitlines()]


def test_a_trace_is_exported_with_and_without_the_word(database: Path) -> None:
    trace_id = f"{4:032x}"
    assert run(trace_id, "--db", database).stdout == run("trace", trace_id, "--db", database).stdout
    assert json.loads(run("--db", database, trace_id).stdout)["schema"] == "memtrace-otel/graph"


def test_options_may_come_before_the_question(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = run("history", "memory:home", "--json", "--db", database).stdout
    assert asked
    assert run("--db", database, "--json", "history", "memory:home").stdout == asked
    assert run(f"--db={database}", "history", "--json", "memory:home").stdout == asked
    monkeypatch.chdir(database.rename(database.with_name("history")).parent)
    assert json.loads(run("--db", "history", f"{4:032x}").stdout)["schema"] == "memtrace-otel/graph"
    assert "trace id" in run("--json", "nothing").stderr + run("nothing").stderr
    assert "Usage" in run("--help").stdout
    assert "Usage" in run("--help", "history").stdout


def test_the_history_of_a_record_tells_writer_text_and_readers(database: Path) -> None:
    paris, lisbon = rows("history", "memory:home", "--db", database)
    assert (paris["content"], paris["operation"]) == ("Lives in Paris", PARIS)
    assert lisbon["id"] == f"memory:home|{LISBON}"
    assert lisbon["readers"] == [origin_of(4, 2)]
    assert "Lives in Lisbon" in run("history", "memory:home", "--db", database, "--scope", ALICE).stdout
    nothing = run("history", "memory:nobody", "--db", database)
    assert (nothing.exit_code, "memory:nobody" in nothing.stderr) == (1, True)


def test_what_a_bound_cut_off_is_told(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "only a part" not in run("state", ALICE, "--db", database).stderr
    monkeypatch.setitem(load_scope.__kwdefaults__ or {}, "max_spans", 1)
    assert "only a part" in run("state", ALICE, "--db", database).stderr


def test_the_history_of_equal_refs_in_two_memories_tells_them_apart(database: Path) -> None:
    bobs = span(9, 1, OpKind.CREATE, at=60, scope=BOB, outputs=[put("memory:home", "Lives in Rome", action=Action.ADD)])
    with SqliteStore.open(database) as store:
        store.add_request(encode_request([bobs]))
    assert [row["scope"] for row in rows("history", "memory:home", "--db", database)] == [ALICE, ALICE, BOB]
    table = run("history", "memory:home", "--db", database).stdout
    assert [table.count(text) for text in ("scope", ALICE, BOB)] == [1, 2, 1]
    assert "scope" not in run("history", "memory:home", "--db", database, "--scope", BOB).stdout


def test_the_state_at_a_time(database: Path) -> None:
    def held(*at: str) -> list[str]:
        return [row["content"] for row in rows("state", ALICE, *at, "--db", database)]

    assert held("--at", "1970-01-01T00:00:10Z") == ["Lives in Paris"]
    assert held("--at", "1970-01-01T01:00:10+01:00") == ["Lives in Paris"]
    assert held() == ["Lives in Lisbon", "Likes tea"]
    assert held("--at", "1795679302751350716") == held()  # nanoseconds; seconds would be taken for the beginning
    assert run("state", ALICE, "--at", "1795679302", "--db", database).exit_code == 2
    assert run("state", ALICE, "--at", "1970-01-01", "--db", database).exit_code == 1
    wrong = run("state", ALICE, "--at", "yesterday", "--db", database)
    assert (wrong.exit_code, "yesterday" in wrong.stderr) == (2, True)
    stranger = run("state", "f" * 16, "--db", database)
    assert (stranger.exit_code, ALICE in stranger.stderr) == (1, True)


@pytest.mark.parametrize(
    "question",
    [("state", ""), ("diff", "", "1970-01-01"), ("history", "memory:home", "--scope", ""), ("state", "\udcff")],
)
def test_what_no_scope_can_be_is_refused(database: Path, question: tuple[str, ...]) -> None:
    refused = run(*question, "--db", database)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert ("give a scope" if "" in question else "no UTF-8 text") in refused.stderr


def test_the_diff_between_two_times(database: Path) -> None:
    changed, learnt = rows("diff", ALICE, "1970-01-01T00:00:10", "1970-01-01T00:01:00", "--db", database)
    assert (changed["change"], changed["before"], changed["after"]) == ("changed", "Lives in Paris", "Lives in Lisbon")
    assert changed["operation"] == LISBON
    assert (learnt["change"], learnt["ref"]) == ("learnt", "memory:tea")
    assert "changed" in run("diff", ALICE, "1970-01-01T00:00:10", "--db", database).stdout
    assert run("diff", ALICE, "1970-01-02", "--db", database).exit_code == 1
    backwards = run("diff", ALICE, "1970-01-02", "1970-01-01", "--db", database)
    assert (backwards.exit_code, "SINCE is later than UNTIL" in backwards.stderr) == (2, True)


def test_tables_name_spans_where_there_is_room_and_cut_nothing_in_pipes(database: Path) -> None:
    text = "a long text " * 20 + "x" * 200
    bobs = span(9, 1, OpKind.CREATE, at=60, scope=BOB, outputs=[put("memory:home", text, action=Action.ADD)])
    with SqliteStore.open(database) as store:
        store.add_request(encode_request([bobs]))

    def printed(columns: int | None, *question: str) -> str:
        environment = {"COLUMNS": None if columns is None else str(columns)}
        return CliRunner(env=environment).invoke(main, ["graph", *question, "--db", str(database)]).stdout

    history = printed(None, "history", "memory:home")
    assert all(shown in history for shown in (ALICE, BOB, PARIS, LISBON, bobs.origin, text))
    assert len(history.splitlines()) == 1 + 2 + 3 + 1
    diff = ("diff", ALICE, "1970-01-01T00:00:10")
    assert LISBON in printed(None, *diff)
    assert LISBON in printed(200, *diff)
    assert LISBON[:30] not in printed(100, *diff)
    assert "Lives in Lisbon" in printed(100, *diff)
    assert origin_of(4, 2) in printed(None, "readers", f"memory:home|{LISBON}")


def test_slices_of_an_answer_of_a_message_and_of_a_record(database: Path) -> None:
    def refs(node: str) -> set[str]:
        return {v["ref"] for v in json.loads(run("slice", node, "--db", database).stdout)["versions"]}

    answered = refs(origin_of(5, 1))
    assert "query:q2" in answered
    assert "query:q1" not in answered
    assert "memory:home" not in answered
    assert refs("message:m3") >= {"memory:tea", f"answer:{1:016x}"}
    assert "message:m3" not in refs("message:m1")
    assert {"message:m1", "memory:home"} <= refs(f"memory:home|{PARIS}")
    assert run("slice", "memory:nobody", "--db", database).exit_code == 1


def test_a_slice_by_the_name_of_an_answer_is_that_by_its_span(database: Path) -> None:
    named = f"answer:{1:016x}|{origin_of(4, 1)}"
    assert run("slice", named, "--db", database).stdout == run("slice", origin_of(4, 1), "--db", database).stdout
    within = json.loads(run("slice", named, "--scope", ALICE, "--db", database).stdout)
    assert "query:q2" not in {version["ref"] for version in within["versions"]}
    refused = run("slice", origin_of(4, 1), "--scope", ALICE, "--db", database)
    assert (refused.exit_code, refused.stdout, "--scope" in refused.stderr) == (2, "", True)
    assert run("slice", origin_of(1, 2), "--scope", ALICE, "--db", database).exit_code == 0
    listed = span(9, 1, OpKind.RETRIEVE, at=70, inputs=[seen("answer:lost", origin_of(9, 9), role=Role.HIT)])
    with SqliteStore.open(database) as store:
        store.add_request(encode_request([listed]))
    assert listed.origin in run("slice", "answer:lost|" + origin_of(9, 9), "--db", database).stdout


def test_ways_from_a_message_to_a_record(database: Path) -> None:
    printed = run("paths", "message:m2", f"memory:home|{LISBON}", "--db", database)
    assert printed.stdout == "message:m2 -> [memtrace.extract] -> fact:lisbon -> [memtrace.update] -> memory:home\n"
    (found,) = rows("paths", "message:m2", f"memory:home|{LISBON}", "--db", database)
    assert found["complete"]
    assert found["paths"][0][-1] == f"memory:home|{LISBON}"
    assert run("paths", "message:m3", "memory:home", "--db", database).exit_code == 1


def test_names_of_spans_and_memories_reach_no_terminal_as_they_are(tmp_path: Path) -> None:
    ref, owners = "memory:\x1b[31m1", ("ann\x1b]0;x\x07\nscope b", "bob\u202e")
    writes = [
        span(n, 1, OpKind.CREATE, name="a\nb\x1b[2J", at=n, scope=owner, inputs=[put("message:m", "hi")],
             outputs=[put(ref, "hi", action=Action.ADD)])
        for n, owner in enumerate(owners, 1)
    ]  # fmt: skip
    path = tmp_path / "hostile.db"
    with SqliteStore.open(path) as store:
        store.add_request(encode_request(writes))
    way = run("paths", "message:m", f"{ref}|{origin_of(1, 1)}", "--scope", owners[0], "--db", path)
    assert way.stdout == "message:m -> [a b] -> memory:1\n"
    assert "the database has ann scope b, bob\n" in run("state", "nobody", "--db", path).stderr
    several = run("readers", ref, "--db", path).stderr
    assert f"memory:1|{origin_of(1, 1)} (of ann scope b), memory:1|{origin_of(2, 1)} (of bob)\n" in several
    stats = CliRunner().invoke(main, ["store", "stats", "--db", str(path)]).stdout.splitlines()
    assert [line.partition(":")[0] for line in stats[-2:]] == ["scope ann scope b", "scope bob"]


def test_what_a_node_came_from_and_went_to(database: Path) -> None:
    before = rows("ancestors", f"memory:home|{LISBON}", "--db", database)
    assert {row["what"] for row in before} >= {"message:m2", "[memtrace.extract]", "fact:lisbon", "[memtrace.update]"}
    assert "message:m3" not in {row["what"] for row in before}
    after = {row["what"] for row in rows("descendants", "message:m3", "--db", database)}
    assert after >= {"memory:tea", "[memtrace.create]", f"answer:{1:016x}"}
    assert "memory:home" not in after
    assert "memory:tea" in run("descendants", "message:m3", "--db", database).stdout
    assert run("ancestors", "message:m1", "--db", database).exit_code == 1
    assert run("ancestors", "message:nobody", "--db", database).exit_code == 1


def test_who_read_a_version(database: Path) -> None:
    found = rows("readers", f"memory:home|{LISBON}", "--db", database)
    assert [(row["id"], row["role"], row["rank"], row["score"]) for row in found] == [(origin_of(4, 2), "hit", 1, 0.9)]
    printed = run("readers", "memory:home", "--db", database).stdout
    assert "memtrace.retrieve" in printed
    assert "0.9" in printed
    assert run("readers", f"memory:home|{PARIS}", "--db", database).exit_code == 0  # the update, as previous
    assert run("readers", origin_of(4, 2), "--db", database).exit_code == 2


def test_a_name_that_several_memories_have_is_refused_without_a_scope(database: Path) -> None:
    said, ref = put("message:m1", "I live in Paris", role=Role.MESSAGE), "memory:home"
    bobs = span(9, 1, OpKind.CREATE, at=60, scope=BOB, inputs=[said], outputs=[put(ref, "Rome", action=Action.ADD)])
    asked = span(10, 1, OpKind.RESPOND, at=70, inputs=[said])
    with SqliteStore.open(database) as store:
        store.add_request(encode_request([bobs, asked]))
    answer = f"answer:{1:016x}|{origin_of(4, 1)}"
    roots = [f"message:m1|~{owner}" for owner in (ALICE, BOB, "")]
    written = [f"{ref}|{origin}" for origin in (LISBON, bobs.origin)]
    for question, names in (
        (("slice", "message:m1"), roots),
        (("paths", "message:m1", answer), roots),
        (("paths", answer, "message:m1"), roots),
        (("ancestors", ref), written),
        (("descendants", ref), written),
        (("readers", ref), written),
    ):
        refused = run(*question, "--db", database)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert "--scope" in refused.stderr
        for name, owner in zip(names, (ALICE, BOB, "no memory"), strict=False):
            assert f"{name} (of {owner})" in refused.stderr
    assert run("paths", roots[0], answer, "--db", database).exit_code == 0
    assert run("paths", "message:m1", answer, "--scope", ALICE, "--db", database).exit_code == 0
    (only,) = rows("descendants", roots[2], "--db", database)
    assert only["id"] == asked.origin
    assert [row["id"] for row in rows("readers", ref, "--scope", ALICE, "--db", database)] == [origin_of(4, 2)]
    assert run("readers", ref, "--scope", BOB, "--db", database).exit_code == 1
    assert [row["scope"] for row in rows("history", ref, "--db", database)] == [ALICE, ALICE, BOB]


def test_a_slice_of_an_answer_is_that_of_the_whole_graph(database: Path) -> None:
    with SqliteStore.open(database) as store:
        whole = build_graph(store.spans())
    answer = origin_of(4, 1)
    document = json.loads(run("slice", answer, "--db", database).stdout)
    ids = {node["id"] for node in (*document["operations"], *document["versions"])}
    assert ids == {node_id(node) for node in whole.slice_of_answer(answer)}
