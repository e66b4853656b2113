"""Names of objects without a name."""

from __future__ import annotations

import gc
import secrets
import threading

import pytest

from memtrace_otel.instrumentation.store_location import ObjectNames


class Store:
    pass


def test_a_name_lives_as_long_as_its_object() -> None:
    names, store = ObjectNames(), Store()
    name = names.name(store)
    assert (names.name(store), names.name(Store(), "given")) == (name, "given")
    assert names.name(Store()) != name
    assert names.name(4711) == ""
    del store
    gc.collect()
    assert not names._names  # pyright: ignore[reportPrivateUsage]


def test_a_finalizer_may_ask_for_a_name_during_a_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    names, asked, make_up = ObjectNames(), list[str](), secrets.token_hex

    class Session:
        def __del__(self) -> None:
            asked.append(names.name(Store(), "of the finalizer"))

    def token_hex(length: int) -> str:
        Session()  # is thrown away at once, amid the question
        return make_up(length)

    monkeypatch.setattr(secrets, "token_hex", token_hex)
    asking = threading.Thread(target=lambda: asked.append(names.name(Store())), daemon=True)
    asking.start()
    asking.join(10)
    assert not asking.is_alive()
    assert len(asked) == 2
    assert not names._names  # pyright: ignore[reportPrivateUsage]
