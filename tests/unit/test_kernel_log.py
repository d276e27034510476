"""The kernel's log: which records are Xids, of which GPU, and which only seem so. ``/dev/kmsg`` itself where it can
be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpumgr.host.kernel_log import KernelLog, LoggedXid, parse_record
from vgpumgr.host.machine import Machine
from vgpumgr.model.pci import PciAddress

GPU = PciAddress(0, 0x3B, 0)
XID = b"NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus."


def make_machine(tmp_path: Path, boot: str = "boot-1") -> Machine:
    path = tmp_path / "proc/sys/kernel/random/boot_id"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(boot)
    (tmp_path / "dev").mkdir(exist_ok=True)
    (tmp_path / "dev/kmsg").touch()
    return Machine(None, tmp_path, tmp_path / "state", tmp_path / "run", "test:///default")


def append(tmp_path: Path, *records: bytes) -> None:
    with (tmp_path / "dev/kmsg").open("ab") as file:
        file.writelines(record + b"\n" for record in records)


def record(number: int, text: bytes = XID, priority: int = 4) -> bytes:
    return b"%d,%d,%d000000,-;%s" % (priority, number, number, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (XID, LoggedXid(7, 7.0, GPU, 79)),
        (b"NVRM: Xid (PCI:0000:3B:00): 13, Graphics", LoggedXid(7, 7.0, GPU, 13)),
        (b"NVRM: Xid (PCI:00000000:3b:00): 31", LoggedXid(7, 7.0, GPU, 31)),
        (b"NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 94, pid=1", LoggedXid(7, 7.0, GPU, 94, 5)),
    ],
)
def test_an_xid_is_read(text: bytes, expected: LoggedXid) -> None:
    assert parse_record(record(7, text)) == expected


@pytest.mark.parametrize(
    "line",
    [
        # what a program wrote: the kernel gives it facility 1 or more
        record(7, priority=12),
        record(7, priority=4 + (1 << 3)),
        # what a device, a process or a file is called is never at the beginning
        record(7, b"usb 1-1: Product: NVRM: Xid (PCI:0000:3b:00): 79"),
        record(7, b"python[12]: segfault NVRM: Xid (PCI:0000:3b:00): 79"),
        # a line of details, a record without an Xid, half a record
        b" DEVICE=+pci:0000:3b:00.0 " + XID,
        XID,
        b"4,7,7000000,-" + XID,
        b"-4,7,7000000,-;" + XID,
        record(7, b"NVRM: loading NVIDIA UNIX Open Kernel Module"),
        record(7, b"NVRM: Xid (PCI:0000:3b): 79"),
        record(7, b"NVRM: Xid (PCI:0000:3b:ff): 79"),
        record(7, b"NVRM: Xid (PCI:0000:3b:00): -79"),
        record(7, b"NVRM: Xid (PCI:0000:3b:00): 99999999999999999999"),
    ],
)
def test_what_only_seems_an_xid_is_none(line: bytes) -> None:
    assert parse_record(line) is None


@given(st.binary(max_size=200), st.integers(0, len(record(7))))
def test_any_bytes_are_read_or_left(noise: bytes, cut: int) -> None:
    for line in (noise, record(7)[:cut] + noise, record(7)[:cut] + noise + record(7)[cut:]):
        found = parse_record(line)
        assert found is None or 0 <= found.xid < 10**6


def test_each_is_read_once_also_by_another_process(tmp_path: Path) -> None:
    machine = make_machine(tmp_path)
    append(tmp_path, record(1), record(2, b"eth0: link up"), record(3))
    log = KernelLog(machine)
    assert [one.number for one in log.read()] == [1, 3]
    assert log.read() == []
    append(tmp_path, record(4))
    assert [one.number for one in log.read()] == [4]
    # what was read and not recorded is read again
    assert [one.number for one in KernelLog(machine).read()] == [1, 3, 4]
    log.write_position(3)
    log.close()
    assert [one.number for one in KernelLog(machine).read()] == [4]
    # the kernel counts anew with each boot
    assert [one.number for one in KernelLog(make_machine(tmp_path, "boot-2")).read()] == [1, 3, 4]


@pytest.mark.parametrize(
    "content", [b"", b"boot-1", b"boot-1 x", b"boot-1 1 2", b"\xff\xfe", b"boot-1 -7"]
)
def test_a_damaged_position_means_from_the_beginning(tmp_path: Path, content: bytes) -> None:
    machine = make_machine(tmp_path)
    append(tmp_path, record(0), record(1))
    machine.run_dir.mkdir()
    (machine.run_dir / "kernel-log").write_bytes(content)
    assert [one.number for one in KernelLog(machine).read()] == [0, 1]


def test_a_position_of_another_user_or_behind_a_link_is_not_used(tmp_path: Path) -> None:
    machine = make_machine(tmp_path)
    append(tmp_path, record(0))
    machine.run_dir.mkdir()
    (tmp_path / "elsewhere").write_text("boot-1 99\n")
    position = machine.run_dir / "kernel-log"
    position.symlink_to(tmp_path / "elsewhere")
    assert KernelLog(machine).read()
    KernelLog(machine).write_position(0)
    assert (tmp_path / "elsewhere").read_text() == "boot-1 99\n"
    assert not position.is_symlink()


def test_a_log_that_cannot_be_read_has_nothing(tmp_path: Path) -> None:
    machine = make_machine(tmp_path)
    (tmp_path / "dev/kmsg").unlink()
    log = KernelLog(machine)
    assert log.read() == []
    append(tmp_path, record(5))
    assert [one.number for one in log.read()] == [5], "it may come later"
    (tmp_path / "dev/kmsg").unlink()
    (tmp_path / "dev/kmsg").mkdir()
    assert KernelLog(machine).read() == []
    (tmp_path / "dev/kmsg").rmdir()
    os.mkfifo(tmp_path / "dev/kmsg")
    assert KernelLog(machine).read() == [], "nothing is waited for"


def test_on_a_real_kernel_a_program_cannot_write_an_xid(tmp_path: Path) -> None:
    machine = Machine(None, Path("/"), tmp_path / "state", tmp_path / "run", "test:///default")
    log = KernelLog(machine)
    before = log.read()
    try:
        descriptor = os.open("/dev/kmsg", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        assert before == [], "without rights nothing is read, and nothing can be written"
        return
    try:
        os.lseek(descriptor, 0, os.SEEK_END)
        for prefix in (b"", b"<4>", b"<0>"):
            os.write(descriptor, prefix + XID + b"\n")
        seen = b""
        for _ in range(100):
            try:
                seen += os.read(descriptor, 16384)
            except (BlockingIOError, BrokenPipeError):
                continue
    finally:
        os.close(descriptor)
    assert seen.count(XID) == 3, "they are in the log"
    assert log.read() == []
    assert KernelLog(machine).read() == before
