"""``restore``: after a boot, MIG mode, layouts, attachments' slices and their channels come back.

At boot it runs before libvirt does (it starts the VMs), and asks libvirt nothing: one that is started
by its socket would wait for us. By hand it also writes the notes of VMs again whose slice has another
UUID now; after a boot the daemon does. It may be repeated at any time, does only what is missing, and
destroys nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from vgpumgr.app.context import Parts
from vgpumgr.app.documents.operations import RestoreDocument
from vgpumgr.app.operations.layout_apply import execute_layout
from vgpumgr.app.operations.pci_recovery import execute_pci
from vgpumgr.app.operations.vgpus import VgpuService
from vgpumgr.app.refusal_hints import find_enabling
from vgpumgr.app.transactions import ATTACHMENTS, LAYOUTS, VGPUS, MachineFamilies
from vgpumgr.backends.base import Restored
from vgpumgr.backends.registry import find_backend
from vgpumgr.engine.context import wait_until
from vgpumgr.engine.recovery import list_unfinished
from vgpumgr.engine.step import OnFailure, Plan
from vgpumgr.engine.transaction import Transaction, open_transaction
from vgpumgr.errors import PciBusyError, PciNotFoundError, VgpumgrError
from vgpumgr.host.process import has_ended
from vgpumgr.mdev.records import read_records
from vgpumgr.mig.layout.change import LayoutPlan
from vgpumgr.model.attachment import AttachmentRecord, AttachmentState
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import DesiredLayout, Placement
from vgpumgr.model.pci import Binding, Function, PciAddress, UserKind, VfSetting
from vgpumgr.model.vgpu import VgpuRecord
from vgpumgr.passthrough.sriov import SrIovDriver, find_driver
from vgpumgr.planning.drift import is_same
from vgpumgr.planning.layouts import RestorePlan, make_restore_plan, plan_instances, plan_modes
from vgpumgr.planning.passthrough import BIND, ENABLE
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.planning.vfs import make_again
from vgpumgr.steps.channel import WORKER_TIMEOUT_S, make_spec
from vgpumgr.steps.domain import WriteNote
from vgpumgr.steps.mig import make_step
from vgpumgr.steps.pci import BindDriver
from vgpumgr.steps.vgpu import describe_place
from vgpumgr.virtio.channel import ChannelStatus

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
        #: GPU instances that this run has made, or completed
        self._made: set[tuple[str, Placement]] = set()
        self._transaction: Transaction

    def restore(self, *, early: bool = False, boot: bool = False) -> RestoreDocument:
        """Does what it can; what it cannot is told. ``early``: only functions and virtual functions
        that are taken at every boot, without asking NVML; ``boot``: libvirt is not asked.
        Raises NotPermittedError, LockHeldError, and StoreError where it cannot read what there was.
        """
        parts = self._parts
        families = MachineFamilies(parts, _list_excluded(early, boot))
        with open_transaction(parts, families, "restore") as self._transaction:
            self._recover()
            if early:
                restore_pci(parts, self._transaction, self._try, early=True)
                return self._describe(dry_run=False)
            self._end_runs()
            layouts = parts.store.read_layouts()
            records = parts.store.list_attachments()
            # a host without MIG slices needs no NVML
            cut = bool(layouts) or any(record.mig_part for record in records)
            if cut:
                self._restore_modes(dict(layouts), list(records))
            # between: making virtual functions takes MIG instances away, and keeps the mode
            restore_pci(parts, self._transaction, self._try)
            if cut:
                self._restore(dict(layouts), list(records))
            restore_vgpus(parts, self._transaction, self._try)
            self._restore_attachments()
            if not boot:
                self._write_notes()
            halves = [r for r in records if r.state is not AttachmentState.ATTACHED and not r.run]
            self.problems += [
                f"attachment {r.id} of {r.vm_name} is half {r.state}: vgpumgr recover"
                for r in halves
            ]
        return self._describe(dry_run=False)

    def _describe(self, *, dry_run: bool) -> RestoreDocument:
        return RestoreDocument(
            dry_run=dry_run, done=self.done, problems=self.problems, notes=self.notes
        )

    def plan(self, *, early: bool = False) -> RestoreDocument:
        """What ``restore`` would do, by the same decisions, and what it could not. Changes nothing."""
        parts = self._parts
        self.problems += [
            f"{found.operation} of {found.subject} was interrupted, and would be recovered first"
            for found in list_unfinished(parts.open_journal().look())
        ]
        if early:
            restore_pci(parts, None, self._check, early=True)
            return self._describe(dry_run=True)
        layouts = dict(parts.store.read_layouts())
        records = [r for r in parts.store.list_attachments() if not has_ended(r.run, parts.boot_id)]
        gpus: Sequence[Gpu] = ()
        if layouts or any(record.mig_part for record in records):
            modes = plan_modes(parts.read_inventory().gpus, layouts, records)
            self._list(modes)
            enabled = {piece.steps[0].gpu_uuid for piece in modes.pieces}
            gpus = [
                replace(gpu, mig=replace(gpu.mig, current=True))
                if str(gpu.uuid) in enabled
                else gpu
                for gpu in parts.read_inventory().gpus
            ]
        restore_pci(parts, None, self._check)
        self._list(plan_instances(gpus, layouts, records))
        restore_vgpus(parts, None, self._check)
        self._list_attachments(records)
        return self._describe(dry_run=True)

    def _list(self, plan: RestorePlan) -> None:
        """Pieces of a plan as they would be reported."""
        self.problems += plan.problems
        self.done += self._name_pieces(plan)
        places = (
            (s.gpu_uuid, s.parent_placement or s.placement) for p in plan.pieces for s in p.steps
        )
        self._made |= {(gpu, place) for gpu, place in places if place is not None}

    def _name_pieces(self, plan: RestorePlan) -> list[str]:
        """What each piece does, for people, with the GPU's index of now."""
        indexes = {str(gpu.uuid): gpu.index for gpu in self._parts.read_inventory().gpus}
        steps = [piece.steps[0] for piece in plan.pieces]
        return [make_step(step, indexes.get(step.gpu_uuid)).describe() for step in steps]

    def _check(self, what: str, check: Callable[[], object]) -> bool:
        """Reports what would be done, where nothing refuses it."""
        try:
            check()
        except VgpumgrError as error:
            self.problems.append(_describe_failure(what, error))
            return False
        self.done.append(what)
        return True

    def _list_attachments(self, records: Sequence[AttachmentRecord]) -> None:
        snapshot = Snapshot(self._parts)
        for record in records:
            restored = find_backend(record.backend).restore(record, snapshot)
            what = f"slice and channel of {record.vm_name} ({record.profile})"
            if record.placement is not None and (str(record.gpu), record.placement) in self._made:
                self.done += [what] if record.channel else []
            elif restored is not None and restored.problem is not None:
                self.problems.append(f"{what}: {restored.problem}")
            elif restored is not None and restored.starts_channel:
                status = self._read_status(record)
                if status is None or status.worker_failed or restored.record.mig != record.mig:
                    self.done.append(what)

    def _recover(self) -> None:
        """What cannot be recovered now is reported, and hinders only what collides with it."""
        outcome = self._transaction.recover()
        done = [report for report in outcome.reports if report.done]
        self.done += [report.text for report in done if not report.is_note]
        self.notes += [report.text for report in done if report.is_note]
        self.problems += [
            f"{report.subject}: {report.text}" for report in outcome.reports if not report.done
        ]
        self.problems += map(str, outcome.problems)

    def _end_runs(self) -> None:
        """The slices of commands that have ended do not come back; what is left of them the next command
        that changes something takes away.
        """
        ended = [
            replace(record, state=AttachmentState.DETACHING)
            for record in self._parts.store.list_attachments()
            if has_ended(record.run, self._parts.boot_id)
        ]
        self._parts.store.save_attachments(ended)

    def _restore_modes(
        self, layouts: dict[str, DesiredLayout], records: list[AttachmentRecord]
    ) -> None:
        self._run(plan_modes(self._parts.read_inventory().gpus, layouts, records))

    def _restore(self, layouts: dict[str, DesiredLayout], records: list[AttachmentRecord]) -> None:
        self._run(plan_instances(self._parts.read_inventory().gpus, layouts, records))

    def _run(self, plan: RestorePlan) -> None:
        self.problems += plan.problems
        for piece, what in zip(plan.pieces, self._name_pieces(plan), strict=True):
            if self._try(what, partial(self._carry_out, piece)):
                places = ((s.gpu_uuid, s.parent_placement or s.placement) for s in piece.steps)
                self._made |= {(gpu, place) for gpu, place in places if place is not None}

    def _carry_out(self, piece: LayoutPlan) -> None:
        parts = self._parts
        store, gpus = parts.store, parts.read_inventory().gpus
        plan = make_restore_plan(piece, store.list_attachments())
        execute_layout(self._transaction, plan, parts.make_context(gpus=gpus))

    def _try(self, what: str, action: Callable[[], object]) -> bool:
        if self._parts.clock.monotonic_s() >= self._end_s:
            self.problems.append(f"{what}: not begun within {self._timeout_s:g} s")
            return False
        try:
            action()
        except VgpumgrError as error:
            self.problems.append(_describe_failure(what, error))
            return False
        self.done.append(what)
        return True

    def _restore_attachments(self) -> None:
        """Each by its backend, when all that it rests on is back."""
        snapshot = Snapshot(self._parts)
        started = []
        for record in snapshot.records:
            restored = find_backend(record.backend).restore(record, snapshot)
            if restored is not None and self._restore_attachment(record, restored):
                started.append(restored.record)
        for record in started:
            self._await_worker(record)

    def _restore_attachment(self, record: AttachmentRecord, restored: Restored) -> bool:
        """Whether its channel was started."""
        what = f"slice and channel of {record.vm_name} ({record.profile})"
        if restored.problem is not None:
            self.problems.append(f"{what}: {restored.problem}")
            return False
        now, changed = restored.record, restored.record.mig != record.mig
        if now != record:
            self._parts.store.save_attachment(now)
        if changed:
            self._rebound.append(now)
        # its worker uses what is gone, even if the new instance has the same UUID
        made = now.placement is not None and (str(now.gpu), now.placement) in self._made
        if not restored.starts_channel or not self._needs_start(now, changed or made):
            return False
        return self._try(what, partial(self._start, now))

    def _write_notes(self) -> None:
        for record in self._rebound:
            step = WriteNote(record.vm_name, record.vm_uuid, record.id)
            self._try(step.describe(), partial(self._write_note, record, step))

    def _write_note(self, record: AttachmentRecord, step: WriteNote) -> None:
        # an old note is better than none: nothing is undone
        plan: Plan = Plan(
            "recover", record.vm_name, (step,), OnFailure.STOP, (), {"attachment": record.id}
        )
        context = self._parts.make_context(record)
        self._transaction.execute(plan, context)

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
        self._parts.channels.start(make_spec(record))

    def _await_worker(self, record: AttachmentRecord) -> None:
        clock = self._parts.clock
        left_s = max(0.0, min(WORKER_TIMEOUT_S, self._end_s - clock.monotonic_s()))

        def is_decided() -> bool:
            status = self._read_status(record)
            return status is None or status.worker_ready or status.worker_failed

        wait_until(clock, is_decided, left_s)
        status = self._read_status(record)
        if status is None or not status.worker_ready:
            why = status.problem if status else "its keeper is gone"
            self.problems.append(f"the worker of {record.vm_name} is not ready: {why}")


