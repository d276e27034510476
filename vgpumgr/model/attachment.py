"""Slices of GPUs, and what is remembered of their attachment to VMs: enough to undo it, however far it got.

What every attachment has stands in :class:`AttachmentRecord`; what only some backends need are parts
of their own: a slice of MIG, a channel, devices of the host that the VM is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from enum import StrEnum
from typing import Any, Literal, Protocol

from vgpumgr.model.choices import Backend, ComputePolicy, Priority, Transport
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.identity import GpuUuid, MigUuid
from vgpumgr.model.limits import LIMIT_KEYS
from vgpumgr.model.mig import MigProfileName, Placement
from vgpumgr.model.pci import PciAddress
from vgpumgr.model.shares import OF_INSTANCE, Share, name_share
from vgpumgr.model.text import format_vm
from vgpumgr.model.vgpu import VgpuInstance, VgpuSpec


@dataclass(frozen=True, slots=True)
class MigInstanceRef:
    """Which GPU and compute instance on the slice's GPU; ids are void after a reboot or reset."""

    gpu_instance_id: int
    compute_instance_id: int
    placement: Placement
    uuid: MigUuid


@dataclass(frozen=True, slots=True)
class SliceOwner:
    """Who a MIG instance belongs to: the VM of an attachment, or a vGPU or a run, whose name is then in
    its place.
    """

    gpu: GpuUuid
    gpu_instance_id: int
    compute_instance_id: int | None
    vm_name: str
    attachment_id: str
    is_vm: bool = True
    #: the vGPU that it is, in words: the GPU instance cannot be destroyed before that is deleted
    vgpu: str | None = None
    is_run: bool = False
    #: who has which share of the instance, in words: the instance then stays where it is
    share_holder: str | None = None

    @property
    def kind(self) -> Literal["vm", "run", "vgpu"]:
        """What the name is of."""
        if self.is_run:
            return "run"
        return "vm" if self.is_vm else "vgpu"

    @property
    def holder(self) -> str:
        """For people."""
        if self.is_run:
            return f'run "{self.vm_name}"'
        if not self.is_vm:
            return self.vm_name
        return f'{self.vgpu} of vm "{self.vm_name}"' if self.vgpu else f'vm "{self.vm_name}"'


class AttachmentState(StrEnum):
    """How far an attachment is. What *is* on the host is observed; this says what was meant."""

    ATTACHING = "attaching"
    ATTACHED = "attached"
    DETACHING = "detaching"


@dataclass(frozen=True, slots=True)
class AddedController:
    """A controller that libvirt added to the definition for our devices; it goes with them."""

    type: str
    index: int
    model: str | None


@dataclass(frozen=True, slots=True)
class MigPart:
    """An attachment's slice of MIG. ``placement`` names the GPU instance before it exists, and
    ``compute`` the compute instance in it; ``ref`` is known once both do.
    """

    gpu_profile_id: int
    placement: Placement
    #: of the compute instance in its GPU instance; None: wherever the driver puts it
    compute: Placement | None = None
    ref: MigInstanceRef | None = None
    #: from the creation of the GPU instance on; ``ref`` follows with the compute instance
    gpu_instance_id: int | None = None
    #: whether attach turned MIG mode on, so that the last detach turns it off
    mode_enabled: bool = False
    #: whether attach took an instance that was there, so that detach leaves it
    taken: bool = False

    @property
    def known_instance(self) -> int | None:
        """The GPU instance's id, once that is known; void after a boot."""
        return self.ref.gpu_instance_id if self.ref else self.gpu_instance_id


@dataclass(frozen=True, slots=True)
class SharePart:
    """An attachment's share of a whole GPU, or of the instance that its MIG part names; and what its percentage of time
    means.
    """

    share: Share
    policy: ComputePolicy
    #: memory that it is to have once its programs use no more than that; None: nothing waits
    memory_at_exit: int | None = None
    priority: Priority = Priority.NORMAL


@dataclass(frozen=True, slots=True)
class ChannelPart:
    """An attachment's channel: keeper, worker and the domain's devices for them."""

    transport: Transport
    #: uid and gid of QEMU: after a boot the channel starts before libvirt, which knows them, does
    qemu_owner: tuple[int, int] | None = None
    #: those that are not the default, as ``--limit`` takes them
    limits: tuple[str, ...] = ()
    #: whether the worker may start without a sandbox, where the host can build none
    allow_unconfined: bool = False


@dataclass(frozen=True, slots=True)
class RunPart:
    """A command of the host that has the slice, in the place of a VM: the process of ``vgpumgr run``,
    which cannot be mistaken for a later one, and the user that it belongs to.
    """

    pid: int
    start_ticks: int
    boot_id: str
    uid: int
    gid: int
    #: the command's name, without its arguments: these may hold what not everybody may read
    command: str


#: so long what uses a claim's lease may go on once that is to end: seconds
GRACE_S = 30.0


