"""Steps on MIG: mode, GPU instance, compute instance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from vgpumgr.errors import (
    HelperDiedError,
    HelperLateError,
    NvmlError,
    NvmlInsufficientResourcesError,
    NvmlInUseError,
    NvmlNotFoundError,
    NvmlNotSupportedError,
    NvmlPermissionError,
    ReadBackError,
    VgpumgrError,
)
from vgpumgr.mig.instances import destroy_instance, ensure_mig_mode, find_instance
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import ComputeInstance, GpuInstance, MigProfile, Placement
from vgpumgr.model.slice import MigInstanceRef
from vgpumgr.nvml.protocol import Nvml
from vgpumgr.plan.record import AttachmentRecord, list_sharers
from vgpumgr.plan.step import NothingDoneError
from vgpumgr.plan.world import Patient, World

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


def is_uncertain(error: BaseException) -> bool:
    """Whether a call of the driver that failed so may have taken effect."""
    if isinstance(error, HelperLateError | HelperDiedError):
        return True
    return isinstance(error, NvmlError) and not isinstance(error, CERTAIN)


def read_gpu(nvml: Nvml, gpu: Gpu) -> Gpu:
    """The same GPU as it is now. Raises NvmlNotFoundError if it is gone."""
    for now in nvml.read_inventory().gpus:
        if now.uuid == gpu.uuid:
            return now
    raise NvmlNotFoundError(f"{gpu} is gone", hint="vgpumgr gpu list")


@dataclass(frozen=True)
class EnableMigMode:
    """Turns MIG mode on."""

    gpu: Gpu
    kind: ClassVar[str] = "mig.mode.enable"

    @property
    def target(self) -> Mapping[str, object]:
        """The GPU."""
        return {"gpu": str(self.gpu.uuid), "gpu_index": self.gpu.index}

    def describe(self) -> str:
        """For people."""
        return f"turn MIG mode on on {self.gpu}"

    def do(self, world: World) -> None:
        """Asks NVML and reads the mode back."""
        ensure_mig_mode(world.nvml, read_gpu(world.nvml, self.gpu), True)

    def undo(self, world: World) -> None:
        """Turns it off again, unless somebody has made instances meanwhile."""
        now = read_gpu(world.nvml, self.gpu)
        if not now.instances:
            ensure_mig_mode(world.nvml, now, False)

    def observe(self, world: World) -> bool:
        """Whether it is on, or about to be."""
        mode = read_gpu(world.nvml, self.gpu).mig
        return mode.current or mode.pending


@dataclass(frozen=True)
class DisableMigMode:
    """Turns MIG mode off where an earlier attach turned it on and nobody needs it any more."""

    gpu: Gpu
    kind: ClassVar[str] = "mig.mode.disable"

    @property
    def target(self) -> Mapping[str, object]:
        """The GPU."""
        return {"gpu": str(self.gpu.uuid), "gpu_index": self.gpu.index}

    def describe(self) -> str:
        """For people."""
        return f"turn MIG mode off on {self.gpu}, as it was before"

    def do(self, world: World) -> None:
        """Turns it off; an instance made meanwhile, a client or a pending reset leaves it on, and
        is said.
        """
        now = read_gpu(world.nvml, self.gpu)
        if now.instances:
            world.notes.append(f"MIG mode stays on on {now}: it has instances")
            return
        try:
            ensure_mig_mode(world.nvml, now, False)
        except HelperLateError:
            raise  # it may yet go off: whoever repeats this sees
        except VgpumgrError as error:
            world.notes.append(f"MIG mode stays on on {now}: {error.cause or error}")

    def undo(self, world: World) -> None:
        """Turns it on again."""
        ensure_mig_mode(world.nvml, read_gpu(world.nvml, self.gpu), True)

    def observe(self, world: World) -> bool:
        """Whether it is off."""
        return not read_gpu(world.nvml, self.gpu).mig.current


@dataclass(frozen=True)
class CreateGpuInstance:
    """Creates the GPU instance at exactly one place."""

    gpu: Gpu
    profile: MigProfile
    placement: Placement
    kind: ClassVar[str] = "mig.gi.create"

    @property
    def target(self) -> Mapping[str, object]:
        """GPU, profile and placement: they name the instance before it exists."""
        return {
            "gpu": str(self.gpu.uuid),
            "gpu_index": self.gpu.index,
            "profile": str(self.profile.name),
            "placement": {"start": self.placement.start, "size": self.placement.size},
        }

    def describe(self) -> str:
        """For people."""
        return f"create GPU instance {self.profile.name} at {self.placement} on {self.gpu}"

    def do(self, world: World) -> None:
        """Creates it. What is there already is somebody else's."""
        if self._find(world) is not None:
            raise NothingDoneError(
                NvmlInsufficientResourcesError(
                    f"cannot {self.describe()}",
                    why="somebody else created one there meanwhile",
                    hint="repeat the command: it plans anew",
                )
            )
        try:
            instance = world.nvml.create_gpu_instance(
                self.gpu.uuid, self.profile.id, self.placement
            )
        except VgpumgrError as error:
            if is_uncertain(error):
                raise
            raise NothingDoneError(error) from error
        if instance.placement != self.placement:
            destroy_instance(world.nvml, self.gpu.uuid, instance.id)
            raise ReadBackError(f"asked for {self.placement}, it was put at {instance.placement}")
        if world.maybe_record is not None:
            world.remember_mig(gpu_instance_id=instance.id)

    def undo(self, world: World) -> None:
        """Destroys it."""
        instance = self._find(world)
        if instance is not None:
            until_released(world, lambda: destroy_instance(world.nvml, self.gpu.uuid, instance.id))

    def observe(self, world: World) -> bool:
        """Whether it is there."""
        return self._find(world) is not None

    def _find(self, world: World) -> GpuInstance | None:
        return find_instance(world.nvml, self.gpu.uuid, self.profile, self.placement)


