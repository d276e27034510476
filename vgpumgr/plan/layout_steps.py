"""The steps of a change of layout, carried out: each one call of the driver, read back.

A step that fails for a reason that NVML states did nothing. Where it is not certain (the call came
too late, or NVML says that it does not know), what appeared at exactly our place during our call
counts as ours, as long as nobody has made anything in it. Undoing re-creates what was destroyed at
its old place; ids and UUIDs are then as NVML gives them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from vgpumgr.errors import (
    LayoutChangedError,
    NvmlNotFoundError,
    ReadBackError,
    VgpumgrError,
)
from vgpumgr.mig.instances import ensure_mig_mode
from vgpumgr.mig.layout.change import MigStepSpec, StepKind
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import ComputeInstance, GpuInstance, MigProfile, MigProfileName, Placement
from vgpumgr.plan.layout_world import (
    Instances,
    LayoutWorld,
    describe,
    find_at,
    find_id,
    with_compute,
    with_instance,
    without_compute,
)
from vgpumgr.plan.mig_steps import CERTAIN, read_gpu, until_released
from vgpumgr.plan.step import NothingDoneError


@dataclass(frozen=True)
class LayoutStep:
    """What all of them share; ``spec`` says what is to be done."""

    spec: MigStepSpec

    @property
    def kind(self) -> str:
        """``mig.gi.create`` and so on."""
        return self.spec.kind.value

    @property
    def target(self) -> Mapping[str, object]:
        """The step as the plan's JSON has it."""
        return self.spec.as_dict()

    @property
    def gpu(self) -> GpuUuid:
        """Whose instances it changes."""
        return GpuUuid(self.spec.gpu_uuid)

    def describe(self) -> str:
        """For people."""
        return describe_spec(self.spec)

    def find_parent(self, world: LayoutWorld, instances: Instances) -> GpuInstance | None:
        """The GPU instance that a compute instance is in: at its place, whatever its id is now."""
        name, place = self.spec.parent_profile, self.spec.parent_placement
        assert name is not None
        assert place is not None
        return find_at(instances, world.find_profile(self.gpu, name).id, place)

    def find_own(self, world: LayoutWorld, instances: Instances) -> GpuInstance | None:
        """The GPU instance at the step's place."""
        assert self.spec.placement is not None
        return find_at(instances, self.find_profile(world).id, self.spec.placement)

    def find_profile(self, world: LayoutWorld) -> MigProfile:
        """The profile of the step's GPU instance."""
        assert self.spec.profile is not None
        return world.find_profile(self.gpu, self.spec.profile)


class SetMode(LayoutStep):
    """Turns MIG mode on or off. A request that waits for a reset stays; it is not taken back."""

    def do(self, world: LayoutWorld) -> None:
        """Asks NVML and reads the mode back; nothing that exists may be lost by it."""
        if not self._enabled and (left := world.check(self.gpu)):
            raise NothingDoneError(_not_empty(world, self.gpu, left))
        gpu = read_gpu(world.nvml, world.find_gpu(self.gpu))
        ensure_mig_mode(world.nvml, gpu, self._enabled)
        world.check(self.gpu)

    def undo(self, world: LayoutWorld) -> None:
        """Asks for the mode of before, unless somebody made instances meanwhile."""
        gpu = read_gpu(world.nvml, world.find_gpu(self.gpu))
        if self._enabled and gpu.instances:
            raise _not_empty(world, self.gpu, gpu.instances)
        if gpu.mig.current is self._enabled:
            ensure_mig_mode(world.nvml, gpu, not self._enabled)

    def observe(self, world: LayoutWorld) -> bool:
        """Whether the mode is another one than before: the step is planned only where it changes it.

        What ``world`` saw at its beginning does not count: after a crash that is this step's effect.
        """
        return read_gpu(world.nvml, world.find_gpu(self.gpu)).mig.current is self._enabled

    @property
    def _enabled(self) -> bool:
        return self.spec.kind is StepKind.MODE_ENABLE


