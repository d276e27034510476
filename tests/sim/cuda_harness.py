# SPDX-License-Identifier: Apache-2.0
"""Building and running the test programs of the simulated CUDA driver."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
LIB = ROOT / "vgpumgr/_lib/sim"
PROGRAMS = HERE / "cuda"
CACHE = Path(os.environ.get("VGPUMGR_CACHE", ROOT / ".cache"))
TIMEOUT_S = 300


def nvcc() -> Path:
    """The CUDA compiler that set-up found or fetched."""
    return Path(os.environ.get("VGPUMGR_NVCC", CACHE / "cuda/nvcc-link/nvcc"))


def cuda_include() -> Path:
    """The headers that the driver was built against, as the build recorded them."""
    for line in (ROOT / "build/CMakeCache.txt").read_text().splitlines():
        if line.startswith("VGPUMGR_CUDA13_INCLUDE"):
            return Path(line.partition("=")[2])
    raise LookupError("the native part was configured without CUDA headers")


def compile_program(name: str, out: Path) -> Path:
    """Compile `cuda/NAME.c` against cuda.h and the simulated driver."""
    program = out / name
    subprocess.run(
        ["gcc", "-std=gnu11", "-g1", "-Wall", "-Wextra", "-Werror", f"-isystem{cuda_include()}",
         PROGRAMS / f"{name}.c", "-o", program, f"-L{LIB}", "-lcuda", "-lpthread"],
        check=True,
    )  # fmt: skip
    return program


def compile_kernels(out: Path, *options: str) -> Path:
    """Compile `cuda/kernels.cu` with nvcc to the file `out`."""
    subprocess.run([nvcc(), *options, PROGRAMS / "kernels.cu", "-o", out], check=True)
    return out


@dataclass
class Machine:
    """A simulated machine, and programs that run on it."""

    directory: Path
    env: dict[str, str] = field(default_factory=dict)

    def environment(self, **more: str) -> dict[str, str]:
        """The variables of a program that uses the machine."""
        env = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
        env |= {"VGPUMGR_SIM": str(self.directory), "LD_LIBRARY_PATH": str(LIB)}
        return env | self.env | more

    def run(self, program: Path, case: str, **env: str) -> str:
        """Run one case of a program; its standard output. A failed check fails the test."""
        done = subprocess.run(
            [program, case], env=self.environment(**env), text=True, capture_output=True,
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{program.name} {case}: {done.returncode}: {done.stderr}"
        return done.stdout

    def start(self, program: Path, case: str, **env: str) -> subprocess.Popen[str]:
        """Start one case of a program, with pipes for its input and output."""
        return subprocess.Popen(
            [program, case], env=self.environment(**env), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip


class Nvml:
    """The few NVML calls that the tests need, on one machine, through the simulated library."""

    def __init__(self, machine: Machine) -> None:
        # NVML is asked in a child, so that the test process keeps no machine open.
        self._machine = machine

    def call(self, code: str) -> str:
        """Run Python code with `n` as pynvml, initialised; what it printed."""
        prelude = "import pynvml as n\nn.nvmlInit()\n"
        done = subprocess.run(
            [sys.executable, "-c", prelude + code], env=self._machine.environment(),
            text=True, capture_output=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def make_instances(self, gpu: int, profiles: list[int]) -> list[str]:
        """Switch MIG on and create GPU instances with one full compute instance each; their UUIDs."""
        code = f"""
h = n.nvmlDeviceGetHandleByIndex({gpu})
n.nvmlDeviceSetMigMode(h, 1)
h = n.nvmlDeviceGetHandleByIndex({gpu})
for profile in {profiles}:
    gi = n.nvmlDeviceCreateGpuInstance(h, n.nvmlDeviceGetGpuInstanceProfileInfo(h, profile).id)
    slices = n.nvmlDeviceGetGpuInstanceProfileInfo(h, profile).sliceCount
    enum = {{1: 0, 2: 1, 3: 2, 4: 3, 7: 4}}[slices]
    ci = n.nvmlGpuInstanceGetComputeInstanceProfileInfo(gi, enum, 0)
    n.nvmlGpuInstanceCreateComputeInstance(gi, ci.id)
for i in range(n.nvmlDeviceGetMaxMigDeviceCount(h)):
    try:
        print(n.nvmlDeviceGetUUID(n.nvmlDeviceGetMigDeviceHandleByIndex(h, i)))
    except n.NVMLError_NotFound:
        pass
"""
        return self.call(code).split()


def exported(library: Path) -> set[str]:
    """The names that a shared library defines."""
    done = subprocess.run(
        ["nm", "-D", "--defined-only", library], text=True, capture_output=True, check=True
    )
    return {line.split()[-1].partition("@")[0] for line in done.stdout.splitlines()}
