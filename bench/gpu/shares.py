"""Shares of a genuine GPU's time: what each tenant has had of it, by the work that it got done.

usage: python3 -m bench.gpu.shares [SECONDS]

Each tenant is ``vgpumgr run --profile share:4GiB,N%`` of a program that always has more work (busy.cu). Counted is the
part of a run in which all were at work.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from bench.gpu.rig import ARCH, direct
from tests.guest.build_programs import compile_program

#: turns of the kernel's loop: about 0.1, 1, 5 and 50 ms on a big GPU
SCENARIOS: tuple[tuple[str, tuple[int, ...], tuple[tuple[str, str], ...]], ...] = (
    ("burst", (30, 70), (("4000", "4"),) * 2),
    ("burst", (10, 90), (("40000", "1"),) * 2),
    ("burst", (30, 70), (("1000", "16"), ("200000", "1"))),
    ("burst", (10, 20, 30, 40), (("4000", "4"),) * 4),
    ("fixed", (30,), (("4000", "4"),)),
    ("fixed", (20, 50), (("4000", "4"),) * 2),
)


def read(process: subprocess.Popen[str]) -> list[tuple[float, int]]:
    out, errors = process.communicate()
    rows = [line.split() for line in out.splitlines() if len(line.split()) == 2]
    if not rows:
        print(errors[-800:], file=sys.stderr)
    return [(float(at), int(count)) for at, count in rows]


def rate(rows: list[tuple[float, int]], start: float, end: float) -> float:
    """Kernels a second between two times."""
    inside = [row for row in rows if start <= row[0] <= end]
    if len(inside) < 2:
        return 0.0
    return (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])


def alone(program: Path, kernel: tuple[str, str]) -> float:
    """Kernels a second of one program without a share, with the GPU to itself."""
    with subprocess.Popen(
        [program, "1.5", *kernel], env=direct(), stdout=subprocess.PIPE, text=True
    ) as process:
        rows = read(process)
    return rate(rows, rows[0][0] + 0.3, rows[-1][0])


def run(
    program: Path,
    seconds: float,
    policy: str,
    percents: tuple[int, ...],
    kernels: tuple[tuple[str, str], ...],
) -> None:
    """All tenants at once; a line for each."""
    full = {kernel: alone(program, kernel) for kernel in dict.fromkeys(kernels)}
    running = []
    for percent, kernel in zip(percents, kernels, strict=True):
        profile = ["--profile", f"share:4GiB,{percent}%", "--compute-policy", policy]
        words = [
            sys.executable,
            "-m",
            "vgpumgr",
            "run",
            *profile,
            "--",
            str(program),
            str(seconds),
            *kernel,
        ]
        running.append(
            subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        time.sleep(0.2)
    rows = [read(process) for process in running]
    if not all(rows):
        return
    start, end = max(r[0][0] for r in rows) + 0.7, min(r[-1][0] for r in rows) - 0.1
    parts = [rate(r, start, end) / full[k] for r, k in zip(rows, kernels, strict=True)]
    whole = sum(parts) if policy == "burst" else 1.0
    weights = sum(percents) if policy == "burst" else 100
    mix = ":".join(map(str, percents))
    print(
        f"{policy} {mix}, {end - start:.1f} s; all together {100 * sum(parts):.1f} % of one alone"
    )
    for percent, part, kernel in zip(percents, parts, kernels, strict=True):
        asked, had = 100 * percent / weights, 100 * part / whole
        length = f"{1e3 / full[kernel]:.2f} ms a kernel"
        print(
            f"   asked {asked:5.1f} %, had {had:5.1f} %, error {had - asked:+.2f} points ({length})",
            flush=True,
        )


def main() -> int:
    program = compile_program(Path(__file__).with_name("busy.cu"), ARCH)
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    for scenario in SCENARIOS:
        run(program, seconds, *scenario)
    return 0


if __name__ == "__main__":
    sys.exit(main())
