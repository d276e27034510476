"""``forward``: CUDA calls of the guest are forwarded to a worker on the host, which runs them on a slice of MIG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vgpumgr.backends.base import (
    Backend,
    DeviceGrant,
    Restored,
    Revocation,
    Scopes,
    Target,
    Wanted,
    read_limits,
)
from vgpumgr.backends.mig_places import choose_slices, list_left_alone
from vgpumgr.domain.devices import (
    Attachable,
    control_alias,
    control_device,
    ring_alias,
    ring_device,
)
from vgpumgr.domain.domain import Domain
from vgpumgr.domain.hypervisor import Scope, Vm
from vgpumgr.domain.slots import check_config, check_live
from vgpumgr.engine.step import Step
from vgpumgr.errors import (
    BackendUnsupportedError,
    LiveUnsupportedError,
    NoFreeSlotError,
    VgpumgrError,
)
from vgpumgr.mig.instances import list_records, may_be_there, rebind
from vgpumgr.mig.layout.change import name_compute
from vgpumgr.mig.placement import (
    SlicePlacement,
    explain_refusal,
    find_profile,
)
from vgpumgr.model.attachment import (
    AttachmentRecord,
    ChannelPart,
    MigPart,
    list_sharers,
)
from vgpumgr.model.choices import AWAITED, Transport
from vgpumgr.model.choices import Backend as BackendName
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import MigProfileName
from vgpumgr.model.request import AttachRequest, MigRequest, ProfileRequest, ShareRequest
from vgpumgr.planning.drift import (
    Drift,
    DriftKind,
    describe_lost,
    find_lost,
    has_slice,
    make_drift,
)
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.steps.channel import AwaitHello, ResizeChannel, StartChannel, StopChannel
from vgpumgr.steps.domain import DetachDevices
from vgpumgr.steps.mig import (
    CreateComputeInstance,
    CreateGpuInstance,
    DestroyComputeInstance,
    DestroyGpuInstance,
    DisableMigMode,
    EnableMigMode,
)
from vgpumgr.steps.record import HandOverMigMode, TakeSlice, bind_slice
from vgpumgr.virtio.channel import LIVE_RING_BYTES, RING_BYTES, ChannelPaths


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


def make_channel_part(
    request: AttachRequest, qemu_owner: tuple[int, int] | None = None
) -> ChannelPart:
    """What a record keeps of the channel that is asked for."""
    limits = read_limits(request.limits).changed
    return ChannelPart(request.transport, qemu_owner, limits, request.allow_unconfined)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelGrant(DeviceGrant):
    """A slice in its seat, and the channel to it."""

    request: AttachRequest
    name: MigProfileName
    seat: SlicePlacement
    paths: ChannelPaths
    #: what the running machine takes
    takes: LiveParts

    @property
    def parts(self) -> dict[str, Any]:
        """See ``DeviceGrant``."""
        return {"mig_part": make_mig_part(self.seat), "channel": make_channel_part(self.request)}

    @property
    def details(self) -> dict[str, Any]:
        """See ``DeviceGrant``."""
        return {**describe_seat(self.seat, self.request.transport), "devices": []}

    def list_host_steps(self, record: AttachmentRecord, vm: Vm, scopes: Scopes) -> Sequence[Step]:
        """See ``DeviceGrant``."""
        memory = LIVE_RING_BYTES if self._is_small(vm, scopes) else RING_BYTES
        return (*list_mig_steps(self.seat, self.name), StartChannel.for_record(record, memory))

    def _is_small(self, vm: Vm, scopes: Scopes) -> bool:
        """Whether the ring is plugged into a running machine that takes only small ones."""
        return scopes.live and self.takes.ring and vm.live is not None and vm.live.is_q35

    def make_devices(
        self,
        record: AttachmentRecord,
        scope: Scope,
        definition: Domain | None,  # noqa: ARG002
        *,
        in_slots: bool,  # noqa: ARG002
    ) -> tuple[Attachable, ...]:
        """See ``DeviceGrant``."""
        transport, everything = self.request.transport, scope is Scope.CONFIG
        devices: list[Attachable] = []
        if transport.has_ring and (everything or self.takes.ring):
            devices.append(ring_device(record.id, self.paths.ring))
        if transport.has_serial and (everything or self.takes.serial):
            devices.append(control_device(record.id, self.paths.control, record.number))
        return tuple(devices)

    def list_guest_steps(self, record: AttachmentRecord) -> Sequence[Step]:
        """See ``DeviceGrant``."""
        request = self.request
        return (AwaitHello(record.id, request.hello_timeout_s, required=request.live),)

    def list_last_steps(self, record: AttachmentRecord, vm: Vm, scopes: Scopes) -> Sequence[Step]:
        """See ``DeviceGrant``."""
        if not scopes.config or not self._is_small(vm, scopes):
            return ()
        return (ResizeChannel(record.id, RING_BYTES, LIVE_RING_BYTES),)

    def describe_time(self, vm: Vm, request: AttachRequest, scopes: Scopes) -> tuple[str, ...]:
        """See ``DeviceGrant``."""
        if scopes.live:
            return (f"{vm} runs: live now, usable {AWAITED}", *scopes.reasons)
        if not vm.is_active:
            return (f"{vm} is shut off: the slice is there at its next start",)
        if request.config and not request.live:
            return (f"{vm} runs: the slice is there at its next start, as --config asks",)
        return (f"{vm} runs: the slice is there at its next start, because", *scopes.reasons)


class ForwardBackend(Backend):
    """A slice of MIG whose CUDA calls are forwarded; needs no vGPU licence."""

    name = BackendName.FORWARD
    auto_note = "auto: forward, because it needs no vGPU licence"
    needs_release = False
    has_worker = True

    def match(self, profile: ProfileRequest) -> bool:
        """See ``Backend``."""
        return isinstance(profile, MigRequest | ShareRequest)

    def check(self, wanted: Wanted) -> None:
        """See ``Backend``."""
        if not isinstance(wanted.profile, MigRequest):
            raise BackendUnsupportedError(
                f"cannot attach {wanted.request.profile} to {wanted.request.vm}",
                why="backend forward takes MIG profiles, which look like 1g.10gb",
                hint="vgpumgr mig profiles",
            )

    def check_vm(self, wanted: Wanted, vm: Vm) -> None:
        """See ``Backend``. Raises LiveUnsupportedError, NoFreeSlotError."""
        _check_scopes(wanted.request, vm, _observe_live_parts(wanted.request, vm))

    def check_profile(self, wanted: Wanted, snapshot: Snapshot) -> None:
        """See ``Backend``. Raises ProfileNotFoundError, MigNotSupportedError."""
        assert isinstance(wanted.profile, MigRequest)
        gpus, name = snapshot.require_gpus(), wanted.profile.name.gpu_instance
        if not any(find_profile(gpu, name) for gpu in gpus):
            raise explain_refusal(gpus, name)

    def choose(self, wanted: Wanted, target: Target, snapshot: Snapshot) -> Sequence[ChannelGrant]:
        """See ``Backend``."""
        assert isinstance(wanted.profile, MigRequest)
        request, name = wanted.request, wanted.profile.name
        gpus = snapshot.require_gpus()
        left_alone = tuple(f"left alone: {text}" for text in list_left_alone(gpus, snapshot))
        takes = _observe_live_parts(request, target.vm)
        return [
            ChannelGrant(
                backend=BackendName.FORWARD,
                profile=str(name),
                why=seat.choice.why,
                gpu=seat.choice.gpu.uuid,
                memory_bytes=seat.choice.profile.memory_bytes,
                notes=left_alone,
                request=request,
                name=name,
                seat=seat,
                paths=new.paths,
                takes=takes,
            )
            for seat, new in zip(
                choose_slices(
                    request,
                    target.nodes,
                    snapshot,
                    name,
                    f"cannot attach {request.profile} to {target.vm}",
                ),
                target.names,
                strict=True,
            )
        ]

    def explain(
        self,
        error: VgpumgrError,
        wanted: Wanted,
        target: Target,
        snapshot: Snapshot,
    ) -> None:
        """See ``Backend``: its reasons are complete."""

    def choose_scopes(self, wanted: Wanted, vm: Vm, grants: Sequence[DeviceGrant]) -> Scopes:  # noqa: ARG002
        """See ``Backend``."""
        request, live = wanted.request, _observe_live_parts(wanted.request, vm)
        wants_live = vm.is_active and live.any and (request.live or not request.config)
        return Scopes(wants_live, _wants_config(request, vm), live.reasons)

    def list_aliases(self, record: AttachmentRecord) -> list[str]:
        """See ``Backend``."""
        found = [ring_alias(record.id)] if record.has_ring else []
        return [*found, control_alias(record.id)] if record.has_serial else found

    def make_again(
        self,
        record: AttachmentRecord,
        definition: Domain,  # noqa: ARG002
        paths: ChannelPaths,
    ) -> tuple[Attachable, ...]:
        """See ``Backend``."""
        control = control_device(record.id, paths.control, record.number)
        return (ring_device(record.id, paths.ring), control)

    def revoke(
        self, record: AttachmentRecord, vm: Vm | None, snapshot: Snapshot, timeout_s: float
    ) -> Revocation:
        """The guest first, then the worker, then the slice."""
        unplug: list[Step] = []
        aliases = (ring_alias(record.id), control_alias(record.id))
        for scope in (Scope.LIVE, Scope.CONFIG):
            if vm is not None and record.channel is not None and vm.definition(scope) is not None:
                unplug.append(DetachDevices(vm.name, vm.uuid, aliases, scope, timeout_s))
        steps: list[Step] = [] if record.channel is None else [StopChannel(record.id)]
        part = record.mig_part
        if part is None:
            return Revocation(unplug, steps)
        snapshot.require_gpus()
        gpu = snapshot.find_gpu_of(record)
        if gpu is None:
            note = f"{record.gpu} is gone, and its slice with it"
            return Revocation(unplug, steps, (note,))
        notes: list[str] = []
        has_instance, has_compute = may_be_there(gpu.instances, record, snapshot.records)
        if not part.taken and has_compute:
            steps.append(_destroy_compute(record, part, gpu))
        if not has_instance:
            slice_ = f"{record.profile} at {record.placement} on {gpu}"
            notes.append(f"its slice {slice_} is gone already")
        elif part.taken:
            notes.append(_describe_left(record, gpu))
        elif sharers := list_sharers(record, snapshot.records):
            names = ", ".join(f"{r.id} ({r.vm_name})" for r in sharers)
            notes.append(f"its GPU instance stays: attachment {names} is in it, too")
        else:
            steps.append(_destroy_instance(record, part, gpu))
        mode_steps, mode_notes = _plan_mode(record, gpu, snapshot)
        return Revocation(unplug, [*steps, *mode_steps], [*notes, *mode_notes])

    def leave_out(self, record: AttachmentRecord, snapshot: Snapshot) -> Snapshot:
        """See ``Backend``: an attachment that stays inherits MIG mode."""
        left = list(snapshot.records)
        heir = next((r for r in left if r.gpu == record.gpu and r.mig_part), None)
        if heir is not None and record.mig_mode_enabled:
            left = [r.with_mig(mode_enabled=True) if r is heir else r for r in left]
        gpus = snapshot.require_gpus()
        if not record.is_taken and not list_sharers(record, snapshot.records):
            gpus = [_without(gpu, record) for gpu in gpus]
        return snapshot.replace(records=left, gpus=gpus)

    def restore(self, record: AttachmentRecord, snapshot: Snapshot) -> Restored | None:
        """See ``Backend``: the slice as it is now, and its channel."""
        if not list_records([record]):
            return None
        gpus = snapshot.require_gpus()
        found = rebind({gpu.uuid: gpu.instances for gpu in gpus}, snapshot.records)
        ref = found[record.id]
        if ref is None:
            return Restored(record, describe_lost(record, snapshot.find_gpu_of(record)))
        return Restored(bind_slice(record, ref), starts_channel=record.channel is not None)

    def drift(self, record: AttachmentRecord, snapshot: Snapshot) -> Iterator[Drift]:
        """See ``Backend``."""
        gpu, status = snapshot.find_gpu_of(record), snapshot.statuses.get(record.id)
        if gpu is None:
            yield make_drift(record, DriftKind.GPU_GONE, f"its GPU, {record.gpu}, is gone")
        elif record.mig_part is not None and not has_slice(record, gpu):
            yield find_lost(record, gpu)
        elif record.channel is not None and status is None:
            text = "its keeper does not run"
            yield make_drift(record, DriftKind.KEEPER_GONE, text, "vgpumgr recover")
        elif record.channel is not None and status is not None and status.worker_failed:
            text = f"its worker does not start: {status.problem or 'it ends again and again'}"
            yield make_drift(record, DriftKind.WORKER_DOWN, text, "vgpumgr recover")

    def has_all(self, record: AttachmentRecord, snapshot: Snapshot) -> bool:
        """See ``Backend``."""
        gpu = snapshot.find_gpu_of(record)
        return record.mig_part is None or (gpu is not None and has_slice(record, gpu))


def _observe_live_parts(request: AttachRequest, vm: Vm) -> LiveParts:
    """What the machine takes while it runs: libvirt plugs no virtio-serial controller and no PCI
    bridge.
    """
    if vm.live is None:
        return LiveParts(False, False, ("the VM is shut off",))
    reasons = []
    transport = request.transport
    slot = check_live(vm.live, request.count)
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
    slot = check_config(vm.config, request.count)
    if _wants_config(request, vm) and request.transport.has_ring and not slot.fits:
        raise NoFreeSlotError(
            f"cannot attach to {vm}: it has no free PCI slot",
            why=slot.why,
            hint=f"{slot.hint}; or use no shared memory: --transport serial",
        )


def _wants_config(request: AttachRequest, vm: Vm) -> bool:
    return vm.config is not None and (request.config or not request.live)


def make_mig_part(seat: SlicePlacement) -> MigPart:
    """What is recorded of a slice before it exists."""
    choice = seat.choice
    return MigPart(
        gpu_profile_id=choice.profile.id,
        placement=choice.placement,
        compute=seat.compute,
        gpu_instance_id=seat.joins,
        mode_enabled=choice.needs_mig_mode,
        taken=seat.takes is not None,
    )


def describe_seat(seat: SlicePlacement, transport: Transport) -> dict[str, Any]:
    """What a plan's result says of a slice and its channel."""
    place = seat.choice.placement
    return {
        "transport": str(transport),
        "gpu_index": seat.choice.gpu.index,
        "placement": {"start": place.start, "size": place.size},
    }


