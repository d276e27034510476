"""How fast the PTX interpreter is: instructions per second of one thread, by kind of loop."""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "sim"))

from tests.sim.ptx_runner import Module

HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"
LOOP = """
.visible .entry {name}(.param .u64 out, .param .u32 n)
{{
    .reg .b64 %rd<8>; .reg .b32 %r<8>; .reg .pred %p<2>;
    ld.param.u64 %rd0, [out];
    ld.param.u32 %r0, [n];
    mov.u32 %r1, 0; mov.u32 %r2, 1;
L:  {body}
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p0, %r1, %r0;
    @%p0 bra L;
    st.global.u32 [%rd0], %r2;
    ret;
}}
"""
BODIES = {
    "integer": "mad.lo.u32 %r2, %r2, 3, %r1; xor.b32 %r2, %r2, %r1;" * 4,
    "float": "fma.rn.f32 %r2, %r2, 0f3F000000, %r2; add.f32 %r2, %r2, 0f3F800000;" * 4,
    "memory": "st.global.u32 [%rd0+4], %r2; ld.global.u32 %r3, [%rd0+4];" * 4,
}
PER_TURN = 8 + 4  # the body; add, setp, the guard and the branch


def main() -> None:
    """Print a line for each kind of loop."""
    module = Module(HEADER + "".join(LOOP.format(name=n, body=b) for n, b in BODIES.items()))
    out, turns = module.alloc(64), 500_000
    for name in BODIES:
        start = time.perf_counter()
        module.run(name, 1, 1, "QI", out, turns)
        rate = turns * PER_TURN / (time.perf_counter() - start)
        print(f"{name}: {rate / 1e6:.0f} million instructions per second")


if __name__ == "__main__":
    main()
