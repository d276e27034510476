"""``python -m vgpumgr.virtio.codegen``: writes the committed outputs; ``--check`` only compares them;
``--count`` says how many of CUDA's names are refused;
``--headers DIR --output DIR`` writes what the build makes from NVIDIA's headers: every exported name, versions for
cuGetProcAddress. The headers are not ours to ship, so nothing of this is committed; ``cc -E`` resolves the macros that
give old names new versions."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from vgpumgr.virtio.codegen.blas import SOLVER, SPARSE, blas_outputs
from vgpumgr.virtio.codegen.check import check
from vgpumgr.virtio.codegen.coverage import count_names, emit_coverage
from vgpumgr.virtio.codegen.dnn import dnn_outputs
from vgpumgr.virtio.codegen.emit_codec import emit_codec, emit_ops, emit_seeds
from vgpumgr.virtio.codegen.emit_guest import emit_stubs, emit_stubs_header
from vgpumgr.virtio.codegen.emit_worker import emit_dispatch, emit_driver, emit_worker_header
from vgpumgr.virtio.codegen.interface import emit_interface
from vgpumgr.virtio.codegen.model import Spec, SpecError
from vgpumgr.virtio.codegen.parse import parse

VIRTIO = Path(__file__).resolve().parent.parent
SPEC = VIRTIO / "spec" / "cuda.yaml"
#: declared by cudaProfiler.h, which not every distribution of the headers holds; versions as in cudaProfilerTypedefs.h
PROFILER = {"cuProfilerStart": 4000, "cuProfilerStop": 4000}

#: what the guest's library exports beside the driver's names: for tests, and for the guest's other libraries
OWN_EXPORTS = {
    "vgpumgr_channel_waits",
    "vgpumgr_call_unsupported",
    "vgpumgr_math_open",
    "vgpumgr_math_create",
    "vgpumgr_math_make",
    "vgpumgr_math_destroy",
    "vgpumgr_math_call",
    "vgpumgr_math_alive",
}


def outputs(spec: Spec, native: str = "vgpumgr/virtio/native/generated") -> dict[str, bytes]:
    """Every committed output by its path in the source tree."""
    files = {
        f"{native}/vg_ops.h": emit_ops(spec),
        f"{native}/vg_interface.h": emit_interface(spec),
        f"{native}/vg_codec.c": emit_codec(spec),
        f"{native}/vg_stubs.h": emit_stubs_header(spec),
        f"{native}/vg_stubs.c": emit_stubs(spec),
        f"{native}/vg_driver.h": emit_driver(spec),
        f"{native}/vg_worker.h": emit_worker_header(spec),
        f"{native}/vg_dispatch.c": emit_dispatch(spec),
        "docs/coverage.md": emit_coverage(spec),
    }
    seeds = {f"tests/fuzz/corpus/calls/{n}.bin": data for n, data in emit_seeds(spec).items()}
    written = {name: text.encode() for name, text in files.items()}
    mathematics = blas_outputs(SPEC.with_name("cublas.yaml"), native)
    mathematics |= blas_outputs(SPEC.with_name("cusolver.yaml"), native, SOLVER)
    mathematics |= blas_outputs(SPEC.with_name("cusparse.yaml"), native, SPARSE)
    mathematics |= dnn_outputs(SPEC.with_name("cudnn.yaml"), native)
    return written | mathematics | seeds


def load(path: Path = SPEC) -> Spec:
    """The description at ``path``, checked. Raises :class:`SpecError`."""
    spec = parse(path)
    check(spec)
    return spec


def stale(root: Path, files: dict[str, bytes]) -> list[str]:
    """Those of ``files`` that are missing under ``root`` or differ there."""
    return [
        n
        for n, data in files.items()
        if not (root / n).is_file() or (root / n).read_bytes() != data
    ]


def write_headers(spec: Spec, include: Path, output: Path) -> None:
    """Writes the C files that need NVIDIA's headers into ``output``."""
    cuda = preprocess(include, "cuda.h")
    names = exported_names(cuda) | PROFILER.keys()
    table = variants(names, preprocess(include, "cudaTypedefs.h"))
    table += [Variant(name, version, False, name) for name, version in PROFILER.items()]
    table.sort(key=lambda v: (v.name, v.per_thread, v.version))
    output.mkdir(parents=True, exist_ok=True)
    (output / "vg_unsupported.c").write_text(emit_unsupported(spec, names))
    (output / "vg_procs.c").write_text(emit_procs(table))
    (output / "libcuda.map").write_text(emit_map(names))


