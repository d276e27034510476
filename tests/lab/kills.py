"""libvirtd killed while a running guest gets a device of the host and loses it.

    python -m tests.lab kills --states N --seed N

When a random line of each operation stands in the journal, or in the moment in which QEMU opens the device, libvirtd
gets SIGKILL and is started again; its QEMU lives on. After ``vgpumgr recover`` the device must be the VM's as a whole,
with its record, or the host's as if nothing had been. There is a third way: QEMU has it, and libvirt, killed before it
wrote that down, does not know (only QEMU's monitor shows it). Then nothing is taken from under the guest, the VM is
named as who holds it, and it is the host's again once the VM is stopped.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.lab.host import NIC, LabHost
from tests.lab.kernels import RealKernel, driver
from tests.lab.nested import (
    MTTY_ID,
    NIC_ID,
    NestedGuest,
    kill_libvirtd,
    nested_guest,
    read_status,
    start_libvirtd,
)

BUS = "/sys/bus/mdev/devices"
PROFILES = {"mtty-2": MTTY_ID, "passthrough": NIC_ID}
JOURNAL = "/var/lib/vgpumgr/journal"
#: attaches write 12 lines and more, detaches a few less
LINES = 9
#: from the line to the kill, at most
LINGER_S = 0.5
WAYS = {"mdev": "mtty-2", "passthrough": "passthrough"}
#: a device whose guest was asked to release it may still be on its way, and a helper process late: on a slow
#: machine all takes its time
SETTLE_TRIES, SETTLE_S = 5, 240
#: the moment in which QEMU opens a device of the host: in the place of a line of the journal
OPENED = 0
#: an operation that writes nothing has been refused, or the machine is slow beyond bearing
REACH_S = 180
_OPEN = "[[ $(readlink /proc/$(</run/libvirt/qemu/{vm}.pid)/fd/*) == */dev/vfio/[0-9]* ]]"
_ALIASES = '{"execute":"qom-list","arguments":{"path":"/machine/peripheral"}}'


@dataclass
class Kills:
    """One run. ``moments`` are those of the first kills; the others are chosen."""

    guest: NestedGuest
    kernel: RealKernel
    choice: random.Random
    moments: Sequence[int] = ()
    outcomes: Counter[str] = field(default_factory=Counter)
    interrupted: int = 0
    wrong: list[str] = field(default_factory=list)
    #: how everything stood when something was wrong
    evidence: dict[str, str] = field(default_factory=dict)
    _told: str = ""

    @property
    def host(self) -> LabHost:
        """Where it happens."""
        return self.guest.host

    def run(self, count: int) -> None:
        """That many kills, each in another operation; ends at the first that something is wrong after."""
        before = self.guest.dump("--inactive")
        profile: str | None = None
        for number in range(count):
            asked = profile or self.choice.choice(sorted(PROFILES))
            verb = "detach" if profile else "attach"
            status = self._strike(verb, asked, self._choose_moment(number, verb))
            profile = self._settle()
            found: list[str] = []
            outcome = "attached" if profile else "free"
            if unknown := self._list_unknown():
                found = self._stop_vm(asked, before, unknown)
                profile, outcome = None, "held, and free once the VM was stopped"
            self.outcomes[f"{verb} {asked}: {status}, then {outcome}"] += 1
            print(f"{number + 1}: {verb} {asked}: {status}, then {outcome}", file=sys.stderr)
            found += self._list_wrong(profile, before)
            if status == 0 and (profile is None) is not (verb == "detach"):
                found.append("acknowledged, but it is not so")
            self.wrong += [f"{number} ({verb} {asked}, exit {status}): {text}" for text in found]
            if found:
                self._keep_evidence()
                return
        if profile:
            self.host.vgpumgr("detach", self.guest.name)
            if found := self._list_wrong(self._settle(), before):
                self.wrong += found
                self._keep_evidence()

    def _choose_moment(self, number: int, verb: str) -> int:
        """A line of the operation in the journal, or ``OPENED``."""
        if number < len(self.moments):
            return self.moments[number]
        return self.choice.randint(OPENED if verb == "attach" else 1, LINES)

    def _strike(self, verb: str, profile: str, moment: int) -> int:
        words = [verb, self.guest.name]
        if verb == "attach":
            words += ["--profile", profile]
            words += ["--gpu", NIC] if profile == "passthrough" else []
        written = int(self.host.check(f"cat {JOURNAL} 2>/dev/null | grep -ac . || true"))
        operation = self.host.start_vgpumgr(*words)
        kill_libvirtd(self.host, after=self._make_wait(written, moment))
        start_libvirtd(self.host)
        done = self.host.finish_vgpumgr(operation)
        self.evidence["operation"] = f"exit {done.status}\n{done.stdout}{done.stderr}"
        self.interrupted += done.status != 0
        return done.status

    def _make_wait(self, written: int, moment: int) -> str:
        """What waits in the lab host for the moment, at the longest until the operation ends."""
        reached, pause = f"[ $(grep -ac . {JOURNAL}) -ge {written + moment} ]", "sleep 0.05"
        linger = f"sleep {self.choice.random() * LINGER_S:.2f}"
        if moment == OPENED:
            reached, pause, linger = _OPEN.format(vm=self.guest.name), ":", ":"
        ended = f'tail -n +{written + 1} {JOURNAL} | grep -aq \'"event":"end"\''
        # once a second: what looks for the end would slow down what looks for the moment
        over = f"s=$SECONDS; {{ {ended} || [ $s -gt {REACH_S} ]; }} && break"
        look = f"{pause}; [ $SECONDS = $s ] && continue; {over}"
        return f"SECONDS=0 s=0; until {reached}; do {look}; done 2>/dev/null; {linger}"

    def _settle(self) -> str | None:
        """The profile that the VM has when everything has come to rest."""
        self._recover(until=self._list_unknown)
        attachments = self.host.document("vm", "show", self.guest.name)["vm"]["attachments"]
        backends = [attachment["backend"] for attachment in attachments]
        return WAYS[backends[0]] if backends else None

    def _recover(self, until: Callable[[], object] = lambda: False) -> bool:
        """``recover`` until it is through, or something else is so; False where it never is."""
        deadline, tries = time.monotonic() + SETTLE_S, 0
        while tries < SETTLE_TRIES or time.monotonic() < deadline:
            done = self.host.vgpumgr("recover")
            self._told, tries = done.stdout + done.stderr, tries + 1
            if done.status == 0 or until():
                return True
            time.sleep(1)
        return False

    def _list_unknown(self) -> list[str]:
        """Our devices that QEMU has and libvirt does not know."""
        own = self._list_own()
        live = self.guest.dump() if own else ""
        unknown = [name for name in own if f"'{name}'" not in live]
        # one that the guest has released between the two looks is gone from both
        return [name for name in self._list_own() if name in unknown] if unknown else []

    def _list_own(self) -> list[str]:
        answer = self._ask_qemu(_ALIASES)
        return [one["name"] for one in json.loads(answer)["return"] if "vgpumgr" in one["name"]]

    def _ask_qemu(self, command: str, options: str = "") -> str:
        return self.host.check(
            f"virsh -q qemu-monitor-command {options} {self.guest.name} '{command}'"
        )

    def _stop_vm(self, profile: str, before: str, unknown: Sequence[str]) -> list[str]:
        """What is wrong while QEMU has a device that libvirt does not know, and once it is stopped."""
        holder = f'vm "{self.guest.name}"'
        if holder not in self._told:
            self._recover(until=lambda: holder in self._told)
        found = [] if holder in self._told else [f"{unknown}: {holder} is not named: {self._told}"]
        shown = self._show_vm(until=holder)
        if [WAYS[a["backend"]] for a in shown["attachments"]] != [profile]:
            found.append(f"{unknown}: not remembered as the VM's: {shown}")
        if not any(holder in problem for problem in shown["problems"]):
            found.append(f"{unknown}: vm show does not say who holds it: {shown['problems']}")
        status = read_status(self.host)
        if not status["interrupted"] and not status["drift"]:
            found.append(f"{unknown}: nothing is said to be unfinished")
        if self.guest.dump("--inactive") != before:
            found.append(f"{unknown}: the definition is not as before")
        vgpus, has = len(self.kernel.list(BUS)), driver(self.kernel, NIC)
        if (vgpus, has) != ((0, "vfio-pci") if profile == "passthrough" else (1, "e1000e")):
            found.append(f"{unknown}: {vgpus} mediated devices, {NIC} has {has}")
        if found:
            self._keep_evidence()
        self.guest.destroy()
        if not self._recover():
            found.append(f"after the VM was stopped: {self._told}")
        self.guest.start()
        return found

    def _show_vm(self, until: str) -> dict[str, Any]:
        """``vm show``, until its problems have those words or some time has passed."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            shown = dict(self.host.document("vm", "show", self.guest.name)["vm"])
            if until in str(shown["problems"]) or time.monotonic() > deadline:
                return shown
            time.sleep(1)

    def _list_wrong(self, profile: str | None, before: str) -> list[str]:
        status = read_status(self.host)
        found = [f"unfinished: {i}" for i in status["interrupted"]]
        found += [f"differs: {d}" for d in status["drift"]]
        live, config = self.guest.dump(), self.guest.dump("--inactive")
        if profile is None and config != before:
            found.append("the definition is not as before")
        if profile is None and "<hostdev" in live:
            found.append("the running machine still has a device")
        if profile is not None and not ("<hostdev" in live and "<hostdev" in config):
            found.append("the VM does not have all of it")
        vgpus = len(self.kernel.list(BUS))
        if vgpus != (profile == "mtty-2"):
            found.append(f"{vgpus} mediated devices")
        wanted = "vfio-pci" if profile == "passthrough" else "e1000e"
        if (now := driver(self.kernel, NIC)) != wanted:
            found.append(f"{NIC} has {now}")
        expected = {PROFILES[profile]} if profile else set()
        deadline = time.monotonic() + SETTLE_S
        while (seen := self.guest.list_pci() & set(PROFILES.values())) != expected:
            if time.monotonic() > deadline:
                return [*found, f"the guest sees {seen}"]
            time.sleep(0.5)
        return found

    def _keep_evidence(self) -> None:
        if len(self.evidence) > 1:
            return  # of the first that was wrong
        name = self.guest.name
        self.evidence |= {
            "recover": self._told,
            "vm show": self.host.vgpumgr("vm", "show", name).stdout,
            "status": self.host.vgpumgr("status").stdout,
            "live": self.guest.dump(),
            "config": self.guest.dump("--inactive"),
            "info pci": self._ask_qemu("info pci", "--hmp"),
            "journal": self.host.run(f"tail -n 40 {JOURNAL}").output,
            "libvirtd": self.host.run("tail -n 30 /run/libvirtd.log").output,
        }


def play(
    guest: NestedGuest,
    kernel: RealKernel,
    count: int,
    seed: int = 1,
    moments: Sequence[int] = (),
) -> dict[str, Any]:
    """Run, and tell what happened."""
    kills = Kills(guest, kernel, random.Random(seed), moments)
    kills.run(count)
    return {
        "seed": seed,
        "kills": sum(kills.outcomes.values()),
        "interrupted": kills.interrupted,
        "outcomes": dict(kills.outcomes),
        "wrong": kills.wrong,
        "evidence": kills.evidence if kills.wrong else {},
    }


def boot_and_play(host: LabHost, count: int, seed: int) -> dict[str, Any]:
    """``play`` in a new lab host."""
    host.check("modprobe -a kvm-amd vfio-pci vfio_iommu_type1 e1000e mtty")
    with nested_guest(host) as guest:
        return play(guest, RealKernel(host), count, seed)
