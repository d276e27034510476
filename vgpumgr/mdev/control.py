"""What the program needs of a host's vGPUs, as one interface for both frameworks.

``HostVgpus`` is the implementation on the machine's ``/sys``, ``/proc`` and ``/etc/mdevctl.d``; tests
have their own. Nothing here decides or remembers anything: who owns a vGPU is for ``plan`` and
``store``.
"""

from __future__ import annotations

from typing import Protocol

from vgpumgr.errors import VgpuNotSupportedError
from vgpumgr.mdev.host_vgpus import HostVgpus
from vgpumgr.model.vgpu import (
    Framework,
    VgpuDefinition,
    VgpuDevice,
    VgpuHost,
    VgpuOffer,
    VgpuParent,
    VgpuSpec,
    VgpuType,
)

__all__ = [
    "Framework",
    "HostVgpus",
    "NoVgpus",
    "VgpuControl",
    "VgpuDefinition",
    "VgpuDevice",
    "VgpuHost",
    "VgpuOffer",
    "VgpuParent",
    "VgpuSpec",
    "VgpuType",
]


class VgpuControl(Protocol):
    """One machine's vGPUs. Every method looks afresh, in a helper process with a deadline, and may
    raise HelperLateError, HelperDiedError, SysfsError and SysfsPermissionError besides what it names.
    """

    def read_host(self) -> VgpuHost:
        """All parents with their types, and all vGPUs, ours and others'."""

    def find_device(self, spec: VgpuSpec) -> VgpuDevice | None:
        """The vGPU at the spec's UUID or function, whatever type it is; None if there is none."""

    def create(self, spec: VgpuSpec) -> VgpuDevice:
        """Creates it, sets its attributes in order, reads type and attributes back.

        A vGPU of that UUID, parent and type that is there already is completed. With vendor-VFIO the
        function must be free.

        Raises:
            VgpuTakenError: the UUID or the function is somebody else's, or of another type.
            VgpuNoRoomError: the driver has no room for one more of that type.
            VgpuParentGoneError: the parent is gone, or has no driver that makes vGPUs.
            VgpuTypeNotFoundError: the parent does not offer the type.
            VgpuAttributeError: an attribute was refused; the vGPU is there.
            ReadBackError: the write was accepted, but the vGPU is not as asked for.
        """

    def delete(self, spec: VgpuSpec) -> None:
        """Removes the vGPU at the spec's UUID or function; one that is gone is no error.

        The write may block as long as somebody has the vGPU open: the helper is then left alone
        (HelperLateError), and the removal completes by itself once it is released.

        Raises:
            VgpuBusyError: the driver refuses while it is held.
            ReadBackError: the write was accepted, but the vGPU is still there.
        """

    def list_holders(self, device: VgpuDevice) -> tuple[str, ...]:
        """Processes that have its VFIO device or group open, in words."""

    def list_group_holders(self, iommu_group: int) -> tuple[str, ...]:
        """As ``list_holders``, of a vGPU that is removed already, by its former IOMMU group."""

    def list_definitions(self) -> tuple[VgpuDefinition, ...]:
        """mdevctl's definitions, ours and others', in the order of parents and UUIDs."""

    def write_definition(self, definition: VgpuDefinition) -> None:
        """Writes one as mdevctl does, in the place of the one with the same parent and UUID."""

    def remove_definition(self, parent: str, uuid: str) -> None:
        """Removes one; absent is no error."""


class NoVgpus:
    """A machine that has none; what operations get that never touch one."""

    def read_host(self) -> VgpuHost:
        """Nothing."""
        return VgpuHost()

    def find_device(self, spec: VgpuSpec) -> VgpuDevice | None:  # noqa: ARG002
        """Nothing."""
        return None

    def create(self, spec: VgpuSpec) -> VgpuDevice:
        """Refuses."""
        raise VgpuNotSupportedError(f"cannot create {spec.type_name}", why="there is no vGPU host")

    def delete(self, spec: VgpuSpec) -> None:
        """Nothing to remove."""

    def list_holders(self, device: VgpuDevice) -> tuple[str, ...]:  # noqa: ARG002
        """Nobody."""
        return ()

    def list_group_holders(self, iommu_group: int) -> tuple[str, ...]:  # noqa: ARG002
        """Nobody."""
        return ()

    def list_definitions(self) -> tuple[VgpuDefinition, ...]:
        """None."""
        return ()

    def write_definition(self, definition: VgpuDefinition) -> None:
        """Refuses."""
        raise VgpuNotSupportedError(f"cannot define {definition.uuid}", why="there is no vGPU host")

    def remove_definition(self, parent: str, uuid: str) -> None:
        """Nothing to remove."""
