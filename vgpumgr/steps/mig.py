"""Steps on MIG: mode, GPU instances and compute instances; each one call of the driver, read back.

A step that fails for a reason that NVML states did nothing. Where it is not certain (the call came
too late, or NVML says that it does not know), an instance that appeared at exactly our place during
our call counts as ours, as long as nothing has been made in it. Undoing re-creates what was destroyed
at its old place; ids and UUIDs are then as NVML gives them.

With ``by_record`` the step is an attachment's, whose record says which instances are its own. A
detach takes what is left of them, is not taken back, and notes why MIG mode stays on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, ClassVar

from vgpumgr.engine.mig_state import (
    Instances,
    describe,
    find_at,
    find_id,
    with_compute,
    with_instance,
    without_compute,
)
from vgpumgr.engine.step import PRIVATE, NothingDoneError, Step
from vgpumgr.errors import (
    HelperLateError,
    LayoutChangedError,
    NvmlInsufficientResourcesError,
    NvmlInUseError,
    NvmlNotFoundError,
    NvmlNotSupportedError,
    NvmlPermissionError,
    ReadBackError,
    VgpumgrError,
)
from vgpumgr.mig.instances import (
    destroy_instance,
    ensure_mig_mode,
    find_recorded_instance,
    list_own_compute,
)
from vgpumgr.mig.layout.change import MigStepSpec, StepKind
from vgpumgr.model.attachment import MigInstanceRef, list_sharers
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import ComputeInstance, GpuInstance, MigProfileName, Placement

if TYPE_CHECKING:
    from vgpumgr.engine.context import OperationContext

#: a worker that was just ended holds its instance until the driver has cleaned up after it
RELEASE_TIMEOUT_S = 15.0
#: what NVML answers before it has done anything
CERTAIN = (
    NvmlInUseError,
    NvmlInsufficientResourcesError,
    NvmlNotFoundError,
    NvmlNotSupportedError,
    NvmlPermissionError,
)


@dataclass(frozen=True)
class MigStep(Step):
    """A step on the MIG mode or the instances of one GPU."""

    gpu: GpuUuid
    #: for people
    gpu_index: int | None = field(default=None, kw_only=True)
    by_record: bool = field(default=False, kw_only=True, metadata=PRIVATE)
    by_helper: ClassVar[bool] = True

    @property
    def target(self) -> Mapping[str, object]:
        """What it changes; fields that do not apply are left out."""
        return {name: value for name, value in super().target.items() if value is not None}

    @property
    def where(self) -> str:
        """The GPU, for people."""
        return str(self.gpu) if self.gpu_index is None else f"GPU {self.gpu_index}"


@dataclass(frozen=True)
class EnableMigMode(MigStep):
    """Turns MIG mode on. A layout's request that waits for a reset stays; an attach's is taken back."""

    kind: ClassVar[str] = "mig.mode.enable"

    def describe(self) -> str:
        """For people."""
        return f"turn MIG mode on on {self.where}"

    def do(self, context: OperationContext) -> None:
        """Asks NVML and reads the mode back; no instance may appear meanwhile."""
        ensure_mig_mode(context.nvml, context.mig.read_gpu(self.gpu), True)
        context.mig.check(self.gpu)

    def undo(self, context: OperationContext) -> None:
        """Turns it off again. Others' instances keep it on: the operation's own are gone by now."""
        gpu = context.mig.read_gpu(self.gpu)
        if gpu.instances:
            there = "; ".join(map(describe, gpu.instances))
            context.notes.append(f"MIG mode stays on on {gpu}: it has instances of others: {there}")
        elif self._is_on(gpu):
            ensure_mig_mode(context.nvml, gpu, False)

    def observe(self, context: OperationContext) -> bool:
        """Whether it is on: the step is planned only where it changes the mode.

        What the context saw at its beginning does not count: after a crash that is this step's effect.
        """
        return self._is_on(context.mig.read_gpu(self.gpu))

    def _is_on(self, gpu: Gpu) -> bool:
        return gpu.mig.current or (self.by_record and bool(gpu.mig.pending))


@dataclass(frozen=True)
class DisableMigMode(MigStep):
    """Turns MIG mode off; a detach does so where an earlier attach turned it on."""

    kind: ClassVar[str] = "mig.mode.disable"
    takes_back: ClassVar[tuple[str, ...]] = (EnableMigMode.kind,)

    def describe(self) -> str:
        """For people."""
        return f"turn MIG mode off on {self.where}{', as it was before' if self.by_record else ''}"

    def do(self, context: OperationContext) -> None:
        """Asks NVML and reads the mode back; nothing that exists may be lost by it."""
        if self.by_record:
            self._try(context)
            return
        left = context.mig.check(self.gpu)
        gpu = context.mig.read_gpu(self.gpu)
        if left:
            raise NothingDoneError(_not_empty(gpu, left))
        ensure_mig_mode(context.nvml, gpu, False)
        context.mig.check(self.gpu)

    def _try(self, context: OperationContext) -> None:
        """An instance made meanwhile, a client or a pending reset leaves it on, and is noted."""
        gpu = context.mig.read_gpu(self.gpu)
        if gpu.instances:
            context.notes.append(f"MIG mode stays on on {gpu}: it has instances")
            return
        try:
            ensure_mig_mode(context.nvml, gpu, False)
        except HelperLateError:
            raise  # it may yet go off: recovery observes it again
        except VgpumgrError as error:
            context.notes.append(f"MIG mode stays on on {gpu}: {error.cause or error}")

    def undo(self, context: OperationContext) -> None:
        """Turns it on again."""
        if self.observe(context):
            ensure_mig_mode(context.nvml, context.mig.read_gpu(self.gpu), True)

    def observe(self, context: OperationContext) -> bool:
        """Whether it is off."""
        return not context.mig.read_gpu(self.gpu).mig.current


@dataclass(frozen=True)
class GpuInstanceStep(MigStep):
    """A step on the GPU instance of a profile at exactly one place."""

    profile: str
    placement: Placement
    ends_with_boot: ClassVar[bool] = True

    def find(self, context: OperationContext, instances: Instances) -> GpuInstance | None:
        """The GPU instance at the step's place."""
        profile = context.mig.find_profile(self.gpu, self.profile)
        return find_at(instances, profile.id, self.placement)

    def create(self, context: OperationContext, before: Instances) -> GpuInstance:
        """Creates it at its place, which must be free."""
        for other in before:
            if other.placement.overlaps(self.placement):
                raise NothingDoneError(self._taken(context, other))
        profile = context.mig.find_profile(self.gpu, self.profile)
        try:
            made = context.nvml.create_gpu_instance(self.gpu, profile.id, self.placement)
        except CERTAIN as error:
            raise NothingDoneError(error) from error
        context.mig.made.add((self.gpu, made.id))
        if made.placement != self.placement:
            _destroy_instance(context, self.gpu, made.id)
            raise ReadBackError(f"asked for {self.placement}, it was put at {made.placement}")
        return made

    def _taken(self, context: OperationContext, other: GpuInstance) -> LayoutChangedError:
        gpu = context.mig.find_gpu(self.gpu)
        return LayoutChangedError(
            f"cannot {self.describe()}",
            why=f"{gpu} has {describe(other)} there now, which is not ours",
            hint="repeat the command: it plans anew",
        )