@dataclass(frozen=True, slots=True)
class ClaimPart:
    """The claim of a pool by whose lease an attachment has its slice; ``host`` is the lease's host, and ``token`` the
    lease's: a later grant of the claim has a higher one. ``number`` says which of the lease's GPUs it is. ``via`` is
    this host's name in the pool, where the lease is used over the network. One that is ``late`` has a lease from the
    first call of a program until the last program has ended; without it ``host`` is empty.
    """

    name: str
    host: str
    token: int
    number: int = 0
    via: str = ""
    late: bool = False

    @property
    def is_bound(self) -> bool:
        """Whether there is a lease now."""
        return bool(self.host)


@dataclass(frozen=True, slots=True)
class ServedPart:
    """What a channel is served for over the network: an attachment of another host of the pool, by a claim whose lease
    is here.
    """

    host: str
    claim: str
    #: of that host
    attachment: str
    #: of the lease
    token: int


class HostDeviceKind(StrEnum):
    """What a device of the host is."""

    #: a PCI function that was there before: a whole GPU, its audio function
    PCI = "pci"
    #: a virtual function
    VF = "vf"
    #: a mediated device, known by its UUID
    MDEV = "mdev"


@dataclass(frozen=True, slots=True)
class HostDevice:
    """A device of the host that the domain has as a ``hostdev``, and how to give it back."""

    kind: HostDeviceKind
    #: in the domain
    alias: str
    #: the PCI function; None for a mediated device, which has none of its own
    address: PciAddress | None = None
    #: the driver to bind again afterwards; None: none, or the function goes away by itself
    previous_driver: str | None = None
    #: the physical function that a virtual function belongs to, and its number there
    parent: PciAddress | None = None
    index: int | None = None
    #: how many virtual functions attach made on ``parent``; 0: they were there
    made_vfs: int = 0
    #: the vGPU that it is: a mediated device, or a virtual function with a vGPU type
    vgpu: VgpuSpec | None = None
    #: the GPU instance that attach made for the vGPU, and that goes with it
    instance: VgpuInstance | None = None
    #: as the domain has it: its expansion ROM is shown, it draws (a ``Display``)
    rom: bool = False
    display: str = "off"
    #: whether attach took it from the host or made it, so that detach gives it back or removes it
    created: bool = False
    #: the driver that attach gave it to; None: vfio-pci, or none is known
    driver: str | None = None

    @property
    def place(self) -> str:
        """Where it is on the host, for people."""
        return str(self.address) if self.vgpu is None else self.vgpu.parent


@dataclass(frozen=True, slots=True)
class AttachmentRecord:
    """One attachment. It is written before anything else is changed, so that a crash at any later
    moment leaves something to detach. Of a command of the host, name and UUID are those of the run.
    """

    id: str
    vm_name: str
    vm_uuid: str
    #: None for a GPU that no vendor library names
    gpu: GpuUuid | None
    profile: str
    memory_bytes: int
    backend: Backend
    created_s: float
    #: counts the attachments of one VM; the guest sees their devices in this order
    number: int = 0
    state: AttachmentState = AttachmentState.ATTACHING
    controllers: tuple[AddedController, ...] = ()
    #: those that were there before, until the attach is over or what libvirt has added is known
    controllers_before: tuple[AddedController, ...] | None = None
    mig_part: MigPart | None = None
    channel: ChannelPart | None = None
    host_devices: tuple[HostDevice, ...] = ()
    #: the boot in which GPU instances were made for its vGPUs
    instances_boot: str = ""
    #: None: it is a VM's
    run: RunPart | None = None
    #: None: it is no share
    share_part: SharePart | None = None
    #: None: no claim of a pool reserves it
    claim: ClaimPart | None = None
    #: None: what has it is on this host
    served: ServedPart | None = None

    @property
    def link_host(self) -> str | None:
        """The host of the pool that its calls are forwarded to; None: they stay on this host."""
        is_link = self.backend is Backend.LINK and self.claim is not None
        return self.claim.host if is_link and self.claim else None

    @property
    def gpu_word(self) -> str:
        """Its GPU, or the host that has it."""
        if self.gpu is not None:
            return str(self.gpu)
        return f"host {self.link_host}" if self.link_host else "no GPU now"

    @property
    def vm_word(self) -> str:
        """Its VM, or its run, in a command to type."""
        return format_vm(self.vm_name, self.vm_uuid)

    @property
    def is_gpu_share(self) -> bool:
        """Whether it is a share of a whole GPU, which is not in MIG mode then."""
        return self.share_part is not None and self.mig_part is None

    @property
    def mig_profile(self) -> MigProfileName:
        """The MIG profile of its slice, or of the instance that it has a share of. Raises ValueError without one."""
        return MigProfileName.parse(self.profile.rpartition(OF_INSTANCE)[2])

    @property
    def mig(self) -> MigInstanceRef | None:
        """GPU and compute instance; None without a slice of MIG, and before it exists."""
        return self.mig_part.ref if self.mig_part else None

    @property
    def placement(self) -> Placement | None:
        """Where its GPU instance is or is to be; None without one."""
        return self.mig_part.placement if self.mig_part else None

    @property
    def gpu_instance_id(self) -> int | None:
        """The GPU instance that it is known to have made or joined."""
        return self.mig_part.known_instance if self.mig_part else None

    @property
    def mig_mode_enabled(self) -> bool:
        """Whether it is to turn MIG mode off when it goes."""
        return self.mig_part is not None and self.mig_part.mode_enabled

    @property
    def is_taken(self) -> bool:
        """Whether its MIG instance was there before it, and stays when it goes."""
        return self.mig_part is not None and self.mig_part.taken

    @property
    def has_ring(self) -> bool:
        """Whether the domain has shared memory of it."""
        return self.channel is not None and self.channel.transport.has_ring

    @property
    def has_serial(self) -> bool:
        """Whether the domain has a virtio-serial channel of it."""
        return self.channel is not None and self.channel.transport.has_serial

    def with_mig(self, **changes: Any) -> AttachmentRecord:
        """The record with fields of its MIG part changed."""
        assert self.mig_part is not None
        return replace(self, mig_part=replace(self.mig_part, **changes))

    def with_channel(self, **changes: Any) -> AttachmentRecord:
        """The record with fields of its channel changed."""
        assert self.channel is not None
        return replace(self, channel=replace(self.channel, **changes))

    def with_share(
        self, share: Share, memory_at_exit: int | None = None, priority: Priority | None = None
    ) -> AttachmentRecord:
        """The record with another share: its profile, its memory and the limit of its channel say the same."""
        assert self.share_part is not None
        assert self.channel is not None
        limits = limit_memory(self.channel.limits, share.memory)
        return replace(
            self,
            profile=name_share(share, None if self.mig_part is None else str(self.mig_profile)),
            memory_bytes=share.memory,
            share_part=replace(
                self.share_part,
                share=share,
                memory_at_exit=memory_at_exit,
                priority=priority or self.share_part.priority,
            ),
            channel=replace(self.channel, limits=limits),
        )

    @property
    def cuda_device(self) -> str | None:
        """What CUDA calls its slice: a MIG device, or the GPU that it has a share of; None before that exists."""
        if self.mig is not None:
            return str(self.mig.uuid)
        return str(self.gpu) if self.is_gpu_share else None

    @property
    def noun(self) -> str:
        """What has it: a VM, or a run."""
        return "vm" if self.run is None else "run"

    @property
    def holder(self) -> str:
        """The same with its name, for people."""
        return f'{self.noun} "{self.vm_name}"'

    @property
    def share_holder(self) -> str:
        """The same with its share: a VM may have several of one GPU or instance."""
        return f"{self.holder} ({self.profile}, attachment {self.id})"

    @property
    def owner(self) -> SliceOwner | None:
        """The owner of its MIG instance; None before that exists."""
        if self.mig is None or self.gpu is None:
            return None
        return SliceOwner(
            self.gpu,
            self.mig.gpu_instance_id,
            self.mig.compute_instance_id,
            self.vm_name,
            self.id,
            is_run=self.run is not None,
            share_holder=self.share_holder if self.share_part is not None else None,
        )


