"""Operations on VMs: attach, detach, lists of VMs and channels, a VM's definition as it is or after an attach."""

from __future__ import annotations

import contextlib
import secrets
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from vgpumgr.app.context import LIBVIRT_ERRORS, Parts, find_stuck_gpus
from vgpumgr.app.documents.attachments import (
    AttachDocument,
    ChannelDocument,
    ChannelListDocument,
    ChannelShowDocument,
    DetachDocument,
    Seen,
    VmDocument,
    VmListDocument,
    VmShowDocument,
    VmXmlDocument,
    describe_attachment,
    describe_channel,
    describe_undefined_vm,
    describe_vm,
    find_usable,
    make_unknown_status,
)
from vgpumgr.app.documents.base import PlanDocument, describe_plan
from vgpumgr.app.documents.workers import describe_libraries, describe_links, describe_sandbox
from vgpumgr.app.host_observation import list_absent, list_held, list_instances, list_unsettled
from vgpumgr.app.operations.claims import check_options, resolve_claim
from vgpumgr.app.refusal_hints import adding_hints
from vgpumgr.app.transactions import open_change
from vgpumgr.backends.attach import check_not_stalled, check_request, plan_attach
from vgpumgr.backends.base import NewAttachment, Target
from vgpumgr.backends.detach import (
    choose_attachments,
    find_attachments,
    leave_out,
    merge_detaches,
    plan_cleanup,
    plan_detach,
)
from vgpumgr.domain.attaching import add_devices, render_domain
from vgpumgr.domain.devices import Attachable
from vgpumgr.domain.domain import Domain, find_nodes
from vgpumgr.domain.hypervisor import Scope, Vm
from vgpumgr.engine.context import OperationContext
from vgpumgr.engine.recovery import list_attachment_ids
from vgpumgr.engine.step import Plan
from vgpumgr.engine.transaction import Transaction
from vgpumgr.errors import (
    ChannelNotFoundError,
    DomainChangedError,
    LayoutChangedError,
    NotPermittedError,
    PreviewImpossibleError,
    ReleasePendingError,
    RollbackIncompleteError,
    StoreError,
    VgpumgrError,
    VmNotFoundError,
)
from vgpumgr.host.confinement import Fact
from vgpumgr.model.attachment import AttachmentRecord, AttachmentState
from vgpumgr.model.choices import Transport
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.request import AttachRequest
from vgpumgr.model.text import format_vm
from vgpumgr.planning.leased import list_leased
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.state.leases import LeasedGpu
from vgpumgr.steps.channel import check_confinable
from vgpumgr.steps.domain import AttachDevices
from vgpumgr.virtio.channel import ChannelStatus, HostLibrary
from vgpumgr.virtio.links import LinkSession, read_sessions

