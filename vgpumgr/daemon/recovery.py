"""``status``, ``diff`` and ``recover``: what differs from what is recorded, and making it good."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple, TypeVar

from vgpumgr.daemon.host_drift import find_host_drift
from vgpumgr.daemon.hostdev_observing import map_homes
from vgpumgr.daemon.layout_apply import settle_layouts
from vgpumgr.daemon.parts import Parts
from vgpumgr.daemon.pci_apply import settle_pci
from vgpumgr.daemon.recovery_documents import (
    ActionDocument,
    DiffDocument,
    DriftDocument,
    InterruptedDocument,
    RecoverDocument,
    StatusDocument,
)
from vgpumgr.daemon.settling import Settler
from vgpumgr.daemon.vgpu_settle import settle_all
from vgpumgr.domain.attaching import Attachable
from vgpumgr.domain.devices import control_device, ring_device
from vgpumgr.domain.hypervisor import Scope, Vm
from vgpumgr.errors import (
    LibvirtDownError,
    LibvirtError,
    LibvirtLateError,
    LibvirtPermissionError,
    NotPermittedError,
    OutcomePendingError,
    RollbackIncompleteError,
    VgpumgrError,
)
from vgpumgr.host.helper import LateRecords
from vgpumgr.host.lock import lock_file
from vgpumgr.model.gpu import Inventory
from vgpumgr.nvml.client import READ_INVENTORY, STUCK
from vgpumgr.plan.channel_steps import RestartWorker, StartChannel, StopChannel
from vgpumgr.plan.detach import DetachObserved, plan_detach
from vgpumgr.plan.domain_steps import AttachDevices, WriteNote
from vgpumgr.plan.drift import (
    Drift,
    DriftKind,
    Observed,
    find_drift,
    find_drift_on_host,
    list_missing_devices,
)
from vgpumgr.plan.executor import Executor
from vgpumgr.plan.hostdev_given import make_hostdevs
from vgpumgr.plan.interrupted import list_interrupted
from vgpumgr.plan.journal import Contents
from vgpumgr.plan.record import AttachmentRecord
from vgpumgr.plan.step import OnFailure, Plan, Step
from vgpumgr.plan.world import World
from vgpumgr.virtio.channel import RING_BYTES

T = TypeVar("T")
#: libvirt does not answer now
LIBVIRT_ERRORS = (LibvirtError, LibvirtDownError, LibvirtLateError, LibvirtPermissionError)


@dataclass(frozen=True, slots=True)
class Policy:
    """What recovery may do that loses or adds something; without it such drift is only reported."""

    #: frees the slice of a VM that is no longer defined
    release: bool = False
    #: gives a VM's definition the devices again that it has lost
    readd: bool = False
    #: tries a worker again that its keeper has given up
    restart: bool = True


class Release(NamedTuple):
    """An attachment that is to be freed, and why."""

    record: AttachmentRecord
    why: str


def release_nothing(_observed: Observed) -> Sequence[Release]:
    """The life of VMs frees nothing."""
    return ()


class Recovery:
    """The operations of recovery on one machine."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def status(self) -> StatusDocument:
        """How the machine is; what does not answer is said, and hides nothing else."""
        problems: list[str] = []
        journal = _try(self._look, problems)
        contents = journal or Contents()
        records = _try(self._parts.store.list_attachments, problems)
        vms = _try(self._parts.hypervisor.list_vms, problems)
        inventory = _try(self._read_inventory, problems)
        found = None
        if records is not None and vms is not None and inventory is not None:
            observe = partial(Settler(self._parts).observe, records, vms, inventory.gpus)
            found = _try(lambda: find_drift(observe()), problems)
        taken = _try(lambda: find_host_drift(self._parts), problems)
        if contents.problem:
            problems.append(f"journal: {contents.problem}")
        return StatusDocument(
            journal=None if journal is None else self._journal_state(journal),
            attachments=None if records is None else len(records),
            vms=None if vms is None else len(vms),
            gpus=None if inventory is None else len(inventory.gpus) + len(inventory.others),
            interrupted=self._describe_interrupted(contents),
            late=list(self._parts.list_late()),
            # what is known is told, whatever else does not answer
            drift=_describe([*(found or ()), *(taken or ())])
            if taken or (found is not None and taken is not None)
            else None,
            problems=problems,
        )

    def _read_inventory(self) -> Inventory:
        LateRecords(self._parts.run_dir).check_not_stuck(READ_INVENTORY, STUCK)
        return self._parts.read_inventory()

    def diff(self) -> DiffDocument:
        """What differs between what is recorded and what is."""
        found = find_drift(Settler(self._parts).observe())
        interrupted = self._describe_interrupted(self._look())
        taken = find_host_drift(self._parts)
        return DiffDocument(drift=_describe([*found, *taken]), interrupted=interrupted)

    def recover(
        self,
        policy: Policy,
        choose_releases: Callable[[Observed], Sequence[Release]] = release_nothing,
        *,
        needs_libvirt: bool = False,
    ) -> RecoverDocument:
        """Settles what was interrupted, rebuilds what was lost, repairs what it may, and frees what
        ``choose_releases`` says of what is there.

        While libvirt does not answer, what does not need it is made good all the same, and what
        waits for it is told; with ``needs_libvirt`` its error is raised in the end.
        """
        if not self._parts.is_privileged:
            raise NotPermittedError(
                "cannot recover as this user",
                why="changing GPUs and VMs needs root",
                hint="sudo vgpumgr recover",
            )
        with lock_file(self._parts.run_dir / "vgpumgr.lock", clock=self._parts.clock):
            settler = Settler(self._parts)
            settler.start_journal_anew()
            settler.actions += [
                ActionDocument(subject="passthrough", text=note, done=done)
                for note, done in settle_pci(self._parts)
            ]
            problem = _try_libvirt(settler.settle)
            settler.actions += [
                ActionDocument(subject="layout", text=note, done=True)
                for note in settle_layouts(self._parts)
            ]
            settler.actions += [
                ActionDocument(subject="vGPU", text=note, done=done)
                for note, done in settle_all(self._parts)
            ]
            if problem is None:
                problem = _try_libvirt(lambda: settler.rebuild_records(self._look()))
            if problem is not None and needs_libvirt:
                raise problem
            if problem is not None:
                repair, left = self._repair_without_libvirt(settler, policy, problem)
            else:
                repair, left = self._repair_all(settler, policy, choose_releases)
        differs = _describe([*left, *find_host_drift(self._parts)])
        return RecoverDocument(actions=[*settler.actions, *repair.actions], drift=differs)

    def _repair_all(
        self,
        settler: Settler,
        policy: Policy,
        choose_releases: Callable[[Observed], Sequence[Release]],
    ) -> tuple[_Repair, Sequence[Drift]]:
        observed = settler.observe()
        repair = _Repair(self._parts, observed)
        for release in choose_releases(observed):
            repair.try_release(release)
        for drift in find_drift(observed):
            repair.try_one(drift, policy)
        changed = bool(settler.actions or repair.actions)
        return repair, find_drift(settler.observe() if changed else observed)

    def _repair_without_libvirt(
        self, settler: Settler, policy: Policy, problem: VgpumgrError
    ) -> tuple[_Repair, Sequence[Drift]]:
        """Channels of VMs that may well run; nothing is freed, and no VM is changed."""
        records = self._parts.store.list_attachments()
        observed = settler.observe(records, ())
        repair = _Repair(self._parts, observed)
        for drift in find_drift_on_host(observed):
            repair.try_one(drift, policy)
        if records or settler.waits:
            names = ", ".join(sorted({record.vm_name for record in records} | settler.waits))
            text = f"not compared with what libvirt has: {problem}; this waits for it"
            repair.actions.append(ActionDocument(subject=names, text=text, done=False))
        left = find_drift_on_host(settler.observe(records, ()) if repair.actions else observed)
        return repair, left

    def _look(self) -> Contents:
        return self._parts.open_journal().look()

    def _journal_state(self, contents: Contents) -> Literal["ok", "failed", "corrupt"]:
        if contents.problem is not None:
            return "corrupt"
        return "failed" if self._parts.open_journal().has_failed else "ok"

    def _describe_interrupted(self, contents: Contents) -> list[InterruptedDocument]:
        found = list_interrupted(contents)
        # one that was late may have come back since
        waits = any(i.late for i in found) and bool(self._parts.list_late())
        return [
            InterruptedDocument(
                op=i.op, operation=i.operation, subject=i.subject, waits=i.late and waits
            )
            for i in found
        ]


