"""Layouts, MIG mode and lists where vGPUs live in GPU instances: refused before any call, and named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.vgpu_machine import UUID, VgpuMachine, vgpu_machine
from vgpumgr.cli.gpu import render
from vgpumgr.errors import LayoutBusyError, VgpumgrError

pytestmark = pytest.mark.native
GPU = "0000:41:00.0"
TYPES = f"sys/bus/pci/devices/{GPU[:-1]}7/mdev_supported_types"
LAYOUTS = """
schema: vgpumgr/mig-layout/v1
layouts:
  small: [{gpus: 0, instances: [1g.5gb, 1g.5gb, 2g.10gb]}]
  large: [{gpus: 0, instances: [3g.20gb, 3g.20gb]}]
  less: [{gpus: 0, instances: [1g.5gb, 1g.5gb]}]
  none: [{gpus: 0, instances: [], vgpus: {}}]
"""


@pytest.fixture
def a100(tmp_path: Path) -> Iterator[VgpuMachine]:
    """A GPU in MIG mode, with virtual functions."""
    with vgpu_machine("vgpu-a100", tmp_path) as machine:
        machine.call("set_mig_mode", gpu="0", enabled=True)
        machine.enable_functions(GPU)
        yield machine


def apply(machine: VgpuMachine, name: str, **asked: object) -> None:
    machine.call("apply_layout", text=LAYOUTS, source="l.yaml", name=name, **asked)


def see(machine: VgpuMachine) -> list[tuple[int, str, str | None]]:
    """The instances of the GPU with their ids, and who has them."""
    rows = machine.call("list_mig_instances", selector="0").instances
    assert {row.vm for row in rows} <= {None}, "a vGPU is no VM"
    assert {row.holder.kind for row in rows if row.holder} <= {"vgpu"}
    return sorted((row.id, str(row.profile), row.holder and row.holder.name) for row in rows)


def refuse(machine: VgpuMachine, name: str, **asked: object) -> VgpumgrError:
    """Applies what must be refused before anything is done."""
    before, journal = see(machine), machine.read_journal()
    with pytest.raises(LayoutBusyError) as refused:
        apply(machine, name, **asked)
    assert see(machine) == before
    assert machine.read_journal() == journal
    assert "vGPUs are in" in str(refused.value.why)
    return refused.value


def test_an_instance_that_was_made_for_a_vgpu(a100: VgpuMachine) -> None:
    vgpu = a100.call("create_vgpu", type="A100-2-10C", gpu="0").vgpu
    name = f"vGPU NVIDIA A100-2-10C {vgpu.uuid}"
    ((instance, _, owner),) = see(a100)
    assert owner == name
    error = refuse(a100, "large", allow=[f"0/{instance}"])
    assert error.held_by == (name,)
    assert "mdev delete" in str(error.hint)
    assert "--allow-disruptive" not in str(error.hint)
    with pytest.raises(LayoutBusyError):
        a100.call("set_mig_mode", gpu="0", enabled=False)
    # a layout that deletes the vGPU may take its instance
    a100.call("delete_vgpu", vgpu=vgpu.uuid)
    apply(a100, "large")
    assert [profile for _, profile, _ in see(a100)] == ["3g.20gb", "3g.20gb"]


def test_an_instance_of_a_layout_that_a_vgpu_was_put_into(a100: VgpuMachine) -> None:
    apply(a100, "small")
    vgpu = a100.call("create_vgpu", type="A100-2-10C", gpu="0").vgpu
    name = f"vGPU NVIDIA A100-2-10C {vgpu.uuid}"
    assert [owner for _, profile, owner in see(a100) if profile == "2g.10gb"] == [name]
    assert refuse(a100, "large").held_by == (name,)
    a100.forget()
    a100.call("delete_vgpu", vgpu=vgpu.uuid)
    apply(a100, "large")


def test_the_vgpu_of_another_program(a100: VgpuMachine) -> None:
    apply(a100, "small")
    uuid = UUID.format(1)
    a100.write(f"{TYPES}/nvidia-475/create", uuid)
    name = f"vGPU NVIDIA A100-2-10C {uuid}"
    assert [owner for _, profile, owner in see(a100) if profile == "2g.10gb"] == [name]
    assert refuse(a100, "less").held_by == (name,)


def test_a_driver_that_does_not_say_which_of_two(a100: VgpuMachine) -> None:
    apply(a100, "small")
    vgpu = a100.call("create_vgpu", type="A100-1-5C", gpu="0").vgpu
    name = f"vGPU NVIDIA A100-1-5C {vgpu.uuid}, which may be in it"
    assert [owner for _, profile, owner in see(a100) if profile == "1g.5gb"] == [name, name]
    lines = [line.strip() for line in render(a100.call("show_gpu", selector="0").as_data())]
    assert lines.count(name) == 2
    assert not [line for line in lines if "attachment" in line]
    apply(a100, "less")  # the third instance is nobody's
    assert refuse(a100, "large").held_by == (name,)


def test_a_layout_deletes_vgpus_and_their_instances_together(a100: VgpuMachine) -> None:
    a100.call("create_vgpu", type="A100-2-10C", gpu="0")
    apply(a100, "none")
    assert see(a100) == []
    assert a100.call("list_vgpus").vgpus == []


def test_destroy_names_the_vgpu_that_is_in_an_instance(a100: VgpuMachine) -> None:
    vgpu = a100.call("create_vgpu", type="A100-2-10C", gpu="0").vgpu
    ((instance, _, owner),) = see(a100)
    before, journal = see(a100), a100.read_journal()
    for asked in ({"instances": [f"0/{instance}"]}, {"gpus": ["0"]}):
        with pytest.raises(LayoutBusyError) as refused:
            a100.call("destroy_mig", **asked)
        assert refused.value.held_by == (f"{owner} (0/{instance}, 2g.10gb)",)
        assert refused.value.hint == f"vgpumgr mdev delete {vgpu.uuid}; then repeat"
    assert (see(a100), a100.read_journal()) == (before, journal)
    a100.call("create_mig", gpu="0", profile="1g.5gb")
    assert [profile for _, profile, _ in see(a100)] == ["2g.10gb", "1g.5gb"]
    a100.call("delete_vgpu", vgpu=vgpu.uuid)
    assert [profile for _, profile, _ in see(a100)] == ["1g.5gb"]
