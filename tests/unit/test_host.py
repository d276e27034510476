"""The host seam: machines, sysfs, locks, processes."""

from __future__ import annotations

import os
import pwd
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support.places import short
from tests.support.unprivileged import as_nobody
from vgpumgr.errors import ChannelStartError, MachineNotFoundError, NotPermittedError, SysfsError
from vgpumgr.host.lock import lock_file
from vgpumgr.host.machine import Machine, find_machine, list_machines
from vgpumgr.host.pci_tree import list_functions, read_function
from vgpumgr.host.process import (
    ProcessId,
    acting_for,
    is_alive,
    list_holders,
    name_caller,
    read_identity,
    read_name,
    read_state,
)
from vgpumgr.host.sockets import read_watchdog_s
from vgpumgr.host.statistics import OperationStatistics
from vgpumgr.model.pci import PciAddress
from vgpumgr.virtio.channel import ChannelSpec
from vgpumgr.virtio.keeper import KeeperChannels

GPU = PciAddress.parse("0000:3b:00.0")
AUDIO = PciAddress.parse("0000:3b:00.1")


def make_function(root: Path, address: PciAddress, **attributes: str) -> Path:
    directory = root / "sys/devices/pci0000:3a" / str(address)
    directory.mkdir(parents=True)
    for name, text in attributes.items():
        (directory / name).write_text(text + "\n")
    bus = root / "sys/bus/pci/devices"
    bus.mkdir(parents=True, exist_ok=True)
    (bus / str(address)).symlink_to(Path("../../../devices/pci0000:3a") / str(address))
    return directory


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A GPU with an audio function in its IOMMU group, and a network card without one."""
    group = tmp_path / "sys/kernel/iommu_groups/12/devices"
    group.mkdir(parents=True)
    driver = tmp_path / "sys/bus/pci/drivers/nvidia"
    driver.mkdir(parents=True)
    for address, device in ((GPU, "0x20b2"), (AUDIO, "0x1aef")):
        attributes = {"vendor": "0x10de", "device": device, "class": "0x030200", "numa_node": "1"}
        directory = make_function(tmp_path, address, **attributes)
        (group / str(address)).symlink_to(directory)
        (directory / "iommu_group").symlink_to(group.parent)
    (tmp_path / "sys/bus/pci/devices" / str(GPU) / "driver").symlink_to(driver)
    other = {"vendor": "0x15b3", "device": "0x101b", "class": "0x020000", "numa_node": "-1"}
    make_function(tmp_path, PciAddress(0, 0x61, 0), **other)
    return Machine("test", tmp_path, tmp_path / "state", tmp_path / "run", "test:///default")


def test_a_pci_function_as_sysfs_shows_it(machine: Machine) -> None:
    function = read_function(machine, GPU)
    assert function is not None
    assert (function.vendor_id, function.device_id, function.class_code) == (
        0x10DE,
        0x20B2,
        0x30200,
    )
    assert (function.numa_node, function.driver) == (1, "nvidia")
    assert function.group == 12


def test_what_the_host_does_not_say_is_none(machine: Machine) -> None:
    function = read_function(machine, PciAddress(0, 0x61, 0))
    assert function is not None
    assert (function.numa_node, function.driver, function.group) == (None, None, None)
    assert read_function(machine, PciAddress(0, 0x62, 0)) is None


def test_functions_are_listed_in_order(machine: Machine) -> None:
    functions = list_functions(machine)
    assert [f.address for f in functions if f.vendor_id == 0x10DE] == [GPU, AUDIO]
    assert len(functions) == 3


def test_no_pci_bus_is_no_functions(tmp_path: Path) -> None:
    empty = Machine("test", tmp_path, tmp_path, tmp_path, "test:///default")
    assert list_functions(empty) == []


def test_a_broken_attribute_is_not_taken_for_absent(machine: Machine) -> None:
    directory = machine.path(f"/sys/bus/pci/devices/{GPU}")
    (directory / "numa_node").write_text("many\n")
    with pytest.raises(SysfsError) as caught:
        read_function(machine, GPU)
    assert (caught.value.id, caught.value.cause) == ("VG130", "it says 'many'")


def test_an_io_error_keeps_errno_and_path(machine: Machine) -> None:
    directory = machine.path(f"/sys/bus/pci/devices/{GPU}")
    (directory / "class").unlink()
    (directory / "class").mkdir()
    with pytest.raises(SysfsError) as caught:
        read_function(machine, GPU)
    assert caught.value.cause == f"read /sys/bus/pci/devices/{GPU}/class: Is a directory (EISDIR)"


def test_the_real_machine_is_the_default() -> None:
    machine = find_machine(None, {})
    assert not machine.is_simulated
    assert machine.path("/sys/bus") == Path("/sys/bus")
    assert (str(machine.state_dir), str(machine.run_dir)) == ("/var/lib/vgpumgr", "/run/vgpumgr")
    assert machine.libvirt_uri == "qemu:///system"
    assert "VGPUMGR_SIM" not in machine.child_env()


def test_a_simulated_machine_by_name(tmp_path: Path) -> None:
    (tmp_path / "dgx").mkdir()
    (tmp_path / ".new-abc").mkdir()
    env = {"VGPUMGR_SIM_ROOT": str(tmp_path)}
    for machine in (find_machine("dgx", env), find_machine(None, env | {"VGPUMGR_MACHINE": "dgx"})):
        assert (machine.name, machine.is_simulated) == ("dgx", True)
        assert machine.path("/sys/class") == tmp_path / "dgx/root/sys/class"
        child = machine.child_env()
        assert child["VGPUMGR_SIM"] == str(tmp_path / "dgx")
        assert child["LD_LIBRARY_PATH"].endswith("vgpumgr/_lib/sim")
        assert machine.state_dir.is_relative_to(tmp_path / "dgx")
        assert machine.run_dir.is_relative_to(tmp_path / "dgx")
    assert list_machines(env) == ["dgx"]


def test_a_machines_env_file_counts_for_it(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x/env").write_text(
        "# made by hand\n\nexport VGPUMGR_LIBVIRT_URI='qemu:///session'\nLD_LIBRARY_PATH=/opt/lib\n"
    )
    machine = find_machine("x", {"VGPUMGR_SIM_ROOT": str(tmp_path)})
    assert machine.libvirt_uri == "qemu:///session"
    assert machine.child_env()["LD_LIBRARY_PATH"] == "/opt/lib"


def test_the_environment_alone_describes_a_machine(tmp_path: Path) -> None:
    machine = find_machine(None, {"VGPUMGR_SIM": str(tmp_path / "dgx"), "VGPUMGR_SYSFS_ROOT": "/r"})
    assert (machine.name, str(machine.root)) == ("dgx", "/r")


@pytest.mark.parametrize("name", ["nothing", "../x", ".new-abc", "a/b"])
def test_an_unknown_machine_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "dgx").mkdir()
    (tmp_path / ".new-abc").mkdir()
    with pytest.raises(MachineNotFoundError) as caught:
        find_machine(name, {"VGPUMGR_SIM_ROOT": str(tmp_path)})
    assert "running: dgx" in str(caught.value.why)


def test_a_lock_of_another_user_is_no_bug_but_a_matter_of_rights() -> None:
    with tempfile.TemporaryDirectory(dir=short()) as name:
        Path(name).chmod(0o755)
        with lock_file(Path(name) / "lock"):
            pass

        def take() -> None:
            with lock_file(Path(name) / "lock"):
                pass

        with pytest.raises(NotPermittedError):
            as_nobody(take)


def test_the_caller_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon's caller, else the user behind sudo, else this one; a user without a name by number."""
    own = pwd.getpwuid(os.getuid()).pw_name
    monkeypatch.delenv("SUDO_UID", raising=False)
    assert name_caller() == own
    monkeypatch.setenv("SUDO_UID", "65534")
    assert name_caller() == ("nobody" if os.geteuid() == 0 else own)
    for uid, name in ((65534, "nobody"), (65531, "user 65531"), (None, name_caller())):
        with acting_for(uid):
            assert name_caller() == name
    for text in ("", "-1", "x", "99999999999999999999"):
        monkeypatch.setenv("SUDO_UID", text)
        assert name_caller()