#: how often to plan anew when another program changes the domain or the GPU at the same time
_ATTEMPTS = 2
_CHANGED = (DomainChangedError, LayoutChangedError)
#: what stands for the attachment's id, and the UUID of a vGPU, which attach chooses
PREVIEW_ID = "preview"
PREVIEW_UUID = "00000000-0000-0000-0000-000000000000"
_OWN_NAMES = f'attach chooses the names that have "{PREVIEW_ID}" or zeros in them here'
_LIBVIRTS = "libvirt adds addresses, and the controllers that the devices need"


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
        check_options(request)
        # what a claim gives is known once what was interrupted is recovered
        if request.claim is None:
            with adding_hints(self._parts, request.gpu, request.profile):
                check_request(request)
        if dry_run:
            _, plan, _ = self._plan_attach(request)
            document = describe_plan(plan, PlanDocument)
            return AttachDocument(
                dry_run=True, plan=document, attachment=None, attachments=[], usable=None, notes=[]
            )
        with open_change(self._parts, "attach") as transaction:
            plan, context = execute_anew(
                self._parts, lambda: self._plan_attach(request), transaction
            )
            context.notes[:0] = transaction.notes
        return self._describe_attached(plan, context)

    def _plan_attach(self, request: AttachRequest) -> Planned:
        parts = self._parts
        vm = parts.hypervisor.read_vm(request.vm)
        request, leased = resolve_claim(parts, request, may_wait=True)
        names = {
            secrets.token_hex(4): str(uuid.uuid4()) for _ in range(len(leased) or request.count)
        }
        with adding_hints(parts, request.gpu, request.profile):
            found, plan, gpus = _plan_attach(parts, request, vm, names, leased)
            check_not_stalled(plan, parts.pci)
            check_confinable(found, parts.channels)
            return found, plan, gpus

    def _describe_attached(self, plan: Plan, context: OperationContext) -> AttachDocument:
        uuid = context.record.vm_uuid
        # a channel was waited for since the VM was read back
        seen = context.take_vm(uuid) if context.record.channel is None else None
        vm = seen or context.read_vm(uuid)
        attachments = [
            describe_attachment(record, find_usable(vm, record, status))
            for record, status in self._look_at(context.list_records())
        ]
        return AttachDocument(
            dry_run=False,
            plan=describe_plan(plan, PlanDocument),
            attachment=attachments[0],
            attachments=attachments,
            usable=attachments[0].usable,
            notes=context.notes,
        )

    def detach(
        self, vm: str, dry_run: bool = False, attachment: str | None = None, every: bool = False
    ) -> DetachDocument:
        """Takes a VM's slice back, whatever is left of it; one of several by its id or profile, or
        every one.
        """
        if dry_run:
            choice = self._choose(vm, attachment, every)
            plans = list(self._plan_detaches(vm, *choice, dry_run=True))
            return self._describe_detached(True, [plan for _, _, plan in plans], [])
        spare = partial(self._choose_spared, vm, attachment)
        with open_change(self._parts, "detach", spare) as transaction:
            done = self._detach_locked(transaction, vm, attachment, every)
        return self._describe_detached(False, done, transaction.notes)

    def _detach_locked(
        self, transaction: Transaction, vm: str, attachment: str | None, every: bool
    ) -> list[Plan]:
        done, held = [], dict[str, VgpumgrError]()
        chosen, named = self._choose(vm, attachment, every)
        waiting = self._announce(chosen)
        for record, seen, plan in self._plan_detaches(vm, chosen, named):
            context = self._parts.make_context(record)
            context.seen_vm = seen
            waiting.pop(record.id if record else "", None)
            try:
                transaction.execute(plan, context)
            except ReleasePendingError as error:
                # what it shares an IOMMU group with may be all that holds it, and goes next
                held[record.id if record else ""] = error
                continue
            except VgpumgrError:
                self._parts.store.save_attachments(tuple(waiting.values()))
                raise
            transaction.notes += context.notes
            done.append(plan)
        gone = {None, *(plan.result.get("attachment") for plan in done)}
        exists = [record.id for record in self._parts.store.list_attachments()]
        transaction.end_spared(
            lambda found: set(list_attachment_ids(found.events[0].data)) <= gone, exists=exists
        )
        if transaction.recovered.spared:
            # what is not recovered now is by the next command
            with contextlib.suppress(VgpumgrError):
                transaction.recover()
        if held:
            self._finish_held(transaction, held, done)
        return done

    def _finish_held(
        self,
        transaction: Transaction,
        held: Mapping[str, VgpumgrError],
        done: Sequence[Plan],
    ) -> None:
        """Observes once more the attachments that were not released, if others are gone by now. Raises what is
        said of the first where that has not helped.
        """
        if done:
            transaction.recover()
        left = {record.id for record in self._parts.store.list_attachments()}
        for attachment, error in held.items():
            if attachment in left or not done:
                raise error

    def _choose(
        self, selector: str, attachment: str | None, every: bool
    ) -> tuple[tuple[AttachmentRecord, ...], Vm | None]:
        """The attachments that a detach means, and the VM that libvirt has by that name."""
        records = self._parts.store.list_attachments()
        named = self._find_other_vm(selector, records)
        return choose_attachments(records, selector, attachment, every, named), named

    def _announce(self, chosen: Sequence[AttachmentRecord]) -> dict[str, AttachmentRecord]:
        """Marks all of several before the first is detached, so that after a crash the others are
        detached, too; answers them as they were, by id.
        """
        if len(chosen) > 1:
            state = AttachmentState.DETACHING
            self._parts.store.save_attachments([replace(r, state=state) for r in chosen])
        return {record.id: record for record in chosen}

    def _choose_spared(self, vm: str, attachment: str | None) -> str | None:
        """What an earlier, interrupted operation may be about and need not be recovered, because it is
        detached now.
        """
        with contextlib.suppress(StoreError):
            records = self._parts.store.list_attachments()
            found = find_attachments(records, vm, verb="detach", which=attachment)
            named = [r for r in found if attachment in (None, r.id, r.profile)]
            if len(found) > 1 or [r.id for r in found] == [attachment]:
                return named[0].id if len(named) == 1 else None
        return vm

    def _plan_detaches(
        self,
        selector: str,
        chosen: Sequence[AttachmentRecord],
        named: Vm | None,
        *,
        dry_run: bool = False,
    ) -> Iterator[tuple[AttachmentRecord | None, Vm | None, Plan]]:
        """The plans with the VM that each was made on, when the one before it is through with (or, in a
        dry run, as if).
        """
        if not chosen:
            # a name that libvirt does not know is an unknown VM; one that it does may have
            # leftovers
            found = named or self._parts.hypervisor.read_vm(selector)
            yield None, found, plan_cleanup(found)
        snapshot: Snapshot | None = None
        for id_ in [record.id for record in chosen]:
            if snapshot is None or not dry_run:
                snapshot = Snapshot(self._parts)
            record = next(r for r in snapshot.records if r.id == id_)
            if record.run is not None:
                named = None
            elif named is None or named.uuid != record.vm_uuid:
                named = self._find_vm(record.vm_uuid)
            # of several, the next one sees what the one before it has left
            vm, named = named, None
            yield record, vm, plan_detach(record, vm, snapshot)
            snapshot = leave_out(record, snapshot) if dry_run else snapshot

    def _find_other_vm(self, selector: str, records: Sequence[AttachmentRecord]) -> Vm | None:
        """The VM of that name; where a run is meant, libvirt need not answer."""
        is_run = any(r.run and selector in (r.id, r.vm_name, r.vm_uuid) for r in records)
        try:
            return self._find_vm(selector)
        except LIBVIRT_ERRORS:
            if is_run:
                return None
            raise

    def _find_vm(self, selector: str) -> Vm | None:
        try:
            return self._parts.hypervisor.read_vm(selector)
        except VmNotFoundError:
            return None

    def _describe_detached(
        self, dry_run: bool, plans: Sequence[Plan], notes: list[str]
    ) -> DetachDocument:
        plan = plans[0] if len(plans) == 1 else merge_detaches(plans)
        return DetachDocument(dry_run=dry_run, plan=describe_plan(plan, PlanDocument), notes=notes)

    def list_vms(self) -> VmListDocument:
        """Every VM that libvirt knows, and every one that still has an attachment."""
        records: dict[str, list[AttachmentRecord]] = {}
        for record in self._parts.store.list_attachments():
            if record.run is None:
                records.setdefault(record.vm_uuid, []).append(record)
        found = [
            self._describe(vm, records.pop(vm.uuid, ())) for vm in self._parts.hypervisor.list_vms()
        ]
        gone = [describe_undefined_vm(self._look_at(own)) for own in records.values()]
        return VmListDocument(vms=[*found, *gone])

    def show_vm(self, selector: str) -> VmShowDocument:
        """One VM, by its name, its UUID or an attachment's id. Raises VmNotFoundError,
        SeveralAttachmentsError.
        """
        records = [r for r in self._parts.store.list_attachments() if r.run is None]
        vm = self._find_vm(selector)
        own = find_attachments(records, selector, vm, verb="vm show")
        if vm is None and own:
            vm = self._find_vm(own[0].vm_uuid)
            if vm is None:
                return VmShowDocument(vm=describe_undefined_vm(self._look_at(own)))
        if vm is None:
            vm = self._parts.hypervisor.read_vm(selector)  # says what else may have been meant
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
            hidden = isinstance(error, NotPermittedError)
            return make_unknown_status(record, f"{error.error}: {error.cause}", hidden=hidden)

    def list_channels(self) -> ChannelListDocument:
        """Every channel, running or not."""
        records = [r for r in self._parts.store.list_attachments() if r.channel is not None]
        return ChannelListDocument(channels=[describe_channel(r, self._status(r)) for r in records])

    def show_channel(self, selector: str) -> ChannelShowDocument:
        """One channel, by its VM or its attachment; with it the VM's others. Raises
        ChannelNotFoundError, SeveralAttachmentsError.
        """
        records, vm = self._parts.store.list_attachments(), None
        with contextlib.suppress(VgpumgrError):  # what libvirt does not say hides no channel
            if not any(selector in (r.vm_uuid, r.vm_name) for r in records):
                vm = self._parts.hypervisor.read_vm(selector)
        found = find_attachments(records, selector, vm, verb="virtio show")
        channels = [describe_channel(r, self._status(r)) for r in found if r.channel is not None]
        if not channels:
            raise ChannelNotFoundError(f'no channel of "{selector}"', hint="vgpumgr virtio list")
        sandboxes = [describe_sandbox(c.id, self._audit(c)) for c in channels]
        libraries = [
            one for c in channels for one in describe_libraries(c.id, self._list_libraries(c))
        ]
        links = [
            one
            for c in channels
            for one in describe_links(
                c.id, self._read_sessions(c) if c.gpu_host is not None else ()
            )
        ]
        return ChannelShowDocument(
            channel=channels[0],
            channels=channels,
            sandboxes=sandboxes,
            libraries=libraries,
            links=links,
        )

    def _read_sessions(self, channel: ChannelDocument) -> Sequence[LinkSession]:
        return read_sessions(self._parts.run_dir / "channels" / channel.id)

    def _list_libraries(self, channel: ChannelDocument) -> Sequence[HostLibrary]:
        """Those of the host; the answer does not fail where its processes cannot be read."""
        if channel.hidden or channel.worker_pid is None:
            return ()
        with contextlib.suppress(VgpumgrError):
            return self._parts.channels.list_libraries(channel.id)
        return ()

    def _audit(self, channel: ChannelDocument) -> Sequence[Fact]:
        """What holds its worker; the answer does not fail where that cannot be read."""
        if channel.hidden or channel.worker_pid is None:
            return ()
        with contextlib.suppress(VgpumgrError):
            return self._parts.channels.audit(channel.id)
        return ()


