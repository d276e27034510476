# SPDX-License-Identifier: Apache-2.0
"""A generated machine of the largest size, and a vGPU host's way through start, requests and reboot."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.sim_tree import SimFiles
from vgpumgr.sim import lifecycle
from vgpumgr.sim.machine import (
    SimulatorError,
    create_machine,
    destroy_machine,
    machine_text,
    read_machine,
)

pytestmark = pytest.mark.native

CLASS = "/sys/class/mdev_bus"


def test_sixteen_gpus_with_32_vfs_and_60_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VGPUMGR_SIM_ROOT", str(tmp_path / "sim"))
    data = tmp_path / "large.toml"
    data.write_text(machine_text(16, 32, "RTX-PRO-6000-SE", "mdev"))
    files = SimFiles("large", create_machine("large", data))
    files.write("/.sim/sriov", "-e ALL")
    parents = files.list(CLASS)
    assert len(parents) == 512
    types = f"{CLASS}/{parents[-1]}/mdev_supported_types"
    assert len(files.list(types)) >= 60
    for number, parent in enumerate(parents):
        uuid = f"00000000-0000-0000-0000-{number:012}"
        files.write(f"{CLASS}/{parent}/mdev_supported_types/nvidia-1303/create", uuid)
    assert len(files.list("/sys/bus/mdev/devices")) == 512
    assert files.read(f"{types}/nvidia-1303/available_instances") == "0"
    destroy_machine("large")


def test_a_machine_file_of_ones_own_through_requests_and_reboot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VGPUMGR_SIM_ROOT", str(tmp_path / "sim"))
    data = tmp_path / "mine.toml"
    data.write_text(machine_text(2, 4, "L40S", "vendor-vfio"))
    directory, snapshot = lifecycle.start("mine", data_file=data)
    assert snapshot is None
    try:
        vf = directory / "root/sys/bus/pci/devices/0000:10:00.4/nvidia/current_vgpu_type"
        lifecycle.send_request("mine", "sriov", "-e ALL")
        vf.write_text("1151")
        lifecycle.send_request("mine", "hold", "0000:10:00.4 vm1")
        with pytest.raises(PermissionError):
            vf.write_text("0")
        with pytest.raises(SimulatorError) as caught:
            lifecycle.send_request("mine", "hold", "0000:10:00.4 vm2")
        assert "busy" in str(caught.value.cause)
        lifecycle.reboot("mine")
        assert not vf.exists(), "neither VFs nor types survive"
        lifecycle.send_request("mine", "sriov", "-e ALL")
        assert vf.read_text() == "0\n"
    finally:
        lifecycle.stop("mine")


def test_a_generated_machine_without_vfs_and_a_board_that_was_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VGPUMGR_SIM_ROOT", str(tmp_path / "sim"))
    data = tmp_path / "lab.toml"
    text = machine_text(2, 0, "A100-SXM4-80GB", "mdev")
    data.write_text(text)
    first = read_machine(data).gpus[0]
    data.write_text(text.replace('10:00.0"', f'99:00.0"\nuuid = "{first.uuid}"'))
    moved = {gpu.uuid: gpu.place.address for gpu in read_machine(data).gpus}
    assert moved[first.uuid] == "0000:99:00.0"
    create_machine("lab", data)
    destroy_machine("lab")
