"""The protocol of SR-IOV drivers: a vendor that exists nowhere else, with a program and quotas of its own."""

from __future__ import annotations

import re
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.fake_channels import FakeChannels
from tests.support.fake_hypervisor import FakeHypervisor
from tests.support.fake_nvml import FakeNvml
from vgpumgr.app.context import Parts, list_late_processes
from vgpumgr.app.operations.passthrough import PassthroughService
from vgpumgr.app.operations.restore import restore
from vgpumgr.errors import (
    HelperLateError,
    OutcomePendingError,
    RolledBackError,
    VfCountError,
    VfQuotaError,
    VfVendorToolError,
)
from vgpumgr.host.clock import SystemClock
from vgpumgr.host.machine import Machine
from vgpumgr.model.pci import Function, PciAddress, Quota, VfSupport
from vgpumgr.passthrough.control import HostPci
from vgpumgr.passthrough.sriov import DRIVERS, SrIovDriver, find_driver
from vgpumgr.passthrough.sriov.base import GenericSriov, SrIovHost, check_made, check_quota_names
from vgpumgr.sim import pcibus
from vgpumgr.sim.fuse import write_snapshot
from vgpumgr.sim.tree import MachineTree
from vgpumgr.state.store import STATE_FILE, Store

ROOT = Path(__file__).parents[2]
VENDOR = 0x5A5A
GPU, PLAIN = PciAddress(0, 0x21, 0, 0), PciAddress(0, 0x31, 0, 0)
_PROGRAM = "/usr/sbin/acme-vf"

#: makes or removes the links and directories that a kernel would have
_SCRIPT = """\
#!/bin/sh
devices=${0%/usr/sbin/acme-vf}/sys/bus/pci/devices
echo "$@" >>"${0%/usr/sbin/acme-vf}/calls"
[ ! -e "${0%/usr/sbin/acme-vf}/slow" ] || sleep 3
[ ! -e "${0%/usr/sbin/acme-vf}/broken" ] || { echo no firmware >&2; exit 1; }
function=$(readlink -f "$devices/$1")
rm -rf "$function"/virtfn* "$devices"/0000:21:00.[1-7]
number=0
while [ "$number" -lt "$2" ]; do
	vf=0000:21:00.$((number + 1))
	mkdir "$devices/$vf"
	echo 0x5a5a >"$devices/$vf/vendor"
	echo 0x0002 >"$devices/$vf/device"
	echo 0x030000 >"$devices/$vf/class"
	ln -s "../$1" "$devices/$vf/physfn"
	echo 1 >"$devices/$vf/slots"
	ln -s "../$vf" "$function/virtfn$number"
	number=$((number + 1))
done
"""


class AcmeSriov(SrIovDriver):
    """Even numbers only, by a program of its own; a quota ``slots`` on each virtual function itself."""

    program: str | None = "acme-vf"
    late_call = "acme-vf"
    restores_early = False

    def probe(self, physical: Function) -> bool:
        return physical.vendor_id == VENDOR

    def observe(self, host: SrIovHost, physical: Function) -> VfSupport:  # noqa: ARG002
        there = host.machine.path(_PROGRAM).exists()
        return VfSupport(4, None if there else "acme-vf is not there")

    def check_support(self, physical: Function, support: VfSupport) -> None:
        if support.missing:
            raise VfVendorToolError(f"no acme-vf for {physical.address}", why=support.missing)

    def check_count(self, physical: Function, count: int, total: int) -> None:  # noqa: ARG002
        if count % 2:
            raise VfCountError(f"{physical.address} cannot have {count}", why="they come in pairs")

    def enable(self, host: SrIovHost, physical: PciAddress, count: int) -> None:
        complaint = host.changes.run_program(
            _PROGRAM, [str(physical), str(count)], 1.0, repeat_on="never said"
        )
        if complaint is not None:
            raise VfVendorToolError("acme-vf failed", cause=complaint)
        check_made(host, physical, count)

    def list_quotas(
        self, host: SrIovHost, physical: PciAddress, count: int
    ) -> Sequence[Mapping[str, str]]:
        vfs = host.read_function(physical).vfs[:count]
        said = [host.changes.read_attributes(vf, ["slots"])[0] for vf in vfs]
        return [{"slots": text} if text else {} for text in said]

    def check_quotas(
        self,
        host: SrIovHost,  # noqa: ARG002
        physical: PciAddress,
        values: Sequence[Quota],
    ) -> None:
        check_quota_names(physical, 0, ["slots"], values)

    def write_quotas(
        self,
        host: SrIovHost,
        physical: PciAddress,
        indexes: Sequence[int],
        values: Sequence[Quota],
    ) -> None:
        vfs = host.read_function(physical).vfs
        for index in indexes:
            pairs = [(name, str(value)) for name, value in values]
            host.changes.write_attributes(vfs[index], pairs)


