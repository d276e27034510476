# SPDX-License-Identifier: Apache-2.0
"""The data of vGPU types: ``data/vgpu-types.toml``, and the types of one machine made from it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pydantic import BaseModel, ConfigDict, Field

from vgpumgr.model.frozen import dataclass

_SERIES = re.compile(r"([A-Z])[A-Z]*$")


class Strict(BaseModel):
    """Of a data file: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Series(Strict):
    """What the letter at the end of a type's name stands for."""

    class_: str = Field(alias="class", max_length=15)
    license: str = Field(max_length=127)
    heads: int
    resolution: tuple[int, int]
    frl: int


class TypeRow(Strict):
    """A row of a table of types."""

    id: int = Field(gt=0)
    name: str
    gb: int = Field(ge=0)
    max: int = Field(ge=1)
    gi: str | None = None
    """The profile of the GPU instance that a MIG-backed type lives in."""
    per_gi: int = 0


class TypeTable(Strict):
    """The types of a board."""

    prefix: str
    gb: int
    """The board's nominal memory: the axis that placements are on."""
    sriov: bool
    """True: vGPUs live on VFs, one each. False: on the GPU itself, whatever its SR-IOV capability says."""
    mixed: bool
    """Whether framebuffer sizes can be mixed."""
    subsystem_id: int
    types: tuple[TypeRow, ...]


class VgpuTypes(Strict):
    """``data/vgpu-types.toml``."""

    series: dict[str, Series]
    table: dict[str, TypeTable]


@dataclass(frozen=True, slots=True)
class VgpuType:
    """One type with everything known about it."""

    id: int
    name: str
    series: Series
    framebuffer_mib: int
    size: int
    """Nominal GB, in which placements are counted."""
    max_instances: int
    gi: str | None
    per_gi: int

    @property
    def description(self) -> str:
        """``mdev_supported_types/*/description``, in the form of NVIDIA's vGPU user guide."""
        x, y = self.series.resolution
        return (
            f"num_heads={self.series.heads}, frl_config={self.series.frl}, "
            f"framebuffer={self.framebuffer_mib}M, max_resolution={x}x{y}, max_instance={self.max_instances}"
        )


@dataclass(frozen=True, slots=True)
class Family:
    """A table in use on a machine; its number is how the machine's state names it."""

    number: int
    table: TypeTable
    types: tuple[VgpuType, ...]

    def state_lines(self, device_id: int, profiles: Mapping[str, int]) -> Iterator[str]:
        """The types as ``vgpumgr-simstate create`` reads them. ``profiles``: ids of the board's MIG profiles."""
        for kind in self.types:
            yield "vgpu_type"
            for name, value in self._fields(kind, device_id, profiles).items():
                yield f"vgpu_type.{name} {value}"

    def _fields(
        self, kind: VgpuType, device_id: int, profiles: Mapping[str, int]
    ) -> dict[str, object]:
        return {
            "family": self.number,
            "id": kind.id,
            "name": kind.name,
            "class_name": kind.series.class_,
            "license": kind.series.license,
            "framebuffer_mib": kind.framebuffer_mib,
            "size": kind.size,
            "max_instances": kind.max_instances,
            "max_per_vm": 16 if kind.size == self.table.gb or self.table.sriov else 1,
            "max_per_gi": kind.per_gi,
            "gi_profile": profiles[kind.gi] if kind.gi else 0,
            "heads": kind.series.heads,
            "max_x": kind.series.resolution[0],
            "max_y": kind.series.resolution[1],
            "frame_rate_limit": kind.series.frl,
            "device_id": device_id << 16 | 0x10DE,
            "subsystem_id": (self.table.subsystem_id + kind.size) << 16 | 0x10DE,
        }


def build_family(number: int, name: str, data: VgpuTypes) -> Family:
    """The types of the table of that name. ValueError: no such table, or a name without a series."""
    if name not in data.table:
        raise ValueError(f"no table of vGPU types {name!r}")
    table = data.table[name]
    return Family(number, table, tuple(_build(row, table, data) for row in table.types))


def _build(row: TypeRow, table: TypeTable, data: VgpuTypes) -> VgpuType:
    match = _SERIES.search(row.name)
    if match is None or match[1] not in data.series:
        raise ValueError(f"vGPU type {table.prefix}{row.name}: unknown series")
    return VgpuType(
        id=row.id,
        name=table.prefix + row.name,
        series=data.series[match[1]],
        framebuffer_mib=row.gb * 1024 or 512,
        size=row.gb or 1,
        max_instances=row.max,
        gi=row.gi,
        per_gi=row.per_gi,
    )
