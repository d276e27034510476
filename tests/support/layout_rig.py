"""A simulated machine with everything that operations on layouts need, in this process."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.sim.nvml_support import TOOL
from tests.support.clock import FakeClock
from tests.support.fake_channels import FakeChannels
from tests.support.fake_hypervisor import FakeHypervisor
from tests.support.inprocess_nvml import InProcessNvml
from tests.support.layout_changes import apply_layout
from tests.support.sim_machine import running
from vgpumgr.app.context import Parts
from vgpumgr.app.operations.layout_apply import LayoutOutcome
from vgpumgr.mig.layout.change import LayoutPlan
from vgpumgr.mig.layout.planner import plan_layout
from vgpumgr.mig.layout.target import GpuTarget, TargetInstance, list_owner_pins
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import Placement
from vgpumgr.nvml.protocol import Nvml
from vgpumgr.state.store import Store

Shape = tuple[tuple[str, Placement, tuple[Placement | None, ...]], ...]


@dataclass
class LayoutRig:
    """The machine and the application's parts on it."""

    directory: Path
    nvml: InProcessNvml
    parts: Parts

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """As NVML shows them now."""
        return self.nvml.read_inventory().gpus

    def plan(self, *wanted: str | TargetInstance, gpu: int = 0) -> LayoutPlan:
        """The plan for a GPU to have exactly these instances."""
        instances = tuple(TargetInstance(w) if isinstance(w, str) else w for w in wanted)
        gpus = self.gpus
        pins = list_owner_pins(self.parts.list_owners(self.parts.read_inventory().gpus))
        return plan_layout(gpus, [GpuTarget(gpus[gpu].uuid, True, instances)], pins)

    def apply(self, *wanted: str | TargetInstance, gpu: int = 0) -> LayoutOutcome:
        """Plans and applies."""
        return apply_layout(self.plan(*wanted, gpu=gpu), self.parts)

    def shape(self, gpu: int = 0) -> Shape:
        """The layout as NVML shows it: profiles and places, without ids and UUIDs."""
        return shape(self.gpus[gpu])

    def fault(self, call: str, *, nth: int = 1, code: int = 999, after: bool = False) -> None:
        """The n-th such call from now on fails; with ``after`` although it does what it should."""
        words = [call, str(nth), "1", str(code), "0", "-1"] + ["after"] * after
        subprocess.run([TOOL, "fault", self.directory, *words], check=True)

    def clear(self) -> None:
        """No more faults."""
        subprocess.run([TOOL, "clear", self.directory], check=True)

    def with_nvml(self, nvml: Nvml) -> LayoutRig:
        """The same machine seen through another client."""
        parts = replace(self.parts, nvml=nvml, read_inventory=nvml.read_inventory)
        return LayoutRig(self.directory, self.nvml, parts)


def shape(gpu: Gpu) -> Shape:
    """A GPU's layout without ids and UUIDs."""
    return tuple(
        (
            str(i.profile),
            i.placement,
            tuple(sorted((c.placement for c in i.compute_instances), key=str)),
        )
        for i in gpu.instances
    )


@contextmanager
def layout_rig(name: str, root: Path, patch: pytest.MonkeyPatch) -> Iterator[LayoutRig]:
    """Starts a machine below ``root``; its NVML is that of this process until the end."""
    with running(name, root, patch) as directory, closing(InProcessNvml()) as nvml:
        yield LayoutRig(directory, nvml, make_parts(directory, nvml))


def make_parts(directory: Path, nvml: Nvml, late: Sequence[str] = ()) -> Parts:
    """The application's parts with hypervisor and channels in memory."""
    return Parts(
        nvml=nvml,
        read_inventory=nvml.read_inventory,
        hypervisor=FakeHypervisor([]),
        channels=FakeChannels(directory),
        store=Store(directory / "host/state/state.sqlite"),
        clock=FakeClock(),
        state_dir=directory / "host/state",
        run_dir=directory / "host/run",
        boot_id="boot-1",
        is_privileged=True,
        list_late=lambda: late,
    )