class Host:
    """A machine with a GPU of the vendor and one of a vendor without a driver of its own."""

    def __init__(self, root: Path, state: Path) -> None:
        self.root = root
        self.machine = Machine("acme", root, state, state / "run", "test:///default")
        self.store = Store(state / STATE_FILE, "boot")
        self.pci = HostPci(self.machine, self.store)
        nvml = FakeNvml([])
        self.parts = Parts(
            nvml=nvml,
            read_inventory=nvml.read_inventory,
            hypervisor=FakeHypervisor([]),
            channels=FakeChannels(state / "channels"),
            store=self.store,
            clock=SystemClock(),
            state_dir=state,
            run_dir=state / "run",
            boot_id=self.pci.boot_id,
            is_privileged=True,
            list_late=lambda: list_late_processes(self.machine),
            pci=self.pci,
        )
        self.service = PassthroughService(self.parts)

    def calls(self) -> list[str]:
        """How the vendor's program was called, without the calls made before."""
        path = self.root / "calls"
        said = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return said

    def slots(self) -> list[str]:
        """The quota of each virtual function, read without our own code."""
        (row,) = self.service.list_vfs(selector=str(GPU)).physicals
        devices = self.root / "sys/bus/pci/devices"
        return [(devices / vf.address / "slots").read_text().strip() for vf in row.vfs]

    def boot(self, number: int) -> None:
        """A boot: no virtual functions, another id."""
        devices = self.root / "sys/bus/pci/devices"
        for link in (devices / str(GPU)).glob("virtfn*"):
            link.unlink()
        path = self.root / "proc/sys/kernel/random/boot_id"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"boot-{number}\n")


def make_root(root: Path) -> None:
    """Its files; the second GPU has what the kernel needs only."""
    bus = pcibus.PciBus.of(
        [
            pcibus.Function(
                pcibus.Address.parse(str(address)), vendor, 1, vendor, 1, 0x030000, 0, group,
                "acme", sriov=pcibus.Sriov(8, 2),
            )
            for group, (address, vendor) in enumerate([(GPU, VENDOR), (PLAIN, 0x5B5B)])
        ]
    )  # fmt: skip
    write_snapshot(MachineTree(bus, {}, {0: "0-3"}).root(), root)
    program = root / _PROGRAM.lstrip("/")
    program.parent.mkdir(parents=True)
    program.write_text(_SCRIPT)
    program.chmod(0o755)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """The machine, with the vendor's driver registered before all others."""
    root = tmp_path / "root"
    make_root(root)
    made = Host(root, tmp_path / "state")
    made.boot(1)
    driver: SrIovDriver = AcmeSriov()
    DRIVERS.insert(0, driver)
    try:
        with made.pci:
            yield made
    finally:
        DRIVERS.remove(driver)


def test_the_first_driver_that_probes_a_function_is_used(host: Host) -> None:
    assert isinstance(find_driver(host.pci.read_function(GPU)), AcmeSriov)
    assert type(find_driver(host.pci.read_function(PLAIN))) is GenericSriov
    rows = {row.address: row for row in host.service.list_vfs().physicals}
    assert (rows[str(GPU)].total, rows[str(PLAIN)].total) == (4, 8)
    assert type(DRIVERS[-1]) is GenericSriov, "what takes every function is asked last"


