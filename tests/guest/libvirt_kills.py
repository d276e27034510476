"""libvirtd killed while slices are attached and detached: ``python -m tests.guest.libvirt_kills --seed N --count N``.

A daemon on a simulated DGX A100 attaches to and detaches from genuine guests (TCG; two that run, one that is shut off)
in a private libvirtd. At a random moment of each operation libvirtd gets SIGKILL, SIGTERM, or SIGSTOP for a while; its
QEMUs live on. Then the daemon must have libvirt again before it was asked ``POLLS`` times, and every definition, live
and stored, must be the one from before the attach or have exactly what is recorded; nothing may be left over.

Prints planned and happened interruptions and what was wrong; exits 1 if anything was, or if too few were interrupted.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from lxml import etree

from tests.guest.lab import GuestLab, lab
from vgpumgr.cli.http import HttpBackend, connect_unix
from vgpumgr.domain.declare import parse_document
from vgpumgr.domain.hypervisor import Vm
from vgpumgr.domain.libvirt import LibvirtHypervisor
from vgpumgr.errors import VgpumgrError
from vgpumgr.host.process import read_state
from vgpumgr.model.attachment import AttachmentRecord, AttachmentState
from vgpumgr.state.domain_metadata import describe_record
from vgpumgr.state.store import Store

#: name, machine type, whether it runs
VMS = (("runs-pc", "pc", True), ("runs-q35", "q35", True), ("off-q35", "q35", False))
#: the daemon is asked this often before it must have libvirt again; 0.25 s and an answer each, 5 s if it is quick
POLLS, POLL_S = 20, 0.25
#: everything must have come to rest by then: a guest may be waited for in between
SETTLE_POLLS = 100
BLOWS = (signal.SIGKILL,) * 7 + (signal.SIGTERM,) * 2 + (signal.SIGSTOP,)


@dataclass
class Tally:
    """What happened."""

    planned: int
    blows: Counter[str] = field(default_factory=Counter)
    in_operation: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    reconnect_s: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        happened = sum(self.blows.values())
        return {
            "planned": self.planned,
            "happened": happened,
            "while_an_operation_ran": self.in_operation,
            "signals": dict(self.blows),
            "outcomes": dict(self.outcomes),
            "reconnects": len(self.reconnect_s),
            "longest_reconnect_s": round(max(self.reconnect_s, default=0.0), 2),
            "wrong": self.wrong,
        }


class Daemon:
    """vgpumgr's daemon on the scene's machine, and what it tells."""

    def __init__(self, scene: GuestLab) -> None:
        host = Path(scene.environment["VGPUMGR_SIM_ROOT"]) / scene.machine / "host"
        self.state = host / "state"
        self.channels = host / "run" / "channels"
        self.client = HttpBackend(partial(connect_unix, str(host / "run" / "vgpumgr.sock")))
        command = [sys.executable, "-m", "vgpumgr", "--machine", scene.machine, "daemon"]
        self.process = subprocess.Popen(command, env=scene.environment, stdin=subprocess.DEVNULL)
        self.heard: list[tuple[float, dict[str, Any]]] = []
        wait(lambda: self.answers, "the daemon answers")
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def answers(self) -> bool:
        with suppress(VgpumgrError):
            self.client.request("GET", "/1.0").document()
            return True
        return False

    def _listen(self) -> None:
        with suppress(VgpumgrError, OSError):
            for event in self.client.listen("/1.0/events"):
                self.heard.append((time.monotonic(), event))

    def count_connects(self) -> int:
        told = [e for _, e in list(self.heard) if e["type"] == "libvirt"]
        return sum(e["state"] == "connected" for e in told)

    def measure(self) -> tuple[int, int]:
        """Open files and threads."""
        proc = Path(f"/proc/{self.process.pid}")
        return len(os.listdir(proc / "fd")), len(os.listdir(proc / "task"))  # noqa: PTH208

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)


class Attack:
    """One run."""

    def __init__(
        self, scene: GuestLab, daemon: Daemon, seed: int, planned: int, polls: int = POLLS
    ) -> None:
        self._polls = polls
        self._scene = scene
        self._daemon = daemon
        self._random = random.Random(seed)
        self._libvirt = LibvirtHypervisor(scene.libvirtd.uri)
        self._store = Store(daemon.state / "state.sqlite")
        self._before = {name: self._describe(name) for name, _, _ in VMS}
        self._takes_s = {"attach": 3.0, "detach": 3.0}
        self.tally = Tally(planned)

    def run(self) -> Tally:
        """All blows, or those up to the first that something was wrong after."""
        start: tuple[int, int] | None = None
        for number in range(1, self.tally.planned + 1):
            self._strike(number)
            if self.tally.wrong:
                break
            if number == min(5, self.tally.planned):
                start = self._daemon.measure()  # everything has been opened once
        if start is not None and not self.tally.wrong:
            self._check_growth(start)
        self._libvirt.close()
        return self.tally

    def _strike(self, number: int) -> None:
        name = self._random.choice(VMS)[0]
        had = self._find_record(name) is not None
        connects = self._daemon.count_connects()
        verb = "detach" if had else "attach"
        operation = self._begin(name, verb)
        time.sleep(self._random.random() * self._takes_s[verb])
        blow = self._random.choice(BLOWS)
        running = self._read(operation)["status"] in ("waiting", "running")
        self.tally.in_operation += running
        self._hit(blow)
        ended = self._daemon.client.wait_operation(operation)
        if not running:  # it was not disturbed, and tells how long one takes here
            self._takes_s[verb] = max(0.3, ended["updated_s"] - ended["created_s"])
        self.tally.outcomes[f"{verb} {ended['status']}"] += 1
        where = f"after {number} ({blow.name} in {verb} of {name}, {ended['status']})"
        if blow is not signal.SIGSTOP:
            self._check_reconnect(where, connects)
        self._check(where, name, had, ended["status"] == "succeeded")
        print(where, file=sys.stderr, flush=True)

    def _hit(self, blow: signal.Signals) -> None:
        pid = self._scene.libvirtd.send(blow)
        if pid is None:
            return
        self.tally.blows[blow.name] += 1
        if blow is signal.SIGSTOP:
            time.sleep(self._random.random() * 4)
            self._scene.libvirtd.send(signal.SIGCONT)
        else:  # one that was asked to end may answer for a while
            wait(lambda: read_state(pid) in (None, "Z"), f"{blow.name} ends libvirtd")

    def _begin(self, name: str, verb: str) -> str:
        if verb == "detach":
            path, body = f"/1.0/attachments/{name}/detach", {}
        else:
            path = "/1.0/attachments"
            body = {"vm": name, "profile": "1g.10gb", "hello_timeout_s": 2}
        answer = self._daemon.client.request("POST", path, json.dumps(body).encode())
        return str(answer.document()["operation"]["id"])

    def _read(self, operation: str) -> dict[str, Any]:
        document = self._daemon.client.request("GET", f"/1.0/operations/{operation}").document()
        found: dict[str, Any] = document["operation"]
        return found

    def _check_reconnect(self, where: str, connects: int) -> None:
        """The daemon tells that it has libvirt again before it was asked too often."""
        self._scene.libvirtd.wait_ready()
        back_s = time.monotonic()
        for _ in range(self._polls):
            if self._daemon.count_connects() > connects:
                told = [s for s, e in self._daemon.heard if e["type"] == "libvirt"]
                self.tally.reconnect_s.append(max(0.0, told[-1] - back_s))
                return
            time.sleep(POLL_S)
            self._daemon.client.request("GET", "/1.0").document()
        self.tally.wrong.append(f"{where}: the daemon has no libvirt")

    def _check(self, where: str, name: str, had: bool, succeeded: bool) -> None:
        for _ in range(SETTLE_POLLS):
            found = self._list_wrong()
            if not found:
                break
            time.sleep(POLL_S)
        has = self._find_record(name) is not None
        if succeeded and has is had:
            found.append(f"acknowledged, but {name} {'has' if has else 'lacks'} a slice")
        self.tally.wrong += [f"{where}: {text}" for text in found]
        if found:
            self.tally.wrong += self._list_evidence()

    def _list_evidence(self) -> list[str]:
        """The end of the journal, and what the daemon said."""
        journal = (self._daemon.state / "journal").read_text(errors="replace").splitlines()
        told = [json.dumps(event) for _, event in self._daemon.heard]
        return [*journal[-40:], *told[-40:]]

    def _list_wrong(self) -> list[str]:
        try:
            return [*self._list_differences(), *self._list_leaks()]
        except VgpumgrError as error:
            return [str(error)]

    def _list_differences(self) -> Iterator[str]:
        diff = self._daemon.client.request("GET", "/1.0/diff").document()
        yield from (f"{d['subject']}: {d['kind']}: {d['text']}" for d in diff["drift"])
        yield from (f"{i['subject']}: {i['operation']} unfinished" for i in diff["interrupted"])
        for name, _, _ in VMS:
            record, vm = self._find_record(name), self._libvirt.read_vm(name)
            if record is None:
                lines = difflib.unified_diff(self._before[name], self._describe(name), n=0)
                yield from (f"{name}: not as before: {line.strip()}" for line in lines)
            else:
                yield from self._check_attached(record, vm)

    def _check_attached(self, record: AttachmentRecord, vm: Vm) -> Iterator[str]:
        if record.state is not AttachmentState.ATTACHED:
            yield f"{vm.name}: {record.state}"
        if vm.notes != (describe_record(record),):
            yield f"{vm.name}: its note is not its record"
        wanted = {f"ua-vgpumgr-{record.id}-{part}" for part in ("ring", "ctl")}
        aliases = set(vm.config.own_aliases()) if vm.config else set()
        if aliases != wanted:
            yield f"{vm.name}: its definition has {aliases}"
        strange = set(vm.live.own_aliases()) - wanted if vm.live else set()
        if strange:
            yield f"{vm.name}: the running machine has {strange}"

    def _list_leaks(self) -> Iterator[str]:
        records = self._store.list_attachments()
        listed = self._daemon.client.request("GET", "/1.0/mig/instances").document()["instances"]
        there = sorted((i["gpu_uuid"], i["id"]) for i in listed)
        wanted = sorted((str(r.gpu), r.gpu_instance_id or 0) for r in records)
        if there != wanted:
            yield f"instances {there}, recorded {wanted}"
        kept = {path.name for path in self.channels()}
        if kept != {r.id for r in records}:
            yield f"channels {kept}, recorded {[r.id for r in records]}"

    def channels(self) -> list[Path]:
        return list(self._daemon.channels.iterdir()) if self._daemon.channels.is_dir() else []

    def _check_growth(self, start: tuple[int, int]) -> None:
        """Threads come with requests and go; what grows with every blow is more than a few."""
        files, threads = self._daemon.measure()
        if files > start[0] + 8 or threads > start[1] + 6:
            self.tally.wrong.append(f"files and threads: {start} before, {(files, threads)} after")

    def _find_record(self, name: str) -> AttachmentRecord | None:
        return next((r for r in self._store.list_attachments() if r.vm_name == name), None)

    def _describe(self, name: str) -> list[str]:
        """What its stored and its live definition say, line by line."""
        vm = self._libvirt.read_vm(name)
        return [line for d in (vm.config, vm.live) if d for line in list_lines(d.to_xml())]


def list_lines(xml: str) -> list[str]:
    """A definition but for the aliases that libvirt makes up (started anew, it forgets some) and for the empty
    element that it leaves where metadata were.
    """
    root = parse_document(xml)
    for element in root.xpath("devices//alias[not(starts-with(@name, 'ua-'))] | metadata[not(*)]"):
        element.getparent().remove(element)
    lines = etree.tostring(root, method="c14n").decode().replace("><", ">\n<").splitlines()
    return [line.strip() for line in lines if line.strip()]


def wait(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


@contextmanager
def guests(scene: GuestLab) -> Iterator[None]:
    """The VMs, those that run booted."""
    for name, machine, runs in VMS:
        scene.define(name, machine=machine)
        if runs:
            scene.start(name)
    try:
        yield
    finally:
        # the last blow may have been a moment ago
        scene.libvirtd.wait_ready()
        for name, _, runs in VMS:
            scene.run("detach", name, "--yes")
            if runs:
                scene.destroy(name)
            scene.libvirtd.virsh("undefine", name, check=False)


def attack(scene: GuestLab, seed: int, count: int, polls: int = POLLS) -> Tally:
    """A run on a scene."""
    with guests(scene):
        daemon = Daemon(scene)
        try:
            tally = Attack(scene, daemon, seed, count, polls).run()
            code = daemon.end()
            if code:
                tally.wrong.append(f"the daemon ended with {code}")
            return tally
        finally:
            daemon.process.kill()
            daemon.process.wait()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    options = parser.parse_args()
    with lab("dgx-a100") as scene:
        tally = attack(scene, options.seed, options.count)
    print(json.dumps({"seed": options.seed, **tally.as_dict()}, indent=1))
    return int(bool(tally.wrong) or sum(tally.blows.values()) < options.count)


if __name__ == "__main__":
    sys.exit(main())
