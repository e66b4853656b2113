"""What else listens on the host of an OTLP receiver."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

_CONNECT_SECONDS = 0.5


def host_of(endpoint: str) -> str:
    """Return the host of an OTLP endpoint, a URL or `host:port`; localhost when it names none."""
    try:
        parts = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
        named = parts.hostname or urlsplit(f"//{parts.path.strip('/')}").hostname  # gRPC's dns:///host:port
    except ValueError:
        named = ""
    return named or "localhost"


def listens(host: str, port: int) -> bool:
    """Tell whether something accepts a connection there within half a second."""
    try:
        socket.create_connection((host, port), _CONNECT_SECONDS).close()
    except (OSError, UnicodeError):  # a name that is none
        return False
    return True
