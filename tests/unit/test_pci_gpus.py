"""GPUs that only /sys knows: other vendors', or ones that the NVIDIA driver does not have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.boards import make_gpu
from tests.support.cli import Owners, make_parts
from tests.support.fake_nvml import FakeNvml
from vgpumgr.app.application import Application
from vgpumgr.cli.gpu import COLUMNS, render
from vgpumgr.cli.text import as_row
from vgpumgr.errors import GpuNotFoundError, NvmlMissingError
from vgpumgr.host.machine import Machine
from vgpumgr.host.pci_tree import name_pci_device
from vgpumgr.model.gpu import Inventory, LostGpu
from vgpumgr.nvml.client import list_pci_gpus, read_machine_inventory

FLEX, MI300X, H100 = "0000:03:00.0", "0000:26:00.0", "0000:3b:00.0"


def add_function(
    root: Path, address: str, vendor: int, device: int, code: int, **files: str
) -> Path:
    directory = root / "sys/bus/pci/devices" / address
    directory.mkdir(parents=True)
    values = {"vendor": f"0x{vendor:04x}", "device": f"0x{device:04x}", "class": f"0x{code:06x}"}
    for name, text in {**values, "numa_node": "-1", **files}.items():
        (directory / name).write_text(text + "\n")
    return directory


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """An Intel GPU with VFs, an AMD accelerator, an NVIDIA GPU at vfio-pci, and what is no GPU."""
    bar = "0x0000380000000000 0x0000380003ffffff 0x000000000014220c"
    flex = add_function(
        tmp_path, FLEX, 0x8086, 0x56C0, 0x030000,
        sriov_totalvfs="31", boot_vga="1", numa_node="1",
        resource="\n".join(["0x00000000fb000000 0x00000000fbffffff 0x0000000000140204", bar,
                            "0x0 0x0 0x0", "0x0000000000003000 0x000000000000303f 0x40101"]),
    )  # fmt: skip
    virtual = add_function(tmp_path, "0000:03:00.1", 0x8086, 0x56C0, 0x030000)
    (flex / "virtfn0").symlink_to("../0000:03:00.1")
    (virtual / "physfn").symlink_to("../" + FLEX)
    add_function(tmp_path, MI300X, 0x1002, 0x74A1, 0x120000)
    nvidia = add_function(tmp_path, H100, 0x10DE, 0x2330, 0x030200)
    drivers = tmp_path / "sys/bus/pci/drivers/vfio-pci"
    drivers.mkdir(parents=True)
    (nvidia / "driver").symlink_to("../../drivers/vfio-pci")
    add_function(tmp_path, "0000:01:00.0", 0x1B36, 0x0010, 0x010802)
    return Machine(None, tmp_path, tmp_path / "state", tmp_path / "run", "test:///default")


class NoNvml(FakeNvml):
    def read_inventory(self) -> Inventory:
        raise NvmlMissingError("cannot load NVML")


def call(machine: Machine, nvml: FakeNvml, operation: str, **params: Any) -> dict[str, Any]:
    document = getattr(Application(machine, make_parts(machine, nvml, Owners())), operation)(
        **params
    )
    data: dict[str, Any] = document.as_data()
    return data


def test_gpus_of_all_vendors_are_found_by_their_class(machine: Machine) -> None:
    found = {str(gpu.address): gpu for gpu in list_pci_gpus(machine)}
    assert list(found) == [FLEX, MI300X, H100], "no virtual function, no disk"
    flex = found[FLEX]
    assert flex.model == "Intel Data Center GPU Flex 170"
    assert flex.bar_bytes == (64 << 20, 16 << 20), "memory only, no I/O ports"
    assert (flex.vfs_enabled, flex.vfs_total, flex.is_boot_display) == (1, 31, True)
    assert found[MI300X].vfs_total is None
    assert found[H100].driver == "vfio-pci"


def test_without_nvml_the_others_are_all_there_is(machine: Machine) -> None:
    document = call(machine, NoNvml([]), "list_gpus")
    assert document["gpus"] == []
    assert [gpu["pci"] for gpu in document["others"]] == [FLEX, MI300X, H100]
    assert document["machine"]["driver_version"] is None


def test_without_nvml_and_without_any_gpu_the_reason_is_said(tmp_path: Path) -> None:
    machine = Machine(None, tmp_path, tmp_path, tmp_path, "test:///default")
    with pytest.raises(NvmlMissingError):
        read_machine_inventory(NoNvml([]), machine)


def test_a_gpu_that_nvml_speaks_about_is_not_listed_twice(machine: Machine) -> None:
    gpu = make_gpu(index=0)
    directory = machine.path(f"/sys/bus/pci/devices/{gpu.pci}")
    add_function(machine.root, str(gpu.pci), 0x10DE, 0x20B2, 0x030200)
    assert directory.is_dir()
    others = read_machine_inventory(FakeNvml([gpu]), machine).others
    assert gpu.pci not in [other.address for other in others]


def test_a_lost_gpu_is_not_taken_for_one_without_nvml(machine: Machine) -> None:
    class Losing(FakeNvml):
        def read_inventory(self) -> Inventory:
            return Inventory("1", "1", None, (), (LostGpu(0, 15, "GPU is lost"),))

    directory = add_function(machine.root, "0000:47:00.0", 0x10DE, 0x20B2, 0x030200)
    (directory / "driver").symlink_to("../../drivers/nvidia")
    others = read_machine_inventory(Losing([]), machine).others
    assert [str(other.address) for other in others] == [FLEX, MI300X, H100]


def test_one_gpu_by_its_address(machine: Machine) -> None:
    for selector in (FLEX, "03:00.0"):
        document = call(machine, NoNvml([]), "show_gpu", selector=selector)
        assert document["gpu"] is None
        lines = list(render(document))
        assert lines[0] == "GPU Intel Data Center GPU Flex 170"
        assert "  VFs           1 of 31 virtual functions" in lines
        assert "  display       the host's boot display" in lines
    with pytest.raises(GpuNotFoundError):
        call(machine, NoNvml([]), "show_gpu", selector="0000:01:00.0")


def test_rows_of_the_table(machine: Machine) -> None:
    document = call(machine, NoNvml([]), "list_gpus")
    rows = [as_row(other) for other in document["others"]]
    texts = [{column.name: column.text(row) for column in COLUMNS} for row in rows]
    assert [text["index"] for text in texts] == ["-", "-", "-"]
    assert texts[0]["slices"] == "1 of 31 VFs, 1 free"
    assert texts[2]["driver"] == "vfio-pci"
    assert {text["memory"] for text in texts} == {"-"}


def test_names() -> None:
    assert name_pci_device(0x1002, 0x74A1) == "AMD Instinct MI300X"
    assert name_pci_device(0x10DE, 0xFFF9) == "NVIDIA fff9"
    assert name_pci_device(0xFFF1, 0xFFF2) == "fff1 fff2"