@dataclass(frozen=True)
class CreateComputeInstance:
    """Creates the compute instance, which makes its part of the GPU instance a CUDA device; its UUID
    goes into the record.
    """

    gpu: Gpu
    profile: MigProfile
    placement: Placement
    slices: int
    #: in the GPU instance, where that may have others; None: it is alone
    compute: Placement | None = None
    kind: ClassVar[str] = "mig.ci.create"

    @property
    def target(self) -> Mapping[str, object]:
        """The GPU instance by its place, and how many slices."""
        return {
            "gpu": str(self.gpu.uuid),
            "gpu_index": self.gpu.index,
            "placement": {"start": self.placement.start, "size": self.placement.size},
            "slices": self.slices,
        }

    def describe(self) -> str:
        """For people."""
        size = f"{self.slices} of {self.profile.slices} slices"
        if self.compute is None:
            return f"create its compute instance ({size})"
        return f"create a compute instance ({size}) in the GPU instance at {self.placement}"

    def do(self, world: World) -> None:
        """Creates it and remembers both ids and the UUID."""
        instance = find_instance(world.nvml, self.gpu.uuid, self.profile, self.placement)
        if instance is None:
            raise NothingDoneError(ReadBackError("the GPU instance has disappeared"))
        compute = world.nvml.create_compute_instance(
            self.gpu.uuid, instance.id, self.slices, self.compute
        )
        if compute.uuid is None:
            raise ReadBackError(f"the driver gave {self.profile.name} no UUID")
        ref = MigInstanceRef(instance.id, compute.id, self.placement, compute.uuid)
        world.remember_mig(ref=ref, gpu_instance_id=instance.id)

    def undo(self, world: World) -> None:
        """Destroys it, or all of ours where it is alone."""
        instance = find_instance(world.nvml, self.gpu.uuid, self.profile, self.placement)
        for compute in list_own_compute(world, instance, world.record):
            _destroy_compute(world, self.gpu, instance, compute.id)

    def observe(self, world: World) -> bool:
        """Whether the GPU instance has one."""
        instance = find_instance(world.nvml, self.gpu.uuid, self.profile, self.placement)
        return bool(list_own_compute(world, instance, world.record))


def list_own_compute(
    world: World, instance: GpuInstance | None, record: AttachmentRecord
) -> list[ComputeInstance]:
    """The compute instances of an attachment in its GPU instance: its own, and where it is alone,
    all.
    """
    part = record.mig_part
    if instance is None or part is None:
        return []
    sharers = list_sharers(record, world.store.list_attachments())
    if part.compute is None and not sharers:
        return list(instance.compute_instances)
    if part.ref is not None:
        return [c for c in instance.compute_instances if c.uuid == part.ref.uuid]
    # interrupted before its UUID was known: the one at its place that is nobody else's
    others = {other.mig.uuid for other in sharers if other.mig}
    return [
        c
        for c in instance.compute_instances
        if c.uuid not in others and c.placement in (None, part.compute)
    ]


