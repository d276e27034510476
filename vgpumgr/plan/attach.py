"""Planning an attach: pure. From what was asked and what was observed to steps, or to one clear
refusal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vgpumgr.domain.attaching import Attachable
from vgpumgr.domain.devices import attachment_of, control_device, ring_device
from vgpumgr.domain.domain import Domain
from vgpumgr.domain.hypervisor import Scope, Vm
from vgpumgr.domain.slots import check_config, check_live
from vgpumgr.errors import (
    AlreadyAttachedError,
    BackendUnsupportedError,
    LiveUnsupportedError,
    NoFreeSlotError,
    UsageError,
    VgpumgrError,
)
from vgpumgr.mig.placement import Choice, choose_placement
from vgpumgr.mig.selection import select_gpu
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import MigProfileName
from vgpumgr.model.request import MigRequest, parse_profile_request
from vgpumgr.model.slice import Backend
from vgpumgr.plan.channel_steps import AwaitHello, ResizeChannel, StartChannel
from vgpumgr.plan.domain_steps import AttachDevices, WriteNote
from vgpumgr.plan.mig_steps import CreateComputeInstance, CreateGpuInstance, EnableMigMode
from vgpumgr.plan.record import (
    AttachmentRecord,
    AttachmentState,
    ChannelPart,
    MigPart,
    Transport,
    lowest_free_number,
)
from vgpumgr.plan.record_steps import MarkAttachment, RecordAttachment
from vgpumgr.plan.step import Plan, Step
from vgpumgr.plan.world import World
from vgpumgr.virtio.channel import LIVE_RING_BYTES, RING_BYTES, ChannelPaths

HELLO_TIMEOUT_S = 15.0
MAX_HELLO_TIMEOUT_S = 3600.0


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


@dataclass(frozen=True, slots=True)
class AttachObserved:
    """What is, at the moment of planning; and the names that the new attachment gets."""

    vm: Vm
    gpus: Sequence[Gpu]
    records: Sequence[AttachmentRecord]
    id: str
    paths: ChannelPaths
    now_s: float


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


def check_request(request: AttachRequest) -> MigProfileName:
    """The profile that is asked for; needs nothing observed.

    Raises:
        UsageError: a profile of no known form, or contradicting options.
        BackendUnsupportedError: the profile has no way to a VM yet.
    """
    try:
        wanted = parse_profile_request(request.profile)
    except ValueError as error:
        raise UsageError(
            "cannot read --profile", cause=str(error), hint="vgpumgr mig profiles"
        ) from error
    backends = ("auto", *map(str, Backend))
    if request.backend not in backends:
        raise UsageError(f"no backend {request.backend!r}", why=f"there are: {', '.join(backends)}")
    if not 0 <= request.hello_timeout_s <= MAX_HELLO_TIMEOUT_S:  # false for nan as well
        raise UsageError(f"--hello-timeout must be from 0 to {MAX_HELLO_TIMEOUT_S:g} seconds")
    if request.backend not in ("auto", Backend.FORWARD):
        raise BackendUnsupportedError(
            f"cannot attach {request.profile} by backend {request.backend}",
            why="this version attaches by forward only",
            hint=f"vgpumgr attach {request.vm} --profile {request.profile} --backend forward",
        )
    if not isinstance(wanted, MigRequest):
        raise BackendUnsupportedError(
            f"cannot attach {request.profile} to {request.vm}",
            why="backend forward takes MIG profiles, which look like 1g.10gb",
            hint="vgpumgr mig profiles",
        )
    return wanted.name


def plan_attach(
    request: AttachRequest, observed: AttachObserved
) -> tuple[AttachmentRecord, Plan[World]]:
    """The new attachment's record and the plan; raises what stands in the way, before anything is
    changed.
    """
    name = check_request(request)
    vm = observed.vm
    _check_free(request, vm, observed.records)
    live = observe_live_parts(vm, request.transport)
    _check_scopes(request, vm, live)
    choice = _choose(request, observed, name)
    return _build(request, observed, name, choice, live)


def _check_free(request: AttachRequest, vm: Vm, records: Sequence[AttachmentRecord]) -> None:
    own = [record for record in records if record.vm_uuid == vm.uuid]
    if own and not request.add:
        raise AlreadyAttachedError(
            f"{vm} has {' and '.join(record.profile for record in own)} already",
            why="; ".join(f"attachment {record.id} is {record.state}" for record in own),
            held_by=[f"attachment {r.id} ({r.profile} on {r.gpu})" for r in own],
            hint=f"vgpumgr attach {vm.name} --profile {request.profile} --add, or vgpumgr detach {vm.name}",
        )
    known = {record.id for record in own}
    strays = sorted(a for a in _list_aliases(vm.config) if attachment_of(a) not in known)
    if strays:
        raise AlreadyAttachedError(
            f"{vm} has devices of an attachment that is not recorded here",
            why=f"its definition has {', '.join(strays)}",
            held_by=strays,
            hint=f"vgpumgr recover, or vgpumgr detach {vm.name}",
        )


def _list_aliases(domain: Domain | None) -> tuple[str, ...]:
    return domain.own_aliases() if domain else ()


def observe_live_parts(vm: Vm, transport: Transport) -> LiveParts:
    """What the machine takes while it runs: libvirt plugs no virtio-serial controller and no PCI
    bridge.
    """
    if vm.live is None:
        return LiveParts(False, False, ("the VM is shut off",))
    reasons = []
    slot = check_live(vm.live)
    ring = transport.has_ring and slot.fits
    serial = transport.has_serial and vm.live.has_serial_controller
    if transport.has_ring and not slot.fits:
        reasons.append(f"no ring: {slot.why}")
    if transport.has_serial and not serial:
        reasons.append(
            "no serial channel: the running machine has no virtio-serial controller, and none can be plugged"
        )
    return LiveParts(ring, serial, tuple(reasons))


def _check_scopes(request: AttachRequest, vm: Vm, live: LiveParts) -> None:
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
    slot = check_config(vm.config)
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


def _choose(request: AttachRequest, observed: AttachObserved, name: MigProfileName) -> Choice:
    gpus = observed.gpus
    if request.gpu is not None:
        gpus = [select_gpu(gpus, request.gpu)]
    owners = [owner for record in observed.records if (owner := record.owner)]
    try:
        return choose_placement(gpus, name, owners, spread=request.spread)
    except VgpumgrError as error:
        error.error = f"cannot attach {request.profile} to {observed.vm}: {error.error}"
        raise


def _build(
    request: AttachRequest,
    observed: AttachObserved,
    name: MigProfileName,
    choice: Choice,
    live: LiveParts,
) -> tuple[AttachmentRecord, Plan[World]]:
    vm, record = observed.vm, _new_record(request, observed, name, choice)
    wants_live = _wants_live(request, vm, live)
    small = wants_live and live.ring and vm.live is not None and vm.live.is_q35
    memory = LIVE_RING_BYTES if small else RING_BYTES
    transport = request.transport
    start = StartChannel(record.id, vm.name, transport.has_ring, transport.has_serial, memory)
    steps: list[Step[World]] = [RecordAttachment(record)]
    steps += _mig_steps(choice, name)
    steps.append(start)
    steps += _domain_steps(request, observed, live if wants_live else None)
    if small and _wants_config(request, vm):
        steps.append(ResizeChannel(record.id, RING_BYTES, memory))
    steps.append(MarkAttachment(record.id, AttachmentState.ATTACHED, AttachmentState.ATTACHING))
    plan = Plan(
        operation="attach",
        subject=vm.name,
        steps=tuple(steps),
        notes=(f"backend forward: {choice.why}", *_tell_when(request, vm, live, wants_live)),
        result={
            "attachment": record.id,
            "vm": vm.name,
            "profile": record.profile,
            "backend": str(record.backend),
            "transport": str(transport),
            "gpu": str(choice.gpu.uuid),
            "gpu_index": choice.gpu.index,
            "placement": {"start": choice.placement.start, "size": choice.placement.size},
            "live": wants_live,
            "config": _wants_config(request, vm),
            "not_live_because": [] if wants_live else list(live.reasons),
        },
    )
    return record, plan


def _new_record(
    request: AttachRequest, observed: AttachObserved, name: MigProfileName, choice: Choice
) -> AttachmentRecord:
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
            mode_enabled=choice.needs_mig_mode,
        ),
        channel=ChannelPart(request.transport),
    )


def _mig_steps(choice: Choice, name: MigProfileName) -> list[Step[World]]:
    slices = name.compute_slices or choice.profile.slices
    steps: list[Step[World]] = [EnableMigMode(choice.gpu)] if choice.needs_mig_mode else []
    steps.append(CreateGpuInstance(choice.gpu, choice.profile, choice.placement))
    steps.append(CreateComputeInstance(choice.gpu, choice.profile, choice.placement, slices))
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
