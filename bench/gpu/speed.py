"""What calls and copies cost on the host's GPU: directly, and through a channel, as ratios of one run.

usage: python3 -m bench.gpu.speed [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from bench.gpu.rig import ARCH, channel, direct
from tests.guest.build_programs import compile_program
from vgpumgr.errors import VgpumgrError

TURNS = int(os.environ.get("GPU_TURNS", "2"))
LONGEST_S = 25
WAYS = tuple(os.environ.get("GPU_WAYS", "ring private serial").split())
#: what is a time is better when small, what is none is a rate
TIME = "_s"


def run_program(program: Path, env: dict[str, str]) -> dict[str, float]:
    """Its figures, the best of some turns; what it had when its time was over."""
    best: dict[str, float] = {}
    for _ in range(TURNS):
        with subprocess.Popen([program], env=env, stdout=subprocess.PIPE, text=True) as process:
            try:
                text, _ = process.communicate(timeout=LONGEST_S)
            except subprocess.TimeoutExpired:
                process.kill()
                text, _ = process.communicate()
        for name, value in json.loads(text.strip().rstrip("}") + "}").items():
            is_time = name.endswith(TIME) and not name.endswith("per_s")
            best[name] = (min if is_time else max)(value, best.get(name, value))
    return best


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    program = compile_program(Path(__file__).with_name("speed.cu"), ARCH)
    found = {"direct": run_program(program, direct())}
    for way in WAYS:
        try:
            with channel(way) as rig:
                found[way] = run_program(program, rig.guest())
        except (RuntimeError, AssertionError, VgpumgrError, subprocess.TimeoutExpired) as error:
            print(way, error, file=sys.stderr)
    ways = list(found)
    print(f"{'':28}" + "".join(f"{way:>14}" for way in ways) + "   ring/direct")
    for name, plain in found["direct"].items():
        values = [found[way].get(name, 0.0) for way in ways]
        print(
            f"{name:28}"
            + "".join(f"{v:14.4g}" for v in values)
            + f"   {values[min(1, len(values) - 1)] / plain:.3f}"
        )
    for way, figures in found.items():
        print(way, json.dumps(figures))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
