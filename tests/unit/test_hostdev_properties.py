"""Choices of host devices over random inventories, against what a search through everything finds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TypeVar

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.support.boards import make_gpu
from vgpumgr.backends.passthrough import WholeGpu, check_whole_gpu, choose_whole_gpus
from vgpumgr.backends.vf import choose_vfs
from vgpumgr.errors import VgpumgrError
from vgpumgr.mdev.observe import measure_capacity
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import Placement
from vgpumgr.model.pci import VFIO, Function, PciAddress, User, UserKind
from vgpumgr.model.vgpu import (
    Framework,
    VgpuBoard,
    VgpuDevice,
    VgpuHost,
    VgpuInstance,
    VgpuOffer,
    VgpuParent,
    VgpuSpec,
    VgpuType,
)
from vgpumgr.planning.reservations import LostSlice, reserve
from vgpumgr.planning.snapshot import NumaPolicy, Snapshot
from vgpumgr.planning.vgpu_selection import choose_vgpus

T = TypeVar("T")
QUICK = settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
ME, OTHER = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
CLASSES = {"gpu": 0x030200, "audio": 0x040300, "nic": 0x020000, "bridge": 0x060400}


def make_uuid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012x}"


# ---- whole GPUs and virtual functions


@st.composite
def hosts(draw: st.DrawFn) -> Snapshot:
    """Up to four cards of one to three functions, some cut, some in one group, taken or used."""
    functions: list[Function] = []
    for bus in range(1, draw(st.integers(1, 4)) + 1):
        kinds = draw(
            st.lists(
                st.sampled_from(["gpu", "gpu", "audio", "nic", "bridge"]), min_size=1, max_size=3
            )
        )
        for number, kind in enumerate(kinds):
            functions.append(
                Function(
                    PciAddress(0, bus, 0, number),
                    0x8086,
                    0x56C0,
                    CLASSES[kind],
                    draw(st.sampled_from(["i915", "i915", VFIO, None])),
                    # groups may span functions of a card, and cards
                    draw(st.sampled_from([bus * 10, bus * 10, bus * 10 + number, 99, None])),
                    draw(st.sampled_from([0, 1, None])),
                )
            )  # fmt: skip
    for physical in [f for f in functions if f.is_gpu]:
        functions = _cut(draw, functions, physical)
    users, taken, tenants = {}, {}, {}
    for function in functions:
        state = draw(st.sampled_from(["free"] * 5 + ["used", "mine", "other"]))
        if state == "used":
            users[function.address] = (User(UserKind.PROCESS, "process 7 (x)"),)
        elif state != "free":
            tenants[function.address] = ME if state == "mine" else OTHER
            taken[function.address] = f'vm "{state}"'
    for physical in functions:
        # others' definitions may name functions that are still to be made
        for index in range(0 if physical.vfs else physical.vf_total):
            place = physical.locate_vf(index)
            if place is not None and draw(st.integers(0, 4)) == 0:
                taken[place], tenants[place] = 'vm "other"', OTHER
    near = NumaPolicy(
        draw(st.sampled_from([frozenset(), frozenset({0}), frozenset({1})])), draw(st.booleans())
    )
    return Snapshot(
        functions=functions, users=users, taken=taken, tenants=tenants, vm_uuid=ME, numa=near
    )  # fmt: skip


def _cut(draw: st.DrawFn, functions: list[Function], physical: Function) -> list[Function]:
    total = draw(st.sampled_from([0, 0, 2, 4]))
    count = draw(st.integers(0, total))
    # no two cards have virtual functions at one address
    offset = 16 + 8 * physical.address.function
    base = replace(physical, vf_total=total, vf_offset=offset, vf_stride=1)
    places = [p for i in range(count) if (p := base.locate_vf(i)) is not None]
    places = [p for p in places if all(f.address != p for f in functions)]
    vfs = [
        Function(p, 0x8086, 0x56C0, 0x030000, draw(st.sampled_from([None, VFIO])),
                 draw(st.sampled_from([500 + p.bus * 64 + p.device * 8 + p.function, 501])),
                 physical.numa_node, physical=physical.address)
        for p in places
    ]  # fmt: skip
    mine = [replace(base, vfs=tuple(places)) if f is physical else f for f in functions]
    return [*mine, *vfs]


def attempt(choose: Callable[[], Sequence[T]]) -> Sequence[T] | VgpumgrError:
    try:
        return choose()
    except VgpumgrError as error:
        return error


def is_legal(host: Snapshot, gpus: Sequence[Function]) -> bool:
    """By the rules as they are written, not by how the planner goes about it."""
    given_away = {}
    for gpu in gpus:
        mine = (gpu, *host.list_companions(gpu))
        if any(f.address in given_away for f in mine):
            return False
        given_away |= {f.address: f for f in mine}
        if host.numa.strict and host.numa.nodes and gpu.numa_node not in host.numa.nodes:
            return False
        if gpu.vfs or gpu.group is None:
            return False
        if any(f.address in host.taken or f.address in host.users for f in mine):
            return False
        groups, own = {f.group for f in mine}, {f.address for f in mine}
        others = [f for f in host.functions if f.group in groups and f.address not in own]
        if not all(f.is_free and host.tenants.get(f.address, ME) == ME for f in others):
            return False
    return True


@QUICK
@given(hosts(), st.integers(1, 3))
def test_whole_gpus_are_those_that_a_search_finds(host: Snapshot, count: int) -> None:
    gpus = [f for f in host.functions if f.is_gpu and f.physical is None]
    possible = any(is_legal(host, some) for some in combinations(gpus, count))
    found = attempt(lambda: choose_whole_gpus(host, None, count))
    again = attempt(lambda: choose_whole_gpus(host, None, count))
    if isinstance(found, VgpumgrError):
        assert not possible, [str(f) for f in host.functions]
        assert isinstance(again, VgpumgrError)
        assert found.why == again.why
        assert found.why, "why not is said"
        return
    assert found == again, "the same question has the same answer"
    assert possible
    assert len(found) == count
    assert is_legal(host, [one.gpu for one in found])
    check_nearest(host, gpus, found)


def check_nearest(host: Snapshot, gpus: Sequence[Function], found: Sequence[WholeGpu]) -> None:
    """No GPU far away is taken where as many near ones would do."""
    near = [g for g in gpus if not host.numa.is_far(g.numa_node)]
    if any(is_legal(host, some) for some in combinations(near, len(found))):
        assert not any(host.numa.is_far(one.gpu.numa_node) for one in found)


@QUICK
@given(hosts())
def test_a_gpu_that_is_named_is_refused_for_a_reason(host: Snapshot) -> None:
    for function in host.functions:
        if not function.is_gpu or function.physical is not None:
            continue
        found = attempt(lambda one=function: choose_whole_gpus(host, str(one.address)))  # type: ignore[misc]
        assert isinstance(found, VgpumgrError) != is_legal(host, [function])
        if isinstance(found, VgpumgrError):
            assert found.why or found.held_by


@QUICK
@given(hosts(), st.integers(1, 5), st.sampled_from([None, None, 2]))
def test_virtual_functions_are_all_or_none(host: Snapshot, count: int, cut: int | None) -> None:
    capacity = sum(
        count_vfs(host, f, cut) for f in host.functions if f.is_gpu and f.physical is None
    )
    found = attempt(lambda: choose_vfs(host, None, cut, count))
    if isinstance(found, VgpumgrError):
        assert capacity < count
        assert found.why
        return
    assert capacity >= count
    assert len({(vf.physical.address, vf.index) for vf in found}) == count
    assert found == attempt(lambda: choose_vfs(host, None, cut, count))
    made = {vf.physical.address: vf.make for vf in found if vf.make is not None}
    for vf in found:
        assert vf.address is not None
        assert vf.address not in host.taken
        assert vf.address not in host.users
        if vf.function is None:
            # one makes them for all
            assert vf.index < (made[vf.physical.address] or 0) <= vf.physical.vf_total
            assert not vf.physical.vfs
        else:
            assert vf.physical.vfs[vf.index] == vf.address


def count_vfs(host: Snapshot, physical: Function, cut: int | None) -> int:
    """How many of one GPU may be given, by the rules."""
    near = host.numa
    if not physical.vf_total or (near.strict and near.is_far(physical.numa_node)):
        return 0
    if not physical.vfs:
        if physical.driver != "i915" or physical.address in host.taken:
            return 0
        made = physical.vf_total if cut is None else cut
        places = [physical.locate_vf(index) for index in range(made)]
        return sum(p not in host.taken for p in places) if made <= physical.vf_total else 0
    if cut is not None and cut != len(physical.vfs):
        return 0
    return sum(is_vf_free(host, vf) for vf in physical.vfs)


def is_vf_free(host: Snapshot, address: PciAddress) -> bool:
    vf = host.find(address)
    if vf is None or vf.group is None or address in host.taken or address in host.users:
        return False
    others = [f for f in host.functions if f.group == vf.group and f.address != address]
    return all(f.is_free and host.tenants.get(f.address, ME) == ME for f in others)


# ---- vGPUs


SIZES = {"1Q": (1, 8), "2Q": (2, 4), "2C": (2, 4), "4C": (4, 2), "8Q": (8, 1)}


class Board:
    """A GPU as its driver keeps it: what can be created decides by trying."""

    def __init__(self, name: str, functions: int, mixed: bool, there: Sequence[str]) -> None:
        self.name, self.functions, self.mixed = name, functions, mixed
        self.there: list[tuple[str, int]] = []
        for kind in there:
            self.create(kind)

    def create(self, kind: str) -> bool:
        size = SIZES[kind][0]
        sizes = [SIZES[k][0] for k, _ in self.there]
        if sum(sizes) + size > 8 or (not self.mixed and set(sizes) - {size}):
            return False
        used = {seat for _, seat in self.there}
        seat = next((n for n in range(self.functions) if n not in used), None)
        if self.functions and seat is None:
            return False
        self.there.append((kind, seat if seat is not None else -1))
        return True

    def count(self, kind: str) -> int:
        copy = Board(self.name, self.functions, self.mixed, [k for k, _ in self.there])
        return next(n for n in range(20) if not copy.create(kind))


def show(boards: Sequence[Board]) -> VgpuHost:
    """What the kernel and NVML show of it."""
    parents: list[VgpuParent] = []
    devices: list[VgpuDevice] = []
    shown = []
    for board in boards:
        framework = Framework.VENDOR_VFIO if board.functions else Framework.MDEV
        types = {
            kind: VgpuType(kind.lower(), f"T {kind}", framework, framebuffer_bytes=size << 30, max_instances=most)
            for kind, (size, most) in SIZES.items()
        }  # fmt: skip
        shown.append(
            VgpuBoard(board.name, tuple(types.values()), None, not board.mixed, board.mixed)
        )
        names = [f"{board.name[:-1]}{n + 1}" for n in range(board.functions)] or [board.name]
        taken = {seat for _, seat in board.there}
        for number, name in enumerate(names):
            free = not board.functions or number not in taken
            offers = tuple(
                VgpuOffer(t, min(board.count(kind), 1) if board.functions else board.count(kind))
                for kind, t in types.items()
                if free
            )
            parents.append(
                VgpuParent(name, framework, offers, PciAddress.parse(name), PciAddress.parse(board.name))
            )  # fmt: skip
        for number, (kind, seat) in enumerate(board.there):
            parent = names[seat] if board.functions else board.name
            uuid = None if board.functions else make_uuid(hash((board.name, number)) & 0xFFFFFF)
            devices.append(VgpuDevice(uuid, parent, framework, types[kind].id, types[kind].name))
    return VgpuHost(tuple(parents), tuple(devices), tuple(shown))


@st.composite
def vgpu_boards(draw: st.DrawFn) -> list[Board]:
    return [
        Board(
            f"0000:{bus:02x}:00.0",
            draw(st.sampled_from([0, 2, 4, 7])),
            draw(st.booleans()),
            draw(st.lists(st.sampled_from(sorted(SIZES)), max_size=4)),
        )
        for bus in range(1, draw(st.integers(1, 3)) + 1)
    ]


@QUICK
@given(vgpu_boards(), st.sampled_from(sorted(SIZES)), st.integers(1, 6), st.booleans())
def test_vgpus_are_all_created_or_none(
    boards: list[Board], kind: str, count: int, spread: bool
) -> None:
    """What is chosen can really be created, one after the other; what is refused cannot."""
    observed = Snapshot(vgpus=show(boards))
    capacity = sum(board.count(kind) for board in boards)
    uuids = [make_uuid(n) for n in range(count)]
    found = attempt(lambda: choose_vgpus(observed, kind, None, uuids, spread=spread))
    if isinstance(found, VgpumgrError):
        assert capacity < count
        assert found.why
        return
    assert found == attempt(lambda: choose_vgpus(observed, kind, None, uuids, spread=spread))
    assert len(found) == count
    by_name = {board.name: board for board in boards}
    for choice, spec in found:
        assert (choice.type.short_name, spec.parent) == (kind, choice.parent.name)
        board = by_name[choice.board.name]
        assert board.create(kind), "the driver refuses what was planned"
    parents = [spec.parent for _, spec in found if spec.framework is Framework.VENDOR_VFIO]
    taken = {device.parent for device in observed.vgpus.devices}
    assert len(parents) == len(set(parents))
    assert not taken & set(parents)


@QUICK
@given(vgpu_boards(), st.sampled_from(sorted(SIZES)), st.data())
def test_what_is_removed_but_held_keeps_its_place(
    boards: list[Board], kind: str, data: st.DataObject
) -> None:
    host = show(boards)
    functions = [p.name for p in host.parents if p.is_virtual_function and p.offers]
    assume(functions)
    parent = data.draw(st.sampled_from(functions))
    ghost = VgpuSpec(make_uuid(99), Framework.VENDOR_VFIO, parent, kind.lower(), f"T {kind}")
    observed = Snapshot(vgpus=host, claims=[ghost])
    for board in host.boards:
        found = attempt(
            lambda name=board.name: choose_vgpus(observed, kind, name, [make_uuid(1)])  # type: ignore[misc]
        )
        if not isinstance(found, VgpumgrError):
            assert found[0][1].parent != parent
            # the very types of one size are told to be fewer
            room = measure_capacity(host, board, found[0][0].type, [ghost])
            assert room.free <= measure_capacity(host, board, found[0][0].type).free


# ---- places that are kept


BOARD = make_gpu(layout=[])


@QUICK
@given(st.data())
def test_mig_backed_vgpus_leave_lost_places_alone(data: st.DataObject) -> None:
    """As many as a search finds beside the kept places, and never in one of them."""
    gpu: Gpu = replace(BOARD, mig=replace(BOARD.mig, current=True, pending=True))
    profiles = [p for p in gpu.profiles if str(p.name) in ("1g.10gb", "2g.20gb", "3g.40gb")]
    lost: list[VgpuInstance] = []
    for _ in range(data.draw(st.integers(0, 3))):
        profile = data.draw(st.sampled_from(profiles))
        place = data.draw(st.sampled_from(profile.placements))
        if all(not place.overlaps(one.placement) for one in lost):
            lost.append(VgpuInstance(gpu.uuid, str(profile.name), place))
    wanted = data.draw(st.sampled_from(profiles))
    kept = reserve([gpu], (), lost)
    type_ = VgpuType(
        "7",
        "T 1-10C",
        Framework.VENDOR_VFIO,
        gpu_instance_profile_id=wanted.id,
        max_per_gpu_instance=1,
    )
    names = [f"{gpu.pci}"[:-1] + str(n) for n in range(1, 8)]
    parents = tuple(
        VgpuParent(n, Framework.VENDOR_VFIO, (), PciAddress.parse(n), gpu.pci) for n in names
    )  # fmt: skip
    host = VgpuHost(parents, (), (VgpuBoard(str(gpu.pci), (type_,)),))
    observed = Snapshot(vgpus=host, gpus=[gpu], reserved=kept)
    count = data.draw(st.integers(1, 7))
    found = attempt(lambda: choose_vgpus(observed, "7", None, [make_uuid(n) for n in range(count)]))
    best = most_places(wanted.placements, [one.placement for one in lost])
    if isinstance(found, VgpumgrError):
        assert best < count or slices_short(gpu, wanted.slices, count, lost)
        return
    places = [choice.instance.placement for choice, _ in found if choice.instance]
    assert len(places) == count <= best
    everything = [*places, *(one.placement for one in lost)]
    assert not any(a.overlaps(b) for a, b in combinations(everything, 2))
    assert all(choice.instance and choice.instance.gpu is gpu for choice, _ in found)


def most_places(placements: Sequence[Placement], taken: Sequence[Placement]) -> int:
    free = [p for p in placements if not any(p.overlaps(t) for t in taken)]
    return next(
        count
        for count in range(len(free), -1, -1)
        if any(
            not any(a.overlaps(b) for a, b in combinations(some, 2))
            for some in combinations(free, count)
        )
    )


def slices_short(gpu: Gpu, each: int, count: int, lost: Sequence[VgpuInstance]) -> bool:
    """Whether the compute slices are what lacks: 7 on this board."""
    by_name = {str(p.name): p.slices for p in gpu.profiles}
    return sum(by_name[one.profile] for one in lost) + each * count > 7


def test_a_lost_slice_tells_whose_it_is() -> None:
    profile = BOARD.profiles[0]
    lost = LostSlice(BOARD.uuid, profile, profile.placements[0], 'vm "a"')
    assert str(lost).startswith('vm "a": ')


def test_a_whole_gpu_with_lost_slices_stays() -> None:
    """It would be gone for the slices that come back."""
    gpu = replace(BOARD, mig=replace(BOARD.mig, current=True, pending=True))
    profile = gpu.profiles[0]
    made = VgpuInstance(gpu.uuid, str(profile.name), profile.placements[0])
    function = Function(gpu.pci, 0x10DE, 0x20B2, 0x030200, "nvidia", 1)
    host = Snapshot(functions=[function], gpus=[gpu], reserved=reserve([gpu], (), [made]))
    found = attempt(lambda: choose_whole_gpus(host, None))
    assert isinstance(found, VgpumgrError)
    assert "are to come back" in str(found.why)
    check_whole_gpu(host.replace(reserved=()), function)
