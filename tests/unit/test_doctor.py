"""``vgpumgr doctor``: each check on a host where it passes and on one where it does not, and the command as typed."""

from __future__ import annotations

import fcntl
import io
import json
import os
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from tests.support.cli import Result
from tests.support.fake_host import AUDIO, DISK, GPU, MTTY
from tests.support.fit_host import DEVICES, FitHost
from tests.support.unprivileged import as_nobody
from vgpumgr import __version__
from vgpumgr.app.documents.base import Document
from vgpumgr.app.documents.operations import CheckListDocument, CheckShowDocument
from vgpumgr.app.operations import service_checks
from vgpumgr.app.operations.doctor import list_functions
from vgpumgr.app.operations.repairs import name_repairs
from vgpumgr.cli.main import main
from vgpumgr.cli.session import GlobalOptions, Session, Streams
from vgpumgr.errors import (
    HelperLateError,
    HostResourceError,
    LibvirtDownError,
    LibvirtLateError,
    LibvirtPermissionError,
    NvmlError,
    NvmlMissingError,
)
from vgpumgr.host.capabilities import Evidence
from vgpumgr.model.checks import BY_ID, CHECKS, GROUPS
from vgpumgr.model.gpu import Drain, LostGpu
from vgpumgr.model.pci import Condition, User, UserKind, VfSupport
from vgpumgr.model.vgpu import VgpuBoard, VgpuDefinition, VgpuHost
from vgpumgr.virtio import trial
from vgpumgr.virtio.trial import Trial

ROOT = Path(__file__).parents[2]
Golden = Callable[[str, str], None]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FitHost:
    return FitHost(tmp_path, monkeypatch)


def set_driver(host: FitHost, driver: str | None) -> None:
    functions = host.bench.pci.functions
    functions[GPU] = replace(functions[GPU], driver=driver)


def take_iommu(host: FitHost) -> None:
    functions = host.bench.pci.functions
    functions.update({a: replace(f, group=None) for a, f in functions.items()})


def share_group(host: FitHost) -> None:
    functions = host.bench.pci.functions
    functions[DISK] = replace(functions[DISK], group=10)


def wait_for_reset(host: FitHost) -> None:
    gpus = host.bench.nvml.gpus
    for uuid, gpu in gpus.items():
        gpus[uuid] = replace(gpu, mig=replace(gpu.mig, pending=not gpu.mig.current))


def offer_no_vgpus(host: FitHost) -> None:
    board = VgpuBoard("0000:3b:00.0", (MTTY,))
    host.patch.setattr(host.bench.vgpus, "read_host", lambda: VgpuHost(boards=(board,)))


def drain_gpu(host: FitHost) -> None:
    host.parts.store.save_drain(Drain(GPU, None, "root", 0.0, "a fan is to be changed"))


def lock_daemon(host: FitHost) -> None:
    descriptor = os.open(host.machine.run_dir / "daemon.lock", os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)


def lack_descriptors(host: FitHost) -> None:
    def refuse() -> None:
        raise HostResourceError("not enough open files for a change", cause="RLIMIT_NOFILE: 20")

    host.patch.setattr(service_checks, "check_limits", refuse)


def lock_little(host: FitHost) -> None:
    host.change(is_privileged=False)
    host.fake("read_locked_memory_limit", lambda: Evidence("RLIMIT_MEMLOCK", "65536"))


def have_version_1(host: FitHost, *names: str) -> None:
    host.remove("sys/fs/cgroup/cgroup.controllers")
    for name in names:
        host.write(f"sys/fs/cgroup/{name}/tasks", "")


def lose_the_agent(host: FitHost) -> None:
    programs = [p for p in service_checks._PROGRAMS if p.name != "vgpumgr-guestd"]
    assert len(programs) == len(service_checks._PROGRAMS) - 1
    programs.append(host.root / "vgpumgr-guestd")
    host.patch.setattr(service_checks, "_PROGRAMS", programs)


def mix_versions(host: FitHost) -> None:
    host.patch.setattr(service_checks, "find_other_version", lambda: "of version 6.9")


def define_by_mdevctl(host: FitHost) -> None:
    found = (VgpuDefinition("11111111-1111-4111-8111-111111111111", "mtty", "mtty-2", auto=True),)
    host.patch.setattr(host.bench.vgpus, "list_definitions", lambda: found)


def set_reader(thing: str, name: str, value: Any) -> Callable[[FitHost], None]:
    return lambda host: host.patch.setattr(getattr(host.bench, thing), name, lambda *_: value)


