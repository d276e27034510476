"""``passthrough list`` and ``bind`` agree on every simulated machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.vgpu_machine import VgpuMachine, vgpu_machine
from vgpumgr.errors import VgpumgrError

pytestmark = pytest.mark.native


def list_disagreements(machine: VgpuMachine) -> list[str]:
    """Functions that the list calls bindable and bind refuses, or does only with a confirmation."""
    found = []
    for row in machine.call("list_passthrough").functions:
        if row.verdict != "bindable":
            continue
        try:
            plan = machine.call("bind_pci", selector=row.address, dry_run=True)
        except VgpumgrError as error:
            found.append(f"{row.address}: {error}")
        else:
            found += [f"{row.address}: {concern}" for concern in plan.concerns]
    return found


def find_row(machine: VgpuMachine, address: str) -> Any:
    """Its row."""
    return next(r for r in machine.call("list_passthrough").functions if r.address == address)


@pytest.mark.parametrize(
    "name", ["amd-mi300", "dgx-a100", "intel-flex", "vgpu-a100", "vgpu-t4", "workstation"]
)
def test_what_is_called_bindable_can_be_bound(tmp_path: Path, name: str) -> None:
    with vgpu_machine(name, tmp_path) as machine:
        assert list_disagreements(machine) == []


def cut_gpu(machine: VgpuMachine) -> str:
    """MIG instances that nobody uses."""
    machine.call("set_mig_mode", gpu="0", enabled=True)
    text = "schema: vgpumgr/mig-layout/v1\nlayouts: {a: [{gpus: 0, instances: [1g.5gb]}]}\n"
    machine.call("apply_layout", text=text, source="a.yaml")
    return "0000:41:00.0"


def make_functions(machine: VgpuMachine) -> str:
    """Virtual functions."""
    machine.call("enable_vfs", selector="0")
    return "0000:41:00.0"


def make_vgpu(machine: VgpuMachine) -> str:
    """A vGPU of ours on a virtual function."""
    make_functions(machine)
    return str(machine.call("create_vgpu", type="A100-4C", gpu="0").vgpu.parent)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (cut_gpu, "1 MIG instance of 0000:41:00.0 would go with its driver"),
        (make_functions, "16 virtual functions"),
        (make_vgpu, "mediated device"),
    ],
)
def test_what_bind_refuses_is_not_called_bindable(
    tmp_path: Path, make: Callable[[VgpuMachine], str], why: str
) -> None:
    with vgpu_machine("vgpu-a100", tmp_path) as machine:
        address = make(machine)
        assert list_disagreements(machine) == []
        row = find_row(machine, address)
        assert row.verdict == "in-use"
        assert why in " ".join((*row.blockers, row.why or ""))
        group = next(
            g
            for g in machine.call("list_pci_groups").groups
            if address in {member.address for member in g.members}
        )
        assert group.verdict == "in-use"
        with pytest.raises(VgpumgrError):
            machine.call("bind_pci", selector=address)
