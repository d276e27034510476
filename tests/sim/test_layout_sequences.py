"""Random sequences on the simulated NVML: attach, detach, layouts, other clients, reboots, faults at every call.

Whatever happens, no slice is lost or given twice, no busy slice is touched, and what is recorded is what NVML shows.
"""

from __future__ import annotations

import ctypes
import dataclasses
import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.sim.nvml_support import TOOL, build_simstate
from tests.support.domains import PC
from tests.support.fake_channels import FakeChannels
from tests.support.fake_hypervisor import FakeHypervisor, Machine
from tests.support.inprocess_nvml import InProcessNvml
from tests.support.layout_changes import apply_layout
from tests.support.layout_rig import LayoutRig, make_parts
from tests.support.places import short
from vgpumgr.app.operations.attachments import AttachmentService
from vgpumgr.app.operations.restore import restore
from vgpumgr.domain.domain import Domain
from vgpumgr.errors import VgpumgrError
from vgpumgr.mig.layout.target import TargetInstance
from vgpumgr.model.attachment import AttachmentState
from vgpumgr.model.mig import MigProfileName
from vgpumgr.model.request import AttachRequest
from vgpumgr.sim import machine as machines

# minutes of steps, more on a busy machine
pytestmark = [pytest.mark.native, pytest.mark.timeout(1800)]

EXAMPLES, STEPS, LEAST = 120, 50, 5_000
VMS = ("vm01", "vm02", "vm03", "vm04")
PROFILES = ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb", "1g.10gb+me", "1g.20gb")
TARGETS: tuple[tuple[str | TargetInstance, ...], ...] = (
    (),
    ("7g.80gb",),
    ("3g.40gb", "3g.40gb"),
    ("4g.40gb", "2g.20gb", "1g.10gb"),
    ("1g.10gb",) * 7,
    (TargetInstance("3g.40gb", ("1c.3g.40gb",) * 3), "2g.20gb"),
    (TargetInstance("7g.80gb", ("4c.7g.80gb", "2c.7g.80gb", "1c.7g.80gb")),),
    ("1g.20gb", "1g.20gb", "1g.10gb+me"),
)
CHANGES = (1, 2, 3, 4, 5)  # enum sim_call: all that change something
MACHINE = """
description = "One of each"
driver_version = "580.95.05"
cuda_version = "13.0"
"""
GPU = """
[[gpu]]
board = "{}"
address = "0000:{}:00.0"
numa_node = 0
iommu_group = {}
cpus = "0-15"
pcie_switch = {}
"""


class Fault(ctypes.Structure):
    """struct sim_fault of simstate.h."""

    _fields_ = (
        ("call", ctypes.c_uint),
        ("gpu", ctypes.c_int32),
        ("nth", ctypes.c_uint32),
        ("times", ctypes.c_uint32),
        ("code", ctypes.c_uint32),
        ("delay_ms", ctypes.c_uint32),
        ("after", ctypes.c_bool),
    )


counted = 0
scene: dict[str, Any] = {}


