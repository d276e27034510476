"""Checks of ``vgpumgr doctor`` on libvirt and QEMU, this process's rights and limits, and vgpumgr itself."""

from __future__ import annotations

import grp
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from vgpumgr import __version__
from vgpumgr.app.context import LIBVIRT_ERRORS
from vgpumgr.app.operations.doctor import (
    CheckFunction,
    Finding,
    NotCheckedError,
    ObservedHost,
    report,
    report_error,
)
from vgpumgr.app.operations.recovery import Recovery
from vgpumgr.backends.interrupted import list_interrupted
from vgpumgr.errors import HelperLateError, HostResourceError, LibvirtError, LibvirtPermissionError
from vgpumgr.errors.unexpected import advise_installation
from vgpumgr.host import capabilities
from vgpumgr.host.cgroups import list_obstacles
from vgpumgr.host.limits import check_limits, read_descriptor_limit
from vgpumgr.host.lock import find_holder
from vgpumgr.model.checks import Result
from vgpumgr.model.text import tell_count
from vgpumgr.virtio import trial
from vgpumgr.virtio.keeper import (
    AGENT_PROGRAM,
    HOLD_PROGRAM,
    KEEPER_PROGRAM,
    WORKER_PROGRAM,
    find_other_version,
)
from vgpumgr.virtio.mathematics import find_libraries
from vgpumgr.virtio.sandbox import choose_filter, is_unconfined

#: the oldest that the tests run with: Debian 12's
_OLDEST_LIBVIRT = (9, 0)
_QEMU = ("qemu-system-x86_64", "/usr/libexec/qemu-kvm")
_QEMU_DEVICES = ("ivshmem-doorbell", "virtserialport", "vfio-pci")
#: what a channel of a VM needs, and the agent of a run
_PROGRAMS = (HOLD_PROGRAM, KEEPER_PROGRAM, WORKER_PROGRAM, AGENT_PROGRAM)
_CONTROLLERS = ("memory", "pids")
_MIG_MANAGER = "nvidia-mig-manager.service"
_RESTORE = "vgpumgr-restore.service"
_ENOUGH_LOCKED_BYTES = 64 << 20
_ENOUGH_FREE_BYTES = 64 << 20
_GROUP = "vgpumgr"
_FIRST_YEAR = 2025


def _check_libvirt(host: ObservedHost) -> Finding:
    try:
        count = len(host.vms)
    except LibvirtPermissionError as error:
        hint = "adduser $USER libvirt; or as root"
        return report("warning", "libvirt refuses this user", error.cause or error, hint=hint)
    except LIBVIRT_ERRORS as error:
        return report_error(error)
    return report("ok", f"answers: {tell_count(count, 'VM')}", f"virsh list --all: {count}")


def _check_libvirt_version(host: ObservedHost) -> Finding:
    host.need_libvirt()
    hypervisor = host.parts.hypervisor
    try:
        library, emulator = hypervisor.read_versions()
        variants, iommufd = hypervisor.takes_variant_drivers(), hypervisor.offers_iommufd()
    except LibvirtError as error:
        raise NotCheckedError("this hypervisor does not say") from error
    evidence = (
        f"virsh version: libvirt {library}, hypervisor {emulator}",
        f"variant drivers of VFIO: {'yes' if variants else 'no, from 10.0 on'}",
        f"virsh domcapabilities: iommufd {'yes' if iommufd else 'no'}",
    )
    if tuple(map(int, library.split(".")[:2])) < _OLDEST_LIBVIRT:
        return report("warning", f"{library} is older than 9.0", *evidence)
    return report("ok", f"libvirt {library}, hypervisor {emulator}", *evidence)


def _check_qemu(host: ObservedHost) -> Finding:
    host.need_real()
    path = capabilities.find_program(_QEMU)
    if path is None:
        return report("problem", f"{_QEMU[0]} is not installed")
    fact = capabilities.run_program(path, "-device", "help")
    missing = [name for name in _QEMU_DEVICES if f'"{name}"' not in (fact.text or "")]
    if fact.text is None or len(missing) == len(_QEMU_DEVICES):
        hint = f"{path} -device help"
        return report("problem", "QEMU does not list its devices", fact, hint=hint)
    if missing:
        # a channel works without ivshmem, by virtio-serial alone
        result: Result = "warning" if missing == [_QEMU_DEVICES[0]] else "problem"
        names = ", ".join(missing)
        evidence = f"{fact.source}: no {names}"
        return report(result, f"has no {names}", evidence)
    return report("ok", path, f"{fact.source}: {', '.join(_QEMU_DEVICES)}")