def be_coherent(host: FitHost, mode: str) -> None:
    """As a GH200, whose processor shares its tables of addresses with the GPU."""
    functions = host.bench.pci.functions
    functions[GPU] = replace(functions[GPU], device_id=0x2345)
    host.write(f"{UVM}/uvm_ats_mode", f"{mode}\n")


UVM = "sys/module/nvidia_uvm/parameters"
#: what makes each check fail, and what it then finds
FAILURES: dict[str, tuple[Callable[[FitHost], object], str]] = {
    "cpu": (lambda h: (h.write("proc/cpuinfo", "flags : fpu\n"), h.remove("dev/kvm")), "problem"),
    "kvm": (lambda h: h.remove("dev/kvm"), "problem"),
    "iommu": (take_iommu, "problem"),
    "iommu-groups": (share_group, "warning"),
    "interrupt-remapping": (lambda h: h.write("proc/interrupts", "1: IO-APIC\n"), "warning"),
    "command-line": (lambda h: h.write("proc/cmdline", "intel_iommu=off"), "problem"),
    "vfio-pci": (lambda h: h.write("lib/modules/6.1.0-1-amd64/modules.dep", ""), "problem"),
    "vfio-iommu": (lambda h: h.write("lib/modules/6.1.0-1-amd64/modules.dep", ""), "problem"),
    "nouveau": (lambda h: set_driver(h, "nouveau"), "problem"),
    "gpus": (
        lambda h: setattr(h.bench.nvml, "lost", (LostGpu(1, 15, "GPU is lost"),)),
        "problem",
    ),
    "gpu-health": (drain_gpu, "warning"),
    "nvidia-driver": (lambda h: h.remove("proc/driver/nvidia/version"), "problem"),
    "nvml": (
        lambda h: h.bench.nvml.fail.update(
            read_inventory=NvmlMissingError("no library", cause="dlopen")
        ),
        "problem",
    ),
    "driver-version": (
        lambda h: h.write("proc/driver/nvidia/version", "NVIDIA Kernel Module 570.1.0"),
        "problem",
    ),
    "vgpu-framework": (offer_no_vgpus, "warning"),
    "sriov": (set_reader("pci", "observe_vfs", VfSupport(7, "xe.max_vfs is 0")), "warning"),
    "mig": (wait_for_reset, "warning"),
    "gpu-users": (lambda h: h.bench.pci.users.update({GPU: "process 7 (Xorg)"}), "warning"),
    "pci-reset": (set_reader("pci", "read_condition", Condition((), "D0")), "warning"),
    "hmm": (lambda h: h.write(f"{UVM}/uvm_disable_hmm", "N\n"), "warning"),
    "ats": (lambda h: be_coherent(h, "1"), "warning"),
    "libvirt": (
        lambda h: h.bench.hypervisor.fail.update(
            list_vms=LibvirtDownError("no libvirt", cause="connect")
        ),
        "problem",
    ),
    "libvirt-version": (
        lambda h: setattr(h.bench.hypervisor, "versions", ("8.0.0", "6.2.0")),
        "warning",
    ),
    "qemu": (lambda h: h.fake("find_program", lambda _: None), "problem"),
    "access-control": (lambda h: h.write("sys/fs/selinux/enforce", "1\n"), "warning"),
    "root": (lambda h: h.change(is_privileged=False), "warning"),
    "locked-memory": (lock_little, "warning"),
    "descriptors": (lack_descriptors, "problem"),
    "memory-files": (
        lambda h: h.fake("try_memory_file", lambda: Evidence("memfd", None)),
        "problem",
    ),
    "user-namespaces": (lambda h: h.write("proc/sys/user/max_user_namespaces", "0"), "problem"),
    "seccomp": (lambda h: h.remove("proc/sys/kernel/seccomp/actions_avail"), "problem"),
    "cgroup": (lambda h: h.write("sys/fs/cgroup/cgroup.controllers", "cpu io\n"), "warning"),
    "programs": (lose_the_agent, "problem"),
    "channel": (lambda h: h.try_channel(Trial(failed={"serial": "no lane"})), "problem"),
    "mathematics": (FitHost.have_half_of_cublas, "warning"),
    "daemon": (lock_daemon, "problem"),
    "restore-unit": (
        lambda h: h.remove("etc/systemd/system/multi-user.target.wants/vgpumgr-restore.service"),
        "warning",
    ),
    "other-tools": (define_by_mdevctl, "warning"),
    "leftovers": (lambda h: h.change(list_late=lambda: ("process 7 (a call)",)), "warning"),
    "clock": (lambda h: h.change(boot_id=""), "problem"),
    "disk": (
        lambda h: h.fake("read_free_bytes", lambda _: (Evidence("statvfs", "1 MiB free"), 1 << 20)),
        "problem",
    ),
}


