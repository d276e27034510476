"""Made-up guest processes that know what they have: the worker's calls in any order, from several threads.

Frames are made from the description of the calls, so a new operation is fuzzed as soon as it is described. What the
runs reach is measured: a path of the worker that is no longer reached fails the gate.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.support.coverage import read_coverage, read_functions
from tests.unit.calls_rig import RULES, SPARSE_RULES, WORKER_RULES
from tests.unit.test_codegen import _include
from tests.unit.transport_rig import LIB
from vgpumgr.virtio.codegen.__main__ import load
from vgpumgr.virtio.codegen.blas import SOLVER, SPARSE, parse_blas
from vgpumgr.virtio.codegen.coverage import MATHEMATICS as MATHEMATICS_SPEC
from vgpumgr.virtio.codegen.coverage import NETWORKS, SOLVERS, SPARSES
from vgpumgr.virtio.codegen.dnn import parse_functions
from vgpumgr.virtio.codegen.model import Field, Operation

pytestmark = pytest.mark.native

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "vgpumgr" / "virtio" / "native"
NULL_LIBRARIES = LIB / "bin" / "null"
GATE = 0.85
"""Lines of each gated file that a short run executes, at least."""
#: what mathematics.c is for
MATHEMATICS = (
    "blas.c", "dnn.c", "dnn_classic.c", "dnn_find.c", "dnn_tree.c", "fft.c", "libraries.c", "lt.c",
    "ops_math.c", "rand.c", "solver.c", "sparse.c",
)  # fmt: skip
#: they are libraries of their own
NULL_SOURCES = ("mathematics", "networks", "randoms", "solvers", "sparses", "transforms")
#: the filter's tables are executed instruction by instruction in tests/unit/test_filter_table.py; main() is not linked;
#: shares and the window take it that a process has one session, as a worker's have: the channel's tests run them
#: (test_calls_with_share.py, tests/sanitize); what processes share is a server's, and there is none (test_ipc.py,
#: test_shareable.py)
UNGATED = (
    "filter.c", "ipc.c", "main.c", "ops_ipc.c", "ops_shareable.c", "share.c", "window.c", *MATHEMATICS,
)  # fmt: skip
SANITIZERS = {
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "thread": ("-fsanitize=thread", "-Wno-tsan"),
    # lines are told apart by the full debug information
    "coverage": ("--coverage", "-fprofile-update=atomic", "-g2"),
}
each_sanitizer = pytest.mark.parametrize(
    "sanitizer",
    [
        pytest.param(name, marks=pytest.mark.xdist_group(f"fuzz-{name}"))
        for name in ("address", "thread")
    ],
)
ROUNDS = {"address": 400, "thread": 100, "coverage": 300}


def describe_field(field: Field) -> str:
    handle = f"WK_{field.handle.upper()}" if field.handle else "0"
    return f'{{ "{field.name}", FIELD_{field.kind.value.upper()}, {handle}, {field.cap} }}'


def describe_operation(o: Operation) -> str:
    fields = ", ".join(describe_field(f) for f in o.request)
    context = str(o.context).lower()
    return f'\t{{ "{o.name}", VG_OP_{o.name}, {context}, {len(o.request)}, {{ {fields} }} }},'


def write_operations(directory: Path) -> None:
    """``operations.h``: what the frames of every call are made of."""
    rows = "\n".join(describe_operation(o) for o in load().operations)
    text = f'#include "guest.h"\n\nstatic const struct operation operations[] = {{\n{rows}\n}};\n'
    (directory / "operations.h").write_text(text)


def compile_with(directory: Path, flags: Sequence[str], *words: str) -> None:
    """``cc`` there, with everything that the worker's sources include."""
    folders = ("", "codec", "generated", "worker", "nulldriver")
    command = ["cc", "-g1", "-O1", *flags, "-fno-strict-aliasing", "-pthread", "-rdynamic"]
    command += ["-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers"]
    command += ["-D_GNU_SOURCE", "-D__CUDA_API_VERSION_INTERNAL", '-DVGPUMGR_VERSION="fuzz"']
    command += [*(f"-I{NATIVE / name}" for name in folders), f"-I{RULES}", f"-I{SPARSE_RULES}"]
    command += [f"-I{HERE}", f"-I{directory}", f"-isystem{_include()}"]
    done = subprocess.run(
        [*command, *words], cwd=directory, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]


