"""The generator: what it refuses and where, what its hash depends on, and that what it made is fresh."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from vgpumgr.virtio.codegen.__main__ import (
    OWN_EXPORTS,
    PROFILER,
    exported_names,
    load,
    outputs,
    preprocess,
    stale,
    variants,
)
from vgpumgr.virtio.codegen.check import check
from vgpumgr.virtio.codegen.coverage import (
    RUNTIMES,
    driver_names,
    refused_names,
    runtime_implemented,
    runtime_names,
    sort_by_reason,
    unused_patterns,
)
from vgpumgr.virtio.codegen.emit_codec import emit_codec, emit_ops
from vgpumgr.virtio.codegen.emit_guest import emit_stubs
from vgpumgr.virtio.codegen.emit_worker import emit_dispatch
from vgpumgr.virtio.codegen.interface import (
    emit_interface,
    hash_of,
    interface_hash,
    list_operations,
    words,
)
from vgpumgr.virtio.codegen.model import CallClass, Spec, SpecError
from vgpumgr.virtio.codegen.parse import parse

HERE = Path(__file__).parent / "codegen"
ROOT = Path(__file__).parents[2]
GOOD = (HERE / "good.yaml").read_text()


def read(tmp_path: Path, text: str) -> Spec:
    path = tmp_path / "tiny.yaml"
    path.write_text(text)
    spec = parse(path)
    check(spec)
    return spec


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("    class: cached\n", "", 9, "'hello' has no class (local, quiet, cached, sync)"),
        ("    class: quiet\n", "", 16, "'cuWork' has no class (local, quiet, cached, sync)"),
        ("class: sync", "class: slow", 24, "'slow' is no class (local, quiet, cached, sync)"),
        ("id: 0x0011", "id: 0x0010", 22, "id 0x0010 is used by both 'cuWork' and 'cuAsk'"),
        (
            "types:",
            "retired: [0x11]\ntypes:",
            23,
            "id 0x0011 of 'cuAsk' is retired and must not be used again",
        ),
        ("id: 0x0001", "id: 0x10000", 9, "id 0x10000 of 'hello' is not within 0x0001 to 0xffff"),
        ("string 16", "string", 12, "string needs its cap in bytes"),
        (
            "string 16",
            "string 2000000",
            9,
            "'hello' may take 2000016 bytes, more than the 1044480 that a frame holds",
        ),
        (
            "bytes 8]",
            "bytes 20000]",
            9,
            "'hello' may take 20016 bytes, more than the 16384 that a frame holds",
        ),
        (
            "answer: bytes 8",
            "made: mint stream",
            9,
            "'hello' returns a handle: handles are named by the guest, use mint",
        ),
        ("name: string 16", "made: handle array", 12, "'array' is no kind of handle"),
        (
            "name: string 16",
            "made: mint stream",
            9,
            "'hello' is cached and cannot make objects or carry bulk",
        ),
        ("tag: 2", "tag: 1", 6, "tag 1 is used by both 'context' and 'stream'"),
        (
            "args: {answer: out}",
            "args: {}",
            22,
            "'answer' of cuAsk is a pointer: its direction must be given",
        ),
        ("args: {answer: out}", "args: {reply: out}", 26, "'cuAsk' has no parameter 'reply'"),
        ("int *answer", "float *answer", 26, "type 'float' of cuAsk is not in 'types'"),
        ("class: sync", "class: quiet", 22, "'cuAsk' is quiet and cannot have outputs or block"),
        (
            "via: cuWork",
            "via: cuAsk",
            21,
            "'cuWorkNow' goes via 'cuAsk', which is not the same with a stream added",
        ),
        ("cuWorkNow", "cuAsk", 22, "'cuAsk' is described twice"),
        ("worker: hand", "worker: robot", 14, "worker is one of generated, hand"),
        ("worker: hand", "wroker: hand", 14, "unknown key 'wroker'"),
        ("revision: 1", "revision: one", 2, "a number is expected, not 'one'"),
        ("schema: tiny", "schema: [tiny", 2, "not YAML: expected ',' or ']', but got ':'"),
    ],
)
def test_bad_descriptions_name_file_and_line(
    tmp_path: Path, old: str, new: str, line: int, message: str
) -> None:
    assert GOOD.count(old) >= 1
    with pytest.raises(SpecError) as caught:
        read(tmp_path, GOOD.replace(old, new, 1))
    assert str(caught.value) == f"tiny.yaml:{line}: {message}"


def test_golden_output_of_a_tiny_description(tmp_path: Path) -> None:
    spec = read(tmp_path, GOOD)
    made = {
        "vg_ops.h": emit_ops(spec),
        "vg_interface.h": emit_interface(spec),
        "vg_codec.c": emit_codec(spec),
        "vg_stubs.c": emit_stubs(spec),
        "vg_dispatch.c": emit_dispatch(spec),
    }
    golden = HERE / "golden"
    if not golden.is_dir():
        pytest.fail("no golden files")
    assert made == {name: (golden / name).read_text() for name in made}


def test_the_hash_moves_with_the_wire_and_with_nothing_else(tmp_path: Path) -> None:
    spec = read(tmp_path, GOOD)
    same = [
        GOOD.replace("schema: tiny", "# a comment\nschema: tiny"),
        GOOD.replace("cuWorkNow", "cuWorkLater"),
        GOOD.replace(", variants: [ptds]", ""),
        GOOD.replace("class: cached", "class: sync"),
    ]
    moved = [
        GOOD.replace("revision: 1", "revision: 2"),
        GOOD.replace("string 16", "string 17"),
        GOOD.replace("cap: 8", "cap: 9"),
        GOOD.replace("0x0011", "0x0012"),
        GOOD.replace("size_t: u64", "size_t: u32"),
    ]
    assert {interface_hash(read(tmp_path, text)) for text in same} == {interface_hash(spec)}
    assert len({interface_hash(read(tmp_path, text)) for text in [GOOD, *moved]}) == len(moved) + 1
    backwards = replace(spec, operations=tuple(reversed(spec.operations)))
    assert interface_hash(backwards) == interface_hash(spec)


@pytest.mark.parametrize(
    ("old", "new", "differ"),
    [
        ("string 16", "string 17", {"hello"}),
        ("answer: bytes 8", "reply: bytes 8", {"hello"}),
        ("    class: cached\n", "    class: cached\n    revision: 2\n", {"hello"}),
        ("CUstream, cap: 8", "CUstream, cap: 9", {"cuWork"}),
        ("tag: 1, c: CUcontext", "tag: 3, c: CUcontext", {"cuWork", "cuAsk"}),
        ("size_t: u64", "size_t: u32", {"cuWork"}),
        ("int: i32", "int: u32", {"cuAsk"}),
        ("    class: quiet\n", "    class: quiet\n    after_error: run\n", {"cuWork"}),
        ("    class: quiet\n", "    class: sync\n", {"cuWork"}),
        ("schema: tiny", "schema: other", {"hello", "cuWork", "cuAsk"}),
    ],
)
def test_a_change_concerns_the_operations_that_it_is_about(
    tmp_path: Path, old: str, new: str, differ: set[str]
) -> None:
    before = read(tmp_path, GOOD)
    after = read(tmp_path, GOOD.replace(old, new, 1))
    moved = {
        o.name
        for o in before.operations
        if hash_of(before, o) != hash_of(after, after.operation(o.name))
    }
    assert moved == differ
    assert sorted(w >> 48 for w in words(after)) == [w >> 48 for w in words(before)]


def test_operations_of_guests_with_older_packages_keep_working(
    golden: Callable[[str, str], None],
) -> None:
    spec = load()
    text = list_operations(spec)
    before = (ROOT / "tests" / "golden" / "operations.txt").read_text().splitlines()
    ids = {o.id for o in spec.operations} | set(spec.retired)
    gone = [line for line in before if int(line.split()[0], 16) not in ids]
    assert gone == [], "an operation that has gone has its id among the retired ones"
    # what differs here, guests with older packages lose: if it is meant, write the file with --regenerate
    golden("operations.txt", text)


def test_committed_outputs_are_fresh() -> None:
    assert stale(ROOT, outputs(load())) == []


def test_every_function_by_hand_is_in_the_file_that_it_names() -> None:
    spec = load()
    shim = ROOT / "vgpumgr" / "virtio" / "native" / "shim"
    for f in spec.functions:
        if f.hand:
            text = (shim / f.hand).read_text()
            assert f.name in text or f"GETTER({f.name}" in text, f"{f.name} is not in {f.hand}"


def test_classes_of_what_must_not_wait() -> None:
    spec = load()
    classes = {f.name: spec.class_of(f) for f in spec.functions}
    for name in (
        "cuLaunchKernel",
        "cuMemcpyHtoDAsync_v2",
        "cuMemsetD8_v2",
        "cuEventRecord",
        "cuMemFree_v2",
    ):
        assert classes[name] is CallClass.QUIET
    assert classes["cuDeviceGetAttribute"] is CallClass.CACHED
    assert classes["cuPointerGetAttribute"] is CallClass.LOCAL


def test_every_refused_name_has_a_reason() -> None:
    spec = load()
    for library, names in refused_names(spec).items():
        assert names, library
        assert sum(map(len, sort_by_reason(names).values())) == len(names)
    assert unused_patterns(spec) == [], "no refused name fits them: what they were for is there"
    with pytest.raises(SpecError, match="'cuNobodyKnows' is refused without a reason"):
        sort_by_reason(["cuNobodyKnows"])


@pytest.mark.native
@pytest.mark.parametrize("version", RUNTIMES)
def test_the_runtime_implements_what_its_source_says(version: int) -> None:
    library = ROOT / "vgpumgr" / "_lib" / "guest" / f"libcudart.so.{version}"
    table = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True
    )
    rows = [line.split() for line in table.stdout.splitlines()]
    strong = {name.partition("@")[0] for _, kind, name in rows if kind == "T"}
    assert runtime_implemented(version) == strong & set(runtime_names(version))


@pytest.mark.native
def test_exports_are_those_of_the_header_and_only_libc_is_needed() -> None:
    library = ROOT / "vgpumgr" / "_lib" / "guest" / "libcuda.so.1"
    include = _include()
    table = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True
    )
    exported = {line.split()[-1] for line in table.stdout.splitlines()}
    names = exported_names(preprocess(include, "cuda.h")) | PROFILER.keys()
    assert exported == names | OWN_EXPORTS
    assert driver_names() == sorted(names)
    assert len(variants(names, preprocess(include, "cudaTypedefs.h"))) == 685
    elf = subprocess.run(
        ["readelf", "-dV", str(library)], capture_output=True, text=True, check=True
    ).stdout
    needed = {line.split("[")[1].rstrip("]") for line in elf.splitlines() if "(NEEDED)" in line}
    assert needed <= {"libc.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2"}
    versions = {tuple(map(int, w[6:].split("."))) for w in elf.split() if w.startswith("GLIBC_2")}
    assert max(versions) <= (2, 28)


def _include() -> Path:
    cache = (ROOT / "build" / "CMakeCache.txt").read_text()
    return Path(
        next(x for x in cache.splitlines() if x.startswith("VGPUMGR_CUDA13_INCLUDE")).split("=", 1)[
            1
        ]
    )
