"""Reviews: blind, undone, adjudicated, exported, imported, published."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from memtrace_otel import semconv
from memtrace_otel.cli import main
from memtrace_otel.model import Label, Review, Status
from memtrace_otel.pipeline.diagnose import diagnose, record
from memtrace_otel.semconv import EVALUATION_EVENT
from memtrace_otel.web.agreement import agreement, cohen_kappa
from memtrace_otel.web.app import Pages
from memtrace_otel.web.exchange import ExchangeError, export_reviews, import_reviews, verdict_label
from memtrace_otel.web.reviewing import Reviewing, agreed
from memtrace_otel.web.store import Filter, PageStore
from tests.unit.report.stories import ALL, Story
from tests.unit.web.conftest import HOST, SAME_SITE, filled, told

REASON = "Accept <kbd>Enter</kbd>"
"""Shown with a verdict."""


def person(store: PageStore, name: str, mode: str = "blind") -> TestClient:
    cookies = {"memtrace_annotator": name, "memtrace_mode": mode}
    return TestClient(Pages(store, {}).app(), HOST, headers=SAME_SITE, cookies=cookies, follow_redirects=False)


def judged(store: PageStore) -> str:
    """An answer with a verdict and a decisive operation."""
    return next(item.answer for item in store.queue() if item.failure_type == "deletion")


def review(answer: str, annotator: str, label: str, **more: object) -> Review:
    return Review(answer, annotator, label, **more)  # type: ignore[arg-type]


def test_the_queue_mixes_failing_and_healthy_answers_in_one_order(store: PageStore) -> None:
    queue = store.queue()
    assert sum(bool(item.failure_type) for item in queue) == len(ALL)
    assert any(not item.failure_type for item in queue)
    assert queue == sorted(queue, key=lambda item: item.answer[33:])


def test_the_verdict_is_shown_after_the_first_choice_only(store: PageStore) -> None:
    ada, answer = person(store, "ada"), judged(store)
    assert REASON not in ada.get(f"/review/{answer}").text
    ada.post(f"/review/{answer}", data={"label": "update", "action": "choose", "shown": "no"})
    assert REASON in ada.get(f"/review/{answer}").text  # a reload, too
    assert REASON not in person(store, "bob").get(f"/review/{answer}").text
    assert REASON in person(store, "eve", "assisted").get(f"/review/{answer}").text
    assert store.reviews() == []  # nothing is finished


@pytest.mark.parametrize(
    ("first", "last", "mode", "blind"),
    [
        ("update", "update", "blind", True),
        ("update", "deletion", "blind", False),
        ("", "deletion", "blind", True),
        ("", "deletion", "assisted", False),
    ],
)
def test_a_review_is_blind_when_its_label_was_chosen_before(
    store: PageStore, first: str, last: str, mode: str, blind: bool
) -> None:
    ada, answer = person(store, "ada", mode), judged(store)
    if first:
        ada.post(f"/review/{answer}", data={"label": first, "action": "choose", "shown": "no"})
    shown = "yes" if first or mode == "assisted" else "no"
    saved = ada.post(f"/review/{answer}", data={"label": last, "action": "save", "shown": shown})
    assert saved.headers["location"] == f"/review/next?after={answer}"
    (made,) = store.reviews()
    assert (made.label, made.blind, made.seen_type, made.annotator) == (last, blind, "deletion", "ada")


@pytest.mark.parametrize("seen", ["assisted", "final"])
def test_a_review_is_not_blind_after_a_page_showed_the_verdict(store: PageStore, seen: str) -> None:
    ada, answer = person(store, "ada"), judged(store)
    if seen == "final":
        ada.get(f"/review/{answer}?status=final")
    else:
        ada.get(f"/review/{answer}", headers={"cookie": "memtrace_annotator=ada; memtrace_mode=assisted"})
    ada.post(f"/review/{answer}", data={"label": "deletion", "action": "save", "shown": "no"})
    assert [one.blind for one in store.reviews()] == [False]


def test_undo_gives_the_last_review_back(store: PageStore) -> None:
    ada, answer = person(store, "ada"), judged(store)
    ada.post(f"/review/{answer}", data={"label": "healthy", "action": "save"})
    assert ada.post("/review/undo").headers["location"] == f"/review/{answer}"
    assert store.reviews() == []
    assert "checked><kbd>h</kbd>" in ada.get(f"/review/{answer}").text
    assert ada.post("/review/undo").headers["location"] == "/review"


def test_undo_takes_back_an_adjudication_before_older_reviews(store: PageStore) -> None:
    ada, (first, second, *_) = person(store, "ada"), [item.answer for item in store.queue()]
    ada.post(f"/review/{first}", data={"label": "healthy", "action": "save"})
    ada.post(f"/review/{second}?status=final", data={"label": "update", "action": "save"})
    assert ada.post("/review/undo").headers["location"] == f"/review/{second}?status=final"
    assert [one.answer for one in store.reviews()] == [first]


@pytest.mark.parametrize(
    "wrong",
    [
        {"label": "nonsense"},
        {"label": ""},
        {"label": "update", "operation": f"{'1' * 32}-{'1' * 16}"},
        {"label": "update", "evidence": "x"},
        {"label": "update", "confidence": "4"},
    ],
)
def test_a_wrong_review_is_refused(store: PageStore, wrong: dict[str, str]) -> None:
    reply = person(store, "ada").post(f"/review/{judged(store)}", data=wrong | {"action": "save"})
    assert reply.status_code == 400
    assert store.reviews() == []


def test_every_answer_comes_once_for_each_annotator(store: PageStore) -> None:
    reviewing = Reviewing(store)
    for _ in store.queue():
        answer = reviewing.next_item("ada")
        store.save_reviews([review(answer, "ada", "healthy")])
    assert reviewing.next_item("ada") == ""
    assert reviewing.next_item("bob") == store.queue()[0].answer


def test_others_are_seen_in_an_adjudication_only(store: PageStore) -> None:
    answer = judged(store)
    store.save_reviews([review(answer, "bob", "update", note="mine"), review(answer, "eve", "deletion")])
    ada = person(store, "ada")
    assert "mine" not in ada.get(f"/review/{answer}").text + ada.get(f"/failure/{answer}").text
    (listed,) = re.findall(rf'/review/{answer}\?status=final">(.+?)</a>', ada.get("/review").text)
    assert html.unescape(listed) == json.loads(store.machine_verdict(answer).document)["question"]  # type: ignore[union-attr]
    assert "mine" in ada.get(f"/review/{answer}?status=final").text
    ada.post(f"/review/{answer}?status=final", data={"label": "deletion", "action": "save"})
    assert agreed(store.reviews())[answer].annotator == "ada"
    assert "?status=final" not in ada.get("/review").text


def test_kappa_and_alpha_are_those_of_published_examples() -> None:
    given = [("y", "y")] * 20 + [("y", "n")] * 5 + [("n", "y")] * 10 + [("n", "n")] * 15  # observed 0.7, expected 0.5
    assert cohen_kappa(given) == pytest.approx(0.4)
    coders = ("*****34121133*3", "1*213343*******", "**21344*21133*4")
    names = dict(zip("1234", ("extraction", "update", "deletion", "retrieval"), strict=True))
    reviews = [
        review(f"{place:032x}-{1:016x}", f"coder {number}", names[value])
        for number, values in enumerate(coders)
        for place, value in enumerate(values, 1)
        if value in names
    ]
    assert agreement(reviews).alpha == pytest.approx(0.691, abs=0.001)  # nominal


def test_an_answer_counts_as_accepted_when_one_annotator_agrees() -> None:
    origin = f"{1:032x}-{1:016x}"
    found = agreement(
        [
            review(origin, "ada", "update", seen_type="update", blind=False),
            review(origin, "bob", "deletion", seen_type="update"),
            review(origin, "eve", "deletion", seen_type="update", status=Status.FINAL),
        ]
    )
    assert (found.compared, found.accepted) == (1, 1)
    assert (found.blind_compared, found.blind_accepted) == (1, 0)
    assert found.confusion == (("update", "deletion", 1), ("update", "update", 1))
    assert [(pair.answers, pair.agreed) for pair in found.pairs] == [(1, 0)]


@pytest.mark.parametrize("form", ["jsonl", "csv", "label-studio", "openinference", EVALUATION_EVENT])
def test_an_export_can_be_imported(store: PageStore, tmp_path: Path, form: str) -> None:
    answer = judged(store)
    operation = store.trace(answer[:32])[0].origin
    saved = [
        review(
            *(answer, "ada", "deletion"),
            operation=operation,
            second_label="update",
            second_operation=operation,
            evidence=(operation, answer),
            confidence=3,
            note="=1+1 ü\u2028\x85\nline",
            corrected="5 May",
            verdict="v",
            seen_type="update",
            blind=False,
            seconds=7.5,
        ),
        review(answer, "bob", str(Label.NOT_MEMORY), seen_type="deletion", verdict="w"),
    ]
    store.save_reviews(saved)
    file = tmp_path / "reviews"
    file.write_text(export_reviews(store, form))
    for one in saved:
        store.undo_review(one.annotator)
    assert import_reviews(store, file, "nobody") == 2
    assert [replace(one, created=0) for one in store.reviews()] == saved


def logs(**record: object) -> str:
    """A file of another tool, laid out over several lines: an evaluation without a trace context."""
    said = {semconv.EVALUATION_NAME: "cause", semconv.EVALUATION_LABEL: "update", semconv.GEN_AI_RESPONSE_ID: "r-1"}
    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in said.items()]
    one = {"eventName": EVALUATION_EVENT, "attributes": attributes} | record
    return json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [one]}]}]}, indent=1)


def test_an_evaluation_without_a_span_names_its_answer_by_the_response(tmp_path: Path) -> None:
    spans = told(lambda span: replace(span, attributes={semconv.GEN_AI_RESPONSE_ID: f"r-{span.span_id}"}))
    answer = next(span for span in spans if span.kind == "respond")
    with filled(tmp_path / "run.db", spans) as store:
        file = tmp_path / "reviews"
        file.write_text(logs().replace("r-1", f"r-{answer.span_id}"))
        assert import_reviews(store, file, "bob") == 1
        assert [(one.answer, one.annotator, one.label) for one in store.reviews()] == [(answer.origin, "bob", "update")]
        (group,) = json.loads(export_reviews(store, EVALUATION_EVENT))["resourceLogs"]
        (record,) = group["scopeLogs"][0]["logRecords"]
        assert (record["traceId"], record["spanId"]) == (answer.trace_id, answer.span_id)
        assert {"key": semconv.GEN_AI_RESPONSE_ID, "value": {"stringValue": f"r-{answer.span_id}"}} in record[
            "attributes"
        ]
        assert group["resource"]["attributes"][0]["value"] == {"stringValue": answer.service}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (logs(), "record 1: no trace context, and no answer with the response id 'r-1'"),
        (logs(eventName="log"), f"record 1: no event {EVALUATION_EVENT}"),
        (logs(traceId="1" * 32, spanId="1" * 16), "the database has no operation"),
        (
            logs(traceId="1" * 32, spanId="1" * 16).replace('"update"', '"fail"'),
            "record 1: the label must be one of extraction, ",
        ),
        (logs()[:-2], "Expecting"),
        ('{"resourceLogs": 5}', "not a valid OTLP logs request"),
        ('{"resourceLogs": []} 5', "a JSON int in the place of a logs request"),
    ],
)
def test_a_wrong_file_of_evaluations_names_place_and_reason(
    store: PageStore, tmp_path: Path, text: str, reason: str
) -> None:
    file = tmp_path / "reviews"
    file.write_text(text)
    with pytest.raises(ExchangeError, match=re.escape(reason)):
        import_reviews(store, file, "nobody")
    assert store.reviews() == []


def test_an_import_keeps_the_members_that_its_form_does_not_hold(store: PageStore, tmp_path: Path) -> None:
    answer = judged(store)
    saved = review(answer, "ada", "deletion", evidence=(answer,), confidence=3, second_label="update", blind=False)
    store.save_reviews([saved])
    file = tmp_path / "reviews"
    file.write_text(export_reviews(store, "memtracebench"))
    assert import_reviews(store, file, "nobody") == 1
    assert [replace(one, created=0) for one in store.reviews()] == [saved]


@pytest.mark.parametrize(("cell", "blind"), [("TRUE", True), ("false", False), ("", True)])
def test_a_table_without_names_is_imported(store: PageStore, tmp_path: Path, cell: str, blind: bool) -> None:
    answer = judged(store)
    file = tmp_path / "reviews"
    file.write_text(f"answer,label,blind\n{answer},update,{cell}\n")
    import_reviews(store, file, "gold")
    (made,) = store.reviews()
    assert (made.annotator, made.blind, made.seen_type) == ("gold", blind, "deletion")


def test_a_review_of_evidence_that_is_not_stored_is_refused(store: PageStore, tmp_path: Path) -> None:
    file = tmp_path / "reviews"
    file.write_text(json.dumps(review(judged(store), "ada", "update", evidence=(f"{2:032x}-{1:016x}",)).json()))
    with pytest.raises(ExchangeError, match="no operation"):
        import_reviews(store, file, "nobody")
    assert store.reviews() == []


def test_other_tools_get_what_they_read(store: PageStore) -> None:
    answer = judged(store)
    store.save_reviews([review(answer, "ada", "deletion", note="seen")])
    (annotation,) = json.loads(export_reviews(store, "memtracebench"))
    assert (annotation["query_id"], annotation["final_error_type"]) == (answer, "DeletionError")
    assert annotation["reason"] == "seen"
    assert json.loads(export_reviews(store, "openinference"))["span_id"] == answer[33:]
    tasks = json.loads(export_reviews(store, "label-studio"))
    assert len(tasks) == len(store.queue())
    assert sum(bool(task["predictions"]) for task in tasks) == len(ALL)


@pytest.mark.parametrize(
    "text",
    [
        '{"answer": "x", "annotator": "a", "label": "update"}\n',
        json.dumps(Review(f"{1:032x}-{1:016x}", "a", "update", operation=f"{2:032x}-{1:016x}").json()),
        json.dumps(Review(f"{1:032x}-{1:016x}", "a", "update").json()),
        "[1]",
        '[{"annotations": 5}]',
        '[{"final_error_type": "OtherError", "query_id": "q"}]',
        '[{"annotations": [{"result": [{"from_name": "type", "value": 5}]}]}]',
        "answer,label\nx,y\n",
        "one line\n",
        "[]",
        "\udcff",
    ],
)
def test_a_wrong_file_changes_nothing(store: PageStore, tmp_path: Path, text: str) -> None:
    good = json.dumps(review(judged(store), "ada", "update").json())
    file = tmp_path / "reviews"
    file.write_text(f"{good}\n{text}" if text.startswith("{") else text, errors="surrogateescape")
    with pytest.raises(ExchangeError):
        import_reviews(store, file, "nobody")
    assert store.reviews() == []


def test_a_published_review_takes_precedence(store: PageStore) -> None:
    answer = judged(store)
    operation = next(span for span in store.trace(answer[:32]) if span.kind == "retrieve").origin
    store.save_reviews([review(answer, "ada", "retrieval", operation=operation, confidence=3, note="seen")])
    assert Reviewing(store).publish().verdicts == 1
    assert Reviewing(store).publish().verdicts == 0
    for diagnosis in diagnose(store, store, [answer[:32]]):  # as `attribute` and a server do
        record(store, diagnosis)
    stored = store.verdict(answer)
    assert stored is not None
    document = json.loads(stored.document)
    assert (document["method"], document["failure_type"], document["confidence"]) == ("human", "retrieval", 0.95)
    markers = [s for s in store.trace(answer[:32]) if s.attributes.get("memtrace.attribution.method") == "human"]
    assert [m.attributes["memtrace.attribution.replaces"] for m in markers] == [
        store.machine_verdict(answer).attribution_id
    ]  # type: ignore[union-attr]


@pytest.mark.parametrize("by_label", [True, False])
def test_a_difference_is_shown_and_not_published(store: PageStore, by_label: bool) -> None:
    answer = judged(store)
    one, other, *_ = [span.origin for span in store.trace(answer[:32])]
    label = "deletion" if by_label else "update"
    store.save_reviews([review(answer, "ada", "update", operation=one), review(answer, "bob", label, operation=other)])
    assert Reviewing(store).publish().verdicts == 0
    assert Reviewing(store).board("ada").differing == ((answer, 2),)
    store.save_reviews([review(answer, "eve", "update", status=Status.FINAL)])
    assert Reviewing(store).publish().verdicts == 1


def test_another_operation_corrects_a_published_verdict(store: PageStore) -> None:
    answer = judged(store)
    for operation in [span.origin for span in store.trace(answer[:32])][:2]:
        store.save_reviews([review(answer, "ada", "retrieval", operation=operation)])
        assert Reviewing(store).board("ada").publishable == 1
        assert Reviewing(store).publish().verdicts == 1
        assert verdict_label(store.verdict(answer)) == ("retrieval", operation)
        assert Reviewing(store).board("ada").publishable == 0


@pytest.mark.parametrize("how", ["undo", "relabelled", "another annotator"])
def test_a_published_verdict_without_its_review_is_followed_by_that_of_the_rules(store: PageStore, how: str) -> None:
    answer = judged(store)
    before = store.machine_verdict(answer)
    store.save_reviews([review(answer, "ada", "retrieval", operation=store.trace(answer[:32])[0].origin)])
    assert Reviewing(store).publish().verdicts == 1
    if how == "undo":
        store.undo_review("ada")
    else:
        store.save_reviews([review(answer, "ada" if how == "relabelled" else "bob", str(Label.NOT_MEMORY))])
    assert Reviewing(store).board("ada").publishable == 1
    done = Reviewing(store).publish()
    assert (done.verdicts, done.withdrawn) == (0, 1)
    assert Reviewing(store).board("ada").publishable == 0
    for diagnosis in diagnose(store, store, [answer[:32]]):  # as `attribute` and a server do
        record(store, diagnosis)
    assert verdict_label(store.verdict(answer)) == verdict_label(before)
    named = [s.attributes for s in store.trace(answer[:32]) if s.name.startswith("memtrace.attribution ")]
    replaced = {attributes.get("memtrace.attribution.replaces") for attributes in named}
    (newest,) = [one for one in named if one["memtrace.attribution.id"] not in replaced]
    assert newest["memtrace.attribution.method"] == "rules"
    assert len(named) == 3


def test_forgetting_a_memory_forgets_its_reviews(store: PageStore) -> None:
    answer = judged(store)
    store.save_reviews([review(answer, "ada", "update", note="private")])
    store.forget("0000000000000002")
    assert store.reviews() == []


def test_doubts_of_an_audit_are_a_queue_of_their_own(tmp_path: Path) -> None:
    path, story = tmp_path / "run.db", Story()
    story.say("My flat is in Lisbon.", ["My flat is in Lisbon."])
    answer = story.ask("Where is my flat?", [], "In Lisbon.", "Oslo").origin
    with filled(path, story.spans):
        pass
    ran = CliRunner().invoke(main, ["audit", "--db", str(path), "--queue"])
    assert ran.exit_code == 0, ran.output
    with PageStore.open(path) as store:
        ada = person(store, "ada")
        assert "Where is my flat?" in ada.get("/audit").text
        assert not store.failures(Filter(reviewed="yes"))
        started = ada.get("/review/next?queue=audit").headers["location"]
        assert started == f"/review/{answer}?queue=audit"
        assert "contradicted: Oslo" not in ada.get(started).text
        ada.post(started, data={"label": "annotation", "action": "choose", "shown": "no"})
        assert "contradicted: Oslo" in ada.get(started).text
        saved = ada.post(started, data={"label": "annotation", "action": "save", "shown": "yes"})
        assert ada.get(saved.headers["location"]).headers["location"] == "/audit"  # the only doubt is reviewed
        assert not store.failures(Filter(reviewed="no"))
        assert [one.annotator for one in store.reviews()] == ["ada"]  # a proposal is no review