class Sequences(RuleBasedStateMachine):
    """One sequence of operations; the machine is rebooted and all is forgotten before it."""

    def __init__(self) -> None:
        super().__init__()
        self.directory: Path = scene["directory"]
        self.nvml: InProcessNvml = scene["nvml"]
        self.busy: dict[str, int] = {}
        self.fault: Fault | None = None
        self.busy_on: dict[str, str] = {}
        self.meddled = False
        subprocess.run([TOOL, "boot", self.directory], check=True)
        for slot in range(8):
            scene["lib"].sim_client_remove(scene["handle"], slot)
        shutil.rmtree(self.directory / "host", ignore_errors=True)
        self.hypervisor = FakeHypervisor(
            [
                Machine(vm, f"{n}" * 8 + "-1111-4111-8111-111111111111", rename(vm, n))
                for n, vm in enumerate(VMS)
            ]
        )
        self._start("boot-0")

    def _start(self, boot_id: str) -> None:
        parts = dataclasses.replace(
            make_parts(self.directory, self.nvml),
            hypervisor=self.hypervisor,
            channels=FakeChannels(self.directory),
            boot_id=boot_id,
        )
        self.rig = LayoutRig(self.directory, self.nvml, parts)
        self.service = AttachmentService(parts)

    @initialize()
    def count_begin(self) -> None:
        self.boots = 0

    @rule(gpu=st.integers(0, 1), wanted=st.sampled_from(TARGETS))
    def apply(self, gpu: int, wanted: tuple[str | TargetInstance, ...]) -> None:
        self._count()
        before = self._shapes()
        try:
            self._arm()
            plan = self.rig.plan(*wanted, gpu=gpu)
            apply_layout(plan, self.rig.parts)
        except VgpumgrError as error:
            self._clear()
            assert self._shapes() == before, error
        else:
            self._clear()
            names = [
                str(MigProfileName.parse(t if isinstance(t, str) else t.profile)) for t in wanted
            ]
            assert Counter(row[0] for row in self.rig.shape(gpu)) == Counter(names)
            sizes = sorted(s for t in wanted for s in as_target(t).compute_slices)
            there = [c.slices for i in self.rig.gpus[gpu].instances for c in i.compute_instances]
            assert sorted(there) == sizes

    @rule(vm=st.sampled_from(VMS), profile=st.sampled_from(PROFILES))
    def attach(self, vm: str, profile: str) -> None:
        self._count()
        before, had = self._shapes(), len(self._attached())
        settled = not self._halves()
        try:
            self._arm()
            self.service.attach(AttachRequest(vm, profile))
        except VgpumgrError as error:
            self._clear()
            if settled and not self._halves():
                assert self._shapes() == before, error
        else:
            self._clear()
            assert len(self._attached()) == had + 1

    @rule(vm=st.sampled_from(VMS))
    def detach(self, vm: str) -> None:
        self._count()
        mine = [r for r in self._attached() if r.vm_name == vm]
        # an instance of a layout is left to it
        places = {(r.gpu, r.placement) for r in mine if not r.is_taken}
        left = {str(r.mig.uuid) for r in mine if r.mig and r.is_taken}
        try:
            self._arm()
            self.service.detach(vm)
        except VgpumgrError:
            self._clear()
        else:
            self._clear()
            there = {(g.uuid, i.placement) for g in self.rig.gpus for i in g.instances}
            assert not places & there
            devices = {
                str(c.uuid) for g in self.rig.gpus for i in g.instances for c in i.compute_instances
            }
            assert left <= devices
            assert vm not in {r.vm_name for r in self._records()}

    @rule(
        call=st.sampled_from(CHANGES),
        nth=st.integers(1, 6),
        code=st.sampled_from([999, 10, 23, 19, 15]),
        after=st.booleans(),
    )
    def fault_a_change(self, call: int, nth: int, code: int, after: bool) -> None:
        self._count()
        self.fault = Fault(call, -1, nth, 1, 999 if after else code, 0, after)

    @rule(nth=st.integers(1, 400))
    def fault_a_read(self, nth: int) -> None:
        self._count()
        self.fault = Fault(0, -1, nth, 1, 10, 0, False)

    @rule(gpu=st.integers(0, 1), pick=st.integers(0, 50))
    def other_client_creates(self, gpu: int, pick: int) -> None:
        self._count()
        seen = self.rig.gpus[gpu]
        fits = [p for p in seen.profiles if p.remaining]
        if not seen.mig.current or not fits:
            return
        profile = fits[pick % len(fits)]
        for place in profile.placements:
            if not any(place.overlaps(i.placement) for i in seen.instances):
                made = self.nvml.create_gpu_instance(seen.uuid, profile.id, place)
                self.nvml.create_compute_instance(seen.uuid, made.id, made.slices)
                return

    @rule(gpu=st.integers(0, 1), pick=st.integers(0, 50))
    def other_client_destroys(self, gpu: int, pick: int) -> None:
        """Only what is nobody's: a slice of a VM is held by its worker, which is not here."""
        self._count()
        seen = self.rig.gpus[gpu]
        own = {(r.gpu, r.placement) for r in self._records()}
        idle = [
            i
            for i in seen.instances
            if (seen.uuid, i.placement) not in own
            and not any(str(c.uuid) in self.busy for c in i.compute_instances)
        ]
        if idle:
            self.meddled = True
            instance = idle[pick % len(idle)]
            for compute in instance.compute_instances:
                self.nvml.destroy_compute_instance(seen.uuid, instance.id, compute.id)
            self.nvml.destroy_gpu_instance(seen.uuid, instance.id)

    @rule(gpu=st.integers(0, 1), pick=st.integers(0, 50))
    def work_begins(self, gpu: int, pick: int) -> None:
        self._count()
        own = {(r.gpu, r.placement) for r in self._records()}
        seen = self.rig.gpus[gpu]
        rows = [
            (i, c)
            for i in seen.instances
            for c in i.compute_instances
            if str(c.uuid) not in self.busy and (seen.uuid, i.placement) not in own
        ]
        if rows and len(self.busy) < 6:
            instance, compute = rows[pick % len(rows)]
            slot = ctypes.c_int()
            place = (gpu, instance.id, compute.id)
            result = scene["lib"].sim_client_add(scene["handle"], *place, ctypes.byref(slot))
            assert result == 0
            self.busy[str(compute.uuid)] = slot.value
            self.busy_on[str(compute.uuid)] = str(seen.uuid)

    @rule(pick=st.integers(0, 50))
    def work_ends(self, pick: int) -> None:
        self._count()
        if self.busy:
            uuid = sorted(self.busy)[pick % len(self.busy)]
            scene["lib"].sim_client_remove(scene["handle"], self.busy.pop(uuid))
            del self.busy_on[uuid]

    @rule()
    def reboot(self) -> None:
        self._count()
        if self._halves():
            return  # their slices are for the next attach or detach to settle
        self.fault = None
        self.busy.clear()
        self.busy_on.clear()
        subprocess.run([TOOL, "boot", self.directory], check=True)
        self.boots += 1
        self._start(f"boot-{self.boots}")
        document = restore(self.rig.parts)
        channels: Any = self.rig.parts.channels
        # a part of a layout that others destroyed may have no room beside what was attached since
        assert self.meddled or document.problems == []
        assert not any("slice and channel" in text for text in document.problems)
        assert set(channels.running) == {r.id for r in self._attached()}

    @invariant()
    def nothing_is_lost_or_given_twice(self) -> None:
        for uuid in scene["uuids"]:
            instances = self.nvml.list_gpu_instances(uuid)
            there = {str(c.uuid) for i in instances for c in i.compute_instances}
            mine = [str(r.mig.uuid) for r in self._attached() if r.mig and r.gpu == uuid]
            assert len(set(mine)) == len(mine), "given twice"
            assert set(mine) <= there, "lost"
            busy = {u for u, g in self.busy_on.items() if g == uuid}
            assert busy <= there, "a busy slice was destroyed"
            taken = [i.placement for i in instances]
            assert not any(a.overlaps(b) for n, a in enumerate(taken) for b in taken[:n])

    def _count(self) -> None:
        global counted
        counted += 1

    def _arm(self) -> None:
        """The fault that was chosen is for the next operation alone."""
        if self.fault is not None:
            assert scene["lib"].sim_fault_set(scene["handle"], ctypes.byref(self.fault)) == 0
            self.fault = None

    def _clear(self) -> None:
        scene["lib"].sim_faults_clear(scene["handle"])

    def _records(self) -> tuple[Any, ...]:
        return tuple(self.rig.parts.store.list_attachments())

    def _attached(self) -> list[Any]:
        return [r for r in self._records() if r.state is AttachmentState.ATTACHED]

    def _halves(self) -> list[Any]:
        return [r for r in self._records() if r.state is not AttachmentState.ATTACHED]

    def _shapes(self) -> Any:
        return [
            (
                uuid,
                i.profile,
                i.placement,
                sorted((c.slices, str(c.placement)) for c in i.compute_instances),
            )
            for uuid in scene["uuids"]
            for i in self.nvml.list_gpu_instances(uuid)
        ]


