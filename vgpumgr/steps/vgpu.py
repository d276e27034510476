"""Steps on vGPUs: creating and deleting them, their definitions, taking over those of others, and the mode in which
a GPU holds time-sliced ones of several sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, ClassVar

from vgpumgr.engine.step import PRIVATE, NothingDoneError, Step
from vgpumgr.errors import (
    HelperDiedError,
    HelperLateError,
    ReadBackError,
    VgpuBusyError,
    VgpuForeignError,
    VgpumgrError,
    VgpuNoRoomError,
    VgpuParentGoneError,
    VgpuTakenError,
    VgpuTypeNotFoundError,
)
from vgpumgr.mdev.control import VgpuControl
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.vgpu import (
    Framework,
    VgpuDefinition,
    VgpuDevice,
    VgpuInstance,
    VgpuRecord,
    VgpuSpec,
    VgpuState,
    VgpuStore,
    find_record,
    make_inactive,
)
from vgpumgr.steps.pci import RELEASE_TIMEOUT_S, make_release_pending

if TYPE_CHECKING:
    from vgpumgr.engine.context import OperationContext


#: what is answered before anything was changed
CERTAIN = (VgpuNoRoomError, VgpuParentGoneError, VgpuTakenError, VgpuTypeNotFoundError)


def describe_place(spec: VgpuSpec) -> str:
    """Where it is: the function, or UUID and parent."""
    if spec.framework is Framework.VENDOR_VFIO:
        return f"on {spec.parent}"
    return f"{spec.uuid} on {spec.parent}"


@dataclass(frozen=True)
class VgpuStep(Step):
    """A step on one vGPU, which its specification names before it exists."""

    spec: VgpuSpec = field(metadata=PRIVATE)

    @property
    def target(self) -> Mapping[str, object]:
        """All of the specification, and the step's other fields."""
        return {**self.spec.as_dict(), **super().target}


@dataclass(frozen=True)
class CreateVgpu(VgpuStep):
    """Creates a vGPU and sets its attributes; it is recorded as ours before the kernel is asked."""

    #: the attachment that it is made for
    attachment: str | None = None
    #: the GPU instance that the same plan made for it
    instance: VgpuInstance | None = field(default=None, metadata=PRIVATE)
    #: a boot took it away: undone, it is to come back still
    missing: bool = field(default=False, metadata=PRIVATE)
    kind: ClassVar[str] = "mdev.create"
    by_helper: ClassVar[bool] = True

    def describe(self) -> str:
        """For people."""
        return f"create vGPU {self.spec.type_name} {describe_place(self.spec)}"

    def do(self, context: OperationContext) -> None:
        """Creates it and reads it back; what is somebody else's is left alone."""
        before = find_record(context.vgpu_store, self.spec.uuid)
        base = before or VgpuRecord(self.spec, VgpuState.CREATING)
        record = replace(
            base,
            spec=self.spec,
            state=VgpuState.CREATING,
            attachment=self.attachment or base.attachment,
            instance=self.instance or base.instance,
            instance_boot="" if self.instance else base.instance_boot,
            lost=False,
        )
        context.vgpu_store.save_vgpu(record)
        if self.instance is None and base.instance is not None:
            # of an earlier boot it is none of ours any more
            record = find_record(context.vgpu_store, self.spec.uuid) or record
        try:
            device = context.vgpus.create(self.spec)
        except CERTAIN as error:
            _forget(context.vgpu_store, record, lost=self.missing)
            raise NothingDoneError(error) from error
        active = replace(
            record,
            state=VgpuState.ACTIVE,
            iommu_group=device.iommu_group,
            gpu_instance_id=device.gpu_instance_id,
            instance=record.instance or _find_shared(context, device),
        )
        context.vgpu_store.save_vgpu(active)

    def undo(self, context: OperationContext) -> None:
        """Removes it once nobody has it open, unless it never was ours."""
        record = find_record(context.vgpu_store, self.spec.uuid)
        if record is not None and record.takes_room:
            await_release(context, record, f"take back vGPU {self.spec.type_name}")
            _remove(context, record, lost=self.missing)

    def observe(self, context: OperationContext) -> bool:
        """Whether it is there, or recorded as about to be."""
        record = find_record(context.vgpu_store, self.spec.uuid)
        return record is not None and record.takes_room


