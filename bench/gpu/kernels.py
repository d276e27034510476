"""PTX on the GPU against the simulated driver's interpreter: each form of an instruction, then random kernels.

usage: VGPUMGR_PTX_GPU=LIBCUDA python3 -m bench.gpu.kernels COUNT SEED [--json FILE]

Approximate instructions are compared by their largest difference; all else bit by bit.
"""

from __future__ import annotations

import argparse
import json
import random
import struct
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.sim import ptx_random
from tests.sim.ptx_gpu import GpuModule
from tests.sim.ptx_random import BINARY, COMPARISONS, CONVERSIONS, HEADER, TERNARY, UNARY
from tests.sim.ptx_runner import Interpreter, PtxError

#: bits of a register of each kind, and what loads one
KINDS = {"r": ("b32", "I"), "f": ("f32", "I"), "d": ("b64", "Q"), "g": ("f64", "Q")}
#: instructions that depend on a carry flag, which nothing sets in one statement
CARRY = ("addc", "subc", "madc")
LANES = 1024
SPECIAL = {
    "r": [0, 1, 2, 31, 32, 33, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF],
    "f": [0, 0x80000000, 1, 0x80000001, 0x7FFFFF, 0x800000, 0x3F800000, 0xBF800000, 0x7F7FFFFF, 0x7F800000,
          0xFF800000, 0x7FC00000, 0x7FC00001, 0xFFC12345, 0x7F800001, 0x4F000000, 0xCF000000, 0x4F800000, 0x3F000000,
          0x3FC00000, 0x40200000, 0x4B800001],
    "d": [0, 1, 63, 64, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1],
    "g": [0, 1 << 63, 1, 0x3FF0000000000000, 0xBFF0000000000000, 0x7FF0000000000000, 0xFFF0000000000000,
          0x7FF8000000000000, 0x7FF8000000000123, 0x7FF0000000000001, 0x000FFFFFFFFFFFFF, 0x0010000000000000,
          0x43E0000000000000, 0xC3E0000000000000, 0x3FE0000000000000, 0x4004000000000000, 0x7FEFFFFFFFFFFFFF],
}  # fmt: skip


def list_forms() -> list[tuple[str, str, str, int]]:
    """Instruction, kind of its result (p: a predicate), kind of its sources, their number."""
    forms = [
        (name, kind, kind, count)
        for count, table in ((1, UNARY), (2, BINARY), (3, TERNARY))
        for kind, names in table.items()
        for name in names
        if not name.startswith(CARRY)
    ]
    forms += [
        (name, to, kind, 2 if name.startswith("mul") else 1) for to, kind, name in CONVERSIONS
    ]
    forms += [
        (f"setp.{name}", "p", kind, 2) for kind, names in COMPARISONS.items() for name in names
    ]
    return forms


def write_kernel(form: tuple[str, str, str, int]) -> str:
    """Each thread: its operands, the instruction, its result."""
    name, to, source, count = form
    bits, size = KINDS[source][0], struct.calcsize(KINDS[source][1])
    loads = "".join(f"ld.global.{bits} %{source}{n + 1}, [%p{n}];\n" for n in range(count))
    places = "".join(f"mad.wide.u32 %p{n}, %x0, {size}, %a{n};\n" for n in range(count))
    words = ", ".join(f"%{source}{n + 1}" for n in range(count))
    if to == "p":
        work, store = (
            f"{name} %q, {words}; selp.b32 %x1, 1, 0, %q;",
            "mad.wide.u32 %o, %x0, 4, %o; st.global.b32 [%o], %x1;",
        )
    else:
        width = struct.calcsize(KINDS[to][1])
        work = f"{name} %{to}0, {words};"
        store = f"mad.wide.u32 %o, %x0, {width}, %o; st.global.{KINDS[to][0]} [%o], %{to}0;"
    parameters = ", ".join(f".param .u64 a{n}" for n in range(count))
    fetch = "".join(f"ld.param.u64 %a{n}, [a{n}];\n" for n in range(count))
    return f"""{HEADER}
.visible .entry k({parameters}, .param .u64 out)
{{
    .reg .b32 %r<5>; .reg .f32 %f<5>; .reg .b64 %d<5>; .reg .f64 %g<5>; .reg .pred %q; .reg .b32 %x<3>;
    .reg .b64 %a<4>; .reg .b64 %p<4>; .reg .b64 %o;
    {fetch} ld.param.u64 %o, [out]; mov.u32 %x0, %tid.x;
    {places}{loads}{work}
    {store} ret;
}}
"""