#: records of new attachments, their plan, and the GPUs that it was made on
Planned = tuple[Sequence[AttachmentRecord], Plan, Sequence[Gpu] | None]


def execute_anew(
    parts: Parts, plan_now: Callable[[], Planned], transaction: Transaction
) -> tuple[Plan, OperationContext]:
    """Plans and executes; once more where another program changes the same at the same time."""
    for attempt in range(1, _ATTEMPTS + 1):
        records, plan, gpus = plan_now()
        context = parts.make_context(records[0], gpus)
        context.other_records = {record.id: record for record in records[1:]}
        try:
            transaction.execute(plan, context)
        except Exception as error:
            # everything is as before; what the plan was made on has changed since
            changed = isinstance(error.__cause__ or error, _CHANGED)
            undone = not isinstance(error, RollbackIncompleteError)
            if attempt < _ATTEMPTS and changed and undone:
                continue
            raise
        return plan, context
    raise AssertionError("unreachable")


def attach(
    parts: Parts, *, dry_run: bool = False, transport: str = "auto", **asked: Any
) -> AttachDocument:
    """See ``AttachmentService.attach``; the other parameters are the fields of AttachRequest."""
    request = AttachRequest(transport=Transport(transport), **asked)
    return AttachmentService(parts).attach(request, dry_run)


