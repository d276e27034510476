"""``status``, ``diff`` and ``recover``: detects drift between recorded and actual state, and repairs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple, TypeVar

from vgpumgr.app.context import LIBVIRT_ERRORS, Parts, list_unfinished_here
from vgpumgr.app.documents.attachments import describe_warnings
from vgpumgr.app.documents.operations import (
    ActionDocument,
    DiffDocument,
    DriftDocument,
    InterruptedDocument,
    RecoverDocument,
    StatusDocument,
)
from vgpumgr.app.host_observation import list_instances
from vgpumgr.app.operations.attachment_recovery import observe_attachments, rebuild_records
from vgpumgr.app.operations.claims import describe_pool, list_over, recover_claims
from vgpumgr.app.operations.pci_recovery import list_busy
from vgpumgr.app.operations.shares import shrink_due
from vgpumgr.app.refusal_hints import find_enabling
from vgpumgr.app.transactions import ATTACHMENTS, FAMILIES, MachineFamilies
from vgpumgr.backends.detach import plan_detach
from vgpumgr.backends.drift import (
    find_drift,
    find_drift_on_host,
    list_missing_devices,
    list_rebuildable,
)
from vgpumgr.backends.interrupted import list_interrupted
from vgpumgr.backends.registry import find_backend
from vgpumgr.domain.hypervisor import Scope, Vm
from vgpumgr.engine.journal import Contents
from vgpumgr.engine.recovery import GPU_CLAIM, Outcome, Report, list_unfinished
from vgpumgr.engine.step import OnFailure, Plan, Step
from vgpumgr.engine.transaction import Transaction, open_transaction
from vgpumgr.errors import (
    OutcomePendingError,
    RollbackIncompleteError,
    ShareInUseError,
    StoreError,
    VgpumgrError,
)
from vgpumgr.host.helper import LateRecords
from vgpumgr.mdev.records import read_records
from vgpumgr.model.attachment import AttachmentRecord
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.gpu import Drain, Gpu, Inventory, list_drains
from vgpumgr.model.vgpu import VgpuRecord, VgpuState
from vgpumgr.nvml.client import READ_INVENTORY, STUCK
from vgpumgr.planning.drift import Drift, DriftKind, find_pci_drift, find_vgpu_drift
from vgpumgr.planning.layouts import find_layout_drift
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.planning.vgpus import OPERATIONS
from vgpumgr.steps.channel import RestartWorker, SetShare, StartArbiter, StartChannel, StopChannel
from vgpumgr.steps.domain import AttachDevices, WriteNote
from vgpumgr.steps.vgpu import list_holders

T = TypeVar("T")


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


def release_nothing(_observed: Snapshot) -> Sequence[Release]:
    """The life of VMs frees nothing."""
    return ()


def recover(
    parts: Parts, *, release: bool = False, readd: bool = False, dry_run: bool = False
) -> RecoverDocument:
    """See ``Recovery.recover`` and ``Recovery.plan``."""
    recovery, policy = Recovery(parts), Policy(release, readd)
    return recovery.plan(policy) if dry_run else recovery.recover(policy)


class Recovery:
    """The operations of recovery on one machine."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def status(self) -> StatusDocument:
        """How the machine is; what does not answer is said, and hides nothing else."""
        problems: list[str] = []
        journal = _try(self._read_journal, problems)
        contents = journal or Contents()
        records = _try(self._parts.store.list_attachments, problems)
        # commands of the host are all that has a slice, where there is no libvirt
        of_runs = bool(records) and all(r.run for r in records or ())
        vms = _try(self._parts.hypervisor.list_vms, problems)
        inventory = _try(self._read_inventory, problems)
        found: Sequence[Drift] | None = None
        observed: Snapshot | None = None
        if records is not None and inventory is not None and (vms is not None or of_runs):
            known = () if vms is None else vms
            observe = partial(observe_attachments, self._parts, records, known, inventory.gpus)
            observed = _try(observe, problems)
        if observed is not None:
            seen = observed
            found = _try(lambda: find_drift(seen), problems)
        if found is not None and inventory is not None:
            gpus = inventory.gpus
            shaped = _try(lambda: find_drift_of_layouts(self._parts, gpus), problems)
            found = None if shaped is None else (*found, *shaped)
        taken = _try(lambda: find_host_drift(self._parts), problems)
        damage = _try(lambda: find_store_drift(self._parts), problems)
        gpus = inventory.gpus if inventory is not None else ()
        drains = _try(lambda: list_drains(self._parts.store, gpus), problems)
        if contents.problem:
            problems.append(f"journal: {contents.problem}")
        problems += [
            f"{one.operation} {one.subject}: {why}: {why.cause}; {why.hint}"
            for one in list_unfinished(contents)
            if (why := one.unreadable) is not None
        ]
        return StatusDocument(
            journal=None if journal is None else self._journal_state(journal),
            attachments=None if records is None else len(records),
            vms=None if vms is None else len(vms),
            gpus=None if inventory is None else len(inventory.gpus) + len(inventory.others),
            interrupted=self._describe_interrupted(contents),
            late=list(self._parts.list_late()),
            # what is known is told, whatever else does not answer
            drift=_describe([*(damage or ()), *(found or ()), *(taken or ())])
            if damage or taken or (found is not None and taken is not None)
            else None,
            problems=problems,
            drained=_describe_drains(drains or (), inventory),
            warnings=[] if observed is None else _list_warnings(observed),
            pool=describe_pool(self._parts),
        )

    def _read_inventory(self) -> Inventory:
        LateRecords(self._parts.run_dir).check_not_stuck(READ_INVENTORY, STUCK)
        return self._parts.read_inventory()

    def diff(self) -> DiffDocument:
        """What differs between what is recorded and what is."""
        drift = list_drift(self._parts)
        interrupted = self._describe_interrupted(self._read_journal())
        return DiffDocument(drift=_describe(drift), interrupted=interrupted)

    def recover(
        self,
        policy: Policy,
        choose_releases: Callable[[Snapshot], Sequence[Release]] = release_nothing,
        *,
        needs_libvirt: bool = False,
    ) -> RecoverDocument:
        """Recovers what was interrupted, rebuilds what was lost, repairs what it may, and frees what
        ``choose_releases`` says of what is observed.

        While libvirt does not answer, what does not need it is repaired all the same, and what
        waits for it is reported; with ``needs_libvirt`` its error is raised in the end.
        """
        with open_transaction(self._parts, MachineFamilies(self._parts), "recover") as transaction:
            actions = self._start_journal_anew()
            outcome = transaction.recover()
            actions += map(_describe_report, outcome.reports)
            for problem in outcome.problems:
                if not isinstance(problem, LIBVIRT_ERRORS):
                    raise problem
            down = next(iter(outcome.problems), None)
            if down is None:
                down = _try_libvirt(lambda: actions.extend(self._rebuild_records()))
            if down is not None and needs_libvirt:
                shrink_due(self._parts, transaction, has_libvirt=False)
                raise down
            repair = _Repair(self._parts, transaction)
            if down is not None:
                left = self._repair_without_libvirt(repair, outcome, policy, down)
            else:
                left = self._repair_all(repair, bool(actions), policy, choose_releases)
            if not needs_libvirt:  # what the daemon does by itself waits for no store
                actions += recover_claims(self._parts)
        layouts = find_drift_of_layouts(self._parts)
        host = [*find_store_drift(self._parts), *layouts, *find_host_drift(self._parts)]
        differs = _describe([*left, *host])
        return RecoverDocument(dry_run=False, actions=[*actions, *repair.actions], drift=differs)

    def plan(self, policy: Policy) -> RecoverDocument:
        """What ``recover`` would do, by the same decisions, and what would still differ. Changes nothing.

        What interrupted operations leave is known only when they are recovered: other repairs are
        planned as if they had not been.
        """
        contents = self._read_journal()
        actions = [
            ActionDocument(
                subject=one.subject,
                text=f"{one.operation} was interrupted, and "
                + ("waits for a helper process" if one.waits else "is recovered"),
                done=not one.waits,
            )
            for one in self._describe_interrupted(contents)
        ]
        observed = observe_attachments(self._parts)
        found = [*find_drift(observed), *find_drift_of_layouts(self._parts)]
        found += [*find_store_drift(self._parts), *find_host_drift(self._parts)]
        repair = _Repair(self._parts, None)
        repair.start(observed)
        left = []
        for release in list_over(self._parts, observed.records):
            repair.try_release(Release(*release))
        for drift in found:
            count = len(repair.actions)
            repair.try_one(drift, policy)
            if len(repair.actions) == count:
                left.append(drift)
        rebuilt = [record.id for record in list_rebuildable(observed)]
        actions += [*repair.actions, *recover_claims(self._parts, dry_run=True, rebuilt=rebuilt)]
        return RecoverDocument(dry_run=True, actions=actions, drift=_describe(left))

    def _start_journal_anew(self) -> list[ActionDocument]:
        """After a failed fdatasync: the journal is put away, and what is observed decides everything."""
        with closing(self._parts.open_journal()) as journal:
            if not journal.has_failed:
                return []
            text = f"had failed; kept as {journal.put_away('failed')}, a new one is begun"
            return [ActionDocument(subject="journal", text=text, done=True)]

    def _rebuild_records(self) -> list[ActionDocument]:
        return [_describe_report(r) for r in rebuild_records(self._parts, self._read_journal())]

    def _repair_all(
        self,
        repair: _Repair,
        has_recovered: bool,
        policy: Policy,
        choose_releases: Callable[[Snapshot], Sequence[Release]],
    ) -> Sequence[Drift]:
        observed = observe_attachments(self._parts)
        repair.start(observed)
        over = [Release(*one) for one in list_over(self._parts, observed.records)]
        known = {one.record.id for one in over}
        chosen = [one for one in choose_releases(observed) if one.record.id not in known]
        for release in (*over, *chosen):
            repair.try_release(release)
        for drift in find_drift(observed):
            repair.try_one(drift, policy)
        changed = has_recovered or bool(repair.actions)
        return find_drift(observe_attachments(self._parts) if changed else observed)

    def _repair_without_libvirt(
        self, repair: _Repair, outcome: Outcome, policy: Policy, problem: VgpumgrError
    ) -> Sequence[Drift]:
        """Channels of VMs that may well run; nothing is freed, and no VM is changed."""
        parts = self._parts
        records = parts.store.list_attachments()
        observed = observe_attachments(parts, records, ())
        repair.start(observed)
        for drift in find_drift_on_host(observed):
            repair.try_one(drift, policy)
        waiting = {
            one.subject for one in outcome.left if FAMILIES.get(one.operation) is ATTACHMENTS
        }
        if names := ", ".join(sorted({r.vm_name for r in records if r.run is None} | waiting)):
            text = f"not compared with what libvirt has: {problem}; this waits for it"
            repair.actions.append(ActionDocument(subject=names, text=text, done=False))
        return find_drift_on_host(
            observe_attachments(parts, parts.store.list_attachments(), ())
            if repair.actions
            else observed
        )

    def _read_journal(self) -> Contents:
        return self._parts.open_journal().look()

    def _journal_state(self, contents: Contents) -> Literal["ok", "failed", "corrupt"]:
        if contents.problem is not None:
            return "corrupt"
        return "failed" if self._parts.open_journal().has_failed else "ok"

    def _describe_interrupted(self, contents: Contents) -> list[InterruptedDocument]:
        found = list_interrupted(contents)
        # one that was late may have come back since
        waits = any(i.late for i in found) and bool(self._parts.list_late())
        return [InterruptedDocument.of(i, waits=i.late and waits) for i in found]