def list_mig_steps(seat: SlicePlacement, name: MigProfileName) -> list[Step]:
    """The steps that make the slice."""
    gpu, profile, place = seat.choice.gpu, seat.choice.profile, seat.choice.placement
    if seat.takes is not None:
        mig = str(seat.takes.compute.uuid)
        return [TakeSlice(gpu.uuid, mig, str(name), place, gpu_index=gpu.index)]
    slices = name.compute_slices or profile.slices
    parent, index = str(profile.name), gpu.index
    steps: list[Step] = []
    if seat.choice.needs_mig_mode:
        steps.append(EnableMigMode(gpu.uuid, gpu_index=index, by_record=True))
    if seat.creates:
        steps.append(CreateGpuInstance(gpu.uuid, parent, place, gpu_index=index))
    compute = name_compute(profile.name, slices, profile.slices)
    steps.append(
        CreateComputeInstance(gpu.uuid, compute, seat.compute, parent, place, gpu_index=index)
    )
    return steps


def _describe_left(record: AttachmentRecord, gpu: Gpu) -> str:
    name = record.mig.uuid if record.mig else record.profile
    return f"{name} stays at {record.placement} on {gpu}: it was there before the attach"


def _destroy_compute(record: AttachmentRecord, part: MigPart, gpu: Gpu) -> DestroyComputeInstance:
    return DestroyComputeInstance(
        gpu.uuid,
        record.profile,
        part.compute,
        str(MigProfileName.parse(record.profile).gpu_instance),
        part.placement,
        mig=str(part.ref.uuid) if part.ref else None,
        gpu_index=gpu.index,
        by_record=True,
    )


