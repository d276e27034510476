"""The guest programs, and the cases of the simulated driver's own tests: on the host's driver, and forwarded.

usage: python3 -m bench.gpu.programs [--json FILE] [guest|cases]...

Each program runs directly and over the ring, shared and private lanes, and the serial stream, several at once. The
cases tell whether what the simulated driver is tested against is what NVIDIA's driver does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.gpu.rig import ARCH, GpuRig, channel, direct, with_our_runtime
from tests.guest.build_programs import NAMES, SOURCES, compile_program
from tests.sim import cuda_harness

TIMEOUT_S = 15
AT_ONCE = 10
TRANSPORTS = ("ring", "private", "serial")
#: two devices, another runtime's major version, memory held until told
LEFT_OUT = {"devices", "vectoradd12", "holdmem", "secret"}
#: cases that wait for something, need another device, or are of the simulated driver alone
LEFT_OUT_CASES = {
    "list", "no_device", "hold", "try_most", "machine_code_only", "busy", "refused", "in_step", "peers",
    "limited", "link_objects", "unimplemented", "wrong_contexts", "out_of_bounds",
    "wait_until_killed",
}  # fmt: skip
CASE_PROGRAMS = (
    "contexts", "memory", "streams", "stream_memory", "tensor_maps", "batches", "attributes", "launches",
    "functions", "linking", "graphs", "graph_objects", "graph_reads", "captures", "virtual", "textures",
    "texture_faults",
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """One program, one way."""

    name: str
    way: str
    passed: bool
    status: int
    wall_s: float
    said: str


def run_one(name: str, way: str, words: Sequence[str | Path], env: dict[str, str]) -> Run:
    """To its end, or for TIMEOUT_S."""
    start = time.perf_counter()
    try:
        done = subprocess.run(
            [str(word) for word in words],
            env=env, capture_output=True, text=True, errors="replace", check=False, timeout=TIMEOUT_S,
        )  # fmt: skip
        status, said = done.returncode, done.stdout[-700:] + done.stderr[-700:]
    except subprocess.TimeoutExpired as error:
        status, said = -1, f"no end in {TIMEOUT_S} s: {error.stdout!r} {error.stderr!r}"
    return Run(name, way, status == 0, status, round(time.perf_counter() - start, 3), said)


def build_guest(only: Sequence[str] = ()) -> dict[str, Path]:
    """Each program of tests/guest/programs, for the GPU of this host."""
    names = [name for name in NAMES if name in only or not (only or name in LEFT_OUT)]

    def build(name: str) -> Path:
        part = SOURCES / "parts" / f"{name}.cu"
        more = ("-rdc=true", str(part)) if part.exists() else ()
        return compile_program(SOURCES / f"{name}.cu", *more, ARCH)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(names, pool.map(build, names), strict=True))


def build_cases(out: Path) -> tuple[dict[str, Path], Path]:
    """Each program of tests/sim/cuda and their kernels."""
    kernels = cuda_harness.compile_kernels(out / "kernels.ptx", "-ptx", "-arch=sm_80")
    built = os.environ.get("GPU_CASES")
    if not built:
        for name in CASE_PROGRAMS:
            cuda_harness.compile_program(name, out)
    return {name: Path(built or out) / name for name in CASE_PROGRAMS}, kernels


def list_cases(program: str) -> list[str]:
    """Of one program of tests/sim/cuda, out of its source."""
    from tests.sim.test_cuda_driver import cases

    return [case for case in cases(program) if case not in LEFT_OUT_CASES]


def measure(what: Sequence[str], only: Sequence[str] = ()) -> list[Run]:
    """Directly first, all at once; then each transport."""
    with tempfile.TemporaryDirectory(prefix="vgp") as name:
        jobs: list[tuple[str, list[str | Path], dict[str, str]]] = []
        if "guest" in what:
            jobs += [(name, [path], {}) for name, path in build_guest(only).items()]
        if "cases" in what:
            programs, kernels = build_cases(Path(name))
            jobs += [
                (f"{program}:{case}", [path, case], {"KERNELS": str(kernels)})
                for program, path in programs.items()
                for case in list_cases(program)
            ]
        found = run_way(jobs, "direct", direct())
        if "guest" in what:
            found += run_way(jobs, "our runtime", with_our_runtime())
        for transport in TRANSPORTS if "cases" not in what else TRANSPORTS[:1]:
            with channel(transport) as rig:
                found += run_way(jobs, transport, rig.guest())
                found += describe_end(rig, transport)
    return found


def run_way(
    jobs: Sequence[tuple[str, Sequence[str | Path], dict[str, str]]], way: str, env: dict[str, str]
) -> list[Run]:
    """All of them, AT_ONCE; what did not pass once more by itself: some compare how much memory is free."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(lambda job: run_one(job[0], way, job[1], env | job[2]), jobs))
    for at, job in enumerate(jobs):
        if not found[at].passed and found[at].status != -1:
            found[at] = run_one(job[0], way, job[1], env | job[2])
        if not found[at].passed:
            print(
                f"FAIL {way:11} {job[0]}: {found[at].status}: {found[at].said[-400:]!r}", flush=True
            )
    return found


def describe_end(rig: GpuRig, way: str) -> list[Run]:
    """Whether the channel is as it was: the same worker, no violation, no session lost."""
    status = rig.status()
    fine = status.violations.count == 0
    said = f"violations {status.violations}, sessions {status.sessions}, worker {status.worker}"
    log = rig.keeper.worker_log.read_text(errors="replace")[-1500:]
    return [Run("the channel at the end", way, fine, int(not fine), 0.0, said + log)]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("what", nargs="*", default=["guest", "cases"])
    options = parser.parse_args()
    found = measure(options.what, options.only)
    for way in dict.fromkeys(run.way for run in found):
        of_way = [run for run in found if run.way == way]
        print(f"{way}: {sum(run.passed for run in of_way)} of {len(of_way)} pass")
    if options.json:
        options.json.write_text(json.dumps([asdict(run) for run in found], indent=1) + "\n")
    return int(not all(run.passed for run in found))


if __name__ == "__main__":
    sys.exit(main())