def _check_access_control(host: ObservedHost) -> Finding:
    apparmor, selinux = capabilities.read_access_control(host.machine)
    if host.machine.is_simulated and apparmor.text is None and selinux.text is None:
        raise NotCheckedError("the simulated machine has neither AppArmor nor SELinux")
    if selinux.text == "1":
        text = "SELinux enforces: QEMU needs access to the sockets of channels"
        return report("warning", text, selinux, apparmor)
    if apparmor.text != "Y":
        return report("ok", "none enforces", apparmor, selinux)
    profile = capabilities.read_worker_profile(host.machine)
    text = "AppArmor, workers in a profile of their own" if profile.text else "AppArmor"
    return report("ok", text, apparmor, profile, selinux)


def _check_root(host: ObservedHost) -> Finding:
    user = f"geteuid: {os.geteuid()}"
    if host.parts.is_privileged:
        return report("ok", "this process may change the machine", user)
    names = [_name_group(gid) for gid in os.getgroups()]
    evidence = (user, f"getgroups: {', '.join(names)}")
    if _GROUP in names:
        text = "this user needs a daemon for changes, and none answers"
        return report("warning", text, *evidence, hint="systemctl start vgpumgr.socket")
    text = "this user changes nothing; checks of what is root's are skipped"
    return report("warning", text, *evidence, hint="sudo vgpumgr doctor")


def _name_group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _check_locked_memory(host: ObservedHost) -> Finding:
    host.need_real()
    fact = capabilities.read_locked_memory_limit()
    text = host.need(fact)
    if host.parts.is_privileged or text == "unlimited" or int(text) >= _ENOUGH_LOCKED_BYTES:
        return report("ok", "enough" if text != "unlimited" else text, fact)
    return report("warning", f"at most {int(text) >> 10} KiB can be locked", fact)


def _check_descriptors(_host: ObservedHost) -> Finding:
    try:
        check_limits()
    except HostResourceError as error:
        return report("problem", error.error, error.cause, hint=error.hint)
    return report("ok", str(limit := read_descriptor_limit()), f"RLIMIT_NOFILE: {limit}")


def _check_memory_files(host: ObservedHost) -> Finding:
    host.need_real()
    fact = capabilities.try_memory_file()
    if fact.text is None:
        return report("problem", "memory files cannot be sealed", fact)
    return report("ok", "work", fact)


def _check_user_namespaces(host: ObservedHost) -> Finding:
    fact = capabilities.read_user_namespaces(host.machine)
    if int(host.need(fact)):
        return report("ok", "available", fact)
    allowed = is_unconfined(os.environ)
    return _report_unconfined("user namespaces are switched off", fact, allowed=allowed)


def _check_seccomp(host: ObservedHost) -> Finding:
    fact = capabilities.read_seccomp(host.machine)
    if fact.text is None and not host.machine.is_simulated:
        allowed = is_unconfined(os.environ) or choose_filter(os.environ) == "off"
        return _report_unconfined("this kernel filters no system calls", fact, allowed=allowed)
    return report("ok", "available", host.need(fact) and fact)


def _report_unconfined(text: str, fact: capabilities.Evidence, *, allowed: bool) -> Finding:
    """What the sandbox of workers lacks: without it they do not start, unless that is allowed."""
    if allowed:
        return report("warning", f"{text}: workers start without a sandbox, as is allowed", fact)
    return report("problem", f"{text}: no worker starts (VG226)", fact)


def _check_cgroup(host: ObservedHost) -> Finding:
    fact, version = capabilities.read_controllers(host.machine)
    found = [name for name in _CONTROLLERS if name in host.need(fact).split()]
    if not found:
        return report("warning", "no controller of memory or of processes", fact)
    if str(host.machine.root) == "/" and os.geteuid() == 0 and (kept := list_obstacles()):
        text = "; ".join(f"{name}: {why}" for name, why in kept.items())
        return report("warning", f"workers have no limit of the host's: {text}", fact)
    return report("ok", f"version {version}: {', '.join(found)}", fact)


