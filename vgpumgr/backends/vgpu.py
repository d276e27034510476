"""``mdev``, and what it shares with ``vf``: a vGPU of either framework, as a grant and taken back."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from vgpumgr.backends.base import Restored, Target, Wanted
from vgpumgr.backends.hostdev import HostDeviceBackend, HostDeviceGrant
from vgpumgr.domain.devices import mdev_alias, pci_alias
from vgpumgr.domain.hostdev_advice import DeviceFacts
from vgpumgr.engine.step import Step
from vgpumgr.errors import (
    BackendUnsupportedError,
    VgpumgrError,
    VgpuNotSupportedError,
    VgpuTypeNotFoundError,
)
from vgpumgr.model.attachment import AttachmentRecord, HostDevice, HostDeviceKind
from vgpumgr.model.choices import PROFILE_WORDS, Display
from vgpumgr.model.choices import Backend as BackendName
from vgpumgr.model.mig import MigProfileName
from vgpumgr.model.pci import Function, PciAddress
from vgpumgr.model.request import MigRequest, ProfileRequest, VgpuRequest
from vgpumgr.model.text import format_vm, list_near
from vgpumgr.model.vgpu import (
    Framework,
    VgpuHost,
    VgpuInstance,
    VgpuRecord,
    VgpuSpec,
    VgpuType,
)
from vgpumgr.planning.reservations import describe_fleeting
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.planning.vgpu_instance import plan_instance, plan_without_instance
from vgpumgr.planning.vgpu_selection import VgpuChoice, choose_vgpus
from vgpumgr.planning.vgpus import describe_instance
from vgpumgr.steps.vgpu import CreateVgpu, DeleteVgpu

#: the backend of each framework
_BACKENDS = {Framework.MDEV: BackendName.MDEV, Framework.VENDOR_VFIO: BackendName.VF}
_FORMS = {
    Framework.MDEV: "a mediated device",
    Framework.VENDOR_VFIO: "a vGPU on a virtual function",
}


class VgpuBackend(HostDeviceBackend):
    """vGPU types, and MIG profiles by the types that a GPU instance backs. Where ``auto`` allows both
    frameworks their parents are compared with each other.
    """

    def match(self, profile: ProfileRequest) -> bool:
        """See ``Backend``."""
        return isinstance(profile, MigRequest | VgpuRequest)

    def has_display(self, profile: ProfileRequest) -> bool:
        """See ``Backend``."""
        return isinstance(profile, MigRequest | VgpuRequest)

    def _choose(
        self, wanted: Wanted, target: Target, snapshot: Snapshot
    ) -> Sequence[HostDeviceGrant]:
        request = wanted.request
        snapshot = _keep_needed(wanted, snapshot)
        seen = snapshot.replace(
            vgpus=_keep_frameworks(snapshot.vgpus, wanted.backends),
            reservations=snapshot.reservations,
        )
        types = [request.profile]
        if isinstance(wanted.profile, MigRequest):
            types = _list_backed_types(seen, wanted.profile.name)
        uuids = [name.uuid for name in target.names]
        chosen = _choose_first(seen, types, wanted, uuids)
        return [
            _grant(wanted, snapshot, seen, choice, spec, name.id)
            for (choice, spec), name in zip(chosen, target.names, strict=True)
        ]

    def explain(
        self, error: VgpumgrError, wanted: Wanted, target: Target, snapshot: Snapshot
    ) -> None:
        """See ``Backend``; a type that nobody knows may be a profile that was nearly written."""
        super().explain(error, wanted, target, snapshot)
        profile = wanted.profile
        unknown = isinstance(error, VgpuNotSupportedError | VgpuTypeNotFoundError)
        if not unknown or not isinstance(profile, VgpuRequest):
            return
        profiles = {p.name for gpu in snapshot.observed_gpus or () for p in gpu.profiles}
        known = [*PROFILE_WORDS, *sorted(map(str, profiles))]
        if near := list_near(profile.type_name.lower(), known, cutoff=0.75):
            error.why = f"did you mean {' or '.join(near)}?"
            error.hint = f"vgpumgr attach {format_vm(wanted.request.vm)} --profile {shlex.quote(near[0])} --dry-run"

    def _give_back(
        self, device: HostDevice, record: AttachmentRecord, snapshot: Snapshot
    ) -> Sequence[Step]:
        """The vGPU goes, and the GPU instance that was made for it with the last that lives in it."""
        if device.vgpu is None:
            return super()._give_back(device, record, snapshot)
        if not device.created:
            return ()
        homes = snapshot.homes
        home = homes.get(device.vgpu.uuid, device.instance)
        gone = not snapshot.has_vgpu(device.vgpu)
        steps: list[Step] = [DeleteVgpu(device.vgpu, for_vm=True, home=home, gone=gone)]
        if home is not None:
            own = {d.vgpu.uuid for d in record.host_devices if d.vgpu is not None}
            others = [one for uuid, one in homes.items() if uuid not in own and one is not None]
            others += [
                one
                for other in snapshot.records
                if other.id != record.id
                for one in list_homes(other, homes)
            ]
            steps += plan_without_instance(home, snapshot.list_gpus_of_slices(), others)
        return steps

    def _describe_kept(self, record: AttachmentRecord, snapshot: Snapshot) -> Sequence[str]:
        """What stands where a GPU instance of its vGPUs was before a boot: it may be anybody's, and stays."""
        devices = [d for d in record.host_devices if d.vgpu is not None and d.instance is not None]
        if not devices or list_homes(record, snapshot.homes):
            return ()
        return [
            f"{there.profile} at {there.placement} on {gpu} stays: the one that was made for "
            f"{device.vgpu.type_name} ended with an earlier boot, this one may have another owner; "
            f"vgpumgr mig list shows what is in it"
            for device in devices
            if device.vgpu is not None and device.instance is not None
            for gpu in snapshot.list_gpus_of_slices()
            if gpu.uuid == device.instance.gpu
            for there in gpu.instances
            if there.placement == device.instance.placement
        ]

    def leave_out(self, record: AttachmentRecord, snapshot: Snapshot) -> Snapshot:
        """See ``Backend``."""
        gone = {device.vgpu.uuid for device in record.host_devices if device.vgpu is not None}
        left = {uuid: home for uuid, home in snapshot.homes.items() if uuid not in gone}
        return snapshot.replace(homes=left)

    def restore(self, record: AttachmentRecord, snapshot: Snapshot) -> Restored | None:
        """See ``Backend``: the record follows its vGPUs. A boot may have changed the type's number, and
        the place of the GPU instance.
        """
        known = {one.spec.uuid: one for one in snapshot.vgpu_records}
        now = [known.get(d.vgpu.uuid) if d.vgpu else None for d in record.host_devices]
        boot = snapshot.boot_id
        is_back = any(one is not None and one.takes_room and one.boot == boot for one in now)
        devices = zip(record.host_devices, now, strict=True)
        followed = replace(
            record,
            host_devices=tuple(_follow(device, one, is_back) for device, one in devices),
            instances_boot=boot if is_back else record.instances_boot,
        )
        return None if followed == record else Restored(followed)


