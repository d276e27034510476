"""What steps work on: the machine's parts, each behind its Protocol, and the attachment being
changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from vgpumgr.domain.attaching import look_at_vm
from vgpumgr.domain.hypervisor import Hypervisor, Vm
from vgpumgr.host.clock import Clock
from vgpumgr.mdev.control import NoVgpus, VgpuControl
from vgpumgr.model.codec import encode
from vgpumgr.nvml.protocol import Nvml
from vgpumgr.passthrough.control import PciControl, make_absent
from vgpumgr.plan.record import AttachmentRecord, AttachmentStore
from vgpumgr.plan.vgpu_record import NoVgpuStore, VgpuStore
from vgpumgr.virtio.channel import Channels

if TYPE_CHECKING:
    from vgpumgr.plan.layout_world import LayoutWorld

_POLL_S = 0.1
#: for a guest that has had its time before
HURRIED_S = 1.0


class Patient(Protocol):
    """Whoever can wait."""

    def wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Waits until the condition holds; False if it does not by then."""


@dataclass
class World:
    """The one thing that changes while a plan runs."""

    nvml: Nvml
    hypervisor: Hypervisor
    channels: Channels
    store: AttachmentStore
    clock: Clock
    #: the attachment that is changed; None only while devices that nobody remembers are removed
    maybe_record: AttachmentRecord | None = None
    #: the other attachments of the same operation, by their ids
    others: dict[str, AttachmentRecord] = field(default_factory=dict)
    #: what the user should know afterwards
    notes: list[str] = field(default_factory=list)
    #: whether the guest's agent answered during this operation
    hello: bool = False
    vgpus: VgpuControl = field(default_factory=NoVgpus)
    vgpu_store: VgpuStore = field(default_factory=NoVgpuStore)
    pci: PciControl = field(default_factory=make_absent)
    #: for steps on MIG instances beside those of attachments; see ``layout_inside``
    layout: LayoutWorld | None = None
    #: whoever has been waited for before is waited for only shortly
    hurried: bool = False
    #: a VM as a step has read it back, for the next one; the digest is of an earlier moment
    seen_vm: Vm | None = None
    #: the record that ``facts`` told last, and as what
    _encoded: tuple[AttachmentRecord, object] | None = None

    def take_vm(self, uuid: str) -> Vm | None:
        """The VM as the step before has left it behind, else as it is now; None if it is gone.

        It is there once: whoever takes it puts it back as it has read it after its own change. Where a
        step fails, nothing stays, and the next one looks itself.
        """
        vm, self.seen_vm = self.seen_vm, None
        return vm if vm is not None and vm.uuid == uuid else look_at_vm(self.hypervisor, uuid)

    def read_vm(self, uuid: str) -> Vm:
        """The VM as it is now, whatever was seen before. Raises VmNotFoundError."""
        self.seen_vm = None
        return self.hypervisor.read_vm(uuid)

    @property
    def record(self) -> AttachmentRecord:
        """The attachment that is changed."""
        assert self.maybe_record is not None
        return self.maybe_record

    def facts(self) -> Mapping[str, object]:
        """What the journal keeps of the attachments, should the state file be lost."""
        if self.maybe_record is None:
            return {}
        if not self.others:
            return {"record": self._encode(self.maybe_record)}
        return {"records": {record.id: encode(record) for record in self.list_records()}}

    def _encode(self, record: AttachmentRecord) -> object:
        """Anew only when it has changed: most steps change no record."""
        if self._encoded is None or self._encoded[0] is not record:
            self._encoded = record, encode(record)
        return self._encoded[1]

    def list_records(self) -> list[AttachmentRecord]:
        """All attachments of the operation, by number."""
        return sorted((self.record, *self.others.values()), key=lambda record: record.number)

    def turn_to(self, attachment: str) -> None:
        """Makes another attachment of the operation the one that is changed."""
        if self.record.id != attachment:
            self.others[self.record.id] = self.record
            self.maybe_record = self.others.pop(attachment)

    def remember_mig(self, **changes: Any) -> None:
        """Changes the MIG part of the attachment's record, in memory and on disk."""
        self._save(self.record.with_mig(**changes))

    def remember_channel(self, **changes: Any) -> None:
        """Changes the channel part of the attachment's record, in memory and on disk."""
        self._save(self.record.with_channel(**changes))

    def wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Waits until the condition holds; False if it does not by then."""
        longest_s = min(timeout_s, HURRIED_S) if self.hurried else timeout_s
        return wait_until(self.clock, condition, longest_s)

    def remember(self, **changes: Any) -> None:
        """Changes the attachment's record, in memory and on disk."""
        self._save(replace(self.record, **changes))

    def note(self, **changes: Any) -> None:
        """Changes the attachment's record in memory: the next change of it is written with this one."""
        self.maybe_record = replace(self.record, **changes)

    def _save(self, record: AttachmentRecord) -> None:
        self.maybe_record = record
        self.store.save_attachment(record)


def wait_until(clock: Clock, condition: Callable[[], bool], timeout_s: float) -> bool:
    """Asks again and again until the condition holds; False if it does not by then."""
    deadline_s = clock.monotonic_s() + timeout_s
    while not condition():
        if clock.monotonic_s() >= deadline_s:
            return False
        clock.sleep(_POLL_S)
    return True
