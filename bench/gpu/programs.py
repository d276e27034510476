"""Runs the guest programs on a host's own driver: directly, and through shims, ring and worker, without a VM.

usage: python bench/gpu/programs.py [--libcuda PATH] [--json FILE] PROGRAM...

Standard library only, so that it runs on a GPU host where nothing can be installed: build here (`./run setup`, then
tests/guest/build_programs.py), copy `vgpumgr/_lib`, this file and the compiled programs there. Results name the
driver that answered; those of a simulated driver say so and are no measurement of a GPU.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LIB = Path(__file__).resolve().parents[2] / "vgpumgr" / "_lib"
PATIENCE_S = 60.0
TIMEOUT_S = 300.0


def ask_keeper(directory: Path, command: str) -> dict[str, Any]:
    """One request on a keeper's control socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(directory / "control.sock"))
        connection.sendall(json.dumps({"command": command}).encode() + b"\n")
        answer: dict[str, Any] = json.loads(connection.makefile().readline())
        return answer


def wait_until(condition: Any, what: str) -> None:
    """Polls; raises TimeoutError naming what was waited for."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.05)


@contextmanager
def channel(libcuda: str) -> Iterator[Path]:
    """Keeper, worker on this driver, and an agent on this host; gives the agent's socket."""
    with tempfile.TemporaryDirectory(prefix="vgg") as name:
        directory, agent_socket = Path(name) / "k", Path(name) / "agent.sock"
        directory.mkdir()
        keeper = subprocess.Popen(
            [LIB / "bin/vgpumgr-keeper", "--dir", directory, "--worker", LIB / "bin/vgpumgr-worker",
             "--", "--cuda", libcuda]
        )  # fmt: skip
        agent: subprocess.Popen[bytes] | None = None
        try:
            wait_until((directory / "control.sock").exists, "keeper")
            wait_until(lambda: worker_is_up(directory), "worker")
            agent = subprocess.Popen(
                [LIB / "guest/vgpumgr-guestd", "--transport", "ring", "--socket", agent_socket,
                 "--ivshmem-socket", directory / "ivshmem.sock"]
            )  # fmt: skip
            wait_until(
                lambda: ask_keeper(directory, "status")["guest"]["hello"] == "ring", "agent's hello"
            )
            yield agent_socket
        finally:
            for process in (agent, keeper):
                if process is not None:
                    process.terminate()
                    process.wait()


def worker_is_up(directory: Path) -> bool:
    """Whether CUDA came up in the worker. Raises RuntimeError with its reason if it did not."""
    worker = ask_keeper(directory, "status")["worker"]
    if worker["state"] == "failed":
        raise RuntimeError(worker["message"])
    return bool(worker["state"] == "ready")


def run_program(program: Path, env: dict[str, str]) -> dict[str, Any]:
    """One program: its verdict, its lines and its wall time."""
    start = time.perf_counter()
    done = subprocess.run(
        [program], env=env, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
    )
    lines = (done.stdout + done.stderr).splitlines()
    return {
        "passed": done.returncode == 0 and any(line.startswith("PASS") for line in lines),
        "status": done.returncode,
        "lines": lines,
        "wall_s": round(time.perf_counter() - start, 4),
    }


def describe_driver(libcuda: str) -> dict[str, Any]:
    """Version and first device of the driver, asked in the documented way."""
    cuda = ctypes.CDLL(libcuda)
    version, name, device = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_int()
    cuda.cuInit(0)
    cuda.cuDriverGetVersion(ctypes.byref(version))
    cuda.cuDeviceGet(ctypes.byref(device), 0)
    cuda.cuDeviceGetName(name, 256, device)
    return {
        "cuda_driver_version": version.value,
        "device": name.value.decode(errors="replace"),
        "simulated": "VGPUMGR_SIM" in os.environ,
    }


def measure(libcuda: str, programs: list[Path]) -> dict[str, Any]:
    """Every program both ways."""
    with tempfile.TemporaryDirectory(prefix="vgr") as runtime:
        for name in ("libcudart.so.12", "libcudart.so.13"):
            (Path(runtime) / name).symlink_to(LIB / "guest" / name)
        old = os.environ.get("LD_LIBRARY_PATH", "")
        direct = os.environ | {"LD_LIBRARY_PATH": f"{runtime}:{Path(libcuda).parent}:{old}"}
        results = {p.name: {"direct": run_program(p, direct)} for p in programs}
        with channel(libcuda) as agent:
            shims = {"LD_LIBRARY_PATH": str(LIB / "guest"), "VGPUMGR_AGENT": str(agent)}
            for program in programs:
                results[program.name]["forwarded"] = run_program(program, os.environ | shims)
    return {"date": time.strftime("%Y-%m-%d"), "driver": describe_driver(libcuda)} | {
        "programs": results
    }


def main() -> int:
    """Run, print a table, write the whole as JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--libcuda", default="/usr/lib/x86_64-linux-gnu/libcuda.so.1")
    parser.add_argument("--json", type=Path)
    parser.add_argument("programs", nargs="+", type=Path)
    options = parser.parse_args()
    report = measure(options.libcuda, [p.resolve() for p in options.programs])
    print(json.dumps(report["driver"]))
    for name, ways in report["programs"].items():
        for way, result in ways.items():
            verdict = "PASS" if result["passed"] else "FAIL"
            print(f"{verdict} {way:10} {result['wall_s']:8.3f} s  {name}  {result['lines'][-1:]}")
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0 if all(r["passed"] for w in report["programs"].values() for r in w.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
