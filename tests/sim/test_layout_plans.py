"""Plans done on the simulated driver, whose rules are written in C and share nothing with ours."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.layout_oracle import A30, H100, RTX, make_oracle
from tests.support.layout_replay import count_room
from vgpumgr.host.machine import Machine, find_machine
from vgpumgr.mig.layout.change import MigStepSpec, StepKind
from vgpumgr.mig.layout.planner import plan_layout
from vgpumgr.mig.layout.target import GpuTarget, TargetInstance
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import MigProfileName
from vgpumgr.nvml.client import NvmlClient, read_machine_inventory
from vgpumgr.sim.fuse import write_snapshot
from vgpumgr.sim.machine import create_machine, load_machine
from vgpumgr.sim.pcibus import PciBus
from vgpumgr.sim.tree import MachineTree

pytestmark = pytest.mark.native

MACHINES = {"a30-pair": A30, "dgx-a100": "A100-80GB", "hgx-h100": H100, "rtx-pro-6000": RTX}
ROUNDS = 12


@pytest.fixture
def machine(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Machine:
    monkeypatch.setenv("VGPUMGR_SIM_ROOT", str(tmp_path))
    directory = create_machine(request.param)
    bus = PciBus.of(load_machine(request.param).functions())
    write_snapshot(MachineTree(bus, {}, {}).root(), directory / "root")
    return find_machine(request.param)


def read_gpu(nvml: NvmlClient, machine: Machine) -> Gpu:
    return read_machine_inventory(nvml, machine).gpus[-1]


def draw_target(draw: random.Random, gpu: Gpu, board: str) -> GpuTarget:
    """A target that the board of that table can have, with some compute instances cut."""
    wanted = draw.choice(list(make_oracle(board).targets()))
    instances = []
    for name in wanted:
        cut = MigProfileName.parse(name).slices >= 3 and draw.random() < 0.4
        instances.append(TargetInstance(name, (f"1c.{name}", f"2c.{name}") if cut else None))
    return GpuTarget(gpu.uuid, True, tuple(instances))


def do(nvml: NvmlClient, gpu: Gpu, steps: Sequence[MigStepSpec]) -> None:
    ids: dict[str | None, int] = {}
    for step in steps:
        id_ = ids[step.key] if step.instance_id is None and step.key in ids else step.instance_id
        if step.kind is StepKind.MODE_ENABLE:
            assert nvml.set_mig_mode(gpu.uuid, True).current
        elif step.kind is StepKind.GI_CREATE:
            profile = next(p for p in gpu.profiles if str(p.name) == step.profile)
            assert step.placement is not None
            assert step.key is not None
            made = nvml.create_gpu_instance(gpu.uuid, profile.id, step.placement)
            assert made.placement == step.placement
            ids[step.key] = made.id
        elif step.kind is StepKind.GI_DESTROY:
            assert id_ is not None
            nvml.destroy_gpu_instance(gpu.uuid, id_)
        elif step.kind is StepKind.CI_CREATE:
            assert id_ is not None
            assert step.placement is not None
            compute = nvml.create_compute_instance(gpu.uuid, id_, step.placement.size)
            assert compute.placement == step.placement, "where the driver puts it by itself"
        else:
            assert step.kind is StepKind.CI_DESTROY
            assert id_ is not None
            assert step.compute_instance_id is not None
            nvml.destroy_compute_instance(gpu.uuid, id_, step.compute_instance_id)


@pytest.mark.parametrize("machine", MACHINES, indirect=True)
def test_the_driver_accepts_every_step(machine: Machine) -> None:
    """From layout to layout; afterwards there is nothing left to do, and our count of what still
    fits is the driver's.
    """
    assert machine.name is not None
    draw = random.Random(machine.name)
    with NvmlClient(machine) as nvml:
        for _ in range(ROUNDS):
            gpu = read_gpu(nvml, machine)
            target = draw_target(draw, gpu, MACHINES[machine.name])
            do(nvml, gpu, plan_layout([gpu], [target]).steps)
            gpu = read_gpu(nvml, machine)
            assert plan_layout([gpu], [target]).steps == ()
            assert count_room(gpu) == {str(p.name): p.remaining for p in gpu.profiles}
