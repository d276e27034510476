"""The guest's libcuda under sanitizers, in programs that are sanitized too: of several threads, devices and streams."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sanitize.test_sanitized import build
from tests.sim import cuda_harness
from tests.unit.several_rig import Guest, run_simulated

pytestmark = [pytest.mark.native, pytest.mark.cuda]

PROGRAMS = ("devices", "batches", "attributes", "graphs", "functions")
#: not over the channel: see tests/unit/test_calls_programs.py
REFUSED = {"dependencies", "read_back"}
#: managed memory has a device's addresses, which are the sanitizers' own
MANAGED = {"advice", "advised_pages", "wrong_advice"}


def list_cases(program: str) -> list[str]:
    text = (cuda_harness.PROGRAMS / f"{program}.c").read_text()
    return [
        case for case in re.findall(r'\{ "(\w+)", \w+ \}', text) if case not in REFUSED | MANAGED
    ]


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    with run_simulated("ring", tmp_path_factory.mktemp("sim")) as found:
        yield found


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("kernels") / "kernels.ptx"
    return cuda_harness.compile_kernels(out, "-ptx", "-arch=sm_80")


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_programs_find_nothing(sanitizer: str, guest: Guest, kernels: Path, tmp_path: Path) -> None:
    library = build(sanitizer) / "guest-sanitized"
    reports = tmp_path / "reports"
    reports.mkdir()
    # what a program does not free at its end is not the library's
    options = f"log_path={reports}/report:exitcode=99:halt_on_error=0:detect_leaks=0"
    names = ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS")
    env = {
        **dict.fromkeys(names, options),
        "LD_LIBRARY_PATH": str(library),
        "KERNELS": str(kernels),
    }
    for program in PROGRAMS:
        built = compile_sanitized(program, sanitizer, library, tmp_path)
        for case in list_cases(program):
            done = guest.run(str(built), case, **env)
            found = "".join(path.read_text(errors="replace") for path in reports.iterdir())
            assert (done.returncode, done.stderr, found) == (0, "", ""), (
                program,
                case,
                found[:4000],
            )


def compile_sanitized(name: str, sanitizer: str, library: Path, out: Path) -> Path:
    program = out / name
    include = f"-isystem{cuda_harness.cuda_include()}"
    source = cuda_harness.PROGRAMS / f"{name}.c"
    words = ["gcc", "-std=gnu11", "-g1", f"-fsanitize={sanitizer}", include, source, "-o", program]
    subprocess.run([*words, f"-L{library}", "-l:libcuda.so.1", "-lpthread"], check=True)
    return program