def show_vm_xml(
    parts: Parts,
    *,
    selector: str,
    profile: str | None = None,
    backend: str = "auto",
    gpu: str | None = None,
    display: str = "off",
    transport: str = "auto",
) -> VmXmlDocument:
    """See ``render_vm_xml``."""
    shown = Transport(transport)
    request = AttachRequest(selector, profile or "", gpu, backend, display=display, transport=shown)
    return render_vm_xml(parts, request)


def render_vm_xml(parts: Parts, request: AttachRequest) -> VmXmlDocument:
    """The definition of the VM's next start; with a profile, as it would be after the attach.
    Nothing is touched. Raises what stands in the way of the attach.
    """
    vm = parts.hypervisor.read_vm(request.vm)
    definition = vm.config
    if definition is None:
        raise PreviewImpossibleError(
            f"{vm} has no definition",
            why="it is transient: what it has ends when it stops",
            hint=f"virsh dumpxml {format_vm(vm.name, vm.uuid)}",
        )
    if not request.profile:
        return VmXmlDocument(vm=vm.name, xml=render_domain(definition), notes=[])
    with adding_hints(parts, request.gpu, request.profile):
        offline = replace(request, live=False, config=True, add=True)
        plan = _plan_attach(parts, offline, vm, {PREVIEW_ID: PREVIEW_UUID})[1]
    xml = render_domain(_add(definition, plan))
    return VmXmlDocument(vm=vm.name, xml=xml, notes=[*plan.notes, _OWN_NAMES, _LIBVIRTS])


def _plan_attach(
    parts: Parts,
    request: AttachRequest,
    vm: Vm,
    names: Mapping[str, str],
    leased: Sequence[LeasedGpu] = (),
) -> tuple[tuple[AttachmentRecord, ...], Plan, Sequence[Gpu] | None]:
    """Records, plan, and the GPUs that it was made on; ``names`` are ids of new attachments, each with the UUID
    for its vGPU. ``leased``: what the request's claim gives.
    """
    target = Target(
        vm=vm,
        names=tuple(NewAttachment(id_, parts.channels.paths(id_), names[id_]) for id_ in names),
        now_s=parts.clock.wall_s(),
        nodes=find_nodes(vm.config or vm.live, parts.read_cpu_nodes),
        leased=tuple(leased),
    )
    snapshot = Snapshot(
        parts,
        stuck=find_stuck_gpus(parts),
        instances=list_instances(parts),
        unsettled=list_unsettled(parts),
        leased={} if leased else list_leased(parts.leases.read_seen()),
    )
    found, plan = plan_attach(request, target, snapshot)
    return found, plan, snapshot.observed_gpus


def _add(definition: Domain, plan: Plan) -> Domain:
    devices: list[Attachable] = []
    for step in plan.steps:
        if isinstance(step, AttachDevices) and step.scope is Scope.CONFIG:
            devices += step.devices
    return add_devices(definition, devices)
