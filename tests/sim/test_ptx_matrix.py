# ruff: noqa: ARG005 - a layout takes group, thread and element whether it looks at them or not
"""mma, wmma, ldmatrix, stmatrix and movmatrix: each element at the place that the ISA gives it, each"
" result exact."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import pytest

from tests.sim.ptx_models import from_float, round_exact, signed
from tests.sim.ptx_runner import SYNTAX, UNSUPPORTED, Module, PtxError, compile_ptx

pytestmark = pytest.mark.native

HEADER = ".version 8.6\n.target sm_90\n.address_size 64\n"
Place = Callable[[int, int, int], tuple[int, int]]


def number(bits: int, kind: str) -> Fraction:
    """The value of an element's bits; none of them is NaN or an infinity."""
    if kind in ("s8", "s4", "s32"):
        return Fraction(signed(bits, int(kind[1:])))
    if kind in ("u8", "u4", "b1"):
        return Fraction(bits)
    if kind == "f64":
        return Fraction(struct.unpack("<d", struct.pack("<Q", bits))[0])
    fraction, exponent = {
        "f16": (10, 5), "bf16": (7, 8), "tf32": (23, 8), "f32": (23, 8), "e4m3": (3, 4), "e5m2": (2, 5),
    }[kind]  # fmt: skip
    if kind == "tf32":
        bits &= ~0x1FFF
    bias = (1 << (exponent - 1)) - 1
    e, m = bits >> fraction & ((1 << exponent) - 1), bits & ((1 << fraction) - 1)
    scale = Fraction(2) ** (max(e, 1) - bias - fraction)
    value = (m + ((1 << fraction) if e else 0)) * scale
    return -value if bits >> (fraction + exponent) & 1 else value


WIDTHS = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "e4m3": 8, "e5m2": 8,
          "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1, "s32": 32}  # fmt: skip


def random_bits(rng: random.Random, kind: str) -> int:
    """Numbers near 1, so that no sum needs more digits than it may have; tf32 has bits that do not count."""
    sign = rng.randrange(2)
    if kind in ("f16", "bf16", "e4m3", "e5m2", "tf32", "f32"):
        fraction, exponent = {"f16": (10, 5), "bf16": (7, 8), "e4m3": (3, 4), "e5m2": (2, 5)}.get(
            kind, (23, 8)
        )
        e = (1 << (exponent - 1)) - 1 + rng.randrange(-2, 2)
        bits = sign << (fraction + exponent) | e << fraction | rng.getrandbits(fraction)
        return bits & ~0x3FF if kind == "f32" else bits
    if kind == "f64":
        return from_float(rng.randrange(-999, 999) / 8, 64)
    if kind == "s32":
        return rng.getrandbits(20)
    return rng.getrandbits(WIDTHS[kind])


@dataclass(frozen=True)
class Layout:
    """Where element `i` of a lane is, as the ISA's formulas have it: A and B from a0, a1, ..., C from c0,"
    " c1, ..."""

    a: Place
    b: Place
    c: Place
    n_a: int
    n_b: int
    n_c: int


def c_16x8(group: int, t: int, i: int) -> tuple[int, int]:
    return group + (0 if i < 2 else 8), t * 2 + (i & 1)


def c_8x8(group: int, t: int, i: int) -> tuple[int, int]:
    return group, t * 2 + (i & 1)


