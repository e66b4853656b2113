"""A diary that remembers, with EverOS inside the program: no server, everything in one folder."""

import asyncio
import os
import tempfile
from pathlib import Path

ROOT = Path(os.environ.setdefault("EVEROS_ROOT", tempfile.mkdtemp(prefix="diary-")))
(ROOT / "ome.toml").touch()  # what `everos init` writes: which background strategies are on
MODEL = os.environ.get("MODEL", "gpt-5-mini")
for section, model in (("LLM", MODEL), ("EMBEDDING", os.environ.get("EMBEDDER", "text-embedding-3-small"))):
    os.environ[f"EVEROS_{section}__MODEL"] = model
    os.environ[f"EVEROS_{section}__BASE_URL"] = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
    os.environ[f"EVEROS_{section}__API_KEY"] = os.environ["OPENAI_API_KEY"]

from everos.entrypoints.api.app import create_app  # noqa: E402  (EverOS reads the environment)
from everos.memory.search import SearchRequest  # noqa: E402
from everos.service import memorize, search  # noqa: E402
from openai import AsyncOpenAI  # noqa: E402

SAID = [
    "I moved to Lisbon last week. The flat has a view of the river.",
    "My sister Ana visits on the ninth of May.",
]


async def remember(session: str, texts: list[str]) -> None:
    """Give a conversation to EverOS and close it, so that it becomes an episode."""
    messages = [
        {
            "sender_id": "mia",
            "sender_name": "Mia",
            "role": "user",
            "timestamp": 1_777_000_000_000 + 60_000 * number,
            "content": text,
        }
        for number, text in enumerate(texts)
    ]
    await memorize({"session_id": session, "messages": messages})
    await memorize({"session_id": session, "messages": []}, is_final=True)


async def recall(question: str) -> list[str]:
    """What EverOS knows about it; what was just written is indexed within a second or two."""
    for _ in range(100):
        found = await search(SearchRequest(user_id="mia", query=question, top_k=3))
        if found.data.episodes:
            return [episode.episode for episode in found.data.episodes]
        await asyncio.sleep(0.1)
    return []


async def ask(question: str) -> str:
    memories = "\n".join(f"- {memory}" for memory in await recall(question))
    prompt = f"What you know about Mia:\n{memories}\n\nAnswer briefly: {question}"
    reply = await AsyncOpenAI().chat.completions.create(model=MODEL, messages=[{"role": "user", "content": prompt}])
    return reply.choices[0].message.content or ""


async def main() -> None:
    app = create_app()
    async with app.router.lifespan_context(app):  # the database, the index and the background work
        await remember("monday", SAID)
        print(await ask("Where does Mia live now?"))


if __name__ == "__main__":
    asyncio.run(main())
