"""Whether the driver of this host starts in the worker's sandbox; if not, what holds it back.

usage: python3 -m bench.gpu.probe [FILE]

Tries each mode, from the whole sandbox to none, until a program in the guest's place has used the device. Writes the
first one that works to FILE.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from bench.gpu.rig import MODES, SHIMS, GpuRig, find_driver

ASK = """
import ctypes
cu = ctypes.CDLL("libcuda.so.1"); p = ctypes.c_uint64(); c = ctypes.c_void_p()
s = ctypes.create_string_buffer(b"abcdefgh")
for name, *arguments in (("cuInit", 0), ("cuDevicePrimaryCtxRetain", ctypes.byref(c), 0), ("cuCtxSetCurrent", c),
        ("cuMemAlloc_v2", ctypes.byref(p), ctypes.c_size_t(1 << 20)), ("cuMemsetD8_v2", p, 7, ctypes.c_size_t(8)),
        ("cuMemcpyDtoH_v2", s, p, ctypes.c_size_t(8))):
    code = getattr(cu, name)(*arguments)
    print(name, code, flush=True)
    if code: raise SystemExit(1)
print(s.raw)
raise SystemExit(s.raw[:8] != bytes([7]) * 8)
"""


@contextmanager
def show_log(rig: GpuRig) -> Iterator[None]:
    """What workers wrote, before it is removed."""
    kept = rig.keeper.stop

    def stop(**_: float) -> None:
        if rig.keeper.worker_log.exists():
            print("worker.log:", rig.keeper.worker_log.read_text(errors="replace")[-3000:])
        kept()

    with mock.patch.object(type(rig.keeper), "stop", lambda _self, **k: stop(**k)):
        yield


def probe(mode: str) -> bool:
    """One mode: prints what happened."""
    start = time.monotonic()
    rig = GpuRig("ring", mode)
    try:
        with show_log(rig), rig:
            ready = time.monotonic() - start
            done = subprocess.run(
                [sys.executable, "-c", ASK],
                env=rig.guest(),
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            took = time.monotonic() - start - ready
            print(
                f"{mode}: ready after {ready:.2f} s, then {took:.2f} s: {done.returncode}\n{done.stdout}{done.stderr}"
            )
            print(rig.keeper.worker_log.read_text(errors="replace")[-3000:])
            print(rig.status())
            return done.returncode == 0
    except Exception as error:
        print(f"{mode}: {error!r} {getattr(error, 'cause', '')}"[:3000])
        for log in (rig.keeper.worker_log, rig.directory / "agent.log"):
            if log.exists():
                print(log.name, log.read_text(errors="replace")[-3000:])
        return False
    finally:
        kernel = subprocess.run(["dmesg"], capture_output=True, text=True, check=False).stdout
        print(
            "\n".join(
                line for line in kernel.splitlines()[-30:] if "audit" in line or "type=" in line
            )
        )


def main() -> int:
    print(find_driver(), SHIMS)
    for mode in MODES:
        works = probe(mode)
        sys.stdout.flush()
        if works:
            if len(sys.argv) > 1:
                Path(sys.argv[1]).write_text(mode)
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
