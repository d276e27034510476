"""The simulated PCI bus: the kernel's rules for binding and SR-IOV."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpumgr.sim.pcibus import Address, Function, PciBus, Sriov
from vgpumgr.sim.tree import Directory, File, Link, MachineTree

EXPECTED = {"ENODEV", "EBUSY", "ENOENT", "ERANGE", "EINVAL"}
GPU = Address.parse("0000:07:00.0")
NIC = Address.parse("0000:61:00.0")


def make_bus() -> PciBus:
    return PciBus.of(
        [
            Function(GPU, 0x10DE, 0x20B2, 0x10DE, 0x1463, 0x030200, 3, 12, "nvidia",
                     sriov=Sriov(20, 0x20B2, 4, 1, configurable=False, vf_driver="nvidia")),
            Function(NIC, 0x15B3, 0x101B, 0x15B3, 0x7, 0x020700, 1, 30, "mlx5_core",
                     sriov=Sriov(4, 0x101C, vf_driver="mlx5_core")),
        ]
    )  # fmt: skip


@contextmanager
def refused(number: int) -> Iterator[None]:
    with pytest.raises(OSError) as caught:
        yield
    assert caught.value.errno == number


def test_driver_override_decides_who_may_bind() -> None:
    bus = make_bus()
    with refused(errno.ENODEV):
        bus.bind("vfio-pci", GPU)
    bus.unbind("nvidia", GPU)
    with refused(errno.ENODEV):
        bus.bind("vfio-pci", GPU)
    bus.override(GPU, "vfio-pci")
    with refused(errno.ENODEV):
        bus.bind("nvidia", GPU)
    bus.probe(GPU)
    assert bus.state(GPU).driver == "vfio-pci"
    with refused(errno.ENODEV):
        bus.unbind("nvidia", GPU)


def test_vf_count_goes_through_zero_only() -> None:
    bus = make_bus()
    bus.set_numvfs(NIC, 2)
    assert NIC.plus(2) in bus.states
    with refused(errno.EBUSY):
        bus.set_numvfs(NIC, 4)
    bus.set_numvfs(NIC, 2)
    bus.set_numvfs(NIC, 0)
    with refused(errno.ERANGE):
        bus.set_numvfs(NIC, 5)
    assert sorted(bus.states) == [GPU, NIC]


def test_nvidia_has_no_vf_count_to_write() -> None:
    with refused(errno.ENOENT):
        make_bus().set_numvfs(GPU, 4)


def test_autoprobe_off_leaves_vfs_without_driver_in_groups_of_their_own() -> None:
    bus = make_bus()
    bus.set_autoprobe(NIC, False)
    bus.set_numvfs(NIC, 3)
    vfs = [s for s in bus.states.values() if s.function.physfn == NIC]
    assert [s.driver for s in vfs] == [None] * 3
    assert len({s.function.iommu_group for s in vfs} | {12, 30}) == 5


def test_unbinding_the_physical_function_takes_its_vfs_away() -> None:
    bus = make_bus()
    bus.set_numvfs(NIC, 4)
    bus.unbind("mlx5_core", NIC)
    assert sorted(bus.states) == [GPU, NIC]
    assert bus.state(NIC).numvfs == 0


@given(st.lists(st.tuples(st.sampled_from(["bind", "unbind", "override", "probe", "vfs"]),
                          st.sampled_from([GPU, NIC]), st.sampled_from(["nvidia", "vfio-pci", "mlx5_core", ""]),
                          st.integers(-1, 6)), max_size=30))  # fmt: skip
def test_whatever_is_written_the_tree_stays_whole(
    writes: list[tuple[str, Address, str, int]],
) -> None:
    bus = make_bus()
    tree = MachineTree(bus, {}, {1: "0-3"})
    for verb, address, driver, count in writes:
        try:
            if verb == "vfs":
                bus.set_numvfs(address, count)
            elif verb == "probe":
                bus.probe(address)
            else:
                getattr(bus, verb)(
                    *((address, driver) if verb == "override" else (driver, address))
                )
        except OSError as error:
            assert errno.errorcode[error.errno or 0] in EXPECTED
    for link in links(tree.root(), ""):
        tree.find(link)


def links(directory: Directory, path: str) -> list[str]:
    """Where every link below points to, as absolute paths."""
    found = []
    for name, node in directory.entries.items():
        here = f"{path}/{name}"
        if isinstance(node, Directory):
            found += links(node, here)
        elif isinstance(node, Link):
            parts = here.split("/")[:-1]
            for part in node.target.split("/"):
                parts = parts[:-1] if part == ".." else [*parts, part]
            found.append("/".join(parts))
    return found


def test_attributes_print_as_the_kernel_does() -> None:
    tree = MachineTree(make_bus(), {"driver/nvidia/version": "NVRM version: 1"}, {3: "48-63"})

    def read(path: str) -> str:
        node = tree.find(path)
        assert isinstance(node, File)
        assert node.read is not None
        return node.read().decode()

    base = "/sys/devices/pci0000:07/0000:07:00.0"
    assert read(f"{base}/vendor") == "0x10de\n"
    assert read(f"{base}/class") == "0x030200\n"
    assert read(f"{base}/local_cpulist") == "48-63\n"
    assert read(f"{base}/driver_override") == "(null)\n"
    assert len(read(f"{base}/resource").splitlines()) == 7
    assert "MODALIAS=pci:v000010DEd000020B2sv000010DEsd00001463bc03sc02i00\n" in read(
        f"{base}/uevent"
    )
    assert read("/proc/driver/nvidia/version") == "NVRM version: 1\n"
