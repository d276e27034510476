"""A command on a share of its own, which takes memory and computes as it is told."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.support.run_host import MACHINE, PATIENCE_S, Host, read_line

#: obeys a line each: "alloc BYTES", "free", "info", "nvml", "end"; answers CUDA's code, or what is free and there
PROGRAM = """
import ctypes, sys
cu = ctypes.CDLL("libcuda.so.1")
def ok(code):
    if code:
        sys.exit(f"CUDA error {code}")
context, size = ctypes.c_void_p(), ctypes.c_size_t()
ok(cu.cuInit(0))
ok(cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
ok(cu.cuCtxSetCurrent(context))
held = []
print("ready", flush=True)
for line in sys.stdin:
    word, _, number = line.strip().partition(" ")
    if word == "alloc":
        pointer = ctypes.c_uint64()
        code = cu.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(int(number)))
        held += [] if code else [pointer]
        print(code, flush=True)
    elif word == "free":
        print(cu.cuMemFree_v2(held.pop()), flush=True)
    elif word == "nvml":
        import pynvml
        pynvml.nvmlInit()
        device = pynvml.nvmlDeviceGetHandleByIndex(0)
        memory = pynvml.nvmlDeviceGetMemoryInfo(device)
        print(memory.free, memory.total, pynvml.nvmlDeviceGetCount(), flush=True)
    elif word == "info":
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        ok(cu.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
        ok(cu.cuDeviceTotalMem_v2(ctypes.byref(size), 0))
        print(free.value, total.value, size.value, flush=True)
    else:
        break
"""
OUT_OF_MEMORY = 2


class Tenant:
    """A command on a share of its own, which obeys."""

    def __init__(self, host: Host, name: str, *words: str) -> None:
        self.host, self.name = host, name
        command = ("--", sys.executable, "-c", PROGRAM)
        self.process = host.start("run", "--name", name, *words, *command)
        assert read_line(self.process) == "ready"

    def say(self, line: str) -> list[int]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return list(map(int, read_line(self.process).split()))

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(PATIENCE_S) == 0

    def kill_arbiter(self) -> None:
        """Ends the arbiter of what it has a share of, as no other program would."""
        device = str(self.read()["device"]).partition("-")[2].replace("-", "")
        socket = self.host.root / MACHINE / f"host/run/arbiter/{device}.sock"
        (pid,) = [
            int(path.parent.name)
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if str(socket).encode() in (words := path.read_bytes()) and b"vgpumgr-arbiter" in words
        ]
        os.kill(pid, signal.SIGKILL)

    def read(self) -> dict[str, Any]:
        channel: dict[str, Any] = self.host.read("virtio", "show", self.name)["channel"]
        return channel
