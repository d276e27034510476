"""vGPUs without a machine: descriptions, mdevctl's files, capacity, choice, layouts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.boards import A100, make_gpu
from vgpumgr.engine.step import decode_step
from vgpumgr.errors import (
    LayoutBusyError,
    LayoutFileError,
    LayoutImpossibleError,
    VgpuAttributeError,
    VgpuDefinitionError,
    VgpuNoRoomError,
)
from vgpumgr.host.machine import Machine
from vgpumgr.host.vgpu_files import VgpuFiles
from vgpumgr.mdev.control import DefinitionFiles, parse_definition
from vgpumgr.mdev.observe import (
    Described,
    list_ghosts,
    make_host,
    measure_capacity,
    parse_description,
)
from vgpumgr.mig.layout.formats.files import Dialect, read_layout_file
from vgpumgr.model.mig import MigMode
from vgpumgr.model.pci import PciAddress
from vgpumgr.model.vgpu import (
    Framework,
    VgpuBoard,
    VgpuDefinition,
    VgpuDevice,
    VgpuHost,
    VgpuOffer,
    VgpuParent,
    VgpuRecord,
    VgpuSpec,
    VgpuState,
    VgpuType,
)
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.planning.vgpu_selection import Placing, choose_vgpu, keep_placeable
from vgpumgr.planning.vgpus import VgpuTarget, list_vgpu_differences, plan_vgpus
from vgpumgr.steps.vgpu import CreateVgpu, DeleteVgpu

UUID = "11111111-2222-3333-4444-5555555555{:02}"
BOARD = "0000:07:00.0"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "num_heads=4, frl_config=60, framebuffer=2048M, max_resolution=4096x2160, "
            "max_instance=12",
            Described(2 << 30, 4, 12, 60, (4096, 2160)),
        ),
        (
            "low_gm_size: 128MB\nhigh_gm_size: 512MB\nfence: 4\nresolution: 1920x1200\nweight: 4",
            Described(640 << 20, None, None, None, (1920, 1200)),
        ),
        ("virtual display, 16 MB video memory", Described(16 << 20)),
        ("virtual display, 640x480 framebuffer", Described(resolution=(640, 480))),
        ("Single port serial", Described()),
        (None, Described()),
        ("num_heads=many, framebuffer=??, max_instance=-1", Described()),
    ],
)
def test_descriptions_of_nvidia_intel_and_the_kernels_samples(
    text: str | None, expected: Described
) -> None:
    assert parse_description(text) == expected


@given(st.text(max_size=200))
def test_no_description_is_an_error(text: str) -> None:
    parse_description(text)


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
ATTRIBUTES = st.lists(st.tuples(NAMES, NAMES), max_size=4).map(tuple)


@settings(max_examples=25, deadline=None)
@given(NAMES, st.booleans(), ATTRIBUTES)
def test_a_definition_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    type_id: str,
    auto: bool,
    attributes: tuple[tuple[str, str], ...],
) -> None:
    root = tmp_path_factory.mktemp("root")
    files = DefinitionFiles(Machine(None, root, root, root, "test:///default"))
    definition = VgpuDefinition(UUID.format(1), "0000:3b:00.4", type_id, auto, attributes)
    files.write_definition(definition)
    assert files.list_definitions() == (definition,)
    stored = json.loads((root / "etc/mdevctl.d/0000:3b:00.4" / definition.uuid).read_text())
    # what mdevctl 1.2 takes: each value a text, each attribute an object of its own
    assert set(stored) == {"mdev_type", "start", "attrs"}
    assert all(len(row) == 1 for row in stored["attrs"])
    assert all(isinstance(value, str) for row in stored["attrs"] for value in row.values())
    files.remove_definition(definition.parent, definition.uuid)
    assert files.list_definitions() == ()
    assert not (root / "etc/mdevctl.d/0000:3b:00.4").exists()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"mdev_type": 1}', '{"mdev_type": "a", "start": "never"}',
     '{"mdev_type": "a", "attrs": [{"x": 1}]}', '{"mdev_type": "a", "attrs": {"x": "1"}}',
     '{"mdev_type": "a", "attrs": [{"x": "1", "y": "2"}]}'],
)  # fmt: skip
def test_a_malformed_definition_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_definition(text, "mtty", UUID.format(1))


def test_a_malformed_definition_hides_no_other(tmp_path: Path) -> None:
    files = DefinitionFiles(Machine(None, tmp_path, tmp_path, tmp_path, "test:///default"))
    good = VgpuDefinition(UUID.format(1), "mtty", "mtty-1")
    files.write_definition(good)
    (files.directory / "mtty" / UUID.format(2)).write_text("{")
    for name in ("scripts.d", "callouts.d", "notifiers.d"):
        (files.directory / name).mkdir()
        (files.directory / name / UUID.format(3)).write_text('{"mdev_type": "mtty-1"}')
    assert files.list_definitions() == (good,)
    for parent in ("..", "a/b", ""):
        with pytest.raises(VgpuDefinitionError):
            files.write_definition(replace(good, parent=parent))
    # what mdevctl may have left out
    assert parse_definition('{"mdev_type": "mtty-2"}', "mtty", "u").attributes == ()


def make_type(number: int, gib: int, most: int, **more: object) -> VgpuType:
    fields = {"framebuffer_bytes": gib << 30, "max_instances": most, **more}
    name = f"NVIDIA T-{gib}{number}"
    return VgpuType(str(number), name, Framework.VENDOR_VFIO, **fields)  # type: ignore[arg-type]


SMALL, LARGE = make_type(1, 10, 4), make_type(2, 20, 2)


def make_board(functions: int = 6, types: tuple[VgpuType, ...] = (SMALL, LARGE)) -> VgpuHost:
    """A GPU with free functions that offer everything."""
    pf = PciAddress.parse(BOARD)
    offers = tuple(VgpuOffer(type_, 1) for type_ in types)
    parents = [
        VgpuParent(f"0000:07:00.{i + 1}", Framework.VENDOR_VFIO, offers, replace(pf, function=i + 1), pf)
        for i in range(functions)
    ]  # fmt: skip
    return VgpuHost(tuple(parents), (), (VgpuBoard(BOARD, types, equal_sizes=True),))


def put(host: VgpuHost, *placed: tuple[int, VgpuType]) -> VgpuHost:
    """vGPUs on functions; those offer nothing any more."""
    devices = [
        VgpuDevice(None, f"0000:07:00.{i}", Framework.VENDOR_VFIO, type_.id, type_.name)
        for i, type_ in placed
    ]
    return replace(host, devices=(*host.devices, *devices))


def claim(number: int, type_: VgpuType) -> VgpuSpec:
    parent = f"0000:07:00.{number}"
    uuid = UUID.format(number)
    return VgpuSpec(uuid, Framework.VENDOR_VFIO, parent, type_.id, type_.name)


def test_functions_promise_more_than_the_gpu_holds() -> None:
    host = make_board()
    board = host.boards[0]
    assert measure_capacity(host, board, SMALL).free == 4
    assert measure_capacity(host, board, LARGE).free == 2
    host = put(host, (1, SMALL))
    assert measure_capacity(host, board, SMALL).free == 3
    room = measure_capacity(host, board, LARGE)
    assert (room.free, "one size" in str(room.reason)) == (0, True)
    mixed = replace(board, equal_sizes=False, mixed_sizes=True)
    # a quarter is taken, and each takes a half
    assert measure_capacity(host, mixed, LARGE).free == 1
    # its functions still offer it
    full = measure_capacity(put(host, (2, SMALL), (3, SMALL), (4, SMALL)), board, SMALL)
    assert (full.free, full.reason) == (0, f"{BOARD} holds 4 of them at most")


def test_a_ghost_keeps_its_function_its_size_and_its_place() -> None:
    host = make_board(functions=2)
    board = host.boards[0]
    ghost = claim(1, SMALL)
    assert list_ghosts(host, [ghost]) == [ghost]
    assert measure_capacity(host, board, SMALL, [ghost]).free == 1
    told = measure_capacity(host, board, LARGE, [ghost]).reason
    assert "still held" in str(told)
    assert list_ghosts(put(host, (1, SMALL)), [ghost]) == []


def test_packed_or_spread() -> None:
    here, there = make_board(), make_board()
    other = [
        replace(p, name=p.name.replace(":07:", ":08:"), physical=PciAddress.parse("08:00.0"))
        for p in there.parents
    ]
    boards = (*here.boards, replace(there.boards[0], name="0000:08:00.0"))
    host = replace(put(here, (1, SMALL)), parents=(*here.parents, *other), boards=boards)
    observed = Snapshot(vgpus=host)
    assert choose_vgpu(observed, "t-101").board.name == BOARD
    assert choose_vgpu(observed, "t-101").parent.name == "0000:07:00.2"
    assert choose_vgpu(observed, "t-101", spread=True).board.name == "0000:08:00.0"
    assert choose_vgpu(observed, "t-202").board.name == "0000:08:00.0"
    assert choose_vgpu(observed, "1", "08:00.3").parent.name == "0000:08:00.3"
    with pytest.raises(VgpuNoRoomError, match="cannot create"):
        choose_vgpu(observed, "2", "0000:07:00.0")


def test_places_are_told_to_gpus_of_several_sizes_only() -> None:
    host = put(make_board(), (1, SMALL))
    one = Snapshot(vgpus=host)
    assert keep_placeable(one, "t-101", None, Placing()) is one
    with pytest.raises(VgpuAttributeError, match=f"at 8 on {BOARD}") as refused:
        keep_placeable(one, "t-101", None, Placing(8))
    assert refused.value.hint == "without --placement", "its driver has no such mode"
    board = replace(host.boards[0], mixed_sizes=False)
    off = Snapshot(vgpus=replace(host, boards=(board,)))
    with pytest.raises(VgpuAttributeError) as refused:
        keep_placeable(off, "t-101", None, Placing(8))
    assert refused.value.held_by == ("vGPU NVIDIA T-101 0000:07:00.1",)
    # the change of mode says better what is in its way
    assert keep_placeable(off, "t-101", None, Placing(8, True)) is off
    empty = replace(board, name="0000:08:00.0")
    both = Snapshot(vgpus=replace(host, boards=(board, empty)))
    assert keep_placeable(both, "t-101", None, Placing(8, True)).vgpus.boards == (empty,)
    mixed = replace(board, equal_sizes=False, mixed_sizes=True)
    on = Snapshot(vgpus=replace(host, boards=(empty, mixed)))
    assert keep_placeable(on, "t-101", None, Placing(8)).vgpus.boards == (mixed,)
    backed = replace(SMALL, gpu_instance_profile_id=9)
    mig = Snapshot(vgpus=replace(host, boards=(replace(mixed, types=(backed,)),)))
    with pytest.raises(VgpuAttributeError) as refused:
        keep_placeable(mig, "t-101", None, Placing(8, True))
    assert refused.value.why == "the driver places it inside its GPU instance"


@given(
    st.sampled_from([CreateVgpu, DeleteVgpu]),
    st.sampled_from(list(Framework)),
    ATTRIBUTES,
    st.none() | st.integers(0, 100),
)
def test_steps_survive_the_journal(
    kind: type[CreateVgpu] | type[DeleteVgpu],
    framework: Framework,
    attributes: tuple[tuple[str, str], ...],
    placement: int | None,
) -> None:
    spec = VgpuSpec(UUID.format(1), framework, BOARD, "5", "T-5", attributes, placement)
    step = kind(spec)
    assert decode_step(json.loads(json.dumps(step.encode()))) == step


def make_tree(root: Path, gpus: int, functions: int, types: int) -> None:
    """A host of mediated devices on virtual functions. Functions share the directory of types."""
    devices, bus = root / "sys/bus/pci/devices", root / "sys/class/mdev_bus"
    for directory in (devices, bus):
        directory.mkdir(parents=True)
    for gpu in range(gpus):
        home = root / f"types{gpu}"
        for number in range(types):
            kind = home / f"nvidia-{number}"
            kind.mkdir(parents=True)
            (kind / "name").write_text(f"NVIDIA X-{number}C\n")
            (kind / "available_instances").write_text("1\n")
            (kind / "description").write_text("framebuffer=1024M, max_instance=32\n")
        for number in range(functions):
            name = f"0000:{gpu:02x}:{(number + 4) // 8:02x}.{(number + 4) % 8}"
            (devices / name).mkdir()
            (devices / name / "vendor").write_text("0x10de\n")
            (devices / name / "physfn").symlink_to(f"../0000:{gpu:02x}:00.0")
            (devices / name / "mdev_supported_types").symlink_to(home)
            (bus / name).symlink_to(f"../../bus/pci/devices/{name}")


def test_reading_a_large_host_takes_few_calls_for_each_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one for each type of each function: 32 functions with 60 types are 1,920 of those."""
    make_tree(tmp_path, gpus=2, functions=32, types=60)
    from vgpumgr.host import vgpu_files

    calls = 0
    read = vgpu_files._read

    def count(path: Path) -> str | None:
        nonlocal calls
        calls += 1
        return read(path)

    monkeypatch.setattr(vgpu_files, "_read", count)
    host = make_host(VgpuFiles(tmp_path).read_host(), ())
    assert (len(host.parents), len(host.boards)) == (64, 2)
    assert all(len(parent.offers) == 60 for parent in host.parents)
    assert calls <= 2 * (60 * 4 + 2) + 64
    assert measure_capacity(host, host.boards[0], host.boards[0].types[0]).free == 32