def _try(read: Callable[[], T], problems: list[str]) -> T | None:
    try:
        return read()
    except VgpumgrError as error:
        # an error that names a path says in its ``why`` what is wrong with it
        reason = error.cause if error.cause not in error.error.split() else error.why
        text = f"{error.error}: {reason}" if reason else error.error
        if text not in problems:
            problems.append(text)
        return None


def _try_libvirt(act: Callable[[], object]) -> VgpumgrError | None:
    try:
        act()
    except LIBVIRT_ERRORS as error:
        return error
    return None


def _list_warnings(observed: Snapshot) -> list[str]:
    return [
        text
        for record in observed.records
        if (status := observed.statuses.get(record.id)) is not None
        for text in describe_warnings(record, status, observed.find_vm(record.vm_uuid))
    ]


def _describe_drains(drains: Sequence[Drain], inventory: Inventory | None) -> list[str]:
    """Each with the GPU as it is called now; one that has left the host by what it is remembered by."""
    gpus = inventory.gpus if inventory is not None else ()
    others = inventory.others if inventory is not None else ()
    found = []
    for drain in drains:
        names = [str(gpu) for gpu in gpus if drain.is_of(gpu.pci, gpu.uuid)]
        names += [str(other) for other in others if drain.is_of(other.address, None)]
        name = next(iter(names), f"GPU {drain.uuid or drain.address}")
        found.append(f"{name} {'was' if drain.fault is None else 'is'} {drain}")
    return found


