"""A record that was stored and not shown to the model: which step lost the record, and what the reason says."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from memtrace_otel.attribution import attribute_trace
from memtrace_otel.graph import build_graph
from memtrace_otel.model import OperationSpan, Variable, Verdict
from memtrace_otel.semconv import (
    EVALUATION_LABEL,
    GEN_AI_RETRIEVAL_TOP_K,
    OP_PURPOSE,
    RETRIEVAL_FILTERS,
    RETRIEVAL_THRESHOLD,
    Action,
    FailureType,
    OpKind,
    Role,
)
from tests.unit.graph.conftest import ALICE, origin_of, put, seen, span

LOCKER, POOL = "The locker at the gym has number 218", "The pool at the gym opens at 6"
QUESTION = put("query:q", "Which number does my locker at the gym have?", role=Role.QUERY)
SYSTEM = put("prompt:p", "You are helpful.", role=Role.PROMPT)
RECORD, OTHER = "memory:locker", "memory:pool"
SEARCH, ANSWER = origin_of(2, 1), origin_of(2, 9)


def stored(*, flow: tuple[tuple[int, int], ...] | None = None) -> OperationSpan:
    """Two messages, and a record of each, in one call."""
    messages = [put("message:1", POOL, role=Role.MESSAGE), put("message:2", LOCKER, role=Role.MESSAGE)]
    records = [put(OTHER, POOL, action=Action.ADD), put(RECORD, LOCKER, action=Action.ADD)]
    return span(1, 1, OpKind.CREATE, scope=ALICE, inputs=messages, outputs=records, flow=flow)


def read(ref: str, role: str = Role.HIT, score: float | None = None) -> Variable:
    return seen(ref, origin_of(1, 1), role=role, score=score)


def searched(*inputs: Variable, context: str = "", **attributes: object) -> OperationSpan:
    given = {str(name).replace("__", "."): value for name, value in attributes.items()}
    outputs = [put("context:c", context, role=Role.CONTEXT)]
    return span(2, 1, OpKind.RETRIEVE, at=2, scope=ALICE, inputs=inputs, outputs=outputs, attributes=given)


def verdict(
    between: Sequence[OperationSpan],
    *given: Variable,
    write: OperationSpan | None = None,
    asked: Variable = QUESTION,
) -> Verdict:
    """The verdict on an answer that was given these inputs, without the locker's number."""
    answer = put("answer:a", "I do not know the number.")
    spans = [
        write or stored(),
        *between,
        span(2, 9, OpKind.RESPOND, at=8, scope=ALICE, inputs=[asked, *given], outputs=[answer]),
        span(2, 10, OpKind.JUDGE, at=9, attributes={EVALUATION_LABEL: "fail"},
             inputs=[seen("answer:a", ANSWER, role=Role.ANSWER), put("expected:e", "218", role=Role.EXPECTED)]),
    ]  # fmt: skip
    (one,) = attribute_trace(build_graph(spans))
    return one


def told(one: Verdict) -> tuple[str, str]:
    assert one.failure_type == FailureType.RETRIEVAL
    assert "only candidate" not in one.reason
    assert one.advice
    return f"{one.trace_id}-{one.span_id}", one.reason


CONTEXT = seen("context:c", SEARCH, role=Role.CONTEXT)
RERANKED = span(2, 2, OpKind.RERANK, parent=1, at=2, scope=ALICE, attributes={OP_PURPOSE: "CrossEncoder.rank"},
                inputs=[QUESTION, read(RECORD, Role.CANDIDATE), read(OTHER, Role.HIT)])  # fmt: skip
DROPPED_ALL = span(2, 2, OpKind.RERANK, at=3, scope=ALICE, attributes={OP_PURPOSE: "CrossEncoder.rank"},
                   inputs=[QUESTION, CONTEXT, read(RECORD, Role.CANDIDATE), read(OTHER, Role.CANDIDATE)])  # fmt: skip
ALONE = span(4, 2, OpKind.RERANK, at=3, scope=ALICE, attributes={OP_PURPOSE: "CrossEncoder.rank"},
             inputs=[CONTEXT, read(RECORD, Role.CANDIDATE), read(OTHER, Role.HIT)])  # fmt: skip
ASSEMBLED = span(2, 3, OpKind.ASSEMBLE, at=5, scope=ALICE, name="build_context",
                 inputs=[CONTEXT, read(OTHER)], outputs=[put("context:d", POOL, role=Role.CONTEXT)])  # fmt: skip


