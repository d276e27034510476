# SPDX-License-Identifier: Apache-2.0
"""What the tests of the simulated NVML share: a machine, the library in this process, and clients that compute."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pynvml
import pytest

from tests.support.sim_machine import running as running
from vgpumgr.sim import machine as machines

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "vgpumgr/sim/native"
LIBRARY = ROOT / "vgpumgr/_lib/sim/libnvidia-ml.so.1"
TOOL = ROOT / "vgpumgr/_lib/bin/vgpumgr-simstate"

GPU_MACHINES = [n for n in machines.known_machines() if machines.load_machine(n).gpus]
MIG_MACHINES = [n for n in GPU_MACHINES if all(g.mig for g in machines.load_machine(n).gpus)]

_CLIENT = """
import ctypes, os, sys
library, gpu, gi, ci, memory, busy = sys.argv[1], *map(int, sys.argv[2:])
sim = ctypes.CDLL(library)
handle, slot = ctypes.c_void_p(), ctypes.c_int()
result = sim.sim_open(None, ctypes.byref(handle))
result = result or sim.sim_client_add(handle, gpu, gi, ci, ctypes.byref(slot))
result = result or sim.sim_client_charge(handle, slot, ctypes.c_uint64(memory))
if busy:
    sim.sim_client_busy(handle, slot, True)
print(result, flush=True)
sys.stdin.read()
"""


@contextmanager
def nvml() -> Iterator[ModuleType]:
    """nvidia-ml-py on the simulated library, initialised."""
    # loaded by path once, the library answers to its SONAME, which is what nvidia-ml-py asks for
    ctypes.CDLL(str(LIBRARY), mode=ctypes.RTLD_GLOBAL)
    pynvml.nvmlInit()
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


@contextmanager
def refused(code: int) -> Iterator[None]:
    """Expect this NVML error and no other."""
    with pytest.raises(pynvml.NVMLError) as caught:
        yield
    assert caught.value.value == code, f"{caught.value!r}, expected {pynvml.NVMLError(code)!r}"


def build_simstate(directory: Path) -> Path:
    """The state library as a shared object, so that a test can be a client of the machine."""
    library = directory / "libsimstate.so"
    sources = [
        NATIVE / "state/state.c",
        NATIVE / "state/copy.c",
        NATIVE / "state/clients.c",
        NATIVE / "state/lives.c",
        NATIVE / "state/faults.c",
    ]
    subprocess.run(
        ["cc", "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-shared", "-fPIC", "-pthread", f"-I{NATIVE}"]
        + ["-o", str(library), *map(str, sources)],
        check=True,
    )
    return library


class Client:
    """A process that computes on a GPU or an instance."""

    def __init__(
        self, library: Path, gpu: int, gi: int = -1, ci: int = -1, *, memory: int = 0
    ) -> None:
        self.arguments = [str(library), *map(str, (gpu, gi, ci, memory))]
        self.result = 0

    def start(self, *, busy: bool = False) -> Client:
        """Start it; ``result`` is 0 or the negative errno that it got."""
        self.process = subprocess.Popen(
            [sys.executable, "-c", _CLIENT, *self.arguments, str(int(busy))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout
        self.result = int(self.process.stdout.readline())
        return self

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    def kill(self) -> None:
        """SIGKILL, and reap."""
        self.process.kill()
        self.process.communicate()

    def __enter__(self) -> Client:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.process.communicate()


def nvml_header() -> Path:
    """The nvml.h that the native part was built with."""
    cache = (ROOT / "build/CMakeCache.txt").read_text()
    match = re.search(r"^VGPUMGR_NVML_INCLUDE:PATH=(.+)$", cache, re.MULTILINE)
    assert match, "the build does not know nvml.h"
    return Path(match[1]) / "nvml.h"


def show(directory: Path) -> list[list[str]]:
    """The lines of ``vgpumgr-simstate show`` about instances and clients, split into words."""
    text = subprocess.run([TOOL, "show", directory], check=True, capture_output=True, text=True)
    lines = [line.split(" ") for line in text.stdout.splitlines()]
    return [words for words in lines if words[0] in ("gi", "ci", "client")]


def set_gpu(directory: Path, gpu: int, field: str, value: object) -> None:
    """Change a field of a GPU from outside, as a fault would."""
    subprocess.run([TOOL, "set", directory, str(gpu), field, str(value)], check=True)


def as_nobody(code: str) -> int:
    """The exit status of Python code run by an unprivileged user, with ``n`` for nvidia-ml-py; needs root."""
    start = f"""
import ctypes, os
import pynvml as n
ctypes.CDLL({str(LIBRARY)!r}, mode=ctypes.RTLD_GLOBAL)
os.setgid(65534), os.setuid(65534)
"""
    return subprocess.run([sys.executable, "-c", start + code], timeout=60, check=False).returncode