def test_programs_of_another_version_are_a_problem(host: FitHost) -> None:
    mix_versions(host)
    found = host.check("programs")
    assert (found.result, found.text) == ("problem", "of version 6.9")
    assert found.hint


def test_each_check_has_a_function_and_a_failure() -> None:
    assert set(list_functions()) == set(FAILURES) == set(BY_ID)
    assert {check.group for check in CHECKS} == set(GROUPS)


@pytest.mark.parametrize("name", BY_ID)
def test_a_fit_host_passes(host: FitHost, name: str) -> None:
    found = host.check(name)
    assert (found.result, found.hint) == ("ok", None), found


@pytest.mark.parametrize("name", BY_ID)
def test_a_host_that_is_not_fit_fails(host: FitHost, name: str) -> None:
    spoil, result = FAILURES[name]
    spoil(host)
    found = host.check(name)
    assert found.result == result, found
    assert found.hint or found.evidence


@pytest.mark.parametrize(
    ("name", "spoil", "expected"),
    [
        ("command-line", lambda h: h.write("proc/cmdline", "pcie_acs_override=downstream"), "claims"),
        ("command-line", lambda h: h.write("proc/cmdline", "vfio-pci.ids=10de:2330"), "bind 0000:3b"),
        ("nouveau", lambda h: h.write("proc/modules", "nouveau 1 0 - Live\n"), "loaded"),
        ("nvidia-driver", lambda h: set_driver(h, None), "has no driver"),
        ("libvirt", lambda h: h.bench.hypervisor.fail.update(
            list_vms=LibvirtPermissionError("no", cause="authentication")), "this user"),
        ("qemu", lambda h: h.fake("run_program", lambda *_: Evidence(
            "qemu", DEVICES.replace("ivshmem-doorbell", "x"))), "ivshmem-doorbell"),
        ("qemu", lambda h: h.fake("run_program", lambda *_: Evidence("qemu", None)), "does not list"),
        ("driver-version", lambda h: h.bench.nvml.fail.update(
            read_inventory=NvmlError("no", cause="Driver/library version mismatch")), "refuses"),
        ("clock", lambda h: setattr(h.parts.clock, "set_s", 0.0), "1970"),
        ("restore-unit", lambda h: (
            h.remove("etc/systemd/system/vgpumgr-restore.service")), "not installed"),
        ("other-tools", lambda h: h.write(
            "etc/systemd/system/multi-user.target.wants/nvidia-mig-manager.service", ""), "mig-manager"),
        ("other-tools", lambda h: h.write("etc/driverctl.d/pci-0000:3b:00.0", ""), "unset-override"),
    ],
)  # fmt: skip
def test_other_findings(
    host: FitHost, name: str, spoil: Callable[[FitHost], object], expected: str
) -> None:
    spoil(host)
    found = host.check(name)
    assert found.result in ("warning", "problem")
    assert expected in f"{found.text} {found.hint} {found.evidence}"


def test_a_module_that_cannot_has_no_hmm_to_be_switched_off(host: FitHost) -> None:
    host.remove(f"{UVM}/uvm_disable_hmm")
    assert host.check("hmm").result == "ok"
    host.write(f"{UVM}/uvm_disable_hmm", "N\n")
    host.write(
        "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05"
    )
    assert host.check("hmm").result == "ok"
    host.remove("proc/driver/nvidia/version")
    assert host.check("hmm").result == "skipped"


def test_a_gpu_that_shares_memory_with_its_processor_counts_while_it_is_the_hosts(
    host: FitHost,
) -> None:
    be_coherent(host, "1")
    found = host.check("ats")
    assert (found.result, "uvm_ats_mode: 1" in f"{found.evidence}") == ("warning", True), found
    assert "uvm_ats_mode=0" in (found.hint or "")
    set_driver(host, "vfio-pci")
    assert host.check("ats").result == "ok"
    set_driver(host, "nvidia")
    be_coherent(host, "0")
    found = host.check("ats")
    assert (found.result, found.text) == ("ok", "off")
    host.remove(f"{UVM}/uvm_ats_mode")  # the module has it on unless it is switched off
    assert host.check("ats").result == "warning"
    host.remove("proc/driver/nvidia/version")
    assert host.check("ats").result == "skipped"