def make_operands(form: tuple[str, str, str, int]) -> list[list[int]]:
    """Random and special ones."""
    _, _, source, count = form
    chance, width = random.Random(str(form)), 8 * struct.calcsize(KINDS[source][1])
    return [
        [
            chance.choice(SPECIAL[source]) if chance.random() < 0.5 else chance.getrandbits(width)
            for _ in range(LANES)
        ]
        for _ in range(count)
    ]


def run_form(make: Any, form: tuple[str, str, str, int], operands: list[list[int]]) -> list[int]:
    """What each thread gave."""
    module = make(write_kernel(form))
    code = KINDS[form[2]][1]
    places = [module.upload(code, values) for values in operands]
    to = "I" if form[1] == "p" else KINDS[form[1]][1]
    out = module.alloc(LANES * struct.calcsize(to))
    module.run("k", 1, LANES, "Q" * (len(places) + 1), *places, out)
    found = list(module.read(out, to, LANES))
    module.close()
    return found


def compare_forms() -> dict[str, Any]:
    """Forms, and of those that differ some operands."""
    different, failed = {}, {}
    forms = list_forms()
    for form in forms:
        operands = make_operands(form)
        try:
            ours, theirs = (run_form(make, form, operands) for make in (Interpreter, GpuModule))
        except PtxError as error:
            failed[" ".join(map(str, form))] = str(error)[:300]
            continue
        wrong = [n for n in range(LANES) if ours[n] != theirs[n]]
        if wrong:
            different[form[0]] = {
                "lanes": len(wrong),
                "shown": [
                    f"{[hex(o[n]) for o in operands]}: gpu {theirs[n]:#x}, simulated {ours[n]:#x}"
                    for n in wrong[:6]
                ],
            }
    return {"forms": len(forms), "different": different, "failed": failed}


def compare_random(count: int, first: int) -> dict[str, Any]:
    """Random kernels without approximate instructions."""
    UNARY["f"] = [name for name in UNARY["f"] if "approx" not in name]
    differences, errors = {}, Counter[str]()
    for seed in range(first, first + count):
        text, blocks, threads = ptx_random.make_kernel(seed)
        if "+1]" in text or str(2**40) in text or str(2**33 + 4) in text:
            continue  # an access out of bounds, after which the GPU's context is gone
        chance = random.Random(~seed)
        words = [chance.getrandbits(32) for _ in range(ptx_random.IN_BYTES // 4)]
        found = []
        for make in (Interpreter, GpuModule):
            try:
                module: Any = make(text)
                addresses = (
                    module.upload("I", words), module.alloc(120 * blocks * threads),
                    module.alloc(64 * blocks * threads), module.alloc(20),
                )  # fmt: skip
                found.append(ptx_random.outcome(module, addresses, blocks, threads))
                module.close()
            except PtxError as error:
                found.append((error.status, str(error)[:300]))
        if found[0] != found[1]:
            differences[seed] = ptx_random.describe(found[0], found[1])
        if not isinstance(found[1][0], bytes):
            errors[str(found[1])] += 1
    return {
        "kernels": count,
        "different": differences,
        "errors of the GPU": dict(errors.most_common(8)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = {
        "forms": compare_forms() if options.seed == 1 else {},
        "random": compare_random(options.count, options.seed),
    }
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    print(
        json.dumps(
            {
                k: {a: b if isinstance(b, int) else len(b) for a, b in v.items()}
                for k, v in found.items()
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
