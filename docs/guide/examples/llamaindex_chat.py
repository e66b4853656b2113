"""A chat over a handful of notes: documents in an index, a chat memory that turns old messages into facts."""

import os

from llama_index.core import Document, Settings, VectorStoreIndex
from llama_index.core.chat_engine import ContextChatEngine
from llama_index.core.memory import FactExtractionMemoryBlock, Memory
from llama_index.core.node_parser import SentenceSplitter
from llama_index.embeddings.openai import OpenAIEmbedding
from llama_index.llms.openai_like import OpenAILike

URL = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
Settings.llm = OpenAILike(
    model=os.environ.get("MODEL", "gpt-5-mini"), api_base=URL, is_chat_model=True, context_window=16_000
)
Settings.embed_model = OpenAIEmbedding(model_name=os.environ.get("EMBEDDER", "text-embedding-3-small"), api_base=URL)

NOTES = {
    "travel": "Ana takes the night train to Lisbon on Friday. She comes back on Monday.",
    "kitchen": "The oven in the kitchen is broken until Thursday.",
}


def main() -> None:
    index = VectorStoreIndex.from_documents(
        [Document(text=text, doc_id=name) for name, text in NOTES.items()],
        transformations=[SentenceSplitter(chunk_size=64, chunk_overlap=0)],
    )
    memory = Memory.from_defaults(
        session_id="ana",
        token_limit=400,
        chat_history_token_ratio=0.05,  # twenty tokens of history; what is older goes into the block
        token_flush_size=10,
        memory_blocks=[FactExtractionMemoryBlock(name="facts", llm=Settings.llm)],
    )

    def ask(text: str) -> None:
        retriever = index.as_retriever(similarity_top_k=1)  # a retriever knows the notes of the time it was made
        print(ContextChatEngine.from_defaults(retriever, memory=memory).chat(text))

    ask("I am allergic to nuts. When does Ana leave for Lisbon?")
    index.update_ref_doc(Document(text="Ana takes the night train to Lisbon on Saturday.", doc_id="travel"))
    ask("Please check again: when does Ana leave for Lisbon?")
    ask("What must nobody put into my food?")


if __name__ == "__main__":
    main()