def test_a_parameter_alone_is_no_ats(host: FitHost) -> None:
    host.write(f"{UVM}/uvm_ats_mode", "1\n")  # the default of the module on all hosts
    assert host.check("ats").result == "ok"


@pytest.mark.parametrize(
    ("tried", "result", "text"),
    [
        (Trial(failed={"keeper": "no memory"}), "problem", "memory-files"),
        (
            Trial(failed={"worker": "sandbox: no"}, log="clone3"),
            "problem",
            "the worker wrote: clone3",
        ),
        (Trial(("worker: ready",), {"ring": "no lane"}), "problem", "attach VM --transport serial"),
        (Trial(("worker: ready",), {"ring": "no lane"}), "problem", "worker: ready"),
        (Trial(failed={"ring": "x", "serial": "x"}), "problem", "journalctl"),
        (Trial(("worker: ready",), gaps=("user: 0",)), "warning", "user: 0"),
        (Trial(failed={"keeper": "x"}, hint="choose another"), "problem", "choose another"),
        (Trial(is_busy=True), "skipped", "another command"),
    ],
)
def test_what_came_of_trying_a_channel(host: FitHost, tried: Trial, result: str, text: str) -> None:
    host.try_channel(tried)
    found = host.check("channel")
    assert (found.result, text in f"{found.text} {found.evidence} {found.hint}") == (result, True)


def test_a_channel_is_tried_with_the_programs_of_channels_only(host: FitHost) -> None:
    host.try_channel(Trial(failed={"keeper": "there is no keeper"}))
    lose_the_agent(host)
    found = host.check("channel")
    assert (found.result, "see programs" in found.text) == ("skipped", True)


def test_a_try_that_does_not_end_is_waited_for_no_longer(host: FitHost) -> None:
    def hang(_machine: object) -> Trial:
        raise HelperLateError("the try has not answered", cause="process 7", hint="vgpumgr status")

    host.patch.setattr(trial, "try_channel", hang)
    found = host.check("channel")
    assert (found.result, found.hint) == ("problem", "vgpumgr status")


def test_other_checks_are_made_while_a_channel_is_tried(host: FitHost) -> None:
    disk_is_checked = threading.Event()

    def wait(_machine: object) -> Trial:
        assert disk_is_checked.wait(30), "the check disk waits for the channel's"
        return Trial(("worker: ready",))

    def read_free_bytes(_directory: Path) -> tuple[Evidence, int]:
        disk_is_checked.set()
        return Evidence("statvfs", "1 GiB free"), 1 << 30

    host.patch.setattr(trial, "try_channel", wait)
    host.fake("read_free_bytes", read_free_bytes)
    found = {one.id: one.result for one in host.application.check_host("channel,disk").checks}
    assert found == {"channel": "ok", "disk": "ok"}


@pytest.mark.parametrize(
    ("names", "result", "text"),
    [
        (("cpu,cpuacct", "memory", "pids"), "ok", "version 1: memory, pids"),
        (("memory", "unified"), "ok", "version 1: memory"),
        (("cpu,cpuacct", "systemd"), "warning", "no controller"),
    ],
)
def test_control_groups_of_version_1(
    host: FitHost, names: tuple[str, ...], result: str, text: str
) -> None:
    have_version_1(host, *names)
    found = host.check("cgroup")
    assert (found.result, text in found.text) == (result, True), found


@pytest.mark.parametrize("name", ["user-namespaces", "seccomp"])
@pytest.mark.parametrize("value", ["1", "0", "", "no", "false"])
def test_a_host_without_sandboxes_is_a_problem_unless_that_is_allowed(
    host: FitHost, name: str, value: str
) -> None:
    FAILURES[name][0](host)
    host.patch.setenv("VGPUMGR_ALLOW_UNCONFINED", value)
    found = host.check(name)
    assert found.result == ("warning" if value == "1" else "problem"), found
    assert ("VG226" in found.text) == (value != "1")
    assert "SECURITY.md" in (found.hint or "")


def test_a_finding_without_a_hint_of_its_own_says_what_explain_says(host: FitHost) -> None:
    host.remove("dev/kvm")
    assert host.check("kvm").hint == BY_ID["kvm"].mend


