"""Planning an attach: pure. From what was asked and what was observed to steps, or to one clear
refusal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from vgpumgr.domain.attaching import Attachable
from vgpumgr.domain.devices import attachment_of, control_device, ring_device
from vgpumgr.domain.domain import Domain
from vgpumgr.domain.hypervisor import Scope, Vm
from vgpumgr.domain.slots import check_config, check_live
from vgpumgr.errors import (
    AlreadyAttachedError,
    GpuStuckError,
    LiveUnsupportedError,
    NoFreeSlotError,
    NoRoomError,
    UsageError,
    VgpumgrError,
)
from vgpumgr.mig.seats import Seat, Wishes, choose_seats
from vgpumgr.mig.selection import select_gpu
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import MigProfileName
from vgpumgr.model.slice import Backend
from vgpumgr.plan.channel_steps import AwaitHello, ResizeChannel, StartChannel
from vgpumgr.plan.domain_steps import AttachDevices, WriteNote, list_controllers
from vgpumgr.plan.drift import has_slice
from vgpumgr.plan.mig_steps import CreateComputeInstance, CreateGpuInstance, EnableMigMode
from vgpumgr.plan.nearness import Nearness
from vgpumgr.plan.record import (
    AttachmentRecord,
    AttachmentState,
    ChannelPart,
    MigPart,
    Transport,
    lowest_free_number,
)
from vgpumgr.plan.record_steps import MarkAttachment, RecordAttachment
from vgpumgr.plan.reserved import explain_kept, keep_places, list_lost
from vgpumgr.plan.step import Plan, Step
from vgpumgr.plan.vgpu_record import VgpuInstance
from vgpumgr.plan.world import World
from vgpumgr.virtio.channel import LIVE_RING_BYTES, RING_BYTES, ChannelPaths

HELLO_TIMEOUT_S = 15.0
MAX_HELLO_TIMEOUT_S = 3600.0
#: the guest's agent serves so many channels
MAX_COUNT = 16


@dataclass(frozen=True, slots=True)
class AttachRequest:
    """What a user asked for. ``live`` and ``config`` as with virsh; neither means both as far as
    possible.
    """

    vm: str
    profile: str
    gpu: str | None = None
    backend: str = "auto"
    live: bool = False
    config: bool = False
    transport: Transport = Transport.AUTO
    hello_timeout_s: float = HELLO_TIMEOUT_S
    #: on the emptiest GPU, not on the one where the least room is lost
    spread: bool = False
    #: besides what the VM has; without it a VM that has one is refused
    add: bool = False
    #: of a mediated device: see ``domain.hostdev.Display``
    display: str = "off"
    #: so many, all or none
    count: int = 1
    #: prefer a GPU on the VM's NUMA nodes, take none but these (strict), or do not care (off)
    numa: str = "prefer"


@dataclass(frozen=True, slots=True)
class AttachObserved:
    """What is, at the moment of planning; and the names that the new attachment gets."""

    vm: Vm
    gpus: Sequence[Gpu]
    records: Sequence[AttachmentRecord]
    id: str
    paths: ChannelPaths
    now_s: float
    #: names for the others where several are attached at once
    more: tuple[tuple[str, ChannelPaths], ...] = ()
    #: NUMA nodes that the VM is bound to; empty: none in particular
    nodes: frozenset[int] = frozenset()
    #: GPUs on which a call has not come back, by UUID, and which
    stuck: Mapping[str, str] = field(default_factory=dict)
    #: GPU instances that were made for vGPUs, there or gone since a boot
    instances: Sequence[VgpuInstance] = ()
    #: this boot's name
    boot: str = ""


@dataclass(frozen=True, slots=True)
class LiveParts:
    """What the running machine takes now, and why not the rest."""

    ring: bool
    serial: bool
    reasons: tuple[str, ...]

    @property
    def any(self) -> bool:
        """Whether it takes anything."""
        return self.ring or self.serial


def check_options(request: AttachRequest) -> None:
    """That the options make sense, whatever is attached. Raises UsageError."""
    if not 0 <= request.hello_timeout_s <= MAX_HELLO_TIMEOUT_S:  # false for nan as well
        raise UsageError(f"--hello-timeout must be from 0 to {MAX_HELLO_TIMEOUT_S:g} seconds")
    if not 1 <= request.count <= MAX_COUNT:
        raise UsageError(f"--count must be from 1 to {MAX_COUNT}")
    if request.numa not in ("prefer", "strict", "off"):
        raise UsageError(f"--numa cannot be {request.numa!r}", why="prefer, strict or off")


def check_free(request: AttachRequest, vm: Vm, records: Sequence[AttachmentRecord]) -> None:
    own = [record for record in records if record.vm_uuid == vm.uuid]
    if own and not request.add:
        raise AlreadyAttachedError(
            f"{vm} has {' and '.join(record.profile for record in own)} already",
            why="; ".join(f"attachment {record.id} is {record.state}" for record in own)
            + "; one more takes --add, and detach gives back what it has",
            held_by=[f"attachment {r.id} ({r.profile} on {r.gpu})" for r in own],
            hint=f"vgpumgr attach {vm.name} --profile {request.profile} --add",
        )
    known = {record.id for record in own}
    strays = sorted(a for a in _list_aliases(vm.config) if attachment_of(a) not in known)
    if strays:
        raise AlreadyAttachedError(
            f"{vm} has devices of an attachment that is not recorded here",
            why=f"its definition has {', '.join(strays)}; recover records it again, detach removes it",
            held_by=strays,
            hint="vgpumgr recover",
        )


def _list_aliases(domain: Domain | None) -> tuple[str, ...]:
    return domain.own_aliases() if domain else ()


def observe_live_parts(vm: Vm, transport: Transport, count: int = 1) -> LiveParts:
    """What the machine takes while it runs: libvirt plugs no virtio-serial controller and no PCI
    bridge.
    """
    if vm.live is None:
        return LiveParts(False, False, ("the VM is shut off",))
    reasons = []
    slot = check_live(vm.live, count)
    ring = transport.has_ring and slot.fits
    serial = transport.has_serial and vm.live.has_serial_controller
    if transport.has_ring and not slot.fits:
        reasons.append(f"no ring: {slot.why}")
    if transport.has_serial and not serial:
        reasons.append(
            "no serial channel: the running machine has no virtio-serial controller, and none can be plugged"
        )
    return LiveParts(ring, serial, tuple(reasons))


def check_scopes(request: AttachRequest, vm: Vm, live: LiveParts) -> None:
    if request.live and not vm.is_active:
        raise LiveUnsupportedError(
            f"cannot attach to {vm} live", why="it is shut off", hint=f"virsh start {vm.name}"
        )
    if request.live and not live.any:
        raise LiveUnsupportedError(
            f"cannot attach to {vm} live",
            why="; ".join(live.reasons),
            hint=f"vgpumgr attach {vm.name} --profile {request.profile} --config, then restart the VM",
        )
    if vm.config is None:
        if request.config or not live.any:
            raise LiveUnsupportedError(
                f"cannot attach to {vm}", why="; ".join(("it is transient", *live.reasons))
            )
        return
    slot = check_config(vm.config, request.count)
    if _wants_config(request, vm) and request.transport.has_ring and not slot.fits:
        raise NoFreeSlotError(
            f"cannot attach to {vm}: it has no free PCI slot",
            why=slot.why,
            hint=f"{slot.hint}; or use no shared memory: --transport serial",
        )


def _wants_config(request: AttachRequest, vm: Vm) -> bool:
    return vm.config is not None and (request.config or not request.live)


def _wants_live(request: AttachRequest, vm: Vm, live: LiveParts) -> bool:
    return vm.is_active and live.any and (request.live or not request.config)


def choose_for(
    request: AttachRequest, observed: AttachObserved, name: MigProfileName
) -> tuple[Seat, ...]:
    """Places for all that is asked for. Raises what ``choose_seats`` does, NoRoomError where no GPU
    is as near as --numa strict wants it, and GpuStuckError.
    """
    gpus = _list_candidates(request, observed)
    held = _list_stuck(gpus, observed)
    if gpus and len(held) == len(gpus):
        raise GpuStuckError(
            f"cannot attach {request.profile} to {observed.vm}: a call has not come back",
            why="one more would only wait for the same lock",
            held_by=held,
            hint="vgpumgr status",
        )
    gpus = [gpu for gpu in gpus if str(gpu.uuid) not in observed.stuck]
    owners = [owner for record in observed.records if (owner := record.owner)]
    # after a reboot the number that is recorded may be somebody else's instance
    joinable = {
        (gpu.uuid, r.gpu_instance_id)
        for gpu in gpus
        for r in observed.records
        if r.gpu == gpu.uuid
        and r.gpu_instance_id is not None
        and r.backend is Backend.FORWARD
        and has_slice(r, gpu)
    }
    wishes = Wishes(request.spread, _near(request, observed).nodes)
    there = {gpu.uuid: gpu for gpu in gpus}
    lost = list_lost(gpus, observed.records, observed.instances)
    try:
        seats = choose_seats(keep_places(gpus, lost), name, request.count, owners, joinable, wishes)
        return tuple(
            replace(s, choice=replace(s.choice, gpu=there[s.choice.gpu.uuid])) for s in seats
        )
    except VgpumgrError as error:
        error.error = f"cannot attach {request.profile} to {observed.vm}: {error.error}"
        error.held_by = (*error.held_by, *held)
        if isinstance(error, NoRoomError):
            explain_kept(error, lost)
        raise


def _list_candidates(request: AttachRequest, observed: AttachObserved) -> Sequence[Gpu]:
    gpus = observed.gpus
    if request.gpu is not None:
        gpus = [select_gpu(gpus, request.gpu)]
    near = _near(request, observed)
    left = [gpu for gpu in gpus if not near.is_refused(gpu.numa_node)]
    if left or not gpus:
        return left
    error = near.explain([f"{gpu} on {gpu.numa_node}" for gpu in gpus])
    error.error = f"cannot attach {request.profile} to {observed.vm}: {error.error}"
    raise error


def _near(request: AttachRequest, observed: AttachObserved) -> Nearness:
    return Nearness.of(request.numa, observed.nodes)


def _list_stuck(gpus: Sequence[Gpu], observed: AttachObserved) -> list[str]:
    """Those that are left alone, and why."""
    return [
        f"{gpu}: {observed.stuck[str(gpu.uuid)]}" for gpu in gpus if str(gpu.uuid) in observed.stuck
    ]


def build_attach(
    request: AttachRequest,
    observed: AttachObserved,
    name: MigProfileName,
    seat: Seat,
    live: LiveParts,
) -> tuple[AttachmentRecord, Plan[World]]:
    """Record and plan of one attachment in its seat."""
    choice = seat.choice
    vm, record = observed.vm, _new_record(request, observed, name, seat)
    if _wants_config(request, vm) and not observed.more:
        record = replace(record, controllers_before=list_controllers(vm.config))
    wants_live = _wants_live(request, vm, live)
    small = wants_live and live.ring and vm.live is not None and vm.live.is_q35
    memory = LIVE_RING_BYTES if small else RING_BYTES
    transport = request.transport
    start = StartChannel(record.id, vm.name, transport.has_ring, transport.has_serial, memory)
    steps: list[Step[World]] = [RecordAttachment(record)]
    steps += _mig_steps(seat, name)
    steps.append(start)
    steps += _domain_steps(request, observed, live if wants_live else None)
    if small and _wants_config(request, vm):
        steps.append(ResizeChannel(record.id, RING_BYTES, memory))
    steps.append(MarkAttachment(record.id, AttachmentState.ATTACHED, AttachmentState.ATTACHING))
    plan = Plan(
        operation="attach",
        subject=vm.name,
        steps=tuple(steps),
        notes=(
            f"backend forward: {choice.why}",
            *(f"left alone: {text}" for text in _list_stuck(observed.gpus, observed)),
            *_tell_when(request, vm, live, wants_live),
        ),
        result={
            "attachment": record.id,
            "vm": vm.name,
            "profile": record.profile,
            "backend": str(record.backend),
            "transport": str(transport),
            "gpu": str(choice.gpu.uuid),
            "gpu_index": choice.gpu.index,
            "placement": {"start": choice.placement.start, "size": choice.placement.size},
            "devices": [],
            "live": wants_live,
            "config": _wants_config(request, vm),
            "not_live_because": [] if wants_live else list(live.reasons),
        },
    )
    return record, plan


def _new_record(
    request: AttachRequest, observed: AttachObserved, name: MigProfileName, seat: Seat
) -> AttachmentRecord:
    choice = seat.choice
    return AttachmentRecord(
        id=observed.id,
        vm_name=observed.vm.name,
        vm_uuid=observed.vm.uuid,
        gpu=choice.gpu.uuid,
        profile=str(name),
        memory_bytes=choice.profile.memory_bytes,
        backend=Backend.FORWARD,
        created_s=observed.now_s,
        number=lowest_free_number(observed.records, observed.vm.uuid),
        mig_part=MigPart(
            gpu_profile_id=choice.profile.id,
            placement=choice.placement,
            compute=seat.compute,
            gpu_instance_id=seat.joins,
            mode_enabled=choice.needs_mig_mode,
        ),
        channel=ChannelPart(request.transport),
    )


def _mig_steps(seat: Seat, name: MigProfileName) -> list[Step[World]]:
    gpu, profile, place = seat.choice.gpu, seat.choice.profile, seat.choice.placement
    slices = name.compute_slices or profile.slices
    steps: list[Step[World]] = [EnableMigMode(gpu)] if seat.choice.needs_mig_mode else []
    if seat.creates:
        steps.append(CreateGpuInstance(gpu, profile, place))
    steps.append(CreateComputeInstance(gpu, profile, place, slices, seat.compute))
    return steps


def _devices(
    observed: AttachObserved, transport: Transport, parts: LiveParts | None
) -> tuple[Attachable, ...]:
    devices: list[Attachable] = []
    if transport.has_ring and (parts is None or parts.ring):
        devices.append(ring_device(observed.id, observed.paths.ring))
    if transport.has_serial and (parts is None or parts.serial):
        number = lowest_free_number(observed.records, observed.vm.uuid)
        devices.append(control_device(observed.id, observed.paths.control, number))
    return tuple(devices)


def _domain_steps(
    request: AttachRequest, observed: AttachObserved, live: LiveParts | None
) -> list[Step[World]]:
    vm, transport = observed.vm, request.transport
    steps: list[Step[World]] = []
    if _wants_config(request, vm):
        devices = _devices(observed, transport, None)
        steps.append(AttachDevices(vm.name, vm.uuid, devices, Scope.CONFIG, vm.digest))
    if live is not None:
        digest = None if steps else vm.digest
        devices = _devices(observed, transport, live)
        steps.append(AttachDevices(vm.name, vm.uuid, devices, Scope.LIVE, digest))
        steps.append(AwaitHello(observed.id, request.hello_timeout_s, required=request.live))
    steps.append(WriteNote(vm.name, vm.uuid, observed.id))
    return steps


def _tell_when(
    request: AttachRequest, vm: Vm, live: LiveParts, wants_live: bool
) -> tuple[str, ...]:
    if wants_live:
        return (f"{vm} runs: live now, if its agent answers", *live.reasons)
    if not vm.is_active:
        return (f"{vm} is shut off: the slice is there at its next start",)
    if request.config and not request.live:
        return (f"{vm} runs: the slice is there at its next start, as --config asks",)
    return (f"{vm} runs: the slice is there at its next start, because", *live.reasons)
