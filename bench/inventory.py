"""Looking at a large host: 16 GPUs with 32 virtual functions each and 60 vGPU types for each of them.

The host is a generated directory tree, so that files cost what they cost and nothing simulated
stands in between.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.registry import Figure, at_most
from vgpumgr.host.machine import Machine
from vgpumgr.host.pci_tree import list_functions
from vgpumgr.host.vgpu_files import VgpuFiles
from vgpumgr.mdev.observe import make_host
from vgpumgr.passthrough.control import HostPci

GPUS, FUNCTIONS, TYPES = 16, 32, 60
GOAL_S = 0.3
#: how much more than four times the work may four times the GPUs be
SLACK = 1.5
_RUNS = 7
_BACKEND = "files"


def run(small: bool = False) -> Iterable[Figure]:
    """``small``: a host with two GPUs, to see that it runs."""
    gpus = 2 if small else GPUS
    with _host(gpus) as large, _host(max(1, gpus // 4)) as quarter:
        for name, read in (
            ("PCI functions", list_functions),
            ("passthrough and virtual functions", _read_pci),
            ("vGPUs and types, mdev", _read_vgpus),
            ("vGPUs and types, vendor-specific VFIO", _read_vgpus),
        ):
            framework = "vendor" if "vendor" in name else "mdev"
            yield from _measure(name, gpus, large[framework], quarter[framework], read)


def _measure(
    name: str, gpus: int, large: Machine, quarter: Machine, read: Callable[[Machine], object]
) -> Iterator[Figure]:
    ours, less = _time(lambda: read(large)), _time(lambda: read(quarter))
    goal, met = at_most(1, ours, GOAL_S)
    yield Figure(f"{gpus} GPUs: {name}", ours, GOAL_S, "s", "300 ms", goal, met, _BACKEND)
    scale = gpus / max(1, gpus // 4)
    goal, met = at_most(scale * SLACK, ours, less)
    name = f"{gpus} GPUs: {name}, growth"
    yield Figure(name, ours, less, "s", f"{max(1, gpus // 4)} GPUs", goal, met, _BACKEND)


def _read_pci(machine: Machine) -> None:
    functions = HostPci(machine).list_functions()
    assert len(functions) % (FUNCTIONS + 1) == 0
    assert functions


def _read_vgpus(machine: Machine) -> None:
    """Both sides of the helper's line, and what is made of it; NVML says nothing."""
    line = json.dumps(VgpuFiles(machine.root).read_host())
    host = make_host(json.loads(line), ())
    assert len(host.boards) * FUNCTIONS == len(host.parents)
    assert all(len(board.types) == TYPES for board in host.boards)


def _time(work: Callable[[], object]) -> float:
    """Processor seconds of the best run: nothing here waits for anything."""
    times = []
    for _ in range(_RUNS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


@contextmanager
def _host(gpus: int) -> Iterator[dict[str, Machine]]:
    """The same host twice: with mediated devices, and with a driver that has vendor-specific VFIO."""
    with tempfile.TemporaryDirectory(prefix="vgb") as name:
        machines = {}
        for framework in ("mdev", "vendor"):
            root = Path(name, framework)
            for index in range(gpus):
                _write_gpu(root, index, framework)
            run_dir = root / "run"
            machines[framework] = Machine("bench", root, run_dir, run_dir, "test:///default")
        yield machines


def _write_gpu(root: Path, index: int, framework: str) -> None:
    bus = root / "sys/bus/pci/devices"
    physical = f"{index:04x}:00:00.0"
    _write_function(bus / physical, index)
    if framework == "mdev":
        _write_types(bus / physical / "types")
    for number in range(FUNCTIONS):
        slot, function = divmod(number + 8, 8)
        directory = bus / f"{index:04x}:00:{slot:02x}.{function}"
        _write_function(directory, index)
        (directory / "physfn").symlink_to(f"../{physical}")
        if framework == "mdev":
            # each has its own on a real host; which of them is read makes no difference here
            (directory / "mdev_supported_types").symlink_to(f"../{physical}/types")
            parents = root / "sys/class/mdev_bus"
            parents.mkdir(parents=True, exist_ok=True)
            (parents / directory.name).symlink_to(directory)
        else:
            _write_vendor(directory / "nvidia")


def _write_function(directory: Path, numa_node: int) -> None:
    directory.mkdir(parents=True)
    facts = {"vendor": "0x10de", "device": "0x20b5", "class": "0x030200"}
    for name, text in {**facts, "numa_node": str(numa_node % 2)}.items():
        (directory / name).write_text(f"{text}\n")


def _write_types(directory: Path) -> None:
    for number in range(TYPES):
        type_dir = directory / f"nvidia-{500 + number}"
        type_dir.mkdir(parents=True)
        facts = {
            "available_instances": "1",
            "name": f"NVIDIA A100-{number}C",
            "description": "num_heads=1, frl_config=60, framebuffer=4096M, max_resolution=4096x2160",
            "device_api": "vfio-pci",
        }
        for name, text in facts.items():
            (type_dir / name).write_text(f"{text}\n")


def _write_vendor(directory: Path) -> None:
    directory.mkdir()
    lines = [f"{500 + number} : NVIDIA L40S-{number}C" for number in range(TYPES)]
    (directory / "creatable_vgpu_types").write_text("\n".join(["ID : vGPU Name", *lines, ""]))
    (directory / "current_vgpu_type").write_text("0\n")
