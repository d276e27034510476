# SPDX-License-Identifier: Apache-2.0
"""Runs a piece of a test in a process of its own: a runtime and its driver are loaded once and stay."""

import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection


def _child(end: Connection, body: Callable[..., None], arguments: tuple[object, ...]) -> None:
    try:
        body(*arguments)
        end.send(None)
    except BaseException:
        end.send(traceback.format_exc())


def run_isolated(body: Callable[..., None], *arguments: object) -> None:
    """Calls `body(*arguments)` in a fresh child. Raises AssertionError with the child's traceback or its death."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(theirs, body, arguments))
    child.start()
    theirs.close()
    try:
        problem = ours.recv()
    except EOFError:
        problem = "the child died"
    child.join()
    assert problem is None, f"{problem} (exit code {child.exitcode})"
