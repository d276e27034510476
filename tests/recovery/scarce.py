"""The host runs out of something: ``python -m tests.recovery.scarce disk|descriptors``.

``disk``: the state directory is a small tmpfs with 0, 1, 2, ... pages left when an operation begins.
``descriptors``: the process may open 0, 1, 2, ... more files. Every call that writes must either work or
raise an error of ours, put no state file aside, and leave a machine that is in the old or in the new state
once there is room again. Needs root (``disk`` mounts in a mount namespace of its own).
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.recovery.scarce_host import HOST_CALLS, try_host
from tests.support.service import Bench, make_bench
from vgpumgr.app.operations.recovery import Policy, Recovery
from vgpumgr.errors import VgpumgrError
from vgpumgr.host.clock import SystemClock
from vgpumgr.model.attachment import AttachmentState
from vgpumgr.model.request import AttachRequest
from vgpumgr.server.audit import AuditLog, verify_all

_CLONE_NEWNS, _MS_REC_PRIVATE = 0x20000, 0x44000
_SIZE = 1 << 20
Scarcity = Callable[[Path, int], "contextmanager[None]"]


def attach(bench: Bench) -> None:
    bench.service.attach(AttachRequest("vm02", "1g.10gb"))


def detach(bench: Bench) -> None:
    bench.service.detach("vm01")


def recover(bench: Bench) -> None:
    Recovery(bench.service.parts).recover(Policy())


def look(bench: Bench) -> None:
    Recovery(bench.service.parts).status()
    assert len(bench.store.list_attachments()) == 1


def log(bench: Bench) -> None:
    AuditLog(bench.state_dir.parent / "audit.jsonl", SystemClock()).append({"event": "x" * 3000})


CALLS = {"attach": attach, "detach": detach, "recover": recover, "look": look, "log": log}


@contextmanager
def full_disk(directory: Path, pages: int) -> Iterator[None]:
    """So many pages are left."""
    path = directory / "fill"
    page = os.sysconf("SC_PAGESIZE")
    free = os.statvfs(directory).f_bavail * os.statvfs(directory).f_bsize
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(page, free - pages * page))
    try:
        yield
    finally:
        path.unlink()


@contextmanager
def few_descriptors(_directory: Path, count: int) -> Iterator[None]:
    """So many more may be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def try_one(directory: Path, name: str, scarcity: Scarcity, left: int) -> tuple[bool, list[str]]:
    """Whether it went wrong for want of something, and what is wrong with that."""
    bench = make_bench(directory)
    bench.service.attach(AttachRequest("vm01", "1g.10gb"))
    wrong: list[str] = []
    refused = False
    with scarcity(directory, left):
        try:
            CALLS[name](bench)
        except VgpumgrError:
            refused = True
        except Exception as error:
            wrong.append(f"{type(error).__name__}: {error}")
    with suppress(VgpumgrError):
        recover(bench)
    log(bench)
    there = {r.vm_name for r in bench.store.list_attachments()}
    states = {r.state for r in bench.store.list_attachments()}
    allowed: dict[str, list[set[str]]] = {
        "attach": [{"vm01"}] if refused else [{"vm01", "vm02"}],
        "detach": [{"vm01"}, set()] if refused else [set()],
    }
    if there not in allowed.get(name, [{"vm01"}]):
        wrong.append(f"attached are {sorted(there)}")
    if states - {AttachmentState.ATTACHED}:
        wrong.append(f"half done: {states}")
    if len(bench.gpu.instances) != len(there) or len(bench.channels.running) != len(there):
        wrong.append(f"{len(bench.gpu.instances)} slices, {len(bench.channels.running)} channels")
    wrong += [f"put aside: {path.name}" for path in directory.rglob("*.corrupt-*")]
    if broken := verify_all(directory / "audit.jsonl"):
        wrong.append(f"audit log: {broken}")
    return refused, [f"{name} with {left} left: {text}" for text in wrong]


def sweep(kind: str, counts: range) -> dict[str, object]:
    """All calls with all counts."""
    scarcity: Scarcity = full_disk if kind == "disk" else few_descriptors  # type: ignore[assignment]
    refused, wrong = dict.fromkeys([*CALLS, *HOST_CALLS], 0), []
    for name in refused:
        for left in counts:
            with (
                tempfile.TemporaryDirectory(dir="/dev/shm") as scratch,
                mounted(Path(scratch), kind),
            ):
                attempt = try_one if name in CALLS else try_host
                was_refused, found = attempt(Path(scratch), name, scarcity, left)
            refused[name] += was_refused
            wrong += found
    return {"refused": refused, "wrong": wrong}


@contextmanager
def mounted(directory: Path, kind: str) -> Iterator[None]:
    """A small tmpfs there."""
    if kind != "disk":
        yield
        return
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={_SIZE},mode=755", "none", directory], check=True
    )
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", directory], check=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["disk", "descriptors"])
    parser.add_argument("--most", type=int, default=40)
    parser.add_argument("--step", type=int, default=1)
    asked = parser.parse_args()
    if asked.kind == "disk":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(_CLONE_NEWNS) or libc.mount(b"none", b"/", None, _MS_REC_PRIVATE, None):
            raise OSError(ctypes.get_errno(), "no mount namespace of our own")
    answer = sweep(asked.kind, range(0, asked.most, asked.step))
    print(json.dumps(answer, indent=1))
    return int(bool(answer["wrong"]))


if __name__ == "__main__":
    sys.exit(main())
