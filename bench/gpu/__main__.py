"""All that only a GPU can show: `python3 -m bench.gpu OUT [CHECK...]` on a host with an NVIDIA driver and nvcc.

Nothing is installed, and no setting of the GPU is changed. What is built (`vgpumgr/_lib`) must be there. The output
of a check is in OUT/CHECK.log, its figures in OUT/CHECK.json. The checks of a group run at the same time, the timings
alone. The environment can name $GPU_LIBCUDA, $GPU_ARCH, $VGPUMGR_NVCC, $GPU_CASES (tests/sim/cuda, built elsewhere),
$GPU_SUITE and $GPU_TORCH (parts), $GPU_STRACE.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.gpu.rig import direct, find_driver

HERE = Path(__file__).parent
PTX_TESTS = ("instructions", "kernels", "matrix", "narrow", "memory", "async", "clusters")
PYTHON = sys.executable


def list_checks(out: Path) -> dict[str, tuple[int, list[str]]]:
    """Each with its limit in seconds and its words."""
    module = [PYTHON, "-m"]
    torch = [PYTHON, "-m", "bench.gpu.frameworks"]
    tests = [f"tests/sim/test_ptx_{name}.py" for name in PTX_TESTS]
    pytest = [
        *module,
        "pytest",
        "-k",
        "not cancel and not deadlock and not compute_120 and not lanes and not refused and not mistakes and not misuse",
        "-q",
        "-p",
        "no:cacheprovider",
        "--timeout=30",
        "--timeout-method=thread",
        "-n",
        "3",
    ]
    return {
        "host": (60, [*module, "bench.gpu.host"]),
        "programs": (
            150,
            [*module, "bench.gpu.programs", "--json", f"{out}/programs.json", "guest"],
        ),
        "cases": (150, [*module, "bench.gpu.programs", "--json", f"{out}/cases.json", "cases"]),
        "sequences": (
            120,
            [*module, "bench.gpu.sequences", "25", "1", "--answers", f"{out}/answers.json"],
        ),
        "sequences2": (
            120,
            [*module, "bench.gpu.sequences", "25", "1001", "--answers", f"{out}/answers2.json"],
        ),
        "kernels": (
            100,
            [*module, "bench.gpu.kernels", "300", "1", "--json", f"{out}/kernels.json"],
        ),
        "ptx": (150, [*pytest, *tests]),
        "suite": (
            170,
            [
                *module,
                "bench.gpu.suite",
                "--json",
                f"{out}/suite.json",
                *os.environ.get("GPU_SUITE", "").split(),
            ],
        ),
        "torch": (170, [*torch, *os.environ.get("GPU_TORCH", "").split()]),
        "questions": (60, [*module, "bench.gpu.questions"]),
        "shares": (100, [*module, "bench.gpu.shares", os.environ.get("GPU_SECONDS", "5")]),
        "rates": (60, [*torch, "--apart", "rates", "graphs"]),
        "speed": (90, [*module, "bench.gpu.speed", "--json", f"{out}/speed.json"]),
    }


#: those of one group run at the same time
GROUPS = (
    ("shares",),
    ("speed",),
    ("rates",),
    ("host", "programs", "cases", "sequences", "sequences2", "questions"),
    ("kernels", "ptx", "suite", "torch"),
)


def run_check(out: Path, name: str, limit_s: int, words: list[str], env: dict[str, str]) -> None:
    """Its output into a file; a line here."""
    start = time.monotonic()
    with (out / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, env=env, start_new_session=True)
        try:
            status: int | str = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            status = "out of time"
    print(f"{name}: {status}, {time.monotonic() - start:.0f} s", flush=True)


def main() -> int:
    out = Path(sys.argv[1])
    chosen = sys.argv[2:]
    out.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join(filter(None, (str(HERE.parents[1]), os.environ.get("PYTHONPATH"))))
    env = direct() | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    mode = out / "mode"
    run_check(out, "probe", 100, [PYTHON, "-m", "bench.gpu.probe", str(mode)], env)
    print((out / "probe.log").read_text()[-4000:], flush=True)
    env["GPU_MODE"] = mode.read_text() if mode.exists() else "unconfined"
    if env["GPU_MODE"] in ("log", "off"):
        env["VGPUMGR_WORKER_FILTER"] = env["GPU_MODE"]
    checks = list_checks(out)
    for group in GROUPS:
        names = [name for name in group if not chosen or name in chosen]
        with ThreadPoolExecutor(len(group)) as pool:
            for name in names:
                more = {"VGPUMGR_PTX_GPU": str(find_driver())} if name in ("ptx", "kernels") else {}
                pool.submit(run_check, out, name, *checks[name], env | more)
    for name in checks:
        if (log := out / f"{name}.log").exists():
            print(f"=== {name}\n{log.read_text(errors='replace')[-1000:]}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