def test_a_function_that_offers_nothing_does_not_speak_for_the_others(tmp_path: Path) -> None:
    """A vGPU that was removed and is still held is in no list, and its function looks free."""
    make_tree(tmp_path, gpus=1, functions=12, types=3)
    for number in (4, 5):
        name = tmp_path / f"sys/bus/pci/devices/0000:00:00.{number}/mdev_supported_types"
        name.unlink()
        for kind in range(3):
            (name / f"nvidia-{kind}").mkdir(parents=True)
            (name / f"nvidia-{kind}/available_instances").write_text("0\n")
    host = make_host(VgpuFiles(tmp_path).read_host(), ())
    board = host.boards[0]
    assert [len(parent.offers) for parent in host.parents] == [0, 0, *[3] * 10]
    assert measure_capacity(host, board, board.types[0]).free == 10
    assert choose_vgpu(Snapshot(vgpus=host), board.types[0].id).parent.name == "0000:00:00.6"


LAYOUT = """schema: vgpumgr/mig-layout/v1
layouts:
  web:
    - gpus: 0
      instances: [3g.40gb]
      vgpus: {A100-3-40C: 1}
    - gpus: 1
      vgpus: {}
"""
DM = """version: v1
vgpu-configs:
  gold:
    - devices: all
      vgpu-devices: {"A100-4C": 2, "A100-8C": 0}
"""


