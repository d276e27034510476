"""Starts and stops simulated machines: the state, their ``/sys`` and ``/proc`` with the process that serves them, the
``env`` file.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from vgpumgr.errors import GpuNotFoundError, UsageError
from vgpumgr.host.files import READABLE, open_private, replace_file
from vgpumgr.host.process import is_alive, read_identity
from vgpumgr.sim import fuse
from vgpumgr.sim.control import ControlTree, Sleepers, WriteFaults
from vgpumgr.sim.machine import (
    SimulatorError,
    add_event,
    boot_state,
    create_machine,
    destroy_machine,
    list_clients,
    machine_directory,
    machine_env,
    running_machine,
    set_gpu_field,
    start_clock,
)
from vgpumgr.sim.machine_model import Gpu, Machine
from vgpumgr.sim.pcibus import Address, PciBus, State
from vgpumgr.sim.tree import MachineTree, Part
from vgpumgr.sim.users import UsesTree, VfioTree
from vgpumgr.sim.vendortree import AmdTree, GimTree, IntelTree, SensorTree
from vgpumgr.sim.vgpuhost import MdevTree, VendorTree, VgpuHost
from vgpumgr.sim.vgpus import VgpuState

BOOT_ID = "boot_id"
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND


def start(
    name: str,
    libvirt_uri: str | None = None,
    data_file: Path | None = None,
    memory_bytes: int | None = None,
    *,
    clock: bool = False,
) -> tuple[Path, str | None]:
    """Start a machine, of the known ones or of a data file. All its CUDA programs together get ``memory_bytes``; with a
    ``clock`` their kernels take device time.

    Returns its directory, and why its ``/sys`` only is a snapshot (None: it behaves).

    Raises SimulatorError and its kin; nothing is left behind then.
    """
    directory = create_machine(name, data_file)
    try:
        write_env(name, directory, libvirt_uri)
        if memory_bytes is not None:
            replace_file(directory / "memory", f"{memory_bytes}\n")
        if clock:
            start_clock(directory)
        without_fuse = boot_file_system(name, directory)
    except BaseException:
        stop(name)
        raise
    return directory, without_fuse


def boot_file_system(name: str, directory: Path) -> str | None:
    """Give the machine its ``/sys`` and ``/proc`` as after boot, and a new boot id. Returns as ``start``."""
    replace_file(directory / BOOT_ID, str(uuid.uuid4()))
    without_fuse = fuse.available()
    if without_fuse is None:
        start_file_system(name, directory)
    else:
        tree = read_tree(name, WriteFaults(), Sleepers())
        fuse.write_snapshot(tree.root(), directory / "root")
    return without_fuse


def read_tree(name: str, faults: WriteFaults, sleepers: Sleepers) -> MachineTree:
    """The files of a running machine as after its last boot."""
    machine, directory = running_machine(name), machine_directory(name)
    boot_id = (directory / BOOT_ID).read_text()
    return build_tree(machine, boot_id, directory, faults, sleepers)


def write_env(name: str, directory: Path, libvirt_uri: str | None) -> None:
    """The machine's variables, for ``vgpumgr --machine NAME``."""
    variables = machine_env(name)
    if libvirt_uri is not None:
        variables["VGPUMGR_LIBVIRT_URI"] = libvirt_uri
    lines = "".join(f"{key}={value}\n" for key, value in variables.items())
    replace_file(directory / "env", lines)


def start_file_system(name: str, directory: Path) -> None:
    """Start the process that serves ``/sys`` and ``/proc``, and wait until it does."""
    root = directory / "root"
    with os.fdopen(open_private(directory / "fuse.log", _APPEND, READABLE), "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "vgpumgr", "sim", "serve", name],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/",
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        )  # fmt: skip
    replace_file(directory / "fuse.pid", f"{process.pid}\n")
    deadline = time.monotonic() + START_TIMEOUT_S
    while not (os.path.ismount(root) and (root / "sys").is_dir()):
        if process.poll() is not None or time.monotonic() > deadline:
            cause = (directory / "fuse.log").read_text(errors="replace").strip()
            raise SimulatorError(f"cannot mount the /sys of {name}", cause=cause[-500:] or None)
        time.sleep(0.02)


def serve(name: str) -> None:
    """The file system's process; returns when it is unmounted."""
    root = machine_directory(name) / "root"
    faults, sleepers = WriteFaults(), Sleepers()
    fuse.serve(read_tree(name, faults, sleepers), root, faults, sleepers)


