"""What is remembered of a vGPU of ours: enough to remove it, and to bring it back after a boot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import Placement
from vgpumgr.model.vgpu import VgpuSpec


class VgpuState(StrEnum):
    """What was meant. What *is* on the host is observed."""

    #: written before the kernel is asked, so that a crash leaves something findable
    CREATING = "creating"
    ACTIVE = "active"
    #: its removal has been asked for; until it is over the room is not given to anybody else
    RELEASING = "releasing"
    #: defined, not there
    INACTIVE = "inactive"


@dataclass(frozen=True, slots=True)
class VgpuInstance:
    """The GPU instance that was made for a MIG-backed vGPU, and goes with it."""

    gpu: GpuUuid
    profile: str
    placement: Placement


@dataclass(frozen=True, slots=True)
class VgpuRecord:
    """One vGPU of ours. ``boot``: in which it was last written; another boot knows no vGPU."""

    spec: VgpuSpec
    state: VgpuState
    created_s: float = 0.0
    boot: str = ""
    #: it is to come back: with ``auto`` at boot, else by ``mdev start``
    defined: bool = False
    auto: bool = False
    #: the attachment that it was made for
    attachment: str | None = None
    #: remembered for the time when it is removed but still held
    iommu_group: int | None = None
    #: the GPU instance that the driver put it in; void after a boot
    gpu_instance_id: int | None = None
    instance: VgpuInstance | None = None
    #: the boot in which ``instance`` was made: in another one something else may stand in its place
    instance_boot: str = ""
    #: a boot took it away, and it has not been there since
    lost: bool = False

    @property
    def takes_room(self) -> bool:
        """Whether its parent is not to be used for another."""
        return self.state is not VgpuState.INACTIVE

    def find_home(self, boot: str) -> VgpuInstance | None:
        """The GPU instance that was made for it, if that was in this boot."""
        return self.instance if self.instance_boot == boot else None


class VgpuStore(Protocol):
    """Remembers vGPUs. May raise StoreError. The caller holds the machine's lock when it writes."""

    def list_vgpus(self) -> Sequence[VgpuRecord]:
        """All, in the order in which they were first written: the order of a boot."""

    def save_vgpu(self, record: VgpuRecord) -> None:
        """Writes one with the present boot, in the place of the one with the same UUID."""

    def delete_vgpu(self, uuid: str) -> None:
        """Forgets one; absent is no error."""


def make_inactive(record: VgpuRecord, *, lost: bool = False) -> VgpuRecord:
    """The record of a vGPU that is only defined now; ``lost``: by a boot, not because somebody wanted
    it so.
    """
    return replace(
        record,
        state=VgpuState.INACTIVE,
        iommu_group=None,
        gpu_instance_id=None,
        instance=None,
        instance_boot="",
        lost=lost,
    )


def stamp(record: VgpuRecord, boot: str) -> VgpuRecord:
    """The record as it is written in a boot: what an earlier one made for it is gone."""
    made = record.instance if record.instance_boot in ("", boot) else None
    return replace(record, boot=boot, instance=made, instance_boot=boot if made else "")


class NoVgpuStore:
    """Remembers nothing: for operations that never touch a vGPU."""

    def list_vgpus(self) -> Sequence[VgpuRecord]:
        """None."""
        return ()

    def save_vgpu(self, record: VgpuRecord) -> None:
        """Cannot."""
        raise TypeError(f"nobody remembers {record.spec.uuid}")

    def delete_vgpu(self, uuid: str) -> None:
        """Nothing to forget."""


def find_record(store: VgpuStore, uuid: str) -> VgpuRecord | None:
    """What is remembered of that UUID."""
    return next((record for record in store.list_vgpus() if record.spec.uuid == uuid), None)