@pytest.mark.parametrize(
    ("between", "given", "operation", "words"),
    [
        pytest.param(
            [searched(QUESTION, read(RECORD), context=LOCKER)],
            [SYSTEM],
            ANSWER,
            "the prompt does not hold",
            id="prompt",
        ),
        pytest.param(
            [searched(QUESTION, read(RECORD), read(OTHER), context=f"{LOCKER}\n{POOL}")],
            [CONTEXT, seen(OTHER, origin_of(1, 1), role=Role.CONTEXT)],
            *(ANSWER, "hit 1 of the search, but did not reach the model"),
            id="budget",
        ),
        pytest.param(
            [searched(QUESTION, read(RECORD), read(OTHER), context=f"{LOCKER}\n{POOL}"), ASSEMBLED],
            [seen("context:d", origin_of(2, 3), role=Role.CONTEXT)],
            *(origin_of(2, 3), "build_context dropped"),
            id="assembler",
        ),
        pytest.param(
            [searched(QUESTION, read(OTHER), read(OTHER, Role.CANDIDATE), read(RECORD, Role.CANDIDATE)), RERANKED],
            [CONTEXT],
            *(origin_of(2, 2), "CrossEncoder.rank dropped"),
            id="reranker",
        ),
        pytest.param(
            [searched(QUESTION, read(RECORD), read(OTHER)), DROPPED_ALL],
            *([], origin_of(2, 2), "CrossEncoder.rank dropped"),
            id="reranker drops all, and the answer names no search",
        ),
        pytest.param(
            [searched(QUESTION, read(RECORD), read(OTHER), context=f"{LOCKER}\n{POOL}"), ALONE],
            [CONTEXT, seen(OTHER, origin_of(1, 1), role=Role.CONTEXT)],
            *(origin_of(4, 2), "CrossEncoder.rank dropped"),
            id="reranker in a trace of its own",
        ),
    ],
)
def test_the_step_that_lost_the_record_is_decisive(
    between: list[OperationSpan], given: list[Variable], operation: str, words: str
) -> None:
    found, reason = told(verdict(between, *given))
    assert (found, words in reason) == (operation, True), reason


def test_a_record_that_the_prompt_holds_in_another_order_was_shown() -> None:
    prompt = put("prompt:p", "Known: number 218 has the locker at the gym.", role=Role.PROMPT)
    assert verdict([searched(QUESTION, read(RECORD), context=LOCKER)], prompt).failure_type == FailureType.RESPONSE


def test_a_window_shows_a_part_of_a_record() -> None:
    whole = put("state:chat", f"{LOCKER}\n{POOL}", action=Action.ADD)
    write = span(
        1, 1, OpKind.UPDATE, scope=ALICE, inputs=[put("message:2", LOCKER, role=Role.MESSAGE)], outputs=[whole]
    )
    one = verdict([searched(read("state:chat"), context=POOL)], CONTEXT, write=write)
    operation, reason = told(one)
    assert operation == SEARCH
    assert f'only a part: "{POOL}"' in reason


@pytest.mark.parametrize(
    ("inputs", "attributes", "words"),
    [
        pytest.param([read(RECORD, Role.CANDIDATE, 0.05)], {RETRIEVAL_THRESHOLD: 0.1}, "below the threshold 0.1"),
        pytest.param([read(RECORD, Role.CANDIDATE, 0.8)], {GEN_AI_RETRIEVAL_TOP_K: 20}, "an expiry date"),
        pytest.param([read(RECORD, Role.CANDIDATE)], {RETRIEVAL_THRESHOLD: 0.8}, "the threshold 0.8 or a filter"),
        pytest.param(
            [read(OTHER), read(OTHER, Role.CANDIDATE), read(RECORD, Role.CANDIDATE)],
            *({GEN_AI_RETRIEVAL_TOP_K: 1}, "candidate 2 of 2 of the search, which returned one hit"),
        ),
        pytest.param([read(OTHER)], {GEN_AI_RETRIEVAL_TOP_K: 1}, "is not the one hit of the search with k = 1"),
        pytest.param([], {RETRIEVAL_FILTERS: ("user_id=1", "run_id=2")}, "which filtered by run_id"),
        pytest.param(
            [read(OTHER, Role.CANDIDATE, 0.08), read(RECORD, Role.CANDIDATE, 0.05)],
            *({RETRIEVAL_THRESHOLD: 0.1, GEN_AI_RETRIEVAL_TOP_K: 1}, "below 0.05 and raise k to 2 or more (now 1)"),
        ),
        pytest.param([read(OTHER)], {}, "is not the one hit of the search; k is not recorded. Raise k above 1"),
        pytest.param([], {}, "Check the filters and the index"),
        pytest.param([read(OTHER), read(OTHER)], {GEN_AI_RETRIEVAL_TOP_K: 2}, "Store each text once, or raise k"),
    ],
)
def test_a_verdict_says_why_a_search_missed(inputs: list[Variable], attributes: dict[str, object], words: str) -> None:
    found = verdict([searched(QUESTION, *inputs, **attributes)], CONTEXT)
    operation, reason = told(found)
    assert (operation, words in f"{reason} {found.advice}") == (SEARCH, True), (reason, found.advice)


