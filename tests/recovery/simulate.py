"""Deterministic simulation: ``python -m tests.recovery.simulate --seed N --count N [-v]``.

Planner, executor, journal and recovery on a simulated machine, clock and libvirt, in one process. A
seed chooses a history: operations, crashes at any point, errors, helpers that come back late with or
without effect, a full disk, failing syncs, people who undefine, rename, start and stop VMs or make
instances, dead keepers, reboots. A crash is an exception after which nothing of that process has any
effect. In the end everything is detached: nothing may be left, nothing of others may be missing.

A seed that fails fails again: run it alone with ``-v`` to see its history.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import random
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.recovery.invariants import list_wrong_sums
from tests.recovery.scenarios import INSTANCE_SHARE, name_ids
from tests.recovery.simulate_host import ERRORS, PROFILES, HostSide
from tests.recovery.world import CHANGES, SavedStore, World
from vgpumgr.app.operations.recovery import Policy
from vgpumgr.errors import ChannelStartError, LibvirtError, NvmlError, VgpumgrError
from vgpumgr.model.attachment import AttachmentRecord
from vgpumgr.model.mig import Placement
from vgpumgr.model.request import AttachRequest

VMS = ("vm01", "vm02", "vm03")
ACTIONS = 10


class Crash(BaseException):
    """The process is gone."""


class MemoryStore(SavedStore):
    """Records in memory; ``kept`` outlives the process."""

    kept: dict[str, AttachmentRecord]

    def list_attachments(self) -> tuple[AttachmentRecord, ...]:
        return tuple(sorted(self.kept.values(), key=lambda r: (r.created_s, r.id)))

    def save_attachments(self, records: Sequence[AttachmentRecord]) -> None:
        self.world.point("before save")
        self.kept.update({record.id: record for record in records})
        self.world.point("after save")

    def delete_attachment(self, attachment_id: str) -> None:
        self.world.point("before delete")
        self.kept.pop(attachment_id, None)
        self.world.point("after delete")

    def find_damage(self) -> str | None:
        return None


class Simulation:
    """One history."""

    def __init__(self, root: Path, seed: int) -> None:
        self.choice = random.Random(seed)
        self.root = root
        self.history: list[str] = []
        self.faults: Counter[str] = Counter()
        self.kept: dict[str, AttachmentRecord] = {}
        self.boot = 1
        self.points_left: int | None = None
        self.disk_error: int | None = None
        self.sync_error = False
        self.mode_may_stay = False
        self.host = HostSide(self.choice)
        name_ids("dddd")
        self.world = self._start()
        self.world.make(mig=self.choice.random() < 0.5, running=self.choice.random() < 0.5)
        self.world.channels.hello = self.choice.random() < 0.5
        self.modes = {uuid: gpu.mig.current for uuid, gpu in self.world.nvml.gpus.items()}
        self.strangers = {
            (uuid, i.id) for uuid, gpu in self.world.nvml.gpus.items() for i in gpu.instances
        }
        self.world.save()

    def _start(self) -> World:
        """A new process on the same machine."""
        world = World(self.root, self._point, f"boot-{self.boot}")
        store = MemoryStore(self.root / "unused")
        store.world, store.kept = world, self.kept
        world.store = store
        parts = replace(world.parts, store=store)
        world.parts = parts
        world.service = type(world.service)(parts)
        world.recovery = type(world.recovery)(parts)
        return world

    def _point(self, _name: str) -> None:
        if self.points_left is None:
            return
        self.points_left -= 1
        if self.points_left < 0:
            raise Crash

    def run(self) -> list[str]:
        """The history, then the end; what was wrong."""
        for _ in range(ACTIONS):
            self._act()
        return self._end()

    def _act(self) -> None:
        actions = [self._operate] * 5 + [
            self._operate_and_crash,
            self._operate_and_crash,
            self._operate_and_crash,
            self._operate_with_error,
            self._operate_late,
            self._come_back,
            self._disk,
            self._meddle,
            self._meddle_with_host,
            self._lose_keeper,
            self._reboot,
        ]
        self.choice.choice(actions)()

    def _operate(self) -> None:
        vm = self.choice.choice(VMS)
        kind = self.choice.choice(
            ("attach", "attach", "attach", "detach", "recover", "host", "host")
        )
        text = f"{kind} {vm}"
        act: Callable[[], object] | None = None
        if kind == "host":
            text, act = self.host.choose(self.world)
        self.history.append(text)
        try:
            if act is not None:
                act()
            elif kind == "attach":
                slices = ("1g.10gb", "2g.20gb", "3g.40gb", INSTANCE_SHARE) * 3
                profile = self.choice.choice(slices + PROFILES)
                self.history[-1] += f" {profile}"
                config = self.choice.random() < 0.3
                add = self.choice.random() < 0.3
                request = AttachRequest(vm, profile, config=config, add=add, hello_timeout_s=0.2)
                self.world.service.attach(request)
            elif kind == "detach":
                self.world.service.detach(vm)
            else:
                self.world.recovery.recover(Policy(readd=self.choice.random() < 0.5))
        except VgpumgrError as error:
            self.history.append(f"  {type(error).__name__}: {error}")

        # a detach leaves the mode to vGPUs that live in instances, and says so
        self.modes |= {uuid: True for uuid, _ in self.world.vgpus.inside.values()}

    def _operate_and_crash(self) -> None:
        self.points_left = self.choice.randint(0, 60)
        try:
            self._operate()
        except Crash:
            self.history.append("  crash")
            self.faults["crash"] += 1
        finally:
            self.points_left = None
        self.world = self._start()

    def _operate_with_error(self) -> None:
        errors: list[tuple[str, str, Exception]] = [
            *(("nvml", name, NvmlError("refused")) for name in sorted(CHANGES)),
            *ERRORS,
            ("channels", "start", ChannelStartError("no worker")),
            ("channels", "stop", ChannelStartError("does not stop")),
            ("channels", "set_memory", ChannelStartError("refused")),
            ("hypervisor", "attach_device config", LibvirtError("refused")),
            ("hypervisor", "attach_device live", LibvirtError("refused")),
            ("hypervisor", "detach_device config", LibvirtError("refused")),
            ("hypervisor", "set_notes config", LibvirtError("refused")),
        ]
        # whichever of them the operation comes to
        chosen = self.choice.sample(errors, 4)
        for part, method, error in chosen:
            getattr(self.world, part).fail[method] = error
        self.history.append(f"{', '.join(method for _, method, _ in chosen)} fail once")
        self._operate()
        for part, method, _ in chosen:
            fails = getattr(self.world, part).fail
            happened = method not in fails
            self.faults["error"] += happened
            # turning it off is tried once, and said if it fails
            self.mode_may_stay |= happened and method == "set_mig_mode"
            fails.clear()

    def _operate_late(self) -> None:
        if self.world.pending is None:
            self.world.late_at = self.world.writes + self.choice.randint(1, 4)
            self.world.dies_when_late = False
            self.history.append(f"write {self.world.late_at} gets late")
            self._operate()
            self.faults["late"] += self.world.late_at is None
            self.world.late_at = None

    def _come_back(self) -> None:
        if self.world.pending is not None:
            takes_effect = self.choice.random() < 0.5
            self.history.append(f"the late call comes back, effect: {takes_effect}")
            self.world.finish_late(takes_effect=takes_effect)

    def _disk(self) -> None:
        self.disk_error = errno.ENOSPC if self.choice.random() < 0.5 else None
        self.sync_error = self.disk_error is None
        self.history.append("the disk is full" if self.disk_error else "a sync fails")
        self._operate()
        self.faults["disk"] += 1
        self.disk_error, self.sync_error = None, False
        # an administrator looks after the disk
        self.world.recovery.recover(Policy())

    def _meddle(self) -> None:
        """Somebody else works on the machine."""
        machine = self.world.hypervisor.machines[self._uuid(self.choice.choice(VMS))]
        what = self.choice.choice(("start", "stop", "instance"))
        self.history.append(f"somebody: {what} {machine.name}")
        if what == "start":
            machine.live = machine.config
        elif what == "stop":
            machine.live = None
        else:
            self._make_instance()
        self.world.save()
        self.faults["meddling"] += 1

    def _meddle_with_host(self) -> None:
        self.history.append(f"somebody: {self.host.meddle(self.world)}")
        self.faults["meddling"] += 1

    def _make_instance(self) -> None:
        uuid, gpu = self.choice.choice(list(self.world.nvml.gpus.items()))
        if not gpu.mig.current or self.world.pending is not None:
            return
        place = Placement(self.choice.randrange(7), 1)
        if any(i.placement.overlaps(place) for i in gpu.instances):
            return
        create = super(type(self.world.nvml), self.world.nvml).create_gpu_instance
        instance = create(uuid, 19, place)
        compute = super(type(self.world.nvml), self.world.nvml).create_compute_instance
        compute(uuid, instance.id, 1)
        self.strangers.add((uuid, instance.id))

    def _uuid(self, name: str) -> str:
        return next(u for u, m in self.world.hypervisor.machines.items() if m.name == name)

    def _lose_keeper(self) -> None:
        running = sorted(self.world.channels.running)
        if running:
            self.history.append("a keeper dies")
            del self.world.channels.running[self.choice.choice(running)]
            self.world.save()
            self.faults["keeper"] += 1

    def _reboot(self) -> None:
        self.history.append("reboot")
        self.boot += 1
        for uuid, _instance in self.strangers:
            if not any(r.gpu == uuid and r.mig_mode_enabled for r in self.kept.values()):
                # a detach left the mode to whoever used it, and said so: it is nobody's any more
                self.modes[uuid] = True
        self.strangers.clear()
        self.host.reboot()
        self.world.reboot()
        self.world = self._start()
        self.faults["reboot"] += 1

    def _end(self) -> list[str]:
        """Everything late comes back, everything is recovered, then detached."""
        self._come_back()
        first = self.world.recovery.recover(Policy(readd=True))
        changes, kept = self.world.changes, dict(self.kept)
        again = self.world.recovery.recover(Policy(readd=True))
        wrong = []
        if again.actions and [a for a in again.actions if a.done]:
            wrong.append(f"a second recovery does something: {again.actions}")
        if changes != self.world.changes or kept != self.kept:
            wrong.append("a second recovery changes something")
        places = Counter((r.gpu, r.placement) for r in kept.values() if r.share_part and r.mig_part)
        self.faults["shared instance"] += sum(count > 1 for count in places.values())
        wrong += list_wrong_sums(self.world, [*kept.values()])
        # others may live by now in what an interrupted operation has made: it ends with them
        wrong += [
            f"not done: {a.subject}: {a.text}"
            for a in first.actions
            if not a.done and "kept" not in a.text and a.subject not in ("vGPU", "layout")
        ]
        for vm in VMS:
            if any(r.vm_name == vm for r in self.kept.values()):
                self.world.service.detach(vm, every=True)
        self._forget_layouts()
        self.host.clean(self.world)
        last = self.world.recovery.recover(Policy())
        wrong += [f"never done: {a.subject}: {a.text}" for a in last.actions if not a.done]
        if left := self.world.parts.open_journal().unfinished():
            wrong.append(f"operations have no end: {list(left)}")
        return wrong + [*self._list_left(), *self.host.list_left(self.world)]

    def _forget_layouts(self) -> None:
        """A layout decides of all instances of its GPU, and of its mode."""
        for uuid, gpu in self.world.nvml.gpus.items():
            if gpu.pci in self.host.laid_out:
                self.strangers = {(u, id_) for u, id_ in self.strangers if u != uuid}
                self.modes[uuid] = False

    def _list_left(self) -> Iterator[str]:
        if self.kept:
            yield f"records are left: {self.kept}"
        there = {(u, i.id) for u, gpu in self.world.nvml.gpus.items() for i in gpu.instances}
        if there - self.strangers:
            yield f"instances are left: {there - self.strangers}"
        if self.strangers - there:
            yield f"somebody else's instances are gone: {self.strangers - there}"
        for machine in self.world.hypervisor.machines.values():
            for domain in (machine.config, machine.live):
                if domain is not None and domain.own_aliases():
                    yield f"{machine.name} has {domain.own_aliases()}"
            if machine.notes:
                yield f"{machine.name} has a note"
            if machine.name == "vm03" and machine.config and machine.config.has_serial_controller:
                yield "vm03 has a controller more"
        if self.world.channels.running:
            yield f"keepers are left: {sorted(self.world.channels.running)}"
        for uuid, gpu in () if self.mode_may_stay else self.world.nvml.gpus.items():
            may_stay = self.modes[uuid] or gpu.pci in self.host.lived_on - self.host.laid_out
            if gpu.mig.current and not may_stay and not gpu.instances:
                yield f"MIG mode of {uuid} is left on"


@contextmanager
def simulated_disk(current: list[Simulation]) -> Iterator[None]:
    """Journal writes pass points, and fail when the disk does."""
    pwrite, fdatasync = os.pwrite, os.fdatasync

    def write(descriptor: int, data: bytes, offset: int) -> int:
        simulation = current[-1]
        simulation._point("before journal")
        if simulation.disk_error:
            raise OSError(simulation.disk_error, "No space left on device")
        written = pwrite(descriptor, data, offset)
        simulation._point("after journal")
        return written

    def sync(_descriptor: int) -> None:
        simulation = current[-1]
        if simulation.sync_error and simulation.choice.random() < 0.2:
            raise OSError(errno.EIO, "Input/output error")
        simulation._point("after sync")

    os.pwrite, os.fdatasync = write, sync  # type: ignore[assignment]
    try:
        yield
    finally:
        os.pwrite, os.fdatasync = pwrite, fdatasync


def simulate(seeds: range, *, verbose: bool = False) -> dict[str, Any]:
    """Runs all; answers faults that happened and what was wrong, by seed."""
    wrong: dict[int, list[str]] = {}
    faults: Counter[str] = Counter()
    scratch = "/dev/shm" if Path("/dev/shm").is_dir() else None
    current: list[Simulation] = []
    with tempfile.TemporaryDirectory(dir=scratch) as directory, simulated_disk(current):
        for seed in seeds:
            root = Path(directory) / "root"
            simulation: Simulation | None = None
            try:
                current.clear()
                current.append(_placeholder())
                simulation = Simulation(root, seed)
                current[:] = [simulation]
                problems = simulation.run()
            except Exception:
                problems = [traceback.format_exc()]
            if simulation is not None:
                faults += simulation.faults
                if verbose:
                    print("\n".join(simulation.history))
            if problems:
                wrong[seed] = problems
            shutil.rmtree(root, ignore_errors=True)
    return {"seeds": len(seeds), "faults": dict(faults), "wrong": wrong}


def _placeholder() -> Any:
    """While a simulation is being made nothing fails."""

    class Quiet:
        disk_error = None
        sync_error = False

        def _point(self, _name: str) -> None:
            return

    return Quiet()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    answer = simulate(range(options.seed, options.seed + options.count), verbose=options.verbose)
    print(json.dumps(answer, indent=1))
    return int(bool(answer["wrong"]))


if __name__ == "__main__":
    sys.exit(main())
