"""What becomes of every name of the driver, the runtime and the mathematics libraries: docs/coverage.md."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import yaml

from vgpumgr.virtio.codegen import blas, by_hand, dnn
from vgpumgr.virtio.codegen.model import CallClass, Function, Spec, SpecError, Where
from vgpumgr.virtio.codegen.stubs import read_stubs

VIRTIO = Path(__file__).resolve().parent.parent
NAMES = VIRTIO / "spec" / "cuda-names.txt"
REASONS = VIRTIO / "spec" / "refused.yaml"
RUNTIME = VIRTIO / "native" / "cudart"
RUNTIMES = (12, 13)
MATHEMATICS = VIRTIO / "spec" / "cublas.yaml"
NETWORKS = VIRTIO / "spec" / "cudnn.yaml"
TRANSFORMS = VIRTIO / "spec" / "cufft.yaml"
SOLVERS = VIRTIO / "spec" / "cusolver.yaml"
SPARSES = VIRTIO / "spec" / "cusparse.yaml"
GENERATORS = VIRTIO / "spec" / "curand.yaml"
COLLECTIVES = VIRTIO / "spec" / "nccl.yaml"
#: a definition by hand, or by one of the macros that define a name with its per-thread variant
DEFINED = re.compile(r"^(?:API\b[^;{(]*?\b(\w+)\s*\(|\w*API\w*\(\s*(\w+))", re.MULTILINE)
#: version 12's headers rename these, so that the source has the left one and the library the right one
RENAMED = {
    12: {
        "cudaGetDeviceProperties": "cudaGetDeviceProperties_v2",
        "cudaStreamGetCaptureInfo": "cudaStreamGetCaptureInfo_v3",
    }
}
#: names that the source has under both
KEPT = {"cudaStreamGetCaptureInfo"}

CLASS_WORDS = {
    "local": "answered in the guest",
    "quiet": "posted, no wait",
    "cached": "one wait for each new key",
    "sync": "one wait",
}


def driver_names() -> list[str]:
    """Every name of cuda.h, and of cudaProfiler.h."""
    return NAMES.read_text().split()


def runtime_names(version: int) -> list[str]:
    """Every name that the vendor's runtime of that version exports."""
    return (RUNTIME / "data" / f"exports-{version}.txt").read_text().split()


def runtime_implemented(version: int) -> set[str]:
    """Those of them that ours implements, by its source."""
    text = "\n".join(path.read_text() for path in sorted(RUNTIME.glob("*.c")))
    found = {m[1] or m[2] for m in DEFINED.finditer(text)}
    for old, new in RENAMED.get(version, {}).items():
        found.add(new)
        found -= set() if old in KEPT else {old}
    return {n for n in runtime_names(version) if re.sub("_pt[sd][sz]$", "", n) in found}


def math_names(library: str) -> list[str]:
    """Every name that the headers of a mathematics library have and the library exports; 12's are among 13's."""
    return (VIRTIO / "spec" / f"{library}-names.txt").read_text().split()


def math_implemented() -> dict[str, set[str]]:
    """By mathematics library: the names that the guest has more than a refusal of."""
    others = {
        "cudnn": dnn.implemented(NETWORKS),
        "cufft": by_hand.implemented(TRANSFORMS, "cufft"),
        "curand": by_hand.implemented(GENERATORS, "curand"),
        "nccl": {name for p in ("nccl", "pnccl") for name in by_hand.implemented(COLLECTIVES, p)},
        "cusolver": blas.implemented_by(SOLVERS, blas.SOLVER),
        "cusparse": blas.implemented_by(SPARSES, blas.SPARSE),
    }
    return blas.implemented(MATHEMATICS) | others


def refused_names(spec: Spec) -> dict[str, list[str]]:
    """By interface: the names that answer "not supported"."""
    described = {e for f in spec.functions for e in f.exports}
    driver = [n for n in driver_names() if n not in described]
    runtime = {
        f"libcudart.so.{v}": [n for n in runtime_names(v) if n not in runtime_implemented(v)]
        for v in RUNTIMES
    }
    mathematics = {
        f"lib{library}": [n for n in math_names(library) if n not in found]
        for library, found in math_implemented().items()
    }
    return {"libcuda.so.1": driver} | runtime | mathematics


def read_reasons() -> list[tuple[str, list[str]]]:
    """Each reason with the patterns of its names, in order."""
    return [(row["why"], row["names"]) for row in yaml.safe_load(REASONS.read_text())]


