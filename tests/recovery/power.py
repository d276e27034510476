"""Power failures: ``python -m tests.recovery.power --seed N --states N [--break NAME]``.

A history of attaches and detaches is recorded (``recorder.c``): every write, size, name and sync of
our files. Between any two of them the power may fail. Then of each file's unsynced writes any subset
is on disk, the last of them torn at a sector; of a directory's unsynced names any prefix. libvirt and
the GPUs are as they were at that moment; every other time the machine has also rebooted, so that
instances, keepers and running VMs are gone.

Each distinct state must start, recover, show what was acknowledged, and recover again to no effect.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.recovery.breakages import BREAKAGES
from tests.recovery.invariants import list_violations
from tests.recovery.killing import do_recover
from tests.recovery.scenarios import attach, detach, fail, name_ids
from tests.recovery.world import World
from vgpumgr.errors import LibvirtError, VgpumgrError

SOURCE = Path(__file__).with_name("recorder.c")
SECTOR = 512
#: what a reboot leaves to be put back by ``restore``
AFTER_REBOOT = ("no keeper", "no slice")


@dataclass
class Inode:
    """A file: what is on disk for certain, and what was written since its last sync."""

    durable: bytes = b""
    pending: list[tuple[str, int, bytes]] = field(default_factory=list)

    def apply(self, chosen: list[tuple[str, int, bytes]]) -> bytes:
        data = bytearray(self.durable)
        for kind, number, text in chosen:
            if kind == "truncate":
                data = data[:number].ljust(number, b"\0")
            elif kind == "extend":
                data = data.ljust(number, b"\0")
            else:
                data = data.ljust(number + len(text), b"\0")
                data[number : number + len(text)] = text
        return bytes(data)


Names = dict[str, Inode]


@dataclass
class Disk:
    """Files below the state directory, as the operations so far left them."""

    live: Names = field(default_factory=dict)
    durable: Names = field(default_factory=dict)
    #: names changed since the directory's last sync, in order: (new, its file, old or None)
    pending: list[tuple[str, Inode | None, str | None]] = field(default_factory=list)
    #: a negative control: as if nobody had synced a directory
    forgets_names: bool = False

    def do(self, op: list[str], data: bytes) -> None:
        kind, path = op[0], op[1]
        if kind == "create" and path not in self.live:
            self.live[path] = Inode()
            self.pending.append((path, self.live[path], None))
        elif kind == "rename" and path in self.live:
            self.live[op[2]] = self.live.pop(path)
            self.pending.append((op[2], self.live[op[2]], path))
        elif kind == "unlink" and path in self.live:
            del self.live[path]
            self.pending.append((path, None, None))
        elif kind == "sync":
            self._sync(path)
        elif kind in ("write", "truncate", "extend") and path in self.live:
            self.live[path].pending.append((kind, int(op[2]), data))

    def _sync(self, path: str) -> None:
        if path in self.live:
            inode = self.live[path]
            inode.durable, inode.pending = inode.apply(inode.pending), []
        elif not self.forgets_names:  # the directory, of which there is one
            self.durable = self.names(len(self.pending))
            self.pending = []

    def names(self, count: int) -> Names:
        """The names on disk if that many of the unsynced changes got there."""
        names = dict(self.durable)
        for new, inode, old in self.pending[:count]:
            if old is not None:
                names.pop(old, None)
            if inode is None:
                names.pop(new, None)
            else:
                names[new] = inode
        return names

    def states(self, choice: random.Random) -> Iterator[dict[str, bytes]]:
        """States that the disk may be in, the extreme ones first, then random ones."""
        for count in {0, len(self.pending), choice.randint(0, len(self.pending))}:
            names = self.names(count)
            for pick in (_none, _all, _prefix, *[_torn] * 4, *[_subset] * 4):
                yield {
                    path: inode.apply(pick(inode.pending, choice)) for path, inode in names.items()
                }


Writes = list[tuple[str, int, bytes]]


def _none(_pending: Writes, _choice: random.Random) -> Writes:
    return []


def _all(pending: Writes, _choice: random.Random) -> Writes:
    return pending


def _prefix(pending: Writes, choice: random.Random) -> Writes:
    return pending[: choice.randint(0, len(pending))]


def _subset(pending: Writes, choice: random.Random) -> Writes:
    return [write for write in pending if choice.random() < 0.5]


def _torn(pending: Writes, choice: random.Random) -> Writes:
    """Up to the last write, of which only some sectors are there."""
    if not pending or pending[-1][0] != "write":
        return pending
    kind, offset, data = pending[-1]
    kept: Writes = []
    start = offset
    while start < offset + len(data):
        end = min((start // SECTOR + 1) * SECTOR, offset + len(data))
        if choice.random() < 0.5:
            kept.append((kind, start, data[start - offset : end - offset]))
        start = end
    return [*pending[:-1], *kept]


def history(root: Path, announce: Callable[[str], object] | None = None) -> None:
    """What is recorded; each operation is announced and acknowledged, by default in a file."""
    name_ids("cccc")
    world = World(root)
    if announce is None:
        log = os.open(root / "acknowledged", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

        def announce(line: str) -> object:
            return os.write(log, line.encode())

    refused = LibvirtError("refused")
    for vm, act in (
        ("vm03", attach("vm03")),
        ("vm02", fail("hypervisor", "set_notes config", refused)),
        ("vm02", attach("vm02")),
        ("vm01", attach("vm01")),
        ("vm03", detach("vm03")),
        ("vm02", attach("vm02")),
        ("vm01", detach("vm01")),
        ("vm03", attach("vm03")),
        ("vm02", detach("vm02")),
        ("vm03", detach("vm03")),
        ("vm01", attach("vm01")),
        ("vm02", attach("vm02")),
        ("vm01", detach("vm01")),
        ("vm03", attach("vm03")),
    ):
        announce(f"begin {vm}\n")
        with suppress(VgpumgrError):
            act(world)
        has = any(record.vm_name == vm for record in world.store.list_attachments())
        announce(f"{'has' if has else 'lacks'} {vm}\n")


def record(directory: Path, breakage: str | None) -> list[tuple[list[str], bytes]]:
    """Runs the history in a process that is recorded."""
    library, log, root = directory / "recorder.so", directory / "log", directory / "root"
    words = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(words, check=True)
    World(root).make(mig=False, running=False)
    env = {
        **os.environ,
        "LD_PRELOAD": str(library),
        "RECORD_ROOT": str(root),
        "RECORD_LOG": str(log),
    }
    more = ["--break", breakage] if breakage else []
    command = [sys.executable, "-m", "tests.recovery.power", "--history", str(root), *more]
    subprocess.run(command, env=env, check=True)
    return list(parse_log(log.read_bytes()))


def parse_log(data: bytes) -> Iterator[tuple[list[str], bytes]]:
    """The operations of a log, with what was written."""
    at = 0
    while at < len(data):
        end = data.index(b"\n", at)
        op = data[at:end].decode().split("\t")
        at = end + 1
        size = int(op[3]) if op[0] == "write" else 0
        yield op, data[at : at + size]
        at += size


@dataclass(frozen=True)
class Failure:
    """One power failure: our files, the machine at that moment, what had been said by then."""

    files: dict[str, bytes]
    machine: bytes
    acknowledged: str
    reboot: bool

    def key(self) -> str:
        digest = hashlib.sha256(self.machine + bytes([self.reboot]))
        for path, data in sorted(self.files.items()):
            digest.update(path.encode() + len(data).to_bytes(8, "big") + data)
        return digest.hexdigest()


def enumerate_failures(
    ops: list[tuple[list[str], bytes]],
    root: str,
    choice: random.Random,
    machine: bytes,
    forgets_names: bool,
) -> Iterator[Failure]:
    """Every distinct power failure that is looked at."""
    disk, acknowledged, temporary = Disk(forgets_names=forgets_names), "", b""
    seen: set[str] = set()
    for op, data in ops:
        name = op[1].removeprefix(f"{root}/")
        if name == "acknowledged":
            acknowledged += data.decode()
        elif name == "world.tmp":
            temporary = data if op[0] == "write" else temporary
            if op[0] == "rename":
                machine = temporary
        elif name.startswith("state") and not name.endswith(("-shm", ".lock")):
            disk.do(op, data)
        else:
            continue
        for files in disk.states(choice):
            failure = Failure(files, machine, acknowledged, bool(len(seen) % 2))
            if (key := failure.key()) not in seen:
                seen.add(key)
                yield failure


def check(failure: Failure, root: Path, original: str) -> list[str]:
    """Plays one power failure and recovers from it."""
    shutil.rmtree(root, ignore_errors=True)
    (root / "state").mkdir(parents=True)
    for path, data in failure.files.items():
        (root / path.removeprefix(f"{original}/")).write_bytes(data)
    return judge(failure, root)


def judge(failure: Failure, root: Path) -> list[str]:
    """Recovers from a power failure whose files are in ``root`` already."""
    (root / "world").write_bytes(failure.machine)
    world = World(root, boot_id="boot-2" if failure.reboot else "boot-1")
    if failure.reboot:
        world.reboot()
    try:
        do_recover(world)
        again = World(root)
        second = do_recover(again)
    except Exception as error:
        return [f"recovery failed: {type(error).__name__}: {error}"]
    wrong = _drop_expected(list_violations(again), failure)
    if not second["unchanged"]:
        wrong.append(f"a second recovery does something: {second}")
    attached = {record.vm_name for record in again.store.list_attachments()}
    text = failure.acknowledged
    last = dict(reversed(line.split(" ")) for line in text[: text.rfind("\n") + 1].splitlines())
    for vm, word in last.items():
        if word != "begin" and (vm in attached) is not (word == "has"):
            wrong.append(f"it was acknowledged that {vm} {word} a slice")
    return wrong


def _drop_expected(wrong: list[str], failure: Failure) -> list[str]:
    if not failure.reboot:
        return wrong
    return [text for text in wrong if not text.endswith(AFTER_REBOOT) and "MIG mode" not in text]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--states", type=int, default=10_000)
    parser.add_argument("--part", default="0/1", help="I/N: every N-th state from the I-th on")
    parser.add_argument("--break", dest="breakage", choices=sorted(BREAKAGES))
    parser.add_argument("--forget-names", action="store_true", help="ignore syncs of directories")
    parser.add_argument("--history", type=Path, help="only run what is recorded")
    options = parser.parse_args()
    if options.history:
        if options.breakage:
            BREAKAGES[options.breakage]()
        history(options.history)
        return 0
    scratch = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        return _play(options, Path(name))


def _play(options: argparse.Namespace, directory: Path) -> int:
    choice = random.Random(options.seed)
    original = directory / "root"
    World(original).make(mig=False, running=False)
    machine = (original / "world").read_bytes()
    ops = record(directory, options.breakage)
    forgets = options.forget_names
    found = list(enumerate_failures(ops, str(original), choice, machine, forgets))
    chosen = sorted(choice.sample(range(len(found)), min(options.states, len(found))))
    part, parts = map(int, options.part.split("/"))
    wrong: dict[str, list[str]] = {}
    mine = chosen[part::parts]
    for number in mine:
        if problems := check(found[number], directory / "played", str(original)):
            wrong[f"state {number}"] = problems
    answer = {
        "seed": options.seed,
        "operations": len(ops),
        "distinct": len(found),
        "played": len(mine),
        "wrong": wrong,
    }
    print(json.dumps(answer, indent=1))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
