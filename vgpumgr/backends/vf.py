"""``vf``: a virtual function, as its driver makes it or with a vGPU type (vendor-VFIO)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vgpumgr.backends.base import Target, Wanted
from vgpumgr.backends.device_selection import (
    BY_NAME,
    check_free,
    check_group,
    describe_error,
    find_selected,
    list_focus,
    list_gpus,
    list_near,
    make_no_device,
)
from vgpumgr.backends.hostdev import (
    HostDeviceGrant,
    choose_drivers,
    describe_drivers,
    describe_facts,
    name_variant,
)
from vgpumgr.backends.vgpu import VgpuBackend
from vgpumgr.domain.devices import pci_alias
from vgpumgr.engine.step import Step
from vgpumgr.errors import (
    BackendUnsupportedError,
    DeviceTakenError,
    GpuNotFoundError,
    NoDeviceError,
    PreviewImpossibleError,
    VfCountError,
    VfUnsupportedError,
    VgpumgrError,
)
from vgpumgr.model.attachment import HostDevice, HostDeviceKind
from vgpumgr.model.choices import Backend as BackendName
from vgpumgr.model.pci import VFIO, Function, PciAddress
from vgpumgr.model.request import ProfileRequest, VfRequest
from vgpumgr.passthrough.sriov import find_driver
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.planning.vfs import check_vf_driver
from vgpumgr.steps.vf import CreateVfs, PrepareVf

_NAME_A_TYPE = "name a type as the profile: vgpumgr mdev types"


class VfBackend(VgpuBackend):
    """Virtual functions; those of some vendors get their size by a vGPU type."""

    name = BackendName.VF

    def match(self, profile: ProfileRequest) -> bool:
        """See ``Backend``."""
        return isinstance(profile, VfRequest) or super().match(profile)

    def _choose(
        self, wanted: Wanted, target: Target, snapshot: Snapshot
    ) -> Sequence[HostDeviceGrant]:
        request, profile = wanted.request, wanted.profile
        if not isinstance(profile, VfRequest):
            return super()._choose(wanted, target, snapshot)
        snapshot = snapshot.focus(list_focus(snapshot, request.gpu))
        chosen = choose_vfs(snapshot, request.gpu, profile.count, request.count)
        return [
            _grant(snapshot, vf, str(profile), name.id, persist=wanted.persist)
            for vf, name in zip(chosen, target.names, strict=True)
        ]


def _grant(
    snapshot: Snapshot, choice: OneVf, profile: str, attachment: str, *, persist: bool
) -> HostDeviceGrant:
    """A virtual function as its driver makes it; with ``persist`` it comes back at every boot."""
    address = choice.address
    if address is None:
        raise PreviewImpossibleError(
            f"where the virtual functions of {choice.physical.address} will be is not known",
            why="the kernel has no sriov_offset for it",
            hint=f"vgpumgr vf enable {choice.physical.address} --count {choice.make or 1}, then attach",
        )
    physical, there = choice.physical, choice.function
    bound = there is not None and there.is_ready
    drivers = choose_drivers(snapshot, [there]) if there is not None and not bound else {}
    steps: list[Step] = []
    if choice.make is not None:
        known = (s for s in snapshot.vf_settings if s.physical == physical.address)
        earlier = next(known, None)
        steps.append(CreateVfs(physical.address, choice.make, persist=persist, earlier=earlier))
    if not bound:
        # of one that is still to be made the kernel tells no more than that it will be there
        later = None if snapshot.takes_variants else VFIO
        driver = drivers[address].name if address in drivers else later
        steps.append(PrepareVf(physical.address, choice.index, driver, address, persist=persist))
    device = HostDevice(
        kind=HostDeviceKind.VF,
        alias=pci_alias(attachment, 0),
        address=address,
        previous_driver=there.driver if there is not None and not bound else None,
        parent=physical.address,
        index=choice.index,
        made_vfs=choice.make or 0,
        created=not bound,
        driver=name_variant(drivers.get(address)),
    )
    return HostDeviceGrant(
        backend=BackendName.VF,
        profile=profile,
        why=f"a virtual function goes to a VM by VFIO; {choice.why}",
        devices=(device,),
        steps=tuple(steps),
        facts=describe_facts(snapshot, there or physical, own_bars=there is not None),
        iommufd=snapshot.iommufd,
        notes=describe_drivers(drivers),
    )


@dataclass(frozen=True, slots=True)
class OneVf:
    """A virtual function that goes to a VM. ``make``: how many are to be made first; None: it is
    there.
    """

    physical: Function
    index: int
    address: PciAddress | None
    make: int | None
    why: str
    function: Function | None = None


def choose_vfs(
    host: Snapshot, selector: str | None, cut: int | None, count: int = 1
) -> tuple[OneVf, ...]:
    """As many virtual functions as are asked for of the GPU that ``selector`` names (or that one
    itself), or of all that are free. ``cut``: into how many a GPU is cut where it is not yet, else
    it must be cut so; None: into as many as are needed.

    Raises GpuNotFoundError and what stands in the way; NoDeviceError where there are too few,
    NoRoomError where they are on other NUMA nodes than the VM must have.
    """
    if selector is not None:
        function = find_selected(host, selector)
        list_near(host, [function])
        if function.physical is not None:
            return (_take_named(host, function, count),)
        found = _choose_of(host, function, cut, count)
        return _check_enough(found, count, [f"{function.address} has no more"])
    reasons: list[str] = []
    chosen: list[OneVf] = []
    able = [function for function in list_gpus(host) if function.vf_total]
    host.check_not_drained("", *(function.address for function in able))
    # first what is cut already
    for function in sorted(list_near(host, able), key=lambda f: (_is_far(host, f), not f.vfs)):
        if len(chosen) == count:
            break
        try:
            chosen += _choose_of(host, function, cut, count - len(chosen))
        except VgpumgrError as error:
            reasons.append(describe_error(error))
    typed = bool(able) and all(find_driver(function).needs_type for function in able)
    return _check_enough(chosen, count, reasons, _NAME_A_TYPE if typed else "vgpumgr vf list")


def _is_far(host: Snapshot, function: Function) -> bool:
    return host.numa.is_far(function.numa_node)


def _check_enough(
    found: Sequence[OneVf], count: int, reasons: Sequence[str], hint: str = "vgpumgr vf list"
) -> tuple[OneVf, ...]:
    if len(found) == count:
        return tuple(found)
    what = "no virtual function is free"
    if found:
        what = f"only {len(found)} of {count} virtual functions are free"
    raise make_no_device(what, reasons, hint)


def _choose_of(host: Snapshot, physical: Function, cut: int | None, count: int) -> Sequence[OneVf]:
    """Up to so many of one GPU; raises why there is not even one."""
    _check_physical(physical)
    host.check_not_drained("", physical.address)
    if not physical.vfs:
        return _make_some(host, physical, cut, count)
    if cut is not None and cut != len(physical.vfs):
        raise VfCountError(
            f"{physical.address} is cut into {len(physical.vfs)} virtual functions, not {cut}",
            why="a driver changes their number only by removing all of them",
            hint=f"--profile vf, or vgpumgr vf enable {physical.address} --count {cut} first",
        )
    found: list[OneVf] = []
    reasons = []
    near = host.numa.describe(physical.numa_node)
    for index, address in enumerate(physical.vfs):
        function = host.find(address)
        if function is None or len(found) == count:
            continue
        try:
            _check_vf(host, function)
        except VgpumgrError as error:
            reasons.append(describe_error(error))
            continue
        why = f"virtual function {index} of {len(physical.vfs)} of {physical.address} is free{near}"
        found.append(OneVf(physical, index, address, None, why, function))
    if found:
        return found
    what = f"none of the {len(physical.vfs)} virtual functions of {physical.address} is free"
    raise make_no_device(what, reasons, "vgpumgr vf list")


def _check_physical(physical: Function) -> None:
    if not physical.vf_total:
        raise VfUnsupportedError(
            f"{physical.address} has no virtual functions",
            why="it has no SR-IOV capability",
            hint="--profile passthrough gives all of it",
        )
    if (why := find_driver(physical).needs_type) is not None:
        raise BackendUnsupportedError(
            f"a virtual function of {physical.address} alone is of no use",
            why=why,
            hint=_NAME_A_TYPE,
        )


def _make_some(host: Snapshot, physical: Function, cut: int | None, count: int) -> Sequence[OneVf]:
    """Makes as many as are needed, or as are asked for; the first in line makes them for all.

    Places that somebody has already stay his: by a definition, or by an attachment that a restore
    will bring back.
    """
    _check_maker(host, physical)
    free = [i for i in range(physical.vf_total) if physical.locate_vf(i) not in host.taken]
    made = _choose_cut(host, physical, free[:count]) if cut is None else cut
    if made > physical.vf_total:
        raise VfCountError(
            f"{physical.address} cannot be cut into {made} virtual functions",
            why=f"it can have {physical.vf_total}",
            hint=f"--profile vf:{physical.vf_total}",
        )
    chosen = [index for index in free if index < made][:count]
    if not chosen:
        what = f"none of the {made} virtual functions that {physical.address} would have is free"
        places = [p for index in range(made) if (p := physical.locate_vf(index)) is not None]
        held = [f"{p} is taken ({host.taken[p]})" for p in places if p in host.taken]
        raise make_no_device(what, held, "vgpumgr vm list")
    near = host.numa.describe(physical.numa_node)
    why = f"{physical.address} is not cut yet: {made} of up to {physical.vf_total}{near}"
    return [
        OneVf(physical, index, physical.locate_vf(index), made if index == chosen[0] else None, why)
        for index in chosen
    ]


def _choose_cut(host: Snapshot, physical: Function, wanted: Sequence[int]) -> int:
    """So many that those are among them, and not fewer than a restore would make."""
    settings = (s for s in host.vf_settings if s.physical == physical.address and s.persist)
    usual = next((setting.count for setting in settings), 0)
    return max([usual, *(index + 1 for index in wanted)]) or physical.vf_total


def _check_maker(host: Snapshot, physical: Function) -> None:
    if owner := host.taken.get(physical.address):
        raise DeviceTakenError(
            f"{physical.address} is taken as a whole", held_by=[owner], hint="vgpumgr vm list"
        )
    check_vf_driver(physical)


def _take_named(host: Snapshot, function: Function, count: int) -> OneVf:
    assert function.physical is not None
    if count > 1:
        raise NoDeviceError(
            f"virtual function {function.address} cannot go to a VM {count} times",
            why="--gpu names one device",
            hint=f"--gpu {function.physical}, or leave --count out",
        )
    physical = host.find(function.physical)
    if physical is None or function.address not in physical.vfs:
        raise GpuNotFoundError(f"{function.address} belongs to no physical function")
    _check_physical(physical)
    host.check_not_drained("", physical.address)
    _check_vf(host, function)
    index = physical.vfs.index(function.address)
    return OneVf(physical, index, function.address, None, BY_NAME, function)


def _check_vf(host: Snapshot, function: Function) -> None:
    check_group(host, function, [function])
    check_free(host, function)
