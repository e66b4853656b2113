"""Failed answers of a real LlamaIndex are attributed to the operation that lost the fact."""

from __future__ import annotations

import pytest
from llama_index.core import Document

from memtrace_otel import feedback
from memtrace_otel.attribution import attribute_trace
from tests.conftest import Recording
from tests.integration.llamaindex.conftest import RagModel, graph_of, index_of

pytestmark = pytest.mark.usefixtures("instrumented", "content_on")

TRAIN = "Ana takes the night train to Lisbon on Friday."
SHOP = "When does the shop open? It opens when the owner wakes."


@pytest.mark.parametrize(
    ("fault", "question", "operation"),
    [
        ("retrieval", "When does the shop open, when does the owner wake, when does Ana take the train?", "retrieval"),
        ("response", "When does Ana take the night train to Lisbon?", "chat"),
        ("deletion", "When does Ana take the night train to Lisbon?", "delete_memory"),
    ],
)
def test_the_fault_is_named(fault: str, question: str, operation: str, recording: Recording, model: RagModel) -> None:
    index = index_of(TRAIN, SHOP)
    if fault == "deletion":
        index.update_ref_doc(Document(text="Ana takes the night train to Lisbon every week.", doc_id="d1"))
    model.script.append("I do not know." if fault != "response" else "On Monday.")
    with recording.tracer.start_as_current_span("turn"):
        index.as_query_engine(similarity_top_k=1).query(question)
        assert feedback("fail", expected="On Friday.", tracer=recording.tracer)
    (verdict,) = attribute_trace(graph_of(recording))
    assert (verdict.failure_type, verdict.operation) == (fault, operation)
    assert verdict.confidence >= 0.5
