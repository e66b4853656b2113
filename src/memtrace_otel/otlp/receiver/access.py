"""Who may send and read: anybody on this machine, elsewhere whoever knows the token."""

from __future__ import annotations

import hmac
import ipaddress
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Tell whether `host` can only be reached from this machine. A name other than `localhost` may be anything."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def is_own_name(host: str) -> bool:
    """Tell whether the header `host` has a loopback name: a foreign page whose name leads here would read what is
    answered."""
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False


def is_allowed(authorization: str, token: str) -> bool:
    """Tell whether the header `authorization` bears the token; '' as the token lets everybody in."""
    if not token:
        return True
    scheme, _, given = authorization.partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())
