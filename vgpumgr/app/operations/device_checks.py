"""Checks of ``vgpumgr doctor`` on the processor, the IOMMU, the kernel, and GPUs with their drivers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from vgpumgr.app.operations.doctor import (
    CheckFunction,
    Finding,
    NotCheckedError,
    ObservedHost,
    report,
    report_error,
)
from vgpumgr.errors import VgpumgrError
from vgpumgr.host import capabilities
from vgpumgr.host.machine import read_kernel_words
from vgpumgr.model.checks import Result
from vgpumgr.model.gpu import list_drains
from vgpumgr.model.pci import NVIDIA, VFIO, Function, UserKind
from vgpumgr.model.text import tell_count
from vgpumgr.passthrough.groups import (
    ACS_OVERRIDE,
    ANOTHER_SLOT,
    explain_no_iommu,
    explain_shared,
    index_groups,
    list_strangers,
)

_NVIDIA_DRIVER, _NOUVEAU = "nvidia", "nouveau"
#: what NVML says where the library and the module differ
_MISMATCH = "version mismatch"
#: GH200 and GB200, whose memory and processor are coherent: the kernel's table in drivers/vfio/pci/nvgrace-gpu/main.c
_COHERENT = (0x2342, 0x2345, 0x2348, 0x2941)
_PERSISTENCE = "nvidia-persiste"
_RESET_MODULE = (
    "reboot; or, while no GPU is in use: modprobe -r nvidia_uvm nvidia && modprobe nvidia"
)


def _check_cpu(host: ObservedHost) -> Finding:
    fact = capabilities.read_cpu_extensions(host.machine)
    text = host.need(fact)
    if "no vmx" in text:
        # a host that is a VM may have KVM without either
        opened, code = capabilities.try_kvm(host.machine)
        result: Result = "problem" if code else "warning"
        return report(result, "the processor shows no VT-x and no AMD-V", fact, opened)
    return report("ok", f"{'VT-x' if 'vmx' in text else 'AMD-V'}", fact)


def _check_kvm(host: ObservedHost) -> Finding:
    fact, code = capabilities.try_kvm(host.machine)
    if not code:
        return report("ok", "can be opened", fact)
    if host.machine.is_simulated:
        raise NotCheckedError("the simulated machine has no KVM of its own")
    if code in capabilities.NO_RIGHTS:
        return report("warning", "this user may not open it", fact, hint="adduser $USER kvm")
    return report("problem", "there is no KVM", fact)


def _check_iommu(host: ObservedHost) -> Finding:
    iommus = capabilities.list_iommus(host.machine)
    count = sum(f.group is not None for f in host.functions)
    evidence = (iommus, capabilities.read_command_line(host.machine))
    if count:
        text = f"{tell_count(count, 'function')} in {tell_count(len(index_groups(host.functions)), 'group')}"
        return report("ok", text, *evidence)
    if not host.functions:
        raise NotCheckedError("there is no PCI bus")
    why, hint = explain_no_iommu(read_kernel_words(host.machine))
    return report("problem", why, *evidence, capabilities.find_dmar(host.machine), hint=hint)


def _check_groups(host: ObservedHost) -> Finding:
    gpus = [f for f in host.gpu_functions if f.group is not None]
    if not gpus:
        raise NotCheckedError("no GPU is in an IOMMU group")
    shared = []
    groups = index_groups(host.functions)
    for number in sorted({f.group for f in gpus if f.group is not None}):
        members = [f for f in groups[number] if not f.physical]
        if strangers := list_strangers(members):
            shared.append(f"group {number}: {explain_shared(members, strangers)}")
    if shared:
        text = f"{tell_count(len(shared), 'group')} of GPUs have other devices, too"
        return report("warning", text, *shared, hint=ANOTHER_SLOT)
    return report("ok", f"{tell_count(len(gpus), 'GPU')} in groups of their own")


def _check_interrupts(host: ObservedHost) -> Finding:
    fact = capabilities.read_remapped_interrupts(host.machine)
    if host.need(fact):
        return report("ok", "on", fact)
    if "vmx" not in (text := capabilities.read_cpu_extensions(host.machine).text or "") and (
        "svm" not in text
    ):
        raise NotCheckedError("no processor with VT-x or AMD-V")
    line = capabilities.read_command_line(host.machine)
    return report("warning", "interrupts are not remapped", f"{fact.source}: no IR-", line)


def _check_command_line(host: ObservedHost) -> Finding:
    line, words = capabilities.read_command_line(host.machine), read_kernel_words(host.machine)
    host.need(line)
    if any(word.endswith("iommu=off") for word in words):
        why, hint = explain_no_iommu(words)
        return report("problem", why, line, hint=hint)
    if any(word.startswith(ACS_OVERRIDE) for word in words):
        text = "pcie_acs_override claims isolation that nothing enforces"
        return report("warning", text, line, hint=f"take {ACS_OVERRIDE.rstrip('=')} away, reboot")
    ids = [i for word in words for i in _list_ids(word)]
    taken = [
        f for f in host.gpu_functions
        if f"{f.vendor_id:04x}:{f.device_id:04x}" in ids and not f.is_free
    ]  # fmt: skip
    if taken:
        names = ", ".join(map(str, taken))
        text = f"vfio-pci.ids names GPUs that a driver of the host has: {names}"
        hint = f"vgpumgr passthrough bind {taken[0].address} --persist"
        return report("warning", text, line, hint=hint)
    known = [w for w in words if re.search("iommu|vfio|nouveau|nvidia|max_vfs|hugepage", w)]
    return report("ok", " ".join(known) or "nothing about GPUs", line)


def _list_ids(word: str) -> list[str]:
    name, _, value = word.partition("=")
    is_list = name.replace("_", "-") == "vfio-pci.ids"
    return [":".join(one.split(":")[:2]).lower() for one in value.split(",")] if is_list else []


def _check_vfio_pci(host: ObservedHost) -> Finding:
    registered = capabilities.find_driver(host.machine, VFIO)
    if registered.text:
        return report("ok", "registered", registered)
    module = capabilities.find_module(host.machine, VFIO)
    if module.text:
        return report("ok", "not loaded; bind loads it", module)
    return report("problem", "this kernel has no vfio-pci", registered, module)


def _check_vfio_iommu(host: ObservedHost) -> Finding:
    if host.parts.has_iommufd():
        return report("ok", "iommufd")
    name = "vfio_iommu_type1"
    loaded = capabilities.read_loaded_module(host.machine, name)
    module = loaded if loaded.text else capabilities.find_module(host.machine, name)
    if module.text:
        return report("ok", name, module)
    if host.machine.is_simulated:
        raise NotCheckedError("the simulated machine shows no modules of VFIO")
    text = f"neither {name} nor iommufd"
    return report("problem", text, loaded, module)


def _check_nouveau(host: ObservedHost) -> Finding:
    loaded = capabilities.read_loaded_module(host.machine, _NOUVEAU)
    taken = [f for f in host.nvidia if f.driver == _NOUVEAU]
    if taken:
        return report("problem", f"nouveau has {_join(taken)}", loaded)
    if loaded.text and host.nvidia:
        return report("warning", "nouveau is loaded, and takes GPUs without a driver", loaded)
    return report("ok", "has no GPU", loaded)


def _check_gpus(host: ObservedHost) -> Finding:
    names = [str(f) for f in host.gpu_functions]
    try:
        lost = host.inventory.lost
    except VgpumgrError:  # a check of its own
        lost = ()
    if lost:
        text = f"NVML has lost {tell_count(len(lost), 'GPU')}"
        gone = [f"nvml GPU {one.index}: {one.text} ({one.code})" for one in lost]
        return report("problem", text, *gone, hint="dmesg | grep Xid")
    if not names:
        hint = "lspci -nn -d ::0300; lspci -nn -d ::0302"
        return report("problem", "there is no GPU on the PCI bus", hint=hint)
    return report("ok", tell_count(len(names), "GPU"), *names)


def _check_health(host: ObservedHost) -> Finding:
    try:
        gpus = host.need_inventory().gpus
    except NotCheckedError:
        gpus = ()
    found = list_drains(host.parts.store, gpus)
    if not found:
        return report("ok", tell_count(len(host.need_inventory().gpus), "GPU"))
    numbers: dict[str | None, int] = {gpu.uuid: gpu.index for gpu in gpus}
    names = {drain: f"GPU {numbers.get(drain.uuid, drain.address)}" for drain in found}
    evidence = [f"{name} ({drain.address}): {drain}" for drain, name in names.items()]
    first, is_ill = found[0], any(drain.fault is not None for drain in found)
    text = f"no new slice on {_join(dict.fromkeys(names.values()))}"
    text += ": unhealthy" if is_ill else ": drained"
    hint = first.describe_end(names[first].removeprefix("GPU "))
    return report("problem" if is_ill else "warning", text, *evidence, hint=hint)


def _check_nvidia_driver(host: ObservedHost) -> Finding:
    if not host.nvidia:
        raise NotCheckedError("there is no NVIDIA GPU")
    fact = capabilities.read_driver_version(host.machine)
    bare = [f for f in host.nvidia if f.driver is None]
    if fact.text is None:
        if all(f.is_away for f in host.nvidia):
            return report("ok", "none is needed: all NVIDIA GPUs are VMs'", *host.nvidia)
        text = f"no NVIDIA module is loaded for {_join(f for f in host.nvidia if not f.is_away)}"
        return report("problem", text, fact, hint="modprobe nvidia; dmesg | grep NVRM")
    if bare:
        text = f"{_join(bare)} has no driver, though the module is loaded"
        return report("warning", text, fact, hint="dmesg | grep NVRM")
    flavour = "open" if "Open Kernel Module" in fact.text else "proprietary"
    version = _find_version(fact.text) or "unknown version"
    vgpu = capabilities.read_loaded_module(host.machine, "nvidia_vgpu_vfio")
    kind = "vGPU host driver" if vgpu.text or _offers_vgpus(host) else "no vGPU host driver"
    return report("ok", f"{flavour}, {version}, {kind}", fact)


def _offers_vgpus(host: ObservedHost) -> bool:
    try:
        return bool(host.vgpus.boards or _list_vgpu_gpus(host))
    except NotCheckedError:
        return False


def _list_vgpu_gpus(host: ObservedHost) -> list[Function]:
    """NVIDIA GPUs whose virtual functions can be made: the program for that comes with the vGPU host driver."""
    able = (f for f in host.nvidia if f.vf_total and f.driver == _NVIDIA_DRIVER)
    return [f for f in able if host.parts.pci.observe_vfs(f).missing is None]


def _find_version(text: str) -> str | None:
    match = re.search(r"\b\d{3}\.\d+(?:\.\d+)?\b", text)
    return match[0] if match else None


def _check_nvml(host: ObservedHost) -> Finding:
    users = [f for f in host.nvidia if f.driver == _NVIDIA_DRIVER]
    if not users:
        raise NotCheckedError("no GPU has the driver nvidia")
    try:
        inventory = host.inventory
    except VgpumgrError as error:
        return report_error(error)
    if not inventory.driver_version:
        hint = "apt-get install libnvidia-ml1; or the driver's own installer"
        return report("problem", "libnvidia-ml.so.1 cannot be loaded", *users, hint=hint)
    text = f"NVML {inventory.nvml_version} lists {tell_count(len(inventory.gpus), 'GPU')}"
    return report("ok", text, "nvmlInit_v2, nvmlDeviceGetCount_v2 in a helper process")


def _check_driver_version(host: ObservedHost) -> Finding:
    fact = capabilities.read_driver_version(host.machine)
    if fact.text is None:
        raise NotCheckedError("no NVIDIA module is loaded")
    try:
        library = host.need_inventory().driver_version
    except NotCheckedError as error:
        cause = error.__cause__
        said = f"{cause} {getattr(cause, 'cause', '')}".lower()
        if _MISMATCH not in said:
            raise
        text = "NVML refuses: its library is of another version than the kernel module"
        return report("problem", text, fact, said.strip(), hint=_RESET_MODULE)
    module = _find_version(fact.text)
    evidence = (fact, f"nvmlSystemGetDriverVersion: {library}")
    if module is not None and module != library:
        text = f"the kernel module is {module}, NVML's library {library}"
        return report("problem", text, *evidence, hint=_RESET_MODULE)
    return report("ok", f"both are {library}", *evidence)


def _check_hmm(host: ObservedHost) -> Finding:
    module = capabilities.read_driver_version(host.machine)
    if module.text is None:
        raise NotCheckedError("no NVIDIA module is loaded")
    hmm, ats = capabilities.read_addressing(host.machine)
    if hmm.text == "N" and "Open" in module.text:
        text = "kernels may reach all memory of their session, which runs one program of one VM"
        return report("warning", text, hmm, ats, module)
    text = "off" if hmm.text == "Y" else "this module has none"
    return report("ok", text, hmm, ats, module)


def _check_ats(host: ObservedHost) -> Finding:
    module = capabilities.read_driver_version(host.machine)
    if module.text is None:
        raise NotCheckedError("no NVIDIA module is loaded")
    _, ats = capabilities.read_addressing(host.machine)
    coherent = [f for f in host.nvidia if f.device_id in _COHERENT and f.driver == _NVIDIA_DRIVER]
    if not coherent:
        return report("ok", "no GPU of the host shares memory with its processor", ats)
    evidence = (*coherent, ats)
    if ats.text == "0":
        return report("ok", "off", *evidence)
    text = f"kernels on {_join(coherent)} may reach all memory of their session, which the sandbox does not hold"
    return report("warning", text, *evidence)


def _check_vgpus(host: ObservedHost) -> Finding:
    found = host.vgpus
    if found.parents:
        kinds = sorted({str(parent.framework) for parent in found.parents})
        text = f"{' and '.join(kinds)} on {tell_count(len(found.boards), 'device')}"
        offers = (f"{p.name}: {tell_count(len(p.offers), 'type')}" for p in found.parents[:4])
        return report("ok", text, *offers)
    names = [str(f.address) for f in _list_vgpu_gpus(host)] or [b.name for b in found.boards]
    if not names:
        raise NotCheckedError("no vGPU host driver is installed")
    text = "the vGPU host driver is installed, but no function offers vGPU types"
    evidence = [f"{name}: no virtual function with a type" for name in names]
    return report("warning", text, *evidence, hint=f"vgpumgr vf enable {names[0]}")


def _check_sriov(host: ObservedHost) -> Finding:
    able = [f for f in host.gpu_functions if f.vf_total]
    if not able:
        raise NotCheckedError("no GPU has SR-IOV")
    evidence, missing = [], []
    for function in able:
        support = host.parts.pci.observe_vfs(function)
        evidence.append(
            f"{function.address}: {len(function.vfs)} of {support.total} virtual functions"
            + (f"; {support.missing}" if support.missing else "")
        )
        # without the vGPU host driver, NVIDIA's functions are of no use
        is_wanted = function.vendor_id != NVIDIA or _offers_vgpus(host)
        if support.missing and is_wanted and not function.is_away:
            missing.append(function)
    if missing:
        text = f"virtual functions of {_join(missing)} cannot be made"
        return report("warning", text, *evidence)
    made = sum(len(f.vfs) for f in able)
    text = f"{tell_count(len(able), 'GPU')}, {tell_count(made, 'function')} enabled"
    return report("ok", text, *evidence)


def _check_mig(host: ObservedHost) -> Finding:
    able = [gpu for gpu in host.need_inventory().gpus if gpu.mig.supported]
    if not able:
        raise NotCheckedError("no GPU has MIG")
    waiting = [gpu for gpu in able if gpu.mig.current != gpu.mig.pending]
    evidence = [
        f"nvmlDeviceGetMigMode {gpu}: current {int(gpu.mig.current)}, pending {int(gpu.mig.pending)}"
        for gpu in waiting or able
    ]
    if waiting:
        text = f"a change of MIG mode waits for a reset of {_join(waiting)}"
        hint = f"nvidia-smi --gpu-reset -i {waiting[0].index}"
        return report("warning", text, *evidence, hint=hint)
    on = sum(gpu.mig.current for gpu in able)
    return report("ok", f"{tell_count(len(able), 'GPU')} with MIG, on in {on}", *evidence)


def _check_users(host: ObservedHost) -> Finding:
    if not host.gpu_functions:
        raise NotCheckedError("there is no GPU")
    if not host.parts.is_privileged:
        raise NotCheckedError("needs root: other users' processes are hidden")
    found = [
        f"{function.address}: {user}"
        for function in host.gpu_functions
        if not function.is_away
        for user in host.users.get(function.address, ())
        if user.kind in (UserKind.PROCESS, UserKind.DISPLAY) and _PERSISTENCE not in user.text
    ]
    if found:
        text = f"the host uses GPUs: {tell_count(len(found), 'user')}"
        return report("warning", text, *found, hint="vgpumgr passthrough list")
    return report("ok", "no program of the host")


def _check_reset(host: ObservedHost) -> Finding:
    if not host.gpu_functions:
        raise NotCheckedError("there is no GPU")
    conditions = {f.address: host.parts.pci.read_condition(f.address) for f in host.gpu_functions}
    none = [a for a, one in conditions.items() if one.reset_methods == ()]
    evidence = [
        f"{a} reset_method: {' '.join(one.reset_methods or ()) or 'empty'}"
        for a, one in conditions.items() if one.reset_methods is not None
    ]  # fmt: skip
    if none:
        text = f"{', '.join(map(str, none))} cannot be reset"
        return report("warning", text, *evidence)
    if not evidence:
        raise NotCheckedError("this kernel does not say how a function can be reset (before 5.15)")
    return report("ok", tell_count(len(evidence), "GPU"), *evidence)


def _join(things: Iterable[object]) -> str:
    return ", ".join(str(f.address) if isinstance(f, Function) else str(f) for f in things)


CHECKS: Mapping[str, CheckFunction] = {
    "cpu": _check_cpu,
    "kvm": _check_kvm,
    "iommu": _check_iommu,
    "iommu-groups": _check_groups,
    "interrupt-remapping": _check_interrupts,
    "command-line": _check_command_line,
    "vfio-pci": _check_vfio_pci,
    "vfio-iommu": _check_vfio_iommu,
    "nouveau": _check_nouveau,
    "gpus": _check_gpus,
    "gpu-health": _check_health,
    "nvidia-driver": _check_nvidia_driver,
    "nvml": _check_nvml,
    "driver-version": _check_driver_version,
    "vgpu-framework": _check_vgpus,
    "sriov": _check_sriov,
    "mig": _check_mig,
    "gpu-users": _check_users,
    "pci-reset": _check_reset,
    "hmm": _check_hmm,
    "ats": _check_ats,
}
