"""The worker's decoders under address and undefined-behaviour sanitizers, on a driver that fails on request."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.unit.calls_rig import RULES, SPARSE_RULES, WORKER_RULES
from tests.unit.test_codegen import _include
from tests.unit.transport_rig import LIB
from vgpumgr.virtio.codegen.__main__ import load

pytestmark = pytest.mark.native

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "vgpumgr" / "virtio" / "native"


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fuzzer's loop around the worker."""
    return build(HERE / "calls_fuzz.c", tmp_path_factory.mktemp("fuzz"))


def build(source: Path, directory: Path) -> Path:
    """The worker's sources, without channel and main(), around a program of ours, under sanitizers."""
    program = directory / source.stem
    worker = [p for p in sorted((NATIVE / "worker").glob("*.c")) if p.name != "main.c"]
    sources = [
        *worker,
        *sorted((NATIVE / "codec").glob("*.c")),
        NATIVE / "transport/worker_exports_ask.c",
        NATIVE / "transport/worker_exports_pass.c",
        NATIVE / "transport/worker_limits.c",
        NATIVE / "transport/worker_share.c",
        NATIVE / "generated/vg_codec.c",
        NATIVE / "generated/vg_dispatch.c",
        NATIVE / "generated/vg_blas_table.c",
        NATIVE / "generated/vg_blas_calls.c",
        NATIVE / "generated/vg_dnn_table.c",
        NATIVE / "generated/vg_dnn_calls.c",
        NATIVE / "generated/vg_solver_table.c",
        NATIVE / "generated/vg_solver_calls.c",
        NATIVE / "generated/vg_sparse_table.c",
        NATIVE / "generated/vg_sparse_calls.c",
        *WORKER_RULES,
    ]
    flags = [
        "-g1",
        "-O1",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
        "-fno-strict-aliasing",
        "-pthread",
    ]
    defines = ["-D_GNU_SOURCE", "-D__CUDA_API_VERSION_INTERNAL", '-DVGPUMGR_VERSION="fuzz"']
    includes = [f"-I{NATIVE / d}" for d in ("", "codec", "generated", "worker")] + [
        f"-I{RULES}",
        f"-I{SPARSE_RULES}",
        f"-isystem{_include()}",
    ]
    command = [
        "cc",
        *flags,
        *defines,
        *includes,
        "-o",
        str(program),
        str(source),
        *map(str, sources),
    ]
    subprocess.run([*command, "-ldl"], check=True, capture_output=True)
    return program


def test_every_operation_has_a_seed() -> None:
    seeds = {p.stem for p in (HERE / "corpus" / "calls").glob("*.bin")}
    assert {o.name for o in load().operations} <= seeds


def test_nothing_that_a_guest_sends_harms_the_worker(fuzzer: Path) -> None:
    corpus = sorted((HERE / "corpus" / "calls").glob("*.bin"))
    rounds = os.environ.get("VGPUMGR_FUZZ_ROUNDS", "4000")
    seed = os.environ.get("VGPUMGR_FUZZ_SEED", "1")
    command = [
        str(fuzzer),
        str(LIB / "bin" / "null" / "libcuda.so.1"),
        rounds,
        seed,
        *map(str, corpus),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


def test_gates_that_a_guest_opens_unasked(tmp_path: Path) -> None:
    program = build(HERE / "gates.c", tmp_path)
    driver = LIB / "bin" / "null" / "libcuda.so.1"
    done = subprocess.run(
        [program, driver], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