def _find_shared(context: OperationContext, device: VgpuDevice) -> VgpuInstance | None:
    """The GPU instance that was made for another vGPU of ours, if this one was put into it too."""
    if device.gpu_instance_id is None:
        return None
    host = context.vgpus.read_host()
    home = host.find_parent(device.parent)
    for record in context.vgpu_store.list_vgpus():
        parent = host.find_parent(record.spec.parent)
        same_gpu = home is not None and parent is not None and parent.board == home.board
        if same_gpu and record.gpu_instance_id == device.gpu_instance_id and record.instance:
            return record.instance
    return None


@dataclass(frozen=True)
class DeleteVgpu(VgpuStep):
    """Removes a vGPU of ours. A definition stays.

    ``for_vm``: it was made for a VM, which may still have it open, and its record goes with it. ``gone``: it was not
    there any more when this was planned, and only its record goes.
    """

    for_vm: bool = field(default=False, kw_only=True, metadata=PRIVATE)
    #: with ``for_vm``: the GPU instance that it lives in, if that was made for it or one that it joined
    home: VgpuInstance | None = field(default=None, kw_only=True, metadata=PRIVATE)
    gone: bool = field(default=False, kw_only=True, metadata=PRIVATE)
    kind: ClassVar[str] = "mdev.delete"
    by_helper: ClassVar[bool] = True
    takes_back: ClassVar[tuple[str, ...]] = (CreateVgpu.kind,)

    def describe(self) -> str:
        """For people."""
        word = "forget" if self.gone else "delete"
        rest = ", which is gone already" if self.gone else ""
        return f"{word} vGPU {self.spec.type_name} {describe_place(self.spec)}{rest}"

    def do(self, context: OperationContext) -> None:
        """Waits until nobody has it open, then removes it.

        The record must still say that this vGPU is ours: on a virtual function, another one may have
        taken its place since. Raises ReleasePendingError while a VM has it open.
        """
        if self.for_vm:
            self._save_home(context)
        record = find_record(context.vgpu_store, self.spec.uuid)
        if record is None or not record.takes_room:
            self._check_gone(context)
            return
        if self._is_replaced(context):
            _forget(context.vgpu_store, record)
            return
        try:
            await_release(context, record, self.describe())
        except NothingDoneError as error:
            if not self.for_vm:
                raise
            what = f"vGPU {self.spec.type_name} {describe_place(self.spec)} is not free yet"
            held_by = tuple(getattr(error.error, "held_by", ()))
            raise NothingDoneError(make_release_pending(what, held_by)) from error
        _remove(context, record)

    def _save_home(self, context: OperationContext) -> None:
        """What is remembered of the vGPU may go with it: recovery needs to know where it lived."""
        boot = context.pci.boot_id
        devices = tuple(
            replace(device, instance=self.home)
            if device.vgpu and device.vgpu.uuid == self.spec.uuid
            else device
            for device in context.record.host_devices
        )
        dated = context.record.instances_boot == boot or self.home is None
        if devices != context.record.host_devices or not dated:
            context.save_record(host_devices=devices, instances_boot=boot)

    def undo(self, context: OperationContext) -> None:
        """Creates it again, unless it has not gone, or was a VM's: a detach goes on."""
        if self.for_vm:
            return
        record = find_record(context.vgpu_store, self.spec.uuid)
        if record is not None and record.state is VgpuState.RELEASING and self._is_there(context):
            context.vgpu_store.save_vgpu(replace(record, state=VgpuState.ACTIVE))
        elif record is None or record.state in (VgpuState.RELEASING, VgpuState.INACTIVE):
            CreateVgpu(self.spec).do(context)

    def _is_there(self, context: OperationContext) -> bool:
        device = context.vgpus.find_device(self.spec)
        return device is not None and device.type_id == self.spec.type_id

    def observe(self, context: OperationContext) -> bool:
        """Whether it is gone."""
        record = find_record(context.vgpu_store, self.spec.uuid)
        return record is None or not record.takes_room

    def _check_gone(self, context: OperationContext) -> None:
        """Nothing of ours is there. With mediated devices the UUID tells whose it is."""
        if self.spec.framework is Framework.MDEV and context.vgpus.find_device(self.spec):
            raise VgpuForeignError(
                f"cannot {self.describe()}",
                why="it is not ours any more",
                hint=f"vgpumgr mdev adopt {self.spec.uuid}",
            )

    def _is_replaced(self, context: OperationContext) -> bool:
        """Whether somebody else has given the virtual function another type meanwhile."""
        if self.spec.framework is Framework.MDEV:
            return False
        device = context.vgpus.find_device(self.spec)
        return device is not None and device.type_id != self.spec.type_id


