"""Steps on what is remembered."""

from __future__ import annotations

import contextlib
from dataclasses import field, replace
from typing import TYPE_CHECKING, ClassVar

from vgpumgr.domain.attaching import observe_device
from vgpumgr.domain.hypervisor import Scope
from vgpumgr.engine.step import (
    PRIVATE,
    SHOWN_AS_ID,
    SHOWN_AS_VM,
    NothingDoneError,
    OneWayStep,
    Step,
)
from vgpumgr.errors import LayoutChangedError, VmNotFoundError
from vgpumgr.mig.instances import list_records, rebind
from vgpumgr.model.attachment import AttachmentRecord, AttachmentState, MigInstanceRef
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.gpu import Drain
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import Placement
from vgpumgr.model.pci import PciAddress
from vgpumgr.state.domain_metadata import describe_record, save_note
from vgpumgr.steps.mig import EnableMigMode
from vgpumgr.steps.vf import CreateVfs

if TYPE_CHECKING:
    from vgpumgr.engine.context import OperationContext


@dataclass(frozen=True)
class RecordAttachment(Step):
    """Records the attachment before anything else is changed."""

    id: str
    vm_name: str = field(metadata=SHOWN_AS_VM)
    vm_uuid: str
    kind: ClassVar[str] = "attachment.record"
    is_account: ClassVar[bool] = True

    def describe(self) -> str:
        """For people."""
        return f"record attachment {self.id}"

    def do(self, context: OperationContext) -> None:
        """Writes it."""
        context.attachment_store.save_attachment(context.record)

    def undo(self, context: OperationContext) -> None:
        """Forgets it, unless a device of the host is left that could not be taken back: that is still
        the VM's, and ``detach`` knows it by the record.
        """
        if not has_left(context):
            context.attachment_store.delete_attachment(self.id)

    def observe(self, context: OperationContext) -> bool:
        """Whether it is recorded."""
        return context.find_attachment(self.id) is not None


def has_left(context: OperationContext) -> bool:
    """Whether the context's attachment still has a device of the host, which could not be taken back."""
    record = context.record
    if not record.host_devices:
        return False
    bound = {binding.address for binding in context.pci.list_bindings()}
    ours = {r.spec.uuid for r in context.vgpu_store.list_vgpus() if r.takes_room}
    for device in record.host_devices:
        if device.vgpu is not None and device.vgpu.uuid in ours:
            return True
        if device.vgpu is None and device.created and device.address in bound:
            return True
        if observe_device(context.hypervisor, record.vm_uuid, device.alias, Scope.LIVE):
            return True
    return False


@dataclass(frozen=True)
class TakeSlice(Step):
    """Records a MIG device that is there as the attachment's slice, or as the one that it has a share of. Nothing is
    created, so that neither undoing nor a detach destroys it.
    """

    gpu: GpuUuid
    #: None: the one that an earlier attachment of the same operation has made at that place
    mig: str | None
    profile: str
    #: of its GPU instance
    placement: Placement
    #: for people
    gpu_index: int | None = field(default=None, kw_only=True)
    #: whether others have shares of it
    shared: bool = field(default=False, kw_only=True, metadata=PRIVATE)
    kind: ClassVar[str] = "attachment.take"

    def describe(self) -> str:
        """For people."""
        where = str(self.gpu) if self.gpu_index is None else f"GPU {self.gpu_index}"
        place = f"{self.profile} at {self.placement} on {where}"
        if self.shared:
            return f"share {place if self.mig is None else f'{self.mig} ({place})'}"
        return f"take {self.mig} ({place}), which is idle"

    def do(self, context: OperationContext) -> None:
        """Writes its ids. Raises LayoutChangedError if it is gone."""
        found = self._find(context)
        if found is None:
            raise NothingDoneError(
                LayoutChangedError(
                    f"cannot {self.describe()}",
                    why="another program destroyed it meanwhile",
                    hint="repeat the command: it plans anew",
                )
            )
        context.save_mig(ref=found, gpu_instance_id=found.gpu_instance_id)

    def undo(self, context: OperationContext) -> None:
        """Leaves it where it is."""
        if self.observe(context):
            context.save_mig(ref=None, gpu_instance_id=None)

    def observe(self, context: OperationContext) -> bool:
        """Whether it is recorded as the attachment's."""
        known = context.find_attachment(context.record.id)
        return known is not None and known.mig is not None

    def _find(self, context: OperationContext) -> MigInstanceRef | None:
        for instance in context.mig.list_instances(self.gpu):
            for compute in instance.compute_instances:
                is_meant = compute.uuid == self.mig or (
                    self.mig is None and compute.slices == instance.slices
                )
                if instance.placement == self.placement and is_meant and compute.uuid is not None:
                    return MigInstanceRef(instance.id, compute.id, self.placement, compute.uuid)
        return None


