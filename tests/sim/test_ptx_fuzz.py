"""Random edits of real modules and fat binaries, under AddressSanitizer and UBSan."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.sim.ptx_runner import ROOT, SOURCES, compile_ptx, nvcc

pytestmark = [pytest.mark.native, pytest.mark.cuda]

NATIVE = ROOT / "vgpumgr" / "sim" / "native"
RULES = ROOT / "vgpumgr" / "native" / "cuda_rules"
SEED = int(os.environ.get("VGPUMGR_FUZZ_SEED", "1"))
COUNT = int(os.environ.get("VGPUMGR_FUZZ_COUNT", "150"))


@pytest.fixture(scope="session")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver with the interpreter and the reader, all compiled with sanitizers."""
    out = tmp_path_factory.mktemp("fuzz") / "fuzz"
    parts = [p for p in sorted((NATIVE / "ptx").glob("*.c")) if p.name != "runner.c"]
    command = ["gcc", "-g", "-O1", "-std=gnu11", "-D_GNU_SOURCE", "-fno-strict-aliasing"]
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


def run(fuzzer: Path, *files: Path) -> tuple[int, int]:
    done = subprocess.run(
        [fuzzer, str(SEED), str(COUNT), *files],
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