def test_files_say_how_many_of_which_type() -> None:
    first, second = read_layout_file(LAYOUT, "web.yaml").layouts["web"]
    assert first.vgpus is not None
    assert [(v.type, v.count) for v in first.vgpus] == [("A100-3-40C", 1)]
    assert (first.says_mig, second.says_mig, second.vgpus) == (True, False, ())
    file = read_layout_file(DM, "dm.yaml")
    (entry,) = file.layouts["gold"]
    assert file.dialect is Dialect.VGPU_DM
    assert entry.vgpus is not None
    assert [(v.type, v.count) for v in entry.vgpus] == [("A100-4C", 2)]
    assert entry.choice.is_open


@pytest.mark.parametrize(
    "wrong",
    [
        DM.replace("v1", "v2"),
        DM.replace("devices: all", "devices: some"),
        DM.replace('"A100-4C": 2', '"A100-4C": -1'),
        DM.replace('"A100-4C": 2', '"A100-4C": 9999'),
        DM.replace("vgpu-devices", "vgpu-device"),
        "version: v1\nvgpu-configs: {}\n",
        LAYOUT.replace("{A100-3-40C: 1}", "[A100-3-40C]"),
        LAYOUT.replace("vgpus: {}", "vgpu: {}"),
    ],
)
def test_malformed_files_are_refused(wrong: str) -> None:
    with pytest.raises(LayoutFileError):
        read_layout_file(wrong, "wrong.yaml")