def _describe_failure(what: str, error: VgpumgrError) -> str:
    parts = (error.error, error.cause, error.why, *error.held_by)
    return f"{what}: {'; '.join(part for part in parts if part)}"


def _list_excluded(early: bool, boot: bool) -> tuple[tuple[str, str], ...]:
    """Families that are not recovered: before services run NVML is not asked, and at boot libvirt is not."""
    if early:
        return ATTACHMENTS, LAYOUTS, VGPUS
    return (ATTACHMENTS,) if boot else ()


def restore(
    parts: Parts,
    timeout_s: float = TIMEOUT_S,
    *,
    early: bool = False,
    boot: bool = False,
    dry_run: bool = False,
) -> RestoreDocument:
    """See ``Restorer.restore`` and ``Restorer.plan``."""
    restorer = Restorer(parts, timeout_s)
    return restorer.plan(early=early) if dry_run else restorer.restore(early=early, boot=boot)


#: does one thing, and reports whether it could be done
Try = Callable[[str, Callable[[], object]], bool]


def restore_pci(
    parts: Parts, transaction: Transaction | None, try_one: Try, *, early: bool = False
) -> None:
    """Virtual functions first, for these may be among what is bound. Without a transaction they are only checked.

    ``early``: before services use the GPUs. What an SR-IOV driver does not restore early waits for MIG mode, and
    what has moved waits until NVML reports where it is.
    """
    pci = parts.pci
    for setting in pci.list_vf_settings():
        if setting.boot_id == pci.boot_id:
            continue
        if early and not _find_sriov(setting).restores_early:
            continue
        if setting.persist:
            what = f"{setting.count} virtual functions of {setting.physical}"
            try_one(what, partial(_make_vfs, parts, transaction, setting))
        elif transaction is not None:
            pci.forget_vf_setting(setting.physical)
    # a plan makes no virtual functions: one that is bound may be among those that would be made
    makes_vfs = transaction is None and any(_list_due_vfs(parts))
    for binding in pci.list_bindings():
        if binding.boot_id == pci.boot_id:
            continue
        if makes_vfs and binding.persist and not _is_there(parts, binding):
            try_one(f"{binding.address} to {binding.driver}", lambda: None)
            continue
        if early and not _is_there(parts, binding):
            continue
        if binding.persist:
            action = partial(_bind, parts, transaction, binding, follow=not early)
            try_one(f"{binding.address} to {binding.driver}", action)
        elif transaction is not None:
            pci.forget_binding(binding.address)


