"""What the kernel, the firmware and this process can do, each as a fact with where it was read: for ``vgpumgr doctor``.

Files are read below the machine's root. What is tried in this process (a memory file, a program) says something of the
real host only. Nothing here changes the host.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import resource
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from vgpumgr.host.confinement import PROFILE, PROFILES
from vgpumgr.host.files import list_names, read_text
from vgpumgr.host.machine import Machine
from vgpumgr.host.pci_tree import has_driver
from vgpumgr.model.frozen import dataclass

_UNITS = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")  # fmt: skip
_PROGRAM_TIMEOUT_S = 10.0
#: what an open answers to a user who may not
NO_RIGHTS = (errno.EACCES, errno.EPERM)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a file or a command said; ``text`` None: it is absent or cannot be read."""

    source: str
    text: str | None

    def __str__(self) -> str:
        return f"{self.source}: {'absent' if self.text is None else self.text or 'empty'}"


def _read(machine: Machine, path: str) -> Evidence:
    return Evidence(path, read_text(machine.path(path)))


def _list(machine: Machine, path: str) -> Evidence:
    directory = machine.path(path)
    return Evidence(path, ", ".join(list_names(directory)) if directory.is_dir() else None)


def read_cpu_extensions(machine: Machine) -> Evidence:
    """The extensions for virtual machines that the first CPU has: vmx, svm, or none of both."""
    source, text = "/proc/cpuinfo", read_text(machine.path("/proc/cpuinfo"))
    if text is None:
        return Evidence(source, None)
    flags = re.search(r"^flags\s*:\s*(.*)$", text, re.MULTILINE)
    found = {"vmx", "svm"} & set(flags[1].split() if flags else ())
    return Evidence(
        source, f"flags: {' '.join(sorted(found))}" if found else "flags: no vmx, no svm"
    )


