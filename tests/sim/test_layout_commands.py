"""``mig layout``, ``checkpoint``, ``restore``, ``enable`` and ``disable`` on simulated machines.

What there is afterwards is read by nvidia-ml-py itself, without any code of ours, and made by it
where our commands are to find it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.sim import nvml_support as support
from vgpumgr.cli.main import main

pytestmark = pytest.mark.native

Shape = tuple[int, int, int, tuple[int, ...]]
"""A GPU instance as NVML has it: profile's enumerator, start, size, slices of compute instances."""


@dataclass
class Machine:
    """A simulated machine, its NVML, and our command line."""

    directory: Path
    nvml: Any
    capsys: pytest.CaptureFixture[str]
    simstate: Path

    def run(self, *words: str | Path) -> tuple[int, str, str]:
        """One command line: exit code, output, errors."""
        self.capsys.readouterr()
        code = main([str(word) for word in words])
        out, err = self.capsys.readouterr()
        return code, out, err

    def ok(self, *words: str | Path) -> str:
        code, out, err = self.run(*words)
        assert code == 0, err
        return out

    def write(self, text: str, name: str = "web.yaml") -> Path:
        path = self.directory.parent / name
        path.write_text(text)
        return path

    def handle(self, gpu: int) -> Any:
        return self.nvml.nvmlDeviceGetHandleByIndex(gpu)

    def see(self, gpu: int) -> list[Shape] | None:
        """The layout of a GPU, by NVML alone; None while MIG mode is off."""
        n, handle = self.nvml, self.handle(gpu)
        if not n.nvmlDeviceGetMigMode(handle)[0]:
            return None
        return sorted(
            self._see_instance(instance, enum)
            for enum, info in self._list_profiles(handle)
            for instance in self._list_instances(handle, info)
        )

    def _list_profiles(self, handle: Any) -> Iterator[tuple[int, Any]]:
        n = self.nvml
        for enum in range(n.NVML_GPU_INSTANCE_PROFILE_COUNT):
            try:
                yield enum, n.nvmlDeviceGetGpuInstanceProfileInfo(handle, enum)
            except n.NVMLError:
                continue

    def _list_instances(self, handle: Any, info: Any) -> list[Any]:
        n = self.nvml
        found = (n.c_nvmlGpuInstance_t * max(1, info.instanceCount))()
        count = n.c_uint()
        function = n._nvmlGetFunctionPointer("nvmlDeviceGetGpuInstances")
        assert function(handle, info.id, found, n.byref(count)) == 0
        return list(found[: count.value])

    def _see_instance(self, instance: Any, enum: int) -> Shape:
        info = self.nvml.nvmlGpuInstanceGetInfo(instance)
        sizes: list[int] = []
        for size, profile in self._list_compute_profiles(instance):
            sizes += [size] * self._count_compute(instance, profile)
        return enum, info.placement.start, info.placement.size, tuple(sorted(sizes))

    def _list_compute_profiles(self, instance: Any) -> Iterator[tuple[int, Any]]:
        n = self.nvml
        for enum in range(n.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
            try:
                info = n.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, enum, 0)
            except n.NVMLError:
                continue
            yield info.sliceCount, info

    def _count_compute(self, instance: Any, info: Any) -> int:
        n = self.nvml
        found = (n.c_nvmlComputeInstance_t * max(1, info.instanceCount))()
        count = n.c_uint()
        function = n._nvmlGetFunctionPointer("nvmlGpuInstanceGetComputeInstances")
        assert function(instance, info.id, found, n.byref(count)) == 0
        return int(count.value)

    def see_uuids(self, gpu: int) -> set[str]:
        """UUIDs of the MIG devices, by index."""
        n, handle, found = self.nvml, self.handle(gpu), set()
        for index in range(n.nvmlDeviceGetMaxMigDeviceCount(handle)):
            try:
                found.add(n.nvmlDeviceGetUUID(n.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)))
            except n.NVMLError:
                continue
        return found

    def make(self, gpu: int, shapes: list[Shape]) -> None:
        """Makes a layout by NVML alone."""
        n = self.nvml
        assert n.nvmlDeviceSetMigMode(self.handle(gpu), 1) == 0
        handle = self.handle(gpu)
        for enum, start, size, computes in shapes:
            profile = n.nvmlDeviceGetGpuInstanceProfileInfo(handle, enum).id
            place = n.c_nvmlGpuInstancePlacement_t(start, size)
            instance = n.c_nvmlGpuInstance_t()
            function = n._nvmlGetFunctionPointer("nvmlDeviceCreateGpuInstanceWithPlacement")
            assert function(handle, profile, n.byref(place), n.byref(instance)) == 0
            for slices in sorted(computes, reverse=True):
                offered = dict(self._list_compute_profiles(instance))
                n.nvmlGpuInstanceCreateComputeInstance(instance, offered[slices].id)