@dataclass(frozen=True)
class MarkAttachment(Step):
    """Changes the recorded state of an attachment: attached, or being detached."""

    id: str
    state: AttachmentState
    before: AttachmentState = field(metadata=PRIVATE)
    kind: ClassVar[str] = "attachment.mark"

    def describe(self) -> str:
        """For people."""
        return f"mark attachment {self.id} as {self.state}"

    def do(self, context: OperationContext) -> None:
        """Writes it."""
        context.save_record(state=self.state)

    def undo(self, context: OperationContext) -> None:
        """Writes the earlier state."""
        context.save_record(state=self.before)

    def observe(self, context: OperationContext) -> bool:
        """Whether it is recorded so."""
        found = context.find_attachment(self.id)
        return found is not None and found.state is self.state


@dataclass(frozen=True)
class HandOverMigMode(Step):
    """Leaves it to another attachment on the GPU to turn MIG mode off again when it goes."""

    gpu: GpuUuid
    heir: str = field(metadata=SHOWN_AS_ID)
    heir_vm: str = field(metadata=SHOWN_AS_VM)
    kind: ClassVar[str] = "attachment.handover"
    takes_back: ClassVar[tuple[str, ...]] = (EnableMigMode.kind,)

    def describe(self) -> str:
        """For people."""
        return f"leave MIG mode on for {self.heir_vm}, whose detach turns it off"

    def do(self, context: OperationContext) -> None:
        """Writes it into the other's record and note, if that is still there."""
        self._write(context, True)

    def undo(self, context: OperationContext) -> None:
        """Writes the other's record and note as they were."""
        self._write(context, False)

    def _write(self, context: OperationContext, enabled: bool) -> None:
        if (heir := context.find_attachment(self.heir)) is not None:
            _save_other(context, heir.with_mig(mode_enabled=enabled))

    def observe(self, context: OperationContext) -> bool:
        """Whether the other has it."""
        heir = context.find_attachment(self.heir)
        return heir is not None and heir.mig_mode_enabled


@dataclass(frozen=True)
class HandOverVfs(Step):
    """Leaves it to another attachment of the same GPU to remove the virtual functions."""

    physical: PciAddress
    count: int = field(metadata=PRIVATE)
    heir: str = field(metadata=SHOWN_AS_ID)
    heir_vm: str = field(metadata=SHOWN_AS_VM)
    kind: ClassVar[str] = "attachment.vfs.handover"
    takes_back: ClassVar[tuple[str, ...]] = (CreateVfs.kind,)

    def describe(self) -> str:
        """For people."""
        return f"leave the virtual functions for {self.heir_vm}, whose detach removes them"

    def do(self, context: OperationContext) -> None:
        """Writes it into the other's record and note, if that is still there."""
        self._write(context, self.count)

    def undo(self, context: OperationContext) -> None:
        """Writes the other's record and note as they were."""
        self._write(context, 0)

    def observe(self, context: OperationContext) -> bool:
        """Whether the other has it."""
        heir = context.find_attachment(self.heir)
        devices = heir.host_devices if heir is not None else ()
        return any(d.parent == self.physical and d.made_vfs for d in devices)

    def _write(self, context: OperationContext, count: int) -> None:
        heir = context.find_attachment(self.heir)
        if heir is None:
            return
        devices = tuple(
            replace(d, made_vfs=count) if d.parent == self.physical else d
            for d in heir.host_devices
        )
        _save_other(context, replace(heir, host_devices=devices))


