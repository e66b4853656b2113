"""An assistant that remembers its user with Mem0, everything in one folder."""

import os
import tempfile

os.environ.setdefault("MEM0_TELEMETRY", "False")  # Mem0 reads it when it is imported

from mem0 import Memory
from openai import OpenAI

MODEL = os.environ.get("MODEL", "gpt-5-mini")
FOLDER = os.environ.get("ASSISTANT_FOLDER") or tempfile.mkdtemp(prefix="assistant-")
MEMORY = Memory.from_config(
    {
        "llm": {"provider": "openai", "config": {"model": MODEL}},
        "vector_store": {
            "provider": "qdrant",
            "config": {
                "path": f"{FOLDER}/qdrant",
                "on_disk": True,
                "collection_name": "assistant",
                "embedding_model_dims": int(os.environ.get("EMBEDDING_DIMENSIONS", "1536")),
            },
        },
        "history_db_path": f"{FOLDER}/history.db",
    }
)


def remember(user: str, text: str) -> None:
    """Let Mem0 take the facts from what a user said."""
    MEMORY.add([{"role": "user", "content": text}], user_id=user)


def answer(user: str, question: str) -> str:
    """Answer with what Mem0 finds about the user."""
    found = MEMORY.search(question, filters={"user_id": user}, top_k=3)["results"]
    memories = "\n".join(f"- {item['memory']}" for item in found)
    prompt = f"What you know about the user:\n{memories}\n\nAnswer briefly: {question}"
    reply = OpenAI().chat.completions.create(model=MODEL, messages=[{"role": "user", "content": prompt}])
    return reply.choices[0].message.content or ""


if __name__ == "__main__":
    remember("mia", "I moved to Lisbon last week. My flat has a view of the river.")
    remember("mia", "My sister Ana visits in May.")
    print(answer("mia", "In which city did I move into a flat?"))
