"""Calls with a deadline: libvirt's own calls wait for ever when its daemon hangs."""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_Answer = tuple[bool, object]
#: threads that wait for the next call; starting one takes longer than most calls
_MAX_IDLE = 4


class LateCallError(Exception):
    """The call has not come back by its deadline; its thread is left alone."""


class _Worker:
    """A thread that makes one call after the other until it is given up."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[
            tuple[Callable[[], object], queue.SimpleQueue[_Answer]] | None
        ]
        self._calls = queue.SimpleQueue()
        threading.Thread(target=self._work, name="libvirt-call", daemon=True).start()

    def ask(self, call: Callable[[], object]) -> queue.SimpleQueue[_Answer]:
        """Begins a call; where its answer will be."""
        answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
        self._calls.put((call, answers))
        return answers

    def give_up(self) -> None:
        """No call follows: the thread ends when the last one has come back."""
        self._calls.put(None)

    def _work(self) -> None:
        while (asked := self._calls.get()) is not None:
            call, answers = asked
            try:
                answers.put((True, call()))
            except BaseException as error:
                answers.put((False, error))
            # until the next call, nothing of this one is kept
            del asked, call, answers


_idle: deque[_Worker] = deque()
# a process that was forked has none of the threads
os.register_at_fork(after_in_child=_idle.clear)


def run_with_deadline(call: Callable[[], T], timeout_s: float) -> T:
    """Runs ``call`` on a thread of its own and waits for it; raises LateCallError, or what the call
    raised.

    libvirt's binding releases the interpreter's lock while it waits. A late thread is a daemon
    thread: it ends with the process, and whether its call takes effect after all only observing
    tells.
    """
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
    try:
        done, result = worker.ask(call).get(timeout=timeout_s)
    except BaseException as error:
        worker.give_up()
        if isinstance(error, queue.Empty):
            raise LateCallError from None
        raise
    if len(_idle) < _MAX_IDLE:
        _idle.append(worker)
    else:
        worker.give_up()
    if not done:
        assert isinstance(result, BaseException)
        raise result
    return result  # type: ignore[return-value]  # the queue carries what call() returned
