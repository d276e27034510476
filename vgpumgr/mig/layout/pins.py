"""Who holds which slice: from what NVML sees, and from the attachments that are remembered."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from vgpumgr.errors import SliceNotFoundError
from vgpumgr.mig.layout.target import Pinned, SliceKey
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.slice import SliceOwner
from vgpumgr.model.text import list_near


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


_SHORTEST_PREFIX = 8


def find_slices(
    names: Sequence[str], gpus: Sequence[Gpu], owners: Sequence[SliceOwner]
) -> frozenset[SliceKey]:
    """The slices that the names mean; a VM or a process may have several. Raises
    SliceNotFoundError.
    """
    return frozenset(key for name in names for key in _find(name, gpus, owners))


def _find(name: str, gpus: Sequence[Gpu], owners: Sequence[SliceOwner]) -> set[SliceKey]:
    found: set[SliceKey] = {(o.gpu, o.gpu_instance_id) for o in owners if o.vm_name == name}
    for gpu in gpus:
        found |= {(gpu.uuid, i.id) for i in gpu.instances if name == f"{gpu.index}/{i.id}"}
        found |= {
            (gpu.uuid, i.id)
            for i in gpu.instances
            for c in i.compute_instances
            if c.uuid and len(name) >= _SHORTEST_PREFIX and c.uuid.startswith(name)
        }
        found |= {
            (gpu.uuid, p.gpu_instance_id)
            for p in gpu.processes
            if p.gpu_instance_id is not None and name == str(p.pid)
        }
    if not found:
        raise _explain(name, gpus, owners)
    return found


def _explain(name: str, gpus: Sequence[Gpu], owners: Sequence[SliceOwner]) -> SliceNotFoundError:
    known = [owner.vm_name for owner in owners]
    known += [f"{gpu.index}/{i.id}" for gpu in gpus for i in gpu.instances]
    near = list_near(name, known, n=1)
    return SliceNotFoundError(
        f'no slice is "{name}"',
        why=f"did you mean {near[0]}?"
        if near
        else "name a VM, a process id, a MIG UUID, or GPU/INSTANCE as in 0/3",
        hint="vgpumgr mig list",
    )


def name_pins(pins: Sequence[Pinned], gpus: Sequence[Gpu]) -> list[str]:
    """What to type to name these slices."""
    indexes = {str(gpu.uuid): gpu.index for gpu in gpus}
    return list(dict.fromkeys(f"{indexes[p.gpu_uuid]}/{p.instance_id}" for p in pins))
