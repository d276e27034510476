"""Atomic operations, vectors, state spaces and warp-wide instructions, one by one."""

from __future__ import annotations

import struct

import pytest

from tests.sim.ptx_runner import ILLEGAL_ADDRESS, MISALIGNED, Module, PtxError

pytestmark = [pytest.mark.native, pytest.mark.usefixtures("engine")]

HEADER = ".version 8.6\n.target sm_90\n.address_size 64\n"


def module(code: str, before: str = "") -> Module:
    """A kernel k(data, out): %rd0 is data, %rd1 this thread's 8 bytes of out, %r0 the thread."""
    return Module(
        f"{HEADER}{before}.visible .entry k(.param .u64 data, .param .u64 out)\n{{\n"
        ".reg .b64 %rd<9>; .reg .b32 %r<12>; .reg .b16 %h<9>; .reg .pred %p<9>;\n"
        "ld.param.u64 %rd0, [data]; ld.param.u64 %rd1, [out];\n"
        f"mov.u32 %r0, %tid.x; mad.wide.u32 %rd1, %r0, 8, %rd1;\n{code}\nret;\n}}\n"
    )


def results(
    code: str, data: list[int], threads: int, before: str = ""
) -> tuple[list[int], list[int]]:
    """Data and out afterwards."""
    m = module(code, before)
    memory, out = m.upload("I", data), m.alloc(8 * threads)
    m.run("k", 1, threads, "QQ", memory, out)
    return m.read(memory, "I", len(data)), m.read(out, "Q", threads)


@pytest.mark.parametrize(
    ("op", "start", "operand", "want"),
    [
        ("add.u32", 5, 3, 8),
        ("and.b32", 0b1100, 0b1010, 0b1000),
        ("or.b32", 0b1100, 0b1010, 0b1110),
        ("xor.b32", 0b1100, 0b1010, 0b0110),
        ("exch.b32", 7, 9, 9),
        ("min.u32", 2**31, 5, 5),
        ("min.s32", 2**31, 5, 2**31),
        ("max.u32", 2**31, 5, 2**31),
        ("max.s32", 2**31, 5, 5),
        ("inc.u32", 5, 5, 0),
        ("inc.u32", 4, 5, 5),
        ("inc.u32", 9, 5, 0),
        ("dec.u32", 0, 5, 5),
        ("dec.u32", 9, 5, 5),
        ("dec.u32", 3, 5, 2),
        ("add.f32", 0x3F800000, 0x40000000, 0x40400000),
        ("add.noftz.f16x2", 0x3C003C00, 0x40003C00, 0x42004000),
    ],
)
def test_atomics_give_the_old_value(op: str, start: int, operand: int, want: int) -> None:
    code = f"mov.b32 %r1, {operand}; atom.relaxed.gpu.global.{op} %r2, [%rd0], %r1;"
    memory, out = results(code + "st.global.u32 [%rd1], %r2;", [start], 1)
    assert (memory, out) == ([want], [start])
    shared = (
        f"mov.b32 %r3, s; mov.b32 %r1, {start}; st.shared.u32 [%r3], %r1; mov.b32 %r1, {operand};"
        f"atom.shared.{op} %r2, [s], %r1; ld.shared.u32 %r4, [%r3+0]; st.global.u32 [%rd0], %r4;"
        "st.global.u32 [%rd1], %r2;"
    )
    assert results(shared, [0], 1, ".shared .u32 s;\n") == ([want], [start])


def test_compare_and_swap() -> None:
    code = "atom.global.cas.b32 %r1, [%rd0], %r0, 100; st.global.u32 [%rd1], %r1;"
    memory, out = results(code, [2], 4)
    assert (memory, out) == ([100], [2, 2, 2, 100])


def test_vectors_of_atomics_are_one_operation_for_each_element() -> None:
    # the results' registers are the sources, in another order
    code = (
        "mov.b32 %r1, 0f3F800000; mov.b32 %r2, 0f40000000;"
        "atom.global.relaxed.gpu.add.v2.f32 {%r2, %r1}, [%rd0+8], {%r1, %r2};"
        "red.global.add.v4.f32 [%rd0], {%r1, %r2, %r1, %r2};"
        "st.global.v2.u32 [%rd1], {%r1, %r2};"
    )
    ten, twenty = 0x41200000, 0x41A00000
    memory, out = results(code, [0, 0, ten, twenty], 1)
    assert out == [ten << 32 | twenty]
    assert memory == [twenty, ten, 0x41F80000, 0x42000000]  # 20, 10, 11 + 20, 22 + 10