def try_open(machine: Machine, path: str) -> tuple[Evidence, int]:
    """Whether this process can open a device file for reading and writing: the fact, and errno or 0."""
    try:
        os.close(os.open(machine.path(path), os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "?")
        return Evidence(f"open {path}", f"{error.strerror} ({name})"), error.errno or errno.EIO
    return Evidence(f"open {path}", "opened"), 0


def try_kvm(machine: Machine) -> tuple[Evidence, int]:
    """Whether this process can open /dev/kvm."""
    return try_open(machine, "/dev/kvm")


def list_iommus(machine: Machine) -> Evidence:
    """The IOMMUs that the firmware's tables describe and the kernel uses: dmar0, ivhd0."""
    return _list(machine, "/sys/class/iommu")


def find_dmar(machine: Machine) -> Evidence:
    """The table by which firmware describes Intel's IOMMU; absent where it is off there."""
    path = "/sys/firmware/acpi/tables/DMAR"
    return Evidence(path, "present" if machine.path(path).exists() else None)


def read_remapped_interrupts(machine: Machine) -> Evidence:
    """The interrupt controllers with remapping; empty: there are others only."""
    source, text = "/proc/interrupts", read_text(machine.path("/proc/interrupts"))
    chips = None if text is None else sorted(set(re.findall(r"\bIR-[\w-]+", text)))
    return Evidence(source, None if chips is None else ", ".join(chips))


def read_command_line(machine: Machine) -> Evidence:
    """The kernel's command line."""
    return _read(machine, "/proc/cmdline")


def find_driver(machine: Machine, name: str) -> Evidence:
    """Whether a PCI driver of that name is registered."""
    found = has_driver(machine, name)
    return Evidence(f"/sys/bus/pci/drivers/{name}", "registered" if found else None)


def read_loaded_module(machine: Machine, name: str) -> Evidence:
    """Whether a module is in the kernel, loaded or built in."""
    path, file = f"/sys/module/{name}", "/proc/modules"
    if machine.path(path).is_dir():
        return Evidence(path, "loaded")
    lines = (read_text(machine.path(file)) or "").splitlines()
    if any(line.split()[:1] == [name] for line in lines):
        return Evidence(file, name)
    return Evidence(path, None)


def find_module(machine: Machine, name: str) -> Evidence:
    """Whether the running kernel has a module that can be loaded."""
    release = read_text(machine.path("/proc/sys/kernel/osrelease")) or "unknown"
    pattern = re.compile(rf"(?:^|/){name.replace('_', '[-_]')}\.ko\b", re.MULTILINE)
    for file in ("modules.builtin", "modules.dep"):
        path = f"/lib/modules/{release}/{file}"
        if pattern.search(read_text(machine.path(path)) or ""):
            return Evidence(path, name)
    return Evidence(f"/lib/modules/{release}/modules.dep", None)


def read_driver_version(machine: Machine) -> Evidence:
    """The first line that the loaded NVIDIA module says of itself, with its flavour and version."""
    fact = _read(machine, "/proc/driver/nvidia/version")
    return Evidence(fact.source, fact.text and re.sub(r"\s+", " ", fact.text.splitlines()[0]))


def read_addressing(machine: Machine) -> tuple[Evidence, Evidence]:
    """Whether kernels may reach a process's own memory: by HMM (uvm_disable_hmm: N, if it is the open module that can),
    by ATS (uvm_ats_mode: other than 0, where the processor has it).
    """
    path = "/sys/module/nvidia_uvm/parameters"
    return _read(machine, f"{path}/uvm_disable_hmm"), _read(machine, f"{path}/uvm_ats_mode")


def read_access_control(machine: Machine) -> tuple[Evidence, Evidence]:
    """AppArmor (Y or N) and SELinux (1: enforcing, 0: permissive)."""
    apparmor = _read(machine, "/sys/module/apparmor/parameters/enabled")
    return apparmor, _read(machine, "/sys/fs/selinux/enforce")


def read_worker_profile(machine: Machine) -> Evidence:
    """AppArmor's profile of workers with its mode, if the kernel has it and this is root."""
    fact = _read(machine, str(PROFILES))
    loaded = (fact.text or "").splitlines()
    return Evidence(fact.source, next((x for x in loaded if x.startswith(f"{PROFILE} (")), None))


def read_user_namespaces(machine: Machine) -> Evidence:
    """How many user namespaces there may be."""
    return _read(machine, "/proc/sys/user/max_user_namespaces")


def read_seccomp(machine: Machine) -> Evidence:
    """The actions that a system call filter may name."""
    return _read(machine, "/proc/sys/kernel/seccomp/actions_avail")


def read_controllers(machine: Machine) -> tuple[Evidence, int]:
    """The controllers of control groups with spaces between, and the version: 2, or 1 with a hierarchy for each."""
    fact = _read(machine, "/sys/fs/cgroup/cgroup.controllers")
    path = "/sys/fs/cgroup"
    names = list_names(machine.path(path))
    if fact.text is not None or not names:
        return fact, 2
    # cpu,cpuacct is one hierarchy with two controllers
    return Evidence(path, " ".join(name for each in names for name in each.split(","))), 1


def find_unit(machine: Machine, name: str) -> tuple[Evidence, Evidence]:
    """Where systemd's unit of that name is installed, and the link that enables it."""
    path = next((p for d in _UNITS if machine.path(p := f"{d}/{name}").exists()), None)
    installed = Evidence(path or f"{_UNITS[0]}/{name}", None if path is None else "installed")
    for directory in list_names(machine.path(_UNITS[0])):
        link = f"{_UNITS[0]}/{directory}/{name}"
        if directory.endswith((".wants", ".requires")) and os.path.lexists(machine.path(link)):
            return installed, Evidence(link, "enabled")
    return installed, Evidence(f"{_UNITS[0]}/*.wants/{name}", None)


def list_driver_overrides(machine: Machine) -> Evidence:
    """PCI functions that driverctl gives a driver at every boot."""
    return _list(machine, "/etc/driverctl.d")


def read_locked_memory_limit() -> Evidence:
    """How many bytes this process may lock."""
    _, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return Evidence("RLIMIT_MEMLOCK", "unlimited" if hard == resource.RLIM_INFINITY else str(hard))


def try_memory_file() -> Evidence:
    """Whether a memory file can be sealed, as a channel's ring is; text None: it cannot."""
    try:
        fd = os.memfd_create("vgpumgr-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        finally:
            os.close(fd)
        os.close(os.eventfd(0, os.EFD_CLOEXEC))
    except OSError as error:
        return Evidence(f"memfd_create, F_ADD_SEALS, eventfd ({error.strerror})", None)
    return Evidence("memfd_create, F_ADD_SEALS, eventfd", "work")


def find_program(names: Sequence[str]) -> str | None:
    """The first of these programs that is on the path, or where only root's path leads."""
    where = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
    return next((path for name in names if (path := shutil.which(name, path=where))), None)


def run_program(*words: str) -> Evidence:
    """What a program prints, which only reads; text None: it failed or took too long."""
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=_PROGRAM_TIMEOUT_S, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return Evidence(f"{' '.join(words)} ({error})", None)
    return Evidence(" ".join(words), done.stdout + done.stderr)


def is_executable(path: Path) -> bool:
    """Whether it is a file that this process may run."""
    return path.is_file() and os.access(path, os.X_OK)


def read_free_bytes(directory: Path) -> tuple[Evidence, int]:
    """Free space for this user where the directory is or will be. Raises OSError."""
    while not directory.exists() and directory != directory.parent:
        directory = directory.parent
    free = shutil.disk_usage(directory).free
    return Evidence(f"statvfs {directory}", f"{free >> 20} MiB free"), free