class CreateInstance(LayoutStep):
    """Creates a GPU instance at exactly one place."""

    def do(self, world: LayoutWorld) -> None:
        """Creates it, and looks whether exactly that has changed."""
        before = _certain(lambda: world.check(self.gpu))
        made = _create_instance(world, self, before)
        world.accept(self.gpu, with_instance(before, made))
        world.check(self.gpu)

    def undo(self, world: LayoutWorld) -> None:
        """Destroys it, if it is ours and nothing of others is in it."""
        found = self._find_ours(world)
        if found is None:
            return
        if found.compute_instances:
            raise _occupied(world, self.gpu, found)
        _destroy_instance(world, self.gpu, found.id)

    def observe(self, world: LayoutWorld) -> bool:
        """Whether one of ours is there."""
        return self._find_ours(world) is not None

    def _find_ours(self, world: LayoutWorld) -> GpuInstance | None:
        found = self.find_own(world, world.read(self.gpu))
        if found is None or (self.gpu, found.id) in world.made:
            return found
        # made by a call whose answer never came?
        known = find_id(world.expected[self.gpu], found.id)
        return None if known or found.compute_instances else found


class DestroyInstance(LayoutStep):
    """Destroys a GPU instance that is empty by now."""

    def do(self, world: LayoutWorld) -> None:
        """Destroys it, and looks whether exactly that has changed."""
        before = _certain(lambda: world.check(self.gpu))
        found = self.find_own(world, before)
        if found is None or found.id != self.spec.instance_id or found.compute_instances:
            raise NothingDoneError(_moved(world, self))
        _sure(lambda: _destroy_instance(world, self.gpu, found.id))
        world.accept(self.gpu, tuple(i for i in before if i.id != found.id))
        world.check(self.gpu)

    def undo(self, world: LayoutWorld) -> None:
        """Creates it again at its place."""
        now = world.read(self.gpu)
        if self.find_own(world, now) is None:
            made = _create_instance(world, self, now)
            world.accept(self.gpu, with_instance(world.read(self.gpu), made))

    def observe(self, world: LayoutWorld) -> bool:
        """Whether it is gone."""
        return self.find_own(world, world.read(self.gpu)) is None


class CreateCompute(LayoutStep):
    """Creates a compute instance at a place of its GPU instance."""

    def do(self, world: LayoutWorld) -> None:
        """Creates it, and looks whether exactly that has changed."""
        before = _certain(lambda: world.check(self.gpu))
        parent = self.find_parent(world, before)
        if parent is None:
            raise NothingDoneError(_moved(world, self))
        made = _create_compute(world, self, parent)
        world.accept(self.gpu, with_instance(before, with_compute(parent, made)))
        world.check(self.gpu)

    def undo(self, world: LayoutWorld) -> None:
        """Destroys it, if it is ours."""
        parent, ours = self._find_ours(world)
        if parent is not None and ours is not None:
            _destroy_compute(world, self.gpu, parent.id, ours.id)

    def observe(self, world: LayoutWorld) -> bool:
        """Whether it is there."""
        return self._find_ours(world)[1] is not None

    def _find_ours(self, world: LayoutWorld) -> tuple[GpuInstance | None, ComputeInstance | None]:
        parent = self.find_parent(world, world.read(self.gpu))
        if parent is None:
            return None, None
        before = find_id(world.expected[self.gpu], parent.id)
        known = {(c.id, c.uuid) for c in before.compute_instances} if before else set()
        for compute in parent.compute_instances:
            if not _is_at(compute, self.spec.placement):
                continue
            made = (self.gpu, parent.id, compute.id, str(compute.uuid)) in world.made_compute
            if made or (compute.id, compute.uuid) not in known:
                return parent, compute
        return parent, None