def main() -> int:
    """Exit 0: done or up to date; 1: stale or wrong."""
    parser = argparse.ArgumentParser(prog="vgpumgr.virtio.codegen", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if an output is out of date"
    )
    parser.add_argument(
        "--count", action="store_true", help="print how many of CUDA's names are refused"
    )
    parser.add_argument("--headers", type=Path, help="directory of cuda.h and cudaTypedefs.h")
    parser.add_argument("--output", type=Path, help="where to write what is made from the headers")
    args = parser.parse_args()
    try:
        spec = load()
        if args.headers:
            write_headers(spec, args.headers, args.output)
            return 0
        if args.count:
            print(*count_names(spec), sep="\n")
            return 0
    except (SpecError, HeaderError) as error:
        print(error, file=sys.stderr)
        return 1
    root = VIRTIO.parent.parent
    files = outputs(spec)
    changed = stale(root, files)
    for name in changed:
        if args.check:
            print(f"{name}: out of date; run python -m vgpumgr.virtio.codegen", file=sys.stderr)
        else:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(files[name])
    return 1 if args.check and changed else 0


@dataclass(frozen=True, slots=True)
class Variant:
    """A name as cuGetProcAddress knows it, since which CUDA version, and the symbol behind it."""

    name: str
    version: int
    per_thread: bool
    symbol: str


class HeaderError(Exception):
    """A header that does not say what we expect of it."""


def preprocess(include: Path, header: str, compiler: str = "cc") -> str:
    """The header after the preprocessor, with old and per-thread variants declared."""
    command = [
        compiler,
        "-E",
        "-P",
        "-D__CUDA_API_VERSION_INTERNAL",
        "-I",
        str(include),
        "-x",
        "c",
        "-",
    ]
    done = subprocess.run(
        command, input=f"#include <{header}>\n", capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise HeaderError(f"{include / header}: {done.stderr.strip()}")
    return done.stdout


def exported_names(text: str) -> set[str]:
    """Names of all functions that cuda.h declares, ``text`` being that header preprocessed."""
    return set(re.findall(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(", text))


def variants(names: set[str], typedefs: str) -> list[Variant]:
    """cuGetProcAddress's table. A name's plain versions, in order, are its symbols plain, _v2, _v3, ...; a per-thread
    variant of some version has the symbol of the newest plain version not newer, with its suffix."""
    versions: dict[str, set[int]] = defaultdict(set)
    suffixed: list[tuple[str, int, str]] = []
    for name, version, suffix in re.findall(r"\*\s*PFN_(cu\w+?)_v(\d+)(_ptds|_ptsz)?\)", typedefs):
        if suffix:
            suffixed.append((name, int(version), suffix))
        else:
            versions[name].add(int(version))
    found: list[Variant] = []
    symbols: dict[tuple[str, int], str] = {}
    for name, known in versions.items():
        candidates = [n for n in (name, *(f"{name}_v{i}" for i in range(2, 10))) if n in names]
        if len(candidates) != len(known):
            raise HeaderError(f"{name}: versions {sorted(known)} but symbols {candidates}")
        for version, symbol in zip(sorted(known), candidates, strict=True):
            symbols[name, version] = symbol
            found.append(Variant(name, version, False, symbol))
    for name, version, suffix in suffixed:
        base = symbols[name, max(v for v in versions[name] if v <= version)] + suffix
        if base not in names:
            raise HeaderError(f"{name}{suffix} of version {version}: there is no {base}")
        found.append(Variant(name, version, True, base))
    return sorted(found, key=lambda v: (v.name, v.per_thread, v.version))


def emit_unsupported(spec: Spec, names: set[str]) -> str:
    """``vg_unsupported.c``: the names that the description does not have."""
    done = {e for f in spec.functions for e in f.exports}
    if unknown := sorted(done - names):
        raise HeaderError(f"described but not in cuda.h: {', '.join(unknown)}")
    out = [
        "/* Generated from cuda.h: names without an implementation yet. */",
        "#include <stdatomic.h>\n\nint shim_unsupported(const char *name, atomic_flag *said);\n",
        "#define UNSUPPORTED(name) \\",
        '\t__attribute__((visibility("default"))) int name(void); \\',
        "\tint name(void) \\",
        "\t{ \\",
        "\t\tstatic atomic_flag said = ATOMIC_FLAG_INIT; \\",
        "\t\treturn shim_unsupported(#name, &said); \\",
        "\t}",
    ]
    out += [f"UNSUPPORTED({n})" for n in sorted(names - done)]
    return "\n".join(out) + "\n"


def emit_procs(table: list[Variant]) -> str:
    """``vg_procs.c``: cuGetProcAddress's table, sorted by name."""
    out = ["/* Generated from cudaTypedefs.h and cuda.h. */", '#include "procs.h"\n']
    out.append("const struct cuda_proc shim_procs[] = {")
    out += [
        f'\t{{ "{v.name}", {v.version}, {int(v.per_thread)}, (void *){v.symbol} }},' for v in table
    ]
    out.append("};\nconst size_t shim_procs_count = sizeof(shim_procs) / sizeof(shim_procs[0]);")
    return "\n".join(out) + "\n"


def emit_map(names: set[str]) -> str:
    """The version script: exactly the header's names, and our own counter for tests."""
    exports = "".join(f"\t\t{n};\n" for n in sorted(names | OWN_EXPORTS))
    return f"{{\n\tglobal:\n{exports}\tlocal:\n\t\t*;\n}};\n"


if __name__ == "__main__":
    sys.exit(main())
