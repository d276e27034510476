# SPDX-License-Identifier: Apache-2.0
"""Random MIG operations on the simulated NVML, against a model that knows only the published tables.

The model shares nothing with the simulator but the data: it checks overlap by painting memory units and counts
capacity by trying every set of places.
"""

from __future__ import annotations

import itertools
import json
import tempfile
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pynvml
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.sim import nvml_support as support

pytestmark = pytest.mark.native

_DATA = support.ROOT / "vgpumgr/sim/data"
_CI_SLICES = {0: 1, 1: 2, 2: 3, 3: 4, 4: 7}  # NVML_COMPUTE_INSTANCE_PROFILE_* to slices
_CI_STARTS = {1: range(7), 2: (0, 2, 4), 3: (0, 4), 4: (0,), 7: (0,)}  # nvidia-smi mig -lcipp
_ENGINES = ("nvdec", "nvenc", "nvjpg", "ofa")


@dataclass
class Instance:
    """A GPU instance as the model sees it."""

    profile: dict[str, Any]
    start: int
    size: int
    handle: Any
    compute: list[tuple[int, int, int, Any]] = field(default_factory=list)
    """Profile, start, size and handle of each compute instance."""

    @property
    def units(self) -> set[int]:
        """The memory units it covers."""
        return set(range(self.start, self.start + self.size))


class Board:
    """The published facts of a board and the rules of the user guide."""

    def __init__(self, board: str) -> None:
        facts = tomllib.loads((_DATA / "boards.toml").read_text())[board]
        tables = json.loads((_DATA / "mig-profiles.json").read_text())
        self.compute_counts = tables["compute_instances"]["max_count_per_gi_slices"]
        table = tables["gpus"][facts["mig_table"]]
        self.profiles: list[dict[str, Any]] = table["profiles"]
        self.slices: int = table["compute_slices_total"]
        self.units: int = table["memory_axis_units"]
        for profile in self.profiles:
            decoders, jpegs, ofas = facts.get("media", {}).get(profile["name"], (None,) * 3)
            if decoders is not None:
                profile |= {"nvdec": decoders, "nvjpg": jpegs, "ofa": ofas}
        whole = max(self.profiles, key=lambda p: int(p["memory_slices"]))
        self.engines = {e: whole.get(e, 0) for e in _ENGINES}

    def fits(self, live: list[Instance], profile: dict[str, Any], start: int, size: int) -> bool:
        """Whether the instance may be added to those that live."""
        after = [(i.profile, i.units) for i in live]
        after.append((profile, set(range(start, start + size))))
        painted = list(itertools.chain.from_iterable(units for _, units in after))
        profiles = [p for p, _ in after]
        names = [p["name"] for p in profiles]
        return (
            len(painted) == len(set(painted))
            and max(painted) < self.units
            and sum(p["compute_slices"] for p in profiles) <= self.slices
            and names.count(profile["name"]) <= profile["max_instances"]
            and all(sum(p.get(e, 0) for p in profiles) <= n for e, n in self.engines.items())
            and (
                not any(name.endswith("+me.all") for name in names)
                or sum(not name.endswith("-me") for name in names) == 1
            )
        )

    def remaining(self, live: list[Instance], profile: dict[str, Any]) -> int:
        """How many more fit, by trying every set of places."""
        places = [(p["start"], p["size"]) for p in profile["placements"]]
        return max(
            len(chosen)
            for n in range(len(places) + 1)
            for chosen in itertools.combinations(places, n)
            if self._all_fit(live, profile, chosen)
        )

    def offers(self, instance: Instance, slices: int) -> bool:
        """Whether such a GPU instance has compute instances of so many slices at all."""
        return f"{slices}c" in self.compute_counts[str(instance.profile["compute_slices"])]

    def free_compute(self, instance: Instance, slices: int) -> list[int]:
        """Where a compute instance of so many slices may start now."""
        taken = {
            slice_
            for _, start, size, _ in instance.compute
            for slice_ in range(start, start + size)
        }
        end = instance.profile["compute_slices"] - slices
        starts = [start for start in _CI_STARTS[slices] if start <= end]
        return [start for start in starts if taken.isdisjoint(range(start, start + slices))]

    def _all_fit(
        self, live: list[Instance], profile: dict[str, Any], places: tuple[tuple[int, int], ...]
    ) -> bool:
        live = list(live)
        for start, size in places:
            if not self.fits(live, profile, start, size):
                return False
            live.append(Instance(profile, start, size, None))
        return True


