# ruff: noqa: ARG005 - a model takes three operands whether it looks at them or not
"""Single instructions on edge values and random ones, against independent models."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.ptx_models import (
    FORMATS,
    Model,
    bit_insert,
    first_bit,
    float_exact,
    from_float,
    integer_models,
    round_exact,
    signed,
    to_float,
    word_models,
)
from tests.sim.ptx_runner import Module

pytestmark = [pytest.mark.native, pytest.mark.usefixtures("engine")]

HEADER = ".version 8.6\n.target sm_90\n.address_size 64\n"
BODY = """
.visible .entry {name}(.param .u64 in, .param .u64 out)
{{
    .reg .b64 %rd<16>; .reg .b32 %r<16>; .reg .b16 %h<16>; .reg .pred %p<8>;
    mov.u32 %r0, %tid.x;
    ld.param.u64 %rd0, [in];
    ld.param.u64 %rd1, [out];
    mad.wide.u32 %rd2, %r0, 24, %rd0;
    mad.wide.u32 %rd3, %r0, 8, %rd1;
    ld.global.u64 %rd4, [%rd2];
    ld.global.u64 %rd5, [%rd2+8];
    ld.global.u64 %rd6, [%rd2+16];
    cvt.u32.u64 %r4, %rd4; cvt.u32.u64 %r5, %rd5; cvt.u32.u64 %r6, %rd6;
    cvt.u16.u64 %h4, %rd4; cvt.u16.u64 %h5, %rd5; cvt.u16.u64 %h6, %rd6;
    mov.u64 %rd7, 0;
    {code}
    st.global.u64 [%rd3], %rd7;
    ret;
}}
"""
EDGES = [0, 1, 2, 3, 7, 31, 32, 33, 63, 64, 100, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x10000]
EDGES += [2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 0xDEADBEEF12345678]
REGISTERS = {16: "%h", 32: "%r", 64: "%rd"}


def evaluate(codes: list[str], inputs: list[tuple[int, int, int]]) -> list[list[int]]:
    """Results of each code, %rd7, for each triple in a, b, c = registers 4, 5, 6 of every width."""
    text = HEADER + "".join(BODY.format(name=f"k{n}", code=c) for n, c in enumerate(codes))
    module = Module(text)
    data = module.upload("Q", [v for triple in inputs for v in triple])
    out = module.alloc(8 * len(inputs))
    results = []
    for n in range(len(codes)):
        for start in range(0, len(inputs), 1024):
            block = min(1024, len(inputs) - start)
            module.run(f"k{n}", 1, block, "QQ", data + 24 * start, out + 8 * start)
        results.append(module.read(out, "Q", len(inputs)))
    module.close()
    return results


def triples(values: list[int], seed: int, count: int = 400) -> list[tuple[int, int, int]]:
    rng = random.Random(seed)
    pairs = [(a, b, rng.choice(values)) for a in values for b in values]
    return pairs + [
        (rng.getrandbits(64), rng.getrandbits(64), rng.getrandbits(64)) for _ in range(count)
    ]


def sources(name: str, bits: int) -> str:
    count = {"mad": 3, "sad": 3, "shf": 3, "bfe": 3, "prm": 3, "dp4": 3, "fma": 3}.get(name[:3], 2)
    if name.split(".")[0] in ("abs", "neg", "not", "cnot", "popc", "clz", "brev", "bfind"):
        count = 1
    return ", ".join(f"{REGISTERS[bits]}{4 + k}" for k in range(count))


def widen(bits: int, register: int) -> str:
    if bits == 64:
        return ""
    return f"cvt.u64.u{bits} %rd7, {REGISTERS[bits]}{register};"


def check(models: dict[str, Model], bits: int, seed: int) -> None:
    inputs = triples(EDGES, seed)
    target = f"{REGISTERS[bits]}7"
    codes = [f"{name} {target}, {sources(name, bits)}; {widen(bits, 7)}" for name in models]
    mask = (1 << bits) - 1
    for (name, model), got in zip(models.items(), evaluate(codes, inputs), strict=True):
        for triple, value in zip(inputs, got, strict=True):
            assert value == model(*triple) & mask, (name, [hex(v) for v in triple])


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_integer_arithmetic(bits: int) -> None:
    check(integer_models(bits), bits, bits)


def test_words() -> None:
    check(word_models(), 32, 1)


def test_wide_products_and_shifts_of_64_bits() -> None:
    inputs = triples(EDGES, 5)
    cases: dict[str, Model] = {
        "mul.wide.u32 %rd7, %r4, %r5;": lambda a, b, c: (a % 2**32) * (b % 2**32),
        "mul.wide.s32 %rd7, %r4, %r5;": lambda a, b, c: signed(a, 32) * signed(b, 32),
        "mad.wide.u32 %rd7, %r4, %r5, %rd6;": lambda a, b, c: (a % 2**32) * (b % 2**32) + c,
        "mad.wide.s32 %rd7, %r4, %r5, %rd6;": lambda a, b, c: signed(a, 32) * signed(b, 32) + c,
        "mul.wide.s16 %r7, %h4, %h5; cvt.s64.s32 %rd7, %r7;": lambda a, b, c: (
            signed(a, 16) * signed(b, 16)
        ),
        "shl.b64 %rd7, %rd4, %r5;": lambda a, b, c: a << min(b % 2**32, 64),
        "shr.u64 %rd7, %rd4, %r5;": lambda a, b, c: a >> min(b % 2**32, 64),
        "shr.s64 %rd7, %rd4, %r5;": lambda a, b, c: signed(a, 64) >> min(b % 2**32, 64),
        "popc.b64 %r7, %rd4; cvt.u64.u32 %rd7, %r7;": lambda a, b, c: a.bit_count(),
        "clz.b64 %r7, %rd4; cvt.u64.u32 %rd7, %r7;": lambda a, b, c: 64 - a.bit_length(),
        "brev.b64 %rd7, %rd4;": lambda a, b, c: int(f"{a:064b}"[::-1], 2),
        "bfind.s64 %r7, %rd4; cvt.s64.s32 %rd7, %r7;": lambda a, b, c: first_bit(a, 64, True),
        "bfi.b32 %r7, %r4, %r5, %r6, %r4; cvt.u64.u32 %rd7, %r7;": lambda a, b, c: bit_insert(
            a, b % 2**32, c, a, 32
        ),
        "bfi.b64 %rd7, %rd4, %rd5, %r6, %r4;": lambda a, b, c: bit_insert(a, b, c, a, 64),
    }
    for (code, model), got in zip(cases.items(), evaluate(list(cases), inputs), strict=True):
        for triple, value in zip(inputs, got, strict=True):
            assert value == model(*triple) % 2**64, (code, [hex(v) for v in triple])


@pytest.mark.parametrize("table", [0x00, 0xFF, 0x80, 0xFE, 0x96, 0xCA, 0xE8, 0x2D])
def test_lop3(table: int) -> None:
    inputs = triples(EDGES, table, 50)
    code = f"lop3.b32 %r7, %r4, %r5, %r6, 0x{table:x}; cvt.u64.u32 %rd7, %r7;"
    for (a, b, c), value in zip(inputs, evaluate([code], inputs)[0], strict=True):
        want = sum(
            (table >> ((a >> k & 1) * 4 + (b >> k & 1) * 2 + (c >> k & 1)) & 1) << k
            for k in range(32)
        )
        assert value == want


@given(st.lists(st.tuples(*[st.integers(0, 2**64 - 1)] * 3), min_size=1, max_size=64))
@settings(max_examples=30, deadline=None)
def test_carry_chains_make_wide_integers(inputs: list[tuple[int, int, int]]) -> None:
    halves = "mov.b64 {%r8, %r9}, %rd4; mov.b64 {%r10, %r11}, %rd5;"
    join = "mov.b64 %rd7, {%r12, %r13};"
    codes = [
        f"{halves} add.cc.u32 %r12, %r8, %r10; addc.u32 %r13, %r9, %r11; {join}",
        f"{halves} sub.cc.u32 %r12, %r8, %r10; subc.u32 %r13, %r9, %r11; {join}",
        f"{halves} mul.lo.u32 %r12, %r8, %r10; mul.hi.u32 %r13, %r8, %r10;"
        f"mad.lo.cc.u32 %r12, %r6, 1, %r12; madc.hi.u32 %r13, %r8, 0, %r13; {join}",
        "add.cc.u64 %rd8, %rd4, %rd5; addc.u64 %rd7, 0, 0;",
        "sub.cc.u64 %rd8, %rd4, %rd5; subc.u64 %rd7, 0, 0;",
        "sub.cc.u64 %rd8, %rd4, %rd5; addc.u64 %rd7, 0, 0;",
        "sub.cc.u64 %rd8, %rd4, %rd5; subc.cc.u64 %rd8, 0, 0; addc.u64 %rd7, 0, 0;",
    ]
    sums, differences, products, carries, borrows, whole, chained = evaluate(codes, inputs)
    for k, (a, b, c) in enumerate(inputs):
        assert sums[k] == (a + b) % 2**64
        assert differences[k] == (a - b) % 2**64
        assert products[k] == ((a % 2**32) * (b % 2**32) + c % 2**32) % 2**64
        assert carries[k] == (a + b) >> 64
        assert borrows[k] == (2**64 - 1 if a < b else 0)
        assert whole[k] == chained[k] == (a >= b)


COMPARE = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_integer_comparisons(bits: int) -> None:
    inputs = triples(EDGES, 8, 100)
    register = REGISTERS[bits]
    names = [(op, kind) for op in COMPARE for kind in "us"]
    codes = [
        f"setp.{op}.{kind}{bits} %p1, {register}4, {register}5; selp.u64 %rd7, 1, 0, %p1;"
        for op, kind in names
    ]
    for (op, kind), got in zip(names, evaluate(codes, inputs), strict=True):
        for (a, b, _), value in zip(inputs, got, strict=True):
            x, y = (signed(v, bits) if kind == "s" else v % (1 << bits) for v in (a, b))
            assert value == COMPARE[op](x, y), (op, kind, a, b)


def test_combined_comparison_and_both_predicates() -> None:
    inputs = triples(EDGES, 9, 50)
    codes = [
        f"setp.gt.u64 %p3, %rd6, 100; setp.lt.{op}.u64 %p1|%p2, %rd4, %rd5, {neg}%p3;"
        "selp.u64 %rd7, 1, 0, %p1; @%p2 add.u64 %rd7, %rd7, 2;"
        for op in ("and", "or", "xor")
        for neg in ("", "!")
    ]
    results = evaluate(codes, inputs)
    for n, (op, neg) in enumerate((o, g) for o in ("and", "or", "xor") for g in (False, True)):
        for (a, b, c), value in zip(inputs, results[n], strict=True):
            t, q = a < b, (c > 100) != neg
            f = {"and": lambda x, y: x and y, "or": lambda x, y: x or y, "xor": lambda x, y: x != y}
            assert value == f[op](t, q) + 2 * f[op](not t, q)


FLOATS = [0.0, -0.0, 1.0, -1.0, 1.5, 3.0, 0.1, 1e-3, 1e10, -7.25, math.inf, -math.inf, math.nan]
F32_EDGES = [from_float(v, 32) for v in FLOATS] + [1, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x3F7FFFFF]
F64_EDGES = [from_float(v, 64) for v in FLOATS] + [1, 2**52 - 1, 2**52, 0x7FEFFFFFFFFFFFFF]


def float_inputs(bits: int, seed: int) -> list[tuple[int, int, int]]:
    rng = random.Random(seed)
    edges = F32_EDGES if bits == 32 else F64_EDGES
    inputs = [(a, b, rng.choice(edges)) for a in edges for b in edges]
    bias, fraction = (127, 23) if bits == 32 else (1023, 52)
    for _ in range(300):
        near = bias + rng.randint(-40, 40)
        inputs.append(
            tuple(
                rng.getrandbits(1) << (bits - 1)
                | (near + rng.randint(-3, 3)) << fraction
                | rng.getrandbits(fraction)
                for _ in range(3)
            )
        )
    inputs += [tuple(rng.getrandbits(bits) for _ in range(3)) for _ in range(200)]
    return inputs


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("op", ["add", "sub", "mul", "fma", "div"])
def test_float_arithmetic_is_correctly_rounded(bits: int, op: str) -> None:
    inputs = float_inputs(bits, bits)
    register, modes = REGISTERS[bits], ["rn", "rz", "rm", "rp"]
    operands = 3 if op == "fma" else 2
    args = ", ".join(f"{register}{4 + k}" for k in range(operands))
    codes = [f"{op}.{mode}.f{bits} {register}7, {args}; {widen(bits, 7)}" for mode in modes]
    checked = 0
    for mode, got in zip(modes, evaluate(codes, inputs), strict=True):
        for triple, value in zip(inputs, got, strict=True):
            values = [to_float(v, bits) for v in triple[:operands]]
            want = float_exact(f"f{bits}", op, values, mode)
            if want is not None:
                checked += 1
                assert value == want, (op, mode, values, hex(value), hex(want))
            elif any(map(math.isnan, values)):
                assert math.isnan(to_float(value, bits))
                assert bits == 64 or value == 0x7FFFFFFF
    assert checked > 1000


@pytest.mark.parametrize("bits", [32, 64])
def test_float_comparisons(bits: int) -> None:
    inputs = float_inputs(bits, 3)
    register = REGISTERS[bits]
    names = list(COMPARE) + [op + "u" for op in COMPARE] + ["num", "nan"]
    names[names.index("neu")], names[names.index("equ")] = "neu", "equ"
    codes = [
        f"setp.{op}.f{bits} %p1, {register}4, {register}5; selp.u64 %rd7, 1, 0, %p1;"
        for op in names
    ]
    for op, got in zip(names, evaluate(codes, inputs), strict=True):
        for (a, b, _), value in zip(inputs, got, strict=True):
            x, y = to_float(a, bits), to_float(b, bits)
            unordered = math.isnan(x) or math.isnan(y)
            if op in ("num", "nan"):
                want = unordered == (op == "nan")
            elif op in COMPARE:
                want = not unordered and COMPARE[op](x, y)
            else:
                want = unordered or COMPARE[op[:2]](x, y)
            assert value == want, (op, x, y)


def test_flush_saturate_and_minmax() -> None:
    tiny, small = 0x00000001, 0x80400000
    one, nan, minus_zero = from_float(1.0, 32), 0x7FC00001, 0x80000000
    cases = [
        ("add.ftz.f32 %r7, %r4, %r5;", (tiny, small), minus_zero & 0),
        ("mul.ftz.f32 %r7, %r4, %r5;", (small, one), minus_zero),
        ("add.f32 %r7, %r4, %r5;", (tiny, 0), tiny),
        ("add.sat.f32 %r7, %r4, %r5;", (one, one), one),
        ("sub.sat.f32 %r7, %r4, %r5;", (0, one), 0),
        ("add.sat.f32 %r7, %r4, %r5;", (nan, one), 0),
        ("min.f32 %r7, %r4, %r5;", (nan, one), one),
        ("min.NaN.f32 %r7, %r4, %r5;", (nan, one), 0x7FFFFFFF),
        ("max.f32 %r7, %r4, %r5;", (0, minus_zero), 0),
        ("min.f32 %r7, %r4, %r5;", (0, minus_zero), minus_zero),
        ("max.f32 %r7, %r4, %r5;", (nan, nan), 0x7FFFFFFF),
        ("copysign.f32 %r7, %r4, %r5;", (minus_zero, one), from_float(-1.0, 32)),
        ("rsqrt.approx.f32 %r7, %r4;", (minus_zero, 0), 0xFF800000),
        ("lg2.approx.f32 %r7, %r4;", (0, 0), 0xFF800000),
        ("ex2.approx.f32 %r7, %r4;", (0xFF800000, 0), 0),
        ("rcp.rn.f32 %r7, %r4;", (minus_zero, 0), 0xFF800000),
        ("sqrt.rn.f32 %r7, %r4;", (from_float(-1.0, 32), 0), 0x7FFFFFFF),
        ("sqrt.rn.f32 %r7, %r4;", (from_float(2.25, 32), 0), from_float(1.5, 32)),
        ("abs.ftz.f32 %r7, %r4;", (small, 0), 0),
        ("neg.f32 %r7, %r4;", (one, 0), from_float(-1.0, 32)),
    ]
    for code, (a, b), want in cases:
        assert evaluate([code + widen(32, 7)], [(a, b, 0)])[0] == [want], code


def int_of(value: float, low: int, high: int, mode: str) -> int:
    """float to integer: rounded, then clamped; NaN gives 0."""
    if math.isnan(value):
        return 0
    if math.isinf(value):
        return high if value > 0 else low
    rounded = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}[mode](value)
    return max(low, min(high, rounded))


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("mode", ["rni", "rzi", "rmi", "rpi"])
def test_float_to_integer(bits: int, mode: str) -> None:
    extra = [0.5, 1.5, 2.5, -0.5, -1.5, 2.0**31, 2.0**32, 2.0**63, 2.0**64, -(2.0**31), -(2.0**63)]
    inputs = float_inputs(bits, 7) + [(from_float(v, bits), 0, 0) for v in extra]
    register = REGISTERS[bits]
    kinds = [(k, w) for k in "us" for w in (16, 32, 64)]
    codes = [
        f"cvt.{mode}.{k}{w}.f{bits} {REGISTERS[w]}7, {register}4; {widen(w, 7)}" for k, w in kinds
    ]
    for (kind, width), got in zip(kinds, evaluate(codes, inputs), strict=True):
        low, high = (
            (-(1 << width - 1), (1 << width - 1) - 1) if kind == "s" else (0, (1 << width) - 1)
        )
        for (a, _, _), value in zip(inputs, got, strict=True):
            x = to_float(a, bits)
            want = int_of(x, low, high, mode) % (1 << width)
            if math.isnan(x) and 64 in (bits, width):
                want = 1 << width - 1
            assert value == want, (kind, width, x)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_integer_to_float(mode: str) -> None:
    inputs = triples(EDGES, 11, 200)
    forms = [(k, w, f) for k in "us" for w in (32, 64) for f in (32, 64)]
    codes = [
        f"cvt.{mode}.f{f}.{k}{w} {REGISTERS[f]}7, {REGISTERS[w]}4; {widen(f, 7)}"
        for k, w, f in forms
    ]
    for (kind, width, size), got in zip(forms, evaluate(codes, inputs), strict=True):
        for (a, _, _), value in zip(inputs, got, strict=True):
            x = signed(a, width) if kind == "s" else a % (1 << width)
            assert value == round_exact(Fraction(x), f"f{size}", mode), (kind, width, size, x)


@pytest.mark.parametrize("target", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("mode", ["rn", "rz"])
def test_narrowing_floats(target: str, mode: str) -> None:
    source = "f64" if target == "f32" else "f32"
    bits = 64 if source == "f64" else 32
    inputs = float_inputs(bits, 13)
    width = 32 if target == "f32" else 16
    code = (
        f"cvt.{mode}.{target}.{source} {REGISTERS[width]}7, {REGISTERS[bits]}4; {widen(width, 7)}"
    )
    for (a, _, _), value in zip(inputs, evaluate([code], inputs)[0], strict=True):
        x = to_float(a, bits)
        if math.isfinite(x) and x:
            want = round_exact(Fraction(x), target, mode)
            sign = 1 << sum(FORMATS[target])
            assert value == (want | sign if x < 0 else want), x


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("op", ["add", "mul", "fma"])
def test_half_arithmetic_is_correctly_rounded(kind: str, op: str) -> None:
    rng = random.Random(17)
    inputs = [tuple(rng.getrandbits(16) for _ in range(3)) for _ in range(1500)]

    def number(v: int) -> float:
        return to_float(v, 16) if kind == "f16" else to_float(v << 16, 32)

    args = ", ".join(f"%h{4 + k}" for k in range(3 if op == "fma" else 2))
    mode = ".rn" if op == "fma" else ""
    pair = "mov.b32 %r8, {%h5, %h4}; mov.b32 %r9, {%h4, %h5}; mov.b32 %r10, {%h6, %h6};"
    pair_args = "%r8, %r9" + (", %r10" if op == "fma" else "")
    codes = [
        f"{op}{mode}.{kind} %h7, {args}; {widen(16, 7)}",
        f"{pair} {op}{mode}.{kind}x2 %r7, {pair_args}; mov.b32 {{%h8, %h7}}, %r7; {widen(16, 7)}",
    ]
    checked = 0
    for got in evaluate(codes, inputs):
        for triple, value in zip(inputs, got, strict=True):
            values = [number(v) for v in triple[: 3 if op == "fma" else 2]]
            want = float_exact(kind, op, values, "rn")
            if want is not None:
                checked += 1
                assert value == want, (values, hex(value), hex(want))
    assert checked > 1000


@pytest.mark.parametrize(("source", "nan"), [("f32", 0x7FC00000), ("f64", 0x7FF8 << 48)])
def test_nan_as_an_integer(source: str, nan: int) -> None:
    """PTX ISA, cvt: zero, unless the source is .f64 or the destination has 64 bits."""
    register = "%r" if source == "f32" else "%rd"
    kinds = [(sign, bits) for sign in "us" for bits in (8, 16, 32, 64)]
    codes = []
    for sign, bits in kinds:
        to = {8: "%h", 16: "%h", 32: "%r", 64: "%rd"}[bits]
        code = f"cvt.rzi.{sign}{bits}.{source} {to}7, {register}4;"
        codes.append(code + ("" if bits == 64 else f"cvt.u64.u{bits} %rd7, {to}7;"))
    for (_, bits), (value,) in zip(kinds, evaluate(codes, [(nan, 0, 0)]), strict=True):
        assert value == (1 << (bits - 1) if source == "f64" or bits == 64 else 0)


@given(st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=40))
@settings(max_examples=20, deadline=None)
def test_approximations_are_within_the_documented_bounds(values: list[float]) -> None:
    inputs = [(from_float(v, 32), 0, 0) for v in values]
    names = ["sin", "cos", "ex2", "tanh"]
    codes = [f"{n}.approx.f32 %r7, %r4; {widen(32, 7)}" for n in names]
    for name, got in zip(names, evaluate(codes, inputs), strict=True):
        for x, bits in zip(values, got, strict=True):
            f = {"sin": math.sin, "cos": math.cos, "ex2": lambda v: 2.0**v, "tanh": math.tanh}[name]
            assert to_float(bits, 32) == pytest.approx(f(x), rel=1.2e-7, abs=1e-38)