def make_view(host: VgpuHost, records: tuple[VgpuRecord, ...] = (), held: str = "") -> Snapshot:
    gpu = replace(make_gpu(A100, 0, None), pci=PciAddress.parse(BOARD), mig=MigMode(True))
    claims = [record.spec for record in records]
    held_by = {held: ('vm "a"',)}
    return Snapshot(
        vgpus=host, gpus=[gpu], claims=claims, vgpu_records=records, vgpu_holders=held_by
    )


def want(view: Snapshot, **counts: int) -> VgpuTarget:
    named = tuple((name.replace("_", "-"), count) for name, count in counts.items())
    return VgpuTarget(str(view.gpus[0].uuid), named, "web.yaml:3")


def record(number: int, type_: VgpuType) -> VgpuRecord:
    return VgpuRecord(claim(number, type_), VgpuState.ACTIVE)


def test_a_layout_changes_as_little_as_it_can() -> None:
    records = (record(1, SMALL), record(2, SMALL))
    view = make_view(put(make_board(), (1, SMALL), (2, SMALL)), records)
    (same,) = plan_vgpus(view, [want(view, T_101=2)])
    assert (same.deletes, same.creates, same.kept) == ((), (), 2)
    (more,) = plan_vgpus(view, [want(view, T_101=4)])
    assert [spec.parent for spec in more.creates] == ["0000:07:00.3", "0000:07:00.4"]
    (other,) = plan_vgpus(view, [want(view, T_202=1)])
    assert (len(other.deletes), [s.parent for s in other.creates]) == (2, ["0000:07:00.1"])
    told = [text for _, text in list_vgpu_differences(view, [want(view, T_101=4)])]
    assert told == ["2 x vGPU NVIDIA T-101, expected 4"]