LAYOUTS: dict[tuple[str, int], Layout] = {
    # PTX ISA 9.7.14.5: the sections of the shapes, one after the other
    ("m8n8k4", 64): Layout(
        lambda g, t, i: (g, t), lambda g, t, i: (t, g), c_8x8, 1, 1, 2),
    ("m16n8k4", 64): Layout(
        lambda g, t, i: (g + 8 * i, t), lambda g, t, i: (t, g), c_16x8, 2, 1, 4),
    ("m16n8k8", 64): Layout(
        lambda g, t, i: (g + (0 if i in (0, 2) else 8), t + (0 if i < 2 else 4)),
        lambda g, t, i: (t + 4 * i, g), c_16x8, 4, 2, 4),
    ("m16n8k16", 64): Layout(
        lambda g, t, i: (g if i % 2 == 0 else g + 8, i // 2 * 4 + t),
        lambda g, t, i: (t + i * 4, g), c_16x8, 8, 4, 4),
    ("m16n8k4", 32): Layout(
        lambda g, t, i: (g if i == 0 else g + 8, t), lambda g, t, i: (t, g), c_16x8, 2, 1, 4),
    ("m16n8k8", 32): Layout(
        lambda g, t, i: (g if i in (0, 2) else g + 8, t if i < 2 else t + 4),
        lambda g, t, i: (t if i == 0 else t + 4, g), c_16x8, 4, 2, 4),
    ("m16n8k8", 16): Layout(
        lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1)),
        lambda g, t, i: (t * 2 + i, g), c_16x8, 4, 2, 4),
    ("m16n8k16", 16): Layout(
        lambda g, t, i: (g if 0 <= i < 2 or 4 <= i < 6 else g + 8, t * 2 + (i & 1) + (0 if i < 4 else 8)),
        lambda g, t, i: (t * 2 + (i & 1) + (0 if i < 2 else 8), g), c_16x8, 8, 4, 4),
    ("m8n8k16", 8): Layout(
        lambda g, t, i: (g, t * 4 + i), lambda g, t, i: (t * 4 + i, g), c_8x8, 4, 4, 2),
    ("m16n8k16", 8): Layout(
        lambda g, t, i: (g if i < 4 else g + 8, t * 4 + (i & 3)),
        lambda g, t, i: (t * 4 + i, g), c_16x8, 8, 4, 4),
    ("m16n8k32", 8): Layout(
        lambda g, t, i: (g if 0 <= i < 4 or 8 <= i < 12 else g + 8, t * 4 + (i & 3) + (0 if i < 8 else 16)),
        lambda g, t, i: (t * 4 + (i & 3) + (0 if i < 4 else 16), g), c_16x8, 16, 8, 4),
    ("m8n8k32", 4): Layout(
        lambda g, t, i: (g, t * 8 + i), lambda g, t, i: (t * 8 + i, g), c_8x8, 8, 8, 2),
    ("m16n8k32", 4): Layout(
        lambda g, t, i: (g if i < 8 else g + 8, t * 8 + (i & 7)),
        lambda g, t, i: (t * 8 + (i & 7), g), c_16x8, 16, 8, 4),
    ("m16n8k64", 4): Layout(
        lambda g, t, i: (g if 0 <= i < 8 or 16 <= i < 24 else g + 8, t * 8 + (i & 7) + (0 if i < 16 else 32)),
        lambda g, t, i: (t * 8 + (i & 7) + (0 if i < 8 else 32), g), c_16x8, 32, 16, 4),
    ("m8n8k128", 1): Layout(
        lambda g, t, i: (g, t * 32 + i), lambda g, t, i: (t * 32 + i, g), c_8x8, 32, 32, 2),
    ("m16n8k128", 1): Layout(
        lambda g, t, i: (g if i < 32 else g + 8, t * 32 + (i & 31)),
        lambda g, t, i: (t * 32 + i, g), c_16x8, 64, 32, 4),
    ("m16n8k256", 1): Layout(
        lambda g, t, i: (g if 0 <= i < 32 or 64 <= i < 96 else g + 8, t * 32 + (i & 31) + (0 if i < 64 else 128)),
        lambda g, t, i: (t * 32 + (i & 31) + (0 if i < 32 else 128), g), c_16x8, 128, 64, 4),
}  # fmt: skip

