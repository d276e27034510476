"""vGPUs that are defined and not there: whose virtual function is better left to them. Pure.

The kernel calls such a function free. A vGPU that is put on it keeps the defined one from starting,
at boot or by ``mdev start``: for functions, which hold one vGPU each, a definition is a reservation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vgpumgr.model.functions import VfSetting
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.vgpu import VgpuDefinition, VgpuHost, VgpuParent
from vgpumgr.model.vgpu_record import VgpuRecord


@dataclass(frozen=True, slots=True)
class Reservation:
    """One definition without its vGPU. ``auto``: it starts at boot. ``ours``: not mdevctl's alone."""

    parent: str
    uuid: str
    type_name: str
    auto: bool
    ours: bool = True

    def __str__(self) -> str:
        when = "at boot" if self.auto else "when asked for"
        return f"vGPU {self.type_name} {self.uuid}, started {when}"


def list_reservations(
    records: Iterable[VgpuRecord],
    definitions: Iterable[VgpuDefinition],
    host: VgpuHost,
    without: str | None = None,
) -> list[Reservation]:
    """Of ours those that are not there; of others' definitions all. ``without``: not that UUID's."""
    known = {record.spec.uuid: record for record in records}
    found = [
        Reservation(record.spec.parent, uuid, record.spec.type_name, record.auto)
        for uuid, record in known.items()
        if record.defined and not record.takes_room
    ]
    found += [
        Reservation(d.parent, d.uuid, _find_name(d, host), d.auto, ours=False)
        for d in definitions
        if d.uuid not in known
    ]
    return [reservation for reservation in found if reservation.uuid != without]


def _find_name(definition: VgpuDefinition, host: VgpuHost) -> str:
    parent = host.find_parent(definition.parent)
    board = host.find_board(parent.board) if parent else None
    type_ = board.find_type(definition.type_id) if board else None
    return type_.name if type_ else definition.type_id


def list_reserved_on(reservations: Iterable[Reservation], parent: VgpuParent) -> list[Reservation]:
    """Those on one parent; none on one that holds many vGPUs."""
    if not parent.is_virtual_function:
        return []
    return [reservation for reservation in reservations if reservation.parent == parent.name]


def keep_unreserved(
    reservations: Sequence[Reservation], parents: Sequence[VgpuParent], *, define: bool
) -> tuple[list[VgpuParent], list[Reservation]]:
    """The parents for something new, those without definitions first; and what keeps the others.

    One that starts at boot keeps its function; another only from what is to be defined (``define``).
    """
    free, shared, kept = [], [], []
    for parent in parents:
        there = list_reserved_on(reservations, parent)
        if not there:
            free.append(parent)
        elif define or any(reservation.auto for reservation in there):
            kept += there
        else:
            shared.append(parent)
    return [*free, *shared], kept


def describe_kept(kept: Sequence[Reservation]) -> str:
    """Why the functions that are left are not used."""
    names = "; ".join(f"{reservation.parent} for {reservation}" for reservation in kept[:4])
    more = f" and {len(kept) - 4} more" if len(kept) > 4 else ""
    return (
        f"its free virtual functions are kept: {names}{more}; --gpu FUNCTION takes one all the same"
    )


def describe_shared(reservations: Sequence[Reservation], parent: VgpuParent) -> tuple[str, ...]:
    """The note on one that is used nevertheless."""
    return tuple(
        f"{parent.name} is also where {reservation} is defined: only one of them can be there at a time"
        for reservation in list_reserved_on(reservations, parent)
    )


def describe_fleeting(
    settings: Iterable[VfSetting], parent: VgpuParent, gpu: Gpu | None
) -> tuple[str, ...]:
    """The note on what is to come back on a function that itself does not, as far as is recorded."""
    if not parent.is_virtual_function:
        return ()
    if any(setting.physical == parent.physical and setting.persist for setting in settings):
        return ()
    name = parent.board if gpu is None else gpu.index
    command = f"vgpumgr vf enable {name} --persist"
    return (f"after a boot {parent.name} is there only if something enables it: {command}",)
