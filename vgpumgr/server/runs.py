"""Commands of ``vgpumgr run`` that were killed: their slices are freed at once, and not by the reconciler's timer.

The processes are compared with /proc every moment; the state file is read again only where it has changed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from vgpumgr.errors import VgpumgrError
from vgpumgr.host.machine import read_boot_id
from vgpumgr.host.process import has_ended
from vgpumgr.model.attachment import AttachmentRecord, AttachmentStore
from vgpumgr.server.context import Context
from vgpumgr.server.reconciler import Reconciler
from vgpumgr.state.store import STATE_FILE, Store

#: between two comparisons
PAUSE_S = 1.0


class RunWatcher:
    """Finds the runs whose process has ended, each once. ``path`` is the state file."""

    def __init__(self, store: AttachmentStore, path: Path, boot_id: str) -> None:
        self._store = store
        self._path = path
        self._boot_id = boot_id
        self._stamp: object = None
        self._runs: Sequence[AttachmentRecord] = ()
        self._found: set[str] = set()

    def has_changed(self) -> bool:
        """Whether the state file is another one than ``read`` has read."""
        return self._read_stamp() != self._stamp

    def read(self) -> None:
        """The runs that are recorded now. May raise StoreError."""
        stamp = self._read_stamp()
        self._runs = [one for one in self._store.list_attachments() if one.run is not None]
        self._stamp = stamp

    def list_ended(self) -> list[str]:
        """The names of those that have ended since the last call."""
        ended = [one for one in self._runs if has_ended(one.run, self._boot_id)]
        new = [one.vm_name for one in ended if one.id not in self._found]
        self._found = {one.id for one in ended}
        return new

    def _read_stamp(self) -> object:
        """Another one after each commit: SQLite's log has it first."""
        found = []
        for path in (self._path, self._path.with_name(f"{self._path.name}-wal")):
            with contextlib.suppress(OSError):
                status = path.stat()
                found.append((status.st_ino, status.st_size, status.st_mtime_ns))
        return found


@asynccontextmanager
async def watch_runs(
    context: Context, reconciler: Reconciler, pause_s: float = PAUSE_S
) -> AsyncIterator[None]:
    """Compares until the end of the block, and asks for a reconcile where a process has ended."""
    path = context.machine.state_dir / STATE_FILE
    boot_id = read_boot_id(context.machine)
    watcher = RunWatcher(Store(path, boot_id), path, boot_id)
    task = asyncio.create_task(_watch(watcher, reconciler.ask, pause_s))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _watch(watcher: RunWatcher, ask: Callable[[str], None], pause_s: float) -> None:
    while True:
        with contextlib.suppress(VgpumgrError, OSError):  # every command says so
            if watcher.has_changed():
                await asyncio.to_thread(watcher.read)
            for name in watcher.list_ended():
                ask(f"the command of {name} has ended")
        await asyncio.sleep(pause_s)
