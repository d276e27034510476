"""The checks of the simulated GPU: mistakes of kernels are found and named, and what is right is let be."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.guest.build_programs import build_programs
from tests.sim import cuda_harness as harness
from tests.sim.cuda_harness import Machine
from tests.sim.ptx_runner import (
    CHECK_MEMORY,
    CHECK_RACE,
    CHECK_SYNC,
    DEADLOCK,
    ILLEGAL_ADDRESS,
    MISALIGNED,
    SOURCES,
    Module,
    PtxError,
    compile_ptx,
)
from vgpumgr.sim.machine import create_machine

pytestmark = [pytest.mark.native, pytest.mark.cuda]

CHECKS = {"memory": CHECK_MEMORY, "race": CHECK_RACE, "sync": CHECK_SYNC}
ALL = CHECK_MEMORY | CHECK_RACE | CHECK_SYNC
#: programs of the guest's tests that are quick, and use shared memory, barriers, warps, copies or streams
PROGRAMS = (
    "reduction",
    "histogram",
    "matmul",
    "linked",
    "device_functions",
    "output",
    "graphs",
    "pools",
    "batches",
    "managed",
    "overlap",
    "textures",
    "surfaces",
    "virtual",
    "together",
    "threads",
    "tensor",
)


def place(text: str) -> str:
    """The place in the source that holds this text first."""
    lines = (SOURCES / "checks.cu").read_text().splitlines()
    return f"checks.cu:{next(n for n, line in enumerate(lines, 1) if text in line)}"


@dataclass
class Mistake:
    """A kernel that is wrong with one argument and right with others."""

    kernel: str
    threads: int
    wrong: int
    right: tuple[int, ...]
    said: tuple[str, ...]
    status: int = 0
    shared: int = 0

    @property
    def check(self) -> str:
        """The word of VGPUMGR_SIM_CHECK that finds it: the kernel's name begins with it."""
        return self.kernel.partition("_")[0]


