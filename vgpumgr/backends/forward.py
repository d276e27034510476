"""``forward``: CUDA calls of the guest are forwarded to a worker on the host, which runs them on a slice of MIG, or on
a share of a GPU or of a slice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from vgpumgr.backends.base import (
    Backend,
    DeviceGrant,
    Restored,
    Revocation,
    Scopes,
    Target,
    Wanted,
)
from vgpumgr.backends.slices import (
    Slice,
    check_exists,
    check_slice,
    choose,
    list_notes,
    make_channel_part,
)
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
    LiveUnsupportedError,
    NoFreeSlotError,
    VgpumgrError,
)
from vgpumgr.mig.instances import list_records, may_be_there, rebind
from vgpumgr.model.attachment import (
    AttachmentRecord,
    AttachmentState,
    MigPart,
    list_sharers,
)
from vgpumgr.model.choices import AWAITED
from vgpumgr.model.choices import Backend as BackendName
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.request import AttachRequest, MigRequest, ProfileRequest, ShareRequest
from vgpumgr.model.shares import format_percent
from vgpumgr.model.text import format_exact, format_vm
from vgpumgr.planning.drift import (
    Drift,
    DriftKind,
    describe_lost,
    find_lost,
    find_share_lost,
    has_slice,
    make_drift,
)
from vgpumgr.planning.shares import find_due_shrink
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.steps.channel import AwaitHello, ResizeChannel, StartChannel, StopChannel
from vgpumgr.steps.domain import DetachDevices
from vgpumgr.steps.mig import (
    DestroyComputeInstance,
    DestroyGpuInstance,
    DisableMigMode,
)
from vgpumgr.steps.record import HandOverMigMode, bind_slice
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelGrant(DeviceGrant):
    """A slice in its place, and the channel to it."""

    request: AttachRequest
    slice: Slice
    paths: ChannelPaths
    #: what the running machine takes
    takes: LiveParts

    @property
    def parts(self) -> dict[str, Any]:
        """See ``DeviceGrant``."""
        return {**self.slice.parts, "channel": make_channel_part(self.request, self.slice)}

    @property
    def details(self) -> dict[str, Any]:
        """See ``DeviceGrant``."""
        return {**self.slice.describe(self.request.transport), "devices": []}

    def list_host_steps(self, record: AttachmentRecord, vm: Vm, scopes: Scopes) -> Sequence[Step]:
        """See ``DeviceGrant``."""
        memory = LIVE_RING_BYTES if self._is_small(vm, scopes) else RING_BYTES
        return (*self.slice.list_steps(), StartChannel.for_record(record, memory))

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
    """A slice of MIG, or a share of a GPU or of a slice, whose CUDA calls are forwarded; needs no vGPU licence."""

    name = BackendName.FORWARD
    auto_note: ClassVar[str | None] = "auto: forward, because it needs no vGPU licence"
    needs_release = False
    has_worker = True

    def match(self, profile: ProfileRequest) -> bool:
        """See ``Backend``."""
        return isinstance(profile, MigRequest | ShareRequest)

    def check(self, wanted: Wanted) -> None:
        """See ``Backend``."""
        check_slice(wanted.request, wanted.profile)

    def check_vm(self, wanted: Wanted, vm: Vm) -> None:
        """See ``Backend``. Raises LiveUnsupportedError, NoFreeSlotError."""
        _check_scopes(wanted.request, vm, observe_live_parts(wanted.request, vm))

    def check_profile(self, wanted: Wanted, snapshot: Snapshot) -> None:
        """See ``Backend``. Raises ProfileNotFoundError, MigNotSupportedError."""
        check_exists(wanted.profile, snapshot)

    def choose(self, wanted: Wanted, target: Target, snapshot: Snapshot) -> Sequence[ChannelGrant]:
        """See ``Backend``."""
        request = wanted.request
        takes = observe_live_parts(request, target.vm)
        refusal = f"cannot attach {request.profile} to {target.vm}"
        chosen = choose(request, wanted.profile, target.nodes, snapshot, refusal)
        return [
            ChannelGrant(
                backend=BackendName.FORWARD,
                profile=one.profile,
                why=one.why,
                gpu=one.gpu.uuid,
                memory_bytes=one.memory_bytes,
                notes=list_notes(snapshot),
                request=request,
                slice=one,
                paths=new.paths,
                takes=takes,
            )
            for one, new in zip(chosen, target.names, strict=True)
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
        request, live = wanted.request, observe_live_parts(wanted.request, vm)
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
        sharers = list_sharers(record, snapshot.records)
        # the compute instance of shares goes with the last of them
        if not part.taken and has_compute and not (record.share_part and sharers):
            steps.append(_destroy_compute(record, part, gpu))
        if not has_instance:
            slice_ = f"{record.mig_profile} at {record.placement} on {gpu}"
            notes.append(f"its slice {slice_} is gone already")
        elif part.taken:
            notes.append(_describe_left(record, gpu))
        elif sharers:
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
        if record.is_gpu_share:
            return restore_share(record, snapshot)
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
        elif record.is_gpu_share and gpu.mig.current:
            yield find_share_lost(record, gpu)
        elif record.channel is not None and status is None:
            text = "its keeper does not run"
            yield make_drift(record, DriftKind.KEEPER_GONE, text, "vgpumgr recover")
        elif record.channel is not None and status is not None and status.worker_failed:
            text = f"its worker does not start: {status.problem or 'it ends again and again'}"
            yield make_drift(record, DriftKind.WORKER_DOWN, text, "vgpumgr recover")
        elif status is not None and status.share is not None and not status.share.kept:
            part = format_percent(status.share.compute)
            text = f"the arbiter of its share does not run: its {part} of the time is not kept"
            yield make_drift(record, DriftKind.ARBITER_GONE, text, "vgpumgr recover")
        elif status is not None and (memory := find_due_shrink(record, status)) is not None:
            text = f"its share is to shrink to {format_exact(memory)}, and its programs use no more than that now"
            yield make_drift(record, DriftKind.SHRINK_DUE, text, "vgpumgr recover")

    def has_all(self, record: AttachmentRecord, snapshot: Snapshot) -> bool:
        """See ``Backend``."""
        gpu = snapshot.find_gpu_of(record)
        if record.is_gpu_share:
            return gpu is not None and not gpu.mig.current
        return record.mig_part is None or (gpu is not None and has_slice(record, gpu))


def restore_share(record: AttachmentRecord, snapshot: Snapshot) -> Restored | None:
    """What is left to do for a share after a boot: its channel. One that is half there is for ``recover``."""
    if record.state is not AttachmentState.ATTACHED:
        return None
    gpu = snapshot.find_gpu_of(record)
    if gpu is None:
        return Restored(record, describe_lost(record, gpu))
    if gpu.mig.current:
        return Restored(record, find_share_lost(record, gpu).text)
    return Restored(record, starts_channel=record.channel is not None)


def observe_live_parts(request: AttachRequest, vm: Vm) -> LiveParts:
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
            f"cannot attach to {vm} live",
            why="it is shut off",
            hint=f"virsh start {format_vm(vm.name, vm.uuid)}",
        )
    if request.live and not live.any:
        raise LiveUnsupportedError(
            f"cannot attach to {vm} live",
            why="; ".join(live.reasons),
            hint=f"vgpumgr attach {format_vm(vm.name, vm.uuid)} {request.option} --config, then restart the VM",
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


def _describe_left(record: AttachmentRecord, gpu: Gpu) -> str:
    name = record.mig.uuid if record.mig else record.profile
    return f"{name} stays at {record.placement} on {gpu}: it was there before the attach"


def _destroy_compute(record: AttachmentRecord, part: MigPart, gpu: Gpu) -> DestroyComputeInstance:
    return DestroyComputeInstance(
        gpu.uuid,
        str(record.mig_profile),
        part.compute,
        str(record.mig_profile.gpu_instance),
        part.placement,
        mig=str(part.ref.uuid) if part.ref else None,
        gpu_index=gpu.index,
        by_record=True,
    )


def _destroy_instance(record: AttachmentRecord, part: MigPart, gpu: Gpu) -> DestroyGpuInstance:
    name = str(record.mig_profile.gpu_instance)
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
