"""The documents that leave the program: ``-o json`` today, the REST API's bodies with it.

These fields are the public contract, ``schema`` names its version. Sizes are bytes, ratios are 0 to
1; null means that the host does not say. Fields may be added within a version, none is removed or
changes its meaning.

Documents are dataclasses, which ``model.codec`` writes and reads; pydantic reads their declarations for
the API's description alone.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal, Self, dataclass_transform

from vgpumgr.model.codec import decode, encode

SCHEMA: Literal["vgpumgr/v1"] = "vgpumgr/v1"


def Field(  # noqa: N802  # declares, as pydantic's does
    *,
    description: str | None = None,
    in_json: str | None = None,
    default: Any = dataclasses.MISSING,
    default_factory: Any = dataclasses.MISSING,
) -> Any:
    """A document's field. ``in_json`` is its name there where Python keeps that for itself: it is
    the field's own without the underscore at its end.
    """
    known = {"description": description, "alias": in_json}
    metadata = {name: value for name, value in known.items() if value is not None}
    if default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=default_factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(Field,))
class Document:
    """Base of all documents; each subclass is a dataclass, equal by value, whose values do not
    change.
    """

    #: what pydantic makes of it: unknown fields are refused
    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __init_subclass__(cls) -> None:
        # a declaration only: methods of its own for each class are compiled at every start
        dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False)(cls)

    def __init__(self, **values: Any) -> None:
        fields = self.__dataclass_fields__
        if unknown := values.keys() - fields.keys():
            raise TypeError(f"{type(self).__name__} has no {', '.join(sorted(unknown))}")
        for name, field in fields.items():
            vars(self)[name] = values[name] if name in values else _take_default(self, field)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({parts})"

    def as_data(self) -> dict[str, Any]:
        """The JSON-able form."""
        data: dict[str, Any] = encode(self)
        return data

    def replace(self, **changes: Any) -> Self:
        """A copy with other values for some fields."""
        return type(self)(**(vars(self) | changes))

    @classmethod
    def from_data(cls, data: object) -> Self:
        """The document that ``as_data`` made ``data`` from. Raises ShapeError."""
        return decode(cls, data)


def _take_default(document: Document, field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    raise TypeError(f"{type(document).__name__} needs {field.name}")


class ProcessDocument(Document):
    """A process with a context on the GPU or on one of its instances."""

    pid: int
    name: str | None = Field(description="as the kernel has it, at most 15 characters")
    kind: Literal["compute", "graphics"]
    memory_bytes: int | None


class PlacementDocument(Document):
    """The half-open range [start, start + size) on the memory axis."""

    start: int
    size: int


class ComputeInstanceDocument(Document):
    """A compute instance: the MIG device that CUDA sees."""

    id: int
    uuid: str | None = Field(description="MIG-..., what CUDA_VISIBLE_DEVICES takes")
    slices: int
    memory_used_bytes: int | None
    vm: str | None = Field(description="whose it is")
    attachment: str | None


class InstanceDocument(Document):
    """A GPU instance, and whose it is: a VM's, some processes', or nobody's."""

    id: int
    profile: str
    placement: PlacementDocument
    slices: int
    memory_bytes: int
    vm: str | None = Field(description="the VM that it is attached to")
    attachment: str | None = Field(description="id of that attachment")
    compute_instances: list[ComputeInstanceDocument]
    processes: list[ProcessDocument]


class MigModeDocument(Document):
    """MIG mode, and what is free."""

    supported: bool
    current: bool
    pending: bool
    needs_reset: bool = Field(description="the mode changes only by a reset of the GPU")
    compute_slices: int = Field(description="of the whole GPU; 0 without MIG")
    compute_slices_used: int
    memory_positions: int = Field(description="length of the memory axis; 0 without MIG")
    memory_positions_used: int


class IommuGroupDocument(Document):
    """The IOMMU group; all its members go to one VM together."""

    number: int
    members: list[str]


class UtilisationDocument(Document):
    """Share of the last sample period in which kernels ran, and memory was read or written."""

    gpu_ratio: float
    memory_ratio: float


class GpuDocument(Document):
    """One GPU."""

    index: int
    uuid: str
    model: str
    pci: str
    numa_node: int | None
    iommu_group: IommuGroupDocument | None
    driver: str | None = Field(description="kernel driver bound to the PCI function")
    driver_version: str
    architecture: str | None
    compute_capability: str | None
    serial: str | None
    memory_total_bytes: int
    memory_used_bytes: int
    utilisation: UtilisationDocument | None
    mig: MigModeDocument
    instances: list[InstanceDocument]
    processes: list[ProcessDocument] = Field(description="those on the GPU as a whole")
    vms: list[str] = Field(
        default_factory=list, description="VMs that have it, a virtual function or a vGPU of it"
    )


class PciGpuDocument(Document):
    """A GPU that NVML does not speak about, as ``/sys`` shows it."""

    model: str
    pci: str
    vendor_id: int
    device_id: int
    class_code: int = Field(description="three bytes: base class, subclass, interface")
    numa_node: int | None
    iommu_group: IommuGroupDocument | None
    driver: str | None = Field(description="kernel driver bound to the PCI function")
    bar_bytes: list[int] = Field(description="sizes of its memory BARs")
    vfs_total: int | None = Field(description="virtual functions it can have; null without SR-IOV")
    vfs_enabled: int | None
    boot_display: bool = Field(description="the firmware draws on it")
    vms: list[str] = Field(
        default_factory=list, description="VMs that have it, a virtual function or a vGPU of it"
    )


class LostGpuDocument(Document):
    """A GPU that NVML counts but cannot speak about."""

    index: int
    nvml_code: int
    nvml_text: str


class MachineDocument(Document):
    """Where the answer comes from."""

    name: str | None = Field(description="null on the real machine")
    simulated: bool
    driver_version: str | None = Field(description="null without NVML, as the next two")
    nvml_version: str | None
    cuda_version: str | None


class GpuListDocument(Document):
    """``vgpumgr gpu list -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    machine: MachineDocument
    gpus: list[GpuDocument]
    others: list[PciGpuDocument] = Field(description="GPUs that NVML does not speak about")
    lost: list[LostGpuDocument]


class ProfileFitDocument(Document):
    """A profile on one GPU: how many more fit, and if none does, why not."""

    name: str
    id: int
    slices: int
    memory_bytes: int
    sm_count: int
    max_instances: int
    placements: list[PlacementDocument]
    free_placements: list[PlacementDocument]
    free: int = Field(description="how many more of this profile alone fit")
    why_not: str | None


class GpuShowDocument(Document):
    """``vgpumgr gpu show GPU -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    machine: MachineDocument
    gpu: GpuDocument | None = Field(description="null for a GPU that NVML does not speak about")
    other: PciGpuDocument | None = Field(description="null for one that it does")
    profiles: list[ProfileFitDocument]
    held_by: list[str] = Field(
        default_factory=list,
        description="who has device files of it or of its virtual functions open",
    )


class MigInstanceRow(InstanceDocument):
    """An instance with the GPU that it is on."""

    gpu_index: int
    gpu_uuid: str


class MigListDocument(Document):
    """``vgpumgr mig list -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    instances: list[MigInstanceRow]


class MigProfileRow(ProfileFitDocument):
    """A profile with the GPU that offers it."""

    gpu_index: int
    gpu_uuid: str


class MigProfilesDocument(Document):
    """``vgpumgr mig profiles -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    profiles: list[MigProfileRow]