def _follow(device: HostDevice, now: VgpuRecord | None, is_back: bool) -> HostDevice:
    """Until it is back its old place is kept for it."""
    if now is None:
        return device
    return replace(device, vgpu=now.spec, instance=now.instance if is_back else device.instance)


def list_homes(
    record: AttachmentRecord, homes: Mapping[str, VgpuInstance | None]
) -> list[VgpuInstance]:
    """The GPU instances that were made for its vGPUs, and are there for all that is known."""
    found = [homes.get(d.vgpu.uuid, d.instance) for d in record.host_devices if d.vgpu]
    return [home for home in found if home is not None]


def _keep_needed(wanted: Wanted, snapshot: Snapshot) -> Snapshot:
    """The driver says what is free: neither the VMs nor who uses functions matters. Where all parents
    are without hardware, a type of theirs needs neither the PCI bus nor NVML.
    """
    vgpus, request = snapshot.vgpus, wanted.request
    on_bus = any(PciAddress.read(parent.name) for parent in vgpus.parents)
    if not on_bus:
        snapshot = snapshot.replace(reservations=(), vf_settings=())
    is_known = any(request.profile in (t.id, t.name) for b in vgpus.boards for t in b.types)
    if on_bus or not is_known or request.gpu is not None:
        return snapshot
    return snapshot.replace(functions=(), gpus=(), reserved=(), iommufd=False)


