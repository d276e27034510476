"""vGPUs from the files' facts, completed by NVML's, and how many more of a type a GPU can really have: pure.

The kernel's own count is not enough: each free virtual function of a GPU offers every type once, so a sum over
functions is more than the GPU holds; and a vGPU that was removed while a process had it open is in no list, yet keeps
its memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from vgpumgr.model.frozen import dataclass
from vgpumgr.model.pci import PciAddress
from vgpumgr.model.text import tell_count
from vgpumgr.model.vgpu import (
    Framework,
    GpuVgpus,
    NvmlVgpuType,
    VgpuBoard,
    VgpuDevice,
    VgpuHost,
    VgpuOffer,
    VgpuParent,
    VgpuSpec,
    VgpuType,
)

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
#: longer ones are no sizes, and Python converts only so many digits
_SIZE = re.compile(r"(\d{1,15})\s*([KMG]?)(?:i?B)?", re.IGNORECASE)
_PAIR = re.compile(r"([a-z_]+)\s*[=:]\s*([^,\n]+)", re.IGNORECASE)
_PIXELS = re.compile(r"\b(\d{1,6})\s*x\s*(\d{1,6})\b", re.IGNORECASE)
_VIDEO_MEMORY = re.compile(r"(\d{1,15}\s*[KMG]?B)\s+video memory", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Described:
    """What was found; None where nothing is said. Units as in ``VgpuType``."""

    framebuffer_bytes: int | None = None
    heads: int | None = None
    max_instances: int | None = None
    frame_rate_limit: int | None = None
    resolution: tuple[int, int] | None = None


def parse_description(text: str | None) -> Described:
    """Never fails: what cannot be read is not said."""
    if not text:
        return Described()
    pairs = {key.lower(): value.strip() for key, value in _PAIR.findall(text)}
    return Described(
        framebuffer_bytes=_read_memory(pairs, text),
        heads=_number(pairs.get("num_heads")),
        max_instances=_number(pairs.get("max_instance")),
        frame_rate_limit=_number(pairs.get("frl_config")),
        resolution=_read_pixels(pairs.get("max_resolution") or pairs.get("resolution") or text),
    )


def parse_size(text: str) -> int | None:
    """Bytes of ``2048M``, ``4 MB``, ``128MB``; None for anything else."""
    match = _SIZE.fullmatch(text.strip())
    return int(match[1]) * _UNITS[match[2].upper()] if match else None


def _read_memory(pairs: dict[str, str], text: str) -> int | None:
    if "framebuffer" in pairs:
        return parse_size(pairs["framebuffer"])
    if "high_gm_size" in pairs:
        # GVT-g: graphics memory below and above what the CPU can map
        parts = [parse_size(pairs.get(key, "0")) for key in ("low_gm_size", "high_gm_size")]
        return sum(part for part in parts if part is not None)
    stated = _VIDEO_MEMORY.search(text)
    return parse_size(stated[1]) if stated else None


def _read_pixels(text: str) -> tuple[int, int] | None:
    match = _PIXELS.search(text)
    return (int(match[1]), int(match[2])) if match else None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 10 else None


#: what the driver writes for a vGPU that is in no GPU instance
_NO_INSTANCE = 0xFFFFFFFF
NVIDIA = "0x10de"
#: a type that NVML says nothing of
_UNKNOWN = NvmlVgpuType(0, "", 0)
Raw = Mapping[str, Any]


def make_host(raw: Raw, nvml: Sequence[GpuVgpus]) -> VgpuHost:
    """Everything, as values. Free functions of a GPU share the types of the one that was read and
    that offers something; those that were asked before it, and offered nothing, keep their word.
    """
    by_pci = {str(gpu.pci): gpu for gpu in nvml}
    boards: dict[str, VgpuBoard] = {}
    offers: dict[tuple[str, str], tuple[VgpuOffer, ...]] = {}
    rows = list(raw["parents"])
    for row in rows:
        board = _board_of(row)
        if row["types"] is not None:
            found = make_offers(row, by_pci.get(board))
            known = offers.setdefault((row["framework"], board), found)
            if not _is_open(known) and _is_open(found):
                offers[row["framework"], board] = found
    for board, group in _group(rows).items():
        shared = [offer for (_, name), found in offers.items() if name == board for offer in found]
        boards[board] = _make_board(board, group, shared, by_pci.get(board))
    taken = {device["parent"] for device in raw["devices"]}
    parents = tuple(_make_parent(row, offers, boards[_board_of(row)], taken) for row in rows)
    owners = {parent.name: boards[parent.board] for parent in parents}
    devices = tuple(make_device(row, owners) for row in raw["devices"])
    return VgpuHost(parents, devices, tuple(boards.values()))


def make_offers(row: Raw, nvml: GpuVgpus | None) -> tuple[VgpuOffer, ...]:
    """The types that stand below one parent."""
    known = {str(type_.id): type_ for type_ in nvml.types} if nvml else {}
    framework = Framework(row["framework"])
    return tuple(
        VgpuOffer(_make_type(type_row, framework, known), _count(type_row["available"]))
        for type_row in row["types"] or ()
    )


def _is_open(offers: Sequence[VgpuOffer]) -> bool:
    return any(offer.available for offer in offers)


def _order(type_: VgpuType) -> list[tuple[int, str]]:
    """Numbers by value: ``nvidia-468`` before ``nvidia-1092``."""
    return [(int(p), "") if p.isdecimal() else (0, p) for p in re.split(r"(\d+)", type_.id)]


def _count(text: str) -> int:
    return max(0, int(text)) if text.lstrip("-").isdigit() else 0


def _board_of(row: Raw) -> str:
    return str(row["physical"] or row["name"])


def _group(rows: Iterable[Raw]) -> dict[str, list[Raw]]:
    groups: dict[str, list[Raw]] = {}
    for row in rows:
        groups.setdefault(_board_of(row), []).append(row)
    return groups


def _make_board(
    name: str, rows: Sequence[Raw], offers: Sequence[VgpuOffer], nvml: GpuVgpus | None
) -> VgpuBoard:
    types = {offer.type.id: offer.type for offer in offers}
    framework = Framework(rows[0]["framework"])
    for known in nvml.types if nvml else ():
        # NVML also knows those that cannot be created now
        id_ = str(known.id) if framework is Framework.VENDOR_VFIO else f"nvidia-{known.id}"
        types.setdefault(id_, _from_nvml(id_, framework, known))
    mixed = nvml.mixed_sizes if nvml else None
    return VgpuBoard(
        name=name,
        types=tuple(sorted(types.values(), key=_order)),
        gpu=nvml.gpu if nvml else None,
        equal_sizes=any(row["vendor"] == NVIDIA for row in rows) and not mixed,
        mixed_sizes=mixed,
    )


def _make_type(row: Raw, framework: Framework, known: Mapping[str, NvmlVgpuType]) -> VgpuType:
    said = parse_description(row["description"])
    nvml = known.get(str(row["id"]).removeprefix("nvidia-"), _UNKNOWN)
    return VgpuType(
        id=row["id"],
        name=row["name"] or nvml.name or row["id"],
        framework=framework,
        device_api=row["device_api"],
        description=row["description"],
        framebuffer_bytes=said.framebuffer_bytes or nvml.framebuffer_bytes or None,
        heads=_either(said.heads, nvml.heads),
        max_instances=_either(said.max_instances, nvml.max_instances),
        frame_rate_limit=_either(said.frame_rate_limit, nvml.frame_rate_limit),
        resolution=said.resolution or nvml.resolution,
        gpu_instance_profile_id=nvml.gpu_instance_profile_id,
        max_per_gpu_instance=nvml.max_per_gpu_instance,
    )


def _from_nvml(id_: str, framework: Framework, known: NvmlVgpuType) -> VgpuType:
    row = {"id": id_, "name": known.name, "description": None, "device_api": "vfio-pci"}
    return _make_type(row, framework, {str(known.id): known})


def _either(said: int | None, other: int | None) -> int | None:
    return other if said is None else said


def _make_parent(
    row: Raw,
    offers: Mapping[tuple[str, str], tuple[VgpuOffer, ...]],
    board: VgpuBoard,
    taken: set[str],
) -> VgpuParent:
    pci = _address(row["name"])
    found = offers.get((row["framework"], board.name), ())
    types = row["types"]
    is_silent = types is not None and not any(_count(type_["available"]) for type_ in types)
    if row["physical"] is not None and (row["name"] in taken or is_silent):
        found = ()
    return VgpuParent(
        name=row["name"],
        framework=Framework(row["framework"]),
        offers=found,
        pci=pci,
        physical=_address(row["physical"]) or pci,
        numa_node=_number(row["numa_node"]),
        driver=row["driver"],
    )


def make_device(row: Raw, boards: Mapping[str, VgpuBoard] | None = None) -> VgpuDevice:
    """One device; without its board, the name of its type is there only where the kernel says it."""
    board = boards.get(row["parent"]) if boards else None
    type_ = board.find_type(row["type"]) if board else None
    vendor = row["framework"] == Framework.VENDOR_VFIO
    return VgpuDevice(
        uuid=row["uuid"],
        parent=row["parent"],
        framework=Framework(row["framework"]),
        type_id=row["type"],
        type_name=row["type_name"] or (type_.name if type_ else row["type"]),
        pci=_address(row["parent"]) if vendor else None,
        iommu_group=row["iommu_group"],
        driver=row["driver"],
        attributes=(("nvidia/vgpu_params", row["params"]),) if row["params"] else (),
        placement_id=row["placement"],
        gpu_instance_id=None if row["gpu_instance"] == _NO_INSTANCE else row["gpu_instance"],
        vm_name=row["vm_name"] or None,
    )


def _address(text: str | None) -> PciAddress | None:
    try:
        return None if text is None else PciAddress.parse(text)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Capacity:
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
    """Those of ``claims`` (recorded vGPUs that take memory) that the kernel does not show."""
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


def measure_capacity(
    host: VgpuHost, board: VgpuBoard, type_: VgpuType, claims: Sequence[VgpuSpec] = ()
) -> Capacity:
    """The true remaining capacity of a GPU for a type."""
    tenants = _list_tenants(host, board, claims)
    if (other := _find_other_size(board, type_, tenants)) is not None:
        return Capacity(0, _describe_sizes(board, other, tenants))
    parents = list_free_parents(host, board, type_, claims)
    free = sum(1 if p.is_virtual_function else _offers(p, type_) for p in parents)
    if free == 0:
        return Capacity(0, _describe_full(host, board, tenants))
    if type_.max_instances is not None and not type_.is_mig_backed:
        free = min(free, _count_left(board, type_, type_.max_instances, tenants))
        if free <= 0:
            return Capacity(0, f"{board.name} holds {type_.max_instances} of them at most")
    return Capacity(free)


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
    """How many more of a time-sliced type a GPU holds, which holds ``most`` of it alone: on
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


def _describe_sizes(board: VgpuBoard, other: _Tenant, tenants: Sequence[_Tenant]) -> str:
    count = sum(tenant.type_id == other.type_id for tenant in tenants)
    more = "" if board.mixed_sizes is None else "; mixed sizes are switched off"
    return (
        f"the GPU runs {count} x {other.name}, and in equal-size mode all its vGPUs have one size"
        + more
    )


def _describe_full(host: VgpuHost, board: VgpuBoard, tenants: Sequence[_Tenant]) -> str:
    parents = host.list_parents(board.name)
    if parents and all(p.is_virtual_function for p in parents):
        taken = {tenant.parent for tenant in tenants}
        if all(parent.name in taken for parent in parents):
            return f"each of its {tell_count(len(parents), 'virtual function')} has a vGPU"
    if not tenants:
        return "the driver offers none of it now"
    names = ", ".join(sorted({tenant.name for tenant in tenants}))
    return f"no room beside {tell_count(len(tenants), 'vGPU')}: {names}"
