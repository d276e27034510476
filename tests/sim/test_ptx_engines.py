"""The warp-wide engine against the one that runs lane by lane."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.sim.ptx_random import (
    BINARY,
    COMPARISONS,
    CONVERSIONS,
    HEADER,
    TERNARY,
    UNARY,
    run_kernels,
)
from tests.sim.ptx_runner import ROOT, Module

pytestmark = pytest.mark.native

SEED = int(os.environ.get("VGPUMGR_FUZZ_SEED", "1"))
COUNT = int(os.environ.get("VGPUMGR_PTX_KERNELS", "250"))
REGISTERS = ".reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %d<9>; .reg .f64 %g<9>; .reg .pred %p<9>;"


@pytest.mark.parametrize("part", range(4))
def test_random_kernels_compute_the_same(part: int) -> None:
    first = (SEED - 1) * 1_000_000 + part * COUNT + 1
    differences, ended = run_kernels(first, COUNT)
    assert not differences, "\n".join(differences[:20])
    assert ended > 0.9 * COUNT


def test_random_kernels_compute_the_same_on_any_processor() -> None:
    """The forms for processors without AVX2 are chosen when the first module of a process is loaded."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.sim.ptx_random",
            str(COUNT),
            str((SEED - 1) * 1_000_000 + 900_000),
        ],
        cwd=ROOT,
        env=os.environ | {"VGPUMGR_SIM_ENGINE": "baseline"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def statement(name: str, to: str, source: str, count: int) -> str:
    """With `count` sources of one kind of register."""
    words = ", ".join(f"%{source}{n}" for n in range(1, count + 1))
    return f"{name} %{to}0, {words};"


def list_forms() -> list[str]:
    """One statement for each form of an instruction."""
    forms = [
        statement(name, kind, kind, count)
        for count, table in ((1, UNARY), (2, BINARY), (3, TERNARY))
        for kind, names in table.items()
        for name in names
    ]
    forms += [
        statement(name, to, source, 2 if name.startswith("mul") else 1)
        for to, source, name in CONVERSIONS
    ]
    forms += [
        f"setp.{name} %p0, %{kind}1, %{kind}2;"
        for kind, names in COMPARISONS.items()
        for name in names
    ]
    forms += [
        "setp.lt.and.f32 %p0|%p1, %f0, %f1, %p2;",
        "selp.b32 %r0, %r1, %r2, %p0;",
        "mov.b32 %r0, %r1;",
    ]
    forms += [
        "lop3.b32 %r0, %r1, %r2, %r3, 150;",
        "cvta.to.global.u64 %d0, %d1;",
        "mov.b64 %d0, {%r0, %r1};",
    ]
    for space in ("global", "shared", "local"):
        forms += [f"ld.{space}.{t} %r0, [%d0];" for t in ("u8", "s16", "b32")]
        forms.append(f"st.{space}.b64 [%d0], %d1;")
    forms += [f"ld.{space}.v4.f32 {{%f0, %f1, %f2, %f3}}, [%d0];" for space in ("global", "shared")]
    forms += [
        "ld.b32 %r0, [%d0];",
        "st.f32 [%d0], %f0;",
        "ld.param.u64 %d0, [a];",
        "st.global.v2.u32 [%d0], {%r0, %r1};",
    ]
    forms += [
        "@%p0 bra E; E:",
        "bar.sync 0;",
        "barrier.sync 1, 64;",
        "bar.red.popc.u32 %r0, 0, %p0;",
    ]
    forms += [
        "shfl.sync.bfly.b32 %r0, %r1, 1, 31, -1;",
        "vote.sync.ballot.b32 %r0, %p0, -1;",
        "activemask.b32 %r0;",
    ]
    forms += [
        "atom.global.add.u32 %r0, [%d0], %r1;",
        "red.shared.add.u32 [%r0], %r1;",
        "mov.u64 %d0, %clock64;",
    ]
    return forms


#: what the engine runs for one lane after the other. Whoever adds a wide form takes its line away.
LANE_BY_LANE = {
    "activemask.b32 %r0;",
    "atom.global.add.u32 %r0, [%d0], %r1;",
    "ld.local.b32 %r0, [%d0];",
    "ld.local.s16 %r0, [%d0];",
    "ld.local.u8 %r0, [%d0];",
    "mov.u64 %d0, %clock64;",
    "red.shared.add.u32 [%r0], %r1;",
    "st.local.b64 [%d0], %d1;",
}


def lane_instructions(code: str) -> int:
    text = f"{HEADER}.visible .entry k(.param .u64 a) {{ {REGISTERS} {code} ret; }}\n"
    return Module(text).lane_instructions()


def test_no_instruction_loses_its_wide_form() -> None:
    alone = lane_instructions("")
    forms = list_forms()
    lacking = {form for form in forms if lane_instructions(form) > alone}
    print(f"{len(forms) - len(lacking)} of {len(forms)} forms of instructions run warp-wide")
    assert lacking == LANE_BY_LANE


MEETING = """
.visible .entry k(.param .u64 out)
{
    .reg .b64 %d<3>; .reg .b32 %r<4>; .reg .pred %p;
    ld.param.u64 %d0, [out]; mov.u32 %r0, %tid.x; mad.wide.u32 %d1, %r0, 4, %d0;
    setp.lt.u32 %p, %r0, 5; @%p bra RARE;
JOIN:
    activemask.b32 %r1; st.global.u32 [%d1], %r1; ret;
RARE:
    add.u32 %r0, %r0, 1; bra JOIN;
}
"""


def test_lanes_meet_where_their_ways_join_wherever_that_stands() -> None:
    """Lane by lane, those who need not go to what stands behind everything would be ahead."""
    module = Module(HEADER + MEETING)
    out = module.alloc(128)
    for by_lane, masks in ((False, [0xFFFFFFFF] * 32), (True, [0x1F] * 5 + [0xFFFFFFE0] * 27)):
        module.by_lane(by_lane)
        module.run("k", 1, 32, "Q", out)
        assert module.read(out, "I", 32) == masks


WAITING = """
.visible .entry k(.param .u64 flag)
{
    .reg .b64 %d<3>; .reg .b32 %r<4>; .reg .pred %p;
    ld.param.u64 %d0, [flag]; mov.u32 %r0, %tid.x;
    setp.eq.u32 %p, %r0, 7; @%p bra JOIN;
L:  ld.volatile.global.u32 %r1, [%d0]; setp.eq.u32 %p, %r1, 0; @%p bra L;
JOIN:
    setp.eq.u32 %p, %r0, 7; @%p st.volatile.global.u32 [%d0], 1;
    add.u32 %r1, %r0, 1; setp.eq.u32 %p, %r0, 31; @%p st.global.u32 [%d0+4], %r1;
    ret;
}
"""


def test_a_lane_at_a_join_does_not_wait_for_those_who_wait_for_it() -> None:
    module = Module(HEADER + WAITING)
    flag = module.alloc(8)
    module.by_lane(False)
    module.run("k", 1, 32, "Q", flag)
    assert module.read(flag, "I", 2) == [1, 32]
