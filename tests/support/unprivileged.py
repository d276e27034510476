"""Running a part of a test as a user who may do nothing."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import pytest

NOBODY = 65534


def as_nobody(work: Callable[[], Any], groups: Sequence[int] = ()) -> Any:
    """What ``work`` returns, or raises, in a child process without privileges but those of ``groups``. Needs root;
    skips without.
    """
    if os.geteuid() != 0:
        pytest.skip("needs root: it becomes another user")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _work_and_exit(work, groups, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        answer = stream.read()
    os.waitpid(child, 0)
    result = pickle.loads(answer)
    if isinstance(result, BaseException):
        raise result
    return result


def _work_and_exit(work: Callable[[], Any], groups: Sequence[int], writer: int) -> None:
    try:
        os.setgroups(groups)
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        try:
            answer = pickle.dumps(work())
        except Exception as error:
            error.__cause__ = None
            answer = pickle.dumps(error)
        os.write(writer, answer)
    finally:
        os._exit(0)
