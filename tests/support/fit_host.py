"""A host on which every check of ``vgpumgr doctor`` passes, as files and fakes that a test spoils one by one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.boards import make_gpu
from tests.support.cli import CheckedBackend
from tests.support.fake_host import FakeVgpus, make_functions
from tests.support.service import make_bench
from vgpumgr.app.application import Application
from vgpumgr.app.documents.operations import CheckDocument
from vgpumgr.cli.session import Backend, GlobalOptions
from vgpumgr.host import capabilities
from vgpumgr.host.capabilities import Evidence
from vgpumgr.host.machine import Machine
from vgpumgr.model.pci import Condition
from vgpumgr.virtio import trial
from vgpumgr.virtio.trial import Trial

DEVICES = 'name "ivshmem-doorbell"\nname "virtserialport"\nname "vfio-pci"\n'
FILES = {
    "proc/cpuinfo": "processor : 0\nflags : fpu vmx sse\n",
    "proc/interrupts": "  24:  0  IR-PCI-MSI-0000:00:1f.2  0-edge  ahci\n",
    "proc/cmdline": "BOOT_IMAGE=/vmlinuz intel_iommu=on iommu=pt\n",
    "proc/modules": "nvidia 56717312 1 nvidia_uvm, Live 0x0\n",
    "proc/driver/nvidia/version": (
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n"
        "GCC version: 12\n"
    ),
    "proc/sys/kernel/osrelease": "6.1.0-1-amd64\n",
    "proc/sys/user/max_user_namespaces": "15000\n",
    "proc/sys/kernel/seccomp/actions_avail": "kill_process errno allow\n",
    "lib/modules/6.1.0-1-amd64/modules.dep": (
        "kernel/drivers/vfio/pci/vfio-pci.ko.xz: a.ko\nkernel/drivers/vfio/vfio_iommu_type1.ko:\n"
    ),
    "sys/class/iommu/dmar0/name": "dmar0\n",
    "sys/module/nvidia_uvm/parameters/uvm_disable_hmm": "Y\n",
    "sys/module/apparmor/parameters/enabled": "Y\n",
    "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
    "etc/systemd/system/vgpumgr-restore.service": "[Unit]\n",
    "etc/systemd/system/multi-user.target.wants/vgpumgr-restore.service": "[Unit]\n",
    "dev/kvm": "",
}


class FitHost:
    """The machine, its parts, and what they are made of."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = directory / "root"
        for path, text in FILES.items():
            self.write(path, text)
        self.bench = make_bench(
            directory, [make_gpu()], functions=make_functions(), vgpus=FakeVgpus()
        )
        state, run = directory / "state", directory / "run"
        run.mkdir()
        self.machine = Machine(None, self.root, state, run, "test:///default")
        self.parts = self.bench.service.parts
        self.parts.clock.set_s = 1_800_000_000.0  # type: ignore[attr-defined]
        self.patch = monkeypatch
        self.fake("find_program", lambda _names: "/usr/bin/qemu-system-x86_64")
        self.fake("run_program", lambda *words: Evidence(" ".join(words), DEVICES))
        self.patch.setattr(self.bench.pci, "read_condition", lambda _: Condition(("flr",), "D0"))
        self.try_channel(Trial(("worker: ready", "ring: has a lane", "serial: has a lane")))

    def have_half_of_cublas(self) -> None:
        """libcublas without libcublasLt."""
        self.write("usr/local/math/libcublas.so.13", "")
        self.patch.setenv("VGPUMGR_MATH", str(self.root / "usr/local/math"))

    def write(self, path: str, text: str) -> None:
        """A file below the root."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def remove(self, path: str) -> None:
        """Takes a file away."""
        (self.root / path).unlink()

    def fake(self, name: str, function: Any) -> None:
        """Puts a function in the place of one that reads the real host."""
        self.patch.setattr(capabilities, name, function)

    def try_channel(self, found: Trial) -> None:
        """Sets what comes of trying a channel; tests/sim/test_doctor_channel.py does try one."""
        self.patch.setattr(trial, "try_channel", lambda _machine: found)

    def change(self, **parts: Any) -> None:
        """Replaces interfaces of the machine."""
        self.parts = replace(self.parts, **parts)

    @property
    def application(self) -> Application:
        """The operations on this host."""
        return Application(self.machine, self.parts)

    def check(self, name: str, **params: Any) -> CheckDocument:
        """What one check finds."""
        (found,) = self.application.check_host(name, **params).checks
        return found

    @contextmanager
    def open_backend(self, _options: GlobalOptions) -> Iterator[Backend]:
        """For the command line."""
        yield CheckedBackend(self.application)
