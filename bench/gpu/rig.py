"""A channel to the driver of this host: keeper, holder, worker in its sandbox, the guest's agent; without a VM."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.unit.transport_rig import LIB, Rig
from vgpumgr.host.gpu_nodes import list_gpu_nodes
from vgpumgr.host.machine import find_machine
from vgpumgr.virtio.keeper import HOLD_PROGRAM, WORKER_PROGRAM
from vgpumgr.virtio.mathematics import list_worker_options

SHIMS = LIB / "guest"
SIMULATED = LIB / "sim" / "libcuda.so.1"
#: how much holds the worker: all of the sandbox, its filter only writing down what it would refuse, none, no sandbox
MODES = ("enforce", "log", "off", "unconfined")


def find_driver() -> Path:
    """The host's libcuda.so.1: $GPU_LIBCUDA, else what the loader's cache says. Raises LookupError."""
    if named := os.environ.get("GPU_LIBCUDA"):
        return Path(named)
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    if found := re.search(r"libcuda\.so\.1 \(.*x86-64.*\) => (\S+)", listed):
        return Path(found[1]).resolve().parent / "libcuda.so.1"
    for place in ("/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu"):
        if (Path(place) / "libcuda.so.1").exists():
            return Path(place) / "libcuda.so.1"
    raise LookupError("no libcuda.so.1 on this host")


#: for nvcc: this GPU's architecture; another one where none is at hand
ARCH = f"-arch={os.environ.get('GPU_ARCH', 'native')}"


def is_simulated() -> bool:
    """Whether what answers is the simulated driver: then nothing here is a measurement of a GPU."""
    return "VGPUMGR_SIM" in os.environ


def read_uuid() -> str:
    """Of the first device, as CUDA_VISIBLE_DEVICES takes it."""
    cuda = ctypes.CDLL(str(find_driver()))
    raw, device = (ctypes.c_ubyte * 16)(), ctypes.c_int()
    for code in (
        cuda.cuInit(0),
        cuda.cuDeviceGet(ctypes.byref(device), 0),
        cuda.cuDeviceGetUuid_v2(raw, device),
    ):
        if code:
            raise RuntimeError(f"the driver {find_driver()} answers {code}")
    text = bytes(raw).hex()
    return "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def name_device() -> str:
    """The first device's UUID, asked for in a process that ends."""
    words = ["-c", "from bench.gpu.rig import read_uuid; print(read_uuid())"]
    return subprocess.run(
        [sys.executable, *words], check=True, capture_output=True, text=True
    ).stdout.strip()


class GpuRig(Rig):
    """A channel whose worker has the host's driver and its first GPU."""

    def __init__(
        self, transport: str, mode: str = "enforce", shm_size_bytes: int = 64 << 20
    ) -> None:
        driver, uuid = find_driver(), name_device()
        super().__init__(
            transport,
            worker=HOLD_PROGRAM,
            worker_args=(
                str(WORKER_PROGRAM), "--channel-number=0", f"--channel-device={uuid}", "--watchdog=60:0",
                *list_worker_options({**os.environ, "VGPUMGR_CUDA": str(driver)}),
            ),
            shm_size_bytes=shm_size_bytes,
        )  # fmt: skip
        self.options = replace(
            self.options,
            env={
                **find_machine(None).variables,
                "CUDA_VISIBLE_DEVICES": uuid,
                "VGPUMGR_CUDA": str(driver),
                "LD_LIBRARY_PATH": str(driver.parent),
                "VGPUMGR_WORKER_FILTER": mode if mode != "unconfined" else "off",
            },
            devices=list_gpu_nodes(find_machine(None), uuid),
            confined=mode != "unconfined",
        )

    def guest(self) -> dict[str, str]:
        """A guest process's environment: the shims first, the agent, nothing of the host's devices."""
        env = {k: v for k, v in self.env.items() if not k.startswith(("VGPUMGR_SIM", "CUDA_"))}
        return env | {"LD_LIBRARY_PATH": str(SHIMS)}


def direct() -> dict[str, str]:
    """The environment of a program that has the driver itself, and of the devices the first one only."""
    if is_simulated():
        return with_our_runtime()  # NVIDIA's asks for tables that the simulated driver has not
    old = os.environ.get("LD_LIBRARY_PATH", "")
    path = f"{find_driver().parent}:{old}".rstrip(":")
    return os.environ | {"LD_LIBRARY_PATH": path, "CUDA_VISIBLE_DEVICES": "0"}


@functools.cache
def _link_runtime() -> tempfile.TemporaryDirectory[str]:
    """A directory with the guest's CUDA runtime and without its driver, for as long as this process lives."""
    place = tempfile.TemporaryDirectory(prefix="vgr")
    for name in ("libcudart.so.12", "libcudart.so.13"):
        (Path(place.name) / name).symlink_to(SHIMS / name)
    return place


def with_our_runtime() -> dict[str, str]:
    """The same, with the guest's CUDA runtime on the driver itself."""
    path = f"{_link_runtime().name}:{find_driver().parent}"
    return os.environ | {"LD_LIBRARY_PATH": path, "CUDA_VISIBLE_DEVICES": "0"}


@contextmanager
def channel(transport: str = "ring") -> Iterator[GpuRig]:
    """In the mode that $GPU_MODE says; by default with the whole sandbox."""
    with GpuRig(transport, os.environ.get("GPU_MODE", MODES[0])) as rig:
        yield rig
