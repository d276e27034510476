"""PyTorch's steps (torch_steps.py), directly and through a channel at the same time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.gpu.rig import SHIMS, channel, direct

STEPS = Path(__file__).with_name("torch_steps.py")


def main() -> int:
    words = [sys.executable, str(STEPS), *sys.argv[1:]]
    with channel() as rig:
        # NVIDIA's wheels have an old-style path of libraries: only a preloaded one comes before it
        env = rig.guest() | {"LD_PRELOAD": f"{SHIMS}/libcudart.so.13:{SHIMS}/libcuda.so.1"}
        one = subprocess.Popen(words, env=direct(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        other = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        print("forwarded", other.communicate()[0])
        print("direct", one.communicate()[0])
        status = rig.status()
        print(status.violations, status.sessions, status.refused)
    return 0


if __name__ == "__main__":
    sys.exit(main())
