"""Attaching and detaching as operations, and what there is to see of VMs and their channels."""

from __future__ import annotations

import contextlib
import secrets
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

from vgpumgr.daemon.attachment_documents import (
    AttachDocument,
    ChannelListDocument,
    ChannelShowDocument,
    DetachDocument,
    VmDocument,
    VmListDocument,
    VmShowDocument,
)
from vgpumgr.daemon.attachment_view import (
    Seen,
    describe_attachment,
    describe_channel,
    describe_plan,
    describe_undefined_vm,
    describe_vm,
    tell_usable,
)
from vgpumgr.daemon.explaining import explaining
from vgpumgr.daemon.hostdev_observing import (
    list_absent,
    list_held,
    list_instances,
    map_homes,
    observe_host,
    read_gpus_for,
)
from vgpumgr.daemon.metrics import open_statistics
from vgpumgr.daemon.parts import Parts, find_stuck_gpus
from vgpumgr.daemon.settling import Settler
from vgpumgr.domain.affinity import find_nodes
from vgpumgr.domain.hypervisor import Vm
from vgpumgr.errors import (
    ChannelNotFoundError,
    DomainChangedError,
    NotPermittedError,
    ReleasePendingError,
    StoreError,
    VgpumgrError,
    VmNotFoundError,
)
from vgpumgr.host.lock import lock_file
from vgpumgr.plan.attach import AttachObserved, AttachRequest
from vgpumgr.plan.backend import check_request, plan_any_attach
from vgpumgr.plan.detach import (
    DetachObserved,
    choose_attachments,
    find_attachments,
    leave_out,
    merge_detaches,
    plan_cleanup,
    plan_detach,
)
from vgpumgr.plan.executor import Executor
from vgpumgr.plan.hostdev_attach import check_not_stalled
from vgpumgr.plan.record import AttachmentRecord, AttachmentState
from vgpumgr.plan.step import Plan
from vgpumgr.plan.world import World
from vgpumgr.virtio.channel import ChannelStatus

#: how often to plan anew when somebody edits the domain at the same time
_ATTEMPTS = 2


__all__ = ["AttachmentService", "Parts"]