def test_what_goes_to_vms_is_no_user_of_the_host(host: FitHost) -> None:
    set_driver(host, "vfio-pci")
    host.bench.pci.users[GPU] = "QEMU of vm01"
    assert host.check("gpu-users").result == "ok"
    set_driver(host, "nvidia")
    persistence = User(UserKind.PROCESS, "process 9 (nvidia-persiste)")
    host.patch.setattr(host.bench.pci, "list_users", lambda _: {GPU: (persistence,), AUDIO: ()})
    assert host.check("gpu-users").result == "ok"


def test_the_daemon_compares_versions(host: FitHost) -> None:
    host.patch.setattr(
        service_checks, "find_holder", lambda _: f"process {os.getpid()}: the daemon (vgpumgr)"
    )
    assert host.check("daemon", client_version=__version__).result == "ok"
    found = host.check("daemon", client_version="0.0.1")
    assert (found.result, found.hint) == ("warning", "systemctl restart vgpumgr")


@pytest.mark.parametrize("error", [RuntimeError("a bug"), OSError(5, "Input/output error")])
def test_a_check_that_raises_hides_no_other(host: FitHost, error: Exception) -> None:
    def fail(_address: object) -> Condition:
        raise error

    host.patch.setattr(host.bench.pci, "read_condition", fail)
    found = {one.id: one for one in host.application.check_host().checks}
    assert found["pci-reset"].result == "problem"
    assert found["pci-reset"].text.startswith("the check failed")
    assert found["mig"].result == "ok"


def test_nvml_and_libvirt_that_hang_are_waited_for_once(host: FitHost) -> None:
    calls: list[str] = []

    def hang(name: str, error: Exception) -> Callable[[], Any]:
        def call() -> Any:
            calls.append(name)
            raise error

        return call

    host.change(read_inventory=hang("nvml", HelperLateError("the GPUs are late", hint="wait")))
    host.patch.setattr(
        host.bench.hypervisor, "list_vms", hang("libvirt", LibvirtLateError("no answer"))
    )
    found = {one.id: one for one in host.application.check_host().checks}
    assert sorted(calls) == ["libvirt", "nvml"]
    assert (found["nvml"].result, found["libvirt"].result) == ("problem", "problem")
    for name in ("driver-version", "mig", "vgpu-framework", "libvirt-version", "leftovers"):
        assert found[name].result == "skipped", found[name]
    assert found["iommu"].result == "ok"


def run(host: FitHost, *words: str) -> Result:
    out, err, options = io.StringIO(), io.StringIO(), GlobalOptions()
    streams = Streams(options, out, err, {})
    code = main(["doctor", *words], Session(options, streams, host.open_backend))
    return Result(code, out.getvalue(), err.getvalue())


def test_text_and_exit_codes(host: FitHost) -> None:
    done = run(host)
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith(f"{len(CHECKS)} ok, 0 warnings, 0 problems, 0 skipped\n")
    assert all(heading in done.out.splitlines() for heading in GROUPS.values())
    wait_for_reset(host)
    assert run(host).code == 0
    assert run(host, "--strict").code == 3
    host.write("proc/cmdline", "intel_iommu=off")
    done = run(host, "-q")
    assert done.code == 3
    assert [line[2:10].strip() for line in done.out.splitlines() if line[2:3].isalpha()][:2]
    assert "evidence: /proc/cmdline: intel_iommu=off" in done.out
    assert "try: nvidia-smi --gpu-reset -i 0" in done.out
    assert " ok " not in done.out


def test_formats_and_choice(host: FitHost) -> None:
    document = json.loads(run(host, "--check", "iommu", "--check", "kvm", "-o", "json").out)
    assert [row["id"] for row in document["checks"]] == ["kvm", "iommu"]
    assert (
        run(host, "--check", "kvm", "-o", "csv").out.splitlines()[0].startswith("id,group,result")
    )
    assert run(host, "-o", "name").out.split() == list(BY_ID)
    assert "checks:" in run(host, "-o", "yaml", "--check", "kvm").out


def test_unknown_checks_have_a_suggestion(host: FitHost) -> None:
    for words in (("--check", "iomu"), ("explain", "iomu")):
        done = run(host, *words)
        assert (done.code, "did you mean iommu?" in done.err) == (2, True), done
    done = run(host, "--check", "nosuch")
    assert done.code == 2
    assert 1 <= sum(name in done.err for name in BY_ID) < 8, done.err
    done = run(host, "explain")
    assert (done.code, "vgpumgr doctor explain iommu" in done.err) == (2, True), done
    for words in (("--strict",), ("--check", "kvm")):
        done = run(host, "explain", "iommu", *words)
        assert (done.code, f"takes no {words[0]}" in done.err) == (2, True), done
    assert run(host, "iommu").code == 2


