"""A library to wrap, importable by other processes; every call says who made it."""

from __future__ import annotations


class Notes:
    """Notes with one method of each kind."""

    def __init__(self, owner: str = "Ann") -> None:
        self.owner = owner

    def search(self, query: str) -> str:
        """Plain."""
        return f"{self.owner}: {query}"

    async def asearch(self, query: str) -> str:
        """Coroutine."""
        return f"{self.owner}: {query}"

    @classmethod
    def named(cls, query: str) -> str:
        """Of the class."""
        return f"{cls.__name__}: {query}"

    @staticmethod
    def split(query: str) -> str:
        """Of nobody."""
        return f"split: {query}"


class Shared(Notes):
    """Overrides one and inherits the others."""

    def search(self, query: str) -> str:
        """Calls the one it overrides."""
        return super().search(query).upper()


def embed(query: str) -> str:
    """A function."""
    return f"embed: {query}"


async def aembed(query: str) -> str:
    """A coroutine function."""
    return f"embed: {query}"
