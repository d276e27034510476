"""Layout files: what they mean on given boards, and how bad ones are refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.boards import A30_NAME, A100, RTX, make_gpu, make_uuid
from vgpumgr.errors import (
    GpuLostError,
    GpuNotFoundError,
    LayoutContradictionError,
    LayoutFileError,
    MigNotSupportedError,
    ProfileNotFoundError,
    VgpumgrError,
)
from vgpumgr.mig.layout.change import StepKind
from vgpumgr.mig.layout.formats import reader
from vgpumgr.mig.layout.formats.checkpoint import make_targets, read_checkpoint, write_checkpoint
from vgpumgr.mig.layout.formats.files import Dialect, choose_layout, read_layout_file
from vgpumgr.mig.layout.formats.reader import read_root
from vgpumgr.mig.layout.formats.resolve import Resolved, resolve
from vgpumgr.mig.layout.formats.write import write_own, write_parted
from vgpumgr.mig.layout.planner import plan_layout
from vgpumgr.mig.layout.target import GpuTarget, TargetInstance, list_differences
from vgpumgr.mig.placement import list_fits
from vgpumgr.model.gpu import Gpu, Inventory, LostGpu
from vgpumgr.model.mig import ComputeInstance, MigMode, Placement

DATA = Path(__file__).parents[1] / "data/layouts"
A100_ID, A30_ID = 0x20B210DE, 0x20B710DE


def make_inventory(gpus: Sequence[Gpu], lost: Sequence[LostGpu] = ()) -> Inventory:
    return Inventory("580.95.05", "13.580", (13, 0), tuple(gpus), tuple(lost))


@pytest.fixture
def three() -> Inventory:
    """Three A100 with MIG on, empty."""
    return make_inventory([replace(make_gpu(A100, i), pci_device_id=A100_ID) for i in range(3)])


def read(text: str, inventory: Inventory, name: str | None = None) -> Resolved:
    file = read_layout_file(text, "web.yaml")
    return resolve(file, choose_layout(file, name), inventory)


def read_data(name: str, inventory: Inventory, label: str) -> Resolved:
    return read((DATA / name).read_text(), inventory, label)


def uuid(index: int) -> str:
    return make_uuid("GPU", index)


def test_own_format_selects_by_index_address_and_all(three: Inventory) -> None:
    web = read_data("own.yaml", three, "web")
    instances = (TargetInstance("3g.40gb"), *[TargetInstance("1g.10gb")] * 3)
    assert web.targets == (
        GpuTarget(uuid(0), True, instances),
        GpuTarget(uuid(1), True, instances),
        GpuTarget(uuid(2), False),
    )
    train = read_data("own.yaml", three, "train").targets
    assert len(train) == 3
    assert train[0].instances == (
        TargetInstance("4g.40gb", placement=Placement(0, 4)),
        TargetInstance("3g.40gb", ("1c.3g.40gb", "2c.3g.40gb")),
    )
    assert {t.instances for t in read_data("own.yaml", three, "empty").targets} == {()}


@pytest.mark.parametrize("selector", [uuid(1), uuid(1)[:40], "0f:00.0", "0000:0F:00.0", "1"])
def test_every_selector_of_a_gpu_works_in_a_file(three: Inventory, selector: str) -> None:
    text = f"schema: vgpumgr/mig-layout/v1\nlayouts: {{a: [{{gpus: '{selector}', mig: false}}]}}"
    assert read(text, three).targets == (GpuTarget(uuid(1), False),)


def test_without_instances_they_stay(three: Inventory) -> None:
    text = "schema: vgpumgr/mig-layout/v1\nlayouts: {a: [{gpus: 0, mig: true}]}"
    assert read(text, three).targets == (GpuTarget(uuid(0), True, None),)


def test_a_placement_without_quotes_is_no_time_of_day(three: Inventory) -> None:
    """YAML 1.1 takes 4:4 for the number 244."""
    text = (
        "schema: vgpumgr/mig-layout/v1\n"
        "layouts: {a: [{gpus: 0, instances: [{profile: 3g.40gb, placement: 4:4}]}]}"
    )
    instances = read(text, three).targets[0].instances
    assert instances == (TargetInstance("3g.40gb", placement=Placement(4, 4)),)


def test_parted_filters_choose_boards_by_device_and_subsystem() -> None:
    a100 = replace(make_gpu(A100, 0), pci_device_id=A100_ID)
    a30 = replace(make_gpu(A30_NAME, 1), pci_device_id=A30_ID)
    other = replace(make_gpu(A100, 2), pci_device_id=0x20B510DE, pci_subsystem_id=0x153310DE)
    right = replace(make_gpu(A100, 3), pci_device_id=0x20B510DE, pci_subsystem_id=0x147F10DE)
    resolved = read_data("parted.yaml", make_inventory([a100, a30, other, right]), "filtered")
    assert [t.gpu_uuid for t in resolved.targets] == [uuid(0), uuid(1), uuid(3)]
    assert resolved.targets[1].instances == (TargetInstance("1g.6gb", ("1c.1g.6gb",)),) * 4
    assert not resolved.notes


def test_parted_mixed_profiles_share_gpu_instances(three: Inventory) -> None:
    mixed = read_data("parted.yaml", three, "mixed").targets[0].instances
    assert mixed is not None
    assert sorted(sorted(i.compute or ()) for i in mixed) == [
        ["1c.3g.40gb", "1c.3g.40gb"],
        ["1c.3g.40gb", "2c.3g.40gb"],
    ]


def test_parted_leaves_a_grouping_that_has_the_same_devices() -> None:
    """It compares devices by number; moving them together would touch what is right."""
    gpu = make_gpu(A100, 0, [("3g.40gb", 0), ("3g.40gb", 4)])
    parts = [(ComputeInstance(0, 0, 1, None, Placement(0, 1)),) for _ in gpu.instances]
    instances = tuple(
        replace(i, compute_instances=c) for i, c in zip(gpu.instances, parts, strict=True)
    )
    gpu = replace(gpu, instances=instances)
    text = (
        "version: v1\nmig-configs: {a: [{devices: all, mig-enabled: true, "
        "mig-devices: {1c.3g.40gb: 2}}]}"
    )
    targets = read(text, make_inventory([gpu])).targets
    assert not plan_layout([gpu], targets).steps


def test_parted_entries_that_contradict_each_other_are_refused(three: Inventory) -> None:
    """mig-parted itself would silently do the later one."""
    with pytest.raises(LayoutContradictionError) as caught:
        read_data("parted.yaml", three, "contradiction")
    error = caught.value
    assert error.error == (
        "web.yaml:33: mig-configs.contradiction[1]: GPU 1 (0000:0f:00.0) is also meant by line 30, "
        "which says otherwise"
    )
    assert "mig-parted would let the later entry win" in str(error.why)
    assert "device-filter" in str(error.hint)


def test_entries_that_say_the_same_of_a_gpu_are_told_only(three: Inventory) -> None:
    entry = "mig-enabled: true, mig-devices: {1g.10gb: 1, 2g.20gb: 2}"
    again = "mig-enabled: true, mig-devices: {2g.20gb: 2, 1g.10gb: 1, 3g.40gb: 0}"
    text = (
        "version: v1\nmig-configs:\n  a:\n"
        f"    - {{devices: [0, 1], {entry}}}\n    - {{devices: [1, 2], {again}}}\n"
    )
    resolved = read(text, three)
    assert len({frozenset(t.instances or ()) for t in resolved.targets}) == 1
    assert [t.gpu_uuid for t in resolved.targets] == [gpu.uuid for gpu in three.gpus]
    assert [note.partition(": GPU ")[2] for note in resolved.notes] == [
        "1 (0000:0f:00.0) is also meant by line 4, which says the same"
    ]


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("instances: [1g.10gb, 3g.40gb]", "instances: [3g.40gb, 1g.10gb]", True),
        ("instances: [1g.10gb, 1g.10gb]", "instances: [{profile: 1g.10gb, count: 2}]", True),
        ("mig: false", "mig: false", True),
        ("instances: [1g.10gb]", "mig: true", False),
        ("instances: []", "mig: true", False),
        ("instances: [1g.10gb]", "instances: [{profile: 1g.10gb, placement: 0:1}]", False),
        ("instances: [1g.10gb]", "instances: [{profile: 1g.10gb, compute: []}]", False),
    ],
)
def test_own_entries_overlap_only_where_they_agree(
    three: Inventory, first: str, second: str, same: bool
) -> None:
    text = f"{OWN}    - {{gpus: 1, {first}}}\n    - {{gpus: [0, 1], {second}}}\n"
    if same:
        assert ["says the same" in note for note in read(text, three).notes] == [True]
        return
    with pytest.raises(LayoutContradictionError, match="says otherwise"):
        read(text, three)


def test_parted_explicit_zero_is_as_if_it_were_not_there(three: Inventory) -> None:
    text = (
        "version: v1\nmig-configs: {a: [{devices: [0], mig-enabled: true, "
        "mig-devices: {1g.10gb: 0, 2g.20gb: 1}}]}"
    )
    assert [i.profile for i in read(text, three).targets[0].instances or ()] == ["2g.20gb"]


def test_boards_without_mig_are_passed_over_only_where_all_are_meant(three: Inventory) -> None:
    plain = replace(make_gpu(A100, 3, None), model="NVIDIA L40S", mig=MigMode(False), profiles=())
    mixed = make_inventory([*three.gpus, plain])
    resolved = read_data("parted.yaml", mixed, "all-enabled")
    assert len(resolved.targets) == 3
    assert "NVIDIA L40S has no MIG" in resolved.notes[0]
    named = "schema: vgpumgr/mig-layout/v1\nlayouts: {a: [{gpus: [3], mig: true}]}"
    with pytest.raises(MigNotSupportedError, match=r"web\.yaml:2: layouts\.a\[0\]"):
        read(named, mixed)
    with pytest.raises(MigNotSupportedError):
        read_data("parted.yaml", make_inventory([plain]), "all-enabled")


def test_a_lost_gpu_is_refused_by_name_and_by_all(three: Inventory) -> None:
    broken = make_inventory(three.gpus, [LostGpu(3, 15, "GPU is lost")])
    named = "schema: vgpumgr/mig-layout/v1\nlayouts: {a: [{gpus: [3], mig: true}]}"
    with pytest.raises(GpuLostError, match="GPU 3 is out of reach"):
        read(named, broken)
    with pytest.raises(GpuLostError):
        read_data("parted.yaml", broken, "all-enabled")
    assert read(named.replace("[3]", "[0]"), broken).targets


OWN = "schema: vgpumgr/mig-layout/v1\nlayouts:\n  a:\n"
PARTED = "version: v1\nmig-configs:\n  a:\n"
BAD: dict[str, tuple[str, type[VgpumgrError]]] = {
    "empty": ("", LayoutFileError),
    "only a comment": ("# nothing\n", LayoutFileError),
    "null": ("null\n", LayoutFileError),
    "a word": ("hello\n", LayoutFileError),
    "a list": ("- 1\n- 2\n", LayoutFileError),
    "not YAML": ("version: v1\nmig-configs: {a: [\n", LayoutFileError),
    "a tab": ("version: v1\nmig-configs:\n\ta: 1\n", LayoutFileError),
    "a control character": ("version: v1\x00\n", LayoutFileError),
    "two documents": ("version: v1\n---\nversion: v1\n", LayoutFileError),
    "another file": ("name: web\n", LayoutFileError),
    "a mistyped mark": ("version: v1\nmig-config: {}\n", LayoutFileError),
    "wrong version": ("version: v2\nmig-configs: {}\n", LayoutFileError),
    "no version": ("mig-configs: {a: []}\n", LayoutFileError),
    "wrong schema": ("schema: vgpumgr/mig-layout/v9\nlayouts: {}\n", LayoutFileError),
    "no layouts": ("schema: vgpumgr/mig-layout/v1\nlayouts: {}\n", LayoutFileError),
    "no configs": ("version: v1\nmig-configs: {}\n", LayoutFileError),
    "an empty layout": (PARTED + "    []\n", LayoutFileError),
    "a layout that is no list": (OWN + "    gpus: all\n", LayoutFileError),
    "duplicate label": (PARTED + "    []\n  a: []\n", LayoutFileError),
    "duplicate key": (OWN + "    - gpus: all\n      mig: on\n      gpus: [0]\n", LayoutFileError),
    "unknown key": (OWN + "    - gpus: all\n      instance: []\n", LayoutFileError),
    "unknown key of mig-parted": (
        PARTED + "    - devices: all\n      mig-enable: true\n",
        LayoutFileError,
    ),
    "no devices": (PARTED + "    - mig-enabled: true\n      mig-devices: {}\n", LayoutFileError),
    "enabled without devices": (
        PARTED + "    - devices: all\n      mig-enabled: true\n",
        LayoutFileError,
    ),
    "disabled with devices": (
        PARTED + "    - devices: all\n      mig-enabled: false\n      mig-devices: {1g.10gb: 1}\n",
        LayoutFileError,
    ),
    "all counts zero": (
        PARTED + "    - devices: all\n      mig-enabled: true\n      mig-devices: {1g.10gb: 0}\n",
        LayoutFileError,
    ),
    "negative count": (
        PARTED + "    - devices: all\n      mig-enabled: true\n      mig-devices: {1g.10gb: -1}\n",
        LayoutFileError,
    ),
    "count as text": (
        PARTED + '    - devices: all\n      mig-enabled: true\n      mig-devices: {1g.10gb: "2"}\n',
        LayoutFileError,
    ),
    "count as fraction": (
        PARTED + "    - devices: all\n      mig-enabled: true\n      mig-devices: {1g.10gb: 1.5}\n",
        LayoutFileError,
    ),
    "enabled as text": (
        PARTED + '    - devices: all\n      mig-enabled: "true"\n      mig-devices: {}\n',
        LayoutFileError,
    ),
    "devices as word": (
        PARTED + "    - devices: most\n      mig-enabled: false\n",
        LayoutFileError,
    ),
    "a filter that is none": (
        PARTED + "    - device-filter: A100\n      devices: all\n      mig-enabled: false\n",
        LayoutFileError,
    ),
    "a profile that is none": (OWN + "    - {gpus: 0, instances: [1g.lOgb]}\n", LayoutFileError),
    "a placement that is none": (
        OWN + "    - gpus: 0\n      instances: [{profile: 1g.10gb, placement: 4-5}]\n",
        LayoutFileError,
    ),
    "one place for two": (
        OWN + "    - gpus: 0\n      instances: [{profile: 1g.10gb, placement: 4:1, count: 2}]\n",
        LayoutFileError,
    ),
    "compute of another profile": (
        OWN + "    - gpus: 0\n      instances: [{profile: 3g.40gb, compute: [1c.4g.40gb]}]\n",
        LayoutFileError,
    ),
    "more compute than there is": (
        OWN + "    - gpus: 0\n      instances: [{profile: 3g.40gb, compute: [4c]}]\n",
        LayoutFileError,
    ),
    "compute twice": (
        OWN + "    - gpus: 0\n      instances: [{profile: 1c.3g.40gb, compute: [1c]}]\n",
        LayoutFileError,
    ),
    "instances without MIG": (
        OWN + "    - {gpus: 0, mig: false, instances: [1g.10gb]}\n",
        LayoutFileError,
    ),
    "nothing said": (OWN + "    - {gpus: 0}\n", LayoutFileError),
    "no GPU said": (OWN + "    - {mig: false}\n", LayoutFileError),
    "an alias of nothing": (OWN + "    - *other\n", LayoutFileError),
    "an alias of itself": (OWN + "    &x [*x]\n", LayoutFileError),
    "a merge of a word": (OWN + "    - {<<: 2, gpus: 0}\n", LayoutFileError),
    "a key that is a list": (OWN + "    - {[1]: 2}\n", LayoutFileError),
    "a checkpoint": ((DATA / "checkpoint.json").read_text(), LayoutFileError),
    "eight GPUs of three": (
        PARTED + "    - devices: [0, 1, 2, 3, 4, 5, 6, 7]\n      mig-enabled: false\n",
        GpuNotFoundError,
    ),
    "a GPU that is not here": (OWN + "    - {gpus: [0, 9], mig: false}\n", GpuNotFoundError),
    "a model that is not here": (OWN + "    - {model: H100, mig: false}\n", GpuNotFoundError),
    "a GPU twice": (OWN + "    - {gpus: [0, 07:00.0], mig: false}\n", LayoutContradictionError),
    "overlapping entries": (
        OWN + "    - {gpus: all, mig: true}\n    - gpus: [1]\n      mig: false\n",
        LayoutContradictionError,
    ),
    "a profile of another board": (
        OWN + "    - gpus: 0\n      instances:\n        - 1g.10gb\n        - 1g.5gb\n",
        ProfileNotFoundError,
    ),
    "a profile of another board in mig-parted": (
        PARTED + "    - devices: all\n      mig-enabled: true\n      mig-devices: {3g.20gb: 1}\n",
        ProfileNotFoundError,
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_refused_as_what_they_are(three: Inventory, case: str) -> None:
    text, kind = BAD[case]
    with pytest.raises(VgpumgrError) as caught:
        read(text, three)
    assert type(caught.value) is kind
    assert caught.value.error.startswith("web.yaml")


def test_what_bad_files_are_told(three: Inventory, golden: Callable[[str, str], None]) -> None:
    """All messages in one file, to be read at once."""
    lines = []
    for case, (text, _) in BAD.items():
        with pytest.raises(VgpumgrError) as caught:
            read(text, three)
        error = caught.value
        parts = [error.error, error.cause, error.why, error.hint]
        lines.append(f"{case}: " + " | ".join(p for p in parts if p))
    golden("layout-errors.txt", "\n".join(lines) + "\n")


def test_a_bomb_of_aliases_is_refused_before_it_grows(three: Inventory) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    with pytest.raises(LayoutFileError, match="too much for a layout file"):
        read("\n".join(lines), three)


def test_deep_and_large_files_are_refused(three: Inventory) -> None:
    with pytest.raises(LayoutFileError, match="nested too deep"):
        read("[" * 100_000, three)
    with pytest.raises(LayoutFileError, match="too large"):
        read("#" * (reader.MAX_BYTES + 1), three)
    with pytest.raises(LayoutFileError, match="too much"):
        read("- 1\n" * 200_000, three)


@pytest.mark.parametrize(
    "text",
    [
        OWN + f"    - gpus: 0\n      instances: [{', '.join(['1g.10gb'] * 20_000)}]\n",
        OWN + f"    - gpus: {'9' * 500_000}\n      mig: true\n",
        OWN + f"    - model: '{'*a' * 100_000}'\n      mig: true\n",
        f"version: v1\nmig-configs: {{{'x' * 500_000}: []}}\n",
        'version: v1\nmig-configs: {"\\e[31m": []}\n',
        "".join(f"verzion{n}: {n}\n" for n in range(20_000)),
    ],
    ids=["instances", "selector", "pattern", "label", "escape", "keys"],
)
def test_long_parts_are_refused_in_a_short_line(three: Inventory, text: str) -> None:
    with pytest.raises(LayoutFileError) as caught:
        read(text, three)
    assert caught.value.error.isprintable()
    assert len(str(caught.value)) < 300


def test_anchors_may_be_used_as_people_use_them(three: Inventory) -> None:
    text = "version: v1\nmig-configs:\n  a: &a\n    - devices: all\n      mig-enabled: false\n  b: *a\n"
    assert read(text, three, "b").targets == read(text, three, "a").targets


def test_merge_keys_bring_what_is_not_written(three: Inventory) -> None:
    text = (
        "version: v1\nmig-configs:\n  a:\n    - &x {devices: [0], mig-enabled: true, "
        "mig-devices: {1g.10gb: 1}}\n    - {<<: *x, devices: [1]}\n"
    )
    first, second = read(text, three).targets
    assert (first.instances, second.gpu_uuid) == (second.instances, uuid(1))


@st.composite
def edited(draw: st.DrawFn) -> str:
    """A good file with a few random edits: bytes, lines and words replaced, doubled or gone."""
    text = (
        DATA / draw(st.sampled_from(["own.yaml", "parted.yaml", "checkpoint.json"]))
    ).read_text()
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12)))
        other = draw(st.sampled_from(_SCRAPS) | st.text(max_size=4))
        text = text[:start] + other + text[end:]
        if draw(st.booleans()):
            lines = text.splitlines(keepends=True)
            lines.insert(draw(st.integers(0, len(lines))), draw(st.sampled_from(lines or [""])))
            text = "".join(lines)
    return text


_SCRAPS = (
    *("", "\n", " ", "\t", ":", "- ", "[", "]", "{", "}", "&a ", "*a", "!!int ", "<<: ", "? ", "|"),
    *("null", "true", "all", "-1", "1e9", "0x10", "99999999999999999999", "1g.10gb", "~", "'", '"'),
    *("\x00", "\ud7ff", "\ufeff", "%", "@", "---\n", "...\n", "2c.3g.40gb", ".inf", "12:30:45"),
)


@settings(max_examples=1500, deadline=None)
@given(text=edited())
def test_edited_files_are_read_or_refused_and_nothing_else(text: str) -> None:
    inventory = make_inventory([make_gpu(A100, 0), make_gpu(A30_NAME, 1), make_gpu(RTX, 2)])
    try:
        file = read_layout_file(text, "web.yaml")
    except VgpumgrError as error:
        assert isinstance(error, LayoutFileError)
        assert error.error.startswith("web.yaml")
        assert error.error.isprintable()
        assert len(error.error) < 500
    else:
        assert file.layouts
        for label in file.layouts:
            _try(lambda label=label: resolve(file, label, inventory))  # type: ignore[misc]
    saved = _try(lambda: read_checkpoint(read_root(text, "web.yaml")))
    if saved is not None:
        _try(lambda: make_targets(saved, inventory.gpus))


def _try(action: Callable[[], object]) -> object:
    try:
        return action()
    except VgpumgrError:
        return None


LAYOUTS = (
    None,
    (),
    (("3g.40gb", 4), ("1g.10gb", 3), ("1g.10gb", 0)),
    (("4g.40gb", 0), ("1g.20gb", 6), ("1g.10gb+me", 4)),
    (("7g.80gb", 0),),
)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_exported_and_read_back_changes_nothing(layout: Sequence[tuple[str, int]]) -> None:
    gpus = [make_gpu(A100, 0, layout), make_gpu(A100, 1, ()), make_gpu(A30_NAME, 2, None)]
    gpus = [replace(g, pci_device_id=A30_ID if g.index == 2 else A100_ID) for g in gpus]
    inventory = make_inventory(gpus)
    for data in (
        write_own(gpus, "current", placements=True),
        write_own(gpus, "current", placements=False),
        write_parted(gpus, "current"),
    ):
        resolved = read(yaml.safe_dump(data), inventory)
        assert len(resolved.targets) == 3
        assert not resolved.notes
        assert not plan_layout(gpus, resolved.targets).steps
        assert read(json.dumps(data), inventory).targets == resolved.targets
    saved = read_checkpoint(read_root(json.dumps(write_checkpoint(gpus)), "saved.json"))
    assert not plan_layout(gpus, make_targets(saved, gpus)).steps


@st.composite
def cut(draw: st.DrawFn) -> Gpu:
    """A GPU of any board with instances that it can have at once."""
    model = draw(st.sampled_from([A100, A30_NAME, RTX]))
    layout: list[tuple[str, int]] = []
    for _ in range(draw(st.integers(0, 7))):
        gpu = make_gpu(model, 0, layout)
        fits = [(str(p.name), f.start) for p in gpu.profiles for f in list_fits(gpu, p)]
        if not fits:
            break
        layout.append(draw(st.sampled_from(fits)))
    return make_gpu(model, 0, layout)


@settings(max_examples=150, deadline=None)
@given(gpu=cut())
def test_every_layout_that_is_exported_is_the_same_when_read(gpu: Gpu) -> None:
    inventory = make_inventory([gpu])
    for data in (
        write_own([gpu], "current", placements=True),
        write_own([gpu], "current", placements=False),
        write_parted([gpu], "current"),
    ):
        targets = read(yaml.safe_dump(data), inventory).targets
        assert not plan_layout([gpu], targets).steps
        assert not list_differences([gpu], targets)
    empty = replace(gpu, instances=())
    exact = read(yaml.safe_dump(write_own([gpu], "x", placements=True)), make_inventory([empty]))
    created = {
        (s.profile, s.placement)
        for s in plan_layout([empty], exact.targets).steps
        if s.kind is StepKind.GI_CREATE
    }
    assert created == {(str(i.profile), i.placement) for i in gpu.instances}


def test_export_in_mig_parted_has_no_zeros_and_filters_only_mixed_hosts() -> None:
    gpus = [make_gpu(A100, i, [("1g.10gb", 0), ("1g.10gb", 1)]) for i in range(2)]
    assert write_parted(gpus, "now") == {
        "version": "v1",
        "mig-configs": {
            "now": [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 2}}]
        },
    }


def test_checkpoints_are_read_as_mig_parted_writes_them() -> None:
    gpus = [make_gpu(A100, 0, ()), make_gpu(A100, 1, ())]
    saved = read_checkpoint(read_root((DATA / "checkpoint.json").read_text(), "c.json"))
    assert make_targets(saved, gpus) == (
        GpuTarget(
            uuid(0),
            True,
            (
                TargetInstance("3g.40gb", ("1c.3g.40gb", "2c.3g.40gb"), Placement(4, 4)),
                TargetInstance("1g.10gb", (), Placement(0, 1)),
            ),
        ),
        GpuTarget(uuid(1), False),
    )
    with pytest.raises(GpuNotFoundError):
        make_targets(saved, gpus[:1])


def test_formats_are_told_apart() -> None:
    assert read_layout_file((DATA / "own.yaml").read_text(), "f").dialect is Dialect.OWN
    assert read_layout_file((DATA / "parted.yaml").read_text(), "f").dialect is Dialect.MIG_PARTED
