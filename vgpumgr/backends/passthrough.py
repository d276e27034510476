"""``passthrough``: a whole GPU, with the other functions of its card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vgpumgr.backends.base import Target, Wanted
from vgpumgr.backends.device_selection import (
    BY_NAME,
    advise,
    check_free,
    check_group,
    describe_error,
    fill,
    find_bundle,
    find_selected,
    list_focus,
    list_given,
    list_gpus,
    list_near,
    make_no_device,
    name_all,
)
from vgpumgr.backends.hostdev import (
    HostDeviceBackend,
    HostDeviceGrant,
    choose_drivers,
    describe_drivers,
    describe_facts,
    name_variant,
)
from vgpumgr.domain.devices import pci_alias
from vgpumgr.errors import BackendUnsupportedError, NoDeviceError, PciBusyError, VgpumgrError
from vgpumgr.model.attachment import HostDevice, HostDeviceKind
from vgpumgr.model.choices import Backend as BackendName
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.pci import Function
from vgpumgr.model.request import PassthroughRequest, ProfileRequest
from vgpumgr.model.text import tell_count
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.steps.pci import BindDriver

#: VGA-compatible: firmware draws the first screen with its ROM
_VGA = 0x0300


class PassthroughBackend(HostDeviceBackend):
    """Whole GPUs of any vendor, by VFIO."""

    name = BackendName.PASSTHROUGH

    def match(self, profile: ProfileRequest) -> bool:
        """See ``Backend``."""
        return isinstance(profile, PassthroughRequest)

    def _choose(
        self, wanted: Wanted, target: Target, snapshot: Snapshot
    ) -> Sequence[HostDeviceGrant]:
        request = wanted.request
        snapshot = snapshot.focus(list_focus(snapshot, request.gpu))
        chosen = choose_whole_gpus(snapshot, request.gpu, request.count)
        return [
            _grant(snapshot, gpu, name.id, persist=wanted.persist)
            for gpu, name in zip(chosen, target.names, strict=True)
        ]


def _grant(
    snapshot: Snapshot, choice: WholeGpu, attachment: str, *, persist: bool
) -> HostDeviceGrant:
    """Functions that the host's drivers have are taken from them first, and with ``persist`` again at
    every boot. Those that a persistent binding takes at this boot anyway, once ``restore`` has run, stay bound after a
    detach.
    """
    gpu = snapshot.find_gpu(choice.gpu.address)
    uuid = str(choice.uuid) if choice.uuid else None
    drivers = choose_drivers(snapshot, [f for f in choice.functions if not f.is_ready])
    due = {
        f.address: binding.driver
        for f in choice.functions
        if (binding := snapshot.find_binding(f.address))
        and binding.persist
        and binding.boot_id != snapshot.boot_id
    }
    binds = [
        BindDriver(
            f.address,
            due.get(f.address, drivers[f.address].name),
            previous=f.driver,
            persist=persist or f.address in due,
            gpu_uuid=uuid if f is choice.gpu else None,
            model=gpu.model if gpu and f is choice.gpu else None,
            earlier=next((b for b in snapshot.bindings if b.address == f.address), None),
            for_vm=True,
        )
        for f in choice.functions
        if not f.is_ready
    ]
    taken = {bind.address for bind in binds} - due.keys()
    return HostDeviceGrant(
        backend=BackendName.PASSTHROUGH,
        profile="passthrough",
        why=f"a whole GPU goes to a VM by VFIO; {choice.why}",
        devices=tuple(
            HostDevice(
                kind=HostDeviceKind.PCI,
                alias=pci_alias(attachment, number),
                address=f.address,
                previous_driver=f.driver if f.address in taken else None,
                rom=f.class_code >> 8 == _VGA,
                created=f.address in taken,
                driver=name_variant(drivers.get(f.address)),
            )
            for number, f in enumerate(choice.functions)
        ),
        steps=tuple(binds),
        gpu=choice.uuid,
        memory_bytes=gpu.memory.total_bytes if gpu else 0,
        facts=describe_facts(snapshot, choice.gpu),
        iommufd=snapshot.iommufd,
        conventional=sum(f.address in snapshot.conventional for f in choice.functions),
        notes=(*_describe_companions(choice.companions), *describe_drivers(drivers)),
    )


def _describe_companions(companions: Sequence[Function]) -> tuple[str, ...]:
    if not companions:
        return ()
    names = ", ".join(f"{f.address} ({f.kind})" for f in companions)
    return (f"with it go the other functions of its card: {names}",)


@dataclass(frozen=True, slots=True)
class WholeGpu:
    """A GPU that goes to a VM as a whole, with the other functions of its card."""

    gpu: Function
    companions: tuple[Function, ...]
    #: NVML's name of it, as far as it is or was known there
    uuid: GpuUuid | None
    why: str

    @property
    def functions(self) -> tuple[Function, ...]:
        """All that the VM gets, the GPU first."""
        return (self.gpu, *self.companions)


def choose_whole_gpus(host: Snapshot, selector: str | None, count: int = 1) -> tuple[WholeGpu, ...]:
    """The GPU that ``selector`` names, or as many as are asked for of those that nobody has or uses:
    those near the VM first.

    Raises GpuNotFoundError and what stands in the way; NoDeviceError where there are too few,
    NoRoomError where they are on other NUMA nodes than the VM must have.
    """
    if selector is not None:
        return _take_named_gpus(host, selector, count)
    start = host
    found: list[WholeGpu] = []
    bundles: list[tuple[Function, ...]] = []
    reasons: list[str] = []
    candidates = list_near(host, list_gpus(host))
    host.check_not_drained("", *(function.address for function in candidates))
    for function in candidates:
        try:
            check_whole_gpu(host, function)
        except VgpumgrError as error:
            reasons.append(describe_error(error))
            bundle = find_bundle(start, function)
            if len(bundle) > 1 and not any(function in known for known in bundles):
                bundles += _list_possible(start, bundle, reasons)
            continue
        near = host.numa.describe(function.numa_node)
        found.append(_make_whole(host, function, f"it is free and not in use{near}"))
        if len(found) == count:
            return tuple(found)
        # what goes with one is not there for the next
        host = host.give(found[-1].functions)
    filled = fill(found, [_make_bundle(start, bundle) for bundle in bundles], count)
    if filled is not None:
        return tuple(filled)
    what = "no GPU can go to a VM as a whole"
    if found:
        what = f"only {len(found)} of {count} GPUs can go to a VM as a whole"
    hint = "vgpumgr passthrough list"
    raise make_no_device(what, reasons, advise(bundles[0]) if bundles else hint)


def _list_possible(
    host: Snapshot, bundle: tuple[Function, ...], reasons: list[str]
) -> list[tuple[Function, ...]]:
    """The bundle, unless one of its GPUs cannot go for another reason."""
    try:
        _check_bundle(host, bundle)
    except VgpumgrError as error:
        reasons.append(describe_error(error))
        return []
    return [bundle]


def _check_bundle(host: Snapshot, bundle: Sequence[Function]) -> None:
    list_near(host, bundle)
    for function in bundle:
        check_whole_gpu(host, function, bundle)


def _make_bundle(host: Snapshot, bundle: Sequence[Function]) -> list[WholeGpu]:
    made = []
    for gpu in bundle:
        others = name_all([other for other in bundle if other is not gpu])
        why = f"together with {others}, from which the IOMMU cannot isolate it"
        made.append(_make_whole(host, gpu, why))
    return made


def _take_named_gpus(host: Snapshot, selector: str, count: int) -> tuple[WholeGpu, ...]:
    """The one that is named; several only where it goes with just so many others."""
    function = find_selected(host, selector)
    bundle = find_bundle(host, function)
    if count > 1 and count == len(bundle):
        _check_bundle(host, bundle)
        return tuple(_make_bundle(host, bundle))
    if count > 1:
        raise NoDeviceError(
            f"{function.address} cannot go to a VM {count} times",
            why="--gpu names one device, and it goes as a whole"
            + (f", together with {len(bundle) - 1} others" if len(bundle) > 1 else ""),
            hint=advise(bundle) if len(bundle) > 1 else "leave --gpu out, or --count",
        )
    list_near(host, [function])
    check_whole_gpu(host, function)
    what = BY_NAME
    if not function.is_gpu:
        what += f", though no GPU ({function.kind})"
    return (_make_whole(host, function, what),)


def check_whole_gpu(host: Snapshot, function: Function, bundle: Sequence[Function] = ()) -> None:
    """Raises what stands in the way of giving the function away, with those of its card; ``bundle``
    are GPUs that are given together.
    """
    if function.is_bridge:
        raise BackendUnsupportedError(
            f"{function.address} is a bridge", why="bridges stay with the host"
        )
    if function.vfs:
        raise PciBusyError(
            f"{function.address} has {tell_count(len(function.vfs), 'virtual function')}",
            why="they would go away with it",
            held_by=[host.taken[vf] for vf in function.vfs if vf in host.taken],
            hint=f"vgpumgr vf disable {function.address}",
        )
    host.check_not_drained("", function.physical or function.address)
    gpu = host.find_gpu(function.address)
    if gpu is not None and gpu.instances:
        raise PciBusyError(
            f"{gpu} is cut into {tell_count(len(gpu.instances), 'MIG instance')}",
            why="they would go away with the driver",
            hint=f"vgpumgr mig list --gpu {gpu.index}",
        )
    if lost := host.list_reserved(function.address):
        raise PciBusyError(
            f"{function.address} is kept for {len(lost)} slices that are to come back",
            why="they are gone since the boot, and it would be gone for them",
            held_by=[f"{instance.profile} at {instance.placement}" for instance in lost],
            hint="vgpumgr restore; or vgpumgr detach whom they belong to",
        )
    given = (function, *host.list_companions(function))
    check_group(host, function, list_given(host, (function, *bundle)))
    for one in given:
        check_free(host, one)


def _make_whole(host: Snapshot, function: Function, why: str) -> WholeGpu:
    gpu, binding = host.find_gpu(function.address), host.find_binding(function.address)
    uuid = gpu.uuid if gpu else None
    if uuid is None and binding is not None and binding.gpu_uuid:
        uuid = GpuUuid(binding.gpu_uuid)
    return WholeGpu(function, host.list_companions(function), uuid, f"{function.address}: {why}")