def _describe(found: Sequence[Drift]) -> list[DriftDocument]:
    return [DriftDocument.of(d) for d in found]


def _describe_report(report: Report) -> ActionDocument:
    return ActionDocument.of(report)


class _Repair:
    """Repairs single differences, each as an operation of its own; without a transaction only says how."""

    def __init__(self, parts: Parts, transaction: Transaction | None) -> None:
        self._parts = parts
        self._transaction = transaction
        self.actions: list[ActionDocument] = []

    def start(self, observed: Snapshot) -> None:
        """With what is observed before the first repair."""
        self._observed = observed
        self._records = {record.id: record for record in observed.records}

    def try_one(self, drift: Drift, policy: Policy) -> None:
        """Repairs it if it is of a kind that may be; a failure is told and stops nothing."""
        record = self._records.get(drift.attachment or "")
        try:
            text = self._repair(drift, record, policy)
        except VgpumgrError as error:
            self._report(drift, f"{drift.text}: not repaired: {error}", done=False)
            return
        if text is not None:
            self._report(drift, text, done=True)

    def try_release(self, release: Release) -> None:
        """Frees an attachment; a failure is told and stops nothing."""
        record, why = release
        drift = Drift(DriftKind.VM_GONE, record.vm_name, why, record.id)
        try:
            self._report(drift, self._release(drift, record), done=True)
        except VgpumgrError as error:
            self._report(drift, f"{why}: {record.profile} is not freed: {error}", done=False)

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
        if drift.kind is DriftKind.ARBITER_GONE:
            self._run(drift, record, StartArbiter(record.id))
            return "started the arbiter of its share again"
        if drift.kind is DriftKind.SHRINK_DUE:
            return self._shrink(drift, record)
        return None if vm is None else self._repair_of_vm(drift, record, vm, policy)

    def _repair_of_vm(
        self, drift: Drift, record: AttachmentRecord, vm: Vm, policy: Policy
    ) -> str | None:
        if drift.kind is DriftKind.VM_RENAMED:
            renamed = replace(record, vm_name=vm.name)
            if self._transaction is not None:
                self._parts.store.save_attachment(renamed)
            self._records[record.id] = renamed
            return f"follows the VM, which is called {vm.name} now"
        if drift.kind is DriftKind.NOTE_GONE:
            self._run(drift, record, WriteNote(vm.name, vm.uuid, record.id))
            return "wrote its domain metadata again"
        if drift.kind is DriftKind.DEVICE_GONE and policy.readd and vm.config is not None:
            return self._readd(drift, record, vm)
        return None

    def _shrink(self, drift: Drift, record: AttachmentRecord) -> str | None:
        step = SetShare.shrink(record)
        try:
            self._run(drift, record, step)
        except ShareInUseError:
            return None  # they use more again
        return f"shrank its share to {step.share}: its programs use no more than that now"

    def _restart(self, drift: Drift, record: AttachmentRecord, vm: Vm | None) -> str:
        """``vm`` None: libvirt does not say; a machine of its may well run."""
        name = vm.name if vm else record.vm_name
        start = replace(StartChannel.for_record(record), vm_name=name)
        self._run(drift, record, start)
        ring = (vm is None or vm.is_active) and record.has_ring
        return "started its keeper again" + (
            "; the running guest has its ring again from its next start" if ring else ""
        )

    def _readd(self, drift: Drift, record: AttachmentRecord, vm: Vm) -> str:
        paths, missing = self._parts.channels.paths(record.id), list_missing_devices(record, vm)
        assert vm.config is not None
        devices = find_backend(record.backend).make_again(record, vm.config, paths)
        wanted = tuple(device for device in devices if device.alias in missing)
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
        snapshot = Snapshot(self._parts, records=records, gpus=self._observed.gpus)
        self._execute(plan_detach(record, vm, snapshot), record)
        del self._records[record.id]
        return f"freed {record.profile}: {drift.text}"

    def _run(self, drift: Drift, record: AttachmentRecord | None, step: Step) -> None:
        result = {"attachment": drift.attachment} if drift.attachment else {}
        plan = Plan("recover", drift.subject, (step,), OnFailure.UNDO, (), result)
        self._execute(plan, record)

    def _execute(self, plan: Plan, record: AttachmentRecord | None) -> None:
        if self._transaction is None:
            return
        context = self._parts.make_context(record)
        self._transaction.execute(plan, context)

    def _report(self, drift: Drift, text: str, *, done: bool) -> None:
        self.actions.append(ActionDocument(subject=drift.subject, text=text, done=done))


