"""A session that was taken over writes what it likes into the memory that it shares with the worker and others."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def find_memory(worker: int, name: str) -> Path:
    """Memory of that name that all sessions of a worker can write."""
    for one in Path(f"/proc/{worker}/fd").iterdir():
        # the name is the whole of it: others begin with it
        if str(one.readlink()).split(" ")[0] == f"/memfd:{name}":
            return one
    raise AssertionError(f"no {name}")


@contextmanager
def overwriting(worker: int, name: str, begin: bytes) -> Iterator[None]:
    """Writes that at the beginning, and zeros behind it, again and again."""
    memory, ended = find_memory(worker, name), threading.Event()

    def overwrite() -> None:
        with memory.open("r+b", buffering=0) as file:
            spoilt = begin.ljust(os.fstat(file.fileno()).st_size, b"\0")
            while not ended.is_set():
                os.pwrite(file.fileno(), spoilt, 0)

    thread = threading.Thread(target=overwrite)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