@dataclass(frozen=True)
class CreateGpuInstance(GpuInstanceStep):
    """Creates a GPU instance at exactly one place."""

    kind: ClassVar[str] = "mig.gi.create"

    def describe(self) -> str:
        """For people."""
        return f"create GPU instance {self.profile} at {self.placement} on {self.where}"

    def do(self, context: OperationContext) -> None:
        """Creates it, and checks that exactly that has changed. An instance that is there is foreign."""
        before = _certain(lambda: context.mig.check(self.gpu))
        made = self.create(context, before)
        context.mig.accept(self.gpu, with_instance(before, made))
        context.save_slice(self.gpu, self.placement, gpu_instance_id=made.id)
        context.mig.check(self.gpu)

    def undo(self, context: OperationContext) -> None:
        """Destroys it, if it is ours and nothing of others is in it."""
        found = self._find_ours(context)
        if found is None:
            return
        made = context.mig.made_compute
        keys = [(c, (self.gpu, found.id, c.id, str(c.uuid))) for c in found.compute_instances]
        if any(key not in made for _, key in keys):
            raise _occupied(context, self.gpu, found)
        for compute, _ in keys:  # those of ours whose own undoing failed
            _destroy_compute(context, self.gpu, found.id, compute.id)
        _destroy_instance(context, self.gpu, found.id)

    def observe(self, context: OperationContext) -> bool:
        """Whether one of ours is there."""
        return self._find_ours(context) is not None

    def _find_ours(self, context: OperationContext) -> GpuInstance | None:
        found = self.find(context, context.mig.read(self.gpu))
        if found is None or (self.gpu, found.id) in context.mig.made:
            return found
        # made by a call whose answer never came?
        known = find_id(context.mig.expect(self.gpu), found.id)
        return None if known or found.compute_instances else found


