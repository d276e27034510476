"""A carved piece of a GPU, and its attachment to a VM."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from vgpumgr.model.identity import GpuUuid, MigUuid
from vgpumgr.model.mig import Placement

ALIAS_PREFIX = "ua-vgpumgr-"


class Backend(StrEnum):
    """How a slice reaches a VM."""

    PASSTHROUGH = "passthrough"
    VF = "vf"
    MDEV = "mdev"
    FORWARD = "forward"


class BackendChoice(StrEnum):
    """``--backend``: one of them, or the first that the profile and the host allow."""

    AUTO = "auto"
    FORWARD = Backend.FORWARD.value
    PASSTHROUGH = Backend.PASSTHROUGH.value
    VF = Backend.VF.value
    MDEV = Backend.MDEV.value


class SliceKind(StrEnum):
    """What was carved."""

    MIG = "mig"
    GPU = "gpu"
    SHARE = "share"
    MDEV = "mdev"
    VF = "vf"


@dataclass(frozen=True, slots=True)
class MigInstanceRef:
    """Which GPU and compute instance on the slice's GPU; ids are void after a reboot or reset."""

    gpu_instance_id: int
    compute_instance_id: int
    placement: Placement
    uuid: MigUuid


@dataclass(frozen=True, slots=True)
class Slice:
    """A piece of a GPU that one VM can have. ``mig`` is set exactly for ``SliceKind.MIG``."""

    kind: SliceKind
    gpu: GpuUuid
    profile: str
    memory_bytes: int
    mig: MigInstanceRef | None = None

    def __post_init__(self) -> None:
        if (self.kind is SliceKind.MIG) != (self.mig is not None):
            raise ValueError(f"a slice of kind {self.kind} with mig={self.mig!r}")

    @property
    def cuda_device(self) -> str:
        """What CUDA_VISIBLE_DEVICES must say for the process that runs this slice."""
        return self.mig.uuid if self.mig else self.gpu


@dataclass(frozen=True, slots=True)
class Attachment:
    """A slice that belongs to a VM: what ``attach`` creates and ``detach`` removes. Times are Unix
    seconds.
    """

    id: str
    vm_name: str
    vm_uuid: str
    slice: Slice
    backend: Backend
    created_s: float

    @property
    def alias(self) -> str:
        """The libvirt alias by which the domain's own devices are known as ours."""
        return ALIAS_PREFIX + self.id


@dataclass(frozen=True, slots=True)
class SliceOwner:
    """Who a MIG instance belongs to: the VM of an attachment, or a vGPU, whose name is then in its
    place.
    """

    gpu: GpuUuid
    gpu_instance_id: int
    compute_instance_id: int | None
    vm_name: str
    attachment_id: str
    is_vm: bool = True

    @property
    def holder(self) -> str:
        """For people."""
        return f'vm "{self.vm_name}"' if self.is_vm else self.vm_name
