"""How many more vGPUs of a type a GPU can really have: pure.

The kernel's own count says less than it seems: each free virtual function of a GPU offers every type
once, so a sum over functions promises more than the GPU holds; and a vGPU that was removed while
somebody had it open is in no list, yet keeps its room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from vgpumgr.model.text import tell_count
from vgpumgr.model.vgpu import VgpuBoard, VgpuHost, VgpuParent, VgpuSpec, VgpuType


@dataclass(frozen=True, slots=True)
class Room:
    """``free`` more fit; where none does, ``reason`` says why."""

    free: int
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class _Tenant:
    """A vGPU on the GPU, seen or remembered."""

    parent: str
    type_id: str
    name: str


def list_ghosts(host: VgpuHost, claims: Sequence[VgpuSpec]) -> list[VgpuSpec]:
    """Those of ``claims`` (vGPUs that take room as far as we know) that the kernel does not show."""
    seen = {(device.framework, device.key) for device in host.devices}
    uuids = {device.uuid for device in host.devices}
    return [
        claim
        for claim in claims
        if claim.uuid not in uuids and (claim.framework, claim.parent) not in seen
    ]


def list_free_parents(
    host: VgpuHost, board: VgpuBoard, type_: VgpuType, claims: Sequence[VgpuSpec] = ()
) -> list[VgpuParent]:
    """The parents that one more can be created on, as far as the kernel says, in address order."""
    taken = {tenant.parent for tenant in _list_tenants(host, board, claims)}
    return [
        parent
        for parent in host.list_parents(board.name)
        if _offers(parent, type_) and not (parent.is_virtual_function and parent.name in taken)
    ]


def measure_room(
    host: VgpuHost, board: VgpuBoard, type_: VgpuType, claims: Sequence[VgpuSpec] = ()
) -> Room:
    """The true remaining capacity of a GPU for a type."""
    tenants = _list_tenants(host, board, claims)
    if (other := _find_other_size(board, type_, tenants)) is not None:
        return Room(0, _tell_sizes(board, other, tenants))
    free = _count_offered(host, board, type_, claims)
    if free == 0:
        return Room(0, _tell_full(host, board, tenants))
    if type_.max_instances is not None and not type_.is_mig_backed:
        free = min(free, _count_left(board, type_, type_.max_instances, tenants))
        if free <= 0:
            return Room(0, f"{board.name} holds {type_.max_instances} of them at most")
    return Room(free)


def _list_tenants(host: VgpuHost, board: VgpuBoard, claims: Sequence[VgpuSpec]) -> list[_Tenant]:
    names = {parent.name for parent in host.list_parents(board.name)}
    seen = [_Tenant(d.parent, d.type_id, d.type_name) for d in host.list_on(board.name)]
    ghosts = [
        _Tenant(claim.parent, claim.type_id, f"{claim.type_name} (removed, but still held)")
        for claim in list_ghosts(host, claims)
        if claim.parent in names
    ]
    return seen + ghosts


def _offers(parent: VgpuParent, type_: VgpuType) -> int:
    return next((o.available for o in parent.offers if o.type.id == type_.id), 0)


def _count_offered(
    host: VgpuHost, board: VgpuBoard, type_: VgpuType, claims: Sequence[VgpuSpec]
) -> int:
    parents = list_free_parents(host, board, type_, claims)
    return sum(1 if p.is_virtual_function else _offers(p, type_) for p in parents)


def _find_other_size(
    board: VgpuBoard, type_: VgpuType, tenants: Sequence[_Tenant]
) -> _Tenant | None:
    """A time-sliced vGPU of another framebuffer size, where all must have one."""
    if not board.equal_sizes or type_.is_mig_backed or type_.framebuffer_bytes is None:
        return None
    for tenant in tenants:
        other = board.find_type(tenant.type_id)
        if other is None or other.is_mig_backed or other.framebuffer_bytes is None:
            continue
        if other.framebuffer_bytes != type_.framebuffer_bytes:
            return tenant
    return None


def _count_left(board: VgpuBoard, type_: VgpuType, most: int, tenants: Sequence[_Tenant]) -> int:
    """How many more of a time-sliced type a GPU holds, which has room for ``most`` of it alone: on
    NVIDIA's, each vGPU takes its share of the whole, whatever its type.
    """
    used = Fraction(0)
    for tenant in tenants:
        other = board.find_type(tenant.type_id)
        if tenant.type_id == type_.id:
            used += Fraction(1, most)
        elif board.is_shared and other is not None and other.max_instances:
            used += Fraction(1, other.max_instances)
    return int((1 - used) * most)


def _tell_sizes(board: VgpuBoard, other: _Tenant, tenants: Sequence[_Tenant]) -> str:
    count = sum(tenant.type_id == other.type_id for tenant in tenants)
    more = "" if board.mixed_sizes is None else "; mixed sizes are switched off"
    return (
        f"the GPU runs {count} x {other.name}, and in equal-size mode all its vGPUs have one size"
        + more
    )


def _tell_full(host: VgpuHost, board: VgpuBoard, tenants: Sequence[_Tenant]) -> str:
    parents = host.list_parents(board.name)
    if parents and all(p.is_virtual_function for p in parents):
        taken = {tenant.parent for tenant in tenants}
        if all(parent.name in taken for parent in parents):
            return f"each of its {tell_count(len(parents), 'virtual function')} has a vGPU"
    if not tenants:
        return "the driver offers none of it now"
    names = ", ".join(sorted({tenant.name for tenant in tenants}))
    return f"no room beside {tell_count(len(tenants), 'vGPU')}: {names}"