@dataclass(frozen=True)
class DestroyGpuInstance(GpuInstanceStep):
    """Destroys a GPU instance that is empty by now; an attachment's with all that is left in it,
    unless other attachments are in it.
    """

    instance: int | None = None
    kind: ClassVar[str] = "mig.gi.destroy"

    def describe(self) -> str:
        """For people."""
        return f"destroy GPU instance {self.profile} at {self.placement} on {self.where}"

    def do(self, context: OperationContext) -> None:
        """Destroys it, and checks that exactly that has changed. An attachment's that is no longer its
        own is left alone.
        """
        if self.by_record:
            found = self._find_recorded(context)
            if found is not None:
                id_ = found.id
                until_released(context, lambda: destroy_instance(context.nvml, self.gpu, id_))
            return
        before = _certain(lambda: context.mig.check(self.gpu))
        found = self.find(context, before)
        if found is None or found.id != self.instance or found.compute_instances:
            raise NothingDoneError(_moved(context, self))
        id_ = found.id
        _sure(lambda: _destroy_instance(context, self.gpu, id_))
        context.mig.accept(self.gpu, tuple(i for i in before if i.id != id_))
        context.mig.check(self.gpu)

    def undo(self, context: OperationContext) -> None:
        """Creates it again at its place; a detach goes on, and is not taken back."""
        if self.by_record:
            return
        now = context.mig.read(self.gpu)
        if self.find(context, now) is None:
            made = self.create(context, now)
            context.mig.accept(self.gpu, with_instance(context.mig.read(self.gpu), made))

    def observe(self, context: OperationContext) -> bool:
        """Whether it is gone."""
        if self.by_record:
            return self._find_recorded(context) is None
        return self.find(context, context.mig.read(self.gpu)) is None

    def _find_recorded(self, context: OperationContext) -> GpuInstance | None:
        if list_sharers(context.record, context.attachment_store.list_attachments()):
            return None
        return find_recorded_instance(context.mig.list_instances(self.gpu), context.record)


@dataclass(frozen=True)
class ComputeInstanceStep(MigStep):
    """A step on a compute instance: its profile, and its place in the GPU instance at another place.

    Without ``placement`` it is alone in its GPU instance, or the driver chooses.
    """

    profile: str
    placement: Placement | None
    parent_profile: str
    parent_placement: Placement
    ends_with_boot: ClassVar[bool] = True

    def find_parent(self, context: OperationContext, instances: Instances) -> GpuInstance | None:
        """The GPU instance at its place, whatever its id is now."""
        profile = context.mig.find_profile(self.gpu, self.parent_profile)
        return find_at(instances, profile.id, self.parent_placement)

    def create(self, context: OperationContext, parent: GpuInstance) -> ComputeInstance:
        """Creates it in its GPU instance."""
        name, place = MigProfileName.parse(self.profile), self.placement
        slices = place.size if place else name.compute_slices or name.slices
        try:
            made = context.nvml.create_compute_instance(self.gpu, parent.id, slices, place)
        except CERTAIN as error:
            raise NothingDoneError(error) from error
        context.mig.made_compute.add((self.gpu, parent.id, made.id, str(made.uuid)))
        problem = None
        if made.uuid is None:
            problem = f"the driver gave {self.profile} no UUID"
        elif made.slices != slices or not _is_at(made, place):
            where = made.placement or "an unknown place"
            problem = f"asked for {slices} slices at {place}, got {made.slices} at {where}"
        if problem is not None:
            _destroy_compute(context, self.gpu, parent.id, made.id)
            raise ReadBackError(problem)
        return replace(made, memory_used_bytes=None)