def test_its_virtual_functions_are_made_listed_and_removed(host: Host) -> None:
    done = host.service.enable_vfs(selector=str(GPU), quotas={"slots": 3}, persist=True)
    assert [step.description for step in done.steps] == [
        f"make 4 virtual functions of {GPU} by acme-vf"
    ]
    assert done.steps[0].target["vendor_tool"] is True
    assert (host.calls(), host.slots()) == ([f"{GPU} 4"], ["3"] * 4)
    (row,) = host.service.list_vfs(selector=str(GPU)).physicals
    assert (row.count, row.persist, row.why_not) == (4, True, None)
    assert [vf.quotas for vf in row.vfs] == [{"slots": "3"}] * 4
    fewer = host.service.enable_vfs(selector=str(GPU), count=2)
    assert [step.kind for step in fewer.steps] == ["vf.disable", "vf.enable"]
    assert host.calls() == [f"{GPU} 0", f"{GPU} 2"]
    host.service.disable_vfs(selector=str(GPU))
    (row,) = host.service.list_vfs(selector=str(GPU)).physicals
    assert (row.count, row.persist, host.calls()) == (0, False, [f"{GPU} 0"])


def test_its_refusals_come_before_any_change(host: Host) -> None:
    with pytest.raises(VfCountError, match="cannot have 3") as odd:
        host.service.enable_vfs(selector=str(GPU), count=3)
    assert odd.value.why == "they come in pairs"
    with pytest.raises(VfCountError) as many:
        host.service.enable_vfs(selector=str(GPU), count=6)
    assert many.value.why == "it can have 1 to 4"
    with pytest.raises(VfQuotaError, match="no quota lanes"):
        host.service.enable_vfs(selector=str(GPU), quotas={"lanes": 1})
    (host.root / _PROGRAM.lstrip("/")).unlink()
    with pytest.raises(VfVendorToolError):
        host.service.enable_vfs(selector=str(GPU))
    (row,) = host.service.list_vfs(selector=str(GPU)).physicals
    assert (row.method, row.why_not) == (None, "acme-vf is not there")
    assert host.calls() == []


def test_a_program_that_fails_is_rolled_back(host: Host) -> None:
    (host.root / "broken").touch()
    with pytest.raises(RolledBackError) as failed:
        host.service.enable_vfs(selector=str(GPU), count=2)
    assert "no firmware" in str(failed.value.cause)
    assert host.pci.list_vf_settings() == ()


def test_they_are_restored_after_a_boot_when_the_driver_wants_it(host: Host) -> None:
    host.service.enable_vfs(selector=str(GPU), count=2, quotas={"slots": 5}, persist=True)
    host.boot(2)
    host.calls()
    after = Host(host.root, host.machine.state_dir)
    with after.pci:
        assert restore(after.parts, early=True).problems == []
        assert after.calls() == [], "its driver does not restore early"
        assert restore(after.parts).problems == []
        assert (after.calls(), after.slots()) == ([f"{GPU} 2"], ["5", "5"])


def test_while_its_program_is_late_the_bus_is_left_alone(host: Host) -> None:
    (host.root / "slow").touch()
    with pytest.raises((HelperLateError, OutcomePendingError)):
        host.service.enable_vfs(selector=str(GPU), count=2)
    assert any(f"acme-vf {GPU} 2" in stall for stall in host.pci.list_stalls())
    end_s = time.monotonic() + 60
    while host.parts.list_late():
        assert time.monotonic() < end_s
        time.sleep(0.05)
    assert host.pci.list_stalls() == ()


def test_only_a_drivers_own_file_knows_its_vendor() -> None:
    """A vendor's program, library and kernel driver are named in code by its file below ``sriov`` alone."""
    words = re.compile(r"[\"'](gim|amdgpu|libamdsmi|/usr/lib/nvidia/sriov-manage|sriov_admin)[\"']")
    exempt = ("vgpumgr/sim/", "vgpumgr/passthrough/sriov/", "vgpumgr/model/pci.py")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted((ROOT / "vgpumgr").rglob("*.py"))
        if not str(path.relative_to(ROOT)).startswith(exempt)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if words.search(line)
    ]
    assert found == [], textwrap.shorten(str(found), 400)