def await_release(context: OperationContext, record: VgpuRecord, what: str) -> None:
    """Waits until nobody has it open. Raises VgpuBusyError, certain that nothing was changed."""
    held_by: tuple[str, ...] = ()

    def is_free() -> bool:
        nonlocal held_by
        held_by = list_holders(context.vgpus, record)
        return not held_by

    if not context.wait(is_free, RELEASE_TIMEOUT_S):
        error: VgpumgrError = VgpuBusyError(
            f"cannot {what}",
            why="a process has it open",
            held_by=held_by,
            hint="shut the VM down or detach the device, then repeat",
        )
        raise NothingDoneError(error)


def list_holders(vgpus: VgpuControl, record: VgpuRecord) -> tuple[str, ...]:
    """Who has a vGPU of ours open, also where it has been removed from under him, by us or others."""
    device = vgpus.find_device(record.spec)
    if device is not None:
        return vgpus.list_holders(device)
    if not record.takes_room or record.iommu_group is None:
        return ()
    if any(other.iommu_group == record.iommu_group for other in vgpus.read_host().devices):
        return ()  # the group's number was given away: it is released
    return vgpus.list_group_holders(record.iommu_group)


def _remove(context: OperationContext, record: VgpuRecord, *, lost: bool = False) -> None:
    """Until it is really gone, its record says so: its room is not given away."""
    context.vgpu_store.save_vgpu(replace(record, state=VgpuState.RELEASING))
    try:
        context.vgpus.delete(record.spec)
    except (HelperLateError, HelperDiedError):
        raise  # it may yet go
    except VgpumgrError:
        context.vgpu_store.save_vgpu(record)
        raise
    _forget(context.vgpu_store, record, lost=lost)


def _forget(store: VgpuStore, record: VgpuRecord, *, lost: bool = False) -> None:
    """What is defined comes back; anything else is forgotten."""
    if record.defined:
        store.save_vgpu(make_inactive(record, lost=lost))
    else:
        store.delete_vgpu(record.spec.uuid)


@dataclass(frozen=True)
class SetMixedSizes(Step):
    """Switches mixed sizes on; the GPU has no vGPU then. A boot forgets it."""

    gpu: GpuUuid
    #: for people
    gpu_index: int | None = field(default=None, kw_only=True)
    kind: ClassVar[str] = "mdev.mixed-sizes"
    by_helper: ClassVar[bool] = True

    @property
    def where(self) -> str:
        """The GPU, for people."""
        return str(self.gpu) if self.gpu_index is None else f"GPU {self.gpu_index}"

    def describe(self) -> str:
        """For people."""
        return f"let {self.where} hold vGPUs of several sizes"

    def do(self, context: OperationContext) -> None:
        """Asks NVML and reads back."""
        context.nvml.set_mixed_sizes(self.gpu, True)
        if not self.observe(context):
            raise ReadBackError(f"mixed vGPU sizes were switched on on {self.where}, and are off")

    def undo(self, context: OperationContext) -> None:
        """Switches them off again."""
        context.nvml.set_mixed_sizes(self.gpu, False)

    def observe(self, context: OperationContext) -> bool:
        """Whether they are on."""
        return any(g.gpu == self.gpu and g.mixed_sizes for g in context.nvml.list_vgpus())


def make_definition(spec: VgpuSpec, auto: bool) -> VgpuDefinition:
    """The definition as mdevctl has it."""
    return VgpuDefinition(spec.uuid, spec.parent, spec.type_id, auto, spec.attributes)


