"""GPU instances of MIG-backed vGPUs: those that are made for them and go with the last of them, and which vGPU is in
which: pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from vgpumgr.engine.step import Step
from vgpumgr.mig.layout.change import list_create_steps, list_destroy_steps
from vgpumgr.mig.placement import count_free, list_choices
from vgpumgr.model.attachment import AttachmentRecord, SliceOwner
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import GpuInstance, MigProfile, Placement
from vgpumgr.model.vgpu import (
    Framework,
    VgpuBoard,
    VgpuDevice,
    VgpuHost,
    VgpuInstance,
    VgpuRecord,
)
from vgpumgr.steps.mig import make_step

#: one that is only planned has no id yet: these count down from here
_PLANNED = -1


@dataclass(frozen=True, slots=True)
class NewInstance:
    """A GPU instance that must be made first, for a MIG-backed type."""

    gpu: Gpu
    profile: MigProfile
    placement: Placement


def place_instance(gpu: Gpu, profile: MigProfile) -> NewInstance:
    """Where it goes: the best place that costs the profile no more than this one's room. There must
    be room for one.
    """
    before = count_free(gpu, profile.name)
    choices = [NewInstance(gpu, profile, c.placement) for c in list_choices([gpu], profile.name)]
    return next((made for made in choices if _count_after(made) == before - 1), choices[0])


def _count_after(made: NewInstance) -> int:
    (gpu,), _ = with_instance([made.gpu], made)
    return count_free(gpu, made.profile.name)


def with_instance(gpus: Sequence[Gpu], made: NewInstance) -> tuple[tuple[Gpu, ...], int]:
    """The GPUs as they are to be, and the id that stands for the new instance there."""
    id_ = _PLANNED - sum(len(gpu.instances) for gpu in gpus)
    profile = made.profile
    instance = GpuInstance(
        id_, profile.id, profile.name, made.placement, profile.slices, profile.memory_bytes
    )

    def extend(gpu: Gpu) -> Gpu:
        profiles = tuple(
            replace(p, remaining=max(0, p.remaining - 1))
            if p.id == profile.id and p.remaining is not None
            else p
            for p in gpu.profiles
        )
        return replace(gpu, instances=(*gpu.instances, instance), profiles=profiles)

    return tuple(extend(gpu) if gpu.uuid == made.gpu.uuid else gpu for gpu in gpus), id_


def has_planned(gpu: Gpu, profile: MigProfile) -> bool:
    """Whether the same plan makes a GPU instance of that size: the kernel does not offer it yet."""
    return any(i.id <= _PLANNED and i.profile_id == profile.id for i in gpu.instances)


def plan_instance(instance: NewInstance | None) -> tuple[Step, ...]:
    """Makes the GPU instance with its compute instance; nothing where there is one already."""
    if instance is None:
        return ()
    gpu = instance.gpu
    specs = list_create_steps(gpu, instance.profile, instance.placement)
    return tuple(make_step(spec, gpu.index) for spec in specs)


def plan_without_instance(
    made: VgpuInstance, gpus: Sequence[Gpu], others: Sequence[VgpuInstance]
) -> tuple[Step, ...]:
    """Destroys the GPU instance that was made for a vGPU, unless others live in it or a process uses
    it.
    """
    gpu = next((g for g in gpus if g.uuid == made.gpu), None)
    if gpu is None or made in others:
        return ()
    for instance in gpu.instances:
        if instance.placement == made.placement and str(instance.profile) == made.profile:
            if any(process.gpu_instance_id == instance.id for process in gpu.processes):
                return ()
            specs = list_destroy_steps(gpu, instance)
            return tuple(make_step(spec, gpu.index) for spec in specs)
    return ()


@dataclass(frozen=True, slots=True)
class _Tenant:
    """A MIG-backed vGPU that exists, or is held by a process after its removal, as far as it is known."""

    name: str
    owner: str
    profile_id: int
    gpu_instance_id: int | None
    home: VgpuInstance | None
    vm: str | None

    def own(self, gpu: Gpu, instance: GpuInstance, *, alone: bool) -> SliceOwner:
        """As the owner of a GPU instance; not ``alone``: it may be in another of its profile."""
        vgpu = self.name if alone else f"{self.name}, which may be in it"
        vm = self.vm or vgpu
        is_vm = self.vm is not None
        return SliceOwner(gpu.uuid, instance.id, None, vm, self.owner, is_vm, vgpu)


def find_vgpu_owners(
    gpus: Sequence[Gpu],
    host: VgpuHost,
    vgpus: Sequence[VgpuRecord],
    attachments: Sequence[AttachmentRecord],
    boot_id: str,
) -> list[SliceOwner]:
    """Whose vGPUs, ours or another program's, are in the GPU instances of these GPUs.

    A mediated device does not say which instance the driver has put it in. If none was made for it, it owns each
    instance of its type's profile that no attachment has and no other vGPU is known to be in.
    """
    vms = {record.id: record.vm_name for record in attachments}
    slices = {(r.gpu, r.placement) for r in attachments if r.mig_part is not None}
    found: list[SliceOwner] = []
    for gpu in gpus:
        board = host.find_board(str(gpu.pci))
        if board is None:
            continue
        unplaced, known = list[_Tenant](), set[int]()
        for tenant in _list_tenants(host, board, vgpus, vms, boot_id):
            there = [i for i in gpu.instances if _is_home(gpu, i, tenant)]
            found += [tenant.own(gpu, i, alone=True) for i in there]
            known |= {i.id for i in there}
            if not there:
                unplaced.append(tenant)
        for tenant in unplaced:
            possible = [
                i
                for i in gpu.instances
                if i.profile_id == tenant.profile_id
                and i.id not in known
                and (gpu.uuid, i.placement) not in slices
            ]
            found += [tenant.own(gpu, i, alone=len(possible) == 1) for i in possible]
    return found


def _list_tenants(
    host: VgpuHost,
    board: VgpuBoard,
    vgpus: Sequence[VgpuRecord],
    vms: Mapping[str, str],
    boot_id: str,
) -> Iterator[_Tenant]:
    ours = {
        record.spec.uuid if record.spec.framework is Framework.MDEV else record.spec.parent: record
        for record in vgpus
        if record.takes_room
    }
    devices = {device.key: device for device in host.list_on(board.name)}
    parents = {parent.name for parent in host.list_parents(board.name)}
    gone = [key for key, r in ours.items() if r.spec.parent in parents and key not in devices]
    for key in (*devices, *gone):
        device, record = devices.get(key), ours.get(key)
        type_ = board.find_type(device.type_id if device else record.spec.type_id if record else "")
        if type_ is None or type_.gpu_instance_profile_id is None:
            continue
        this_boot = record is not None and record.boot == boot_id
        recorded = record.gpu_instance_id if record and this_boot else None
        yield _Tenant(
            name=f"vGPU {type_.name} {record.spec.uuid if record else key}",
            owner=(record.attachment or record.spec.uuid) if record else key,
            profile_id=type_.gpu_instance_profile_id,
            gpu_instance_id=_read_instance(device, recorded),
            home=record.find_home(boot_id) if record else None,
            vm=(device.vm_name if device else None)
            or (vms.get(record.attachment or "") if record else None),
        )


def _read_instance(device: VgpuDevice | None, recorded: int | None) -> int | None:
    if device is not None and device.gpu_instance_id is not None:
        return device.gpu_instance_id
    return recorded


def _is_home(gpu: Gpu, instance: GpuInstance, tenant: _Tenant) -> bool:
    if tenant.gpu_instance_id is not None:
        return instance.id == tenant.gpu_instance_id
    home = tenant.home
    return home is not None and (home.gpu, home.placement) == (gpu.uuid, instance.placement)