@dataclass(frozen=True)
class CreateComputeInstance(ComputeInstanceStep):
    """Creates a compute instance, which makes its part of the GPU instance a CUDA device."""

    kind: ClassVar[str] = "mig.ci.create"

    def describe(self) -> str:
        """For people."""
        place = f" at {self.placement}" if self.placement else ""
        parent = f"{self.parent_profile} at {self.parent_placement} on {self.where}"
        return f"create compute instance {self.profile}{place} in {parent}"

    def do(self, context: OperationContext) -> None:
        """Creates it, and checks that exactly that has changed; an attachment's record gets its ids."""
        before = _certain(lambda: context.mig.check(self.gpu))
        parent = self.find_parent(context, before)
        if parent is None:
            raise NothingDoneError(_moved(context, self))
        made = self.create(context, parent)
        assert made.uuid is not None
        context.mig.accept(self.gpu, with_instance(before, with_compute(parent, made)))
        ref = MigInstanceRef(parent.id, made.id, self.parent_placement, made.uuid)
        context.save_slice(self.gpu, self.parent_placement, ref=ref, gpu_instance_id=parent.id)
        context.mig.check(self.gpu)

    def undo(self, context: OperationContext) -> None:
        """Destroys it, if it is ours."""
        parent, ours = self._find_ours(context)
        if parent is not None and ours is not None:
            _destroy_compute(context, self.gpu, parent.id, ours.id)

    def observe(self, context: OperationContext) -> bool:
        """Whether it is there."""
        return self._find_ours(context)[1] is not None

    def _find_ours(
        self, context: OperationContext
    ) -> tuple[GpuInstance | None, ComputeInstance | None]:
        parent = self.find_parent(context, context.mig.read(self.gpu))
        if parent is None:
            return None, None
        before = find_id(context.mig.expect(self.gpu), parent.id)
        known = {(c.id, c.uuid) for c in before.compute_instances} if before else set()
        for compute in parent.compute_instances:
            if not _is_at(compute, self.placement):
                continue
            made = (self.gpu, parent.id, compute.id, str(compute.uuid)) in context.mig.made_compute
            if made or (compute.id, compute.uuid) not in known:
                return parent, compute
        return parent, None


@dataclass(frozen=True)
class DestroyComputeInstance(ComputeInstanceStep):
    """Destroys a compute instance; of an attachment, its own, and those of others stay."""

    instance: int | None = None
    compute_instance: int | None = None
    #: the MIG device of an attachment
    mig: str | None = None
    kind: ClassVar[str] = "mig.ci.destroy"

    def describe(self) -> str:
        """For people."""
        if self.by_record:
            return f"destroy compute instance {self.mig or f'at {self.parent_placement}'}"
        place = f" at {self.placement}" if self.placement else ""
        parent = f"{self.parent_profile} at {self.parent_placement} on {self.where}"
        return f"destroy compute instance {self.profile}{place} in {parent}"

    def do(self, context: OperationContext) -> None:
        """Destroys it, and checks that exactly that has changed. An attachment's is destroyed after its
        worker has let go.
        """
        if self.by_record:
            instance, own = self._list_recorded(context)
            for compute in own:
                assert instance is not None
                _destroy_compute(context, self.gpu, instance.id, compute.id)
            return
        before = _certain(lambda: context.mig.check(self.gpu))
        parent = self.find_parent(context, before)
        wanted = self.compute_instance
        ids = [c.id for c in parent.compute_instances] if parent else []
        if parent is None or parent.id != self.instance or wanted is None or wanted not in ids:
            raise NothingDoneError(_moved(context, self))
        _sure(lambda: _destroy_compute(context, self.gpu, parent.id, wanted))
        context.mig.accept(self.gpu, with_instance(before, without_compute(parent, wanted)))
        context.mig.check(self.gpu)

    def undo(self, context: OperationContext) -> None:
        """Creates it again at its place; a detach goes on, and is not taken back."""
        if self.by_record:
            return
        now = context.mig.read(self.gpu)
        parent = self.find_parent(context, now)
        if parent is None:
            raise _moved(context, self)
        if not any(_is_at(c, self.placement) for c in parent.compute_instances):
            made = self.create(context, parent)
            context.mig.accept(self.gpu, with_instance(now, with_compute(parent, made)))

    def observe(self, context: OperationContext) -> bool:
        """Whether it is gone."""
        if self.by_record:
            return not self._list_recorded(context)[1]
        parent = self.find_parent(context, context.mig.read(self.gpu))
        return parent is None or not any(
            _is_at(c, self.placement) for c in parent.compute_instances
        )

    def _list_recorded(
        self, context: OperationContext
    ) -> tuple[GpuInstance | None, list[ComputeInstance]]:
        record, records = context.record, context.attachment_store.list_attachments()
        instance = find_recorded_instance(context.mig.list_instances(self.gpu), record)
        return instance, list_own_compute(instance, record, records)


