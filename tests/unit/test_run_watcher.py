"""The daemon finds killed commands without waiting for its timer."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vgpumgr.host.process import read_identity
from vgpumgr.model.attachment import AttachmentRecord, RunPart
from vgpumgr.model.choices import Backend
from vgpumgr.server.runs import RunWatcher, watch_runs
from vgpumgr.state.store import STATE_FILE, Store


def start() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


def make_record(name: str, process: subprocess.Popen[bytes]) -> AttachmentRecord:
    identity = read_identity(process.pid)
    assert identity is not None
    run = RunPart(process.pid, identity.start_ticks, "boot", 0, 0, "true")
    return AttachmentRecord(
        id=name, vm_name=name, vm_uuid=name, gpu=None, profile="share:1/1", memory_bytes=1,
        backend=Backend.FORWARD, created_s=1.0, run=run,
    )  # fmt: skip


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


class CountedStore:
    """How often the state file was read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reads = 0

    def list_attachments(self) -> Any:
        self.reads += 1
        return self._store.list_attachments()


def find(watcher: RunWatcher) -> list[str]:
    """As the daemon does."""
    if watcher.has_changed():
        watcher.read()
    return watcher.list_ended()


def test_each_run_that_has_ended_is_found_once(tmp_path: Path) -> None:
    path = tmp_path / STATE_FILE
    store = Store(path, "boot")
    counted: Any = CountedStore(store)
    watcher = RunWatcher(counted, path, "boot")
    assert find(watcher) == []
    one, two = start(), start()
    try:
        store.save_attachment(make_record("one", one))
        store.save_attachment(make_record("two", two))
        assert find(watcher) == []
        before = counted.reads
        assert find(watcher) == []
        assert counted.reads == before  # nothing has changed
        end(one)
        assert find(watcher) == ["one"]
        assert find(watcher) == []
        store.delete_attachment("one")
        end(two)
        assert find(watcher) == ["two"]
        # it is recorded again, as by another run of that name
        store.delete_attachment("two")
        assert find(watcher) == []
    finally:
        end(one)
        end(two)


def test_runs_of_another_boot_have_ended(tmp_path: Path) -> None:
    path = tmp_path / STATE_FILE
    store = Store(path, "boot")
    process = start()
    try:
        store.save_attachment(make_record("one", process))
        assert find(RunWatcher(store, path, "another")) == ["one"]
    finally:
        end(process)


def test_a_state_file_that_cannot_be_read_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine: Any = SimpleNamespace(state_dir=tmp_path)
    monkeypatch.setattr("vgpumgr.server.runs.read_boot_id", lambda _: "boot")
    process, asked = start(), list[str]()
    path = tmp_path / STATE_FILE
    path.write_text("no database")
    reconciler: Any = SimpleNamespace(ask=asked.append)

    async def go() -> None:
        async with watch_runs(SimpleNamespace(machine=machine), reconciler, 0.01):  # type: ignore[arg-type]
            await asyncio.sleep(0.1)
            path.unlink()
            Store(path, "boot").save_attachment(make_record("one", process))
            end(process)
            while not asked:
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(go(), 60))
    assert asked == ["the command of one has ended"]