class MigMachine(RuleBasedStateMachine):
    """Creates and destroys at random on GPU 0 of a machine."""

    machine: ClassVar[str]
    board: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.directory = tempfile.TemporaryDirectory()
        self.running = support.running(self.machine, Path(self.directory.name), self.patch)
        self.running.__enter__()
        self.library = support.nvml()
        self.library.__enter__()
        self.facts = Board(self.board)
        self.live: list[Instance] = []
        self.gpu: Any = pynvml.nvmlDeviceGetHandleByIndex(0)

    def teardown(self) -> None:
        """Stop the machine."""
        self.library.__exit__(None, None, None)
        self.running.__exit__(None, None, None)
        self.patch.undo()
        self.directory.cleanup()

    @initialize()
    def enable(self) -> None:
        """MIG mode on."""
        assert pynvml.nvmlDeviceSetMigMode(self.gpu, 1) == pynvml.NVML_SUCCESS

    @rule(data=st.data())
    def create_placed(self, data: st.DataObject) -> None:
        """At a place of the profile's own."""
        profile = data.draw(st.sampled_from(self.facts.profiles))
        place = data.draw(st.sampled_from(profile["placements"]))
        start, size = place["start"], place["size"]
        wanted = pynvml.byref(pynvml.c_nvmlGpuInstancePlacement_t(start, size))
        create = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement
        if not self.facts.fits(self.live, profile, start, size):
            with support.refused(pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES):
                create(self.gpu, profile["gi_profile_id"], wanted)
            return
        handle = create(self.gpu, profile["gi_profile_id"], wanted)
        self.live.append(Instance(profile, start, size, handle))

    @rule(data=st.data())
    def create_anywhere(self, data: st.DataObject) -> None:
        """Where the driver likes: somewhere that fits, and only refused if nothing does."""
        profile = data.draw(st.sampled_from(self.facts.profiles))
        places = [(p["start"], p["size"]) for p in profile["placements"]]
        free = [place for place in places if self.facts.fits(self.live, profile, *place)]
        if not free:
            with support.refused(pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES):
                pynvml.nvmlDeviceCreateGpuInstance(self.gpu, profile["gi_profile_id"])
            return
        handle = pynvml.nvmlDeviceCreateGpuInstance(self.gpu, profile["gi_profile_id"])
        at = pynvml.nvmlGpuInstanceGetInfo(handle).placement
        assert (at.start, at.size) in free
        self.live.append(Instance(profile, at.start, at.size, handle))

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def destroy(self, data: st.DataObject) -> None:
        """One instance; refused while it has compute instances."""
        instance = data.draw(st.sampled_from(self.live))
        if instance.compute:
            with support.refused(pynvml.NVML_ERROR_IN_USE):
                pynvml.nvmlGpuInstanceDestroy(instance.handle)
            return
        pynvml.nvmlGpuInstanceDestroy(instance.handle)
        self.live.remove(instance)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), profile=st.sampled_from(sorted(_CI_SLICES)))
    def create_compute(self, data: st.DataObject, profile: int) -> None:
        """A compute instance, which must not overlap another."""
        instance = data.draw(st.sampled_from(self.live))
        create = pynvml.nvmlGpuInstanceCreateComputeInstance
        size = _CI_SLICES[profile]
        if not self.facts.offers(instance, size):
            with support.refused(pynvml.NVML_ERROR_NOT_SUPPORTED):
                create(instance.handle, profile)
            return
        free = self.facts.free_compute(instance, size)
        if not free:
            with support.refused(pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES):
                create(instance.handle, profile)
            return
        handle = create(instance.handle, profile)
        at = pynvml.nvmlComputeInstanceGetInfo(handle).placement
        assert (at.start, at.size) == (min(free), size)
        instance.compute.append((profile, at.start, at.size, handle))

    @precondition(lambda self: any(i.compute for i in self.live))
    @rule(data=st.data())
    def destroy_compute(self, data: st.DataObject) -> None:
        """One compute instance."""
        instance = data.draw(st.sampled_from([i for i in self.live if i.compute]))
        entry = data.draw(st.sampled_from(instance.compute))
        pynvml.nvmlComputeInstanceDestroy(entry[3])
        instance.compute.remove(entry)

    @precondition(lambda self: self.live)
    @rule()
    def toggle_mode(self) -> None:
        """Off and on again: nothing survives."""
        for mode in (0, 1):
            assert pynvml.nvmlDeviceSetMigMode(self.gpu, mode) == pynvml.NVML_SUCCESS
        self.live.clear()

    @rule(data=st.data())
    def capacity(self, data: st.DataObject) -> None:
        """The remaining capacity of a profile is the exact packing."""
        profile = data.draw(st.sampled_from(self.facts.profiles))
        remaining = pynvml.nvmlDeviceGetGpuInstanceRemainingCapacity(
            self.gpu, profile["gi_profile_id"]
        )
        assert remaining == self.facts.remaining(self.live, profile)

    @invariant()
    def same_instances(self) -> None:
        """What NVML lists is what the model made."""
        if not pynvml.nvmlDeviceGetMigMode(self.gpu)[0]:
            return
        for instance in self.live:
            info = pynvml.nvmlGpuInstanceGetInfo(instance.handle)
            assert info.profileId == instance.profile["gi_profile_id"]
            assert (info.placement.start, info.placement.size) == (instance.start, instance.size)
        ids = {pynvml.nvmlGpuInstanceGetInfo(i.handle).id for i in self.live}
        assert len(ids) == len(self.live)
        found = 0
        for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(self.gpu)):
            try:
                pynvml.nvmlDeviceGetMigDeviceHandleByIndex(self.gpu, index)
                found += 1
            except pynvml.NVMLError_NotFound:
                break
        assert found == sum(len(i.compute) for i in self.live)


class _A100(MigMachine):
    machine, board = "dgx-a100", "A100-SXM4-80GB"


class _H100(MigMachine):
    machine, board = "hgx-h100", "H100-80GB-HBM3"


class _A30(MigMachine):
    machine, board = "a30-pair", "A30-24GB"


class _RtxPro6000(MigMachine):
    machine, board = "rtx-pro-6000", "RTX-PRO-6000-SE"


_SETTINGS = settings(max_examples=50, stateful_step_count=30, deadline=None)
TestA100 = _A100.TestCase
TestH100 = _H100.TestCase
TestA30 = _A30.TestCase
TestRtxPro6000 = _RtxPro6000.TestCase
TestA100.settings = TestH100.settings = TestA30.settings = TestRtxPro6000.settings = _SETTINGS


@pytest.mark.parametrize("machine", [_A100, _H100, _A30, _RtxPro6000])
def test_published_maximum_of_every_profile(machine: type[MigMachine]) -> None:
    facts = Board(machine.board)
    for profile in facts.profiles:
        assert facts.remaining([], profile) == profile["max_instances"], profile["name"]
