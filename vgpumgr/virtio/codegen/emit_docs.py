"""The coverage table of docs/coverage.md, and the fuzzers' seeds: one valid call for each operation."""

from __future__ import annotations

import struct
from collections import Counter

from vgpumgr.virtio.codegen.emit_codec import sides
from vgpumgr.virtio.codegen.model import BLOBS, CallClass, Field, Kind, Operation, Spec

CLASS_WORDS = {
    "local": "answered in the guest",
    "quiet": "posted, no wait",
    "cached": "one wait for each new key",
    "sync": "one wait",
}


def emit_coverage(spec: Spec) -> str:
    """``docs/coverage.md``"""
    names = sum(len(f.exports) for f in spec.functions)
    count = Counter(spec.class_of(f) for f in spec.functions for _ in f.exports)
    out = [
        "# Driver API coverage",
        "",
        f"Generated from `vgpumgr/virtio/spec/{spec.file}`; do not edit. The guest's `libcuda.so.1` exports every",
        f"name of cuda.h {spec.header}. The {names} names below are implemented; all others answer",
        "CUDA_ERROR_NOT_SUPPORTED.",
        "",
        "| class | names | round trips |",
        "|---|---|---|",
    ]
    out += [f"| {c} | {count[CallClass(c)]} | {w} |" for c, w in CLASS_WORDS.items()]
    out += [f"| **all** | **{names}** | |", ""]
    out += [
        "A function by hand may be answered locally where its class allows more: the class is its slowest path.",
        "",
    ]
    out += ["| function | class | id | made by | operations |", "|---|---|---|---|---|"]
    for f in sorted(spec.functions, key=lambda f: f.name):
        shown = f.name + "".join(f", `_{v}`" for v in f.variants)
        number = f"`{spec.operation(f.operation).id:#06x}`" if f.operation else ""
        made = (
            f"via {f.via}"
            if f.via
            else f.hand or ("generator" if f.generated_guest else "generator (guest by hand)")
        )
        out.append(f"| {shown} | {spec.class_of(f)} | {number} | {made} | {', '.join(f.uses)} |")
    out += [
        "",
        "## Operations without a C function of their own",
        "",
        "| operation | class | id |",
        "|---|---|---|",
    ]
    own = {f.operation for f in spec.functions}
    out += [
        f"| {o.name} | {o.call_class} | `{o.id:#06x}` |"
        for o in spec.operations
        if o.name not in own
    ]
    return "\n".join(out) + "\n"


def _seed_field(spec: Spec, f: Field) -> bytes:
    if f.kind is Kind.STRING:
        return struct.pack("<Q8s", 6, b"kernel"[:5] + b"\0")
    if f.kind in BLOBS:
        return struct.pack("<Q8s", min(8, f.cap), bytes(range(min(8, f.cap))))
    if f.kind in (Kind.HANDLE, Kind.MINT):
        # slot 0 first made by the seed of its own creation; a stream's 0 is the default stream
        made = (
            0
            if f.kind is Kind.HANDLE and f.handle == "stream"
            else spec.handle(f.handle).tag << 60 | 1 << 32
        )
        return struct.pack("<Q", made)
    return struct.pack("<Q", 4)


def frame(o: Operation, payload: bytes, bulk: int = 0) -> bytes:
    """One frame in the fuzzers' own format: operation, bulk length, payload length (16 bits each), payload."""
    return struct.pack("<HHH", o.id, bulk, len(payload)) + payload


def emit_seeds(spec: Spec) -> dict[str, bytes]:
    """For each operation a file: byte 0 which driver call fails (0: none), then a context, then that operation."""
    by_name = {o.name: o for o in spec.operations}

    def encoded(o: Operation) -> bytes:
        fields = dict(sides(o)).get("request", ())
        return frame(
            o, b"".join(_seed_field(spec, f) for f in fields), 16 if o.bulk != "none" else 0
        )

    first = (
        "context_create",
        "image_data",
        "module_load",
        "module_function",
        "cuEventCreate",
        "memory_allocate",
    )
    makers = [o for o in spec.operations if o.name in first]
    start = b"".join(encoded(o) for o in makers)
    return {name: b"\0" + start + encoded(o) for name, o in sorted(by_name.items())}
