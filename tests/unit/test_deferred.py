"""Things that are opened with their first use."""

from __future__ import annotations

import pytest

from vgpumgr.app.context import defer


class Thing:
    value = 3


def test_it_is_opened_once_and_with_the_first_use() -> None:
    opened: list[Thing] = []

    def open_() -> Thing:
        opened.append(Thing())
        return opened[-1]

    thing = defer(open_)
    assert not opened
    assert (thing.value, thing.value) == (3, 3)
    assert len(opened) == 1


def test_what_cannot_be_opened_is_tried_again() -> None:
    answers: list[object] = [OSError("not yet"), Thing()]

    def open_() -> Thing:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        assert isinstance(answer, Thing)
        return answer

    thing = defer(open_)
    with pytest.raises(OSError, match="not yet"):
        _ = thing.value
    assert thing.value == 3


def test_looking_for_special_methods_opens_nothing() -> None:
    def open_() -> Thing:
        raise AssertionError

    assert not hasattr(defer(open_), "__fspath__")
