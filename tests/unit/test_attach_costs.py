"""What an attach and a detach ask of the host: counted, so that it stays as little as it is.

Each question to libvirt is several round trips, each look at all GPUs a call to a driver.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.hostdev_rig import ask, make
from tests.support.service import Bench

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
}


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
    assert counted.take() == {**reads, "attach_device": 2, "set_notes": 1, "create": 1}
    counted.bench.service.detach("vm02")
    # planned on; gone from the definition; gone from the running machine
    assert counted.take() == {"read_vm": 3, "detach_device": 2, "set_notes": 1, "delete": 1}


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
