"""The model server of the OpenAI tests."""

from tests.integration.openai.conftest import async_client, client, server

__all__ = ["async_client", "client", "server"]
