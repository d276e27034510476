# SPDX-License-Identifier: Apache-2.0
"""PCI functions of a machine file other than NVIDIA's compute boards, and what hangs on them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from vgpumgr.sim.pcibus import Address, Function, Sriov

_MIB = 1 << 20

PciAddressText = Annotated[
    str, StringConstraints(pattern=r"^[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$")
]
PciIds = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{4}:[0-9a-f]{4}$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PciSriov(_Strict):
    """The SR-IOV capability of a function."""

    total: int = Field(ge=1, le=64)
    vf_device: int
    offset: int = Field(default=1, ge=1)
    stride: int = Field(default=1, ge=1)
    configurable: bool = True
    """Whether its driver lets ``sriov_numvfs`` be written."""
    at_boot: int = 0
    """VFs that its driver makes by itself when it is loaded."""
    vf_driver: str | None = None
    """The driver of the host that takes new VFs; empty: none. By default the function's own."""


class IntelQuotas(_Strict):
    """Where the driver shows the shares of VFs, and what there is to share."""

    layout: Literal["xe", "i915"]
    vram_mib: int = 0
    ggtt_mib: int = 4096
    tiles: int = 1


class GimGpu(_Strict):
    """What AMD's driver for hosts knows of a GPU."""

    supported: int = Field(ge=1, le=31)
    framebuffer_mib: int
    reserved_mib: int = 0
    """What the physical function keeps of the frame buffer."""
    fixed: bool = False
    """Whether the number of VFs is as it was when the driver was loaded."""


class Uses(_Strict):
    """What the host does with a function while its driver has it."""

    net: str | None = None
    """A network interface that is up."""
    disk: str | None = None
    """A disk; ``mounts`` are where it is mounted."""
    mounts: tuple[str, ...] = ()
    graphics: str | None = None
    """A frame buffer, with the console on it."""
    drm: str | None = None
    sound: int | None = None
    """The number of a sound card."""
    usb: int | None = None
    """The number of a USB bus; ``plugged`` devices are plugged into it."""
    plugged: int = 0


class MachinePci(_Strict):
    """Another PCI function of a machine file: ``ids`` and ``subsystem`` are ``vendor:device``."""

    address: PciAddressText
    ids: PciIds
    subsystem: PciIds
    class_code: int = Field(ge=0, le=0xFFFFFF)
    numa_node: int = Field(ge=-1)
    iommu_group: int | None = Field(default=None, ge=0)
    driver: str | None = None
    revision: int = 0xA1
    bar_mib: tuple[int, ...] = ()
    boot_vga: bool | None = None
    sriov: PciSriov | None = None
    quotas: IntelQuotas | None = None
    partitions: tuple[str, ...] = ()
    """Compute partitions that amdgpu offers; the first is in force."""
    gim: GimGpu | None = None
    uses: Uses | None = None

    def function(self) -> Function:
        """The function on the PCI bus, as its own driver has it."""
        vendor, device = (int(part, 16) for part in self.ids.split(":"))
        subsystem_vendor, subsystem_device = (int(part, 16) for part in self.subsystem.split(":"))
        return Function(
            address=Address.parse(self.address),
            vendor=vendor,
            device=device,
            subsystem_vendor=subsystem_vendor,
            subsystem_device=subsystem_device,
            class_code=self.class_code,
            numa_node=self.numa_node,
            iommu_group=self.iommu_group,
            driver=self.driver,
            revision=self.revision,
            bars=tuple(mib * _MIB for mib in self.bar_mib),
            boot_vga=self.boot_vga,
            sriov=self._sriov(),
        )

    def _sriov(self) -> Sriov | None:
        if self.sriov is None:
            return None
        data = self.sriov
        driver = self.driver if data.vf_driver is None else data.vf_driver or None
        return Sriov(
            data.total,
            data.vf_device,
            data.offset,
            data.stride,
            data.configurable,
            at_boot=data.at_boot,
            vf_driver=driver,
        )
