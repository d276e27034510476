"""The guest's libnccl under sanitizers, in a program with a thread for each rank, and in one with a group of ranks."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sanitize.test_sanitized import ROOT
from tests.sim import cuda_harness
from tests.unit.several_rig import Guest, run_simulated
from tests.unit.transport_rig import LIB

pytestmark = [pytest.mark.native, pytest.mark.cuda]
NATIVE = ROOT / "vgpumgr/virtio/native"
#: what the library has of the other guest libraries of mathematics
COMMON = NATIVE / "mathematics/channel.c"


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    with run_simulated("ring", tmp_path_factory.mktemp("sim")) as found:
        yield found


def compile_both(sanitizer: str, out: Path) -> Path:
    """The library from its sources beside the usual driver, and the program."""
    for name in ("libcuda.so.1", "libcudart.so.13"):
        (out / name).symlink_to(LIB / "guest" / name)
    flags = [
        "gcc",
        "-std=gnu11",
        "-g1",
        "-O1",
        "-D_GNU_SOURCE",
        "-fno-strict-aliasing",
        f"-fsanitize={sanitizer}",
    ]
    flags += [
        f"-isystem{cuda_harness.cuda_include()}",
        f"-I{NATIVE}/mathematics",
        f"-I{NATIVE}/codec",
    ]
    library, program = out / "libnccl.so.2", out / "all_devices"
    sources = [*sorted((NATIVE / "nccl").glob("*.c")), COMMON]
    subprocess.run(
        [
            *flags,
            "-shared",
            "-fPIC",
            *sources,
            "-o",
            library,
            "-Wl,-soname,libnccl.so.2",
            "-ldl",
            "-lpthread",
            "-lm",
        ],
        check=True,
    )
    links = [f"-L{out}", "-l:libnccl.so.2", "-l:libcudart.so.13", "-lpthread"]
    subprocess.run(
        [*flags, ROOT / "tests/unit/nccl/all_devices.c", "-o", program, *links], check=True
    )
    return program


@pytest.mark.timeout(300)
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_ranks_of_one_process_find_nothing(sanitizer: str, guest: Guest, tmp_path: Path) -> None:
    program = compile_both(sanitizer, tmp_path)
    reports = tmp_path / "reports"
    reports.mkdir()
    # what a program does not free at its end is not the library's
    options = f"log_path={reports}/report:exitcode=99:halt_on_error=0:detect_leaks=0"
    names = ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS")
    env = {**dict.fromkeys(names, options), "LD_LIBRARY_PATH": str(tmp_path)}
    for words in ((), ("threads",)):
        done = guest.run(str(program), *words, **env)
        found = "".join(path.read_text(errors="replace") for path in reports.iterdir())
        assert (done.returncode, done.stdout, found[:4000]) == (0, "ok\n", ""), done.stderr
