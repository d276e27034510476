"""A channel with the real worker on the null driver or on the simulated one, and guest programs that use the shims."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.transport_rig import LIB, Rig
from vgpumgr.sim import machine as machines

#: CUDA's rules, and of them what the worker is made with, for those who build one
RULES = Path(__file__).parents[2] / "vgpumgr" / "native" / "cuda_rules"
SPARSE_RULES = RULES.with_name("sparse_rules")
WORKER_RULES = [
    RULES / f"{name}.c"
    for name in (
        "array",
        "copy",
        "kernel_attributes",
        "stream_attributes",
        "stream_memory",
        "tensor_map",
        "texture",
    )
]
WORKER = LIB / "bin" / "vgpumgr-worker"
NULL_DRIVER = LIB / "bin" / "null" / "libcuda.so.1"
SHIM = LIB / "guest" / "libcuda.so.1"
PROGRAM_S = 400.0
"""Longest that a guest program may take on a busy machine."""


@contextmanager
def null_channel(transport: str, **env: str) -> Iterator[Rig]:
    """A channel whose worker has the null driver; ``env`` is the worker's."""
    before = {k: os.environ.get(k) for k in env}
    os.environ.update(env)
    try:
        with Rig(transport, worker=WORKER, worker_args=("--cuda", str(NULL_DRIVER))) as rig:
            yield rig
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


@contextmanager
def simulated_channel(
    transport: str, root: Path, *more: str, machine: str = "a30-pair", make: type[Rig] = Rig
) -> Iterator[Rig]:
    """A channel whose worker has a machine's simulated driver; ``more`` are arguments of the worker."""
    driver = LIB / "sim" / "libcuda.so.1"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VGPUMGR_SIM_ROOT", str(root))
        machines.create_machine(machine)
        try:
            for key, value in machines.machine_env(machine).items():
                patch.setenv(key, value)
            with make(transport, worker=WORKER, worker_args=("--cuda", str(driver), *more)) as rig:
                yield rig
        finally:
            machines.destroy_machine(machine)


def guest_env(rig: Rig) -> dict[str, str]:
    """A guest process's environment: the shims, the agent, and nothing of the simulated machine."""
    env = {
        k: v
        for k, v in rig.env.items()
        if not k.startswith(("VGPUMGR_SIM", "VGPUMGR_MACHINE", "CUDA_"))
    }
    return env | {"LD_LIBRARY_PATH": str(SHIM.parent)}


def run_program(rig: Rig, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs a guest program to its end."""
    return subprocess.run(
        command, env=guest_env(rig), capture_output=True, text=True, timeout=PROGRAM_S, check=False
    )


def start_python(rig: Rig, code: str, *arguments: str) -> subprocess.Popen[str]:
    """Starts a guest process of Python that has the driver API as ``cu``; see ``guest_cuda``."""
    command = [sys.executable, "-c", f"from tests.unit.guest_cuda import *\n{code}", *arguments]
    env = guest_env(rig) | {"PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_python(rig: Rig, code: str, *arguments: str) -> str:
    """Runs a guest process of Python; its output. It must succeed and print nothing on stderr."""
    process = start_python(rig, code, *arguments)
    out, errors = process.communicate(timeout=PROGRAM_S)
    assert (process.returncode, errors) == (0, ""), errors
    return out
