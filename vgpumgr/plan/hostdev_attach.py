"""Planning the attach of a host device: pure. The host first, then the domain, the record around both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vgpumgr.domain.hostdev import Display, Hostdev
from vgpumgr.domain.hostdev_advice import advise
from vgpumgr.domain.hypervisor import Scope, Vm
from vgpumgr.domain.preview import add_devices
from vgpumgr.domain.slots import SlotCheck, check_hostdevs_config, check_hostdevs_live
from vgpumgr.errors import DisplayImpossibleError, LiveUnsupportedError, NoFreeSlotError
from vgpumgr.passthrough.control import PciControl
from vgpumgr.plan.attach import AttachObserved, AttachRequest
from vgpumgr.plan.attach_many import ForAttachment, plan_each
from vgpumgr.plan.domain_steps import AttachDevices, WriteNote, list_controllers
from vgpumgr.plan.hostdev_given import Given
from vgpumgr.plan.hostdev_steps import RecordHostdevs, TakeFunction
from vgpumgr.plan.pci_steps import CreateVfs, find_stall
from vgpumgr.plan.record import AttachmentRecord, AttachmentState, lowest_free_number
from vgpumgr.plan.record_steps import MarkAttachment
from vgpumgr.plan.step import Plan, Step
from vgpumgr.plan.world import World


@dataclass(frozen=True, slots=True)
class Scopes:
    """Where the devices go now, and why not elsewhere."""

    live: bool
    config: bool
    not_live: str | None = None


def plan_hostdev_attaches(
    request: AttachRequest, observed: AttachObserved, given: Sequence[Given]
) -> tuple[tuple[AttachmentRecord, ...], Plan[World]]:
    """The new attachments' records, one for each that is given, and the plan for all; raises what
    the domain does not take, before anything is changed.
    """
    vm = observed.vm
    conventional = sum(one.conventional for one in given)
    count = sum(len(one.devices) for one in given) - conventional
    scopes = choose_scopes(request, vm, count, conventional)
    for one in given:
        _check_display(vm, one)
    slots = len(given) > 1 and any(len(one.devices) > 1 for one in given)
    planned = vm.config

    def build(seen: AttachObserved, one: Given) -> tuple[AttachmentRecord, Plan[World]]:
        nonlocal planned
        devices = one.make_devices(seen.id, planned, in_slots=slots)
        if planned is not None:
            # the next one's slot must not be this one's
            planned = add_devices(planned, devices)
        return _build(request, seen, one, scopes, devices)

    records, plan = plan_each(observed, given, build)
    return records, replace(plan, steps=_take_first(plan.steps)) if len(records) > 1 else plan


def _take_first(steps: Sequence[Step[World]]) -> tuple[Step[World], ...]:
    """After the records all functions are taken from the host, and only then the domain gets any: one
    of a group cannot be plugged while the host's driver has another.
    """

    def rank(step: Step[World]) -> int:
        bare = step.step if isinstance(step, ForAttachment) else step
        return 0 if isinstance(bare, RecordHostdevs) else 1 if isinstance(bare, TakeFunction) else 2

    return tuple(sorted(steps, key=rank))


def _build(
    request: AttachRequest,
    observed: AttachObserved,
    given: Given,
    scopes: Scopes,
    devices: Sequence[Hostdev],
) -> tuple[AttachmentRecord, Plan[World]]:
    """``devices`` are as the definition gets them."""
    vm, record = observed.vm, _make_record(observed, given)
    if scopes.config and not observed.more:
        record = replace(record, controllers_before=list_controllers(vm.config))
    steps: list[Step[World]] = [RecordHostdevs(record), *given.steps]
    steps += _domain_steps(observed, given, scopes, devices)
    steps.append(MarkAttachment(record.id, AttachmentState.ATTACHED, AttachmentState.ATTACHING))
    plan = Plan(
        operation="attach",
        subject=vm.name,
        steps=tuple(steps),
        notes=(
            f"backend {given.backend}: {given.why}",
            *given.notes,
            *_tell_when(vm, request, scopes),
            *_advise(vm, given),
        ),
        result={
            "attachment": record.id,
            "vm": vm.name,
            "profile": record.profile,
            "backend": str(record.backend),
            "transport": None,
            "gpu": str(given.gpu) if given.gpu else None,
            "gpu_index": None,
            "placement": None,
            "devices": [device.place for device in record.host_devices],
            "live": scopes.live,
            "config": scopes.config,
            "not_live_because": [] if scopes.live or not scopes.not_live else [scopes.not_live],
        },
    )
    return record, plan


def check_not_stalled(plan: Plan[World], pci: PciControl) -> None:
    """Raises PciStalledError where a step would wait for the whole PCI core: before the plan begins."""
    for step in plan.steps:
        bare = step.step if isinstance(step, ForAttachment) else step
        if isinstance(bare, CreateVfs) and (error := find_stall(pci, bare.describe())):
            raise error


def choose_scopes(request: AttachRequest, vm: Vm, count: int, conventional: int = 0) -> Scopes:
    """Running machine, definition or both, as asked and as far as they take the devices; ``count`` are
    those for ports of PCI Express, where the VM has such.

    Raises LiveUnsupportedError, NoFreeSlotError.
    """
    slot = SlotCheck(False, "it is shut off")
    if vm.live:
        slot = check_hostdevs_live(vm.live, count, conventional)
    wants_config = vm.config is not None and (request.config or not request.live)
    wants_live = slot.fits and (request.live or not request.config)
    if (request.live and not slot.fits) or not (wants_config or wants_live):
        transient = "" if vm.config is not None else "it is transient; "
        raise LiveUnsupportedError(
            f"cannot attach to {vm}" + (" live" if request.live else ""),
            why=transient + (slot.why or "--config was asked for"),
            hint=slot.hint or f"virsh start {vm.name}",
        )
    if wants_config and vm.config is not None:
        room = check_hostdevs_config(vm.config, count, conventional)
        if not room.fits:
            raise NoFreeSlotError(
                f"cannot attach to {vm}: it has no free PCI slot", why=room.why, hint=room.hint
            )
    return Scopes(wants_live, wants_config, slot.why)


def _check_display(vm: Vm, given: Given) -> None:
    """libvirt starts no VM that has a display without a graphics device; it defines one, though."""
    if given.display is Display.OFF:
        return
    shown = vm.config or vm.live
    if shown is None or not shown.to_element().xpath("boolean(devices/graphics)"):
        raise DisplayImpossibleError(
            f"{vm} cannot show a display",
            why="it has no graphics device",
            hint="virt-xml VM --add-device --graphics spice,gl.enable=yes; or --display off",
        )


def _make_record(observed: AttachObserved, given: Given) -> AttachmentRecord:
    return AttachmentRecord(
        id=observed.id,
        vm_name=observed.vm.name,
        vm_uuid=observed.vm.uuid,
        gpu=given.gpu,
        profile=given.profile,
        memory_bytes=given.memory_bytes,
        backend=given.backend,
        created_s=observed.now_s,
        number=lowest_free_number(observed.records, observed.vm.uuid),
        host_devices=given.devices,
        instances_boot=observed.boot if any(d.instance for d in given.devices) else "",
    )


def _domain_steps(
    observed: AttachObserved, given: Given, scopes: Scopes, devices: Sequence[Hostdev]
) -> list[Step[World]]:
    vm, steps = observed.vm, list[Step[World]]()
    if scopes.config:
        steps.append(AttachDevices(vm.name, vm.uuid, tuple(devices), Scope.CONFIG, vm.digest))
    if scopes.live:
        digest = None if steps else vm.digest
        plugged = given.make_devices(observed.id, None)
        steps.append(AttachDevices(vm.name, vm.uuid, plugged, Scope.LIVE, digest))
    steps.append(WriteNote(vm.name, vm.uuid, observed.id))
    return steps


def _tell_when(vm: Vm, request: AttachRequest, scopes: Scopes) -> tuple[str, ...]:
    if scopes.live:
        return (f"{vm} runs: live now, if the guest's kernel takes the device",)
    if not vm.is_active:
        return (f"{vm} is shut off: the device is there at its next start",)
    why = "as --config asks" if request.config else f"because {scopes.not_live}"
    return (f"{vm} runs: the device is there at its next start, {why}",)


def _advise(vm: Vm, given: Given) -> tuple[str, ...]:
    domain = vm.config or vm.live
    return tuple(f"advice: {line}" for line in advise(domain, given.facts)) if domain else ()