MMA = [
    *[f"m16n8k{k}.row.col.f32.f16.f16.f32" for k in (8, 16)],
    *[f"m16n8k{k}.row.col.f16.f16.f16.f16" for k in (8, 16)],
    *[f"m16n8k{k}.row.col.f32.bf16.bf16.f32" for k in (8, 16)],
    *[f"m16n8k{k}.row.col.f32.tf32.tf32.f32" for k in (4, 8)],
    "m8n8k4.row.col.f64.f64.f64.f64",
    *[f"m16n8k{k}.row.col.rn.f64.f64.f64.f64" for k in (4, 8, 16)],
    *[f"m16n8k{k}.row.col.f32.{a}.{b}.f32" for k in (16, 32) for a, b in (("e4m3", "e5m2"), ("e5m2", "e4m3"))],
    "m16n8k32.row.col.f16.e4m3.e4m3.f16",
    *[f"{s}.row.col{sat}.s32.{a}.{b}.s32" for s in ("m8n8k16", "m16n8k16", "m16n8k32")
      for sat, a, b in (("", "s8", "u8"), ("", "u8", "s8"), (".satfinite", "s8", "s8"))],
    *[f"{s}.row.col.s32.{a}.{b}.s32" for s in ("m8n8k32", "m16n8k32", "m16n8k64")
      for a, b in (("s4", "u4"), ("u4", "s4"))],
    *[f"{s}.row.col.s32.b1.b1.s32.{op}.popc" for s in ("m8n8k128", "m16n8k128", "m16n8k256") for op in ("xor", "and")],
]  # fmt: skip