def find_host_drift(parts: Parts) -> list[Drift]:
    """Every difference; a host where nothing was ever taken or created is not looked at. Raises
    StoreError, and what looking raises.
    """
    return [*find_drift_of_pci(parts), *find_drift_of_vgpus(parts)]


def find_store_drift(parts: Parts) -> list[Drift]:
    """Damage to the state file, its copy, and each kind of record."""
    return [
        Drift(DriftKind(damage.kind), damage.subject, damage.text, hint=damage.hint)
        for damage in parts.store.list_damage()
    ]


def list_drift(parts: Parts) -> list[Drift]:
    """Every difference between recorded and actual state. Records that cannot be read are one themselves, and are
    compared with nothing.
    """
    found = damage = find_store_drift(parts)
    compares: Sequence[Callable[[], Sequence[Drift]]] = (
        lambda: find_drift(observe_attachments(parts)),
        lambda: find_drift_of_layouts(parts),
        lambda: find_host_drift(parts),
    )
    for compare in compares:
        try:
            found = [*found, *compare()]
        except StoreError:
            if not damage:
                raise
    return found


def find_drift_of_layouts(parts: Parts, gpus: Sequence[Gpu] | None = None) -> Sequence[Drift]:
    """What differs from the layouts that were applied; NVML is asked only where there was one. Nothing where it does
    not answer.
    """
    layouts = parts.store.read_layouts()
    if not layouts:
        return ()
    try:
        gpus = parts.read_inventory().gpus if gpus is None else gpus
    except VgpumgrError:
        return ()
    records = parts.store.list_attachments()
    given = [device.instance for record in records for device in record.host_devices]
    made = [(i.gpu, i.placement) for i in (*list_instances(parts), *given) if i is not None]
    claims = (claim for found in list_unfinished_here(parts) for claim in found.claims)
    busy = {claim.name for claim in claims if claim.kind == GPU_CLAIM}
    return tuple(find_layout_drift(gpus, layouts, records, made, busy))


