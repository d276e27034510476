"""The whole lower half on simulated machines: real helper process, real libnvidia-ml.so.1 of the simulator."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sim import nvml_support as support
from tests.support.forked import run_vgpumgr
from vgpumgr.errors import (
    NoRoomError,
    NvmlInsufficientResourcesError,
    NvmlInUseError,
    NvmlNotFoundError,
    NvmlNotSupportedError,
)
from vgpumgr.host.machine import Machine, find_machine
from vgpumgr.mig.instances import destroy_instance, ensure_mig_mode
from vgpumgr.mig.placement import choose_placements, list_fits
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import GpuInstance, MigProfileName, Placement
from vgpumgr.nvml.client import NvmlClient, read_machine_inventory
from vgpumgr.sim.fuse import write_snapshot
from vgpumgr.sim.machine import create_machine, load_machine
from vgpumgr.sim.pcibus import PciBus
from vgpumgr.sim.tree import MachineTree

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.native

Start = Callable[[str], Machine]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Starts a simulated machine; its /sys is a snapshot, which is all that an inventory needs."""
    monkeypatch.setenv("VGPUMGR_SIM_ROOT", str(tmp_path))

    def start_machine(name: str) -> Machine:
        directory = create_machine(name)
        bus = PciBus.of(load_machine(name).functions())
        write_snapshot(MachineTree(bus, {}, {}).root(), directory / "root")
        return find_machine(name)

    return start_machine


@pytest.fixture
def dgx(start: Start) -> Machine:
    return start("dgx-a100")


@pytest.fixture
def nvml(dgx: Machine) -> Iterator[NvmlClient]:
    with NvmlClient(dgx) as client:
        yield client


def observe(nvml: NvmlClient, index: int = 0) -> Gpu:
    return nvml.read_inventory().gpus[index]


def carve(nvml: NvmlClient, name: str, index: int = 0) -> GpuInstance:
    """As attach does it: choose, turn MIG on if needed, create; with its compute instance."""
    wanted = MigProfileName.parse(name)
    choice = choose_placements([observe(nvml, index)], wanted, 1)[0].choice
    ensure_mig_mode(nvml, choice.gpu, True)
    uuid, profile = choice.gpu.uuid, choice.profile
    made = nvml.create_gpu_instance(uuid, profile.id, choice.placement)
    nvml.create_compute_instance(uuid, made.id, wanted.compute_slices or profile.slices)
    return next(i for i in nvml.list_gpu_instances(uuid) if i.id == made.id)


def destroy(nvml: NvmlClient, instance: GpuInstance, index: int = 0) -> None:
    destroy_instance(nvml, observe(nvml, index).uuid, instance.id)


def vgpumgr(*words: str) -> subprocess.CompletedProcess[str]:
    return run_vgpumgr(*words)