class DestroyCompute(LayoutStep):
    """Destroys a compute instance."""

    def do(self, world: LayoutWorld) -> None:
        """Destroys it, and looks whether exactly that has changed."""
        before = _certain(lambda: world.check(self.gpu))
        parent = self.find_parent(world, before)
        wanted = self.spec.compute_instance_id
        ids = [c.id for c in parent.compute_instances] if parent else []
        if parent is None or parent.id != self.spec.instance_id or wanted not in ids:
            raise NothingDoneError(_moved(world, self))
        _sure(lambda: _destroy_compute(world, self.gpu, parent.id, int(wanted or 0)))
        world.accept(self.gpu, with_instance(before, without_compute(parent, int(wanted or 0))))
        world.check(self.gpu)

    def undo(self, world: LayoutWorld) -> None:
        """Creates it again at its place."""
        now = world.read(self.gpu)
        parent = self.find_parent(world, now)
        if parent is None:
            raise _moved(world, self)
        if not any(_is_at(c, self.spec.placement) for c in parent.compute_instances):
            made = _create_compute(world, self, parent)
            world.accept(self.gpu, with_instance(now, with_compute(parent, made)))

    def observe(self, world: LayoutWorld) -> bool:
        """Whether it is gone."""
        parent = self.find_parent(world, world.read(self.gpu))
        return parent is None or not any(
            _is_at(c, self.spec.placement) for c in parent.compute_instances
        )


STEPS: dict[
    StepKind, type[SetMode | CreateInstance | DestroyInstance | CreateCompute | DestroyCompute]
]
STEPS = {
    StepKind.MODE_ENABLE: SetMode,
    StepKind.MODE_DISABLE: SetMode,
    StepKind.GI_CREATE: CreateInstance,
    StepKind.GI_DESTROY: DestroyInstance,
    StepKind.CI_CREATE: CreateCompute,
    StepKind.CI_DESTROY: DestroyCompute,
}


def describe_spec(spec: MigStepSpec) -> str:
    """A step for people."""
    words = {
        StepKind.MODE_ENABLE: "turn MIG mode on",
        StepKind.MODE_DISABLE: "turn MIG mode off",
        StepKind.GI_CREATE: "create GPU instance",
        StepKind.GI_DESTROY: "destroy GPU instance",
        StepKind.CI_CREATE: "create compute instance",
        StepKind.CI_DESTROY: "destroy compute instance",
    }
    what = f" {spec.profile}" if spec.profile else ""
    place = f" at {spec.placement}" if spec.placement else ""
    inside = f" in {spec.parent_profile} at {spec.parent_placement}" if spec.parent_profile else ""
    return f"{words[spec.kind]}{what}{place}{inside} on {spec.gpu_uuid}"


def _slices_of(spec: MigStepSpec) -> int:
    assert spec.profile is not None
    name = MigProfileName.parse(spec.profile)
    return spec.placement.size if spec.placement else name.compute_slices or name.slices


def _is_at(compute: ComputeInstance, place: Placement | None) -> bool:
    """Drivers that state no place of compute instances leave only the size to compare."""
    if compute.placement is None or place is None:
        return place is None or compute.slices == place.size
    return compute.placement == place


def _certain(look: Callable[[], Instances]) -> Instances:
    """Looking changes nothing."""
    try:
        return look()
    except VgpumgrError as error:
        raise NothingDoneError(error) from error


def _sure(change: Callable[[], None]) -> None:
    """Makes a change; says so where it is certain that nothing was done."""
    try:
        change()
    except CERTAIN as error:
        raise NothingDoneError(error) from error


