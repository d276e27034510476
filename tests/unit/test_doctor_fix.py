"""``vgpumgr doctor --fix``: each repair on the host that needs it, with programs that say what they were asked, and
where a program fails, another changes the host meanwhile, or somebody may not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_host import GPU
from tests.support.fit_host import FitHost
from tests.support.unprivileged import as_nobody
from tests.unit.test_doctor import FAILURES, ROOT, run, set_driver, take_iommu
from vgpumgr.app.operations import doctor, repairs
from vgpumgr.errors import LibvirtDownError, LibvirtLateError
from vgpumgr.model.checks import BY_ID
from vgpumgr.model.pci import INTEL, VfSupport

PROGRAMS = ("update-grub", "grubby", "update-initramfs", "dracut", "modprobe", "systemctl")
PROGRAMS += ("sysctl", "timedatectl")
MODULES = "lib/modules/6.1.0-1-amd64/modules.dep"


class Bench:
    """A host whose programs write down how they were called; each can be made to fail or taken away."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.host = FitHost(tmp_path, monkeypatch)
        self.bin = tmp_path / "bin"
        self.log = tmp_path / "calls"
        self.bin.mkdir()
        for name in PROGRAMS:
            self.put(name)
        self.host.fake("find_program", lambda names: shutil.which(names[0], path=self.bin))
        self.host.write("etc/default/grub", "GRUB_TIMEOUT=5\n")
        self.host.write("sys/firmware/acpi/tables/DMAR", "DMAR")
        self.host.write("proc/cmdline", "BOOT_IMAGE=/vmlinuz quiet\n")

    def put(self, name: str, code: int = 0) -> None:
        """A program that answers with that exit code."""
        path = self.bin / name
        path.write_text(
            f'#!/bin/sh\necho "{name} $*" >> {self.log}\necho "{name} said no" >&2\nexit {code}\n'
        )
        path.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        """How programs were called."""
        return (
            [line.strip() for line in self.log.read_text().splitlines()]
            if self.log.exists()
            else []
        )

    def read(self, path: str) -> str:
        """A file below the host's root, without the remark at its top."""
        return (self.host.root / path).read_text().partition("\n")[2].strip()

    def list_files(self) -> set[str]:
        """All files below /etc."""
        root = self.host.root / "etc"
        return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def make_intel_bare(host: FitHost) -> None:
    functions = host.bench.pci.functions
    functions[GPU] = replace(functions[GPU], vendor_id=INTEL, driver="xe", vf_total=7)
    FAILURES["sriov"][0](host)


def lose_kvm(host: FitHost) -> None:
    host.remove("dev/kvm")
    host.write(MODULES, "kernel/arch/x86/kvm/kvm-intel.ko: kvm.ko\n")


def lose_nvidia(host: FitHost) -> None:
    set_driver(host, None)
    host.remove("proc/driver/nvidia/version")
    host.write(MODULES, "updates/dkms/nvidia.ko.xz:\n")


def lose_libvirt(host: FitHost) -> None:
    fail_libvirt(host, LibvirtDownError("no libvirt", cause="connect"))
    host.write("lib/systemd/system/libvirtd.service", "[Unit]\n")


def fail_libvirt(host: FitHost, error: Exception) -> None:
    def fail() -> Any:
        raise error

    host.patch.setattr(host.bench.hypervisor, "list_vms", fail)


def hang_the_daemon(host: FitHost) -> None:
    FAILURES["daemon"][0](host)
    host.write("lib/systemd/system/vgpumgr.service", "[Unit]\n")