def lowest_free_number(records: Sequence[AttachmentRecord], vm_uuid: str) -> int:
    """The number for one more attachment of the VM."""
    taken = {record.number for record in records if record.vm_uuid == vm_uuid}
    return next(n for n in range(len(taken) + 1) if n not in taken)


def list_sharers(
    record: AttachmentRecord, records: Sequence[AttachmentRecord]
) -> list[AttachmentRecord]:
    """The other attachments whose slices are in the same GPU instance.

    After a boot, a record that is not restored yet means an instance that is gone, whatever has taken its place
    since: ids tell these apart.
    """
    place = (record.gpu, record.placement)
    return [
        other
        for other in records
        if other.id != record.id
        and record.mig_part is not None
        and other.mig_part is not None
        and (other.gpu, other.placement) == place
        # an attachment that has all of an instance shares it with no other
        and (
            (record.mig_part.compute is not None and other.mig_part.compute is not None)
            or (record.share_part is not None and other.share_part is not None)
        )
        and len({record.mig_part.known_instance, other.mig_part.known_instance} - {None}) < 2
    ]


def limit_memory(limits: Sequence[str], memory: int) -> tuple[str, ...]:
    """Limits of a channel, as ``--limit`` takes them, with that much of the device's memory."""
    key = LIMIT_KEYS["device-memory"]
    others = (word for word in limits if word.partition("=")[0] != key.name)
    return (f"{key.name}={key.format(memory)}", *others)


class AttachmentStore(Protocol):
    """Remembers attachments. May raise StoreError."""

    def held_open(self) -> AbstractContextManager[None]:
        """A time in which much is read and written: what that takes stays open until its end."""

    def list_attachments(self) -> Sequence[AttachmentRecord]:
        """All, oldest first."""

    def save_attachment(self, record: AttachmentRecord) -> None:
        """Writes one, in the place of the one with the same id."""

    def save_attachments(self, records: Sequence[AttachmentRecord]) -> None:
        """Writes several as one: all of them or none."""

    def delete_attachment(self, attachment_id: str) -> None:
        """Forgets one; absent is no error."""

    def find_damage(self) -> str | None:
        """What is wrong with what is stored, None if nothing is."""

    def put_away(self) -> Sequence[AttachmentRecord]:
        """Moves what is stored aside, where it is kept; answers the records that still check."""
