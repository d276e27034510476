"""The MIG instances of the GPUs as an operation expects them.

Nothing but NVML stops another of its clients from changing a GPU under our hands. So each step
compares before and after itself with what the steps until then must have led to; a difference is
a foreign change, ends the operation, and is left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from vgpumgr.errors import LayoutChangedError, NvmlNotFoundError
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import ComputeInstance, GpuInstance, MigProfile, Placement
from vgpumgr.nvml.protocol import Nvml

Instances = tuple[GpuInstance, ...]


@dataclass
class MigState:
    """The MIG state of one operation. ``gpus`` as observed at its beginning, None: not yet."""

    nvml: Nvml
    gpus: Sequence[Gpu] | None = None
    #: ids of the GPU instances, and UUIDs of the compute instances, that this operation made
    made: set[tuple[GpuUuid, int]] = field(default_factory=set)
    made_compute: set[tuple[GpuUuid, int, int, str]] = field(default_factory=set)
    #: the instances that each GPU should show by now
    _expected: dict[GpuUuid, Instances] = field(default_factory=dict)

    def find_gpu(self, uuid: str) -> Gpu:
        """The GPU as observed at the beginning. Raises NvmlNotFoundError."""
        if self.gpus is None:
            self.gpus = self.nvml.read_inventory().gpus
        return _find(self.gpus, uuid)

    def read_gpu(self, uuid: str) -> Gpu:
        """The GPU as it is now. Raises NvmlNotFoundError if it is gone."""
        return _find(self.nvml.read_inventory().gpus, uuid, self.gpus or ())

    def find_profile(self, uuid: str, name: str) -> MigProfile:
        """The GPU's profile of that name. Raises NvmlNotFoundError."""
        gpu = self.find_gpu(uuid)
        for profile in gpu.profiles:
            if str(profile.name) == name:
                return profile
        raise NvmlNotFoundError(f"{gpu} has no profile {name}", hint="vgpumgr mig profiles")

    def list_instances(self, uuid: GpuUuid) -> Sequence[GpuInstance]:
        """The instances as they are, with all that NVML says of them."""
        return self.nvml.list_gpu_instances(uuid)

    def read(self, uuid: GpuUuid) -> Instances:
        """The instances as they are."""
        return strip(self.list_instances(uuid))

    def expect(self, uuid: GpuUuid) -> Instances:
        """The instances as they should be; at first, as observed at the beginning."""
        if uuid not in self._expected:
            before = self.gpus is not None
            self._expected[uuid] = (
                strip(self.find_gpu(uuid).instances) if before else self.read(uuid)
            )
        return self._expected[uuid]

    def check(self, uuid: GpuUuid) -> Instances:
        """The instances as they are, which is as they should be. Raises LayoutChangedError."""
        expected, now = self.expect(uuid), self.read(uuid)
        if now != expected:
            raise LayoutChangedError(
                f"the instances of {self.find_gpu(uuid)} were changed by another program meanwhile",
                why=describe_difference(expected, now),
                hint="see who uses NVML on this host, then repeat: the command plans anew",
            )
        return now

    def accept(self, uuid: GpuUuid, instances: Sequence[GpuInstance]) -> None:
        """From now on, this is how the GPU should be."""
        self._expected[uuid] = strip(instances)


def _find(gpus: Sequence[Gpu], uuid: str, before: Sequence[Gpu] = ()) -> Gpu:
    for gpu in gpus:
        if gpu.uuid == uuid:
            return gpu
    name = next((str(gpu) for gpu in before if gpu.uuid == uuid), uuid)
    raise NvmlNotFoundError(f"{name} is gone", hint="vgpumgr gpu list")


def strip(instances: Sequence[GpuInstance]) -> Instances:
    """Instances without what changes by itself, in placement order."""
    return tuple(
        sorted(
            (
                replace(
                    instance,
                    compute_instances=tuple(
                        sorted(
                            (
                                replace(c, memory_used_bytes=None)
                                for c in instance.compute_instances
                            ),
                            key=lambda c: c.id,
                        )
                    ),
                )
                for instance in instances
            ),
            key=lambda instance: (instance.placement, instance.id),
        )
    )


def describe_difference(before: Instances, now: Instances) -> str:
    """What came and went, in words."""
    gone = [i for i in before if i not in now]
    new = [i for i in now if i not in before]
    parts = [f"gone: {describe(i)}" for i in gone] + [f"new: {describe(i)}" for i in new]
    return "; ".join(parts) or "their order changed"


def describe(instance: GpuInstance) -> str:
    """An instance with what is in it."""
    inside = ", ".join(f"{c.slices}c (id {c.id})" for c in instance.compute_instances)
    return f"{instance.profile} at {instance.placement} (id {instance.id}; {inside or 'nothing'} in it)"


def find_at(instances: Instances, profile_id: int, placement: Placement) -> GpuInstance | None:
    """The instance of that profile at exactly that place."""
    for instance in instances:
        if instance.profile_id == profile_id and instance.placement == placement:
            return instance
    return None


def find_id(instances: Instances, id_: int) -> GpuInstance | None:
    """The instance of that id."""
    return next((i for i in instances if i.id == id_), None)


def with_instance(instances: Instances, changed: GpuInstance) -> Instances:
    """The instances with one added, or put in the place of the one with its id."""
    return strip((*(i for i in instances if i.id != changed.id), changed))


def without_compute(instance: GpuInstance, compute_id: int) -> GpuInstance:
    """The instance without one compute instance."""
    kept = tuple(c for c in instance.compute_instances if c.id != compute_id)
    return replace(instance, compute_instances=kept)


def with_compute(instance: GpuInstance, compute: ComputeInstance) -> GpuInstance:
    """The instance with one compute instance more."""
    kept = tuple(c for c in instance.compute_instances if c.id != compute.id)
    return replace(instance, compute_instances=(*kept, compute))