def test_float_reductions_of_a_warp() -> None:
    code = (
        "cvt.rn.f32.s32 %r1, %r0; sub.f32 %r1, %r1, 0f41200000; setp.eq.u32 %p1, %r0, 3; @%p1 mov.b32 %r1, 0f7FC00000;"
        "redux.sync.min.f32 %r2, %r1, -1; redux.sync.max.abs.f32 %r3, %r1, -1; redux.sync.max.NaN.f32 %r4, %r1, -1;"
        "mov.b32 %r5, 0f80000000; @%p1 mov.b32 %r5, 0; redux.sync.max.f32 %r6, %r5, -1; xor.b32 %r4, %r4, %r6;"
        "setp.eq.u32 %p2, %r0, 5; selp.b32 %r2, %r4, %r2, %p2; st.global.v2.u32 [%rd1], {%r2, %r3};"
    )
    want = [0x41A80000 << 32 | 0xC1200000] * 32  # 21, -10
    want[5] = 0x41A80000 << 32 | 0x7FFFFFFF
    assert results(code, [0], 32)[1] == want


def test_vectors_and_signs() -> None:
    code = (
        "ld.global.v4.s8 {%r1, %r2, %r3, %r4}, [%rd0]; add.s32 %r1, %r1, %r4;"
        "ld.global.v2.u32 {%r5, %r6}, [%rd0+8]; st.global.v2.u32 [%rd0+8], {%r6, %r5};"
        "cvt.s64.s32 %rd2, %r1; st.global.u64 [%rd1], %rd2;"
    )
    memory, out = results(code, [0xF0000080, 0, 1, 2], 1)
    assert memory == [0xF0000080, 0, 2, 1]
    assert out == [2**64 - 128 - 16]


def test_generic_addresses_of_every_space() -> None:
    code = """
    .local .align 8 .b8 l[8];
    mov.b64 %rd2, l; cvta.local.u64 %rd2, %rd2; cvt.u64.u32 %rd3, 0; cvta.shared.u64 %rd3, %rd3;
    st.u32 [%rd2], 11; st.u32 [%rd3], 22; mov.u64 %rd4, c; ld.u32 %r1, [%rd4];
    cvta.to.local.u64 %rd5, %rd2; ld.local.u32 %r2, [%rd5]; ld.shared.u32 %r3, [s];
    isspacep.local %p0, %rd2; isspacep.shared %p1, %rd2; isspacep.global %p2, %rd0;
    isspacep.const %p3, %rd4;
    selp.u32 %r4, 1, 0, %p0; @%p1 add.u32 %r4, %r4, 2; @%p2 add.u32 %r4, %r4, 4;
    @%p3 add.u32 %r4, %r4, 8;
    st.global.v4.u32 [%rd0], {%r1, %r2, %r3, %r4};
    """
    before = ".const .u32 c = 33;\n.shared .u32 s;\n"
    assert results(code, [0] * 4, 1, before)[0] == [33, 11, 22, 13]


def test_sums_of_short_addresses_wrap() -> None:
    code = (
        "mov.u32 %r1, s; add.u32 %r1, %r1, -16; mov.u32 %r2, 7; st.shared.u32 [%r1+16], %r2;"
        "atom.shared.add.u32 %r3, [%r1+16], 5; ld.shared.v2.u32 {%r4, %r5}, [%r1+16];"
        "cp.async.ca.shared.global [%r1+24], [%rd0], 4; ld.shared.u32 %r6, [s+8];"
        "st.global.v4.u32 [%rd0], {%r3, %r4, %r5, %r6};"
    )
    before = ".shared .align 8 .b8 s[16];\n"
    assert results(code, [9, 0, 0, 0], 1, before)[0] == [7, 12, 0, 9]


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("ld.shared.u32 %r1, [s+64];", ILLEGAL_ADDRESS),
        ("mov.u32 %r1, -4; ld.shared.u32 %r2, [%r1];", ILLEGAL_ADDRESS),
        ("ld.shared.u64 %rd2, [s+4];", MISALIGNED),
        ("mov.u64 %rd2, 4096; ld.local.u32 %r1, [%rd2];", ILLEGAL_ADDRESS),
        ("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd0+8];", MISALIGNED),
        ("ld.global.u32 %r1, [%rd0+1099511627776];", ILLEGAL_ADDRESS),
        ("mov.u64 %rd2, data; cvta.param.u64 %rd2, %rd2; st.u32 [%rd2], 1;", ILLEGAL_ADDRESS),
        ("mov.u64 %rd2, data; ld.param.u64 %rd3, [%rd2+16];", ILLEGAL_ADDRESS),
        ("atom.global.add.u32 %r1, [%rd0+2], 1;", MISALIGNED),
    ],
)
def test_faults(code: str, status: int) -> None:
    with pytest.raises(PtxError) as caught:
        results(code, [0] * 8, 1, ".shared .align 8 .b8 s[64];\n")
    assert caught.value.status == status