def ask(*words: str) -> Any:
    result = vgpumgr(*words, "-o", "json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("name", support.MIG_MACHINES)
def test_every_machine_is_listed_as_its_data_file_says(start: Start, name: str) -> None:
    machine = start(name)
    with NvmlClient(machine) as nvml:
        inventory = read_machine_inventory(nvml, machine)
    functions = {str(f.address): f for f in load_machine(name).functions()}
    assert inventory.gpus
    for index, gpu in enumerate(inventory.gpus):
        function = functions[str(gpu.pci)]
        assert gpu.index == index
        assert gpu.driver == function.driver == "nvidia"
        assert gpu.numa_node == function.numa_node
        assert gpu.iommu_group is not None
        assert gpu.iommu_group.number == function.iommu_group
        assert gpu.pci in gpu.iommu_group.members
        assert gpu.mig.supported
        assert gpu.profiles
        assert all(profile.placements for profile in gpu.profiles)


def test_the_command_line_sees_a_dgx(dgx: Machine) -> None:
    listing = ask("--machine", "dgx-a100", "gpu", "list")
    assert listing["machine"]["name"] == dgx.name
    assert [gpu["index"] for gpu in listing["gpus"]] == list(range(8))
    assert {gpu["model"] for gpu in listing["gpus"]} == {"NVIDIA A100-SXM4-80GB"}
    shown = ask("gpu", "show", "07:00.0", "--machine", "dgx-a100")
    assert [p["name"] for p in shown["profiles"]][:5] == [
        "1g.10gb",
        "2g.20gb",
        "3g.40gb",
        "4g.40gb",
        "7g.80gb",
    ]
    assert shown["gpu"]["numa_node"] == 3


def test_a_slice_lives_and_dies(nvml: NvmlClient) -> None:
    instance = carve(nvml, "1g.10gb")
    assert instance.placement == Placement(6, 1)
    uuid = instance.compute_instances[0].uuid
    assert uuid is not None
    (row,) = ask("mig", "list", "--machine", "dgx-a100")["instances"]
    assert (row["profile"], row["gpu_index"]) == ("1g.10gb", 0)
    assert row["compute_instances"][0]["uuid"] == uuid
    assert ask("gpu", "show", uuid, "--machine", "dgx-a100")["gpu"]["index"] == 0
    destroy(nvml, instance)
    destroy(nvml, instance)
    assert observe(nvml).instances == ()


def test_the_search_and_the_driver_agree_until_the_gpu_is_full(nvml: NvmlClient) -> None:
    """After each step: what our rules say fits is what the simulated driver counts as remaining."""
    for name in ("3g.40gb", "1g.10gb", "1g.20gb", "1g.10gb+me"):
        carve(nvml, name)
        gpu = observe(nvml)
        for profile in gpu.profiles:
            assert bool(list_fits(gpu, profile)) == bool(profile.remaining), profile.name
    with pytest.raises(NoRoomError):
        carve(nvml, "2g.20gb")


def test_a_smaller_compute_instance(nvml: NvmlClient) -> None:
    instance = carve(nvml, "1c.3g.40gb")
    assert [compute.slices for compute in instance.compute_instances] == [1]
    destroy(nvml, instance)


def test_nvmls_refusals_keep_code_and_words(nvml: NvmlClient) -> None:
    gpu = observe(nvml)
    instance = carve(nvml, "3g.40gb")
    with pytest.raises(NvmlInsufficientResourcesError, match="profile 9 at 4:4") as full:
        nvml.create_gpu_instance(gpu.uuid, 9, instance.placement)
    assert "(NVML 23)" in str(full.value.cause)
    with pytest.raises(NvmlInUseError) as busy:
        nvml.destroy_gpu_instance(gpu.uuid, instance.id)
    assert "(NVML 19)" in str(busy.value.cause)
    with pytest.raises(NvmlNotFoundError):
        nvml.destroy_gpu_instance(gpu.uuid, 77)
    with pytest.raises(NvmlNotSupportedError):
        nvml.create_gpu_instance(gpu.uuid, 4711, Placement(0, 1))
    destroy_instance(nvml, gpu.uuid, 77)


def test_mig_off_refuses_instances(nvml: NvmlClient) -> None:
    gpu = observe(nvml)
    assert nvml.list_gpu_instances(gpu.uuid) == ()
    with pytest.raises(NvmlNotSupportedError):
        nvml.create_gpu_instance(gpu.uuid, 19, Placement(0, 1))


def test_mig_mode_goes_on_and_off(nvml: NvmlClient) -> None:
    assert ensure_mig_mode(nvml, observe(nvml), True)
    assert observe(nvml).mig.current
    assert not ensure_mig_mode(nvml, observe(nvml), True)
    assert ensure_mig_mode(nvml, observe(nvml), False)
    assert not observe(nvml).mig.current


def test_two_clients_see_each_others_changes(dgx: Machine, nvml: NvmlClient) -> None:
    instance = carve(nvml, "2g.20gb", 3)
    with NvmlClient(dgx) as other:
        assert observe(other, 3).instances == (instance,)
        destroy(other, instance, 3)
    assert observe(nvml, 3).instances == ()


def test_a_lost_gpu_hides_no_other(dgx: Machine) -> None:
    tool = ROOT / "vgpumgr/_lib/bin/vgpumgr-simstate"
    directory = dgx.variables["VGPUMGR_SIM"]
    subprocess.run([tool, "set", directory, "2", "lost", "1"], check=True)
    result = vgpumgr("--machine", "dgx-a100", "gpu", "list", "-o", "name")
    assert result.returncode == 0
    assert len(result.stdout.split()) == 7
    assert "GPU 2 does not answer" in result.stderr
    assert "(NVML 15)" in result.stderr


def test_no_such_machine(start: Start) -> None:
    start("a30-pair")
    result = vgpumgr("--machine", "nowhere", "gpu", "list")
    assert result.returncode == 5
    assert "running: a30-pair" in result.stderr
