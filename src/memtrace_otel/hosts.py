"""Host names: that of an OTLP endpoint, names of this machine, and whether a port accepts connections."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

_CONNECT_SECONDS = 0.5


def host_of(endpoint: str) -> str:
    """Return the host of an OTLP endpoint, a URL or `host:port`; `localhost` for an endpoint without a host."""
    try:
        parts = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
        host = parts.hostname or urlsplit(f"//{parts.path.strip('/')}").hostname  # gRPC's dns:///host:port
    except ValueError:
        host = ""
    return host or "localhost"


def listens(host: str, port: int) -> bool:
    """Tell whether the port accepts a connection within half a second."""
    try:
        socket.create_connection((host, port), _CONNECT_SECONDS).close()
    except (OSError, UnicodeError):  # UnicodeError: not a host name
        return False
    return True


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches `host`. Any name but `localhost` may lead anywhere."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def is_own_name(host: str) -> bool:
    """Tell whether the header `host` holds a loopback name.

    A web page of another site can send requests here under its own name, and read the answers (DNS rebinding).
    """
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False
