"""Made-up guest processes that know what they have: the worker's calls in any order, from several threads.

Frames are made from the description of the calls, so a new operation is fuzzed as soon as it is described. What the
runs reach is measured: a path of the worker that is no longer reached fails the gate.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.unit.test_codegen import _include
from vgpumgr.virtio.codegen.__main__ import load
from vgpumgr.virtio.codegen.model import Field, Operation

pytestmark = pytest.mark.native

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "vgpumgr" / "virtio" / "native"
GATE = 0.85
"""Lines of each gated file that a short run executes, at least."""
#: its tables are executed instruction by instruction in tests/unit/test_filter_table.py; main() is not linked
UNGATED = ("filter.c", "main.c")
SANITIZERS = {
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "thread": ("-fsanitize=thread", "-Wno-tsan"),
    "coverage": ("--coverage", "-fprofile-update=atomic"),
}
ROUNDS = {"address": 400, "thread": 100, "coverage": 200}


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


def build(directory: Path, sources: Sequence[str], flags: Sequence[str]) -> Path:
    """The worker's calls and the null driver in one program, both ends of the channel included."""
    write_operations(directory)
    program = directory / Path(sources[0]).stem
    worker = [p for p in sorted((NATIVE / "worker").glob("*.c")) if p.name != "main.c"]
    generated = [NATIVE / "generated" / n for n in ("vg_codec.c", "vg_dispatch.c")]
    driver = sorted((NATIVE / "nulldriver").glob("*.c"))
    driver.append(NATIVE / "transport" / "worker_limits.c")
    folders = ("", "codec", "generated", "worker", "nulldriver")
    command = ["cc", *flags, "-g", "-O1", "-fno-strict-aliasing", "-pthread", "-rdynamic"]
    command += ["-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers"]
    command += ["-D_GNU_SOURCE", "-D__CUDA_API_VERSION_INTERNAL", '-DVGPUMGR_VERSION="fuzz"']
    command += [*(f"-I{NATIVE / name}" for name in folders), f"-I{HERE}", f"-I{directory}"]
    command += [f"-isystem{_include()}", "-o", str(program), *(str(HERE / s) for s in sources)]
    command += map(str, [*worker, NATIVE / "codec" / "codec.c", *generated, *driver])
    done = subprocess.run(
        [*command, "-ldl"], cwd=directory, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return program


def run(program: Path, *arguments: str) -> str:
    """Runs it to its end; it must succeed and print no error."""
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-6000:]
    return done.stdout


def fuzz(directory: Path, sanitizer: str) -> str:
    program = build(directory, ("stateful.c", "guest.c", "lane.c"), SANITIZERS[sanitizer])
    rounds = os.environ.get("VGPUMGR_FUZZ_ROUNDS", str(ROUNDS[sanitizer]))
    return run(program, rounds, os.environ.get("VGPUMGR_FUZZ_SEED", "1"))


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_guests_of_several_threads_harm_nobody(sanitizer: str, tmp_path: Path) -> None:
    accepted, refused = (int(w) for w in fuzz(tmp_path, sanitizer).split() if w.isdigit())
    # a violation ends a session: too many of them, and little is tried
    assert accepted > 200 * refused > 0


def read_coverage(directory: Path) -> dict[str, float]:
    """The share of executed lines of each file of the worker."""
    subprocess.run(
        ["gcov", "--json-format", *map(str, directory.glob("*.gcda"))],
        cwd=directory,
        check=True,
        capture_output=True,
    )
    shares = {}
    for report in directory.glob("*.gcov.json.gz"):
        for file in json.loads(gzip.decompress(report.read_bytes()))["files"]:
            path = Path(file["file"])
            if path.parent.name == "worker" and path.suffix == ".c":
                counts = [line["count"] for line in file["lines"]]
                shares[path.name] = sum(map(bool, counts)) / len(counts)
    return shares


def test_a_short_run_reaches_the_operations(tmp_path: Path) -> None:
    fuzz(tmp_path, "coverage")
    shares = read_coverage(tmp_path)
    gated = {p.name for p in (NATIVE / "worker").glob("*.c")}.difference(UNGATED)
    assert gated <= {*shares}
    short = {name: f"{shares[name]:.0%}" for name in sorted(gated) if shares[name] < GATE}
    assert not short, f"below {GATE:.0%} of its lines"


def test_a_million_forged_handles_are_refused(tmp_path: Path) -> None:
    program = build(tmp_path, ("forged.c", "lane.c"), SANITIZERS["address"])
    assert run(program, "1000000", "1") == "1000000 forged, 0 accepted\n"


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_a_module_stays_while_its_function_is_launched(
    sanitizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = build(tmp_path, ("unload.c", "lane.c"), SANITIZERS[sanitizer])
    monkeypatch.setenv("VGPUMGR_NULL_SLOW", "cuLaunchKernel:2000")
    assert run(program) == ""