def _destroy_instance(record: AttachmentRecord, part: MigPart, gpu: Gpu) -> DestroyGpuInstance:
    name = str(MigProfileName.parse(record.profile).gpu_instance)
    return DestroyGpuInstance(gpu.uuid, name, part.placement, gpu_index=gpu.index, by_record=True)


def _plan_mode(
    record: AttachmentRecord, gpu: Gpu, snapshot: Snapshot
) -> tuple[list[Step], list[str]]:
    """MIG mode is left as it was found: the attachment that turned it on turns it off, or hands that over."""
    if not record.mig_mode_enabled:
        return [], []
    others = [r for r in snapshot.records if r.gpu == gpu.uuid and r.id != record.id and r.mig_part]
    if others:
        return [HandOverMigMode(gpu.uuid, others[0].id, others[0].vm_name)], []
    if any(record.is_taken or i.placement != record.placement for i in gpu.instances):
        return [], [f"MIG mode of {gpu} stays on: it has instances that are not vgpumgr's"]
    why = "attach turned it on, nobody else uses it"
    step = DisableMigMode(gpu.uuid, gpu_index=gpu.index, by_record=True)
    return [step], [f"MIG mode of {gpu} goes off again: {why}"]


def _without(gpu: Gpu, record: AttachmentRecord) -> Gpu:
    if gpu.uuid != record.gpu:
        return gpu
    left = tuple(i for i in gpu.instances if i.placement != record.placement)
    return replace(gpu, instances=left)