def test_what_is_held_or_not_ours_stays() -> None:
    host = put(make_board(), (1, SMALL), (2, SMALL))
    ours = (record(1, SMALL), record(2, SMALL))
    view = make_view(host, ours, held=UUID.format(1))
    (fewer,) = plan_vgpus(view, [want(view, T_101=1)])
    assert [r.spec.parent for r in fewer.deletes] == ["0000:07:00.2"]
    with pytest.raises(LayoutBusyError) as busy:
        plan_vgpus(view, [want(view)])
    assert busy.value.held_by == ('vm "a"',)
    foreign = make_view(host, ours[:1])
    (kept,) = plan_vgpus(foreign, [want(foreign, T_101=1)])
    assert [r.spec.parent for r in kept.deletes] == ["0000:07:00.1"]
    with pytest.raises(LayoutBusyError, match="cannot take"):
        plan_vgpus(foreign, [want(foreign)])


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ({"T_101": 5}, "at most 4 x"),
        ({"T_101": 1, "T_202": 1}, "one size"),
        ({"T_101": 7}, "virtual functions"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_done(
    counts: dict[str, int], reason: str
) -> None:
    view = make_view(make_board())
    with pytest.raises(LayoutImpossibleError) as refused:
        plan_vgpus(view, [want(view, **counts)])
    assert reason in str(refused.value.why)
    assert refused.value.error.startswith("web.yaml:3: ")


def test_mig_backed_ones_need_instances_of_their_profile() -> None:
    gpu = make_gpu(A100, 0, None)
    profile = next(p for p in gpu.profiles if str(p.name) == "3g.40gb")
    backed = make_type(7, 20, 2, gpu_instance_profile_id=profile.id, max_per_gpu_instance=1)
    view = make_view(make_board(types=(backed,)))
    with pytest.raises(LayoutImpossibleError, match="cannot have") as off:
        plan_vgpus(view, [want(view, T_207=1)])
    assert "MIG mode is off" in str(off.value.why)
    enough = replace(want(view, T_207=2), instances={"3g.40gb": 2})
    assert len(plan_vgpus(view, [enough])[0].creates) == 2
    with pytest.raises(LayoutImpossibleError) as lacking:
        plan_vgpus(view, [replace(enough, instances={"3g.40gb": 1})])
    assert "2 x 3g.40gb" in str(lacking.value.why)