def find_drift_of_vgpus(parts: Parts) -> Sequence[Drift]:
    """What differs of vGPUs that no attachment has."""
    records = [r for r in read_records(parts.vgpu_store, parts.vgpus) if r.attachment is None]
    looked_at = [r for r in records if _is_expected(parts, r)]
    if not looked_at:
        return ()
    present = {r.spec.uuid for r in looked_at if parts.vgpus.find_device(r.spec) is not None}
    gone = [r for r in looked_at if r.spec.uuid not in present]
    holders = {r.spec.uuid: list_holders(parts.vgpus, r) for r in gone if r.boot == parts.boot_id}
    # those of an earlier boot: what brings back the function that they were on
    first = {
        r.spec.uuid: command
        for r in gone
        if r.spec.uuid not in holders and (command := find_enabling(parts, r.spec.parent))
    }
    return tuple(find_vgpu_drift(gone, parts.boot_id, present, holders, _list_busy(parts), first))


def _is_expected(parts: Parts, record: VgpuRecord) -> bool:
    if record.is_missing(parts.boot_id):
        return record.auto
    return record.state is VgpuState.ACTIVE


def _list_busy(parts: Parts) -> set[str]:
    """What unfinished operations are about."""
    plans = (events[0].data for events in parts.open_journal().look().unfinished.values())
    return {
        str(plan.get("result", {}).get("vgpu"))
        for plan in plans
        if plan.get("operation") in OPERATIONS
    }


def find_drift_of_pci(parts: Parts) -> Sequence[Drift]:
    """What differs from the record, and what holds up the whole bus. Where nothing was ever taken
    functions are not read. Raises StoreError.
    """
    pci = parts.pci
    bindings, settings = pci.list_bindings(), pci.list_vf_settings()
    stalls = pci.list_removals()
    if not bindings and not settings:
        return find_pci_drift(Snapshot(stalls=stalls))
    functions = pci.list_functions()
    taken = {binding.address for binding in bindings}
    leaving = [f for f in functions if f.address in taken and f.driver is None]
    observed = Snapshot(
        functions=functions,
        bindings=bindings,
        vf_settings=settings,
        users=pci.list_users(leaving) if leaving else {},
        boot_id=pci.boot_id,
        stalls=stalls,
    )
    return find_pci_drift(observed, list_busy(parts))
