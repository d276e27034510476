# SPDX-License-Identifier: Apache-2.0
"""Virtual functions of AMD GPUs by AMD's host library: a simulated one, one that is none, and none at all."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import pytest

from tests.sim import nvml_support as support
from tests.support.fake_channels import FakeChannels
from tests.support.fake_hypervisor import FakeHypervisor
from tests.support.fake_nvml import FakeNvml
from vgpumgr.app.context import Parts, list_late_processes
from vgpumgr.app.operations.passthrough import PassthroughService
from vgpumgr.app.operations.restore import restore
from vgpumgr.engine.executor import Executor
from vgpumgr.errors import (
    HelperLateError,
    PciBusyError,
    PciNotFoundError,
    RolledBackError,
    SysfsPermissionError,
    VfCountError,
    VfQuotaError,
    VfUnsupportedError,
    VfVendorToolError,
)
from vgpumgr.host.clock import SystemClock
from vgpumgr.host.machine import Machine, find_machine
from vgpumgr.model.pci import PciAddress
from vgpumgr.passthrough.control import HostPci
from vgpumgr.passthrough.sriov.amd import AmdSmi
from vgpumgr.sim import lifecycle
from vgpumgr.state.store import Store

pytestmark = pytest.mark.native

GPU, FIXED, BARE = "0000:05:00.0", "0000:46:00.0", "0000:65:00.0"
LIBRARY = support.LIBRARY.with_name("libamdsmi.so")


@dataclass
class Host:
    """A running machine and the operations on it."""

    machine: Machine
    pci: HostPci
    parts: Parts
    service: PassthroughService

    def tell(self, file: str, line: str) -> None:
        """A request to the simulation."""
        lifecycle.send_request("amd-mi300", file, line)

    def count(self, address: str = GPU) -> int:
        """How many virtual functions there are, read without our own code."""
        return len(list((self.machine.root / "sys/bus/pci/devices" / address).glob("virtfn*")))


def make_host(machine: Machine) -> Host:
    """The operations on a machine, as after a start of the program."""
    pci = HostPci(machine, Store(machine.state_dir / "state.sqlite"))
    nvml = FakeNvml([])
    parts = Parts(
        nvml=nvml,
        read_inventory=nvml.read_inventory,
        hypervisor=FakeHypervisor([]),
        channels=FakeChannels(machine.run_dir / "channels"),
        store=Store(machine.state_dir / "state.sqlite"),
        clock=SystemClock(),
        state_dir=machine.state_dir,
        run_dir=machine.run_dir,
        boot_id=pci.boot_id,
        is_privileged=True,
        list_late=lambda: list_late_processes(machine),
        pci=pci,
    )
    return Host(machine, pci, parts, PassthroughService(parts))


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """The machine, with its files mounted."""
    monkeypatch.setenv("VGPUMGR_SIM_ROOT", str(tmp_path))
    _, snapshot = lifecycle.start("amd-mi300")
    if snapshot is not None:
        lifecycle.stop("amd-mi300")
        pytest.skip(f"no FUSE: {snapshot}")
    yield find_machine("amd-mi300")
    lifecycle.stop("amd-mi300")


@pytest.fixture
def host(running: Machine) -> Iterator[Host]:
    """It, and the operations on it."""
    made = make_host(running)
    with made.pci:
        yield made


def test_what_each_has_of_the_memory_is_told(host: Host) -> None:
    rows = {row.address: row for row in host.service.list_vfs().physicals}
    assert [rows[a].method for a in (GPU, FIXED, BARE)] == ["libamdsmi", "libamdsmi", None]
    assert "GIM" in (rows[BARE].why_not or "")
    assert (rows[GPU].total, rows[FIXED].total) == (8, 1), "as the library says"
    (vf,) = rows[GPU].vfs
    assert vf.framebuffer_bytes == (196608 - 320) << 20


def test_the_number_changes_without_going_through_none(host: Host) -> None:
    done = host.service.enable_vfs(selector=GPU, count=4)
    assert [step.kind for step in done.steps] == ["vf.change"]
    assert host.count() == 4
    (physical,) = host.service.list_vfs(selector=GPU).physicals
    assert [vf.framebuffer_bytes for vf in physical.vfs] == [49072 // 16 * 16 << 20] * 4
    assert host.service.enable_vfs(selector=GPU, count=4).steps == []
    host.service.bind(selector=physical.vfs[3].address)
    host.service.enable_vfs(selector=GPU, count=2)
    assert host.count() == 2
    assert host.pci.list_bindings() == (), "it is not there any more"
    host.service.enable_vfs(selector=GPU)
    assert host.count() == 8


def test_what_cannot_be_is_refused_and_nothing_is_changed(host: Host) -> None:
    for count in (0, 9):
        with pytest.raises(VfCountError):
            host.service.enable_vfs(selector=GPU, count=count)
    with pytest.raises(VfUnsupportedError, match="cannot remove all"):
        host.service.disable_vfs(selector=GPU)
    with pytest.raises(VfQuotaError):
        host.service.enable_vfs(selector=GPU, count=2, quotas={"vram_quota": 1})
    with pytest.raises(VfUnsupportedError, match="cannot make"):
        host.service.enable_vfs(selector=BARE, count=2)
    assert (host.count(), host.count(FIXED), host.count(BARE)) == (1, 1, 0)
    assert host.pci.list_vf_settings() == ()


def test_one_in_use_keeps_their_number(host: Host) -> None:
    vf = host.service.list_vfs(selector=GPU).physicals[0].vfs[0].address
    host.service.bind(selector=vf)
    host.tell("hold", f"{vf} vm7")
    library = AmdSmi(host.machine)
    try:
        with pytest.raises(PciBusyError, match="amdsmi_set_num_vf") as refused:
            library.set_vf_count(PciAddress.parse(GPU), 3)
        assert "AMD SMI 30" in (refused.value.cause or "")
    finally:
        library.close()
    assert host.count() == 1


def test_what_the_library_answers_is_told_as_what_it_means(host: Host) -> None:
    library = AmdSmi(host.machine)
    try:
        with pytest.raises(VfUnsupportedError, match=FIXED):
            library.set_vf_count(PciAddress.parse(FIXED), 1)
        with pytest.raises(PciNotFoundError):
            library.read_vfs(PciAddress.parse(BARE))
        host.tell("fault", "fail */.sim/gim EPERM 1")
        with pytest.raises(SysfsPermissionError):
            library.set_vf_count(PciAddress.parse(GPU), 2)
        host.tell("fault", "fail */.sim/gim EIO 1")
        with pytest.raises(VfVendorToolError) as failed:
            library.set_vf_count(PciAddress.parse(GPU), 2)
        assert "AMD SMI 7" in (failed.value.cause or "")
    finally:
        library.close()
    assert host.count() == 1


def test_success_without_effect_is_found_and_undone(host: Host) -> None:
    host.tell("fault", "ignore */.sim/gim 1")
    with pytest.raises(RolledBackError, match="was to have 5"):
        host.service.enable_vfs(selector=GPU, count=5)
    assert host.count() == 1
    assert host.pci.list_vf_settings() == ()
    host.service.enable_vfs(selector=GPU, count=5)
    assert host.count() == 5


def test_a_library_that_hangs_is_left_alone_and_named(host: Host) -> None:
    host.tell("fault", "hang */.sim/gim")
    library = AmdSmi(host.machine, change_timeout_s=1)
    with pytest.raises(HelperLateError):
        library.set_vf_count(PciAddress.parse(GPU), 2)
    assert any("amdsmi_set_num_vf" in stall for stall in host.pci.list_stalls())
    assert host.service.list_vfs().physicals, "looking goes on"
    host.tell("fault", "clear")
    end_s = time.monotonic() + 60
    while host.parts.list_late():
        assert time.monotonic() < end_s
        time.sleep(0.05)
    assert host.count() == 2


def test_a_boot_brings_their_number_back(host: Host) -> None:
    host.service.enable_vfs(selector=GPU, count=3, persist=True)
    lifecycle.reboot("amd-mi300")
    assert host.count() == 1
    after = make_host(host.machine)
    with after.pci:
        assert restore(after.parts, early=True).problems == []
        assert after.count() == 3
        assert restore(after.parts).done == []


class Crash(BaseException):
    """Nothing of ours catches it."""


def crash(*arguments: object) -> None:
    """A killed process undoes nothing."""
    error = arguments[-1]
    assert isinstance(error, BaseException)
    raise error


def test_a_change_that_a_crash_interrupted_is_undone(host: Host) -> None:
    with (
        mock.patch("vgpumgr.passthrough.sriov.amd.check_made", side_effect=Crash),
        mock.patch.object(Executor, "_fail", crash),
        pytest.raises(Crash),
    ):
        host.service.enable_vfs(selector=GPU, count=6)
    assert host.count() == 6, "the driver has done it"
    done = host.service.enable_vfs(selector="0000:26:00.0", count=2)
    assert "was undone" in done.notes[0]
    assert (host.count(), host.count("0000:26:00.0")) == (1, 2)
    assert [str(s.physical) for s in host.pci.list_vf_settings()] == ["0000:26:00.0"]


def with_library(machine: Machine, directory: Path) -> Machine:
    """The machine, with only what is in a directory as its libraries."""
    variables = {**machine.variables, "LD_LIBRARY_PATH": str(directory)}
    return replace(machine, variables=variables)


def test_without_the_library_the_drivers_parameter_is_named(
    running: Machine, tmp_path: Path
) -> None:
    host = make_host(with_library(running, tmp_path))
    with host.pci:
        with pytest.raises(VfVendorToolError) as refused:
            host.service.enable_vfs(selector=GPU, count=2)
        assert "libamdsmi.so" in (refused.value.cause or "")
        assert "vf_num" in (refused.value.hint or "")
        row = host.service.list_vfs(selector=GPU).physicals[0]
        assert (row.method, row.vfs[0].framebuffer_bytes) == (None, None)
    assert host.count() == 1


def test_the_library_of_hosts_is_told_from_rocms(running: Machine, tmp_path: Path) -> None:
    source = tmp_path / "rocm.c"
    source.write_text(
        "int amdsmi_init(unsigned long flags) { __builtin_trap(); return (int)flags; }\n"
    )
    library = tmp_path / "libamdsmi.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    host = make_host(with_library(running, tmp_path))
    with host.pci, pytest.raises(VfVendorToolError) as refused:
        host.service.enable_vfs(selector=GPU, count=2)
    assert "it is not that of the host driver" in (refused.value.cause or "")


def test_the_simulated_library_has_the_documented_functions_and_no_others() -> None:
    output = subprocess.run(
        ["nm", "-D", "--defined-only", LIBRARY], check=True, capture_output=True, text=True
    ).stdout
    assert {line.split()[-1] for line in output.splitlines()} == {
        "amdsmi_init", "amdsmi_shut_down", "amdsmi_get_processor_handles",
        "amdsmi_get_gpu_device_bdf", "amdsmi_get_num_vf", "amdsmi_get_vf_partition_info",
        "amdsmi_get_vf_bdf", "amdsmi_set_num_vf",
    }  # fmt: skip
