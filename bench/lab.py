"""A mediated device for a running guest, in the lab host: vgpumgr against mdevctl and virsh.

Everything runs in the lab host (real kernel, real libvirtd, a guest under KVM; all under TCG, where a Python starts in
seconds). Times are taken there, from before the first program starts until the last one has ended, in turn:

- floor: ``mdevctl start``, then ``virsh attach-device --live --config``, as a shell runs them;
- daemon: ``vgpumgr daemon`` runs; ``curl`` asks its API for the attach and gets its end (``Prefer: wait``), as a
  shell runs it. No Python starts. Planning, journal, record, note and reading everything back are in it;
- command: ``vgpumgr attach`` without a daemon, in a process whose modules were loaded before. Opening libvirt and
  starting the helper processes (a Python each) are in it, starting Python for the command itself is not.

Only the daemon has a goal: the command pays for processes that a daemon keeps.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable
from uuid import uuid4

from bench.registry import ROOT, Figure, at_most
from tests.lab.host import LabHost, boot
from tests.lab.nested import MTTY_ID, NestedGuest, nested_guest

ROUNDS = 7
TYPE = "mtty-2"
_API = "curl -sS --fail-with-body --unix-socket /run/vgpumgr/vgpumgr.sock"
_BACKEND = "guest under KVM in the lab host under TCG"


def run(small: bool = False) -> Iterable[Figure]:
    """Boot a lab host and a guest; ``small``: each way once."""
    rounds = 1 if small else ROUNDS
    with boot() as host:
        host.check("modprobe mtty")
        with nested_guest(host) as guest:
            floors, commands = [], []
            for _ in range(rounds):
                floors.append(measure_floor(guest))
                commands.append(measure_command(guest))
            yield make_figure("the command, no daemon", commands, floors, None)
            start_daemon(host)
            floors, asked = [], []
            for _ in range(rounds + 1):
                floors.append(measure_floor(guest))
                asked.append(measure_daemon(guest))
            # the first starts the daemon's helpers and opens its connections
            yield make_figure("the daemon, asked by curl", asked[1:], floors[1:], 1.3)


def make_figure(name: str, ours: list[float], floors: list[float], limit: float | None) -> Figure:
    """Medians."""
    mine, floor = statistics.median(ours), statistics.median(floors)
    goal, met = at_most(limit, mine, floor) if limit else ("no goal", True)
    title = f"attach {TYPE}: {name}"
    return Figure(title, mine, floor, "s", "mdevctl start, virsh attach", goal, met, _BACKEND)


def time_script(host: LabHost, script: str) -> float:
    """Seconds that a script of one line takes in the lab host; it must succeed."""
    words = f"a=$EPOCHREALTIME; {script}; s=$?; b=$EPOCHREALTIME; echo; echo $s $a $b"
    *said, last = host.check(words).splitlines()
    status, start, end = last.split()
    if status != "0":
        raise RuntimeError(f"{script}: {said}")
    return float(end) - float(start)


def measure_floor(guest: NestedGuest) -> float:
    """mdevctl and virsh; everything is taken away again after the clock has stopped."""
    host, uuid = guest.host, uuid4()
    xml = f"/out/{uuid}.xml"
    (host.out / f"{uuid}.xml").write_text(
        "<hostdev mode='subsystem' type='mdev' model='vfio-pci' display='off'>"
        f"<source><address uuid='{uuid}'/></source></hostdev>"
    )
    took_s = time_script(
        host,
        f"mdevctl start -u {uuid} -p mtty --type {TYPE} &&"
        f" virsh -q attach-device {guest.name} {xml} --live --config",
    )
    guest.wait_pci(MTTY_ID, present=True)
    host.check(f"virsh -q detach-device {guest.name} {xml} --live --config")
    guest.wait_pci(MTTY_ID, present=False)
    host.wait_until(f"! virsh -q dumpxml {guest.name} | grep -q {uuid}")
    host.check(f"mdevctl stop -u {uuid}")
    return took_s


def measure_command(guest: NestedGuest) -> float:
    """``vgpumgr attach`` in a process that is forked from one that has loaded it."""
    host = guest.host
    done = host.run_module("tests.lab.timed", "attach", guest.name, "--profile", TYPE)
    guest.wait_pci(MTTY_ID, present=True)
    host.succeed("detach", guest.name)
    return float(done["took_s"])


def start_daemon(host: LabHost) -> None:
    """The daemon, until the lab host ends."""
    host.check(
        f"cd {ROOT} && {{ {sys.executable} -m vgpumgr daemon >/run/daemon.log 2>&1 </dev/null & }}"
    )
    host.wait_until(f"{_API} http://localhost/1.0")


def measure_daemon(guest: NestedGuest) -> float:
    """One request, answered when the attach is over."""
    host = guest.host
    body = json.dumps({"vm": guest.name, "profile": TYPE})
    attachments = "http://localhost/1.0/attachments"
    took_s = time_script(host, ask(body, attachments))
    guest.wait_pci(MTTY_ID, present=True)
    time_script(host, ask("{}", f"{attachments}/{guest.name}/detach"))
    guest.wait_pci(MTTY_ID, present=False)
    return took_s


def ask(body: str, url: str) -> str:
    """A script that asks for an operation, gets its end, and fails if it failed."""
    headers = "-H 'Content-Type: application/json' -H 'Prefer: wait=60'"
    return (
        f"""r=$({_API} {headers} -d '{body}' {url}) && """
        """{ [[ $r == *'"status":"succeeded"'* ]] || { echo "$r"; false; }; }"""
    )
