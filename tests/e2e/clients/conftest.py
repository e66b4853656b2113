"""A real server for real clients."""

from tests.integration.serve.conftest import start

__all__ = ["start"]
