"""Our frozen dataclasses against those of the standard library: the same declaration, the same behaviour."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from vgpumgr.model import frozen


def declare(decorator: Callable[..., Any], **settings: Any) -> Any:
    """A class with every kind of field that ours have."""

    @decorator(frozen=True, **settings)
    class Value:
        number: int
        text: str = "a"
        items: list[int] = dataclasses.field(default_factory=list)
        shown: bool = dataclasses.field(default=True, kw_only=True)

        def __post_init__(self) -> None:
            if self.number < 0:
                raise ValueError(self.number)

    return Value


PAIRS = [
    pytest.param({}, id="plain"),
    pytest.param({"slots": True}, id="slots"),
    pytest.param({"slots": True, "order": True}, id="order"),
    pytest.param({"kw_only": True}, id="keywords"),
]


@pytest.fixture(params=PAIRS)
def kinds(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """The class by ours and by the standard library's."""
    return declare(frozen.dataclass, **request.param), declare(
        dataclasses.dataclass, **request.param
    )


def test_constructor(kinds: tuple[Any, Any]) -> None:
    ours, theirs = kinds
    assert str(inspect.signature(ours)).count("=") == str(inspect.signature(theirs)).count("=")
    assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters)
    for wrong in ({}, {"number": 1, "other": 2}):
        for kind in kinds:
            with pytest.raises(TypeError, match=r"number|other"):
                kind(**wrong)
    with pytest.raises(ValueError, match="-1"):
        ours(number=-1)
    assert ours(number=1).items is not ours(number=1).items


def test_values(kinds: tuple[Any, Any]) -> None:
    for kind in kinds:
        value = kind(number=1, shown=False)
        assert repr(value).endswith("Value(number=1, text='a', items=[], shown=False)")
        assert value == kind(number=1, shown=False)
        assert value != kind(number=1)
        assert value != (1, "a", [], False)
        assert dataclasses.replace(value, text="b").text == "b"
        assert [field.name for field in dataclasses.fields(kind)] == [
            "number", "text", "items", "shown",
        ]  # fmt: skip
        assert copy.deepcopy(value) == value
        assert copy.copy(value).items is value.items
        for change in (
            lambda value=value: setattr(value, "text", "c"),
            lambda value=value: delattr(value, "text"),
        ):
            with pytest.raises(dataclasses.FrozenInstanceError, match="text"):
                change()
    assert kinds[0].__match_args__ == kinds[1].__match_args__


def test_hash() -> None:
    for decorator in (frozen.dataclass, dataclasses.dataclass):

        @decorator(frozen=True, slots=True)  # type: ignore[operator]
        class Pair:
            left: int
            right: str

        assert {Pair(1, "a"): "found"}[Pair(1, "a")] == "found"
        assert len({Pair(1, "a"), Pair(1, "b")}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(declare(frozen.dataclass)(number=1))


def test_order() -> None:
    kind = declare(frozen.dataclass, order=True)
    assert kind(1) < kind(2) <= kind(2) < kind(2, "b")
    assert sorted([kind(3), kind(1)]) == [kind(1), kind(3)]
    with pytest.raises(TypeError, match="not supported"):
        _ = declare(frozen.dataclass)(1) < declare(frozen.dataclass)(2)


@frozen.dataclass(frozen=True, slots=True)
class Base:
    """A value with one field."""

    first: int

    def __str__(self) -> str:
        return f"<{self.first}>"


@frozen.dataclass(frozen=True, slots=True)
class Derived(Base):
    """A value with a field more."""

    second: int = 2


@frozen.dataclass(frozen=True)
class Empty:
    """A value without fields."""


def test_derived() -> None:
    # the derived class is used first: the base keeps its own constructor
    derived = Derived(1)
    assert (derived, str(derived)) == (Derived(1, 2), "<1>")
    assert derived != Base(1)
    assert Base(1) == Base(1)
    assert repr(Base(1)) == "Base(first=1)"
    assert pickle.loads(pickle.dumps(derived)) == derived
    assert Empty() == Empty()
    assert hash(Empty()) == hash(Empty())


def test_own_methods_stay() -> None:
    @frozen.dataclass(frozen=True)
    class Folded:
        text: str

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Folded) and self.text.lower() == other.text.lower()

        def __hash__(self) -> int:
            return hash(self.text.lower())

        def __repr__(self) -> str:
            return "folded"

    assert Folded("A") == Folded("a")
    assert {Folded("A")} == {Folded("a")}
    assert repr(Folded("A")) == "folded"


def test_a_field_may_have_any_name() -> None:
    @frozen.dataclass(frozen=True)
    class Odd:
        missing: str | None = None
        set_value: int = 1
        items: list[int] = dataclasses.field(default_factory=list)

    assert (Odd().missing, Odd().set_value, Odd().items) == (None, 1, [])


def test_threads_make_the_first_values_at_once() -> None:
    # the first value of a class compiles its constructor; in a daemon two requests may be the first
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(200):

            @frozen.dataclass(frozen=True)
            class Fresh:
                number: int
                text: str = "text"

            with ThreadPoolExecutor(4) as pool:
                made = list(pool.map(Fresh, range(8)))
            assert made == [Fresh(number) for number in range(8)]
    finally:
        sys.setswitchinterval(before)