@pytest.fixture(scope="session")
def simstate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return support.build_simstate(tmp_path_factory.mktemp("simstate"))


@pytest.fixture
def start(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    simstate: Path,
) -> Any:
    """Starts a machine and opens its NVML."""

    @contextmanager
    def start_machine(name: str) -> Iterator[Machine]:
        with support.running(name, tmp_path, monkeypatch) as directory, support.nvml() as nvml:
            monkeypatch.setenv("VGPUMGR_MACHINE", name)
            yield Machine(directory, nvml, capsys, simstate)

    return start_machine


@pytest.fixture
def dgx(start: Any) -> Iterator[Machine]:
    with start("dgx-a100") as machine:
        yield machine


OWN = "schema: vgpumgr/mig-layout/v1\nlayouts:\n  web:\n"
#: machine, layout of its GPU 1, and what NVML must show
CASES: dict[str, tuple[str, list[Shape]]] = {
    "dgx-a100": (
        """[{profile: 4g.40gb, compute: [2c, 1c]}, {profile: 1g.10gb+me, placement: "6:1"},
            {profile: 1g.20gb, placement: "4:2"}]""",
        [(3, 0, 4, (1, 2)), (7, 6, 1, (1,)), (9, 4, 2, (1,))],
    ),
    "hgx-h100": (
        "[3g.40gb, {profile: 1c.3g.40gb, placement: 0:4}]",
        [(2, 0, 4, (1,)), (2, 4, 4, (3,))],
    ),
    "a30-pair": (
        "[2g.12gb+me, {profile: 1g.6gb, placement: 0:1}, {profile: 1g.6gb, compute: []}]",
        [(0, 0, 1, (1,)), (0, 1, 1, ()), (8, 2, 2, (2,))],
    ),
    "rtx-pro-6000": (
        "[1g.24gb+me.all, {profile: 1g.24gb-me, count: 2}, {profile: 1g.24gb-me, placement: 0:3}]",
        [],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_applied_is_what_another_client_sees(start: Any, name: str) -> None:
    instances, expected = CASES[name]
    with start(name) as machine:
        file = machine.write(f"{OWN}    - gpus: 1\n      instances: {instances}\n")
        assert machine.run("mig", "layout", "assert", file)[0] == 3
        machine.ok("mig", "layout", "apply", file)
        seen = machine.see(1)
        assert seen is not None
        if expected:
            assert seen == expected
        else:
            assert sorted(shape[0] for shape in seen) == [13, 13, 13, 15]
            assert (13, 0, 3, (1,)) in seen
        assert machine.see(0) is None
        machine.ok("mig", "layout", "assert", file)
        uuids = machine.see_uuids(1)
        machine.ok("mig", "layout", "apply", file)
        assert machine.see_uuids(1) == uuids


#: what a client may have made, with compute instances of all kinds and places of no order
MADE: list[Shape] = [(0, 1, 1, (1,)), (1, 2, 2, (1, 1)), (2, 4, 4, (1, 2))]


@pytest.mark.parametrize("arguments", [(), ("--no-placements",), ("--format", "mig-parted")])
def test_what_another_client_made_is_what_export_says(
    dgx: Machine, arguments: tuple[str, ...]
) -> None:
    dgx.make(3, MADE)
    file = dgx.directory.parent / "now.yaml"
    dgx.ok("mig", "layout", "export", "--out", file, *arguments)
    code, out, _ = dgx.run("mig", "layout", "plan", file, "-o", "json")
    assert (code, json.loads(out)["steps"]) == (0, [])
    dgx.ok("mig", "layout", "assert", file)
    exported = yaml.safe_load(file.read_text())
    if not arguments:
        entry = next(e for e in exported["layouts"]["current"] if e["gpus"] == [3])
        assert entry["instances"] == [
            {"profile": "1g.10gb", "placement": entry["instances"][0]["placement"]},
            {"profile": "2g.20gb", "compute": ["1c", "1c"], "placement": "2:2"},
            {"profile": "3g.40gb", "compute": ["2c", "1c"], "placement": "4:4"},
        ]
    if "mig-parted" in arguments:
        entry = next(e for e in exported["mig-configs"]["current"] if e["devices"] == [3])
        assert entry["mig-devices"] == {
            "1g.10gb": 1,
            "1c.2g.20gb": 2,
            "1c.3g.40gb": 1,
            "2c.3g.40gb": 1,
        }


def test_a_change_keeps_what_it_can(dgx: Machine) -> None:
    """2x1g + 2g + 3g to 3x1g + 3g: one destroyed, one created, three devices with their UUIDs."""
    dgx.make(0, [(0, 0, 1, (1,)), (0, 1, 1, (1,)), (1, 2, 2, (2,)), (2, 4, 4, (3,))])
    before = dgx.see_uuids(0)
    file = dgx.write(
        "version: v1\nmig-configs:\n  x:\n    - devices: [0]\n      mig-enabled: true\n"
        "      mig-devices: {1g.10gb: 3, 3g.40gb: 1}\n"
    )
    code, out, _ = dgx.run("mig", "layout", "plan", file, "-o", "json")
    kinds = [step["kind"] for step in json.loads(out)["steps"]]
    assert code == 3
    assert kinds == ["mig.ci.destroy", "mig.gi.destroy", "mig.gi.create", "mig.ci.create"]
    code, _, err = dgx.run("mig", "layout", "apply", file)
    assert (code, "no terminal to ask on" in err) == (2, True)
    assert dgx.see_uuids(0) == before
    dgx.ok("mig", "layout", "apply", file, "--yes")
    assert len(dgx.see_uuids(0) & before) == 3
    assert [shape[0] for shape in dgx.see(0) or ()] == [0, 0, 0, 2]


def test_a_checkpoint_brings_back_the_same_places(dgx: Machine) -> None:
    dgx.make(0, MADE)
    before = [dgx.see(gpu) for gpu in range(8)]
    saved = dgx.directory.parent / "saved.json"
    dgx.ok("mig", "checkpoint", "--out", saved)
    assert dgx.run("mig", "restore", saved, "--dry-run")[0] == 0
    other = dgx.write(f"{OWN}    - {{gpus: [0, 1], instances: [7g.80gb]}}\n")
    dgx.ok("mig", "layout", "apply", other, "-y")
    assert dgx.see(1) == [(4, 0, 8, (7,))]
    code, told = dgx.run("mig", "restore", saved, "--dry-run")[:2]
    assert (code, "plan: " in told) == (0, True)
    dgx.ok("mig", "restore", saved, "--yes")
    assert [dgx.see(gpu) for gpu in range(8)] == before


def test_a_saved_plan_is_done_as_it_is_or_not_at_all(dgx: Machine) -> None:
    file = dgx.write(f"{OWN}    - {{gpus: 0, instances: [3g.40gb]}}\n")
    plan = dgx.directory.parent / "plan.json"
    assert dgx.run("mig", "layout", "plan", file, "--out", plan)[0] == 3
    dgx.make(0, [(0, 0, 1, (1,))])
    code, _, err = dgx.run("mig", "layout", "apply", plan, "-y")
    assert (code, "out of date" in err) == (6, True)
    assert dgx.see(0) == [(0, 0, 1, (1,))]
    assert dgx.run("mig", "layout", "plan", file, "--out", plan)[0] == 3
    edited = json.loads(plan.read_text())
    edited["steps"].pop()
    assert dgx.run("mig", "layout", "apply", dgx.write(json.dumps(edited), "e.json"), "-y")[0] == 6
    dgx.ok("mig", "layout", "apply", plan, "-y")
    assert dgx.see(0) == [(2, 4, 4, (3,))] or dgx.see(0) == [(2, 0, 4, (3,))]


def test_a_slice_in_use_stays_and_the_way_around_is_told(dgx: Machine) -> None:
    dgx.make(0, [(2, 0, 4, (3,)), (0, 4, 1, (1,))])
    instance = next(
        i
        for enum, info in dgx._list_profiles(dgx.handle(0))
        for i in dgx._list_instances(dgx.handle(0), info)
        if enum == 2
    )
    gi = dgx.nvml.nvmlGpuInstanceGetInfo(instance).id
    file = dgx.write(f"{OWN}    - {{gpus: 0, instances: [4g.40gb]}}\n")
    before = dgx.see(0)
    with support.Client(dgx.simstate, 0, gi, 0) as client:
        assert client.result == 0
        code, _, err = dgx.run("mig", "layout", "apply", file, "--yes")
        assert code == 6
        assert f"process {client.pid} (python" in err
        assert "web.yaml:4: layouts.web[0]" in err
        assert "possible only so: " in err
        assert "- 3g.40gb at 0:4" in err
        assert f"--allow-disruptive 0/{gi}" in err
        for name in (f"0/{gi}", str(client.pid)):
            code, out, _ = dgx.run(
                "mig", "layout", "plan", file, "--allow-disruptive", name, "-o", "json"
            )
            assert (code, json.loads(out)["disruptive"]) == (3, True)
        assert dgx.run("mig", "layout", "plan", file, "--allow-disruptive", "nobody")[0] == 5
        code, _, err = dgx.run("mig", "disable", "0", "--yes")
        assert (code, "stop or detach the holders, then repeat" in err) == (6, True), err
        assert "--allow-disruptive" not in err, "it has no such option"
    assert dgx.see(0) == before


def test_mode_of_a_gpu_in_use_is_left_pending(dgx: Machine) -> None:
    with support.Client(dgx.simstate, 2) as client:
        assert client.result == 0
        code, _, err = dgx.run("mig", "enable", "2")
        assert code == 8
        assert f"process {client.pid} (python" in err
        assert dgx.nvml.nvmlDeviceGetMigMode(dgx.handle(2)) == [0, 1]
    dgx.ok("mig", "enable", "2")
    assert dgx.nvml.nvmlDeviceGetMigMode(dgx.handle(2)) == [1, 1]
    dgx.make(2, [(0, 0, 1, (1,))])
    assert dgx.run("mig", "disable", "2")[0] == 2
    assert dgx.see(2) == [(0, 0, 1, (1,))]
    assert dgx.run("mig", "disable", "2", "--dry-run")[0] == 0
    dgx.ok("mig", "disable", "2", "--yes")
    assert dgx.see(2) is None
    assert "nothing to do" in dgx.ok("mig", "disable", "2")


def test_a_board_without_reset_keeps_no_request(start: Any) -> None:
    with start("hgx-h100") as machine:
        with support.Client(machine.simstate, 2) as client:
            code, _, err = machine.run("mig", "enable", "2")
            assert (code, f"process {client.pid} (python" in err) == (6, True)
            assert machine.nvml.nvmlDeviceGetMigMode(machine.handle(2)) == [0, 0]
        machine.ok("mig", "enable", "2")
        assert machine.see(2) == []


BAD = {
    "impossible": ("    - {gpus: 0, instances: [4g.40gb, {profile: 3g.40gb, count: 2}]}\n", 7),
    "too many": ("    - {gpus: 0, instances: [{profile: 1g.10gb, count: 8}]}\n", 7),
    "no such place": (
        "    - {gpus: 0, instances: [{profile: 3g.40gb, placement: 1:4}]}\n",
        7,
    ),
    "another board": ("    - {gpus: 0, instances: [1g.5gb]}\n", 5),
    "nine GPUs": ("    - {gpus: [0, 1, 2, 3, 4, 5, 6, 7, 8], instances: [1g.10gb]}\n", 5),
    "overlapping entries": (
        "    - {gpus: [0, 1], instances: [7g.80gb]}\n    - {gpus: all, model: A100, mig: false}\n",
        2,
    ),
    "a key twice": ("    - {gpus: 0, gpus: 1, instances: []}\n", 2),
    "a wrong type": ('    - {gpus: 0, instances: [{profile: 1g.10gb, count: "1"}]}\n', 2),
    "unknown key": ("    - {gpus: 0, instance: []}\n", 2),
    "empty": ("", 2),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_changes_nothing(dgx: Machine, case: str) -> None:
    text, expected = BAD[case]
    dgx.make(0, MADE)
    before = [dgx.see(gpu) for gpu in range(8)]
    file = dgx.write(OWN + text)
    for verb in (("plan",), ("apply", "--yes")):
        code, out, err = dgx.run("mig", "layout", *verb, file)
        assert (code, out) == (expected, "")
        assert "web.yaml" in err
    assert [dgx.see(gpu) for gpu in range(8)] == before


def test_overlapping_filters_of_mig_parted_change_nothing(dgx: Machine) -> None:
    entry = "mig-enabled: true, mig-devices: {1g.10gb: "
    file = dgx.write(
        "version: v1\nmig-configs:\n  x:\n"
        f"    - {{device-filter: ['0x20B210DE', '0x233010DE'], devices: all, {entry}7}}}}\n"
        f"    - {{device-filter: '0x20B210DE', devices: all, {entry}2}}}}\n"
    )
    for verb in (("plan",), ("assert",), ("apply", "--yes")):
        code, out, err = dgx.run("mig", "layout", *verb, file)
        assert (code, out) == (2, "")
        assert "web.yaml:5: mig-configs.x[1]" in err
        assert "also meant by line 4" in err
    assert [dgx.see(gpu) for gpu in range(8)] == [None] * 8


def test_hints_name_the_machine_of_the_line(dgx: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "try:     vgpumgr gpu list" in dgx.run("mig", "enable", "9")[2]
    monkeypatch.delenv("VGPUMGR_MACHINE")
    code, _, err = dgx.run("--machine", "dgx-a100", "mig", "enable", "9")
    assert (code, "try:     vgpumgr --machine dgx-a100 gpu list" in err) == (5, True)


def test_a_lost_gpu_is_told(dgx: Machine) -> None:
    support.set_gpu(dgx.directory, 1, "lost", 1)
    for words in (("mig", "enable", "1"), ("mig", "profiles", "--gpu", "1"), ("gpu", "show", "1")):
        code, _, err = dgx.run(*words)
        assert (code, "GPU 1 is out of reach" in err) == (1, True)
    file = dgx.write(f"{OWN}    - {{gpus: [0, 1], instances: [7g.80gb]}}\n")
    code, _, err = dgx.run("mig", "layout", "apply", file, "-y")
    assert (code, "GPU 1 is out of reach" in err) == (1, True)
    assert dgx.see(0) is None


def test_instances_are_created_beside_what_is_there(dgx: Machine) -> None:
    """Of enum and size: 0 is 1g.10gb, 1 is 2g.20gb, 2 is 3g.40gb."""
    dgx.ok("mig", "enable", "0")
    dgx.make(0, [(2, 0, 4, (1, 2))])
    there, uuids = dgx.see(0), dgx.see_uuids(0)
    assert there is not None
    plan = dgx.ok("mig", "create", "0", "1g.10gb", "--count", "2", "--dry-run")
    assert "plan: 2 to be created, 0 to be destroyed, 1 kept" in plan
    assert dgx.see(0) == there
    code, out, err = dgx.run("mig", "create", "0", "1g.10gb", "--count", "2")
    assert (code, "done: 2 created, 0 destroyed, 1 kept" in out) == (0, True), err
    made_now = [shape for shape in dgx.see(0) or () if shape not in there]
    assert [(enum, *rest) for enum, _, *rest in made_now] == [(0, 1, (1,))] * 2
    assert len(dgx.see(0) or ()) == 3
    # what was there is untouched, and what was made is named
    made = dgx.see_uuids(0) - uuids
    assert (uuids <= dgx.see_uuids(0), len(made), all(uuid in err for uuid in made)) == (
        True,
        2,
        True,
    )
    # by the id that nvidia-smi takes, at a place
    free = json.loads(dgx.ok("mig", "profiles", "--gpu", "0", "--filter", "id=19", "-o", "json"))[
        "profiles"
    ][0]["free_placements"]
    start = free[-1]["start"]
    dgx.ok("mig", "create", "0", "19", "--place", str(start))
    assert (0, start, 1, (1,)) in (dgx.see(0) or ())
    assert dgx.ok("mig", "list", "--gpu", "0", "-o", "name").count("MIG-") == 5


def test_instances_are_destroyed_by_every_name(dgx: Machine) -> None:
    dgx.make(0, [(0, 0, 1, (1,)), (0, 1, 1, ()), (1, 2, 2, (2,)), (2, 4, 4, (1, 2))])
    rows = json.loads(dgx.ok("mig", "list", "--gpu", "0", "-o", "json"))["instances"]
    by_place = {row["placement"]["start"]: row for row in rows}
    first, bare = by_place[0]["compute_instances"][0]["uuid"], f"0/{by_place[1]['id']}"
    parts = [c["uuid"] for c in by_place[4]["compute_instances"]]
    shown = dgx.ok("mig", "destroy", first[:12], bare, "--dry-run")
    assert "2 to be destroyed, 2 kept" in shown
    code, _, err = dgx.run("mig", "destroy", first, bare)
    assert (code, "VG214" in err) == (2, True)
    # a part of an instance does not go without the others
    code, _, err = dgx.run("mig", "destroy", parts[0], "--yes")
    assert (code, parts[1] in err, f"vgpumgr mig destroy 0/{by_place[4]['id']}" in err) == (
        2,
        True,
        True,
    )
    assert dgx.see(0) == [(0, 0, 1, (1,)), (0, 1, 1, ()), (1, 2, 2, (2,)), (2, 4, 4, (1, 2))]
    dgx.ok("mig", "destroy", first, bare, "--yes")
    assert dgx.see(0) == [(1, 2, 2, (2,)), (2, 4, 4, (1, 2))]
    dgx.ok("mig", "destroy", *parts, "--yes")
    assert dgx.see(0) == [(1, 2, 2, (2,))]
    assert "nothing to do" in dgx.ok("mig", "destroy", "--all", "1", "--yes")
    dgx.ok("mig", "destroy", "--all", "0", "--yes")
    assert dgx.see(0) == []


#: what is asked, the exit code, and what the error says
REFUSED = (
    ("create 0 9g.10gb", 5, "VG103", "near it"),
    ("create 0 1g", 2, "VG100", "it fits 1g.10gb, 1g.10gb+me, 1g.20gb"),
    ("create 0 1c.3g.40gb", 2, "VG100", "3g.40gb is its GPU instance"),
    ("create 0 3g.40gb --place 1", 7, "VG300", "its places on this board are 0:4, 4:4"),
    ("create 0 3g.40gb --place 4", 6, "VG104", "3g.40gb at 4:4"),
    ("create 0 3g.40gb --count 2", 6, "VG104", "what still fits: "),
    ("create 0 3g.40gb --count 2 --place 0", 2, "VG100", "one place is named"),
    ("create 0 3g.40gb --count 0", 2, "VG100", "0 is not from 1 to 16"),
    ("create 0 3g.40gb --place -1", 2, "VG100", "less than 0"),
    ("create 1 3g.40gb", 7, "VG105", "vgpumgr mig enable 1, then repeat"),
    ("create 99 3g.40gb", 5, "VG101", "GPUs 0 to 7"),
    ("destroy", 2, "VG100", "no GPU instance is named"),
    ("destroy 0", 5, "VG335", "--all 0"),
    ("destroy 0/9", 5, "VG335", "GPU 0 (0000:07:00.0) has 0/"),
    ("destroy 1/9", 5, "VG335", "has none"),
    ("destroy 99/1", 5, "VG101", "GPUs 0 to 7"),
    ("destroy MIG-", 5, "VG335", "it fits MIG-"),
    ("destroy MIG-00000000-0000", 5, "VG335", "name a MIG UUID"),
    ("destroy --all MIG-1", 2, "VG100", "is no GPU"),
)


def test_what_cannot_be_created_or_destroyed_says_why(dgx: Machine) -> None:
    dgx.make(0, [(2, 4, 4, (3,)), (0, 0, 1, (1,))])
    before = dgx.see(0)
    for line, code, identifier, words in REFUSED:
        found, _, err = dgx.run("mig", *line.split())
        assert (found, identifier in err, words in err) == (code, True, True), f"{line}: {err}"
    assert dgx.see(0) == before


def test_a_process_keeps_its_instance(dgx: Machine) -> None:
    dgx.make(0, [(0, 0, 1, (1,)), (0, 1, 1, (1,))])
    rows = json.loads(dgx.ok("mig", "list", "--gpu", "0", "-o", "json"))["instances"]
    used = f"0/{rows[0]['id']}"
    with support.Client(dgx.simstate, 0, rows[0]["id"], 0) as client:
        code, _, err = dgx.run("mig", "destroy", used, "--yes")
        assert (code, f"process {client.pid} (python" in err, used in err) == (6, True, True), err
        # all or none
        assert dgx.run("mig", "destroy", "--all", "0", "--yes")[0] == 6
        assert len(dgx.see(0) or ()) == 2
        dgx.ok("mig", "destroy", f"0/{rows[1]['id']}", "--yes")
        assert len(dgx.see(0) or ()) == 1
    dgx.ok("mig", "destroy", used, "--yes")
    assert dgx.see(0) == []


def test_several_leave_most_capacity_together(dgx: Machine) -> None:
    """Each at its best place alone would leave no place of a 3g.40gb."""
    dgx.ok("mig", "enable", "0")
    dgx.ok("mig", "create", "0", "2g.20gb", "--count", "2")
    dgx.ok("mig", "create", "0", "3g.40gb")
    assert len(dgx.see(0) or ()) == 3