def _keep_frameworks(vgpus: VgpuHost, backends: Sequence[BackendName]) -> VgpuHost:
    """The parents whose framework is one of those backends."""
    parents = tuple(p for p in vgpus.parents if _BACKENDS[p.framework] in backends)
    names = {parent.board for parent in parents}
    return replace(vgpus, parents=parents, boards=tuple(b for b in vgpus.boards if b.name in names))


def _list_backed_types(seen: Snapshot, name: MigProfileName) -> list[str]:
    """MIG-backed types that fill a GPU instance of that profile, those for computing first."""
    ids = {p.id for gpu in seen.gpus for p in gpu.profiles if p.name == name}
    found: dict[str, VgpuType] = {
        type_.id: type_
        for board in seen.vgpus.boards
        for type_ in board.types
        if type_.gpu_instance_profile_id in ids and type_.max_per_gpu_instance in (None, 1)
    }
    ordered = sorted(found.values(), key=lambda t: (not t.name.upper().endswith("C"), t.name))
    if not ordered:
        raise VgpuTypeNotFoundError(
            f"no vGPU type here is backed by {name}",
            why="MIG-backed types need a vGPU host driver, and a GPU in MIG mode",
            hint="vgpumgr mdev types; or --backend forward, which needs neither",
        )
    return [type_.id for type_ in ordered]


def _choose_first(
    seen: Snapshot, types: Sequence[str], wanted: Wanted, uuids: Sequence[str]
) -> tuple[tuple[VgpuChoice, VgpuSpec], ...]:
    request = wanted.request
    problem: VgpumgrError | None = None
    for name in types:
        try:
            return choose_vgpus(seen, name, request.gpu, uuids, spread=request.spread)
        except VgpumgrError as error:
            problem = problem or error
    assert problem is not None
    raise problem


def _grant(
    wanted: Wanted,
    snapshot: Snapshot,
    seen: Snapshot,
    choice: VgpuChoice,
    spec: VgpuSpec,
    attachment: str,
) -> HostDeviceGrant:
    pci, display, made = spec.pci, wanted.display, describe_instance(choice.instance)
    if pci is not None and display is not Display.OFF:
        raise BackendUnsupportedError(
            f"{spec.type_name} has no display",
            why="libvirt shows the screen of mediated devices only",
            hint="--display off",
        )
    gpu, framework = seen.find_board_gpu(choice.board), choice.parent.framework
    fleeting = describe_fleeting(snapshot.vf_settings, choice.parent, gpu)
    what = f"{choice.type.name} is {_FORMS[framework]} here"
    device = HostDevice(
        kind=HostDeviceKind.MDEV if pci is None else HostDeviceKind.VF,
        alias=mdev_alias(attachment) if pci is None else pci_alias(attachment, 0),
        address=pci,
        vgpu=spec,
        instance=made,
        display=str(display),
        created=True,
    )
    function = snapshot.find(pci) if pci else _find_parent(snapshot, spec)
    return HostDeviceGrant(
        backend=BackendName.MDEV if pci is None else BackendName.VF,
        profile=spec.type_name,
        why="; ".join([what, choice.why, *choice.notes, *fleeting]),
        devices=(device,),
        steps=(*plan_instance(choice.instance), CreateVgpu(spec, attachment, made)),
        gpu=gpu.uuid if gpu else None,
        memory_bytes=choice.type.framebuffer_bytes or 0,
        facts=DeviceFacts(
            address=pci,
            numa_node=function.numa_node if function else None,
            numa_matters=snapshot.numa_matters,
            pins_memory=True,
        ),
        iommufd=pci is not None and snapshot.iommufd,
        display=display,
        instances_boot=snapshot.boot_id if made else "",
    )


def _find_parent(snapshot: Snapshot, spec: VgpuSpec) -> Function | None:
    address = PciAddress.read(spec.parent)
    return None if address is None else snapshot.find(address)


class MdevBackend(VgpuBackend):
    """Mediated devices of ``/sys/class/mdev_bus``: NVIDIA before SR-IOV, GVT-g, mtty."""

    name = BackendName.MDEV
