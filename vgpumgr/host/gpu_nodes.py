"""Device nodes of NVIDIA's driver: the ones that a process needs for CUDA on one GPU or one MIG instance."""

from __future__ import annotations

from collections.abc import Iterator

from vgpumgr.host.files import list_names, read_text
from vgpumgr.host.machine import Machine

#: every CUDA process opens them; a driver from 570 on does not start where the last one is there and cannot be opened
_COMMON = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
_PROC = "/proc/driver/nvidia"


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
    directory = machine.path(f"{_PROC}/gpus")
    for name in list_names(directory):
        facts = dict(_read_facts(read_text(directory / name / "information") or ""))
        if facts.get("GPU UUID") == gpu and facts.get("Device Minor", "").isdigit():
            return int(facts["Device Minor"])
    return None


def _list_capabilities(
    machine: Machine, minor: int, instance: int | None, compute: int | None
) -> Iterator[str]:
    if instance is None:
        return
    directory = f"{_PROC}/capabilities/gpu{minor}/mig/gi{instance}"
    places = [directory] if compute is None else [directory, f"{directory}/ci{compute}"]
    for place in places:
        facts = dict(_read_facts(read_text(machine.path(f"{place}/access")) or ""))
        if facts.get("DeviceFileMinor", "").isdigit():
            yield f"/dev/nvidia-caps/nvidia-cap{facts['DeviceFileMinor']}"


def _read_facts(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            yield key.strip(), value.strip()