def compile_worker(directory: Path, flags: Sequence[str]) -> list[str]:
    """Objects of the worker's calls and the null driver."""
    worker = [p for p in sorted((NATIVE / "worker").glob("*.c")) if p.name != "main.c"]
    names = ("vg_codec.c", "vg_dispatch.c")
    names += tuple(
        f"vg_{n}_{kind}.c"
        for n in ("blas", "dnn", "solver", "sparse")
        for kind in ("table", "calls")
    )
    generated = [NATIVE / "generated" / n for n in names]
    driver = [p for p in sorted((NATIVE / "nulldriver").glob("*.c")) if p.stem not in NULL_SOURCES]
    asked = ("exports_ask", "exports_pass", "limits", "share")
    driver += [NATIVE / "transport" / f"worker_{name}.c" for name in asked]
    driver += WORKER_RULES
    sources = [*worker, *sorted((NATIVE / "codec").glob("*.c")), *generated, *driver]
    compile_with(directory, flags, "-c", *map(str, sources))
    return [str(directory / f"{path.stem}.o") for path in sources]


@cache
def compile_worker_once(sanitizer: str) -> list[str]:
    """For all programs under it, which one process of the tests therefore builds: a minute of the compiler's."""
    directory = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return compile_worker(directory, SANITIZERS[sanitizer])


def build(directory: Path, sources: Sequence[str], sanitizer: str) -> Path:
    """The worker's calls and the null driver in one program, both ends of the channel included."""
    write_operations(directory)
    program, flags = directory / Path(sources[0]).stem, SANITIZERS[sanitizer]
    # what was reached is written where the objects were made
    measured = sanitizer == "coverage"
    objects = compile_worker(directory, flags) if measured else compile_worker_once(sanitizer)
    words = [*(str(HERE / name) for name in sources), *objects]
    compile_with(directory, flags, "-o", str(program), *words, "-ldl")
    return program


def run(program: Path, *arguments: str) -> str:
    """Runs it to its end; it must succeed and print no error."""
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-6000:]
    return done.stdout


def fuzz(directory: Path, sanitizer: str) -> str:
    program = build(directory, ("stateful.c", "guest.c", "lane.c"), sanitizer)
    rounds = os.environ.get("VGPUMGR_FUZZ_ROUNDS", str(ROUNDS[sanitizer]))
    return run(program, rounds, os.environ.get("VGPUMGR_FUZZ_SEED", "1"))


@each_sanitizer
def test_guests_of_several_threads_harm_nobody(sanitizer: str, tmp_path: Path) -> None:
    accepted, refused = (int(w) for w in fuzz(tmp_path, sanitizer).split() if w.isdigit())
    # a violation ends a session: too many of them, and little is tried
    assert accepted > 200 * refused > 0


def test_a_short_run_reaches_the_operations(tmp_path: Path) -> None:
    fuzz(tmp_path, "coverage")
    shares = read_coverage(tmp_path)
    gated = {p for p in (NATIVE / "worker").glob("*.c") if p.name not in UNGATED}
    gated |= {NATIVE / "codec" / "codec.c", NATIVE / "generated" / "vg_dispatch.c"}
    assert gated <= {*shares}
    short = {path.name: f"{shares[path]:.0%}" for path in sorted(gated) if shares[path] < GATE}
    assert not short, f"below {GATE:.0%} of its lines"
    functions = read_functions(tmp_path, NATIVE / "worker" / "ops_nodes.c")
    functions |= read_functions(tmp_path, NATIVE / "worker" / "graph_reads.c")
    names = ("graph_condition", "graph_conditional", "graph_body")
    assert {n: s for n in names if (s := functions[f"wk_do_{n}"]) < GATE} == {}


