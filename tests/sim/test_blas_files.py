"""The guest's and the host's libraries of cuBLAS and cuDNN as files: what they export, and which a session loads."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.sim.test_run import PYTHON, RUN
from tests.support.run_host import Host, read_line
from tests.unit.calls_rig import PROGRAM_S
from tests.unit.transport_rig import LIB
from vgpumgr.virtio.codegen.coverage import math_implemented, math_names

pytestmark = [pytest.mark.native, pytest.mark.cuda]


@pytest.mark.parametrize(
    ("library", "major"),
    [("cublas", 12), ("cublas", 13), ("cublasLt", 12), ("cublasLt", 13), ("cudnn", 9)],
)
def test_every_documented_name_is_there_under_the_genuine_version(library: str, major: int) -> None:
    soname = f"lib{library}.so.{major}"
    table = subprocess.run(
        ["nm", "-D", "--defined-only", str(LIB / "guest" / soname)],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line.split() for line in table.stdout.splitlines()]
    names = {name: kind for _, kind, name in rows if kind in "TW"}
    assert set(names) == {f"{n}@@{soname}" for n in math_names(library)}
    strong = {n.partition("@")[0] for n, kind in names.items() if kind == "T"}
    assert strong == math_implemented()[library]
    dynamic = subprocess.run(
        ["readelf", "-d", str(LIB / "guest" / soname)], capture_output=True, text=True, check=True
    )
    assert f"Library soname: [{soname}]" in dynamic.stdout


#: a product of 2 by 2 matrices, in two steps
CONFINED = """
import ctypes, sys
from ctypes import byref, c_float, c_size_t, c_uint64, c_void_p
cu, lib = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libcublas.so.13")
h, context, at = c_void_p(), c_void_p(), c_uint64()
assert cu.cuInit(0) == 0 and cu.cuCtxCreate_v2(byref(context), 0, 0) == 0
assert cu.cuMemAlloc_v2(byref(at), c_size_t(48)) == 0
print("ready", flush=True), sys.stdin.readline()
assert lib.cublasCreate_v2(byref(h)) == 0
host, back, one, zero = (c_float * 8)(1, 2, 3, 4, 5, 6, 7, 8), (c_float * 4)(), c_float(1), c_float(0)
assert cu.cuMemcpyHtoD_v2(at, host, c_size_t(32)) == 0
second, third = c_uint64(at.value + 16), c_uint64(at.value + 32)
assert lib.cublasSgemm_v2(h, 0, 0, 2, 2, 2, byref(one), at, 2, second, 2, byref(zero), third, 2) == 0
assert cu.cuMemcpyDtoH_v2(back, third, c_size_t(16)) == 0
print(*back, flush=True), sys.stdin.readline()
"""


def _list_mapped(worker: int) -> set[str]:
    """Files of cuBLAS in the sessions of a worker, as they see them."""
    found = set()
    for child in Path(f"/proc/{worker}/task/{worker}/children").read_text().split():
        maps = Path(f"/proc/{child}/maps").read_text().splitlines()
        found |= {line.split()[-1] for line in maps if "libcublas" in line}
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone sees the sessions")
def test_a_worker_in_its_sandbox_loads_what_is_named_at_the_first_call(
    host: Host, tmp_path: Path
) -> None:
    chosen = tmp_path / "cublas"
    chosen.mkdir()
    for place in (chosen, *chosen.parents[:-1]):
        place.chmod(0o755)
    for name in ("libcublas.so.13", "libcublasLt.so.13"):
        shutil.copy(LIB / "sim" / name, chosen)
    host.env["VGPUMGR_MATH"] = str(chosen)
    (check,) = host.read("doctor", "--check", "mathematics")["checks"]
    assert f"libcublas.so: {chosen / 'libcublas.so.13'}" in check["evidence"]
    process = host.start(*RUN, *PYTHON, CONFINED)
    assert read_line(process) == "ready"
    worker = host.read("virtio", "list")["channels"][0]["worker_pid"]
    assert not _list_mapped(worker)
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert read_line(process) == "23.0 34.0 31.0 46.0"
    assert _list_mapped(worker) == {str(chosen / "libcublas.so.13")}
    out, errors = process.communicate("\n", timeout=PROGRAM_S)
    assert (out, errors, process.returncode) == ("", "", 0)
