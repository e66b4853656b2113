"""A wrapped function that is pickled, copied and referred to as the function itself would be.

wrapt's own proxies refuse all three, so that a program which hands `store.search` to a process pool would fail only
while it is observed. What goes into a pickle is the standard library's and the program's: the process that reads it
needs neither this package nor the same instrumentation, and gets what lies under the name there.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from copy import copy, deepcopy
from pickle import PicklingError
from pkgutil import resolve_name
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, SupportsIndex, cast

import wrapt

if TYPE_CHECKING:
    _Kind = type
else:
    _Kind = type(wrapt.BoundFunctionWrapper)  # one of wrapt's own where that is not compiled
_Bound: Any = wrapt.BoundFunctionWrapper
_Function: Any = wrapt.FunctionWrapper


class _Binding(_Kind):
    def __call__(cls, function: Any, instance: Any) -> Any:
        """Bind anew: how `weakref.WeakMethod` makes a method of its parts, by the type that the method had."""
        of_class = isinstance(instance, type)
        for owner in instance.__mro__ if of_class else type(instance).__mro__:
            own = cast("Mapping[str, Any]", vars(owner)).get(function.__name__)
            if isinstance(own, Wrapped) and inspect.unwrap(own, stop=lambda inner: inner is function) is function:
                bind = cast("Any", own).__get__
                return bind(None, instance) if of_class else bind(instance, type(instance))
        return MethodType(function, instance)  # it is not wrapped any more


class _BoundWrapped(_Bound, metaclass=_Binding):
    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return _reduced(self, protocol)

    def __copy__(self) -> Any:
        return self  # a method does not change

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if not isinstance(self.__wrapped__, MethodType):
            return self
        instance = deepcopy(self.__self__, memo)
        return self if instance is self.__self__ else self._self_parent.__get__(instance, type(instance))


class Wrapped(_Function):
    """`Wrapped(function, wrapper)`: a `wrapt.FunctionWrapper` that behaves like `function` in these respects, too."""

    # Every call of a method goes through this, so it goes past the Python function in `_Binding`.
    __bound_function_wrapper__ = type.__call__.__get__(_BoundWrapped)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return _reduced(self, protocol)

    def __copy__(self) -> Any:
        return self._around(copy(self.__wrapped__))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._around(deepcopy(self.__wrapped__, memo))

    def _around(self, copied: Any) -> Any:
        return self if copied is self.__wrapped__ else type(self)(copied, self._self_wrapper)


def _reduced(wrapper: Any, protocol: SupportsIndex) -> Any:
    """Functions by their name, everything else as what is wrapped; PicklingError where the name leads elsewhere."""
    original = wrapper.__wrapped__
    if not isinstance(original, FunctionType | BuiltinFunctionType):
        return original.__reduce_ex__(protocol)
    path = f"{original.__module__}:{original.__qualname__}"
    try:
        found = inspect.unwrap(resolve_name(path))
    except (ImportError, AttributeError, ValueError) as error:  # ValueError: `<locals>` is no name
        raise PicklingError(f"Can't pickle {original!r}: {error}") from None
    if found != inspect.unwrap(original):
        raise PicklingError(f"Can't pickle {original!r}: it's not the same object as {path.replace(':', '.')}")
    return resolve_name, (path,)