@pytest.mark.parametrize("asked", [QUESTION, put("query:q", f"{POOL}\n\nWhich locker is mine?", role=Role.QUERY)])
def test_a_query_in_other_words_than_the_question_is_quoted(asked: Variable) -> None:
    query = put("query:other", "what time it opens", role=Role.QUERY)
    found = verdict([searched(query, read(OTHER))], CONTEXT, asked=asked)
    assert 'asked for "what time it opens"' in told(found)[1]


@pytest.mark.parametrize("flow", [None, ((0, 0), (1, 1))], ids=["one for all", "one for each"])
def test_a_batch_takes_from_each_text_what_its_flow_says(flow: tuple[tuple[int, int], ...] | None) -> None:
    found = verdict([searched(QUESTION, read(OTHER))], CONTEXT, write=stored(flow=flow))
    assert told(found)[0] == SEARCH
    lost = put(RECORD, "The locker at the gym has a number", action=Action.ADD)
    write = stored(flow=flow)
    vague = verdict([], write=span(1, 1, OpKind.CREATE, scope=ALICE, inputs=write.inputs, flow=flow,
                                   outputs=[*write.outputs[:1], lost]))  # fmt: skip
    assert vague.failure_type == FailureType.EXTRACTION
    assert ("opens at 6" in vague.reason) is (flow is None)


def test_a_long_text_is_quoted_around_the_decisive_words() -> None:
    long = f"{'Nothing of note happened. ' * 20}{LOCKER}.{' Nothing else did.' * 20}"
    write = span(1, 1, OpKind.CREATE, scope=ALICE, inputs=[put("message:2", long, role=Role.MESSAGE)],
                 outputs=[put(OTHER, "Nothing of note happened", action=Action.ADD)])  # fmt: skip
    found = verdict([], SYSTEM, write=write)
    assert found.failure_type == FailureType.EXTRACTION
    assert "has number 218" in found.reason
    assert len(found.reason) < 400


def test_a_record_that_shared_a_lost_summary_does_not_survive() -> None:
    lost = "The gym has lockers"
    told = [put("state:1", LOCKER, action=Action.ADD), put("state:2", POOL, action=Action.ADD)]
    write = span(1, 1, OpKind.INGEST, scope=ALICE, inputs=[put("message:2", LOCKER, role=Role.MESSAGE)], outputs=told)
    both = [put(ref, f"{LOCKER}. {POOL}", action=Action.UPDATE) for ref in ("state:1", "state:2")]
    first = span(3, 1, OpKind.CONSOLIDATE, at=1, scope=ALICE, outputs=both,
                 inputs=[seen(v.ref, origin_of(1, 1), role=Role.PREVIOUS) for v in told])  # fmt: skip
    second = span(4, 1, OpKind.CONSOLIDATE, at=2, scope=ALICE, outputs=[put("state:1", lost, action=Action.UPDATE)],
                  inputs=[seen("state:1", first.origin, role=Role.PREVIOUS)])  # fmt: skip
    history = seen("state:1", second.origin, role=Role.HISTORY, content=lost)
    found = verdict([first, second], SYSTEM, history, write=write)
    assert (found.failure_type, f"{found.trace_id}-{found.span_id}") == (FailureType.UPDATE, second.origin)


@pytest.mark.parametrize("linked", [True, False], ids=["a write from the call", "a write of its text"])
def test_the_model_that_called_a_tool_without_the_piece_extracted(linked: bool) -> None:
    asked = put("query:told", LOCKER, role=Role.QUERY)
    kept = "The locker is at the gym"
    call = span(1, 5, OpKind.RESPOND, at=0, inputs=[asked], name="chat",
                outputs=[put("completion:c", f'["add_memory", "{{\\"text\\": \\"{kept}\\"}}"]')])  # fmt: skip
    source = seen("completion:c", call.origin) if linked else put("message:2", kept, role=Role.MESSAGE)
    write = span(
        1, 1, OpKind.CREATE, at=1, scope=ALICE, inputs=[source], outputs=[put(RECORD, kept, action=Action.ADD)]
    )
    found = verdict([call, searched(QUESTION, read(RECORD), context=kept)], CONTEXT, write=write)
    assert (found.failure_type, found.operation) == (FailureType.EXTRACTION, "chat")
    assert "took from it only" in found.reason
    assert "description of the tool" in found.advice


