"""Who hears of the steps of the operation that runs in this context: a terminal, a daemon, nobody.

A context variable, so that the daemon hears of an operation without a parameter through every layer
between. A listener may raise before a step is done (``do``) to stop the operation there; the
executor then undoes what was done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[str, str], None]
_listener: ContextVar[Listener | None] = ContextVar("vgpumgr_progress", default=None)


def report_step(word: str, description: str) -> None:
    """Tells the listener of this context, if there is one."""
    listener = _listener.get()
    if listener is not None:
        listener(word, description)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Everything that runs inside reports its steps to ``listener``."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