def test_processes_are_told_apart() -> None:
    own = read_identity(os.getpid())
    assert own is not None
    assert is_alive(own)
    assert not is_alive(ProcessId(own.pid, own.start_ticks + 1))
    assert read_name(os.getpid())
    assert read_state(os.getpid()) == "R"


def test_a_zombie_is_not_alive() -> None:
    child = subprocess.Popen(["true"])
    process = read_identity(child.pid)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert process is None or not is_alive(process)
    child.wait()
    assert read_name(child.pid) is None
    assert read_identity(child.pid) is None


def test_holders_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "nvidia0"
    path.touch()
    with path.open():
        holders = list_holders(lambda p: p == str(path))
    assert [(h.pid, h.path) for h in holders] == [(os.getpid(), str(path))]
    assert str(path) in str(holders[0])
    assert list_holders(lambda p: p == str(path)) == []


@pytest.mark.parametrize(
    ("environ", "every_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "3000000"}, 1.5),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 1.5),
        # for the process that started us: its watchdog is not ours to feed
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getppid())}, None),
    ],
)
def test_only_our_own_watchdog_is_fed(environ: dict[str, str], every_s: float | None) -> None:
    assert read_watchdog_s(environ) == every_s


def test_counts_of_another_version_are_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "operations.json"
    statistics = OperationStatistics(path, (1.0, 10.0))
    statistics.count("attach", "done", 5.0)
    assert [(c.op, c.buckets) for c in statistics.list_counts()] == [("attach", (0, 1, 0))]
    assert OperationStatistics(path, (1.0, 5.0, 10.0)).list_counts() == ()
    for whole, broken in (('"done": 1', '"done": -1'), ("[0, 1, 0]", "[0, -1, 0]")):
        text = path.read_text()
        assert whole in text
        path.write_text(text.replace(whole, broken))
        assert statistics.list_counts() == ()
        path.write_text(text)


def test_a_socket_whose_path_is_too_long_is_refused_in_words(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 100)
    machine = Machine("test", tmp_path, tmp_path, deep, "test:///default")
    with pytest.raises(ChannelStartError) as caught:
        KeeperChannels(machine).start(ChannelSpec("a1", "vm01", "MIG-1", ring=True, serial=True))
    assert "107 are possible" in str(caught.value.why)
    assert not deep.exists()
