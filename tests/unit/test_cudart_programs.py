# SPDX-License-Identifier: Apache-2.0
"""Compiled CUDA programs on our runtimes and the simulated driver."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.guest.build_programs import NAMES, SOURCES, build_programs, cache, compile_program
from tests.unit.calls_rig import SHIM
from tests.unit.cudart.libraries import library
from vgpumgr.sim.machine import create_machine, destroy_machine, machine_env

pytestmark = [pytest.mark.native, pytest.mark.cuda]

_OWN = Path(__file__).parent / "cudart/programs"
_TIMEOUT_S = 300
MACHINE = "a30-pair"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of programs on a simulated machine, with our runtimes and not the guest's driver."""
    directory = tmp_path_factory.mktemp("cudart")
    for major in (12, 13):
        (directory / f"libcudart.so.{major}").symlink_to(library(major))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VGPUMGR_SIM_ROOT", str(directory / "sim"))
        (directory / "sim").mkdir()
        create_machine(MACHINE)
        env = os.environ | machine_env(MACHINE)
        env["LD_LIBRARY_PATH"] = f"{directory}:{env['LD_LIBRARY_PATH']}"
        yield env
        destroy_machine(MACHINE)


@pytest.fixture(scope="module")
def programs() -> dict[str, Path]:
    return build_programs()


def _run(program: Path, env: Mapping[str, str], *arguments: str) -> tuple[int, str]:
    """Exit code and standard output; nothing may be written to standard error."""
    done = subprocess.run(
        [program, *arguments], env=env, capture_output=True, text=True, timeout=_TIMEOUT_S
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def _passes(program: Path, env: Mapping[str, str], *arguments: str) -> None:
    code, output = _run(program, env, *arguments)
    name = program.name.partition("-")[0]
    assert output.splitlines()[-1].startswith(f"PASS {name} "), output
    assert code == 0


@pytest.mark.parametrize("name", NAMES)
def test_program_passes(name: str, programs: dict[str, Path], machine: dict[str, str]) -> None:
    _passes(programs[name], machine)


@pytest.mark.parametrize("name", NAMES)
def test_program_passes_lane_by_lane(
    name: str, programs: dict[str, Path], machine: dict[str, str]
) -> None:
    """The engine that is the oracle of the other one."""
    _passes(programs[name], machine | {"VGPUMGR_SIM_ENGINE": "lanes"})


def test_clusters_on_a_device_that_has_them(
    programs: dict[str, Path], machine: dict[str, str]
) -> None:
    create_machine("hgx-h100")
    _passes(programs["clusters"], machine | {"VGPUMGR_SIM": machine_env("hgx-h100")["VGPUMGR_SIM"]})
    destroy_machine("hgx-h100")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("vectoradd", ["1"]),
        ("vectoradd", ["256"]),
        ("matmul", ["16"]),
        ("matmul", ["1"]),
        ("reduction", ["5"]),
        ("histogram", ["100"]),
        ("linked", ["7", "1"]),
        ("overlap", ["64", "9"]),
        ("device_functions", ["7"]),
        ("errors", ["invalid"]),
        ("errors", ["memory"]),
        ("errors", ["address"]),
        ("holdmem", ["1", "1", "spin"]),
        ("threads", ["16", "2"]),
        ("vectoradd12", ["129"]),
        ("peers", ["100", "pool"]),
        ("peers", ["100", "mapping"]),
    ],
)
def test_sizes(
    name: str, arguments: list[str], programs: dict[str, Path], machine: dict[str, str]
) -> None:
    _passes(programs[name], machine, *arguments)


def test_too_much_memory_is_said(programs: dict[str, Path], machine: dict[str, str]) -> None:
    code, output = _run(programs["holdmem"], machine, str(64 << 10), "1")
    assert code == 1
    assert "cudaErrorMemoryAllocation (2)" in output


def test_no_visible_device(programs: dict[str, Path], machine: dict[str, str]) -> None:
    code, output = _run(programs["vectoradd"], machine | {"CUDA_VISIBLE_DEVICES": "-1"})
    assert code == 1
    assert "cudaErrorNoDevice (100)" in output


def test_no_driver(programs: dict[str, Path], machine: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "libcudart.so.13").symlink_to(library(13))
    (tmp_path / "libcuda.so.1").write_text("not a library")
    code, output = _run(programs["vectoradd"], machine | {"LD_LIBRARY_PATH": str(tmp_path)})
    assert code == 1
    assert "cudaErrorInsufficientDriver (35)" in output


def test_processes_at_once(programs: dict[str, Path], machine: dict[str, str]) -> None:
    running = [
        subprocess.Popen([programs[name]], env=machine, stdout=subprocess.PIPE, text=True)
        for name in ("matmul", "reduction", "matmul", "histogram")
    ]
    for process in running:
        output, _ = process.communicate(timeout=_TIMEOUT_S)
        assert process.returncode == 0, output


@pytest.mark.parametrize("name", ["vectoradd", "overlap", "device_functions", "errors"])
def test_per_thread_default_stream(name: str, machine: dict[str, str]) -> None:
    program = compile_program(SOURCES / f"{name}.cu", "-default-stream", "per-thread")
    _passes(program, machine)


@pytest.mark.parametrize("name", ["managed", "reset"])
def test_runtime_program(name: str, machine: dict[str, str]) -> None:
    _passes(compile_program(_OWN / f"{name}.cu"), machine)


def test_compiled_programs_are_found_again(programs: dict[str, Path]) -> None:
    assert build_programs(["vectoradd"])["vectoradd"] == programs["vectoradd"]
    assert programs["vectoradd"].parent == cache()


LOG = """
import ctypes
from ctypes import byref, c_char_p, c_size_t, c_uint, c_void_p
rt, heard, kept = ctypes.CDLL("libcudart.so.13"), [], c_void_p()
HEAR = ctypes.CFUNCTYPE(None, c_void_p, c_uint, c_char_p, c_size_t)
hear = HEAR(lambda data, level, text, length: heard.append(text.decode()))
assert rt.cudaLogsRegisterCallback(hear, None, byref(kept)) == 0 and kept.value
at = c_uint(); assert rt.cudaLogsCurrent(byref(at), 0) == 0
assert rt.cudaGetDeviceCount(byref(c_uint())) == 100
text, size = ctypes.create_string_buffer(4096), c_size_t(4096)
assert rt.cudaLogsDumpToMemory(byref(at), text, byref(size), 0) == 0
assert heard and text.value.decode() == "".join(line + "\\n" for line in heard), (heard, text.value)
assert rt.cudaLogsUnregisterCallback(kept) == 0 and rt.cudaLogsUnregisterCallback(kept) == 1
assert rt.cudaLogsDumpToFile(None, b"log", 0) == 0
print(heard[0])
"""


def test_without_a_channel_the_log_says_why(tmp_path: Path) -> None:
    """By the runtime's names, and without a word on standard error."""
    libraries, agent = str(SHIM.parent), str(tmp_path / "none")
    env = {"LD_LIBRARY_PATH": libraries, "VGPUMGR_AGENT": agent, "VGPUMGR_QUIET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", LOG],
        env=os.environ | env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("no GPU for this process: ")
    assert agent in done.stdout
    assert done.stdout in (tmp_path / "log").read_text()