def _try(read: Callable[[], T], problems: list[str]) -> T | None:
    try:
        return read()
    except VgpumgrError as error:
        problems.append(f"{error.error}: {error.cause}" if error.cause else error.error)
        return None


def _try_libvirt(act: Callable[[], object]) -> VgpumgrError | None:
    try:
        act()
    except LIBVIRT_ERRORS as error:
        return error
    return None


def _describe(found: Sequence[Drift]) -> list[DriftDocument]:
    return [
        DriftDocument(
            kind=str(d.kind), subject=d.subject, attachment=d.attachment, text=d.text, hint=d.hint
        )
        for d in found
    ]


class _Repair:
    """Makes single differences good, each as an operation of its own."""

    def __init__(self, parts: Parts, observed: Observed) -> None:
        self._parts = parts
        self._observed = observed
        self._records = {record.id: record for record in observed.records}
        self.actions: list[ActionDocument] = []

    def try_one(self, drift: Drift, policy: Policy) -> None:
        """Repairs it if it is of a kind that may be; a failure is told and stops nothing."""
        record = self._records.get(drift.attachment or "")
        try:
            text = self._repair(drift, record, policy)
        except VgpumgrError as error:
            self._tell(drift, f"{drift.text}: not repaired: {error}", done=False)
            return
        if text is not None:
            self._tell(drift, text, done=True)

    def try_release(self, release: Release) -> None:
        """Frees an attachment; a failure is told and stops nothing."""
        record, why = release
        drift = Drift(DriftKind.VM_GONE, record.vm_name, why, record.id)
        try:
            self._tell(drift, self._release(drift, record), done=True)
        except VgpumgrError as error:
            self._tell(drift, f"{why}: {record.profile} is not freed: {error}", done=False)

    def _repair(self, drift: Drift, record: AttachmentRecord | None, policy: Policy) -> str | None:
        if drift.kind is DriftKind.STRAY_CHANNEL:
            self._run(drift, None, StopChannel(drift.subject))
            return "stopped a channel that belonged to no attachment"
        if record is None:
            return None
        vm = self._observed.find_vm(record.vm_uuid)
        if drift.kind is DriftKind.VM_GONE and policy.release:
            return self._release(drift, record)
        if drift.kind is DriftKind.KEEPER_GONE:
            return self._restart(drift, record, vm)
        if drift.kind is DriftKind.WORKER_DOWN and policy.restart:
            self._run(drift, record, RestartWorker(record.id))
            return "started its worker again"
        return None if vm is None else self._repair_of_vm(drift, record, vm, policy)

    def _repair_of_vm(
        self, drift: Drift, record: AttachmentRecord, vm: Vm, policy: Policy
    ) -> str | None:
        if drift.kind is DriftKind.VM_RENAMED:
            renamed = replace(record, vm_name=vm.name)
            self._parts.store.save_attachment(renamed)
            self._records[record.id] = renamed
            return f"follows the VM, which is called {vm.name} now"
        if drift.kind is DriftKind.NOTE_GONE:
            self._run(drift, record, WriteNote(vm.name, vm.uuid, record.id))
            return "wrote the note in its metadata again"
        if drift.kind is DriftKind.DEVICE_GONE and policy.readd and vm.config is not None:
            return self._readd(drift, record, vm)
        return None

    def _restart(self, drift: Drift, record: AttachmentRecord, vm: Vm | None) -> str:
        """``vm`` None: libvirt does not say; a machine of its may well run."""
        name = vm.name if vm else record.vm_name
        start = StartChannel(record.id, name, record.has_ring, record.has_serial, RING_BYTES)
        self._run(drift, record, start)
        ring = (vm is None or vm.is_active) and record.has_ring
        return "started its keeper again" + (
            "; the running guest has its ring again from its next start" if ring else ""
        )

    def _readd(self, drift: Drift, record: AttachmentRecord, vm: Vm) -> str:
        paths, missing = self._parts.channels.paths(record.id), list_missing_devices(record, vm)
        devices = (
            ring_device(record.id, paths.ring),
            control_device(record.id, paths.control, record.number),
        )
        wanted: tuple[Attachable, ...] = tuple(d for d in devices if d.alias in missing)
        if record.host_devices:
            given = make_hostdevs(record.id, record.host_devices, vm.config)
            wanted += tuple(d for d in given if d.alias in missing)
        step = AttachDevices(vm.name, vm.uuid, wanted, Scope.CONFIG, None)
        try:
            self._run(drift, record, step)
        except (RollbackIncompleteError, OutcomePendingError):
            raise
        except VgpumgrError:
            self._forget_controllers(record.id)
            raise
        return f"gave its definition {' and '.join(missing)} again"

    def _forget_controllers(self, attachment: str) -> None:
        """What the definition had before is of no interest once everything is as it was."""
        for known in self._parts.store.list_attachments():
            if known.id == attachment and known.controllers_before is not None:
                self._parts.store.save_attachment(replace(known, controllers_before=None))

    def _release(self, drift: Drift, record: AttachmentRecord) -> str:
        vm = self._observed.find_vm(record.vm_uuid)
        records = list(self._records.values())
        homes = map_homes(self._parts, records)
        seen = DetachObserved(record, vm, self._observed.gpus, records, homes)
        self._execute(plan_detach(seen), record)
        del self._records[record.id]
        return f"freed {record.profile}: {drift.text}"

    def _run(self, drift: Drift, record: AttachmentRecord | None, step: Step[World]) -> None:
        result = {"attachment": drift.attachment} if drift.attachment else {}
        plan = Plan("recover", drift.subject, (step,), OnFailure.UNDO, (), result)
        self._execute(plan, record)

    def _execute(self, plan: Plan[World], record: AttachmentRecord | None) -> None:
        world = self._parts.make_world(record)
        with closing(self._parts.open_journal()) as journal:
            executor = Executor(world, journal, list_late=self._parts.list_late)
            executor.run(plan, secrets.token_hex(8), world.facts)

    def _tell(self, drift: Drift, text: str, *, done: bool) -> None:
        self.actions.append(ActionDocument(subject=drift.subject, text=text, done=done))