def sort_by_reason(names: Iterable[str]) -> dict[str, list[str]]:
    """Names by why they are refused. Raises SpecError for one without a reason."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    reasons = read_reasons()
    for name in sorted(names):
        for why, patterns in reasons:
            if any(fnmatchcase(name, pattern) for pattern in patterns):
                found[why].append(name)
                break
        else:
            raise SpecError(Where(REASONS.name, 1), f"'{name}' is refused without a reason")
    return {why: found[why] for why, _ in reasons if why in found}


def unused_patterns(spec: Spec) -> list[str]:
    """Patterns that no refused name fits: what they were for is implemented."""
    names = {n for each in refused_names(spec).values() for n in each}
    return [
        pattern
        for _, patterns in read_reasons()
        for pattern in patterns
        if not any(fnmatchcase(name, pattern) for name in names)
    ]


def count_names(spec: Spec) -> Iterator[str]:
    """For ``./run lint``: how many names are refused, for each library."""
    whole = {f"libcudart.so.{v}": len(runtime_names(v)) for v in RUNTIMES}
    whole["libcuda.so.1"] = len(driver_names())
    whole |= {f"lib{n}": len(math_names(n)) for n in math_implemented()}
    for library, names in refused_names(spec).items():
        later = sum(len(n) for why, n in sort_by_reason(names).items() if why.startswith("not yet"))
        yield f"{library:15} {whole[library]:4} names, {len(names):4} refused ({later} of them: not yet)"
    for stub in read_stubs():
        yield f"lib{stub.name:12} {len(stub.names):4} names, all refused"


def _describe_class(spec: Spec, f: Function) -> str:
    shown = f.name + "".join(f", `_{v}`" for v in f.variants)
    number = f"`{spec.operation(f.operation).id:#06x}`" if f.operation else ""
    made = "generator" if f.generated_guest else "generator (guest by hand)"
    made = f"via {f.via}" if f.via else f.hand or made
    return f"| {shown} | {spec.class_of(f)} | {number} | {made} | {', '.join(f.uses)} |"


def _list_refused(spec: Spec) -> Iterator[str]:
    refused = refused_names(spec)
    for title, names in (
        ("Refused by libcuda.so.1", refused["libcuda.so.1"]),
        *((f"Refused by libcudart.so.{v}", refused[f"libcudart.so.{v}"]) for v in RUNTIMES),
        *((f"Refused by lib{n}", refused[f"lib{n}"]) for n in math_implemented()),
    ):
        yield from ("", f"## {title}", "", "| why | names | |", "|---|---|---|")
        for why, found in sort_by_reason(names).items():
            yield f"| {why} | {len(found)} | {', '.join(found)} |"


def emit_coverage(spec: Spec) -> str:
    """``docs/coverage.md``"""
    names = sum(len(f.exports) for f in spec.functions)
    count = Counter(spec.class_of(f) for f in spec.functions for _ in f.exports)
    refused = refused_names(spec)
    out = [
        "# CUDA's names: forwarded, local, or refused and why",
        "",
        f"Generated from `vgpumgr/virtio/spec/` ({spec.file}, refused.yaml); do not edit. The guest's `libcuda.so.1`",
        f"exports every name of cuda.h {spec.header}, its `libcudart.so.12` and `.13` every name of the vendor's.",
        "`libcublas` and `libcublasLt`, each for 12 and 13, `libcudnn` for 9, `libcufft` and `libcusolver` for 11 and",
        "12, `libcusparse` for 12, `libcurand` for 10, and `libnccl` for 2 export every documented name of the",
        "vendor's. NCCL's implemented ones are the guest's own ([adr/0029](adr/0029-nccl-in-the-guest.md)).",
        "What is refused answers CUDA_ERROR_NOT_SUPPORTED, and names itself once on standard error",
        "(`VGPUMGR_QUIET=1`: never).",
        "",
        "| library | names | implemented | refused |",
        "|---|---|---|---|",
        f"| libcuda.so.1 | {len(driver_names())} | {names} | {len(refused['libcuda.so.1'])} |",
    ]
    for v in RUNTIMES:
        every, missing = len(runtime_names(v)), len(refused[f"libcudart.so.{v}"])
        out.append(f"| libcudart.so.{v} | {every} | {every - missing} | {missing} |")
    for library in math_implemented():
        every, missing = len(math_names(library)), len(refused[f"lib{library}"])
        out.append(f"| lib{library} | {every} | {every - missing} | {missing} |")
    for stub in read_stubs():
        out.append(f"| {', '.join(stub.files)} | {len(stub.names)} | 0 | {len(stub.names)} |")
    out += [
        "",
        "Libraries of which nothing is implemented are there so that programs that are linked with them start",
        "([libraries.md](libraries.md)); their names are in `vgpumgr/virtio/spec/stubs/`.",
    ]
    out += ["", "Of the driver's that are implemented:", ""]
    out += ["| class | names | round trips |", "|---|---|---|"]
    out += [f"| {c} | {count[CallClass(c)]} | {w} |" for c, w in CLASS_WORDS.items()]
    out += [f"| **all** | **{names}** | |", ""]
    out += [
        "A function by hand may be answered locally where its class allows more: the class is its slowest path.",
        "The runtime's names call these.",
        "",
    ]
    out += ["| function | class | id | made by | operations |", "|---|---|---|---|---|"]
    out += [_describe_class(spec, f) for f in sorted(spec.functions, key=lambda f: f.name)]
    out += ["", "## Operations without a C function of their own", ""]
    out += ["| operation | class | id |", "|---|---|---|"]
    own = {f.operation for f in spec.functions}
    out += [
        f"| {o.name} | {o.call_class} | `{o.id:#06x}` |"
        for o in spec.operations
        if o.name not in own
    ]
    return "\n".join([*out, *_list_refused(spec)]) + "\n"