def stop(name: str) -> int:
    """Stop a machine, as by pulling its plug: its keepers end, its state is forgotten.

    Returns how many channels it had: the VMs' definitions still name them. Raises
    MachineNotFoundError if it does not run.
    """
    running_machine(name)
    directory = machine_directory(name)
    channels = len(list(directory.glob("host/run/channels/*")))
    for pid_file in sorted(directory.glob("host/run/**/*.pid")):
        end_process(pid_file)
    unmount(directory / "root")
    end_process(directory / "fuse.pid")
    destroy_machine(name)
    return channels


def send_request(name: str, what: str, line: str) -> None:
    """Ask a running machine for something that happens to it: a line for a file of ``control``.

    Raises MachineNotFoundError, UsageError, or SimulatorError where the machine refuses.
    """
    running_machine(name)
    path = machine_directory(name) / "root/.sim" / what
    if "/" in what or not path.is_file():
        known = ", ".join(sorted(entry.name for entry in path.parent.iterdir()))
        raise UsageError(f"{name} has no request {what!r}", why=f"it understands {known}")
    if not line:
        raise UsageError(f"{what!r} needs words", hint="vgpumgr sim tell --help")
    try:
        # one write, which is one request; O_TRUNC would be another call
        descriptor = os.open(path, os.O_WRONLY)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)
    except OSError as err:
        raise SimulatorError(
            f"{name} cannot do that: {what} {line}", cause=f"write {path}: {err.strerror}"
        ) from err


def cause_fault(
    name: str,
    selector: str,
    events: Mapping[str, int],
    *instance: int,
    fields: Mapping[str, int],
) -> None:
    """Changes fields of a GPU of a running machine, then causes events. Raises GpuNotFoundError, SimulatorError."""
    machine = running_machine(name)
    directory = machine_directory(name)
    for gpu in machine.gpus:
        address = gpu.place.address
        if selector in (str(gpu.index), gpu.uuid, address, address.removeprefix("0000:")):
            break
    else:
        there = ", ".join(f"{gpu.index} ({gpu.place.address})" for gpu in machine.gpus)
        raise GpuNotFoundError(f"{name} has no NVIDIA GPU {selector}", why=f"there are {there}")
    for field, value in fields.items():
        set_gpu_field(directory, gpu.index, field, value)
    for kind, number in events.items():
        if kind == "xid":
            log_xid(directory, gpu.place.address, number, *instance)
        add_event(directory, gpu.index, kind, number, *instance)


def log_xid(directory: Path, address: str, xid: int, gpu_instance: int = -1, *_: int) -> None:
    """Writes to the kernel's log what NVIDIA's module writes of an Xid."""
    path = directory / "host/dev/kmsg"
    path.parent.mkdir(parents=True, exist_ok=True)
    number = path.read_bytes().count(b"\n") if path.exists() else 0
    instance = f" GPU-I:{gpu_instance:02}" if gpu_instance >= 0 else ""
    where = f"PCI:{address.rpartition('.')[0]}{instance}"
    record = f"4,{number},{time.monotonic_ns() // 1000},-;NVRM: Xid ({where}): {xid}, pid=1234, name=python\n"
    with path.open("a") as file:
        file.write(record)


def reboot(name: str) -> None:
    """Reboot a machine: everything that ran on it is dead, what is no setting of the hardware is as after boot.

    What is remembered on disk (``host/state``) stays, ``/run`` is empty. Raises MachineNotFoundError.
    """
    running_machine(name)
    directory = machine_directory(name)
    for pid_file in sorted(directory.glob("host/run/**/*.pid")):
        end_process(pid_file)
    for pid in set(list_clients(directory)) - {os.getpid()}:
        end_and_wait(pid, signal.SIGKILL)
    for gone in ("run", "dev"):
        shutil.rmtree(directory / "host" / gone, ignore_errors=True)
    boot_state(directory)
    unmount(directory / "root")
    end_process(directory / "fuse.pid")
    boot_file_system(name, directory)


def unmount(root: Path) -> None:
    """Unmount the machine's files, even if a process has its directory there."""
    if not os.path.ismount(root):
        return
    tools = (["fusermount3", "-uz"], ["umount", "-l"])
    for tool in tools:
        with contextlib.suppress(FileNotFoundError):
            if subprocess.run([*tool, str(root)], capture_output=True, check=False).returncode == 0:
                return
    raise SimulatorError(f"cannot unmount {root}")


