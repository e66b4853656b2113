"""Who may send: anybody on this machine, elsewhere whoever knows the token."""

from __future__ import annotations

import hmac
import ipaddress


def is_loopback(host: str) -> bool:
    """Tell whether `host` can only be reached from this machine. A name other than `localhost` may be anything."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def is_allowed(authorization: str, token: str) -> bool:
    """Tell whether the header `authorization` bears the token; '' as the token lets everybody in."""
    if not token:
        return True
    scheme, _, given = authorization.partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())
