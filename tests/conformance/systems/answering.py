"""Question answering and the judge, alike for every system (rows C1 to C4, C6)."""

from __future__ import annotations

from collections.abc import Sequence

from memtrace_otel import operation
from tests.conformance.conversation import Question
from tests.conformance.systems.tracing import ANN, Variable, root, step

TEMPLATE = root("prompt", "Answer from the memories.", "question-answering-prompt")
JUDGE = root("prompt", "Is the answer right?", "judge_prompt")


def answer(question: Question, query: Variable, found: Sequence[Variable]) -> Variable:
    """C3: the memories become a context, and the model answers from the context (the right answer, by the script)."""
    with operation(kind="other", system="reference", scope=ANN, purpose="question-answering") as whole:
        text = "\n".join(memory.text for memory in found) or "[NO RETRIEVED MEMORIES]"
        context = step("context", found, text, f"context:{whole.origin[33:]}", kind="assemble", role="context")
        with operation("chat", kind="respond", system="reference", scope=ANN, purpose="prediction") as reply:
            for given in (query, context, TEMPLATE):
                reply.read(given.ref, role=given.role, origin=given.origin, content=given.text)
            ref = f"answer:{reply.origin[33:]}"
            reply.wrote(ref, role="answer", content=question.gold)
    return Variable(question.gold, ref, reply.origin, "answer")


def judge(question: Question, query: Variable, prediction: Variable) -> Variable:
    """C4: the model judges the answer; the reply gives the score."""
    gold = Variable(question.gold, f"expected:{question.id}", role="expected")
    with operation(kind="judge", system="reference", scope=ANN, purpose="llm-judge") as op:
        op.set("gen_ai.evaluation.name", "llm-judge")
        op.set("gen_ai.evaluation.score.label", "correct")
        for given in (prediction, gold):
            op.read(given.ref, role=given.role, origin=given.origin, content=given.text)
        reply = step("judge_response", (query, gold, JUDGE, prediction), '{"label": "CORRECT"}')
        return step("judge_score", (reply,), "1.0")
