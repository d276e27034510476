# SPDX-License-Identifier: Apache-2.0
"""What the simulated NVML says about the GPUs of each machine, against the machine's data."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from tests.sim import nvml_support as support
from vgpumgr.sim.machine import (
    MachineNotFoundError,
    MachineRunsError,
    SimulatorError,
    create_machine,
    destroy_machine,
    known_machines,
    list_machines,
    load_machine,
    machine_env,
    read_machine,
    running_machine,
)

pytestmark = pytest.mark.native


@pytest.fixture(scope="module")
def simstate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state library for clients."""
    return support.build_simstate(tmp_path_factory.mktemp("simstate"))


@pytest.fixture
def a30(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A running a30-pair."""
    with support.running("a30-pair", tmp_path, monkeypatch) as directory, support.nvml():
        yield directory


def test_the_machines_there_should_be() -> None:
    assert {"dgx-a100", "hgx-h100", "a30-pair", "rtx-pro-6000"} <= set(known_machines())


@pytest.mark.parametrize("name", support.GPU_MACHINES)
def test_identity(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = load_machine(name)
    with support.running(name, tmp_path, monkeypatch), support.nvml() as nvml:
        assert nvml.nvmlSystemGetDriverVersion() == machine.data.driver_version
        assert nvml.nvmlDeviceGetCount() == len(machine.gpus)
        for index, gpu in enumerate(machine.gpus):
            device = nvml.nvmlDeviceGetHandleByIndex(index)
            assert nvml.nvmlDeviceGetName(device) == gpu.board.name
            assert nvml.nvmlDeviceGetUUID(device) == gpu.uuid
            assert nvml.nvmlDeviceGetSerial(device) == gpu.serial
            assert nvml.nvmlDeviceGetMinorNumber(device) == index
            assert nvml.nvmlDeviceGetIndex(device) == index
            pci = nvml.nvmlDeviceGetPciInfo(device)
            assert pci.busId == f"0000{gpu.place.address}".upper()
            assert pci.busIdLegacy == gpu.place.address.upper()
            assert pci.pciDeviceId == gpu.board.device_id << 16 | 0x10DE
            memory = nvml.nvmlDeviceGetMemoryInfo(device, nvml.nvmlMemory_v2)
            assert memory.total == gpu.board.memory_mib << 20
            assert memory.total == memory.free + memory.used + memory.reserved
            for found in (
                nvml.nvmlDeviceGetHandleByUUID(gpu.uuid),
                nvml.nvmlDeviceGetHandleBySerial(gpu.serial),
                nvml.nvmlDeviceGetHandleByPciBusId(gpu.place.address),
                nvml.nvmlDeviceGetHandleByPciBusId(gpu.place.address.removeprefix("0000:")),
            ):
                assert nvml.nvmlDeviceGetIndex(found) == index


def test_compute_capability_and_architecture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = {
        "dgx-a100": ((8, 0), pynvml.NVML_DEVICE_ARCH_AMPERE),
        "hgx-h100": ((9, 0), pynvml.NVML_DEVICE_ARCH_HOPPER),
        "rtx-pro-6000": ((12, 0), pynvml.NVML_DEVICE_ARCH_BLACKWELL),
    }
    for name, (capability, architecture) in expected.items():
        with support.running(name, tmp_path, monkeypatch), support.nvml() as nvml:
            device = nvml.nvmlDeviceGetHandleByIndex(0)
            assert nvml.nvmlDeviceGetCudaComputeCapability(device) == capability
            assert nvml.nvmlDeviceGetArchitecture(device) == architecture


def test_what_is_not_there(a30: Path) -> None:
    assert a30
    with support.refused(pynvml.NVML_ERROR_INVALID_ARGUMENT):
        pynvml.nvmlDeviceGetHandleByIndex(2)
    for lookup, key in (
        (pynvml.nvmlDeviceGetHandleByUUID, "GPU-00000000-0000-0000-0000-000000000000"),
        (pynvml.nvmlDeviceGetHandleByPciBusId, "0000:ff:00.0"),
        (pynvml.nvmlDeviceGetHandleBySerial, "1"),
    ):
        with support.refused(pynvml.NVML_ERROR_NOT_FOUND):
            lookup(key)
    with support.refused(pynvml.NVML_ERROR_INVALID_ARGUMENT):
        pynvml.nvmlDeviceGetHandleByPciBusId("nonsense")
    name = pynvml.create_string_buffer(4)
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    answer = pynvml.nvmlLib.nvmlDeviceGetName(device, name, 4)
    assert answer == pynvml.NVML_ERROR_INSUFFICIENT_SIZE


def test_topology(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with support.running("dgx-a100", tmp_path, monkeypatch), support.nvml() as nvml:
        devices = [nvml.nvmlDeviceGetHandleByIndex(n) for n in range(8)]
        ancestor = nvml.nvmlDeviceGetTopologyCommonAncestor
        assert ancestor(devices[0], devices[1]) == nvml.NVML_TOPOLOGY_SINGLE
        assert ancestor(devices[0], devices[2]) == nvml.NVML_TOPOLOGY_SYSTEM
        words = nvml.nvmlDeviceGetCpuAffinity(devices[0], 4)
        cpus = [n for n in range(256) if words[n // 64] >> n % 64 & 1]
        assert cpus == [*range(48, 64), *range(176, 192)]
        assert list(nvml.nvmlDeviceGetMemoryAffinity(devices[0], 1, 0)) == [1 << 3]


def test_utilisation_follows_the_clients(a30: Path, simstate: Path) -> None:
    assert a30
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    assert pynvml.nvmlDeviceGetUtilizationRates(device).gpu == 0
    idle_power = pynvml.nvmlDeviceGetPowerUsage(device)
    client = support.Client(simstate, 0, memory=1 << 20).start(busy=True)
    try:
        deadline = time.monotonic() + 60
        while pynvml.nvmlDeviceGetUtilizationRates(device).gpu < 90:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert pynvml.nvmlDeviceGetPowerUsage(device) > idle_power
        other = pynvml.nvmlDeviceGetHandleByIndex(1)
        assert pynvml.nvmlDeviceGetUtilizationRates(other).gpu == 0
    finally:
        client.kill()
    while pynvml.nvmlDeviceGetUtilizationRates(device).gpu > 0:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_memory_of_all_clients_together_is_limited(a30: Path, simstate: Path) -> None:
    assert a30
    free = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).free
    with support.Client(simstate, 0, memory=free - (1 << 20)) as first:
        assert first.result == 0
        with support.Client(simstate, 0, memory=2 << 20) as second:
            assert second.result == -12  # ENOMEM
        first.kill()
        with support.Client(simstate, 0, memory=free) as third:
            assert third.result == 0


def test_a_client_needs_an_instance_in_mig_mode(a30: Path, simstate: Path) -> None:
    assert a30
    pynvml.nvmlDeviceSetMigMode(pynvml.nvmlDeviceGetHandleByIndex(0), 1)
    for gi, ci in ((-1, -1), (3, 0)):
        with support.Client(simstate, 0, gi, ci) as client:
            assert client.result == -19  # ENODEV


def test_life_of_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGPUMGR_SIM_ROOT", str(tmp_path / "new"))
    assert list_machines() == []
    directory = create_machine("a30-pair")
    assert list_machines() == ["a30-pair"]
    with pytest.raises(MachineRunsError):
        create_machine("a30-pair")
    assert sorted(path.name for path in directory.parent.iterdir()) == ["a30-pair"]
    assert machine_env("a30-pair")["VGPUMGR_SIM"] == str(directory)
    assert running_machine("a30-pair") == load_machine("a30-pair")
    destroy_machine("a30-pair")
    assert not directory.exists()
    for call in (destroy_machine, machine_env, running_machine, create_machine):
        with pytest.raises(MachineNotFoundError):
            call("no-such")
    with pytest.raises(MachineNotFoundError):
        create_machine("../a30-pair")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("numa_node", "numa", "numa"),
        ('"A30-24GB"', '"A31-24GB"', "A31-24GB"),
        ("0000:e2:00.0", "0000:21:00.0", "0000:21:00.0"),
        ("0000:e2:00.0", "e2:00.0", "address"),
        ("[[gpu]]", "[[gpus]]", "gpu"),
        ("description =", "description", "="),
    ],
)
def test_wrong_machine_files(tmp_path: Path, old: str, new: str, said: str) -> None:
    good = (support.ROOT / "vgpumgr/sim/machines/a30-pair.toml").read_text()
    assert old in good
    path = tmp_path / "wrong.toml"
    path.write_text(good.replace(old, new))
    with pytest.raises(SimulatorError) as caught:
        read_machine(path)
    assert caught.value.cause
    assert said in caught.value.cause


def test_pci_functions_of_all_machines_are_distinct_and_plausible() -> None:
    for name in known_machines():
        functions = load_machine(name).functions()
        assert len({f.address for f in functions}) == len(functions)
        assert all(f.driver == "nvidia" for f in functions if f.class_code == 0x030200)