#: what is wrong, which programs are then called, and which file says what
CASES: dict[str, tuple[Callable[[FitHost], object], list[str], tuple[str, str] | None]] = {
    "kvm": (lose_kvm, ["modprobe kvm_intel"], None),
    "iommu": (
        take_iommu,
        ["update-grub"],
        ("etc/default/grub.d/vgpumgr-iommu.cfg", 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX intel_iommu=on iommu=pt"'),
    ),
    "nouveau": (
        lambda h: set_driver(h, "nouveau"),
        ["update-initramfs -u"],
        ("etc/modprobe.d/vgpumgr-nouveau.conf", "blacklist nouveau"),
    ),
    "nvidia-driver": (lose_nvidia, ["modprobe nvidia"], None),
    "sriov": (
        make_intel_bare,
        ["update-grub"],
        ("etc/default/grub.d/vgpumgr-vfs.cfg", 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX i915.max_vfs=7 xe.max_vfs=7"'),
    ),
    "libvirt": (lose_libvirt, ["systemctl enable --now libvirtd.service"], None),
    "user-namespaces": (
        FAILURES["user-namespaces"][0],
        ["sysctl --quiet --load /etc/sysctl.d/90-vgpumgr.conf"],
        ("etc/sysctl.d/90-vgpumgr.conf", "user.max_user_namespaces = 15000"),
    ),
    "daemon": (hang_the_daemon, ["systemctl restart vgpumgr.service"], None),
    "restore-unit": (
        FAILURES["restore-unit"][0],
        ["systemctl enable vgpumgr-restore.service"],
        None,
    ),
    "clock": (lambda h: setattr(h.parts.clock, "set_s", 0.0), ["timedatectl set-ntp true"], None),
}  # fmt: skip


def test_every_repair_has_a_case() -> None:
    # recover is a command of its own: below
    assert set(CASES) | {"leftovers"} == set(repairs.name_repairs()) <= set(BY_ID)


@pytest.mark.parametrize("name", CASES)
def test_a_repair_is_shown_made_and_made_twice(bench: Bench, name: str) -> None:
    spoil, calls, file = CASES[name]
    spoil(bench.host)
    before = bench.list_files()
    assert bench.host.check(name).fixable
    shown = run(bench.host, "--fix", "--dry-run", "--check", name)
    assert (shown.code, shown.err, bench.calls) == (0, "", [])
    for call in calls:
        assert f"  run {call}\n" in shown.out
    assert bench.list_files() == before
    for _ in range(2):
        done = run(bench.host, "--fix", "--yes", "--check", name, "-o", "json")
        assert done.err == ""
        (row,) = json.loads(done.out)["repairs"]
        assert row["state"] in ("done", "waiting")
        assert (row["state"] == "waiting") == row["needs_reboot"]
    # what waits for a reboot is not made once more
    assert bench.calls == (calls if row["needs_reboot"] else calls * 2)
    assert len(bench.list_files() - before) == (file is not None)
    if file is not None:
        assert bench.read(file[0]) == file[1]


@pytest.mark.parametrize("name", [name for name, (_, _, file) in CASES.items() if file])
def test_where_a_program_fails_its_file_is_as_before(bench: Bench, name: str) -> None:
    spoil, calls, file = CASES[name]
    assert file is not None
    spoil(bench.host)
    program = calls[0].split()[0]
    bench.put(program, 7)
    before = bench.list_files()
    done = run(bench.host, "--fix", "--yes", "--check", name)
    assert (done.code, bench.list_files()) == (1, before), done
    assert f"{calls[0]} failed: exit code 7: {program} said no" in done.out
    bench.host.write(file[0], "# by an administrator\n")
    assert run(bench.host, "--fix", "--yes", "--check", name).code == 1
    assert (bench.host.root / file[0]).read_text() == "# by an administrator\n"


def test_one_that_fails_keeps_no_other_from_being_made(bench: Bench) -> None:
    for name in ("iommu", "restore-unit"):
        CASES[name][0](bench.host)
    bench.put("update-grub", 1)
    done = run(bench.host, "--fix", "--yes", "--check", "iommu", "--check", "restore-unit")
    assert done.code == 1
    assert "iommu: failed" in done.out
    assert "restore-unit: done" in done.out
    assert bench.calls == ["update-grub", "systemctl enable vgpumgr-restore.service"]


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("iommu", "sriov")])
def test_without_its_program_a_repair_is_not_offered(bench: Bench, name: str) -> None:
    spoil, calls, _ = CASES[name]
    spoil(bench.host)
    (bench.bin / calls[0].split()[0]).unlink()
    (bench.bin / "dracut").unlink()
    assert not bench.host.check(name).fixable
    done = run(bench.host, "--fix", "--yes", "--check", name)
    assert (done.code, bench.calls) == (run(bench.host, "--check", name).code, [])
    assert f"{name}: not done by --fix: " in done.out


def test_a_distribution_without_update_grub_has_grubby(bench: Bench) -> None:
    take_iommu(bench.host)
    (bench.bin / "update-grub").unlink()
    run(bench.host, "--fix", "--yes", "--check", "iommu")
    assert bench.calls == ["grubby --update-kernel=ALL --args=intel_iommu=on iommu=pt"]
    (bench.bin / "grubby").unlink()
    assert not bench.host.check("iommu").fixable


@pytest.mark.parametrize(
    ("name", "change"),
    [
        # somebody turned it off, or it is on and the firmware offers none
        ("iommu", lambda h: h.write("proc/cmdline", "intel_iommu=off")),
        ("iommu", lambda h: h.write("proc/cmdline", "intel_iommu=on")),
        ("iommu", lambda h: h.remove("sys/firmware/acpi/tables/DMAR")),
        ("kvm", lambda h: h.write("proc/cpuinfo", "flags : fpu\n")),
        ("kvm", lambda h: h.write(MODULES, "")),
        ("nvidia-driver", lambda h: h.write(MODULES, "")),
        ("restore-unit", lambda h: h.remove("etc/systemd/system/vgpumgr-restore.service")),
        ("libvirt", lambda h: h.remove("lib/systemd/system/libvirtd.service")),
        # one that hangs is not down
        ("libvirt", lambda h: fail_libvirt(h, LibvirtLateError("no answer"))),
        ("sriov", lambda h: h.patch.setattr(h.bench.pci, "observe_vfs", lambda _: VfSupport(7))),
        ("clock", lambda h: h.change(boot_id="")),
    ],
)  # fmt: skip
def test_what_is_an_administrators_is_not_offered(
    bench: Bench, name: str, change: Callable[[FitHost], object]
) -> None:
    CASES[name][0](bench.host)
    change(bench.host)
    assert not bench.host.check(name).fixable