@pytest.mark.parametrize("quoted", [True, False], ids=["summary", "reply"])
def test_a_summary_that_the_prompt_holds_in_place_of_a_message_lost_the_piece(quoted: bool) -> None:
    reply = "The user has a locker at the gym."
    call = span(3, 1, OpKind.RESPOND, at=1, inputs=[read(RECORD, Role.HISTORY)], outputs=[put("answer:s", reply)])
    text = f"Summary: {reply}" if quoted else reply
    kept = span(3, 2, OpKind.INGEST, at=1, scope=ALICE, inputs=[seen("answer:s", call.origin)],
                outputs=[put("state:s", text, action=Action.ADD)])  # fmt: skip
    given = seen("state:s", kept.origin, role=Role.HISTORY)
    found = verdict([call, kept, searched(QUESTION, read(RECORD), context=LOCKER)], SYSTEM, given)
    assert found.failure_type == (FailureType.UPDATE if quoted else FailureType.RETRIEVAL)
    assert (f'the summary "{reply}"' in found.reason) == quoted


@pytest.mark.parametrize(
    ("gap", "words"), [("unparsed", "could not be parsed"), ("unknown_record", "a record that does not exist")]
)
def test_a_decision_that_the_memory_dropped_is_told(gap: str, words: str) -> None:
    message = put("message:2", LOCKER, role=Role.MESSAGE)
    write = span(1, 1, OpKind.INGEST, scope=ALICE, inputs=[message])
    fact = put("fact:2", LOCKER)
    extract = span(1, 2, OpKind.EXTRACT, parent=1, scope=ALICE, inputs=[message], outputs=[fact])
    read_fact = seen("fact:2", extract.origin)
    decide = span(1, 3, OpKind.DECIDE, parent=1, scope=ALICE, inputs=[read_fact], incomplete=(gap,))
    found = verdict([extract, decide], SYSTEM, write=write)
    assert (found.failure_type, f"{found.trace_id}-{found.span_id}") == (FailureType.UPDATE, decide.origin)
    assert words in found.reason


def test_a_reply_that_could_not_be_parsed_is_quoted() -> None:
    message = put("message:2", LOCKER, role=Role.MESSAGE)
    write = span(1, 1, OpKind.INGEST, scope=ALICE, inputs=[message])
    raw = put("completion:c", f'[{{"fact": "{LOCKER}')
    extract = span(
        1, 2, OpKind.EXTRACT, parent=1, scope=ALICE, inputs=[message], outputs=[raw], incomplete=("unparsed",)
    )
    found = verdict([extract], SYSTEM, write=write)
    assert (found.failure_type, f"{found.trace_id}-{found.span_id}") == (FailureType.EXTRACTION, extract.origin)
    assert "could not parse the reply of its model" in found.reason
    assert found.reason.count("218") > 1


@pytest.mark.parametrize(
    ("read", "texts", "kind", "summarised"),
    [
        (2, ("A gym with a pool",), OpKind.CREATE, True),
        (2, ("Noted, enjoy it!", "A gym with a pool", "Fine."), OpKind.CREATE, True),
        (1, ("A gym with a pool",), OpKind.CONSOLIDATE, True),
        (1, ("Noted, enjoy the pool!",), OpKind.CREATE, False),
        (2, ("Noted, enjoy it!",), OpKind.CREATE, False),
        (0, ("A gym with a pool",), OpKind.CREATE, False),
    ],
    ids=["summary", "beside replies", "consolidated", "reply", "reply to both", "of another message"],
)
def test_a_message_that_a_summary_replaced_was_lost_by_the_summary(
    read: int, texts: tuple[str, ...], kind: OpKind, summarised: bool
) -> None:
    held = {"state:t/1": LOCKER, "state:t/2": POOL}
    told = [put(f"message:{n}", text, role=Role.MESSAGE) for n, text in enumerate(held.values())]
    kept = [put(ref, text, action=Action.ADD) for ref, text in held.items()]
    write = span(1, 1, OpKind.CREATE, scope=ALICE, inputs=told, outputs=kept, flow=((0, 0), (1, 1)))
    of_it = [seen(ref, write.origin, role=Role.HISTORY) for ref in held][:read] or [put("message:9", "The gym")]
    new = [put(f"state:t/{n}", text, action=Action.ADD) for n, text in enumerate(texts, 3)]
    made = span(3, 1, kind, at=1, scope=ALICE, inputs=of_it, outputs=new)
    gone = span(4, 1, OpKind.DELETE, at=1, scope=ALICE, outputs=[put(ref, "", action=Action.DELETE) for ref in held],
                inputs=[seen(ref, write.origin, role=Role.PREVIOUS) for ref in held])  # fmt: skip
    given = [seen(variable.ref, made.origin, role=Role.CONTEXT) for variable in new]
    shown = [seen(variable.ref, made.origin, role=Role.HIT) for variable in new]
    found = verdict([made, gone, searched(*shown)], *given, write=write)
    lost, operation = (FailureType.UPDATE, made) if summarised else (FailureType.DELETION, gone)
    assert (found.failure_type, f"{found.trace_id}-{found.span_id}") == (lost, operation.origin), found.reason
    assert ('The summary "A gym with a pool"' in found.reason) == summarised