class AttachmentService:
    """The operations on attachments of one machine."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    @property
    def parts(self) -> Parts:
        """What it works with."""
        return self._parts

    def attach(self, request: AttachRequest, dry_run: bool = False) -> AttachDocument:
        """Gives a VM a slice. Raises what stands in the way before anything is changed, or what
        ended it after everything was undone.
        """
        with explaining(self._parts, request.gpu, request.profile):
            check_request(request)
        if dry_run:
            _, plan = self._plan_attach(request)
            document = describe_plan(plan)
            return AttachDocument(
                dry_run=True, plan=document, attachment=None, attachments=[], usable=None, notes=[]
            )
        self._check_permitted("attach")
        with self._locked():
            notes = self._settle()
            plan, world = self._attach_locked(request)
            world.notes[:0] = notes
        return self._describe_attached(plan, world)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        parts = self._parts
        with lock_file(parts.run_dir / "vgpumgr.lock", clock=parts.clock), parts.store.held_open():
            yield

    def _attach_locked(self, request: AttachRequest) -> tuple[Plan[World], World]:
        for attempt in range(1, _ATTEMPTS + 1):
            records, plan = self._plan_attach(request)
            world = self._make_world(records[0])
            world.others = {record.id: record for record in records[1:]}
            try:
                self._run(plan, world)
            except Exception as error:
                # everything is as before; the plan was made on a definition that has changed since
                if attempt < _ATTEMPTS and isinstance(error.__cause__ or error, DomainChangedError):
                    continue
                raise
            return plan, world
        raise AssertionError("unreachable")

    def _plan_attach(
        self, request: AttachRequest
    ) -> tuple[tuple[AttachmentRecord, ...], Plan[World]]:
        parts = self._parts
        vm = parts.hypervisor.read_vm(request.vm)
        attachment_id, *others = (secrets.token_hex(4) for _ in range(request.count))
        records = parts.store.list_attachments()
        host = observe_host(parts, request, records)
        observed = AttachObserved(
            vm=vm,
            gpus=host.gpus,
            records=records,
            id=attachment_id,
            paths=parts.channels.paths(attachment_id),
            now_s=parts.clock.wall_s(),
            more=tuple((id_, parts.channels.paths(id_)) for id_ in others),
            nodes=find_nodes(vm.config or vm.live, parts.read_cpu_nodes),
            stuck=find_stuck_gpus(parts),
            instances=list_instances(parts),
            boot=parts.boot_id,
        )
        uuids = [str(uuid.uuid4()) for _ in range(request.count)]
        with explaining(parts, request.gpu, request.profile):
            found, plan = plan_any_attach(request, observed, host, uuids)
            check_not_stalled(plan, parts.pci)
            return found, plan

    def _describe_attached(self, plan: Plan[World], world: World) -> AttachDocument:
        uuid = world.record.vm_uuid
        # a channel was waited for since the VM was read back
        seen = world.take_vm(uuid) if world.record.channel is None else None
        vm = seen or world.read_vm(uuid)
        attachments = [
            describe_attachment(record, tell_usable(vm, record, status))
            for record, status in self._look_at(world.list_records())
        ]
        return AttachDocument(
            dry_run=False,
            plan=describe_plan(plan),
            attachment=attachments[0],
            attachments=attachments,
            usable=attachments[0].usable,
            notes=world.notes,
        )

    def detach(
        self, vm: str, dry_run: bool = False, attachment: str | None = None, every: bool = False
    ) -> DetachDocument:
        """Takes a VM's slice back, whatever is left of it; one of several by its id or profile, or
        every one.
        """
        if dry_run:
            plans = list(self._plan_detaches(vm, attachment, every, dry_run=True))
            return self._describe_detached(True, [plan for _, _, plan in plans], [])
        self._check_permitted("detach")
        with self._locked():
            settler = Settler(self._parts)
            spared = settler.settle(spare=self._choose_spared(vm, attachment))
            notes, done, held = _tell(settler), [], dict[str, VgpumgrError]()
            waiting = self._announce(vm, attachment, every)
            for record, seen, plan in self._plan_detaches(vm, attachment, every):
                world = self._make_world(record)
                world.seen_vm = seen
                waiting.pop(record.id if record else "", None)
                try:
                    self._run(plan, world)
                except ReleasePendingError as error:
                    # what it shares an IOMMU group with may be all that holds it, and goes next
                    held[record.id if record else ""] = error
                    continue
                except VgpumgrError:
                    self._parts.store.save_attachments(tuple(waiting.values()))
                    raise
                notes += world.notes
                done.append(plan)
            gone = {plan.result.get("attachment") for plan in done}
            settler.end_spared([i for i in spared if i.attachment in {None, *gone}])
            if spared:
                notes += self._settle_rest()
            if held:
                notes += self._finish_held(held, done)
        return self._describe_detached(False, done, notes)

    def _settle_rest(self) -> list[str]:
        """After what was asked for is done: what is not settled now is by the next command."""
        settler = Settler(self._parts)
        with contextlib.suppress(VgpumgrError):
            settler.settle()
        return _tell(settler)

    def _finish_held(
        self, held: Mapping[str, VgpumgrError], done: Sequence[Plan[World]]
    ) -> list[str]:
        """Looks once more at the attachments that were not released, if others are gone by now. Raises
        what is said of the first where that has not helped.
        """
        settler = Settler(self._parts)
        if done:
            settler.settle()
        left = {record.id for record in self._parts.store.list_attachments()}
        for attachment, error in held.items():
            if attachment in left or not done:
                raise error
        return _tell(settler)

    def _announce(
        self, vm: str, attachment: str | None, every: bool
    ) -> dict[str, AttachmentRecord]:
        """Marks all of several before the first is detached, so that after a crash the others are
        detached, too; answers them as they were, by id.
        """
        store = self._parts.store
        chosen = choose_attachments(store.list_attachments(), vm, attachment, every)
        if len(chosen) > 1:
            state = AttachmentState.DETACHING
            store.save_attachments([replace(record, state=state) for record in chosen])
        return {record.id: record for record in chosen}

    def _choose_spared(self, vm: str, attachment: str | None) -> str | None:
        """What an earlier, interrupted operation may be about and need not be settled, because it is
        detached now.
        """
        with contextlib.suppress(StoreError):
            found = find_attachments(self._parts.store.list_attachments(), vm)
            named = [r for r in found if attachment in (None, r.id, r.profile)]
            if len(found) > 1:
                return named[0].id if len(named) == 1 else None
        return vm

    def _plan_detaches(
        self, selector: str, attachment: str | None, every: bool, *, dry_run: bool = False
    ) -> Iterator[tuple[AttachmentRecord | None, Vm | None, Plan[World]]]:
        """The plans with the VM that each was made on, when the one before it is through with (or, in a
        dry run, as if).
        """
        chosen = choose_attachments(
            self._parts.store.list_attachments(), selector, attachment, every
        )
        if not chosen:
            # a name that libvirt does not know is an unknown VM; one that it does may have
            # leftovers
            found = self._parts.hypervisor.read_vm(selector)
            yield None, found, plan_cleanup(found)
        observed: DetachObserved | None = None
        for id_ in [record.id for record in chosen]:
            observed = leave_out(observed) if dry_run and observed else self._observe()
            record = next(r for r in observed.records if r.id == id_)
            observed = replace(observed, record=record, vm=self._find_vm(record))
            yield record, observed.vm, plan_detach(observed)

    def _observe(self) -> DetachObserved:
        parts, records = self._parts, self._parts.store.list_attachments()
        homes = map_homes(parts, records)
        # of no other attachment does NVML know anything
        slices = any(r.mig_part or any(d.instance for d in r.host_devices) for r in records)
        gpus = read_gpus_for(parts, records) if slices or any(homes.values()) else ()
        return DetachObserved(records[0], None, gpus, records, homes)

    def _find_vm(self, record: AttachmentRecord) -> Vm | None:
        try:
            return self._parts.hypervisor.read_vm(record.vm_uuid)
        except VmNotFoundError:
            return None

    def _describe_detached(
        self, dry_run: bool, plans: Sequence[Plan[World]], notes: list[str]
    ) -> DetachDocument:
        plan = plans[0] if len(plans) == 1 else merge_detaches(plans)
        return DetachDocument(dry_run=dry_run, plan=describe_plan(plan), notes=notes)

    def _check_permitted(self, verb: str) -> None:
        if not self._parts.is_privileged:
            raise NotPermittedError(
                f"cannot {verb} as this user",
                why="changing GPUs and VMs needs root",
                hint=f"sudo vgpumgr {verb} ...",
            )

    def _settle(self) -> list[str]:
        """What an earlier command left when it was killed is settled before anything is planned."""
        settler = Settler(self._parts)
        settler.settle()
        return _tell(settler)

    def _make_world(self, record: AttachmentRecord | None) -> World:
        return self._parts.make_world(record)

    def _run(self, plan: Plan[World], world: World) -> None:
        parts = self._parts
        statistics = open_statistics(parts.run_dir)
        with closing(parts.open_journal()) as journal:
            executor = Executor(world, journal, list_late=parts.list_late)
            with statistics.measure(plan.operation, parts.clock):
                executor.run(plan, secrets.token_hex(8), world.facts)

    def list_vms(self) -> VmListDocument:
        """Every VM that libvirt knows, and every one that still has an attachment."""
        records: dict[str, list[AttachmentRecord]] = {}
        for record in self._parts.store.list_attachments():
            records.setdefault(record.vm_uuid, []).append(record)
        found = [self._describe(vm, records.pop(vm.uuid, ())) for vm in self._list()]
        gone = [describe_undefined_vm(self._look_at(own)) for own in records.values()]
        return VmListDocument(vms=[*found, *gone])

    def _list(self) -> tuple[Vm, ...]:
        return self._parts.hypervisor.list_vms()

    def show_vm(self, selector: str) -> VmShowDocument:
        """One VM. Raises VmNotFoundError."""
        records = self._parts.store.list_attachments()
        try:
            vm = self._parts.hypervisor.read_vm(selector)
        except VmNotFoundError:
            own = find_attachments(records, selector)
            if not own:
                raise
            return VmShowDocument(vm=describe_undefined_vm(self._look_at(own)))
        return VmShowDocument(vm=self._describe(vm, [r for r in records if r.vm_uuid == vm.uuid]))

    def _describe(self, vm: Vm, records: Sequence[AttachmentRecord]) -> VmDocument:
        held: dict[str, list[str]] = {}
        absent: dict[str, str] = {}
        with contextlib.suppress(VgpumgrError):  # a host that does not answer hides no VM
            held, absent = list_held(self._parts, records), list_absent(self._parts, records)
        return describe_vm(vm, self._look_at(records), held, absent)

    def _look_at(self, records: Sequence[AttachmentRecord]) -> list[Seen]:
        ordered = sorted(records, key=lambda record: record.number)
        return [(record, self._status(record)) for record in ordered]

    def _status(self, record: AttachmentRecord) -> ChannelStatus | None:
        """A channel that does not answer is shown as that; it must not hide all the others."""
        if record.channel is None:
            return None
        try:
            return self._parts.channels.read_status(record.id)
        except VgpumgrError as error:
            return ChannelStatus(
                id=record.id,
                keeper_pid=0,
                worker_pid=None,
                worker_ready=False,
                hello_ring=False,
                hello_serial=False,
                memory_bytes=0,
                problem=f"{error.error}: {error.cause}",
                hidden=isinstance(error, NotPermittedError),
            )

    def list_channels(self) -> ChannelListDocument:
        """Every channel, running or not."""
        records = [r for r in self._parts.store.list_attachments() if r.channel is not None]
        return ChannelListDocument(channels=[describe_channel(r, self._status(r)) for r in records])

    def show_channel(self, selector: str) -> ChannelShowDocument:
        """One channel, by its VM or its attachment; with it the VM's others. Raises
        ChannelNotFoundError.
        """
        found = find_attachments(self._parts.store.list_attachments(), selector)
        channels = [describe_channel(r, self._status(r)) for r in found if r.channel is not None]
        if not channels:
            raise ChannelNotFoundError(f'no channel of "{selector}"', hint="vgpumgr virtio list")
        return ChannelShowDocument(channel=channels[0], channels=channels)


def _tell(settler: Settler) -> list[str]:
    return [f"{action.subject}: {action.text}" for action in settler.actions]