def _create_instance(world: LayoutWorld, step: LayoutStep, before: Instances) -> GpuInstance:
    place = step.spec.placement
    assert place is not None
    for other in before:
        if other.placement.overlaps(place):
            raise NothingDoneError(_taken(world, step, other))
    profile = step.find_profile(world)
    try:
        made = world.nvml.create_gpu_instance(step.gpu, profile.id, place)
    except CERTAIN as error:
        raise NothingDoneError(error) from error
    world.made.add((step.gpu, made.id))
    if made.placement != place:
        _destroy_instance(world, step.gpu, made.id)
        raise ReadBackError(f"asked for {profile.name} at {place}, it was put at {made.placement}")
    return made


def _create_compute(world: LayoutWorld, step: LayoutStep, parent: GpuInstance) -> ComputeInstance:
    slices, place = _slices_of(step.spec), step.spec.placement
    try:
        made = world.nvml.create_compute_instance(step.gpu, parent.id, slices, place)
    except CERTAIN as error:
        raise NothingDoneError(error) from error
    world.made_compute.add((step.gpu, parent.id, made.id, str(made.uuid)))
    if made.uuid is None or not _is_at(made, place):
        _destroy_compute(world, step.gpu, parent.id, made.id)
        where = made.placement or "an unknown place"
        raise ReadBackError(f"asked for {slices} slices at {place}, got {made.uuid} at {where}")
    return replace(made, memory_used_bytes=None)


def _destroy_instance(world: LayoutWorld, gpu: GpuUuid, instance_id: int) -> None:
    """Destroys an empty GPU instance; one that is gone already is no error."""
    _destroy(world, lambda: world.nvml.destroy_gpu_instance(gpu, instance_id))
    if find_id(world.read(gpu), instance_id) is not None:
        raise ReadBackError(f"GPU instance {instance_id} is still there after its removal")
    world.made.discard((gpu, instance_id))


def _destroy_compute(world: LayoutWorld, gpu: GpuUuid, instance_id: int, compute_id: int) -> None:
    _destroy(world, lambda: world.nvml.destroy_compute_instance(gpu, instance_id, compute_id))
    parent = find_id(world.read(gpu), instance_id)
    if parent is not None and any(c.id == compute_id for c in parent.compute_instances):
        raise ReadBackError(f"compute instance {compute_id} is still there after its removal")
    for made in [m for m in world.made_compute if m[:3] == (gpu, instance_id, compute_id)]:
        world.made_compute.discard(made)


def _destroy(world: LayoutWorld, destroy: Callable[[], None]) -> None:
    """Slow destroys: the driver may say in use for a while after the last user has gone."""

    def attempt() -> None:
        try:
            destroy()
        except NvmlNotFoundError:
            return

    until_released(world, attempt)


def _taken(world: LayoutWorld, step: LayoutStep, other: GpuInstance) -> LayoutChangedError:
    return LayoutChangedError(
        f"cannot {step.describe()}",
        why=f"{world.find_gpu(step.gpu)} has {describe(other)} there now, which is somebody else's",
        hint="repeat the command: it plans anew",
    )


def _moved(world: LayoutWorld, step: LayoutStep) -> LayoutChangedError:
    now = "; ".join(describe(i) for i in world.read(step.gpu)) or "no instances"
    return LayoutChangedError(
        f"cannot {step.describe()}",
        why=f"{world.find_gpu(step.gpu)} is not as it was planned for; it has {now}",
        hint="repeat the command: it plans anew",
    )


def _occupied(world: LayoutWorld, gpu: GpuUuid, found: GpuInstance) -> LayoutChangedError:
    return LayoutChangedError(
        f"cannot take back {found.profile} at {found.placement} on {world.find_gpu(gpu)}",
        why=f"somebody made a compute instance in it: {describe(found)}",
        hint="vgpumgr mig list",
    )


def _not_empty(world: LayoutWorld, gpu: GpuUuid, left: Instances) -> LayoutChangedError:
    return LayoutChangedError(
        f"MIG mode of {world.find_gpu(gpu)} stays on",
        why=f"it has instances that nobody planned for: {'; '.join(map(describe, left))}",
        hint="vgpumgr mig list",
    )