def _list_due_vfs(parts: Parts) -> Iterator[VfSetting]:
    """Virtual functions that this boot has not seen yet."""
    pci = parts.pci
    return (s for s in pci.list_vf_settings() if s.persist and s.boot_id != pci.boot_id)


def _check_vgpu(parts: Parts, record: VgpuRecord) -> None:
    """Raises PciNotFoundError where nothing that is restored brings its parent back."""
    command = find_enabling(parts, record.spec.parent)
    if command is not None and not any(_list_due_vfs(parts)):
        raise PciNotFoundError(
            f"{record.spec.parent} is not there", why=f"{command} brings it back at every boot"
        )


def _make_vfs(parts: Parts, transaction: Transaction | None, setting: VfSetting) -> None:
    physical = _check_same(parts, setting.physical, setting)
    step = make_again(setting, physical)
    if transaction is not None:
        execute_pci(parts, transaction, Plan(ENABLE, str(physical.address), (step,)))


def _find_sriov(setting: VfSetting) -> SrIovDriver:
    """By what is remembered: the function may have left the bus."""
    return find_driver(Function(setting.physical, setting.vendor_id, setting.device_id, 0))


def _is_there(parts: Parts, binding: Binding) -> bool:
    try:
        return is_same(parts.pci.read_function(binding.address), binding)
    except PciNotFoundError:
        return False


