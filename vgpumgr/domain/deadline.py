"""Calls with a deadline: libvirt's own calls wait for ever when its daemon hangs."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class LateCallError(Exception):
    """The call has not come back by its deadline; its thread is left alone."""


def run_with_deadline(call: Callable[[], T], timeout_s: float) -> T:
    """Runs ``call`` on a thread of its own and waits for it; raises LateCallError, or what the call
    raised.

    libvirt's binding releases the interpreter's lock while it waits. A late thread is a daemon
    thread: it ends with the process, and whether its call takes effect after all only observing
    tells.
    """
    results: queue.SimpleQueue[tuple[bool, object]] = queue.SimpleQueue()

    def work() -> None:
        try:
            results.put((True, call()))
        except BaseException as error:
            results.put((False, error))

    threading.Thread(target=work, name="libvirt-call", daemon=True).start()
    try:
        done, result = results.get(timeout=timeout_s)
    except queue.Empty:
        raise LateCallError from None
    if not done:
        assert isinstance(result, BaseException)
        raise result
    return result  # type: ignore[return-value]  # the queue carries what call() returned
