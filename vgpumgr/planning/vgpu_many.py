"""Several vGPUs at once: each is chosen as if those before it were there. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vgpumgr.errors import VgpuNoRoomError
from vgpumgr.model.vgpu import (
    Attributes,
    VgpuDevice,
    VgpuOffer,
    VgpuParent,
    VgpuSpec,
    VgpuType,
)
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.planning.vgpu_instance import with_instance
from vgpumgr.planning.vgpu_selection import VgpuChoice, choose_vgpu


def choose_vgpus(
    observed: Snapshot,
    wanted: str,
    selector: str | None,
    uuids: Sequence[str],
    *,
    spread: bool = False,
) -> tuple[tuple[VgpuChoice, VgpuSpec], ...]:
    """Places for as many vGPUs as there are ``uuids``: each is chosen as if those before it were
    there. Raises what ``choose_vgpu`` does; VgpuNoRoomError says how many would fit.
    """
    found: list[tuple[VgpuChoice, VgpuSpec]] = []
    real = {gpu.uuid: gpu for gpu in observed.gpus}
    for uuid in uuids:
        try:
            choice = choose_vgpu(observed, wanted, selector, spread=spread)
        except VgpuNoRoomError as error:
            if found:
                name = found[0][0].type.name
                error.error = f"cannot create {len(uuids)} times {name}: {len(found)} fit"
            raise
        spec = make_spec(choice, uuid)
        observed = with_vgpu(observed, choice, spec)
        if (made := choice.instance) is not None:
            choice = replace(choice, instance=replace(made, gpu=real[made.gpu.uuid]))
        found.append((choice, spec))
    return tuple(found)


def make_spec(
    choice: VgpuChoice,
    uuid: str,
    attributes: Attributes = (),
    placement_id: int | None = None,
    *,
    mixed_sizes: bool = False,
) -> VgpuSpec:
    """The vGPU that a choice leads to."""
    return VgpuSpec(
        uuid=uuid,
        framework=choice.parent.framework,
        parent=choice.parent.name,
        type_id=choice.type.id,
        type_name=choice.type.name,
        attributes=attributes,
        placement_id=placement_id,
        mixed_sizes=mixed_sizes,
    )


def with_vgpu(observed: Snapshot, choice: VgpuChoice, spec: VgpuSpec) -> Snapshot:
    """What is to be once the vGPU is there, with the GPU instance that is made for it."""
    host, inside = observed.vgpus, None
    if choice.instance is not None:
        gpus, inside = with_instance(observed.gpus, choice.instance)
        reserved, _ = with_instance(observed.reserved, choice.instance)
        observed = observed.replace(gpus=gpus, reserved=reserved)
    device = VgpuDevice(
        spec.uuid,
        spec.parent,
        spec.framework,
        spec.type_id,
        spec.type_name,
        spec.pci,
        gpu_instance_id=inside,
    )
    parents = tuple(
        replace(p, offers=_without_one(p, choice.type)) if p.name == spec.parent else p
        for p in host.parents
    )
    host = replace(host, parents=parents, devices=(*host.devices, device))
    return observed.replace(vgpus=host)


def _without_one(parent: VgpuParent, type_: VgpuType) -> tuple[VgpuOffer, ...]:
    if parent.is_virtual_function:
        return ()
    return tuple(
        replace(o, available=max(0, o.available - 1)) if o.type.id == type_.id else o
        for o in parent.offers
    )