def as_target(target: str | TargetInstance) -> TargetInstance:
    return TargetInstance(target) if isinstance(target, str) else target


def rename(vm: str, number: int) -> Domain:
    uuid = f"{number}" * 8 + "-1111-4111-8111-111111111111"
    return Domain.from_xml(PC).changed(name=vm, uuid=uuid)


def test_random_sequences_lose_nothing(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(tempfile.mkdtemp(dir=short()))
    monkeypatch.setenv("VGPUMGR_SIM_ROOT", str(root))
    data = root / "pair.toml"
    data.write_text(
        MACHINE
        + GPU.format("A100-SXM4-80GB", "07", 1, 1)
        + GPU.format("H100-80GB-HBM3", "0f", 2, 2)
    )
    directory = machines.create_machine("pair", data)
    for key, value in machines.machine_env("pair").items():
        monkeypatch.setenv(key, value)
    lib = ctypes.CDLL(str(build_simstate(tmp_path_factory.mktemp("simstate"))))
    handle = ctypes.c_void_p()
    assert lib.sim_open(None, ctypes.byref(handle)) == 0
    nvml = InProcessNvml()
    uuids = [gpu.uuid for gpu in nvml.read_inventory().gpus]
    scene.update(directory=directory, nvml=nvml, lib=lib, handle=handle, uuids=uuids)
    check = Sequences.TestCase()
    check.settings = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    try:
        check.runTest()
        assert counted >= LEAST
    finally:
        nvml.close()
        lib.sim_close(handle)
        machines.destroy_machine("pair")
        shutil.rmtree(root, ignore_errors=True)