def _check_programs(_host: ObservedHost) -> Finding:
    missing = [str(path) for path in _PROGRAMS if not capabilities.is_executable(path)]
    evidence = f"ls -l {' '.join(map(str, _PROGRAMS))}"
    if missing:
        text = f"not installed, or not executable: {', '.join(missing)}"
        return report("problem", text, evidence)
    if other := find_other_version():
        return report("problem", other, evidence, hint=advise_installation())
    return report("ok", ", ".join(path.name for path in _PROGRAMS), evidence)


def _check_mathematics(host: ObservedHost) -> Finding:
    """None at all is no fault: many guests' programs need none, and others get an error that names the library."""
    found = find_libraries({**os.environ, **host.machine.variables})
    evidence = tuple(f"{one.name}: {one.path}" for one in found)
    if not found:
        return report(
            "ok",
            "none: guests' calls of cuBLAS, cuDNN, cuFFT, cuSOLVER, cuSPARSE and cuRAND are "
            "refused by name",
        )
    pair = [one.name for one in found if one.name.startswith("libcublas")]
    if len(pair) == 1:
        text = f"{pair[0]} alone: one does not load without the other"
        return report("warning", text, *evidence)
    return report("ok", ", ".join(one.path.name for one in found), *evidence)


def _check_channel(host: ObservedHost) -> Finding:
    if not host.parts.is_privileged or os.geteuid() != 0:
        raise NotCheckedError("needs root: workers of channels are started by root")
    if not all(map(capabilities.is_executable, _PROGRAMS)):
        raise NotCheckedError("the programs of channels are missing: see programs")
    try:
        tried = trial.try_channel(host.machine)
    except HelperLateError as error:
        return report_error(error)
    if tried.is_busy:
        raise NotCheckedError("another command tries a channel now")
    if tried.failed:
        text = f"does not work: {', '.join(tried.failed)}"
        failed = (f"{step}: {why}" for step, why in tried.failed.items())
        log = (f"the worker wrote: {tried.log}",) if tried.log else ()
        hint = tried.hint or _advise_channel(tried.failed)
        return report("problem", text, *failed, *log, *tried.passed, hint=hint)
    if tried.gaps:
        text = f"works, and the worker's sandbox does not hold all: {tell_count(len(tried.gaps), 'gap')}"
        return report("warning", text, *tried.gaps, *tried.passed, hint="vgpumgr virtio show VM")
    return report("ok", f"answers over {' and '.join(trial.TRANSPORTS)}", *tried.passed)


def _advise_channel(failed: Mapping[str, str]) -> str:
    """What to try where these steps have failed."""
    if "keeper" in failed:
        return "vgpumgr doctor --check programs --check memory-files --check descriptors"
    if "worker" in failed:
        return "vgpumgr doctor --check user-namespaces --check seccomp --check access-control"
    left = [name for name in trial.TRANSPORTS if name not in failed]
    if len(left) == 1:
        return (
            f"vgpumgr attach VM --transport {left[0]} ...; journalctl -k | grep -e vgpumgr -e avc"
        )
    return "journalctl -k | grep -e vgpumgr -e avc; ps -e | grep vgpumgr"


def _check_daemon(host: ObservedHost) -> Finding:
    holder = find_holder(host.daemon_lock)
    evidence = f"flock {host.daemon_lock}: {holder or 'free'}"
    if holder is None:
        return report("ok", "none runs: commands do their work themselves", evidence)
    if re.match(rf"process {os.getpid()}\b", holder) is None:
        return report("problem", "a daemon runs, and does not answer", evidence)
    if host.client_version not in (None, __version__):
        text = f"the daemon is {__version__}, this command {host.client_version}"
        return report("warning", text, evidence)
    return report("ok", f"answers, version {__version__}", evidence)


def _check_restore_unit(host: ObservedHost) -> Finding:
    installed, enabled = capabilities.find_unit(host.machine, _RESTORE)
    if installed.text and enabled.text:
        return report("ok", "enabled", enabled)
    if host.machine.is_simulated:
        raise NotCheckedError("the simulated machine has no systemd")
    if installed.text:
        return report("warning", f"{_RESTORE} is not enabled", enabled)
    hint = "install vgpumgr/_lib/templates/systemd, or use the Ansible role"
    return report("warning", f"{_RESTORE} is not installed", installed, hint=hint)


