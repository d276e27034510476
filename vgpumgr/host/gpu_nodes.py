"""Device nodes: all of a PCI function, and those that a process needs for CUDA on one GPU or one MIG instance."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vgpumgr.host.files import list_names, read_text
from vgpumgr.host.machine import Machine
from vgpumgr.model.pci import PciAddress

#: every CUDA process opens them; a driver from 570 on does not start where the last one is there and cannot be opened
_COMMON = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
_PROC = "/proc/driver/nvidia"


def list_function_nodes(
    machine: Machine, address: PciAddress, group: int | None = None
) -> Iterator[str]:
    """Paths of the nodes by which drivers of the host use the function and, in that IOMMU group, VFIO does."""
    device = machine.path(f"/sys/bus/pci/devices/{address}")
    below = set(list_names(device))
    for name, where in (("drm", "/dev/dri"), ("accel", "/dev/accel")):
        yield from (
            f"{where}/{node}" for node in (list_names(device / name) if name in below else ())
        )
    for card in list_names(device / "sound") if "sound" in below else ():
        number = card.removeprefix("card")
        pattern = re.compile(rf"(?:control|pcm|hw|midi)C{number}(?:D\d+[pc]?)?")
        nodes = list_names(machine.path("/dev/snd"))
        yield from (f"/dev/snd/{name}" for name in nodes if pattern.fullmatch(name))
    facts = _read_facts(machine, f"gpus/{address}/information")
    if (minor := _find_number(facts, "Device Minor")) is not None:
        yield f"/dev/nvidia{minor}"
    if group is not None:
        yield f"/dev/vfio/{group}"
    if "vfio-dev" in below:
        yield from (f"/dev/vfio/devices/{name}" for name in list_names(device / "vfio-dev"))


def list_gpu_nodes(
    machine: Machine, gpu: str, instance: int | None = None, compute: int | None = None
) -> tuple[str, ...]:
    """Paths of the nodes for the GPU with that UUID and, in MIG mode, for that GPU instance and its compute instance.

    Nothing for a simulated machine, which has none. A node that is not there is left out: what is missing, the driver
    says itself.
    """
    if machine.is_simulated:
        return ()
    found = list(_COMMON)
    minor = _find_minor(machine, gpu)
    if minor is not None:
        found.append(f"/dev/nvidia{minor}")
        found += _list_capabilities(machine, minor, instance, compute)
    return tuple(path for path in found if machine.path(path).exists())


def _find_minor(machine: Machine, gpu: str) -> int | None:
    for name in list_names(machine.path(f"{_PROC}/gpus")):
        facts = _read_facts(machine, f"gpus/{name}/information")
        minor = _find_number(facts, "Device Minor")
        if facts.get("GPU UUID") == gpu and minor is not None:
            return minor
    return None


def _list_capabilities(
    machine: Machine, minor: int, instance: int | None, compute: int | None
) -> Iterator[str]:
    if instance is None:
        return
    directory = f"capabilities/gpu{minor}/mig/gi{instance}"
    for place in [directory] if compute is None else [directory, f"{directory}/ci{compute}"]:
        facts = _read_facts(machine, f"{place}/access")
        if (number := _find_number(facts, "DeviceFileMinor")) is not None:
            yield f"/dev/nvidia-caps/nvidia-cap{number}"


def _read_facts(machine: Machine, name: str) -> dict[str, str]:
    """The lines ``KEY: VALUE`` of a file of the driver."""
    lines = (read_text(machine.path(f"{_PROC}/{name}")) or "").splitlines()
    parts = (line.partition(":") for line in lines)
    return {key.strip(): value.strip() for key, colon, value in parts if colon}


def _find_number(facts: dict[str, str], key: str) -> int | None:
    value = facts.get(key, "")
    return int(value) if value.isdigit() else None
