"""What an attach and a detach ask of the host: counted, so that it stays as little as it is.

Each question to libvirt is several round trips, each look at all GPUs a call to a driver.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.hostdev_rig import ask, make
from tests.support.service import Bench, make_bench
from vgpumgr.app.operations.layouts import LayoutService
from vgpumgr.errors import NvmlInUseError

_ASKED = {
    "hypervisor": (
        "list_vms",
        "read_vm",
        "read_again",
        "attach_device",
        "detach_device",
        "set_notes",
        "offers_iommufd",
    ),
    "pci": ("list_functions", "read_function", "list_users", "list_bars"),
    "vgpus": ("read_host", "create", "delete", "list_group_holders"),
    "store": ("save_attachment",),
}


_MIG_ON = """
version: v1
mig-configs:
  on:
    - devices: all
      mig-enabled: true
      mig-devices: {"1g.10gb": 1}
"""


class Counted:
    """A bench with running VMs, and how often each part of the host was asked for what."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self._counts: Counter[str] = Counter()
        for part, names in _ASKED.items():
            for name in names:
                self._count(getattr(bench, part), name)

    def _count(self, part: object, name: str) -> None:
        method: Callable[..., Any] = getattr(part, name)

        def counting(*arguments: Any) -> Any:
            self._counts[name] += 1
            return method(*arguments)

        setattr(part, name, counting)

    def take(self) -> dict[str, int]:
        """Since the last time; NVML's calls are among them."""
        counts = self._counts + Counter(self.bench.nvml.calls)
        self._counts.clear()
        self.bench.nvml.calls.clear()
        return dict(counts)


@pytest.fixture
def counted(tmp_path: Path) -> Counted:
    return Counted(make(tmp_path, running=True))


def test_a_vgpu_without_hardware(counted: Counted) -> None:
    counted.bench.service.attach(ask("mtty-2"))
    # planned on; before the definition is changed; read back there, and in the running machine
    reads = {"read_vm": 2, "read_again": 2, "read_host": 1}
    # that it begins, and that it is attached
    reads["save_attachment"] = 2
    assert counted.take() == {**reads, "attach_device": 2, "set_notes": 1, "create": 1}
    counted.bench.service.detach("vm02")
    # planned on; gone from the definition; gone from the running machine
    reads = {"read_vm": 3, "save_attachment": 1}
    assert counted.take() == {**reads, "detach_device": 2, "set_notes": 1, "delete": 1}


def test_the_state_file_and_the_disk(counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    """One connection for each operation, and as many syncs as there is to be safe before the next step."""
    counts: Counter[str] = Counter()

    def count(module: object, name: str) -> None:
        call = getattr(module, name)

        def counting(*arguments: Any, **named: Any) -> Any:
            counts[name] += 1
            return call(*arguments, **named)

        monkeypatch.setattr(module, name, counting)

    def take() -> dict[str, int]:
        taken = dict(counts)
        counts.clear()
        return taken

    counted.bench.service.attach(ask("mtty-2"))
    counted.bench.service.detach("vm02")
    for module, name in ((sqlite3, "connect"), (os, "fdatasync"), (os, "fsync")):
        count(module, name)
    counted.bench.service.attach(ask("mtty-2"))
    # begin, two for each of six steps, end
    assert take() == {"connect": 1, "fdatasync": 14}
    counted.bench.service.detach("vm02")
    assert take() == {"connect": 1, "fdatasync": 14}


def test_the_bus_and_nvml_are_asked_where_they_matter(counted: Counted) -> None:
    """The counter counts: naming a GPU, or a type that is not there, takes a look at all there is."""
    for request in (ask("mtty-2", gpu="mtty"), ask("mtty-2", vm="vm01")):
        counted.bench.service.attach(request, dry_run=True)
        matters = int(request.gpu is not None)
        counts = counted.take()
        assert counts.get("list_functions", 0) == matters
        assert counts.get("read_inventory", 0) == matters
    counted.bench.service.attach(ask("passthrough"), dry_run=True)
    counts = counted.take()
    looks = ("list_vms", "list_functions", "list_users", "read_inventory")
    assert [counts[name] for name in looks] == [1, 1, 1, 1]


@pytest.mark.parametrize("vfs", [0, 16])
def test_a_plan_for_a_layout_reads_the_gpus_once(tmp_path: Path, vfs: int) -> None:
    """Also one that turns MIG mode on, which asks ``/sys`` for virtual functions besides."""
    bench = make_bench(tmp_path)
    parts = replace(
        bench.service.parts,
        complete_inventory=lambda inventory: replace(
            inventory, gpus=tuple(replace(gpu, vfs_enabled=vfs) for gpu in inventory.gpus)
        ),
    )
    with (
        pytest.raises(NvmlInUseError, match="cannot turn on MIG mode of GPU")
        if vfs
        else nullcontext()
    ):
        steps = LayoutService(parts).plan(text=_MIG_ON, source="a.yaml").steps
        assert "mig.mode.enable" in {step.kind for step in steps}
    assert bench.nvml.calls.count("read_inventory") == 1
