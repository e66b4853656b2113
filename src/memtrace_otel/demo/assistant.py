"""A small assistant with memory: Mem0 on an embedded Qdrant, any OpenAI-compatible model.

    assistant.py --home DIR chat --story FILE --day N      one day's conversations
    assistant.py --home DIR ask --questions FILE           answer questions from memory, have each answer judged

The model is reached through OPENAI_BASE_URL and OPENAI_API_KEY. The only telemetry here is a span around each turn.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from mem0 import Memory  # pyright: ignore[reportMissingTypeStubs]
from openai import OpenAI
from opentelemetry import trace

MODEL = "demo-model"
EMBEDDING_SIZE = 1024
SEEN_IN_CHAT = 8  # memories that a turn of conversation may see
SEEN_BY_QUESTION = 3

ANSWER = """You are a friendly assistant. Answer from what you remember about the user, in one sentence.

What you remember:
{memories}"""

MAINTAIN = """You keep the memory of an assistant tidy. Given the memories and the latest turn, decide which memories
the turn makes outdated. Reply in JSON:
{"operations": [{"action": "update", "id": "...", "text": "..."}, {"action": "delete", "id": "..."}]}
The list is empty when nothing is outdated."""

JUDGE = """You mark answers. Reply in JSON: {"label": "CORRECT" or "WRONG", "score": 0 to 1, "explanation": "..."}"""

tracer = trace.get_tracer("assistant")


class Assistant:
    """Answers from memory, remembers each turn and keeps older memories up to date."""

    def __init__(self, home: Path) -> None:
        model = {"model": MODEL}
        self.model = OpenAI()
        self.memory: Any = Memory.from_config(
            {
                "llm": {"provider": "openai", "config": model},
                "embedder": {"provider": "openai", "config": {**model, "embedding_dims": EMBEDDING_SIZE}},
                "vector_store": {
                    "provider": "qdrant",
                    "config": {
                        "path": str(home / "qdrant"),
                        "collection_name": "memories",
                        "embedding_model_dims": EMBEDDING_SIZE,
                        "on_disk": True,
                    },
                },
                "history_db_path": str(home / "history.db"),
            }
        )

    def chat(self, user: str, date: str, text: str) -> str:
        """Answer one turn of a conversation, remember it, then update or delete memories it makes outdated."""
        with tracer.start_as_current_span("invoke_agent assistant", attributes=_agent(user)):
            seen = self.recall(text, user, SEEN_IN_CHAT)
            message = {"role": "user", "content": f"[{date}] {text}"}
            reply = self.answer(message["content"], seen)
            self.memory.add([message, {"role": "assistant", "content": reply}], user_id=user, metadata={"said": date})
            self.maintain(message["content"], reply, seen)
            return reply

    def ask(self, user: str, question: str, expected: str) -> dict[str, Any]:
        """Answer a question from memory and have the answer marked."""
        with tracer.start_as_current_span("invoke_agent assistant", attributes=_agent(user)):
            given = self.answer(question, self.recall(question, user, SEEN_BY_QUESTION))
            prompt = f"Question: {question}\nExpected answer: {expected}\nGiven answer: {given}"
            return {"question": question, "expected": expected, "given": given, **self.complete_json(JUDGE, prompt)}

    def recall(self, query: str, user: str, limit: int) -> Sequence[dict[str, Any]]:
        """Return the memories of `user` closest to `query`."""
        return self.memory.search(query, filters={"user_id": user}, top_k=limit)["results"]

    def answer(self, text: str, memories: Sequence[dict[str, Any]]) -> str:
        """Return the model's answer to `text`, given memories."""
        listed = "\n".join(f"- {memory['memory']}" for memory in memories) or "(nothing yet)"
        return self.complete(ANSWER.format(memories=listed), text)

    def maintain(self, said: str, reply: str, memories: Sequence[dict[str, Any]]) -> None:
        """Let the model update or delete the memories it has seen."""
        if not memories:
            return
        listed = "\n".join(f"[{memory['id']}] {memory['memory']}" for memory in memories)
        turn = f"User: {said}\nAssistant: {reply}"
        wishes = self.complete_json(MAINTAIN, f"Memories:\n{listed}\n\nLatest turn:\n{turn}")
        known = {memory["id"] for memory in memories}
        for wish in wishes["operations"]:
            if wish["id"] not in known:
                continue
            if wish["action"] == "update":
                self.memory.update(wish["id"], text=wish["text"])
            elif wish["action"] == "delete":
                self.memory.delete(wish["id"])

    def complete(self, system: str, prompt: str, form: Literal["text", "json_object"] = "text") -> str:
        """Return the model's reply to one prompt."""
        reply = self.model.chat.completions.create(
            model=MODEL,
            messages=[{"role": "system", "content": system}, {"role": "user", "content": prompt}],
            response_format={"type": "json_object"} if form == "json_object" else {"type": "text"},
        )
        return reply.choices[0].message.content or ""

    def complete_json(self, system: str, prompt: str) -> dict[str, Any]:
        """Return the model's reply to one prompt as a JSON object."""
        return json.loads(self.complete(system, prompt, "json_object"))

    def close(self) -> None:
        """Give the store back, so that the next process can open it."""
        self.memory.vector_store.client.close()
        self.memory.close()


def _agent(user: str) -> dict[str, str]:
    return {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "assistant", "user.id": user}


def main() -> None:
    parser = argparse.ArgumentParser(description="An assistant with memory.")
    parser.add_argument("--home", type=Path, required=True, help="folder of the memory")
    commands = parser.add_subparsers(dest="command", required=True)
    chat = commands.add_parser("chat", help="hold the conversations of one day")
    chat.add_argument("--story", type=Path, required=True)
    chat.add_argument("--day", type=int, required=True)
    ask = commands.add_parser("ask", help="answer questions and print one JSON line for each")
    ask.add_argument("--questions", type=Path, required=True)
    options = parser.parse_args()

    assistant = Assistant(options.home)
    try:
        if options.command == "chat":
            for conversation in json.loads(options.story.read_text("utf-8")):
                if conversation["day"] == options.day:
                    for turn in conversation["turns"]:
                        assistant.chat(conversation["user"], conversation["date"], turn)
        else:
            for question in json.loads(options.questions.read_text("utf-8")):
                print(json.dumps(assistant.ask(**question), ensure_ascii=False), flush=True)
    finally:
        assistant.close()


if __name__ == "__main__":
    main()