def test_nothing_is_offered_on_a_fit_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = FitHost(tmp_path, monkeypatch)
    assert not [one for one in host.application.check_host().checks if one.fixable]
    done = run(host, "--fix", "--yes")
    assert (done.code, done.out, done.err) == (0, "nothing to do\n", "")


def test_nothing_but_what_was_shown_is_done(bench: Bench) -> None:
    CASES["restore-unit"][0](bench.host)
    real = bench.host.application.repair_host
    planned = real("restore-unit", dry_run=True).repairs[0].actions
    CASES["iommu"][0](bench.host)
    with pytest.raises(Exception, match="has changed since") as caught:
        real("restore-unit,iommu", planned)
    assert getattr(caught.value, "exit_code", None) == 6
    assert bench.calls == []


def test_quiet_prints_no_plan(bench: Bench) -> None:
    CASES["restore-unit"][0](bench.host)
    done = run(bench.host, "-q", "--fix", "--yes", "--check", "restore-unit")
    assert done.out.startswith("restore-unit: done\n")
    assert "  run " not in done.out
    assert bench.calls == CASES["restore-unit"][1]
    shown = run(bench.host, "-q", "--fix", "--dry-run", "--check", "restore-unit")
    assert "  run " in shown.out, "here the plan is the answer"


def test_it_asks_first(bench: Bench) -> None:
    CASES["restore-unit"][0](bench.host)
    done = run(bench.host, "--fix")
    assert (done.code, "--yes" in done.err, bench.calls) == (2, True, [])


def test_options_without_fix_are_refused(bench: Bench) -> None:
    for word in ("--yes", "--dry-run"):
        done = run(bench.host, word)
        assert (done.code, f"{word} goes with --fix only" in done.err) == (2, True), done
        assert run(bench.host, "explain", "iommu", word).code == 2
    assert run(bench.host, "explain", "iommu", "--fix").code == 2


def test_a_user_without_root_is_refused(bench: Bench) -> None:
    CASES["restore-unit"][0](bench.host)
    bench.host.change(is_privileged=False)
    assert not bench.host.check("restore-unit").fixable
    done = run(bench.host, "--fix", "--yes")
    assert (done.code, "need root" in done.err, bench.calls) == (4, True, [])


def test_a_link_in_the_place_of_its_file_is_replaced_not_followed(
    bench: Bench, tmp_path: Path
) -> None:
    CASES["user-namespaces"][0](bench.host)
    victim = tmp_path / "victim"
    victim.write_text("precious\n")
    link = bench.host.root / "etc/sysctl.d/90-vgpumgr.conf"
    link.parent.mkdir(parents=True)
    link.symlink_to(victim)
    assert run(bench.host, "--fix", "--yes", "--check", "user-namespaces").code == 3
    assert (victim.read_text(), link.is_symlink()) == ("precious\n", False)


def test_a_directory_that_others_may_write_is_not_written(bench: Bench) -> None:
    CASES["user-namespaces"][0](bench.host)
    directory = bench.host.root / "etc/sysctl.d"
    directory.mkdir(parents=True)
    directory.chmod(0o777)
    done = run(bench.host, "--fix", "--yes", "--check", "user-namespaces")
    assert (done.code, list(directory.iterdir()), bench.calls) == (1, [], [])


def test_on_a_real_kernel_namespaces_are_available_again(tmp_path: Path) -> None:
    """In a user namespace of its own, where the number is its own as well; /etc is a file system in memory."""
    script = (
        "mount -t tmpfs none /etc && echo 0 > /proc/sys/user/max_user_namespaces && "
        f"{sys.executable} -m vgpumgr doctor --check user-namespaces --fix --yes; echo code $?; "
        "cat /proc/sys/user/max_user_namespaces /etc/sysctl.d/90-vgpumgr.conf"
    )
    unshared = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script)
    own = {"VGPUMGR_STATE_DIR": str(tmp_path / "state"), "VGPUMGR_RUN_DIR": str(tmp_path / "run")}
    environ = {**os.environ, **own, "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(unshared, capture_output=True, text=True, env=environ, check=False)
    assert "user-namespaces: done" in done.stdout, done
    assert done.stdout.splitlines()[-4:] == [
        "code 0", "15000", "# by vgpumgr doctor --fix", "user.max_user_namespaces = 15000",
    ], done  # fmt: skip


def test_as_nobody_nothing_is_offered(bench: Bench, tmp_path: Path) -> None:
    CASES["user-namespaces"][0](bench.host)
    for path in (tmp_path, *tmp_path.parents[:2]):
        path.chmod(0o755)
    bench.host.change(is_privileged=False)
    assert not as_nobody(lambda: bench.host.check("user-namespaces").fixable)


def test_long_evidence_is_cut() -> None:
    assert len(doctor.report("ok", "x", "y" * 1000).evidence[0]) == 400
