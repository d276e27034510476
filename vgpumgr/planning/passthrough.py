"""Planning passthrough: which functions go where, or why not. Pure."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

from vgpumgr.engine.step import Plan, Step
from vgpumgr.errors import GroupNotViableError, NoIommuError, NotBoundError, PciBusyError
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.pci import STUB, VFIO, Binding, Function, PciAddress, UserKind
from vgpumgr.model.text import tell_count
from vgpumgr.passthrough.groups import (
    ANOTHER_SLOT,
    check_gives,
    choose_driver,
    explain_no_iommu,
    explain_shared,
    has_disks,
    list_companions,
    list_members,
)
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.steps.pci import BindDriver, ReleaseDriver

BIND, UNBIND = "passthrough bind", "passthrough unbind"
ENABLE, DISABLE = "vf enable", "vf disable"
#: what the journal calls these operations
OPERATIONS = (BIND, UNBIND, ENABLE, DISABLE)


class Companions(StrEnum):
    """What becomes of the other functions of a device."""

    #: they can go to the VM, too
    VFIO = "vfio"
    #: they only lose the host's driver
    STUB = "stub"
    #: they stay with the host, where the group lets them
    KEEP = "keep"


@dataclass(frozen=True)
class BindRequest:
    """What ``passthrough bind`` was asked for."""

    #: None: vfio-pci, or the driver that knows more of the device
    driver: str | None = None
    companions: Companions = Companions.VFIO
    #: functions of other devices in the group are taken, too
    whole_group: bool = False
    #: again at every boot; None: as it is remembered
    persist: bool | None = None
    #: the user has been asked, and wants it although it is in use
    confirmed: bool = False


def plan_bind(observed: Snapshot, chosen: Function, request: BindRequest) -> Plan:
    """Takes a function and what must go with it from the host.

    ``kept`` of the result are functions that need no step, and are to be remembered otherwise.

    Raises:
        NoIommuError: no function of this machine can go to a VM.
        UsageError: the driver that is asked for gives it to none.
        GroupNotViableError: functions of other devices belong to the host.
        PciBusyError: it has virtual functions or slices, or a disk of it is mounted.
        GpuDrainedError: it, or its physical function, is a drained GPU.
    """
    _check_chosen(observed, chosen)
    if not chosen.is_away:  # what is taken already may be remembered otherwise
        observed.check_not_drained(
            f"cannot bind {chosen.address}", chosen.physical or chosen.address
        )
    if request.driver is not None:
        check_gives(chosen, request.driver, observed.variants)
    steps: list[Step] = []
    notes: list[str] = []
    kept: list[str] = []
    for function in _list_to_bind(observed, chosen, request):
        _check_takeable(observed, function)
        own = function.address == chosen.address
        wanted = request.driver
        if not own:
            # a driver that is made for the GPU knows nothing of its audio function
            wanted = VFIO if wanted == VFIO else None
            wanted = STUB if request.companions is Companions.STUB else wanted
        choice = choose_driver(function, observed.variants, wanted=wanted)
        driver = choice.name
        known = observed.find_bound(function.address)
        if function.driver != driver or (known is None and request.persist):
            steps.append(_bind(observed, function, driver, request))
            notes += [choice.why] if choice.why else []
        elif known is not None and request.persist not in (None, known.persist):
            kept.append(str(function.address))
    concerns = list_concerns(observed, [s.address for s in steps if isinstance(s, BindDriver)])
    if steps and (count := observed.count_instances(chosen.address)):
        concerns.append(
            f"{tell_count(count, 'MIG instance')} of {chosen.address} would go with its driver"
        )
    return Plan(
        BIND,
        str(chosen.address),
        tuple(steps),
        notes=tuple(notes) if steps else (f"{chosen.address} has {chosen.driver} already",),
        result={"function": str(chosen.address), "concerns": concerns, "kept": kept},
        repair=f"vgpumgr passthrough unbind {chosen.address}",
    )


def _bind(observed: Snapshot, function: Function, driver: str, request: BindRequest) -> BindDriver:
    address = function.address
    known, named = observed.find_binding(address), observed.name_gpu(address)
    persist = request.persist
    return BindDriver(
        address,
        driver,
        function.driver,
        bool(known and known.persist) if persist is None else persist,
        request.confirmed,
        named.uuid,
        named.model,
        known,
        named.index,
    )


def _check_chosen(observed: Snapshot, chosen: Function) -> None:
    if chosen.group is None:
        why, hint = explain_no_iommu(observed.kernel_words)
        raise NoIommuError(f"{chosen.address} cannot go to a VM", why=why, hint=hint)
    if chosen.is_bridge:
        raise GroupNotViableError(
            f"{chosen.address} is a bridge",
            why="bridges stay with the host; they do not keep their group from a VM",
            hint="vgpumgr passthrough groups",
        )


def _check_takeable(observed: Snapshot, function: Function) -> None:
    address = function.address
    if function.vfs:
        raise PciBusyError(
            f"{address} has {tell_count(len(function.vfs), 'virtual function')}",
            why="they would go with its driver",
            hint=f"vgpumgr vf disable {address}",
        )
    _check_not_attached(observed, address)
    disks = [u for u in observed.users.get(address, ()) if u.kind is UserKind.DISK]
    if disks:
        raise PciBusyError(
            f"the host's disks are on {address}",
            why="they would be lost at once; this is never done",
            held_by=[str(user) for user in disks],
            hint="umount them, then repeat",
        )


def _check_not_attached(observed: Snapshot, address: PciAddress) -> None:
    if held := observed.holders.get(address):
        raise PciBusyError(
            f"{address}, or a slice of it, is attached",
            held_by=held,
            hint=f"{describe_releases(observed, [address]) or 'vgpumgr detach'}, then repeat",
        )


def list_held(observed: Snapshot, addresses: Sequence[PciAddress]) -> list[str]:
    """Who has or uses one of the functions, each once: a VM that has it by us is there for its process,
    and for its mediated device.
    """
    holders = [text for a in addresses for text in observed.holders.get(a, ())]
    users = [
        str(user)
        for a in addresses
        for user in observed.users.get(a, ())
        if not (user.kind is UserKind.MDEV and any(uuid in user.text for uuid in observed.ours))
        and not any(text.startswith(user.text) for text in holders)
    ]
    return list(dict.fromkeys([*users, *holders]))


def describe_releases(observed: Snapshot, addresses: Sequence[PciAddress]) -> str | None:
    """The commands that free the functions from their holders; all of a VM go by one."""
    found = list(dict.fromkeys(r for a in addresses for r in observed.releases.get(a, ())))
    counts = Counter(release.vm for release in found)
    commands = dict.fromkeys(
        f"vgpumgr detach {shlex.quote(r.vm)} --all"
        if r.vm and counts[r.vm] == r.of > 1
        else r.command
        for r in found
    )
    return "; ".join(commands) or None


def _list_to_bind(observed: Snapshot, chosen: Function, request: BindRequest) -> list[Function]:
    """Companions first: where the GPU itself is stuck, its late end is the end of all."""
    found = []
    strangers = []
    for function in list_companions(observed.functions, chosen):
        if function.is_beside(chosen):
            blocks = function.group == chosen.group and not function.is_free
            if request.companions is not Companions.KEEP:
                found.append(function)
            elif blocks:
                strangers.append(function)
        elif not function.is_free:
            (found if request.whole_group else strangers).append(function)
    if strangers:
        raise _not_viable(observed, chosen, strangers)
    return [*found, chosen]


def _not_viable(
    observed: Snapshot, chosen: Function, strangers: Sequence[Function]
) -> GroupNotViableError:
    members = list_members(observed.functions, chosen)
    beside = all(f.is_beside(chosen) for f in strangers)
    hint = f"vgpumgr passthrough bind {chosen.address} --whole-group"
    if beside:
        hint = f"vgpumgr passthrough bind {chosen.address} --companions stub"
    elif has_disks(strangers, observed.users):
        hint = ANOTHER_SLOT
    return GroupNotViableError(
        f"IOMMU group {chosen.group} of {chosen.address} cannot go to a VM",
        why="the other functions of the device must lose their drivers, too"
        if beside
        else explain_shared(members, strangers),
        held_by=[
            "; ".join((str(f), *map(str, observed.users.get(f.address, ())))) for f in strangers
        ],
        hint=hint,
    )


def list_concerns(observed: Snapshot, addresses: Sequence[PciAddress]) -> list[str]:
    """Why to ask before these functions are taken or given back: who uses them now."""
    return list(dict.fromkeys(str(user) for a in addresses for user in observed.users.get(a, ())))


def plan_unbind(
    observed: Snapshot,
    chosen: Function,
    *,
    driver: str | None = None,
    only: bool = False,
    confirmed: bool = False,
) -> Plan:
    """Gives a function, and what was taken with it, back to the drivers of before.

    ``driver`` names the driver to give it to where none is recorded. Raises NotBoundError, and
    PciBusyError where it is attached to a VM.
    """
    _check_not_attached(observed, chosen.address)
    binding = observed.find_wanted(chosen.address)
    if driver is not None:
        binding = _make_binding(observed, chosen, binding, driver)
    elif binding is None:
        raise _not_bound(chosen)
    bindings = [binding]
    for companion in () if only else list_companions(observed.functions, chosen):
        if (other := observed.find_wanted(companion.address)) is not None:
            bindings.append(other)
    steps = tuple(ReleaseDriver(b, confirmed) for b in bindings)
    addresses = [b.address for b in bindings]
    concerns = [*list_concerns(observed, addresses), *list_configured(observed, addresses)]
    return Plan(
        UNBIND,
        str(chosen.address),
        steps,
        result={"function": str(chosen.address), "concerns": concerns},
        repair=f"vgpumgr passthrough bind {chosen.address}",
    )


def list_configured(observed: Snapshot, addresses: Sequence[PciAddress]) -> list[str]:
    """VMs that would not start any more without these functions, as concerns."""
    return [
        f'vm "{vm}" is configured with {address}, and would not start'
        for address in addresses
        for vm in observed.configured.get(address, ())
    ]


def _make_binding(
    observed: Snapshot, chosen: Function, known: Binding | None, driver: str
) -> Binding:
    return Binding(
        address=chosen.address,
        driver=chosen.driver or VFIO,
        previous=driver,
        override=None,
        vendor_id=chosen.vendor_id,
        device_id=chosen.device_id,
        boot_id=observed.boot_id,
        persist=known is not None and known.persist,
    )


def _not_bound(chosen: Function) -> NotBoundError:
    if chosen.is_away:
        return NotBoundError(
            f"{chosen.address} was not taken by vgpumgr",
            why=f"its driver is {chosen.driver}, and the one of before is not recorded",
            hint=f"vgpumgr passthrough unbind {chosen.address} --driver NAME",
        )
    return NotBoundError(
        f"{chosen.address} is not taken from the host",
        why=f"its driver is {chosen.driver or 'none'}",
        hint="vgpumgr passthrough list",
    )