def end_process(pid_file: Path) -> None:
    """End the process that a pid file names, if it is one of ours and still there."""
    with contextlib.suppress(OSError, ValueError):
        pid = int(pid_file.read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        if b"vgpumgr" not in command:
            return
        end_and_wait(pid, signal.SIGTERM)


def end_and_wait(pid: int, number: signal.Signals) -> None:
    """Send the process a signal, and wait until it is gone."""
    process = read_identity(pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while process is not None and is_alive(process) and time.monotonic() < deadline:
        time.sleep(0.02)


_CMDLINE = "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro intel_iommu=on iommu=pt"


def build_tree(
    machine: Machine, boot_id: str, directory: Path, faults: WriteFaults, sleepers: Sleepers
) -> MachineTree:
    """The files of a machine that has just booted and runs in this directory."""
    cpus = {gpu.place.numa_node: gpu.place.cpus for gpu in machine.gpus}
    bus = PciBus.of(machine.functions())
    state = VgpuState(directory)
    watch_driver(machine, bus, state)
    host = None
    if machine.data.vgpu is not None:
        host = VgpuHost(machine, bus, state)
    mdev = machine.data.vgpu == "mdev"
    parts: list[Part] = [
        ControlTree(bus, faults, host, lambda address: lose_gpu(machine, directory, address)),
        VfioTree(bus, host, mdev=mdev),
        sleepers,
        UsesTree(machine, bus),
        *(IntelTree(bus, pci) for pci in machine.data.pci if pci.quotas),
        GimTree(bus, machine.data.pci),
        *(AmdTree(pci) for pci in machine.data.pci if pci.partitions),
        *(SensorTree(pci, n) for n, pci in enumerate(machine.data.pci) if pci.sensors),
    ]
    if host is not None:
        parts.append(MdevTree(host) if mdev else VendorTree(host))
    proc = {**proc_files(machine), "sys/kernel/random/boot_id": boot_id}
    return MachineTree(bus, proc, cpus, parts, sys_files(machine))


def watch_driver(machine: Machine, bus: PciBus, state: VgpuState) -> None:
    """NVML and CUDA know the GPUs that NVIDIA's driver has; it leaves none with programs that compute on it."""
    gpus = {Address.parse(gpu.place.address): gpu.index for gpu in machine.gpus}

    def users(function: State) -> Callable[[], bool]:
        gpu = gpus.get(function.function.address)
        if gpu is None or function.driver != "nvidia":
            return lambda: False
        return lambda: state.clients(gpu) > 0

    def attach(function: State) -> None:
        gpu = gpus.get(function.function.address)
        if gpu is not None:
            state.detach(gpu, function.driver != "nvidia")

    bus.users.append(users)
    bus.after_driver.append(attach)


def lose_gpu(machine: Machine, directory: Path, address: Address) -> None:
    """NVML and CUDA find the GPU lost, if it is one of theirs."""
    for gpu in machine.gpus:
        if Address.parse(gpu.place.address) == address:
            set_gpu_field(directory, gpu.index, "lost", 1)


def sys_files(machine: Machine) -> dict[str, str]:
    """Constant files below ``/sys``: parameters of kernel modules."""
    return {
        f"module/{module}/parameters/{name}": value
        for module, parameters in machine.data.modules.items()
        for name, value in parameters.items()
    }


def proc_files(machine: Machine) -> dict[str, str]:
    """Constant files below ``/proc``, in the form of NVIDIA's driver README, "The /proc Filesystem Interface"."""
    version = machine.data.driver_version
    files = {
        "sys/kernel/osrelease": machine.data.kernel,
        "cmdline": " ".join((_CMDLINE, *machine.data.cmdline)),
    }
    if not machine.gpus:
        return files
    files |= {
        "modules": "nvidia_uvm 1540096 0 - Live 0x0000000000000000 (OE)\n"
        "nvidia 56717312 1 nvidia_uvm, Live 0x0000000000000000 (OE)",
        "driver/nvidia/version": f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}\n"
        "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14+deb12u1)",
        "driver/nvidia/params": 'ModifyDeviceFiles: 1\nDeviceFileMode: 438\nRegistryDwords: ""',
    }
    for gpu in machine.gpus:
        files[f"driver/nvidia/gpus/{gpu.place.address}/information"] = information(gpu)
    return files


def information(gpu: Gpu) -> str:
    """``/proc/driver/nvidia/gpus/ADDRESS/information``."""
    rows = {
        "Model": gpu.board.name,
        "IRQ": str(100 + gpu.index),
        "GPU UUID": gpu.uuid,
        "Video BIOS": gpu.board.vbios,
        "Bus Type": "PCIe",
        "DMA Size": "47 bits",
        "DMA Mask": "0x7fffffffffff",
        "Bus Location": gpu.place.address,
        "Device Minor": str(gpu.index),
        "GPU Excluded": "No",
    }
    return "\n".join(f"{key + ':':16} {value}" for key, value in rows.items())
