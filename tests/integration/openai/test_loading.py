"""A chat under opentelemetry-instrument."""

from __future__ import annotations

import pytest

from tests.integration.loading import LoadingContract
from tests.integration.openai.conftest import ModelServer


class TestOpenAI(LoadingContract):
    entry_point = "memtrace_openai"
    operations = frozenset({("openai", "chat stub"), ("long_context", "memtrace.delete")})
    source = """
import openai

client = openai.OpenAI()
history = [{"role": "user", "content": "I live in Oslo."}]
for text in ("I am a baker.", "Where do I live?"):
    reply = client.chat.completions.create(model="stub", messages=history).choices[0].message
    said = {"role": "assistant", "content": reply.content}
    history = [history[-1], said, {"role": "user", "content": text}]
client.chat.completions.create(model="stub", messages=history)
print("done")
"""

    @pytest.fixture
    def url(self, server: ModelServer) -> str:
        server.echo = True
        return server.url