# the programs have the place of each instruction in the source; a place here is that of the text
MISTAKES = (
    Mistake(
        "race_block", 64, 0, (1,),
        ("race: two threads access the same byte of shared memory",
         "thread (1,0,0) reads 4 bytes, at " + place("cache[(threadIdx.x + 63)"),
         "thread (0,0,0) wrote 4 bytes, at " + place("cache[threadIdx.x] = threadIdx.x;"),
         "address 0x0 of shared memory, byte 0 of _ZZ10race_blockE5cache (256 bytes)",
         "in kernel race_block, block (0,0,0); 63 times in this launch"),
    ),
    Mistake(
        "race_warp", 32, 0, (1, 2, 3),
        ("thread (0,0,0) reads 4 bytes, at " + place("row[threadIdx.x ^ 1]"),
         "thread (1,0,0) wrote 4 bytes, at " + place("row[threadIdx.x] = threadIdx.x;"),
         "address 0x4 of shared memory", "; 32 times"),
    ),
    Mistake(
        "race_rounds", 64, 0, (1,),
        ("thread (32,0,0) writes 4 bytes, at " + place("cache[threadIdx.x] = threadIdx.x + round"),
         "thread (31,0,0) read 4 bytes, at " + place("+= cache[63 - threadIdx.x]"),
         "address 0x80 of shared memory"),
    ),
    Mistake(
        "race_atomic", 64, 0, (1,),
        ("thread (0,0,0) reads 4 bytes, at " + place("(volatile int *)&sum"),
         "thread (31,0,0) changed 4 bytes, at ", place("atomicAdd(&sum, 1)") + ", PTX line"),
    ),
    Mistake(
        "race_named", 64, 0, (1,),
        ("thread (32,0,0) reads 4 bytes", "thread (31,0,0) wrote 4 bytes", "byte 124 of "),
    ),
    Mistake(
        "race_mbarrier", 64, 0, (1,),
        ("thread (32,0,0) reads 4 bytes", "thread (31,0,0) wrote 4 bytes", "byte 124 of "),
    ),
    Mistake(
        "memory_unwritten", 64, 0, (1,),
        ("memory: shared memory is read that was never written",
         "thread (58,0,0) reads 4 bytes, at " + place("] = cache[63 - threadIdx.x];"),
         "address 0x14 of shared memory, byte 20 of _ZZ16memory_unwrittenE5cache (256 bytes)"),
    ),
    Mistake(
        "memory_shared", 32, 40, (3,),
        ("memory: access out of bounds in shared memory", "thread (31,0,0) reads 4 bytes",
         "address 0xa0 of shared memory, 32 bytes behind the block's 128"),
        ILLEGAL_ADDRESS, 128,
    ),
    Mistake(
        "memory_global", 32, 70, (31,),
        ("memory: access out of bounds", "thread (31,0,0) writes 4 bytes, at " + place("31 ? threadIdx.x : n] = 1"),
         "address 0x7f0000000118", "in kernel memory_global"),
        ILLEGAL_ADDRESS,
    ),
    Mistake(
        "memory_misaligned", 8, 2, (4,),
        ("memory: misaligned access", "thread (0,0,0) accesses 4 bytes",
         "address 0x7f0000000002, which is no multiple of 4"),
        MISALIGNED,
    ),
    Mistake(
        "memory_local", 32, 1000000, (3,),
        ("memory: access out of bounds in local memory", "thread (0,0,0) reads 4 bytes",
         "address 0x3d0900 of local memory; the thread has 32 bytes"),
        ILLEGAL_ADDRESS,
    ),
    Mistake(
        "sync_half", 32, 16, (32, 0),
        ("sync: lanes of a warp come to a barrier that others do not come to",
         "thread (0,0,0) waits at it, at checks.cu:",
         "thread (16,0,0) went on to its end without it"),
    ),
    Mistake(
        "sync_places", 32, 16, (32, 0),
        ("sync: lanes of a warp come to a barrier that others come to elsewhere",
         "thread (0,0,0) waits at it", "thread (16,0,0) stands elsewhere"),
    ),
    Mistake(
        "sync_mask", 32, 0xF0FFFF, (0xFFFF, 0xFFFFFFFF),
        ("sync: the member mask 0x00f0ffff names lanes that have ended (0x00f00000)",
         "thread (0,0,0) synchronises its warp", place("__syncwarp(mask)"), "thread (20,0,0) has ended"),
    ),
    Mistake(
        "sync_count", 64, 32, (64,),
        ("sync: threads come to one barrier with different counts", "thread (32,0,0) expects 32 threads",
         "the first who came expected 64"),
    ),
    Mistake(
        "sync_multiple", 33, 33, (),
        ("sync: the count of a barrier is no multiple of the warp's 32 lanes", "thread (0,0,0) expects 33 threads"),
    ),
    Mistake(
        "sync_stuck", 32, 64, (32,),
        ("sync: no thread of the block can go on", "thread (0,0,0) waits at a barrier"),
        DEADLOCK,
    ),
)  # fmt: skip