@pytest.mark.parametrize("name", BY_ID)
def test_explain(host: FitHost, name: str) -> None:
    done, check = run(host, "explain", name), BY_ID[name]
    assert done.code == 0
    for text in (check.title, check.how, check.mend, check.source):
        assert text in done.out
    assert json.loads(run(host, "explain", name, "-o", "json").out)["check"]["id"] == name


def test_without_root_what_is_roots_is_skipped(host: FitHost) -> None:
    host.change(is_privileged=False)
    found = {one.id: one for one in host.application.check_host().checks}
    assert {name for name, one in found.items() if one.result == "skipped"} == {
        "gpu-users",
        "leftovers",
        "channel",
    }
    assert "needs root" in found["leftovers"].text


def test_a_user_without_rights_gets_an_answer(tmp_path: Path, host: FitHost) -> None:
    (host.root / "dev/kvm").chmod(0o600)
    for path in (tmp_path, *tmp_path.parents[:2]):
        path.chmod(0o755)
    found = as_nobody(lambda: host.check("kvm").as_data())
    assert (found["result"], found["hint"]) == ("warning", "adduser $USER kvm")


PAGE = """# Checks of the host

Generated from `vgpumgr/model/checks.py` by `pytest --regenerate`.

`vgpumgr doctor` checks whether a host can give GPUs to VMs, and changes nothing without `--fix`. Where a check
fails, it shows the file or the command that says so, and what to do. Without root, checks of what only root may read
are skipped; on a simulated machine, those of the real host. A driver or libvirt that hangs is waited for once, at most
30 seconds each. The check `channel` starts the programs of a channel beside those of attached VMs, touches no GPU, and
ends what it has started, also if the command is killed. If a daemon runs, it makes the checks (`GET /1.0/checks`).

    vgpumgr doctor                  # all checks; -q leaves out those that pass
    vgpumgr doctor --strict         # exit code 3 for warnings, too
    vgpumgr doctor --check iommu    # one check
    vgpumgr doctor explain iommu    # what it means, how it is made, what to do
    vgpumgr doctor --fix            # do what can be done about it, after a plan and a question

The exit code is 0 if no check finds a problem, else 3.

## What --fix does

It shows what it would do (`--dry-run`: that alone), asks (`--yes`: does not), does it, and checks again. It writes
files of its own, whose names have `vgpumgr` in them, and runs programs of the host: `update-grub` or `grubby`,
`update-initramfs` or `dracut`, `modprobe`, `systemctl`, `sysctl`, `timedatectl`, `vgpumgr recover`. No other
file is edited. If a program fails, the file of that repair is as it was before, the other repairs are made all the
same, and the exit code is 1. What takes effect with a reboot is `waiting` until then, and the host is not rebooted. To
take a repair back, remove its file and run the program again. It needs root, and works on this host itself, not through
the daemon, whose unit may not change so much.

It can do something about:

REPAIRS.

All else is an administrator's: firmware, cards, packages, other people's settings, and programs that use a GPU.
"""


def write_cell(text: str) -> str:
    """A cell of a table of Markdown, in which a bar would begin the next one."""
    return text.replace("|", r"\|")


def test_each_row_of_the_page_has_the_cells_of_its_table(page: str) -> None:
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {6}


@pytest.fixture
def page() -> str:
    names = ", ".join(f"`{name}`" for name in name_repairs())
    lines = PAGE.replace("REPAIRS", names).splitlines() + [""]
    for group, heading in GROUPS.items():
        lines += [f"## {heading}", "", "| check | passes if | how it is checked | what to do | source |"]  # fmt: skip
        lines += ["|---|---|---|---|---|"]
        lines += [
            "| "
            + " | ".join(map(write_cell, (f"`{c.id}`", c.title, c.how, c.mend, c.source)))
            + " |"
            for c in CHECKS
            if c.group == group
        ]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def test_the_page_is_the_table(page: str, request: pytest.FixtureRequest) -> None:
    path = ROOT / "docs/doctor.md"
    if request.config.getoption("--regenerate"):
        path.write_text(page)
    assert path.read_text() == page


@pytest.mark.parametrize("kind", [CheckListDocument, CheckShowDocument])
def test_the_contract_changes_only_on_purpose(golden: Golden, kind: type[Document]) -> None:
    schema = TypeAdapter[Any](kind).json_schema(mode="serialization")
    golden(f"schema/{kind.__name__}.json", json.dumps(schema, indent=1) + "\n")
