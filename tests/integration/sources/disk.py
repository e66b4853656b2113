"""What SQLite asks of the operating system: every write of this process to a database, its log and its index, numbered.

The library's own table of system calls is used (`xSetSystemCall`), so nothing in the program has to know of it. A hook
may refuse a write by raising OSError, as a disk that is full would.
"""

from __future__ import annotations

import ctypes
import sqlite3
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int64, c_size_t, c_ssize_t, c_void_p
from importlib import import_module
from typing import Any

Hook = Callable[[Callable[[], None]], None]
"""Called before a write happens, with a function that carries half of it out."""

_WRITE = CFUNCTYPE(c_ssize_t, c_int, c_void_p, c_size_t, use_errno=True)
_PWRITE = CFUNCTYPE(c_ssize_t, c_int, c_void_p, c_size_t, c_int64, use_errno=True)
_TRUNCATE = CFUNCTYPE(c_int, c_int, c_int64, use_errno=True)
_UNLINK = CFUNCTYPE(c_int, c_char_p, use_errno=True)
_CALLS: dict[str, Any] = {"write": _WRITE, "pwrite": _PWRITE, "pwrite64": _PWRITE, "ftruncate": _TRUNCATE}
_CALLS["unlink"] = _UNLINK
_SET = CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p)
_GET = CFUNCTYPE(c_void_p, c_void_p, c_char_p)
_kept: list[object] = []  # what SQLite points to


class _Vfs(ctypes.Structure):
    _fields_ = [
        *((name, c_int) for name in ("version", "file_size", "path_size")),
        *((name, c_void_p) for name in ("next", "name", "data", "open", "delete", "access", "full_path")),
        *((name, c_void_p) for name in ("dl_open", "dl_error", "dl_sym", "dl_close", "randomness", "sleep", "time")),
        *((name, c_void_p) for name in ("last_error", "time_int64", "set_call", "get_call")),
    ]


def before_each_write(hook: Hook) -> None:
    """Call `hook` before every write that SQLite makes in this process from now on."""
    module = import_module("_sqlite3")
    library = ctypes.CDLL(getattr(module, "__file__", None))
    sqlite3.connect(":memory:").close()  # so that the library is ready
    library.sqlite3_vfs_find.restype = POINTER(_Vfs)
    vfs = library.sqlite3_vfs_find(None)
    set_call, get_call = _SET(vfs.contents.set_call), _GET(vfs.contents.get_call)
    for name, type in _CALLS.items():
        address = get_call(ctypes.cast(vfs, c_void_p), name.encode())
        if address:
            wrapper = type(_wrapped(type(address), hook))
            _kept.append(wrapper)
            assert set_call(ctypes.cast(vfs, c_void_p), name.encode(), ctypes.cast(wrapper, c_void_p)) == 0


def _wrapped(call: Callable[..., int], hook: Hook) -> Callable[..., int]:
    def wrapper(*arguments: Any) -> int:
        def half() -> None:
            if len(arguments) > 2:  # of a truncation there is no half
                call(*arguments[:2], arguments[2] // 2, *arguments[3:])

        try:
            hook(half)
        except OSError as refused:
            ctypes.set_errno(refused.errno or 0)
            return -1
        return call(*arguments)

    return wrapper