def _bind(parts: Parts, transaction: Transaction | None, binding: Binding, *, follow: bool) -> None:
    address = _find_again(parts, binding) if follow else binding.address
    function = _check_same(parts, address, binding)
    _check_processes(parts, function)
    if transaction is None:
        return
    if function.address != binding.address:
        parts.pci.forget_binding(binding.address)
    step = BindDriver(
        function.address,
        binding.driver,
        function.driver,
        True,
        True,
        binding.gpu_uuid,
        binding.model,
        binding,
        binding.gpu_index,
    )
    execute_pci(parts, transaction, Plan(BIND, str(function.address), (step,)))


def _find_again(parts: Parts, binding: Binding) -> PciAddress:
    """Where it is now: a GPU is followed by its UUID where boards were moved."""
    if binding.gpu_uuid is None:
        return binding.address
    try:
        gpus = parts.read_inventory().gpus
    except VgpumgrError:
        return binding.address
    found = (gpu.pci for gpu in gpus if str(gpu.uuid) == binding.gpu_uuid)
    return next(found, binding.address)


def _check_same(parts: Parts, address: PciAddress, known: Binding | VfSetting) -> Function:
    function = parts.pci.read_function(address)
    if not is_same(function, known):
        raise PciNotFoundError(
            f"at {address} is another device",
            why=f"it was {known.vendor_id:04x}:{known.device_id:04x}, "
            f"it is {function.vendor_id:04x}:{function.device_id:04x}",
            hint="vgpumgr passthrough list",
        )
    return function


def _check_processes(parts: Parts, function: Function) -> None:
    """That it is the boot display was confirmed when it was first bound; that a process has it open
    or a disk of it is mounted now was not.
    """
    users = parts.pci.list_users([function]).get(function.address, ())
    held = [str(u) for u in users if u.kind in (UserKind.PROCESS, UserKind.DISK)]
    if held:
        raise PciBusyError(
            f"{function.address} is in use", held_by=held, hint="stop them, then: vgpumgr restore"
        )


def restore_vgpus(parts: Parts, transaction: Transaction | None, try_one: Try) -> None:
    """Creates what is missing, in the order in which it was first created. MIG mode, virtual functions and layouts are
    back by now.
    """
    records = read_records(parts.vgpu_store, parts.vgpus)
    if not records:
        return
    service = VgpuService(parts)
    for record in records:
        if _is_wanted(record) and not _has_device(parts, record):
            what = f"vGPU {record.spec.type_name} {describe_place(record.spec)}"
            action: Callable[[], object] = partial(_check_vgpu, parts, record)
            if transaction is not None:
                action = partial(service.restart, record.spec.uuid, transaction)
            try_one(what, action)


def _is_wanted(record: VgpuRecord) -> bool:
    return (record.defined and record.auto) or record.attachment is not None


def _has_device(parts: Parts, record: VgpuRecord) -> bool:
    return record.takes_room and parts.vgpus.find_device(record.spec) is not None
