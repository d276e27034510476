"""PyTorch's steps (torch_steps.py), directly and through a channel at the same time. $VGPUMGR_MATH names the directory
of cuBLAS for the host's side, such as site-packages/nvidia/cu13/lib."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.gpu.rig import SHIMS, channel, direct

STEPS = Path(__file__).with_name("torch_steps.py")


def main() -> int:
    apart = "--apart" in sys.argv
    words = [sys.executable, str(STEPS), *(word for word in sys.argv[1:] if word != "--apart")]
    with channel() as rig:
        # NVIDIA's wheels have an old-style path of libraries: only a preloaded one comes before it
        names = ("libcudart", "libcublas", "libcublasLt")
        preload = ":".join([f"{SHIMS}/libcuda.so.1", *(f"{SHIMS}/{name}.so.13" for name in names)])
        ways = {"forwarded": rig.guest() | {"LD_PRELOAD": preload}, "direct": direct()}
        running = {}
        for way, env in ways.items():
            running[way] = subprocess.Popen(
                words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            if apart:
                print(way, running[way].communicate()[0], flush=True)
        for way, process in running.items() if not apart else ():
            print(way, process.communicate()[0], flush=True)
        status = rig.status()
        print(status.violations, status.sessions, status.refused)
    return 0


if __name__ == "__main__":
    sys.exit(main())