def registers(
    rows: int, columns: int, kind: str, data: list[list[int]], place: Place, count: int
) -> list[list[int]]:
    """Each lane's registers, packed from the elements that the layout gives it."""
    assert len(data) == rows
    assert len(data[0]) == columns
    width, cell = WIDTHS[kind], max(32, WIDTHS[kind])
    lanes = []
    for lane in range(32):
        cells = [0] * (count * width // cell)
        for i in range(count):
            row, column = place(lane // 4, lane % 4, i)
            cells[i * width // cell] |= data[row][column] << i * width % cell
        lanes.append(cells)
    return lanes


def run_lanes(
    code: str, names: list[str], inputs: list[list[list[int]]], outputs: int, wide: bool
) -> list[list[int]]:
    """Gives each lane its registers by name, runs the code, and returns the registers d0, d1, ... of each lane."""
    size, register = (8, "rd") if wide else (4, "r")
    flat = [[v for cells in group for v in cells] for group in zip(*inputs, strict=True)]
    each = len(flat[0])
    loads, n = "", 0
    for name, group in zip(names, inputs, strict=True):
        for k in range(len(group[0])):
            loads += f"ld.global.b{8 * size} %{register}{name}{k}, [%at+{n * size}]; "
            n += 1
    declared = "".join(
        f".reg .b{8 * size} %{register}{name}<20>; " for name in ("a", "b", "c", "d")
    )
    stores = " ".join(
        f"st.global.b{8 * size} [%to+{k * size}], %{register}d{k};" for k in range(outputs)
    )
    module = Module(
        f"{HEADER}.visible .entry k(.param .u64 in, .param .u64 out)\n{{\n.reg .b64 %at, %to;"
        f" .reg .b32 %lane;\n{declared}"
        f"ld.param.u64 %at, [in]; ld.param.u64 %to, [out]; mov.u32 %lane, %laneid;\n"
        f"mad.wide.u32 %at, %lane, {each * size}, %at; mad.wide.u32 %to, %lane, {outputs * size}, %to;\n"
        f"{loads}\n{code}\n{stores}\nret;\n}}\n"
    )
    data = module.upload("Q" if wide else "I", [v for lane in flat for v in lane])
    out = module.alloc(32 * outputs * size)
    module.run("k", 1, 32, "QQ", data, out)
    got = module.read(out, "Q" if wide else "I", 32 * outputs)
    return [[int(v) for v in got[lane * outputs : (lane + 1) * outputs]] for lane in range(32)]


def vectors(*counts: int, wide: bool = False) -> str:
    """The operands d, a, b and c with so many registers each."""
    register = "rd" if wide else "r"
    return ", ".join(
        "{" + ", ".join(f"%{register}{name}{k}" for k in range(count)) + "}"
        for name, count in zip("dabc", counts, strict=True)
    )


def rounded(value: Fraction, kind: str) -> int:
    if kind == "s32":
        return int(value) & 0xFFFFFFFF
    return round_exact(value, kind)


@pytest.mark.parametrize("form", MMA)
def test_mma(form: str) -> None:
    shape, *rest = form.split(".")
    types = [t for t in rest if t in WIDTHS]
    d_kind, a_kind, b_kind, c_kind = types
    m, n, k = (int(v) for v in shape[1:].replace("n", " ").replace("k", " ").split())
    layout, wide = LAYOUTS[shape, WIDTHS[a_kind]], a_kind == "f64"
    rng = random.Random(form)
    a = [[random_bits(rng, a_kind) for _ in range(k)] for _ in range(m)]
    b = [[random_bits(rng, b_kind) for _ in range(n)] for _ in range(k)]
    c = [[random_bits(rng, c_kind) for _ in range(n)] for _ in range(m)]
    inputs = [
        registers(m, k, a_kind, a, layout.a, layout.n_a),
        registers(k, n, b_kind, b, layout.b, layout.n_b),
        registers(m, n, c_kind, c, layout.c, layout.n_c),
    ]
    count = layout.n_c * WIDTHS[d_kind] // max(32, WIDTHS[d_kind])
    operands = vectors(count, *(len(group[0]) for group in inputs), wide=wide)
    code = f"mma.sync.aligned.{form} {operands};"
    got = run_lanes(code, ["a", "b", "c"], inputs, count, wide)
    want: list[list[int]] = []
    for row in range(m):
        want.append([])
        for column in range(n):
            total = number(c[row][column], c_kind)
            for x in range(k):
                if a_kind == "b1":
                    total += (
                        a[row][x] & b[x][column] if ".and." in form else a[row][x] ^ b[x][column]
                    )
                else:
                    total += number(a[row][x], a_kind) * number(b[x][column], b_kind)
            want[-1].append(rounded(total, d_kind))
    assert got == registers(m, n, d_kind, want, layout.c, layout.n_c)


def mma_int(suffix: str, a: int, b: int, c: int) -> int:
    """d0 of lane 0 where every element of A, B and C is the same."""
    inputs = [[[a * 0x01010101] * 2] * 32, [[b * 0x01010101]] * 32, [[c & 0xFFFFFFFF] * 4] * 32]
    code = f"mma.sync.aligned.m16n8k16.row.col{suffix}.s32.s8.s8.s32 {vectors(4, 2, 1, 4)};"
    return run_lanes(code, ["a", "b", "c"], inputs, 4, False)[0][0]


def test_integer_sums_wrap_or_saturate() -> None:
    assert mma_int("", 127, 127, 2**31 - 1) == (2**31 - 1 + 16 * 127 * 127) & 0xFFFFFFFF
    assert mma_int(".satfinite", 127, 127, 2**31 - 1) == 2**31 - 1
    assert mma_int(".satfinite", 0x80, 127, -(2**31)) == 2**31
    assert mma_int(".satfinite", 1, 1, 5) == 21


def test_rounding_of_half_sums_happens_once() -> None:
    # 2048 + 1 + 1 ... in f16: each addition alone would be lost
    one, big = 0x3C00, 0x6800
    inputs = [
        [[one | one << 16] * 4] * 32,
        [[one | one << 16] * 2] * 32,
        [[big | big << 16] * 2] * 32,
    ]
    code = f"mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {vectors(2, 4, 2, 2)};"
    want = round_exact(Fraction(2048 + 16), "f16")
    assert run_lanes(code, ["a", "b", "c"], inputs, 2, False) == [[want | want << 16] * 2] * 32


def test_directions_of_double_precision() -> None:
    one, tiny = 0x3FF0000000000000, 0x3C30000000000000
    for mode, want in (("rz", one), ("rp", one + 4), ("rm", one), ("rn", one)):
        inputs = [[[tiny]] * 32, [[one]] * 32, [[one] * 2] * 32]
        code = f"mma.sync.aligned.m8n8k4.row.col.{mode}.f64.f64.f64.f64 {vectors(2, 1, 1, 2, wide=True)};"
        assert run_lanes(code, ["a", "b", "c"], inputs, 2, True)[5] == [want, want], mode


SHARED = """
.shared .align 16 .b8 s[512];
.visible .entry k(.param .u64 in, .param .u64 out)
{{
    .reg .b64 %rd<9>; .reg .b32 %r<20>; .reg .pred %p;
    ld.param.u64 %rd0, [in]; ld.param.u64 %rd1, [out]; mov.u32 %r0, %laneid; mov.u32 %r1, s;
    shl.b32 %r2, %r0, 4; add.u32 %r3, %r1, %r2; cvt.u64.u32 %rd2, %r2; add.u64 %rd3, %rd0, %rd2;
    add.u64 %rd4, %rd1, %rd2;
    {code}
    ret;
}}
"""


def halves(seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.getrandbits(16) for _ in range(256)]


def run_shared(code: str, data: list[int]) -> list[int]:
    """Lane n has row n of 16 bytes, at %r3 in shared memory and at %rd3 and %rd4 in the input and the output."""
    module = Module(HEADER + SHARED.format(code=code))
    source, out = module.upload("H", data), module.alloc(512)
    module.run("k", 1, 32, "QQ", source, out)
    return [int(v) for v in module.read(out, "H", 256)]


LOAD_ROW = "ld.global.v4.b32 {%r4,%r5,%r6,%r7}, [%rd3]; st.shared.v4.b32 [%r3], {%r4,%r5,%r6,%r7}; bar.warp.sync -1;"


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix(count: int, transposed: bool) -> None:
    data, names = halves(count), ["%r10", "%r11", "%r12", "%r13"][:count]
    trans = ".trans" if transposed else ""
    code = (
        f"{LOAD_ROW} mov.b32 %r10, 0; mov.b32 %r11, 0; mov.b32 %r12, 0; mov.b32 %r13, 0;"
        f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{', '.join(names)}}}, [%r3];"
        "st.global.v4.b32 [%rd4], {%r10, %r11, %r12, %r13};"
    )
    want = []
    for lane in range(32):
        for n in range(4):
            for i in range(2):
                row, column = lane // 4, lane % 4 * 2 + i
                if transposed:
                    row, column = column, row
                want.append(data[(8 * n + row) * 8 + column] if n < count else 0)
    assert run_shared(code, data) == want


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_stmatrix(count: int, transposed: bool) -> None:
    data, names = halves(count + 10), ["%r4", "%r5", "%r6", "%r7"][:count]
    trans = ".trans" if transposed else ""
    code = (
        "ld.global.v4.b32 {%r4,%r5,%r6,%r7}, [%rd3]; cvta.shared.u64 %rd5, %rd5; cvt.u64.u32 %rd6, %r3;"
        " cvta.shared.u64 %rd6, %rd6;"
        f"stmatrix.sync.aligned.m8n8.x{count}{trans}.b16 [%rd6], {{{', '.join(names)}}}; bar.warp.sync -1;"
        "ld.shared.v4.b32 {%r10,%r11,%r12,%r13}, [%r3]; st.global.v4.b32 [%rd4], {%r10,%r11,%r12,%r13};"
    )
    want = [0] * 256
    for lane in range(32):
        for n in range(count):
            for i in range(2):
                row, column = lane // 4, lane % 4 * 2 + i
                if transposed:
                    row, column = column, row
                want[(8 * n + row) * 8 + column] = data[lane * 8 + 2 * n + i]
    assert run_shared(code, data) == want


def test_movmatrix_transposes() -> None:
    data = halves(30)
    code = "ld.global.b32 %r4, [%rd3]; movmatrix.sync.aligned.m8n8.trans.b16 %r10, %r4; st.global.b32 [%rd4], %r10;"
    got = run_shared(code, data)
    matrix = [
        [data[(4 * row + column // 2) * 8 + column % 2] for column in range(8)] for row in range(8)
    ]
    for lane in range(32):
        for i in range(2):
            assert got[lane * 8 + i] == matrix[lane % 4 * 2 + i][lane // 4]


def test_lanes_of_a_small_block_have_zero_beyond_them() -> None:
    """A block of eight threads: what the others would hold counts as zero, and nothing is read for them."""
    code = "mov.b32 %r4, 0x3c003c00; mov.b32 %r5, 0;"
    code += (
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%r10,%r11,%r12,%r13}, {%r4,%r4}, {%r4},"
    )
    code += " {%r5,%r5,%r5,%r5};"
    code += "st.global.v4.b32 [%rd4], {%r10,%r11,%r12,%r13};"
    module = Module(HEADER + SHARED.format(code=code))
    source, out = module.upload("H", [0] * 256), module.alloc(512)
    module.run("k", 1, 8, "QQ", source, out)
    # B has columns 0 and 1 only
    assert module.read(out, "f", 4) == [8.0, 8.0, 8.0, 8.0]
    assert module.read(out + 16, "f", 4) == [0.0] * 4


def test_addresses_of_matrices_are_checked() -> None:
    for at, message in (
        ("%r3+8", "misaligned"),
        ("%r3+512", "illegal address .* in shared memory"),
    ):
        module = Module(
            HEADER
            + SHARED.format(
                code=f"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r4,%r5,%r6,%r7}}, [{at}];"
            )
        )
        with pytest.raises(PtxError, match=message):
            module.run("k", 1, 32, "QQ", 0, 0)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (UNSUPPORTED, "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%r0}, {%r1}, {%r2}, {%r3};"),
        (UNSUPPORTED, "mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32 {%r0}, {%r1}, {%r2}, {%r3};"),
        (UNSUPPORTED, "mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32 {%r0}, {%r1}, {%r2}, {%r3};"),
        (UNSUPPORTED, "mma.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16 {%r0}, {%r1}, {%r2}, {%r3};"),
        (UNSUPPORTED, "mma.sync.aligned.m16n8k16.row.col.satfinite.f32.f16.f16.f32 {%r0}, {%r1}, {%r2}, {%r3};"),
        (UNSUPPORTED, "mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.or.popc {%r0}, {%r1}, {%r2}, {%r3};"),
        (UNSUPPORTED, "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r0}, {%r1}, {%r2}, {%r3};"),
        (UNSUPPORTED, "wgmma.fence.sync.aligned;"),
        (UNSUPPORTED, "wmma.load.a.sync.aligned.m16n16k16.global.f16 {%r0}, [%rd0];"),
        (UNSUPPORTED, "wmma.load.b.sync.aligned.row.m8n8k32.global.s4 {%r0}, [%rd0];"),
        (UNSUPPORTED, "wmma.load.c.sync.aligned.row.m16n16k8.global.s32 {%r0}, [%rd0];"),
        (UNSUPPORTED, "wmma.load.a.sync.aligned.row.m16n16k16.local.f16 {%r0}, [%rd0];"),
        (UNSUPPORTED, "ldmatrix.sync.aligned.m8n8.x3.shared.b16 {%r0,%r1,%r2}, [%r3];"),
        (UNSUPPORTED, "ldmatrix.sync.aligned.m8n8.x1.global.b16 {%r0}, [%rd3];"),
        (UNSUPPORTED, "movmatrix.sync.aligned.m8n8.b16 %r0, %r1;"),
        (SYNTAX, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r0}, {%r1}, {%r2}, {%r3};"),
        (SYNTAX, "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%r0,%r1}, {%rd1}, {%rd2}, {%rd3,%rd4};"),
        (SYNTAX, "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r0,%r1,%r2,%r3}, [%rd0];"),
        (SYNTAX, "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r0}, [%r3];"),
        (SYNTAX, "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, %r3;"),
        (SYNTAX, "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r3], {%rd0};"),
    ],
)  # fmt: skip
def test_other_forms_are_refused(status: int, code: str) -> None:
    with pytest.raises(PtxError, match=r"line \d+:.*") as caught:
        Module(
            HEADER
            + ".visible .entry k() {.reg .b32 %r<9>; .reg .b64 %rd<9>;\n"
            + code
            + "\nret; }\n"
        )
    assert caught.value.status == status
    assert "line 5: " in str(caught.value)


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("name", "kinds", "shape", "result"),
    [
        ("half_to_float", "f16 f32", (16, 16, 16), "row"),
        ("half_to_half", "f16 f16", (32, 8, 16), "col"),
        ("half_wide", "f16 f16", (8, 32, 16), "row"),
        ("bfloat", "bf16 f32", (8, 32, 16), "row"),
        ("bfloat_tall", "bf16 f32", (32, 8, 16), "col"),
        ("signed_bytes", "s8 s32", (16, 16, 16), "row"),
        ("unsigned_bytes", "u8 s32", (32, 8, 16), "row"),
        ("wide_bytes", "s8 s32", (8, 32, 16), "col"),
        ("doubles", "f64 f64", (8, 8, 4), "col"),
        ("tensor_floats", "tf32 f32", (16, 16, 8), "row"),
        ("nibbles", "s4 s32", (8, 8, 32), "row"),
        ("bits", "b1 s32", (8, 8, 128), "row"),
    ],
)
def test_wmma_as_nvcc_compiles_it(
    name: str, kinds: str, shape: tuple[int, int, int], result: str
) -> None:
    """d = 2 * (a * b + c), a by rows, b by columns with a stride of its own, c and d by rows or columns."""
    kind, sum_kind = kinds.split()
    m, n, k = shape
    rng, width = random.Random(name), WIDTHS[kind]
    a = [[random_bits(rng, kind) for _ in range(k)] for _ in range(m)]
    b = [[random_bits(rng, kind) for _ in range(n)] for _ in range(k)]
    c = [[random_bits(rng, sum_kind) for _ in range(n)] for _ in range(m)]
    module = Module(compile_ptx("matrix.cu"))

    def place(lines: list[list[int]], bits: int, stride: int) -> int:
        whole = 0
        for row, line in enumerate(lines):
            for column, value in enumerate(line):
                whole |= value << (row * stride + column) * bits
        size = len(lines) * stride * bits // 8
        address = module.alloc(size)
        module.write(address, whole.to_bytes(size, "little"))
        return address

    by_row = result == "row"
    pad = 0 if width < 8 else 16
    source_a, source_b = (
        place(a, width, k),
        place([*map(list, zip(*b, strict=True))], width, k + pad),
    )
    source_c = place(
        c if by_row else [*map(list, zip(*c, strict=True))], WIDTHS[sum_kind], n if by_row else m
    )
    out = module.alloc(m * n * 8)
    module.run(name, 1, 32, "QQQQ", source_a, source_b, source_c, out)
    code = {"f32": "I", "f16": "H", "s32": "I", "f64": "Q"}[sum_kind]
    got = [int(v) for v in module.read(out, code, m * n)]
    for row in range(m):
        for column in range(n):
            total = number(c[row][column], sum_kind)
            for x in range(k):
                if kind == "b1":
                    total += a[row][x] & b[x][column]
                else:
                    total += number(a[row][x], kind) * number(b[x][column], kind)
            want = rounded(2 * number(rounded(total, sum_kind), sum_kind), sum_kind)
            assert got[row * n + column if by_row else column * m + row] == want, (row, column)
