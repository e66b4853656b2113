from __future__ import annotations

import hashlib
import hmac

import pytest

from memtrace_otel.model import content_digest, is_origin, make_origin, make_ref, ref_kind, split_origin, split_ref


@pytest.mark.parametrize("id", ["plain", "with space", "a,b", "50%", "naïve ✓", "a:b", "tab\tnew\nline", "a|b", ""])
def test_refs_round_trip_and_hold_no_white_space_or_comma(id: str) -> None:
    ref = make_ref("memory", id)
    assert split_ref(ref) == ("memory", id)
    assert ref_kind(ref) == "memory"
    assert not any(c.isspace() or c in ",|" for c in ref)


def test_digests_are_the_contracts() -> None:
    assert content_digest("héllo") == hashlib.sha256("héllo".encode()).hexdigest()[:16]
    assert content_digest("x", "key") == hmac.new(b"key", b"x", hashlib.sha256).hexdigest()[:16]


def test_origins() -> None:
    origin = make_origin("a" * 32, "b" * 16)
    assert split_origin(origin) == ("a" * 32, "b" * 16)
    assert not is_origin("A" * 32 + "-" + "b" * 16)
    with pytest.raises(ValueError, match="not an origin"):
        split_origin("x-y")