def _check_other_tools(host: ObservedHost) -> Finding:
    found, hints = [], []
    ours = {record.spec.uuid for record in host.parts.vgpu_store.list_vgpus()}
    for one in host.parts.vgpus.list_definitions():
        if one.auto and one.uuid not in ours:
            found.append(f"mdevctl {one.parent}/{one.uuid}: starts by itself")
            hints.append(f"vgpumgr mdev adopt {one.uuid}")
    _, manager = capabilities.find_unit(host.machine, _MIG_MANAGER)
    if manager.text:
        found.append(str(manager))
        hints.append(f"systemctl disable {_MIG_MANAGER}")
    overrides = capabilities.list_driver_overrides(host.machine)
    gpus = {f"pci-{f.address}": f.address for f in host.gpu_functions}
    for name in (overrides.text or "").split(", "):
        if name in gpus:
            found.append(f"{overrides.source}/{name}")
            hints.append(f"driverctl unset-override {gpus[name]}")
    if found:
        text = f"{tell_count(len(found), 'setting')} of other programs"
        return report("warning", text, *found, hint="; ".join(hints[:3]))
    return report("ok", "none", overrides)


def _check_leftovers(host: ObservedHost) -> Finding:
    if not host.parts.is_privileged:
        raise NotCheckedError("needs root: the state is root's")
    found = [f"late: {helper}" for helper in host.parts.list_late()]
    try:
        host.need_libvirt()
    except NotCheckedError:
        # a libvirt that hangs is not waited for once more
        left = list_interrupted(host.parts.open_journal().look())
        found += [f"{one.subject}: {one.operation} was interrupted" for one in left]
        if not found:
            raise
        return report("warning", "operations have not ended", *found, hint="vgpumgr status")
    status = Recovery(replace(host.parts, read_inventory=lambda: host.inventory)).status()
    found += [f"{one.subject}: {one.operation} was interrupted" for one in status.interrupted]
    found += [f"{one.subject}: {one.text}" for one in status.drift or ()]
    # a machine without NVML is no leftover
    found += [text for text in status.problems if "NVML" not in text]
    if status.journal in ("failed", "corrupt"):
        text = f"the journal is {status.journal}"
        return report("problem", text, *found, hint="vgpumgr recover")
    if found:
        text = f"{len(found)} of vgpumgr status"
        return report("warning", text, *found, hint="vgpumgr status; vgpumgr recover")
    return report("ok", "none", "vgpumgr status: no differences")


def _check_clock(host: ObservedHost) -> Finding:
    boot = capabilities.Evidence(
        "boot_id below /proc/sys/kernel/random", host.parts.boot_id or None
    )
    now = datetime.fromtimestamp(host.parts.clock.wall_s(), UTC)
    evidence = (boot, f"clock: {now:%Y-%m-%d}")
    if not host.parts.boot_id:
        text = "the boot has no id: nothing can be restored after one"
        return report("problem", text, *evidence, hint="mount -t proc proc /proc")
    if now.year < _FIRST_YEAR:
        hint = "timedatectl set-ntp true"
        return report("warning", f"the clock says {now:%Y}", *evidence, hint=hint)
    return report("ok", "set", boot)


def _check_disk(host: ObservedHost) -> Finding:
    fact, free = capabilities.read_free_bytes(host.parts.state_dir)
    if free < _ENOUGH_FREE_BYTES:
        hint = f"du -xh --max-depth 2 {host.parts.state_dir.parent} | sort -h | tail"
        return report("problem", f"{free >> 20} MiB are free", fact, hint=hint)
    return report("ok", "enough", str(fact))


CHECKS: Mapping[str, CheckFunction] = {
    "libvirt": _check_libvirt,
    "libvirt-version": _check_libvirt_version,
    "qemu": _check_qemu,
    "access-control": _check_access_control,
    "root": _check_root,
    "locked-memory": _check_locked_memory,
    "descriptors": _check_descriptors,
    "memory-files": _check_memory_files,
    "user-namespaces": _check_user_namespaces,
    "seccomp": _check_seccomp,
    "cgroup": _check_cgroup,
    "programs": _check_programs,
    "channel": _check_channel,
    "mathematics": _check_mathematics,
    "daemon": _check_daemon,
    "restore-unit": _check_restore_unit,
    "other-tools": _check_other_tools,
    "leftovers": _check_leftovers,
    "clock": _check_clock,
    "disk": _check_disk,
}
