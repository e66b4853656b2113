"""Where the collections of a vector store lie: stores in two folders are two, whatever their collections are called."""

from __future__ import annotations

import json
import os
from typing import Any
from weakref import WeakKeyDictionary


class Places:
    """Folder or server, tenant and database by client. Asked once: a folder may be relative, and the program may move
    to another."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Any, str] = WeakKeyDictionary()

    def of(self, store: Any) -> str:
        """The place of a store as text, the same in every process; '' when its client does not say (not Chroma)."""
        client = getattr(store, "_client", None)
        if client is None or not callable(getattr(client, "get_settings", None)):
            return ""
        try:
            known = self._known.get(client)
            return self._known.setdefault(client, _place_of(client)) if known is None else known
        except TypeError:  # a client that is not hashable
            return _place_of(client)


def _place_of(client: Any) -> str:
    settings = client.get_settings()
    host, port = getattr(settings, "chroma_server_host", None), getattr(settings, "chroma_server_http_port", None)
    folder = getattr(settings, "persist_directory", None) if getattr(settings, "is_persistent", False) else None
    parts = [
        os.path.realpath(folder) if isinstance(folder, str) and not host else None,
        *(host, port, getattr(client, "tenant", None), getattr(client, "database", None)),
    ]
    return json.dumps([None if part is None else str(part) for part in parts])