def fuzz_mathematics(directory: Path, sanitizer: str) -> list[int]:
    """Functions called of cuBLAS, of cuBLASLt, of cuDNN, ways to call cuFFT, of cuSOLVER, of cuSPARSE, of cuRAND; calls
    accepted and refused.
    """
    mains = (
        "mathematics.c", "networks.c", "randoms.c", "solvers.c", "sparses.c", "transforms.c", "lane.c",
    )  # fmt: skip
    program = build(directory, mains, sanitizer)
    count = os.environ.get("VGPUMGR_FUZZ_ROUNDS", "50000")
    seed = os.environ.get("VGPUMGR_FUZZ_SEED", "1")
    return [int(w) for w in run(program, str(NULL_LIBRARIES), count, seed).split() if w.isdigit()]


@each_sanitizer
def test_calls_of_mathematics_libraries_harm_nobody(sanitizer: str, tmp_path: Path) -> None:
    functions, light, networks, transforms, solvers, sparses, randoms, accepted, refused = (
        fuzz_mathematics(tmp_path, sanitizer)
    )
    assert functions == len(parse_blas(MATHEMATICS_SPEC))
    assert light == 9
    assert networks == len(parse_functions(NETWORKS)) + 7
    assert transforms == 3 * 6 + 7
    assert solvers == len(parse_blas(SOLVERS, SOLVER))
    assert sparses == len(parse_blas(SPARSES, SPARSE))
    assert randoms == 11 + 5
    # the failure of a posted call is the error of the next
    assert accepted > 1000 < refused


def name_family(function: str) -> str:
    """Functions of cuSOLVER that differ in the type, and those that read an object, are reached together."""
    name = re.sub("^call_cusolverDn[XSDCZ](sy|he|or|un)?", "", function)
    return "Get" if "Get" in name else name


def test_they_reach_the_code_for_mathematics_libraries(tmp_path: Path) -> None:
    fuzz_mathematics(tmp_path, "coverage")
    shares = read_coverage(tmp_path)
    short = {
        path.name: f"{share:.0%}"
        for path, share in shares.items()
        if path.name in (*MATHEMATICS, "blas_functions.c", "dnn_wire.c") and share < GATE
    }
    assert not short, f"below {GATE:.0%} of its lines"
    assert {*MATHEMATICS} <= {path.name for path in shares}
    functions = read_functions(tmp_path, NATIVE / "generated" / "vg_solver_calls.c")
    assert len(functions) == len(parse_blas(SOLVERS, SOLVER))
    reached = {name_family(name) for name, share in functions.items() if share}
    assert reached == {*map(name_family, functions)}


@pytest.mark.xdist_group("fuzz-address")
def test_a_million_forged_handles_are_refused(tmp_path: Path) -> None:
    program = build(tmp_path, ("forged.c", "lane.c"), "address")
    assert run(program, "1000000", "1") == "1000000 forged, 0 accepted\n"


@each_sanitizer
def test_a_module_stays_while_its_function_is_launched(
    sanitizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = build(tmp_path, ("unload.c", "lane.c"), sanitizer)
    monkeypatch.setenv("VGPUMGR_NULL_SLOW", "cuLaunchKernel:2000")
    assert run(program) == ""


GRAPHS = {
    "graphs": (
        "hosts", "edges", "elsewhere", "given", "invalid", "over", "child", "many", "context", "later",
    ),
    "conditionals": ("deciding", "inner", "body", "stale", "lost", "gone", "late", "deep"),
}  # fmt: skip


@each_sanitizer
def test_graphs_take_no_more_than_they_are_charged_for(sanitizer: str, tmp_path: Path) -> None:
    for name, cases in GRAPHS.items():
        program = build(tmp_path, (f"{name}.c", "lane.c"), sanitizer)
        for case in cases:
            run(program, case)