@dataclass(frozen=True)
class DefineVgpu(VgpuStep):
    """Writes down that a vGPU is to come back: for mdevctl as well, where it is a mediated device.

    ``before``: the definition that there was, None if there was none.
    """

    auto: bool
    before: VgpuSpec | None = None
    before_auto: bool = False
    kind: ClassVar[str] = "mdev.define"

    @property
    def target(self) -> Mapping[str, object]:
        """What is defined, and what was."""
        return {**super().target, "before": self.before and self.before.as_dict()}

    def describe(self) -> str:
        """For people."""
        when = "at boot" if self.auto else "when asked for"
        what = f"define vGPU {self.spec.type_name} {describe_place(self.spec)}, started {when}"
        said = ", ".join(f"{name}={value}" for name, value in self.spec.attributes)
        return f"{what}, with {said}" if said else what

    def do(self, context: OperationContext) -> None:
        """Writes the definition, and reads it back."""
        _define(context, self.spec, self.auto)
        if self.spec.framework is Framework.MDEV:
            wanted = make_definition(self.spec, self.auto)
            if wanted not in context.vgpus.list_definitions():
                raise ReadBackError(f"the definition of {self.spec.uuid} is not as it was written")

    def undo(self, context: OperationContext) -> None:
        """Puts back what there was."""
        if self.before is not None:
            _define(context, self.before, self.before_auto)
        else:
            _undefine(context, self.spec)

    def observe(self, context: OperationContext) -> bool:
        """Whether it is defined so."""
        record = find_record(context.vgpu_store, self.spec.uuid)
        if record is None or not record.defined:
            return False
        same = record.spec.attributes == self.spec.attributes
        return same and record.auto == self.auto


@dataclass(frozen=True)
class UndefineVgpu(VgpuStep):
    """Takes a definition of ours away; the vGPU itself stays."""

    auto: bool
    kind: ClassVar[str] = "mdev.undefine"

    def describe(self) -> str:
        """For people."""
        return f"forget the definition of vGPU {self.spec.type_name} {describe_place(self.spec)}"

    def do(self, context: OperationContext) -> None:
        """Removes it."""
        _undefine(context, self.spec)

    def undo(self, context: OperationContext) -> None:
        """Writes it again."""
        _define(context, self.spec, self.auto)

    def observe(self, context: OperationContext) -> bool:
        """Whether it is gone."""
        record = find_record(context.vgpu_store, self.spec.uuid)
        return record is None or not record.defined


@dataclass(frozen=True)
class AdoptVgpu(VgpuStep):
    """Records a vGPU, or a definition, that somebody else made as ours. The host is not changed."""

    active: bool
    defined: bool
    auto: bool
    iommu_group: int | None = None
    kind: ClassVar[str] = "mdev.adopt"

    def describe(self) -> str:
        """For people."""
        return f"take over vGPU {self.spec.type_name} {describe_place(self.spec)}"

    def do(self, context: OperationContext) -> None:
        """Records it."""
        context.vgpu_store.save_vgpu(
            VgpuRecord(
                self.spec,
                VgpuState.ACTIVE if self.active else VgpuState.INACTIVE,
                defined=self.defined,
                auto=self.auto,
                iommu_group=self.iommu_group,
            )
        )

    def undo(self, context: OperationContext) -> None:
        """Forgets it."""
        context.vgpu_store.delete_vgpu(self.spec.uuid)

    def observe(self, context: OperationContext) -> bool:
        """Whether it is ours."""
        return find_record(context.vgpu_store, self.spec.uuid) is not None


def _define(context: OperationContext, spec: VgpuSpec, auto: bool) -> None:
    """The record first: with it, a crash leaves nothing that would not be ours."""
    record = find_record(context.vgpu_store, spec.uuid) or VgpuRecord(spec, VgpuState.INACTIVE)
    context.vgpu_store.save_vgpu(replace(record, spec=spec, defined=True, auto=auto))
    if spec.framework is Framework.MDEV:
        context.vgpus.write_definition(make_definition(spec, auto))


def _undefine(context: OperationContext, spec: VgpuSpec) -> None:
    if spec.framework is Framework.MDEV:
        context.vgpus.remove_definition(spec.parent, spec.uuid)
    record = find_record(context.vgpu_store, spec.uuid)
    if record is None:
        return
    if record.takes_room:
        context.vgpu_store.save_vgpu(replace(record, defined=False, auto=False))
    else:
        context.vgpu_store.delete_vgpu(spec.uuid)
