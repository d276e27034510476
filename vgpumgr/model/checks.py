"""The checks of ``vgpumgr doctor``, as a table: output, ``doctor explain``, completion and docs/doctor.md come from it.

The function of each is in ``app/operations``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Result = Literal["ok", "warning", "problem", "skipped"]
Group = Literal["firmware", "kernel", "gpu", "virtualization", "process", "vgpumgr"]

#: groups in the order of the output, with their headings
GROUPS: dict[Group, str] = {
    "firmware": "Processor and IOMMU",
    "kernel": "Kernel",
    "gpu": "GPUs and their drivers",
    "virtualization": "libvirt and QEMU",
    "process": "Rights and limits",
    "vgpumgr": "vgpumgr",
}

_KERNEL = "kernel: "
_VGPU = "NVIDIA vGPU Software User Guide: "
_MIG = "NVIDIA Multi-Instance GPU User Guide: "


@dataclass(frozen=True, slots=True)
class Check:
    """One check: ``title`` is its meaning in a sentence, ``how`` how it is found out, ``mend`` what to do, and
    ``source`` the document that says more.
    """

    id: str
    group: Group
    title: str
    how: str
    mend: str
    source: str


CHECKS: tuple[Check, ...] = (
    Check(
        "cpu", "firmware", "The processor has the extensions for virtual machines.",
        "Reads the flags in /proc/cpuinfo: vmx (Intel VT-x) or svm (AMD-V). Other architectures are skipped.",
        "Turn VT-x or SVM on in the firmware's settings; in a virtual machine, turn nested virtualisation on.",
        _KERNEL + "Documentation/virt/kvm/x86",
    ),
    Check(
        "kvm", "firmware", "KVM runs virtual machines: /dev/kvm can be opened.",
        "Opens /dev/kvm for reading and writing, and closes it.",
        "modprobe kvm_intel, or modprobe kvm_amd; a user other than root joins the group kvm.",
        _KERNEL + "Documentation/virt/kvm/api.rst",
    ),
    Check(
        "iommu", "firmware", "The IOMMU is on: functions are in IOMMU groups.",
        "Lists /sys/class/iommu, the IOMMU groups of all PCI functions, and the kernel's command line.",
        "Turn VT-d or AMD-Vi on in the firmware's settings; Intel: kernel parameter intel_iommu=on; reboot.",
        _KERNEL + "Documentation/driver-api/vfio.rst, section Groups, Devices, and IOMMUs",
    ),
    Check(
        "iommu-groups", "firmware", "No GPU shares its IOMMU group with another device.",
        "Lists the members of each GPU's group; bridges and functions of the same card do not count.",
        "Put the GPU in another slot, or turn ACS on in the firmware's settings.",
        _KERNEL + "Documentation/driver-api/vfio.rst; docs/passthrough.md",
    ),
    Check(
        "interrupt-remapping", "firmware", "Interrupts of devices in VMs are remapped, which isolates them.",
        "Reads /proc/interrupts: controllers with remapping have names that begin with IR-.",
        "Turn VT-d or AMD-Vi with interrupt remapping on in the firmware's settings; take intremap=off away.",
        _KERNEL + "Documentation/admin-guide/kernel-parameters.txt, intremap",
    ),
    Check(
        "command-line", "kernel", "The kernel's command line has nothing against passthrough.",
        "Reads /proc/cmdline: the IOMMU off, pcie_acs_override, and vfio-pci.ids of GPUs that the host uses.",
        "Change GRUB_CMDLINE_LINUX in /etc/default/grub, run update-grub, reboot.",
        _KERNEL + "Documentation/admin-guide/kernel-parameters.txt",
    ),
    Check(
        "vfio-pci", "kernel", "The driver vfio-pci is there: it gives PCI functions to VMs.",
        "Looks for the registered driver, then for the module in /lib/modules.",
        "modprobe vfio-pci; if there is none, install the kernel's full package of modules.",
        _KERNEL + "Documentation/driver-api/vfio.rst",
    ),
    Check(
        "vfio-iommu", "kernel", "VFIO can map a VM's memory: by vfio_iommu_type1 or by iommufd.",
        "Looks for the module vfio_iommu_type1, loaded or in /lib/modules, and for /dev/iommu.",
        "modprobe vfio_iommu_type1",
        _KERNEL + "Documentation/userspace-api/iommufd.rst",
    ),
    Check(
        "nouveau", "kernel", "nouveau does not keep NVIDIA's driver from a GPU.",
        "Looks for the driver of each NVIDIA GPU, and for the module nouveau.",
        "echo 'blacklist nouveau' > /etc/modprobe.d/nouveau.conf, update-initramfs -u, reboot.",
        _VGPU + "Installing the Virtual GPU Manager",
    ),
    Check(
        "gpus", "gpu", "The host has GPUs, and all of them answer.",
        "Lists display controllers and accelerators on the PCI bus, and GPUs that NVML has lost.",
        "A lost GPU needs a reset or a cold start: see dmesg for its Xid.",
        "NVIDIA: XID Errors",
    ),
    Check(
        "gpu-health", "gpu", "All GPUs take new slices: none is unhealthy or drained.",
        "Asks NVML for ECC errors and temperatures, and looks up Xids that were reported and GPUs that were drained.",
        "Reset or repair the GPU, then: vgpumgr gpu resume GPU",
        "NVIDIA: XID Errors; docs/recovery.md",
    ),
    Check(
        "nvidia-driver", "gpu", "NVIDIA's kernel module is loaded where NVIDIA GPUs are the host's.",
        "Reads /proc/driver/nvidia/version (open or proprietary, version) and the module nvidia_vgpu_vfio.",
        "modprobe nvidia; for vGPUs install the vGPU host driver, not the driver for guests.",
        "NVIDIA Driver Installation Guide: Kernel Modules",
    ),
    Check(
        "nvml", "gpu", "NVML can be loaded and answers.",
        "Loads libnvidia-ml.so.1 in a helper process and lists all GPUs, with a deadline.",
        "Install the driver's libraries (libnvidia-ml1, nvidia-utils); a call that hangs is in vgpumgr status.",
        "NVIDIA: NVML API Reference Guide",
    ),
    Check(
        "driver-version", "gpu", "NVML's library and the kernel module have the same version.",
        "Compares NVML's driver version with /proc/driver/nvidia/version.",
        "Reboot after an update of the driver, or unload and load the module while no GPU is in use.",
        "NVIDIA: NVML API Reference Guide, NVML_ERROR_LIB_RM_VERSION_MISMATCH",
    ),
    Check(
        "vgpu-framework", "gpu", "The vGPU host driver offers types: mediated devices or vendor-specific VFIO.",
        "Lists parents with mdev_supported_types, and virtual functions with current_vgpu_type.",
        "Turn SR-IOV on in the firmware's settings, then: vgpumgr vf enable GPU",
        _VGPU + "Installing and Configuring the NVIDIA Virtual GPU Manager; docs/vgpu.md",
    ),
    Check(
        "sriov", "gpu", "GPUs with SR-IOV can have their virtual functions made.",
        "Asks the SR-IOV driver of each vendor how many there can be, and what is missing.",
        "Intel: kernel parameter i915.max_vfs or xe.max_vfs; NVIDIA: sriov-manage; AMD: the gim driver.",
        _KERNEL + "Documentation/PCI/pci-iov-howto.rst; docs/passthrough.md",
    ),
    Check(
        "mig", "gpu", "No change of MIG mode waits for a reset.",
        "Compares the current with the pending MIG mode of each GPU, by NVML.",
        "End what uses the GPU, then: nvidia-smi --gpu-reset -i INDEX; or reboot.",
        _MIG + "Enable MIG Mode",
    ),
    Check(
        "gpu-users", "gpu", "No display server or other program of the host keeps a GPU.",
        "Lists processes that have device files of a GPU open, and the console; needs root.",
        "Stop the programs that are named before the GPU's mode is changed or it goes to a VM.",
        _MIG + "Enable MIG Mode; docs/passthrough.md",
    ),
    Check(
        "pci-reset", "gpu", "Each GPU can be reset between two VMs.",
        "Reads reset_method of each GPU.",
        "Boot the host between two tenants, or use a card whose function can be reset.",
        _KERNEL + "Documentation/ABI/testing/sysfs-bus-pci, reset_method",
    ),
    Check(
        "hmm", "gpu", "Kernels of a VM reach GPU memory only: HMM is off in NVIDIA's module nvidia_uvm.",
        "Reads the module's parameters uvm_disable_hmm and uvm_ats_mode, and whether it is the open module.",
        "echo 'options nvidia_uvm uvm_disable_hmm=1' > /etc/modprobe.d/vgpumgr-hmm.conf, reboot.",
        "NVIDIA: open-gpu-kernel-modules, kernel-open/nvidia-uvm/uvm_hmm.c; SECURITY.md",
    ),
    Check(
        "ats", "gpu", "Kernels of a VM reach GPU memory only: no GPU uses the page tables of the processor (ATS).",
        "Finds GPUs that share memory with a Grace processor, by PCI ids, and reads nvidia_uvm's uvm_ats_mode.",
        "echo 'options nvidia_uvm uvm_ats_mode=0' > /etc/modprobe.d/vgpumgr-ats.conf, reboot; then see the check hmm.",
        "NVIDIA: open-gpu-kernel-modules, kernel-open/nvidia-uvm/uvm_ats.c; kernel: nvgrace-gpu; SECURITY.md",
    ),
    Check(
        "libvirt", "virtualization", "libvirt answers.",
        "Connects to libvirt and lists all VMs, with a deadline.",
        "systemctl start libvirtd, or systemctl start virtqemud.socket",
        "libvirt: Daemons",
    ),
    Check(
        "libvirt-version", "virtualization", "libvirt is as new as the oldest that vgpumgr is tested with (9.0).",
        "Asks libvirt for its version, for variant drivers of VFIO, and for iommufd.",
        "Install a newer libvirt; the distribution's backports may have one.",
        "libvirt: News",
    ),
    Check(
        "qemu", "virtualization", "QEMU is installed and has the devices that channels and passthrough need.",
        "Runs qemu-system-x86_64 -device help and looks for ivshmem-doorbell, virtserialport and vfio-pci.",
        "apt-get install qemu-system-x86; RHEL's qemu-kvm has no ivshmem: attach with --transport serial.",
        "QEMU: Inter-VM Shared Memory device",
    ),
    Check(
        "access-control", "virtualization", "AppArmor or SELinux does not keep QEMU from a channel's sockets.",
        "Reads whether AppArmor is enabled and has the profile vgpumgr-worker, and whether SELinux enforces.",
        "If attach fails with a refusal in the audit log: ausearch -m avc -ts recent, or dmesg for AppArmor.",
        "libvirt: Security drivers",
    ),
    Check(
        "root", "process", "This process may change the machine, or a daemon does it in its place.",
        "Compares the user with root, and its groups with those of the daemon.",
        "Run as root, or join the group vgpumgr and start vgpumgr.socket.",
        "docs/daemon.md",
    ),
    Check(
        "locked-memory", "process", "Memory can be locked, as workers do for pinned memory.",
        "Reads RLIMIT_MEMLOCK of this process; root needs none.",
        "ulimit -l unlimited; for a systemd unit LimitMEMLOCK=infinity",
        "getrlimit(2)",
    ),
    Check(
        "descriptors", "process", "This process may open as many files as a change needs.",
        "Reads RLIMIT_NOFILE and RLIMIT_AS, and counts open files.",
        "ulimit -n 1024; for a systemd unit LimitNOFILE=1024",
        "getrlimit(2)",
    ),
    Check(
        "memory-files", "process", "Memory files can be sealed, and there are event descriptors: channels need both.",
        "Makes a memory file, seals it, makes an event descriptor, and closes both.",
        "Run a kernel of 5.4 or later; in a container, allow memfd_create and eventfd2.",
        "memfd_create(2), fcntl(2): File Sealing",
    ),
    Check(
        "user-namespaces", "process", "User namespaces are available: workers start in a sandbox or not at all.",
        "Reads /proc/sys/user/max_user_namespaces, and VGPUMGR_ALLOW_UNCONFINED.",
        "sysctl user.max_user_namespaces=15000; for trusted guests only, attach --allow-unconfined (SECURITY.md)",
        "user_namespaces(7)",
    ),
    Check(
        "seccomp", "process", "System calls can be filtered: workers start in a sandbox or not at all.",
        "Reads /proc/sys/kernel/seccomp/actions_avail, and VGPUMGR_ALLOW_UNCONFINED.",
        "Run a kernel with CONFIG_SECCOMP_FILTER=y; for trusted guests only, attach --allow-unconfined (SECURITY.md)",
        "seccomp(2)",
    ),
    Check(
        "cgroup", "process", "Control groups, version 2 or 1, have controllers of memory and of processes (pids).",
        "Reads /sys/fs/cgroup/cgroup.controllers, or lists version 1's hierarchies; root makes a group and removes it.",
        "Kernel parameter cgroup_enable=memory, reboot; in a container, mount /sys/fs/cgroup writable.",
        _KERNEL + "Documentation/admin-guide/cgroup-v2.rst",
    ),
    Check(
        "programs", "vgpumgr", "The programs of channels are installed, and of this version.",
        "Looks for vgpumgr-hold, -keeper, -worker and -guestd beside the package, whether they can be executed, and "
        "for their version.",
        "Install the packages vgpumgr and vgpumgr-host, both of one version; in a checkout ./run setup.",
        "docs/architecture.md, The channel",
    ),
    Check(
        "channel", "vgpumgr", "A channel works: a program has a lane over shared memory and over the serial stream.",
        "Starts a keeper and a worker in its sandbox as attach does, with a driver without a GPU; has the guest agent "
        "and vgpumgr-guest-check ask for a lane over each transport; ends all. Needs root; takes 3 seconds at most.",
        "See the evidence for the step that failed; SECURITY.md, A genuine driver, says how to find what was refused.",
        "docs/architecture.md, The channel; SECURITY.md",
    ),
    Check(
        "mathematics", "vgpumgr",
        "Sessions of forwarded GPUs find cuBLAS with cuBLASLt, or neither; cuDNN; cuFFT; cuSOLVER; cuSPARSE; and "
        "cuRAND.",
        "Looks for libcublas.so.13, .12, their libcublasLt, libcudnn.so.9, libcufft.so.12, .11, libcusolver.so.12, "
        ".11, libcusparse.so.12, and libcurand.so.10 in VGPUMGR_MATH's directories; without it beside the driver and "
        "in /usr/local/cuda/lib64.",
        "Install NVIDIA's libcublas, libcufft, libcusolver, libcusparse and libcurand of CUDA 13 or 12, cudnn9, or "
        "name directories: VGPUMGR_MATH=ONE:OTHER",
        "docs/libraries.md",
    ),
    Check(
        "daemon", "vgpumgr", "The daemon answers where one runs, and has the version of this command.",
        "Finds who holds the daemon's lock, and compares versions.",
        "systemctl restart vgpumgr",
        "docs/daemon.md",
    ),
    Check(
        "restore-unit", "vgpumgr", "Slices come back after a boot: vgpumgr-restore.service is enabled.",
        "Looks for the unit and for the link that enables it in /etc/systemd/system.",
        "systemctl enable vgpumgr-restore.service",
        "docs/recovery.md",
    ),
    Check(
        "other-tools", "vgpumgr", "No other program manages the same GPUs at every boot.",
        "Looks for mdevctl's definitions that start by themselves, nvidia-mig-manager.service and /etc/driverctl.d.",
        "Let one program do it: vgpumgr mdev adopt, systemctl disable nvidia-mig-manager, driverctl unset-override.",
        "docs/vgpu.md, docs/layouts.md, docs/passthrough.md",
    ),
    Check(
        "leftovers", "vgpumgr", "Nothing is left of interrupted operations, and the host is as recorded.",
        "Takes what vgpumgr status reports: drift, interrupted operations, late helper processes.",
        "vgpumgr status; vgpumgr recover",
        "docs/recovery.md",
    ),
    Check(
        "clock", "vgpumgr", "The boot has an id, and the clock is set.",
        "Reads /proc/sys/kernel/random/boot_id, and compares the year with 2025.",
        "timedatectl set-ntp true; mount /proc",
        _KERNEL + "Documentation/admin-guide/sysctl/kernel.rst, random",
    ),
    Check(
        "disk", "vgpumgr", "The file system of the state directory has space for the journal.",
        "Asks for the free space of the directory, at least 64 MiB.",
        "Free some space: du -xh --max-depth 2 /var | sort -h",
        "docs/recovery.md",
    ),
)  # fmt: skip

BY_ID = {check.id: check for check in CHECKS}