def find_recorded_instance(nvml: Nvml, record: AttachmentRecord) -> GpuInstance | None:
    """The GPU instance of an attachment; None if it is gone or if something else is in its place
    now.
    """
    part = record.mig_part
    if part is None or record.gpu is None:
        return None
    for instance in nvml.list_gpu_instances(record.gpu):
        if instance.placement != part.placement:
            continue
        if instance.profile_id != part.gpu_profile_id:
            return None
        if part.ref is None:
            # interrupted before its ids were known, or before they all were
            return instance if part.gpu_instance_id in (None, instance.id) else None
        uuids = {compute.uuid for compute in instance.compute_instances}
        same = instance.id == part.ref.gpu_instance_id
        return instance if same and (not uuids or part.ref.uuid in uuids) else None
    return None


@dataclass(frozen=True)
class DestroyComputeInstance:
    """Destroys the compute instance of an attachment; those of others in the same GPU instance stay."""

    gpu: Gpu
    record: AttachmentRecord
    kind: ClassVar[str] = "mig.ci.destroy"

    @property
    def target(self) -> Mapping[str, object]:
        """The MIG device."""
        mig = self.record.mig
        return {"gpu": str(self.gpu.uuid), "mig": mig and str(mig.uuid)}

    def describe(self) -> str:
        """For people."""
        name = self.record.mig.uuid if self.record.mig else f"at {self.record.placement}"
        return f"destroy compute instance {name}"

    def do(self, world: World) -> None:
        """Destroys them, after the worker has let go."""
        instance = find_recorded_instance(world.nvml, self.record)
        for compute in list_own_compute(world, instance, self.record):
            _destroy_compute(world, self.gpu, instance, compute.id)

    def undo(self, world: World) -> None:
        """Nothing: a detach goes on, it is not taken back."""

    def observe(self, world: World) -> bool:
        """Whether they are gone."""
        instance = find_recorded_instance(world.nvml, self.record)
        return not list_own_compute(world, instance, self.record)


@dataclass(frozen=True)
class DestroyGpuInstance:
    """Destroys the GPU instance of an attachment, unless others are in it."""

    gpu: Gpu
    record: AttachmentRecord
    kind: ClassVar[str] = "mig.gi.destroy"

    @property
    def target(self) -> Mapping[str, object]:
        """GPU, profile and placement."""
        place = self.record.placement
        assert place is not None
        return {
            "gpu": str(self.gpu.uuid),
            "gpu_index": self.gpu.index,
            "profile": self.record.profile,
            "placement": {"start": place.start, "size": place.size},
        }

    def describe(self) -> str:
        """For people."""
        return (
            f"destroy GPU instance {self.record.profile} at {self.record.placement} on {self.gpu}"
        )

    def do(self, world: World) -> None:
        """Destroys it; what is no longer ours is left alone."""
        instance = find_recorded_instance(world.nvml, self.record)
        if instance is not None and not list_sharers(self.record, world.store.list_attachments()):
            until_released(world, lambda: destroy_instance(world.nvml, self.gpu.uuid, instance.id))

    def undo(self, world: World) -> None:
        """Nothing: a detach goes on, it is not taken back."""

    def observe(self, world: World) -> bool:
        """Whether it is gone."""
        gone = find_recorded_instance(world.nvml, self.record) is None
        return gone or bool(list_sharers(self.record, world.store.list_attachments()))


def _destroy_compute(world: World, gpu: Gpu, instance: GpuInstance | None, compute_id: int) -> None:
    assert instance is not None

    def destroy() -> None:
        try:
            world.nvml.destroy_compute_instance(gpu.uuid, instance.id, compute_id)
        except NvmlNotFoundError:
            return

    until_released(world, destroy)


def until_released(world: Patient, destroy: Callable[[], None]) -> None:
    """Repeats while the driver says in use, for a bounded time; then the error goes on."""
    last: list[NvmlInUseError] = []

    def attempt() -> bool:
        try:
            destroy()
        except NvmlInUseError as error:
            last[:] = [error]
            return False
        return True

    if not world.wait(attempt, RELEASE_TIMEOUT_S):
        raise last[0]
