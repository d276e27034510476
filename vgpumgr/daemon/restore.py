"""``restore``: after a boot, MIG mode, layouts, attachments' slices and their channels come back.

At boot it runs before libvirt does (it starts the VMs), and asks libvirt nothing: one that is started
by its socket would wait for us. By hand it also writes the notes of VMs again whose slice has another
UUID now; after a boot the daemon does. It may be repeated at any time, does only what is missing, and
destroys nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import closing
from functools import partial

from vgpumgr.daemon.hostdev_observing import follow_vgpus
from vgpumgr.daemon.layout_apply import check_permitted, run_plan, settle_layouts
from vgpumgr.daemon.layout_store import open_layouts
from vgpumgr.daemon.parts import Parts
from vgpumgr.daemon.pci_restore import restore_pci
from vgpumgr.daemon.recovery_documents import RestoreDocument
from vgpumgr.daemon.vgpu_restore import restore_vgpus
from vgpumgr.errors import VgpumgrError
from vgpumgr.host.lock import lock_file
from vgpumgr.mig.layout.change import LayoutPlan
from vgpumgr.plan.channel_steps import WORKER_TIMEOUT_S
from vgpumgr.plan.domain_steps import WriteNote
from vgpumgr.plan.executor import Executor
from vgpumgr.plan.layout_plan import make_step
from vgpumgr.plan.layout_record import DesiredLayout
from vgpumgr.plan.record import AttachmentRecord, AttachmentState
from vgpumgr.plan.restore import RestorePlan, list_records, plan_instances, plan_modes, rebind
from vgpumgr.plan.restore_steps import RestoreWorld, bind, make_restore_plan
from vgpumgr.plan.step import OnFailure, Plan
from vgpumgr.plan.world import World, wait_until
from vgpumgr.virtio.channel import RING_BYTES, ChannelSpec, ChannelStatus

TIMEOUT_S = 240.0


class Restorer:
    """One run."""

    def __init__(self, parts: Parts, timeout_s: float = TIMEOUT_S) -> None:
        self._parts = parts
        self._end_s = parts.clock.monotonic_s() + timeout_s
        self._timeout_s = timeout_s
        self.done: list[str] = []
        self.problems: list[str] = []
        self.notes: list[str] = []
        self._rebound: list[AttachmentRecord] = []

    def restore(self, *, early: bool = False, boot: bool = False) -> RestoreDocument:
        """Does what it can; what it cannot is told. ``early``: only functions and virtual functions
        that are taken at every boot, without asking NVML; ``boot``: libvirt is not asked.
        Raises NotPermittedError, LockHeldError, and StoreError where it cannot read what there was.
        """
        parts = self._parts
        check_permitted(parts)
        with lock_file(parts.run_dir / "vgpumgr.lock", clock=parts.clock):
            if early:
                self.done += restore_pci(parts, self._try, early=True)
                return RestoreDocument(done=self.done, problems=self.problems, notes=[])
            layouts = open_layouts(parts).read_layouts()
            records = parts.store.list_attachments()
            # a host without MIG slices needs no NVML
            cut = bool(layouts) or any(record.mig_part for record in records)
            if cut:
                self._restore_modes(dict(layouts), list(records))
            # between: making virtual functions takes MIG instances away, and keeps the mode
            self.done += restore_pci(parts, self._try)
            if cut:
                self._restore(dict(layouts), list(records))
            self.notes += restore_vgpus(parts, self._try)
            follow_vgpus(parts)
            if not boot:
                self._write_notes()
            halves = [r for r in records if r.state is not AttachmentState.ATTACHED]
            self.problems += [
                f"attachment {r.id} of {r.vm_name} is half {r.state}: vgpumgr recover"
                for r in halves
            ]
        return RestoreDocument(done=self.done, problems=self.problems, notes=self.notes)

    def _restore_modes(
        self, layouts: dict[str, DesiredLayout], records: list[AttachmentRecord]
    ) -> None:
        self.done += settle_layouts(self._parts)
        self._run(plan_modes(self._parts.read_inventory().gpus, layouts, records))

    def _restore(self, layouts: dict[str, DesiredLayout], records: list[AttachmentRecord]) -> None:
        self._run(plan_instances(self._parts.read_inventory().gpus, layouts, records))
        self._restore_attachments(records)

    def _run(self, plan: RestorePlan) -> None:
        self.problems += plan.problems
        for piece in plan.pieces:
            what = make_step(piece.steps[0]).describe()

            self._try(what, partial(self._carry_out, piece))

    def _carry_out(self, piece: LayoutPlan) -> None:
        parts = self._parts
        store, gpus = parts.store, parts.read_inventory().gpus
        plan = make_restore_plan(piece, store.list_attachments())
        run_plan(plan, RestoreWorld(parts.nvml, parts.clock, gpus, store=store), parts)

    def _try(self, what: str, action: Callable[[], object]) -> bool:
        if self._parts.clock.monotonic_s() >= self._end_s:
            self.problems.append(f"{what}: not begun within {self._timeout_s:g} s")
            return False
        try:
            action()
        except VgpumgrError as error:
            parts = (error.error, error.cause, error.why, *error.held_by)
            self.problems.append(f"{what}: {'; '.join(p for p in parts if p)}")
            return False
        self.done.append(what)
        return True

    def _restore_attachments(self, records: list[AttachmentRecord]) -> None:
        mine = list_records(records)
        gpus = self._parts.read_inventory().gpus
        found = rebind({gpu.uuid: gpu.instances for gpu in gpus}, records)
        started = []
        for record in mine:
            what = f"slice and channel of {record.vm_name} ({record.profile})"
            ref = found[record.id]
            if ref is None:
                self.problems.append(f"{what}: no slice of that size stands at {record.placement}")
                continue
            changed = ref != record.mig
            bound = bind(record, ref)
            if changed:
                self._parts.store.save_attachment(bound)
                self._rebound.append(bound)
            if record.channel is None:
                continue
            if self._needs_start(bound, changed) and self._try(what, partial(self._start, bound)):
                started.append(bound)
        for record in started:
            self._await_worker(record)

    def _write_notes(self) -> None:
        for record in self._rebound:
            step = WriteNote(record.vm_name, record.vm_uuid, record.id)
            self._try(step.describe(), partial(self._write_note, record, step))

    def _write_note(self, record: AttachmentRecord, step: WriteNote) -> None:
        # an old note is better than none: nothing is undone
        plan: Plan[World] = Plan(
            "recover", record.vm_name, (step,), OnFailure.STOP, (), {"attachment": record.id}
        )
        world = self._parts.make_world(record)
        with closing(self._parts.open_journal()) as journal:
            Executor(world, journal, list_late=self._parts.list_late).run(
                plan, secrets.token_hex(8), world.facts
            )

    def _needs_start(self, record: AttachmentRecord, changed: bool) -> bool:
        status = self._read_status(record)
        if status is None:
            return True
        if changed or status.worker_failed:
            # it looks for a device that is no more
            self._parts.channels.stop(record.id)
            return True
        return False

    def _read_status(self, record: AttachmentRecord) -> ChannelStatus | None:
        try:
            return self._parts.channels.read_status(record.id)
        except VgpumgrError:
            return None

    def _start(self, record: AttachmentRecord) -> None:
        assert record.mig is not None
        assert record.channel is not None
        self._parts.channels.start(
            ChannelSpec(
                id=record.id,
                vm_name=record.vm_name,
                cuda_device=str(record.mig.uuid),
                ring=record.has_ring,
                serial=record.has_serial,
                memory_bytes=RING_BYTES,
                number=record.number,
                socket_owner=record.channel.qemu_owner,
            )
        )

    def _await_worker(self, record: AttachmentRecord) -> None:
        clock = self._parts.clock
        left_s = max(0.0, min(WORKER_TIMEOUT_S, self._end_s - clock.monotonic_s()))

        def is_settled() -> bool:
            status = self._read_status(record)
            return status is None or status.worker_ready or status.worker_failed

        wait_until(clock, is_settled, left_s)
        status = self._read_status(record)
        if status is None or not status.worker_ready:
            why = status.problem if status else "its keeper is gone"
            self.problems.append(f"the worker of {record.vm_name} is not ready: {why}")


def restore(
    parts: Parts, timeout_s: float = TIMEOUT_S, *, early: bool = False, boot: bool = False
) -> RestoreDocument:
    """See ``Restorer.restore``."""
    return Restorer(parts, timeout_s).restore(early=early, boot=boot)
