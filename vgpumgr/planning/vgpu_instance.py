"""GPU instances that are made for MIG-backed vGPUs, and go with the last of these: pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vgpumgr.engine.step import Step
from vgpumgr.mig.layout.change import list_create_steps, list_destroy_steps
from vgpumgr.mig.placement import count_free, list_choices
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import GpuInstance, MigProfile, Placement
from vgpumgr.model.vgpu import VgpuInstance
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
