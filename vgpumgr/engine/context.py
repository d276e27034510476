"""What an operation works with: the machine's interfaces, its stores, and the records it changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from vgpumgr.engine.mig_state import MigState
from vgpumgr.host.clock import Clock
from vgpumgr.model.attachment import AttachmentRecord, AttachmentStore
from vgpumgr.model.codec import encode
from vgpumgr.model.gpu import DrainStore, Gpu
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import LayoutStore, NoLayouts, Placement
from vgpumgr.model.vgpu import NoVgpuStore, VgpuStore
from vgpumgr.nvml.protocol import Nvml
from vgpumgr.state.leases import Leases, NoLeases

if TYPE_CHECKING:
    from vgpumgr.domain.hypervisor import Hypervisor, Vm
    from vgpumgr.mdev.control import VgpuControl
    from vgpumgr.passthrough.control import PciControl
    from vgpumgr.virtio.channel import Channels

_POLL_S = 0.1
#: the longest wait of an operation with ``short_waits``
SHORT_WAIT_S = 1.0


def make_no_vgpus() -> VgpuControl:
    """Those of a host that has none."""
    from vgpumgr.mdev.control import NoVgpus

    return NoVgpus()


def make_no_pci() -> PciControl:
    """The PCI bus of a host that has none."""
    from vgpumgr.passthrough.control import make_absent

    return make_absent()


@dataclass
class OperationContext:
    """The context of one operation; its records change while a plan runs."""

    nvml: Nvml
    hypervisor: Hypervisor
    channels: Channels
    clock: Clock
    attachment_store: AttachmentStore
    layout_store: LayoutStore = field(default_factory=NoLayouts)
    vgpu_store: VgpuStore = field(default_factory=NoVgpuStore)
    vgpus: VgpuControl = field(default_factory=make_no_vgpus)
    pci: PciControl = field(default_factory=make_no_pci)
    #: those of the pool that this host is in
    leases: Leases = field(default_factory=NoLeases)
    #: None: the operation drains and resumes no GPU
    maybe_drain_store: DrainStore | None = None
    #: the attachment that is changed; None where the operation is about no attachment
    maybe_record: AttachmentRecord | None = None
    #: the other attachments of the same operation, by their ids
    other_records: dict[str, AttachmentRecord] = field(default_factory=dict)
    #: the GPUs as observed at the beginning; None: NVML is asked when a step needs them
    gpus: Sequence[Gpu] | None = None
    #: what the user should know afterwards
    notes: list[str] = field(default_factory=list)
    #: whether waits are cut short: the same was waited for before
    short_waits: bool = False
    #: a VM as a step has read it back, for the next one; the digest is of an earlier moment
    seen_vm: Vm | None = None
    #: the record that ``encode_records`` encoded last, and its form
    _encoded: tuple[AttachmentRecord, object] | None = None

    @property
    def drain_store(self) -> DrainStore:
        """The record of drained GPUs."""
        assert self.maybe_drain_store is not None
        return self.maybe_drain_store

    @cached_property
    def mig(self) -> MigState:
        """The MIG instances; an operation that needs none never asks NVML."""
        return MigState(self.nvml, self.gpus)

    def take_vm(self, uuid: str) -> Vm | None:
        """The VM as the step before has left it behind, else as it is now; None if it is gone.

        It is handed out once: a step puts it back as it has read it after its own change. Where a
        step fails, nothing stays, and the next one reads it itself.
        """
        vm, self.seen_vm = self.seen_vm, None
        if vm is not None and vm.uuid == uuid:
            return vm
        from vgpumgr.domain.attaching import find_vm

        return find_vm(self.hypervisor, uuid)

    def read_vm(self, uuid: str) -> Vm:
        """The VM as it is now, whatever was seen before. Raises VmNotFoundError."""
        self.seen_vm = None
        return self.hypervisor.read_vm(uuid)

    @property
    def record(self) -> AttachmentRecord:
        """The attachment that is changed."""
        assert self.maybe_record is not None
        return self.maybe_record

    def encode_records(self) -> Mapping[str, object]:
        """What the journal keeps of the attachments, should the state file be lost."""
        if self.maybe_record is None:
            return {}
        if not self.other_records:
            return {"record": self._encode(self.maybe_record)}
        return {"records": {record.id: encode(record) for record in self.list_records()}}

    def _encode(self, record: AttachmentRecord) -> object:
        """Anew only when it has changed: most steps change no record."""
        if self._encoded is None or self._encoded[0] is not record:
            self._encoded = record, encode(record)
        return self._encoded[1]

    def list_records(self) -> list[AttachmentRecord]:
        """All attachments of the operation, by number."""
        records = (self.record, *self.other_records.values())
        return sorted(records, key=lambda record: record.number)

    def select_record(self, attachment: str) -> None:
        """Makes another attachment of the operation the one that is changed."""
        if self.record.id != attachment:
            self.other_records[self.record.id] = self.record
            self.maybe_record = self.other_records.pop(attachment)

    def save_mig(self, **changes: Any) -> None:
        """Changes the MIG part of the attachment's record, in memory and on disk."""
        self._save(self.record.with_mig(**changes))

    def save_slice(self, gpu: GpuUuid, placement: Placement, **changes: Any) -> None:
        """As ``save_mig``, where the slice at that place is the attachment's."""
        record = self.maybe_record
        if record is not None and (record.gpu, record.placement) == (gpu, placement):
            self.save_mig(**changes)

    def save_channel(self, **changes: Any) -> None:
        """Changes the channel part of the attachment's record, in memory and on disk."""
        self._save(self.record.with_channel(**changes))

    def save_share(self, record: AttachmentRecord) -> None:
        """Replaces the attachment's record, in memory and on disk, by one with another share."""
        self._save(record)

    def save_record(self, **changes: Any) -> None:
        """Changes the attachment's record, in memory and on disk."""
        self._save(replace(self.record, **changes))

    def change_record(self, **changes: Any) -> None:
        """Changes the attachment's record in memory: the next save writes this change, too."""
        self.maybe_record = replace(self.record, **changes)

    def _save(self, record: AttachmentRecord) -> None:
        self.maybe_record = record
        self.attachment_store.save_attachment(record)

    def find_attachment(self, attachment: str) -> AttachmentRecord | None:
        """An attachment as it is recorded on disk."""
        found = self.attachment_store.list_attachments()
        return next((record for record in found if record.id == attachment), None)

    def wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Waits until the condition holds; False if it does not by then."""
        longest_s = min(timeout_s, SHORT_WAIT_S) if self.short_waits else timeout_s
        return wait_until(self.clock, condition, longest_s)


def wait_until(clock: Clock, condition: Callable[[], bool], timeout_s: float) -> bool:
    """Polls until the condition holds; False if it does not by then."""
    deadline_s = clock.monotonic_s() + timeout_s
    while not condition():
        if clock.monotonic_s() >= deadline_s:
            return False
        clock.sleep(_POLL_S)
    return True
