"""libvirtd killed while a running guest gets a device of the host and loses it.

    python -m tests.lab kills --states N --seed N

When a random line of each operation stands in the journal, libvirtd gets SIGKILL and is started again; its QEMU lives
on. After ``vgpumgr recover`` the device must be the VM's as a whole, with its record, or the host's as if nothing had
been.
"""

from __future__ import annotations

import random
import time
from collections import Counter
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
#: a device whose guest was asked to release it may still be on its way
SETTLE_TRIES = 5


@dataclass
class Kills:
    """One run."""

    guest: NestedGuest
    kernel: RealKernel
    choice: random.Random
    outcomes: Counter[str] = field(default_factory=Counter)
    interrupted: int = 0
    wrong: list[str] = field(default_factory=list)

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
            status = self._strike(verb, asked)
            profile = self._settle()
            self.outcomes[
                f"{verb} {asked}: {status}, then {'attached' if profile else 'free'}"
            ] += 1
            found = self._list_wrong(profile, before)
            if status == 0 and (profile is None) is not (verb == "detach"):
                found.append("acknowledged, but it is not so")
            self.wrong += [f"{number} ({verb} {asked}, exit {status}): {text}" for text in found]
            if found:
                return
        if profile:
            self.host.vgpumgr("detach", self.guest.name)
            self.wrong += self._list_wrong(self._settle(), before)

    def _strike(self, verb: str, profile: str) -> int:
        words = [verb, self.guest.name]
        if verb == "attach":
            words += ["--profile", profile]
            words += ["--gpu", NIC] if profile == "passthrough" else []
        written = int(self.host.check(f"cat {JOURNAL} 2>/dev/null | grep -ac . || true"))
        line = written + self.choice.randint(1, LINES)
        operation = self.host.start_vgpumgr(*words)
        reached = f"[ $(grep -ac . {JOURNAL}) -ge {line} ]"
        self.host.run(f"for _ in {{1..400}}; do {reached} && break; sleep 0.05; done")
        time.sleep(self.choice.random() * LINGER_S)
        kill_libvirtd(self.host)
        start_libvirtd(self.host)
        done = self.host.finish_vgpumgr(operation)
        self.interrupted += done.status != 0
        return done.status

    def _settle(self) -> str | None:
        """The profile that the VM has when everything has come to rest."""
        for _ in range(SETTLE_TRIES):
            done = self.host.vgpumgr("recover")
            if done.status == 0:
                break
            time.sleep(1)
        attachments = self.host.document("vm", "show", self.guest.name)["vm"]["attachments"]
        backends = [attachment["backend"] for attachment in attachments]
        return WAYS[backends[0]] if backends else None

    def _list_wrong(self, profile: str | None, before: str) -> list[str]:
        status = self.host.document("status")
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
        seen = {identity for identity in PROFILES.values() if identity in self.guest.list_pci()}
        if seen != ({PROFILES[profile]} if profile else set()):
            found.append(f"the guest sees {seen}")
        return found


def play(guest: NestedGuest, kernel: RealKernel, count: int, seed: int = 1) -> dict[str, Any]:
    """Run, and tell what happened."""
    kills = Kills(guest, kernel, random.Random(seed))
    kills.run(count)
    return {
        "seed": seed,
        "kills": sum(kills.outcomes.values()),
        "interrupted": kills.interrupted,
        "outcomes": dict(kills.outcomes),
        "wrong": kills.wrong,
    }


def boot_and_play(host: LabHost, count: int, seed: int) -> dict[str, Any]:
    """``play`` in a new lab host."""
    host.check("modprobe -a kvm-amd vfio-pci vfio_iommu_type1 e1000e mtty")
    with nested_guest(host) as guest:
        return play(guest, RealKernel(host), count, seed)
