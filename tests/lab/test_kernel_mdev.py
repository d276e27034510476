"""What vgpumgr relies on when it makes mediated devices, asserted of Debian's kernel and of the simulator.

The kernel's sample drivers stand for vendors' here: mtty's types share 24 ports, as vGPU types share a GPU.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lab.kernels import Kernel, RealKernel, SimulatedKernel, wait_for
from tests.sim.sim_tree import sim_files

BUS = "/sys/bus/mdev/devices"
A, B = (f"11111111-2222-3333-4444-55555555555{n}" for n in "ab")


@dataclass(frozen=True, slots=True)
class Scene:
    """A parent with two types on one capacity; ``most`` of the first make it full."""

    kernel: Kernel
    parent: str
    type: str
    other: str
    most: int

    def path(self, name: str, kind: str | None = None) -> str:
        """A file of a type."""
        directory = f"/sys/class/mdev_bus/{self.parent}/mdev_supported_types"
        return f"{directory}/{kind or self.type}/{name}"

    def create(self, uuid: str, kind: str | None = None) -> int:
        """Make a device; 0 or the error's number."""
        return self.kernel.write(self.path("create", kind), uuid)

    def remove(self, uuid: str) -> int:
        """Remove a device; 0 or the error's number."""
        return self.kernel.write(f"{BUS}/{uuid}/remove", 1)

    def available(self, kind: str | None = None) -> int:
        """How many more of a type there can be, as the driver says."""
        return int(self.kernel.read(self.path("available_instances", kind)))


@pytest.fixture(params=["kernel", "simulated"])
def scene(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scene]:
    if request.param == "simulated":
        with sim_files("vgpu-t4", tmp_path, monkeypatch) as files:
            kernel = SimulatedKernel(files)
            parent = kernel.list("/sys/class/mdev_bus")[0]
            yield Scene(kernel, parent, *simulated_types(kernel, parent))
        return
    real: RealKernel = request.getfixturevalue("real_kernel")
    yield Scene(real, "mtty", "mtty-2", "mtty-1", 12)
    real.release_all()
    for uuid in real.list(BUS):
        real.write(f"{BUS}/{uuid}/remove", 1)


def simulated_types(kernel: Kernel, parent: str) -> tuple[str, str, int]:
    """A type with several instances, another of the same size, and the first one's capacity."""
    base = f"/sys/class/mdev_bus/{parent}/mdev_supported_types"
    by_count: dict[int, list[str]] = {}
    for kind in kernel.list(base):
        count = int(kernel.read(f"{base}/{kind}/available_instances"))
        by_count.setdefault(count, []).append(kind)
    count, kinds = next((n, k) for n, k in sorted(by_count.items()) if n >= 2 and len(k) >= 2)
    return kinds[0], kinds[1], count


def test_a_type_says_what_it_is(scene: Scene) -> None:
    names = scene.kernel.list(scene.path("").rstrip("/"))
    assert {"available_instances", "create", "device_api", "devices", "name"} <= set(names)
    assert scene.kernel.read(scene.path("device_api")) == "vfio-pci"
    assert scene.available() == scene.most


def test_a_device_stands_where_the_kernel_puts_it(scene: Scene) -> None:
    assert scene.create(A) == 0
    assert scene.kernel.list(BUS) == [A]
    assert scene.kernel.link(f"{BUS}/{A}/mdev_type") == scene.type
    assert scene.kernel.list(scene.path("devices")) == [A]
    group = scene.kernel.link(f"{BUS}/{A}/iommu_group")
    assert scene.kernel.list(f"/sys/kernel/iommu_groups/{group}/devices") == [A]
    assert scene.kernel.link(f"{BUS}/{A}/driver") is not None
    assert scene.remove(A) == 0
    assert scene.kernel.list(BUS) == []
    assert scene.kernel.list(scene.path("devices")) == []


def test_a_device_takes_from_all_types_of_its_parent(scene: Scene) -> None:
    before = scene.available(scene.other)
    assert scene.create(A) == 0
    assert scene.available() == scene.most - 1
    assert scene.available(scene.other) < before
    assert scene.remove(A) == 0
    assert (scene.available(), scene.available(scene.other)) == (scene.most, before)


@pytest.mark.parametrize("wrong", ["1", "nonsense", A[:-1], A + "0", A.replace("-", "")])
def test_create_wants_a_uuid(scene: Scene, wrong: str) -> None:
    assert scene.create(wrong) == errno.EINVAL
    assert scene.kernel.list(BUS) == []


def test_a_uuid_is_given_once(scene: Scene) -> None:
    assert scene.create(A) == 0
    assert scene.create(A) == errno.EEXIST
    assert scene.create(A, scene.other) == errno.EEXIST
    assert scene.create(A.upper()) == errno.EEXIST
    assert scene.available() == scene.most - 1


def test_a_full_parent_refuses(scene: Scene) -> None:
    uuids = [f"{A[:-2]}{n:02x}" for n in range(scene.most)]
    assert [scene.create(uuid) for uuid in uuids] == [0] * scene.most
    assert scene.available() == 0
    assert scene.create(B) == errno.ENOSPC
    assert scene.kernel.list(BUS) == uuids


def test_remove_of_nothing(scene: Scene) -> None:
    assert scene.create(A) == 0
    assert scene.kernel.write(f"{BUS}/{A}/remove", 0) == 0
    assert scene.kernel.list(BUS) == [A], "a zero removes nothing"
    assert scene.kernel.write(f"{BUS}/{A}/remove", "yes") == errno.EINVAL
    assert scene.remove(A) == 0


def test_a_removed_device_that_is_held_is_a_ghost(scene: Scene) -> None:
    assert scene.create(A) == 0
    scene.kernel.hold(A)
    remover = scene.kernel.begin(f"{BUS}/{A}/remove", 1)
    assert not remover.finished()
    assert scene.kernel.list(BUS) == []
    assert scene.available() == scene.most - 1, "its capacity has not come back"
    assert scene.create(A) == errno.EEXIST
    assert scene.create(B) == 0, "others can still be made"
    scene.kernel.release(A)
    assert wait_for(remover)
    assert scene.kernel.list(BUS) == [B]
    assert scene.available() == scene.most - 1
    assert scene.remove(B) == 0