def run(mistake: Mistake, argument: int, checks: int) -> int:
    """Launch with one argument; the status."""
    module = Module(compile_ptx("checks.cu", "compute_80", "-lineinfo"))
    module.check(checks)
    out = module.upload("i", [0] * 64)
    try:
        module.run(mistake.kernel, 1, mistake.threads, "QI", out, argument, shared=mistake.shared)
    except PtxError as error:
        return error.status
    return 0


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m.kernel)
def test_a_mistake_is_found_and_named(mistake: Mistake, capfd: pytest.CaptureFixture[str]) -> None:
    others = ALL & ~CHECKS[mistake.check]
    assert run(mistake, mistake.wrong, 0) == mistake.status
    assert run(mistake, mistake.wrong, others) == mistake.status
    assert f"========= {mistake.check}: " not in capfd.readouterr().err
    for argument in mistake.right:
        assert run(mistake, argument, ALL) == 0
    assert capfd.readouterr().err == ""
    assert run(mistake, mistake.wrong, ALL) == mistake.status
    told = capfd.readouterr().err
    for words in mistake.said:
        assert words in told, told
    # once for each kernel, instruction and kind
    assert run(mistake, mistake.wrong, ALL) == mistake.status
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("kernel", "argument"), [("same_value", 0), ("sync_ended", 40)])
def test_what_only_looks_wrong_is_let_be(
    kernel: str, argument: int, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(Mistake(kernel, 64, argument, (), ()), argument, ALL) == 0
    assert capfd.readouterr().err == ""


# ---- programs


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("VGPUMGR_SIM_ROOT", str(tmp_path / "sim"))
    return Machine(create_machine("dgx-a100"))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return harness.compile_program("checked", tmp_path_factory.mktemp("programs"))


@dataclass
class Ended:
    """How a checked program has ended."""

    status: int
    said: str

    @property
    def findings(self) -> int:
        """As the summary counts them."""
        (count,) = re.findall(
            r"^========= vgpumgr-sim-check: (\d+) findings?$", self.said, re.MULTILINE
        )
        return int(count)


def run_checked(machine: Machine, program: Path, *words: str, **env: str) -> Ended:
    kernels = machine.directory / "checks.ptx"
    kernels.write_text(compile_ptx("checks.cu", "compute_80", "-lineinfo"))
    done = subprocess.run(
        [program, *words], text=True, capture_output=True, check=False, timeout=60,
        env=machine.environment(**{"KERNELS": str(kernels), "VGPUMGR_SIM_CHECK": "all"} | env),
    )  # fmt: skip
    return Ended(done.returncode, done.stderr)


CASES = {
    "race": ("thread (0,0,0) reads 4 bytes", "; 32 times in this launch"),
    "beyond": (
        "thread (31,0,0) writes 4 bytes",
        "8 bytes behind an allocation of 124 bytes at 0x",
    ),
    "misaligned": ("thread (0,0,0) accesses 4 bytes", "2, which is no multiple of 4"),
    "freed": ("byte 0 of an allocation of 256 bytes at 0x", "that was freed"),
    "unwritten": (
        "memory: global memory is read that was never written",
        "thread (63,0,0) reads 4 bytes, at " + place("== 12345"),
        "byte 252 of an allocation of 256 bytes",
        "; 1 time in this launch",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_programs_mistake_is_found(machine: Machine, program: Path, case: str) -> None:
    ended = run_checked(machine, program, case, VGPUMGR_SIM_CHECK_EXIT="9")
    assert (ended.status, ended.findings) == (9, 1), ended.said
    for words in CASES[case]:
        assert words in ended.said, ended.said
    # without a wish the program's own exit code stays
    assert run_checked(machine, program, case).status == 0
    unchecked = run_checked(machine, program, case, VGPUMGR_SIM_CHECK="")
    assert "=========" not in unchecked.said


def test_a_right_program_ends_as_it_would(machine: Machine, program: Path) -> None:
    ended = run_checked(machine, program, "right", VGPUMGR_SIM_CHECK_EXIT="9")
    assert (ended.status, ended.said) == (0, "========= vgpumgr-sim-check: 0 findings\n")


def test_memory_that_is_left_is_counted(machine: Machine, program: Path) -> None:
    ended = run_checked(machine, program, "left", VGPUMGR_SIM_CHECK_EXIT="9")
    assert (ended.status, ended.findings) == (0, 0)
    assert "memory: 2 allocations, 128 bytes, not freed when the context ended" in ended.said, (
        ended.said
    )


@pytest.mark.parametrize(
    ("variable", "value", "word"),
    [
        ("VGPUMGR_SIM_CHECK", "race,memry", "'memry'; it takes memory, race and sync"),
        ("VGPUMGR_SIM_CHECK_EXIT", "many", "'many'; it takes a number up to 255"),
        ("VGPUMGR_SIM_APPROX", "best", "'best'; it takes worst, or is not set"),
    ],
)
def test_a_wrong_word_is_refused_once(
    machine: Machine, program: Path, variable: str, value: str, word: str
) -> None:
    ended = run_checked(machine, program, "refused", **{variable: value})
    assert ended.status == 0
    assert ended.said.startswith(f"simulated GPU: {variable} has {word}")
    assert ended.said.count("\n") == 1


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_guests_programs_have_no_findings(machine: Machine, name: str, tmp_path: Path) -> None:
    (tmp_path / "runtime").mkdir()
    for major in (12, 13):
        library = f"libcudart.so.{major}"
        (tmp_path / "runtime" / library).symlink_to(harness.ROOT / "vgpumgr/_lib/guest" / library)
    path = f"{harness.LIB}:{tmp_path}/runtime"
    (built,) = build_programs([name]).values()
    ended = run_checked(machine, built, LD_LIBRARY_PATH=path, VGPUMGR_SIM_CHECK_EXIT="9")
    assert (ended.status, ended.findings) == (0, 0), ended.said