LANES = range(32)


@pytest.mark.parametrize(
    ("mode", "by", "control", "source"),
    [
        ("up", 3, 0, lambda k: k - 3 if k >= 3 else None),
        ("down", 5, 31, lambda k: k + 5 if k + 5 < 32 else None),
        ("bfly", 17, 31, lambda k: k ^ 17),
        ("idx", 9, 31, lambda k: 9),  # noqa: ARG005
        ("up", 2, 0x1800, lambda k: k - 2 if k % 8 >= 2 else None),
        ("down", 2, 0x1807, lambda k: k + 2 if k % 8 < 6 else None),
        ("idx", 3, 0x1807, lambda k: k // 8 * 8 + 3),
    ],
)
def test_shuffles(mode: str, by: int, control: int, source: object) -> None:
    code = (
        f"mad.lo.u32 %r1, %r0, %r0, 7; shfl.sync.{mode}.b32 %r2|%p1, %r1, {by}, {control}, -1;"
        "selp.u32 %r3, 1, 0, %p1; st.global.v2.u32 [%rd1], {%r2, %r3};"
    )
    out = results(code, [0], 32)[1]
    for k in LANES:
        lane = source(k)  # type: ignore[operator]
        value = k if lane is None else lane
        assert struct.unpack("<II", struct.pack("<Q", out[k])) == (
            value * value + 7,
            lane is not None,
        )


def test_votes_matches_and_reductions() -> None:
    values = [k // 5 for k in LANES]
    code = """
    div.u32 %r1, %r0, 5; setp.gt.u32 %p0, %r1, 3;
    vote.sync.ballot.b32 %r2, %p0, -1; match.any.sync.b32 %r3, %r1, -1;
    vote.sync.any.pred %p1, !%p0, -1;
    redux.sync.max.u32 %r4, %r1, -1; redux.sync.add.s32 %r5, %r1, -1;
    match.all.sync.b32 %r6|%p2, %r4, -1; elect.sync %r7|%p3, -1;
    xor.b32 %r2, %r2, %r3; selp.u32 %r8, 0x10000, 0, %p1; @%p2 add.u32 %r8, %r8, 0x20000;
    @%p3 add.u32 %r8, %r8, 0x40000; add.u32 %r8, %r8, %r4; mad.lo.u32 %r8, %r5, 256, %r8;
    st.global.v2.u32 [%rd1], {%r2, %r8};
    """
    out = results(code, [0], 32)[1]
    ballot = sum((v > 3) << k for k, v in enumerate(values))
    for k in LANES:
        match = sum((v == values[k]) << n for n, v in enumerate(values))
        rest = 0x30000 + (0x40000 if k == 0 else 0) + max(values) + 256 * sum(values)
        assert struct.unpack("<II", struct.pack("<Q", out[k])) == (ballot ^ match, rest)


def test_divergent_halves_meet_again_at_their_masks() -> None:
    code = """
    setp.lt.u32 %p0, %r0, 16; @%p0 bra A;
    redux.sync.add.u32 %r1, %r0, 0xffff0000; bra E;
    A: redux.sync.add.u32 %r1, %r0, 0xffff;
    E: bar.sync 0; bar.red.popc.u32 %r2, 0, %p0; mad.lo.u32 %r1, %r2, 1000, %r1;
    st.global.u32 [%rd1], %r1;
    """
    out = results(code, [0], 32)[1]
    assert out == [16000 + 120] * 16 + [16000 + 376] * 16


def test_named_barriers_between_producer_and_consumer() -> None:
    code = """
    mov.u32 %r3, s; mad.lo.u32 %r1, %r0, 4, %r3; setp.lt.u32 %p0, %r0, 32; @%p0 bra P;
    bar.sync 1, 64; ld.shared.u32 %r2, [%r1+-128];
    st.global.u32 [%rd1], %r2; ret;
    P: add.u32 %r2, %r0, 1000; st.shared.u32 [%r1], %r2; bar.arrive 1, 64;
    """
    out = results(code, [0], 64, ".shared .align 4 .b8 s[128];\n")
    assert out[1][32:] == [1000 + k for k in LANES]