def make_step(spec: MigStepSpec, gpu_index: int | None = None) -> MigStep:
    """The step that carries a specification out."""
    gpu, place, index = GpuUuid(spec.gpu_uuid), spec.placement, gpu_index
    if spec.kind is StepKind.MODE_ENABLE:
        return EnableMigMode(gpu, gpu_index=index)
    if spec.kind is StepKind.MODE_DISABLE:
        return DisableMigMode(gpu, gpu_index=index)
    assert spec.profile is not None
    if spec.kind in (StepKind.GI_CREATE, StepKind.GI_DESTROY):
        assert place is not None
        if spec.kind is StepKind.GI_CREATE:
            return CreateGpuInstance(gpu, spec.profile, place, gpu_index=index)
        return DestroyGpuInstance(gpu, spec.profile, place, spec.instance_id, gpu_index=index)
    assert spec.parent_profile is not None
    assert spec.parent_placement is not None
    inside = spec.parent_profile, spec.parent_placement
    if spec.kind is StepKind.CI_CREATE:
        return CreateComputeInstance(gpu, spec.profile, place, *inside, gpu_index=index)
    ids = spec.instance_id, spec.compute_instance_id
    return DestroyComputeInstance(gpu, spec.profile, place, *inside, *ids, gpu_index=index)


def _is_at(compute: ComputeInstance, place: Placement | None) -> bool:
    """Drivers that state no place of compute instances leave only the size to compare."""
    if compute.placement is None or place is None:
        return place is None or compute.slices == place.size
    return compute.placement == place


def _certain(read: Callable[[], Instances]) -> Instances:
    """Reading changes nothing."""
    try:
        return read()
    except VgpumgrError as error:
        raise NothingDoneError(error) from error


def _sure(change: Callable[[], None]) -> None:
    """Makes a change; says so where it is certain that nothing was done."""
    try:
        change()
    except CERTAIN as error:
        raise NothingDoneError(error) from error


def _destroy_instance(context: OperationContext, gpu: GpuUuid, instance_id: int) -> None:
    """Destroys an empty GPU instance; one that is gone already is no error."""
    _destroy(context, lambda: context.nvml.destroy_gpu_instance(gpu, instance_id))
    if find_id(context.mig.read(gpu), instance_id) is not None:
        raise ReadBackError(f"GPU instance {instance_id} is still there after its removal")
    context.mig.made.discard((gpu, instance_id))


def _destroy_compute(
    context: OperationContext, gpu: GpuUuid, instance_id: int, compute_id: int
) -> None:
    _destroy(context, lambda: context.nvml.destroy_compute_instance(gpu, instance_id, compute_id))
    parent = find_id(context.mig.read(gpu), instance_id)
    if parent is not None and any(c.id == compute_id for c in parent.compute_instances):
        raise ReadBackError(f"compute instance {compute_id} is still there after its removal")
    made = context.mig.made_compute
    made -= {m for m in made if m[:3] == (gpu, instance_id, compute_id)}


def _destroy(context: OperationContext, destroy: Callable[[], None]) -> None:
    """Slow destroys: the driver may say in use for a while after the last user has gone."""

    def attempt() -> None:
        try:
            destroy()
        except NvmlNotFoundError:
            return

    until_released(context, attempt)


def until_released(context: OperationContext, destroy: Callable[[], None]) -> None:
    """Repeats while the driver says in use, for a bounded time; then the error goes on."""
    last: list[NvmlInUseError] = []

    def attempt() -> bool:
        try:
            destroy()
        except NvmlInUseError as error:
            last[:] = [error]
            return False
        return True

    if not context.wait(attempt, RELEASE_TIMEOUT_S):
        raise last[0]


def _moved(context: OperationContext, step: MigStep) -> LayoutChangedError:
    now = "; ".join(describe(i) for i in context.mig.read(step.gpu)) or "no instances"
    return LayoutChangedError(
        f"cannot {step.describe()}",
        why=f"{context.mig.find_gpu(step.gpu)} is not as it was planned for; it has {now}",
        hint="repeat the command: it plans anew",
    )


def _occupied(context: OperationContext, gpu: GpuUuid, found: GpuInstance) -> LayoutChangedError:
    return LayoutChangedError(
        f"cannot take back {found.profile} at {found.placement} on {context.mig.find_gpu(gpu)}",
        why=f"another program made a compute instance in it: {describe(found)}",
        hint="vgpumgr mig list",
    )


def _not_empty(gpu: Gpu, left: Instances) -> LayoutChangedError:
    return LayoutChangedError(
        f"MIG mode of {gpu} stays on",
        why=f"it has instances that were not planned for: {'; '.join(map(describe, left))}",
        hint="vgpumgr mig list",
    )
