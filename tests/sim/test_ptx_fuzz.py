"""Random edits of real modules and fat binaries, under AddressSanitizer and UBSan."""

from __future__ import annotations

import os
import random
import re
import subprocess
from pathlib import Path

import pytest

from tests.sim.ptx_runner import ROOT, SOURCES, Module, compile_ptx, nvcc

# in one process: the fuzzer takes most of a minute to compile
pytestmark = [pytest.mark.native, pytest.mark.cuda, pytest.mark.xdist_group("ptx-fuzz")]

NATIVE = ROOT / "vgpumgr" / "sim" / "native"
RULES = ROOT / "vgpumgr" / "native" / "cuda_rules"
SEED = int(os.environ.get("VGPUMGR_FUZZ_SEED", "1"))
COUNT = int(os.environ.get("VGPUMGR_FUZZ_COUNT", "150"))


@pytest.fixture(scope="session")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver with the interpreter and the reader, all compiled with sanitizers."""
    out = tmp_path_factory.mktemp("fuzz") / "fuzz"
    parts = [p for p in sorted((NATIVE / "ptx").glob("*.c")) if p.name != "runner.c"]
    command = ["gcc", "-g1", "-O1", "-std=gnu11", "-D_GNU_SOURCE", "-fno-strict-aliasing"]
    command += ["-frounding-math", "-ffp-contract=off", "-fno-math-errno"]
    command += [
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
        f"-I{NATIVE}",
        f"-I{RULES}",
    ]
    command += [*map(str, parts), *map(str, sorted((NATIVE / "fatbin").glob("*.c")))]
    command += [str(RULES / "image.c")]
    command += [str(SOURCES / "fuzz.c"), "-o", str(out), "-llz4", "-lzstd", "-lm", "-lpthread"]
    subprocess.run(command, check=True, timeout=600)
    return out


def run(fuzzer: Path, *files: Path, times: int = 1) -> tuple[int, int]:
    done = subprocess.run(
        [fuzzer, str(SEED), str(COUNT * times), *files],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    loaded, ran = re.findall(r"\d+", done.stdout)
    return int(loaded), int(ran)


def test_edited_modules(fuzzer: Path, tmp_path: Path) -> None:
    files = []
    for source in ("kernels.cu", "faults.cu", "halves.cu"):
        files.append(tmp_path / f"{source}.ptx")
        files[-1].write_text(compile_ptx(source))
    loaded, ran = run(fuzzer, *files)
    assert loaded > 0, "no edited module was still valid: the fuzzer tests the lexer only"
    assert ran > 0, "no kernel of an edited module ran"


def test_edited_parts_of_a_linked_module(fuzzer: Path) -> None:
    """Declarations and definitions that do not agree; it is short, so that many of them come to something."""
    loaded, ran = run(fuzzer, SOURCES / "linked.ptx", times=100)
    assert loaded > COUNT
    assert ran > COUNT


def test_edited_forms_of_matrices_barriers_and_numbers(fuzzer: Path) -> None:
    """Each decoder of the warp-wide and asynchronous instructions meets edited operands and modifiers."""
    forms = SOURCES / "forms.ptx"
    module = Module(forms.read_text())
    for name in ("matrices", "barriers", "numbers"):
        module.run(name, 2, 40, "QQ", module.alloc(4096), module.alloc(4096))
    loaded, ran = run(fuzzer, forms, times=25)
    assert loaded > COUNT
    assert ran > COUNT


def make_disagreeing_parts(chance: random.Random) -> str:
    """A function that one part declares and calls in one shape, and another defines in another shape."""

    def shape() -> list[int]:
        return [chance.choice((4, 8, 8, 24, 400)) for _ in range(chance.randrange(4))]

    def variable(name: str, size: int) -> str:
        return f".param .b{8 * size} {name}" if size <= 8 else f".param .align 8 .b8 {name}[{size}]"

    def header(visible: str, results: list[int], values: list[int]) -> str:
        returned = f"({variable('r0', results[0])}) " if results else ""
        listed = ", ".join(variable(f"x{i}", size) for i, size in enumerate(values))
        return f"{visible} .func {returned}f({listed})"

    head = ".version 7.0\n.target sm_70\n.address_size 64\n"
    results, values = shape()[:1], shape()
    called = "".join(f"{variable(f'p{i}', size)}; " for i, size in enumerate(values))
    called += "".join(f"{variable('q', size)}; " for size in results)
    words = ", ".join(f"p{i}" for i in range(len(values)))
    call = f"call {'(q), ' if results else ''}f, ({words});"
    caller = f"{head}{header('.extern', results, values)};\n.visible .entry k() {{ {called}{call} ret; }}\n"
    results, values = shape()[:1], shape()
    used = "".join(f"ld.param.b32 %a, [x{i}+{size - 4}]; " for i, size in enumerate(values))
    used += "".join(f"st.param.b32 [r0+{size - 4}], %a; " for size in results)
    body = f"{{ .reg .b32 %a; {used}ret; }}\n"
    callee = f"{head}{header('.visible', results, values)} {body}"
    return "".join(chance.sample((caller, callee), 2))


def test_parts_that_do_not_agree(fuzzer: Path, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    files = [tmp_path / str(i) for i in range(5 * COUNT)]
    for file in files:
        file.write_text(make_disagreeing_parts(chance))
    done = subprocess.run(
        [fuzzer, str(SEED), "0", *files], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    loaded, ran = re.findall(r"\d+", done.stdout)
    assert int(loaded) == len(files)
    assert int(ran) > COUNT


def test_edited_fat_binaries(fuzzer: Path, tmp_path: Path) -> None:
    files = []
    for mode in ("none", "speed", "balance"):
        files.append(tmp_path / f"{mode}.fatbin")
        subprocess.run(
            [
                nvcc(),
                "--fatbin",
                "-arch=compute_80",
                f"--compress-mode={mode}",
                "-o",
                files[-1],
                SOURCES / "halves.cu",
            ],
            check=True,
            capture_output=True,
            timeout=300,
        )
    run(fuzzer, *files)
