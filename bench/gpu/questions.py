"""Asks questions.cu of the GPU, directly and through a channel; and which files the driver opens as it starts.

usage: python3 -m bench.gpu.questions
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.gpu.rig import ARCH, SIMULATED, channel, direct
from tests.guest.build_programs import compile_program

CALLS = (
    "chmod,fchmodat,unlink,unlinkat,mknod,mknodat,mkdir,openat,open,socket,bind,connect,rename,"
    "sched_get_priority_max,sched_setscheduler,execve"
)


def main() -> int:
    source = Path(__file__).with_name("questions.cu")
    program = compile_program(source, ARCH, f"-L{SIMULATED.parent}", "-lcuda")
    for way, env in (("direct", direct()), ("forwarded", None)):
        if env is None:
            with channel() as rig:
                done = subprocess.run(
                    [program],
                    env=rig.guest(),
                    capture_output=True,
                    text=True,
                    timeout=60,
                    check=False,
                )
        else:
            done = subprocess.run(
                [program], env=env, capture_output=True, text=True, timeout=60, check=False
            )
        print(f"{way}: {done.returncode}\n{done.stdout}{done.stderr}", flush=True)
    strace = os.environ.get("GPU_STRACE") or shutil.which("strace")
    if strace:
        env = direct() | {"LD_LIBRARY_PATH": f"{Path(strace).parent}:{direct()['LD_LIBRARY_PATH']}"}
        words = [strace, "-f", "-e", f"trace={CALLS}", str(program)]
        done = subprocess.run(
            words, env=env, capture_output=True, text=True, timeout=60, check=False
        )
        lines = [
            line
            for line in done.stderr.splitlines()
            if "ENOENT" not in line and "ENOTDIR" not in line
        ]
        print("\n".join(lines)[-9000:])
    return 0


if __name__ == "__main__":
    sys.exit(main())
