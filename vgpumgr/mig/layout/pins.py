"""Who holds which slice: from what NVML sees, and from the attachments that are remembered."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from vgpumgr.mig.layout.target import Pinned
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.slice import SliceOwner


def list_process_pins(gpu: Gpu) -> tuple[Pinned, ...]:
    """One for each process in an instance of the GPU."""
    return tuple(
        Pinned(gpu.uuid, p.gpu_instance_id, str(p), p.compute_instance_id)
        for p in gpu.processes
        if p.gpu_instance_id is not None
    )


def list_owner_pins(owners: Sequence[SliceOwner], free: Collection[str] = ()) -> tuple[Pinned, ...]:
    """One for each slice that belongs to a VM; not for VMs whose names are in ``free``."""
    return tuple(
        Pinned(o.gpu, o.gpu_instance_id, o.holder, o.compute_instance_id)
        for o in owners
        if o.vm_name not in free
    )


def merge_pins(gpu: Gpu, *groups: Sequence[Pinned]) -> tuple[Pinned, ...]:
    """The pins of one GPU, each once, for instances that exist."""
    present = {instance.id for instance in gpu.instances}
    found = [
        pin
        for group in groups
        for pin in group
        if pin.gpu_uuid == gpu.uuid and pin.instance_id in present
    ]
    return tuple(dict.fromkeys(found))
