"""What ``vgpumgr doctor --fix`` does about what the checks find: which repair is for which check, and where."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Mapping, Sequence

from vgpumgr.app.operations.doctor import CheckResult, ObservedHost
from vgpumgr.errors import LibvirtDownError, VgpumgrError
from vgpumgr.host import capabilities
from vgpumgr.host.machine import read_kernel_words
from vgpumgr.host.repairs import Action, Repair, RunProgram, WriteFile
from vgpumgr.model.pci import INTEL

_LIBVIRT_UNITS = ("virtqemud.socket", "libvirtd.service")
_NAMESPACES = "user.max_user_namespaces = 15000"


def find_repair(host: ObservedHost, result: CheckResult) -> Repair | None:
    """What ``--fix`` does about it; None: nothing, what there is to do is an administrator's."""
    if result.finding.result not in ("warning", "problem") or not host.parts.is_privileged:
        return None
    find = _REPAIRS.get(result.check.id)
    if find is None or (host.machine.is_simulated and find is not _recover):
        return None
    try:
        return find(host)
    except (OSError, VgpumgrError):
        return None  # the check has said so


def _run(*words: str) -> RunProgram | None:
    path = capabilities.find_program(words[:1])
    return RunProgram((path, *words[1:]), " ".join(words)) if path else None


def _repair(*actions: Action | None, needs_reboot: bool = False) -> Repair | None:
    """A repair of these actions. None where one cannot be had."""
    found = tuple(action for action in actions if action is not None)
    if len(found) < len(actions):
        return None
    files = [action for action in found if isinstance(action, WriteFile)]
    if needs_reboot and files and all(file.is_done for file in files):
        return Repair((), needs_reboot=True)
    return Repair(found, needs_reboot)


def _write(host: ObservedHost, name: str, line: str) -> WriteFile:
    return WriteFile(name, host.machine.path(name), line)


def _add_kernel_parameter(host: ObservedHost, topic: str, parameter: str) -> Repair | None:
    """By GRUB's directory of settings (Debian, Ubuntu), or by grubby (RHEL, Fedora)."""
    if host.machine.path("/etc/default/grub").is_file() and (grub := _run("update-grub")):
        line = f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {parameter}"'
        file = _write(host, f"/etc/default/grub.d/vgpumgr-{topic}.cfg", line)
        return _repair(file, grub, needs_reboot=True)
    grubby = _run("grubby", "--update-kernel=ALL", f"--args={parameter}")
    return _repair(grubby, needs_reboot=True)


def _load_kvm(host: ObservedHost) -> Repair | None:
    extensions = capabilities.read_cpu_extensions(host.machine).text or ""
    module = "kvm_intel" if "vmx" in extensions else "kvm_amd"
    if "no vmx" in extensions or capabilities.try_kvm(host.machine)[1] != errno.ENOENT:
        return None
    return _load(host, module)


def _load(host: ObservedHost, module: str) -> Repair | None:
    if capabilities.find_module(host.machine, module).text is None:
        return None
    return _repair(_run("modprobe", module))


def _turn_iommu_on(host: ObservedHost) -> Repair | None:
    """Intel's, where the firmware describes one; AMD's is on unless the command line turns it off."""
    words = read_kernel_words(host.machine)
    if any(word.endswith(("iommu=off", "iommu=on")) for word in words):
        return None
    if capabilities.find_dmar(host.machine).text is None:
        return None
    return _add_kernel_parameter(host, "iommu", "intel_iommu=on iommu=pt")


def _keep_nouveau_away(host: ObservedHost) -> Repair | None:
    file = _write(host, "/etc/modprobe.d/vgpumgr-nouveau.conf", "blacklist nouveau")
    build = _run("update-initramfs", "-u") or _run("dracut", "--force")
    return _repair(file, build, needs_reboot=True)


def _load_nvidia(host: ObservedHost) -> Repair | None:
    is_loaded = capabilities.read_driver_version(host.machine).text is not None
    has_bare = any(function.driver is None for function in host.nvidia)
    return _load(host, "nvidia") if has_bare and not is_loaded else None


def _allow_vfs(host: ObservedHost) -> Repair | None:
    """Intel's drivers make as many as their parameter says."""
    able = [f for f in host.gpu_functions if f.vf_total and f.vendor_id == INTEL and f.driver]
    lacking = [f for f in able if host.parts.pci.observe_vfs(f).missing]
    drivers = sorted({str(f.driver) for f in lacking})
    if not drivers:
        return None
    most = max(f.vf_total or 0 for f in lacking)
    return _add_kernel_parameter(host, "vfs", " ".join(f"{d}.max_vfs={most}" for d in drivers))


def _start_libvirt(host: ObservedHost) -> Repair | None:
    try:
        _ = host.vms
    except LibvirtDownError:
        found = (u for u in _LIBVIRT_UNITS if capabilities.find_unit(host.machine, u)[0].text)
        unit = next(found, None)
        return _repair(_run("systemctl", "enable", "--now", unit)) if unit else None
    return None


def _allow_user_namespaces(host: ObservedHost) -> Repair | None:
    name = "/etc/sysctl.d/90-vgpumgr.conf"
    file = _write(host, name, _NAMESPACES)
    return _repair(file, _run("sysctl", "--quiet", "--load", name))


def _enable_restore(host: ObservedHost) -> Repair | None:
    return _change_unit(host, "enable", "vgpumgr-restore.service")


def _restart_daemon(host: ObservedHost) -> Repair | None:
    return _change_unit(host, "restart", "vgpumgr.service")


def _change_unit(host: ObservedHost, verb: str, unit: str) -> Repair | None:
    installed, _ = capabilities.find_unit(host.machine, unit)
    return _repair(_run("systemctl", verb, unit)) if installed.text else None


def _set_clock(host: ObservedHost) -> Repair | None:
    return _repair(_run("timedatectl", "set-ntp", "true")) if host.parts.boot_id else None


def _recover(host: ObservedHost) -> Repair | None:
    """A command of its own, which finds a daemon itself."""
    words = (sys.executable, "-m", "vgpumgr", "recover")
    name = host.machine.name
    is_named = name is not None and "VGPUMGR_SIM" not in os.environ
    environ = (("VGPUMGR_MACHINE", str(name)),) if is_named else ()
    return Repair((RunProgram(words, "vgpumgr recover", environ),))


_REPAIRS: Mapping[str, Callable[[ObservedHost], Repair | None]] = {
    "kvm": _load_kvm,
    "iommu": _turn_iommu_on,
    "nouveau": _keep_nouveau_away,
    "nvidia-driver": _load_nvidia,
    "sriov": _allow_vfs,
    "libvirt": _start_libvirt,
    "user-namespaces": _allow_user_namespaces,
    "daemon": _restart_daemon,
    "restore-unit": _enable_restore,
    "leftovers": _recover,
    "clock": _set_clock,
}


def name_repairs() -> Sequence[str]:
    """The checks that ``--fix`` can do something about."""
    return tuple(_REPAIRS)
