"""Class families: methods are wrapped in every class that defines them, now or later."""

from __future__ import annotations

from typing import Any

from memtrace_otel.instrumentation.base import Patches
from memtrace_otel.instrumentation.steps import Call, Step
from tests.conftest import Recording


def family() -> type[Any]:
    class Base:
        subclasses: list[str] = []

        def __init_subclass__(cls, label: str = "", **kwargs: Any) -> None:
            super().__init_subclass__(**kwargs)
            Base.subclasses.append(label)

        def search(self) -> str:
            return "base"

    return Base


def covered(base: type[Any], recording: Recording) -> tuple[Patches, list[str]]:
    seen: list[str] = []

    def step(call: Call[Any]) -> Step:
        seen.append(type(call.instance).__name__)
        yield

    patches = Patches(recording.tracer, "test")
    patches.cover_family(base, {"search": step})
    return patches, seen


def test_classes_made_before_and_after_are_covered(recording: Recording) -> None:
    base = family()

    class Before(base, label="before"):
        def search(self) -> str:
            return "before"

    patches, seen = covered(base, recording)

    class After(Before, label="after"):
        def search(self) -> str:
            return super().search() + " after"

    class Inherits(After):
        pass

    assert [base().search(), Before().search(), Inherits().search()] == ["base", "before", "before after"]
    assert seen == ["Base", "Before", "Inherits", "Inherits"]
    assert base.subclasses == ["before", "after", ""]
    patches.remove()

    class Later(base, label="later"):
        def search(self) -> str:
            return "later"

    assert [Later().search(), Inherits().search()] == ["later", "before after"]
    assert len(seen) == 4
    assert base.subclasses[-1] == "later"


def test_removal_leaves_no_init_subclass_hook_on_a_base(recording: Recording) -> None:
    class Plain:
        def search(self) -> str:
            return "plain"

    patches, seen = covered(Plain, recording)

    class Derived(Plain):
        def search(self) -> str:
            return "derived"

    assert Derived().search() == "derived"
    assert seen == ["Derived"]
    patches.remove()
    assert "__init_subclass__" not in vars(Plain)
    assert vars(Derived)["search"](Derived()) == "derived"
    assert seen == ["Derived"]


def test_method_comparisons_of_the_library_still_hold(recording: Recording) -> None:
    class Base:
        def search(self) -> str:
            return "base"

        def overridden(self) -> bool:
            return type(self).search != Base.search

    covered(Base, recording)

    class Same(Base):
        pass

    class Other(Base):
        def search(self) -> str:
            return "other"

    assert [Same().overridden(), Other().overridden()] == [False, True]


def test_a_wrapper_restored_by_another_instrumentation_is_removed(recording: Recording) -> None:
    class Store:
        def search(self) -> str:
            return "found"

    def step(call: Call) -> Step:
        yield

    original = vars(Store)["search"]
    patches = Patches(recording.tracer, "toy")
    patches.wrap(Store, "search", step)
    Store.search = Store.search  # type: ignore[method-assign]  # wrapped by another, which looked it up on the class
    assert vars(Store)["search"] is not original
    patches.remove()
    assert vars(Store)["search"] is original