def _save_other(context: OperationContext, record: AttachmentRecord) -> None:
    """Writes another attachment's record, and its note where its VM has one. A run has no VM."""
    context.attachment_store.save_attachment(record)
    if record.run is not None:
        return
    with contextlib.suppress(VmNotFoundError):
        vm = context.hypervisor.read_vm(record.vm_uuid)
        if vm.find_note(record.id) is not None:
            save_note(context.hypervisor, vm, describe_record(record))


@dataclass(frozen=True)
class ForgetAttachment(Step):
    """Removes the record of an attachment, last of all."""

    id: str
    kind: ClassVar[str] = "attachment.forget"

    def describe(self) -> str:
        """For people."""
        return f"forget attachment {self.id}"

    def do(self, context: OperationContext) -> None:
        """Forgets it."""
        context.attachment_store.delete_attachment(self.id)

    def undo(self, context: OperationContext) -> None:
        """Writes it again."""
        context.attachment_store.save_attachment(context.record)

    def observe(self, context: OperationContext) -> bool:
        """Whether it is gone."""
        return context.find_attachment(self.id) is None


@dataclass(frozen=True)
class BindSlices(OneWayStep):
    """Writes into the attachments at one place which instances are theirs now. It belongs to the
    operation that makes these: one that is interrupted before is undone, and no instances stay.
    """

    gpu: GpuUuid
    placement: Placement
    kind: ClassVar[str] = "attachment.bind"

    def describe(self) -> str:
        """For people."""
        return f"note whose the slices at {self.placement} on {self.gpu} are"

    def do(self, context: OperationContext) -> None:
        """Writes all that changed as one."""
        if changed := self._list_changed(context):
            context.attachment_store.save_attachments(changed)

    def observe(self, context: OperationContext) -> bool:
        """Whether the records of all of them are up to date."""
        return not self._list_changed(context)

    def _list_changed(self, context: OperationContext) -> list[AttachmentRecord]:
        records = context.attachment_store.list_attachments()
        found = rebind({self.gpu: context.mig.list_instances(self.gpu)}, records)
        return [
            bind_slice(record, ref)
            for record in list_records(records)
            if (record.gpu, record.placement) == (self.gpu, self.placement)
            and (ref := found[record.id]) is not None
            and ref != record.mig
        ]


def bind_slice(record: AttachmentRecord, ref: MigInstanceRef) -> AttachmentRecord:
    """The record with its slice as it is now."""
    return record.with_mig(ref=ref, gpu_instance_id=ref.gpu_instance_id)


@dataclass(frozen=True)
class DrainGpu(Step):
    """Records that a GPU takes no new slice."""

    drain: Drain
    #: what was recorded of it before
    earlier: Drain | None = field(default=None, metadata=PRIVATE)
    kind: ClassVar[str] = "gpu.drain"

    def describe(self) -> str:
        """For people."""
        return f"drain {self.drain.address}: no new slice from now on"

    def do(self, context: OperationContext) -> None:
        """Writes it."""
        context.drain_store.save_drain(self.drain)

    def undo(self, context: OperationContext) -> None:
        """Writes what was there before."""
        if self.earlier is not None:
            context.drain_store.save_drain(self.earlier)
        else:
            context.drain_store.forget_drain(self.drain)

    def observe(self, context: OperationContext) -> bool:
        """Whether it is recorded so."""
        return self.drain in context.drain_store.list_drains()


@dataclass(frozen=True)
class ResumeGpu(Step):
    """Forgets that a GPU is drained."""

    drain: Drain
    kind: ClassVar[str] = "gpu.resume"

    def describe(self) -> str:
        """For people."""
        return f"resume {self.drain.address}: it takes new slices again"

    def do(self, context: OperationContext) -> None:
        """Forgets it."""
        context.drain_store.forget_drain(self.drain)

    def undo(self, context: OperationContext) -> None:
        """Writes it again."""
        context.drain_store.save_drain(self.drain)

    def observe(self, context: OperationContext) -> bool:
        """Whether it is forgotten."""
        return self.drain not in context.drain_store.list_drains()
