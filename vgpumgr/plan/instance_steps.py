"""Steps on MIG instances inside an attach or detach: a GPU instance that a vGPU lives in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vgpumgr.mig.layout.change import MigStepSpec
from vgpumgr.mig.layout.steps import list_create_steps, list_destroy_steps
from vgpumgr.model.gpu import Gpu
from vgpumgr.plan.layout_plan import make_step
from vgpumgr.plan.layout_world import LayoutWorld
from vgpumgr.plan.step import Step
from vgpumgr.plan.vgpu_instance import NewInstance
from vgpumgr.plan.vgpu_record import VgpuInstance
from vgpumgr.plan.world import World


@dataclass(frozen=True)
class InstanceStep:
    """A step of a layout, done in the world of an attachment."""

    spec: MigStepSpec

    @property
    def _step(self) -> Step[LayoutWorld]:
        return make_step(self.spec)

    @property
    def kind(self) -> str:
        """As the layout's own step is called."""
        return self._step.kind

    @property
    def target(self) -> Mapping[str, object]:
        """All of the step."""
        return self._step.target

    def describe(self) -> str:
        """For people."""
        return self._step.describe()

    def do(self, world: World) -> None:
        """Does it."""
        self._step.do(_open(world))

    def undo(self, world: World) -> None:
        """Takes it back."""
        self._step.undo(_open(world))

    def observe(self, world: World) -> bool:
        """Whether the GPU shows it."""
        return self._step.observe(_open(world))


def _open(world: World) -> LayoutWorld:
    if world.layout is None:
        world.layout = LayoutWorld(world.nvml, world.clock, world.nvml.read_inventory().gpus)
    return world.layout


def plan_instance(instance: NewInstance | None) -> tuple[Step[World], ...]:
    """Makes the GPU instance with its compute instance; nothing where there is room already."""
    if instance is None:
        return ()
    specs = list_create_steps(instance.gpu, instance.profile, instance.placement)
    return tuple(InstanceStep(spec) for spec in specs)


def plan_without_instance(
    made: VgpuInstance, gpus: Sequence[Gpu], others: Sequence[VgpuInstance]
) -> tuple[Step[World], ...]:
    """Destroys the GPU instance that was made for a vGPU, unless others live in it or somebody uses
    it.
    """
    gpu = next((g for g in gpus if g.uuid == made.gpu), None)
    if gpu is None or made in others:
        return ()
    for instance in gpu.instances:
        if instance.placement == made.placement and str(instance.profile) == made.profile:
            if any(process.gpu_instance_id == instance.id for process in gpu.processes):
                return ()
            return tuple(InstanceStep(spec) for spec in list_destroy_steps(gpu, instance))
    return ()
