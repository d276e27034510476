# ruff: noqa: ARG005 - a model takes three operands whether it looks at them or not
"""Video instructions, functions of halves, and the narrow floating-point formats, against independent models."""

from __future__ import annotations

import functools
import itertools
import math
import random
import struct
from collections.abc import Callable
from fractions import Fraction

import pytest

from tests.sim.ptx_models import Model, from_float, round_exact, signed, to_float
from tests.sim.ptx_runner import SYNTAX, UNSUPPORTED, Module, PtxError, compile_ptx
from tests.sim.test_ptx_instructions import HEADER, evaluate, triples

pytestmark = pytest.mark.native

WORDS = [
    0,
    1,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    0x80017FFE,
    0xDEADBEEF,
]


def check(models: dict[str, Model], seed: int, values: list[int] = WORDS, bits: int = 32) -> None:
    """`%r7, %r4, ...` computed by instructions, and by models of a, b and c."""
    inputs = triples(values, seed, 100)
    codes = [f"{code}; cvt.u64.u32 %rd7, %r7;" for code in models]
    for (code, model), got in zip(models.items(), evaluate(codes, inputs), strict=True):
        for triple, value in zip(inputs, got, strict=True):
            want = model(*triple) & ((1 << bits) - 1)
            assert value & ((1 << bits) - 1) == want, (
                code,
                [hex(v) for v in triple],
                hex(want),
                hex(value),
            )


def clamp(value: int, bits: int, is_signed: bool) -> int:
    most = (1 << (bits - is_signed)) - 1
    return max(-most - 1 if is_signed else 0, min(most, value))


PARTS: dict[str, Callable[[int, int], int]] = {
    "vadd": lambda a, b: a + b,
    "vsub": lambda a, b: a - b,
    "vabsdiff": lambda a, b: abs(a - b),
    "vmin": min,
    "vmax": max,
    "vavrg": lambda a, b: (a + b + (1 if a + b >= 0 else 0)) >> 1,
}
KINDS = [*itertools.product("us", repeat=3)]


def simd_model(
    part: Callable[[int, int], int], parts: int, kinds: tuple[str, ...], mode: str
) -> Model:
    width = 32 // parts

    def number(v: int, n: int, kind: str) -> int:
        v = v >> n * width & ((1 << width) - 1)
        return signed(v, width) if kind == "s" else v

    def model(a: int, b: int, c: int) -> int:
        total = c if "add" in mode else 0
        for n in range(parts):
            v = part(number(a, n, kinds[1]), number(b, n, kinds[2]))
            if "sat" in mode:
                v = clamp(v, width, kinds[0] == "s")
            total += v if "add" in mode else (v & ((1 << width) - 1)) << n * width
        return total

    return model


@pytest.mark.parametrize("parts", [2, 4])
def test_simd_video_instructions(parts: int) -> None:
    models: dict[str, Model] = {}
    for name, part in PARTS.items():
        for kinds in KINDS:
            for mode in ("", ".sat", ".add", ".sat.add"):
                types = ".".join(f"{k}32" for k in kinds)
                code = f"{name}{parts}.{types}{mode} %r7, %r4, %r5, %r6"
                models[code] = simd_model(part, parts, kinds, mode)
    compares: dict[str, Callable[[int, int], int]] = {
        "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
        "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    }  # fmt: skip
    for (name, compare), kind, mode in itertools.product(compares.items(), "us", ("", ".add")):
        code = f"vset{parts}.{kind}32.{kind}32.{name}{mode} %r7, %r4, %r5, %r6"
        models[code] = simd_model(compare, parts, (kind,) * 3, mode)
    check(models, parts)


def scalar(value: int, selector: str, kind: str) -> int:
    width = {"": 32, "b": 8, "h": 16}[selector[:1]]
    value = value >> int(selector[1:] or 0) * width & ((1 << width) - 1)
    return signed(value, width) if kind == "s" else value


def test_scalar_video_instructions() -> None:
    m32 = 0xFFFFFFFF
    models: dict[str, Model] = {
        "vadd.s32.u32.s32 %r7, %r4.b3, %r5.h1": lambda a, b, c: scalar(a, "b3", "u") + scalar(b, "h1", "s"),
        "vadd.s32.s32.s32.sat %r7, %r4, %r5": lambda a, b, c: clamp(signed(a, 32) + signed(b, 32), 32, True),
        "vsub.u32.u32.u32.sat %r7, %r4, %r5": lambda a, b, c: clamp((a & m32) - (b & m32), 32, False),
        "vsub.u32.s32.u32.add %r7, %r4.b1, %r5, %r6": lambda a, b, c: scalar(a, "b1", "s") - (b & m32) + c,
        "vabsdiff.u32.s32.s32.max %r7, %r4.h0, %r5.b2, %r6": lambda a, b, c: max(
            abs(scalar(a, "h0", "s") - scalar(b, "b2", "s")), c & m32
        ),
        "vmin.s32.s32.s32.min %r7, %r4, %r5, %r6": lambda a, b, c: min(signed(v, 32) for v in (a, b, c)),
        "vmax.s32.u32.u32.sat %r7.h1, %r4, %r5, %r6": lambda a, b, c: (
            (clamp(max(a & m32, b & m32), 16, True) & 0xFFFF) << 16 | c & 0xFFFF
        ),
        "vadd.u32.u32.u32 %r7.b2, %r4, %r5, %r6": lambda a, b, c: c & 0xFF00FFFF | (a + b & 0xFF) << 16,
        "vset.s32.u32.lt.add %r7, %r4.b0, %r5, %r6": lambda a, b, c: c + (scalar(a, "b0", "s") < (b & m32)),
        "vshl.u32.u32.u32.clamp %r7, %r4, %r5.b0": lambda a, b, c: (a & m32) << min(b & 255, 32),
        "vshl.u32.u32.u32.sat.wrap %r7, %r4.b0, %r5": lambda a, b, c: clamp((a & 255) << (b & 31), 32, False),
        "vshr.s32.s32.u32.clamp %r7, %r4, %r5": lambda a, b, c: signed(a, 32) >> min(b & m32, 32),
        "vshr.u32.u32.u32.wrap.add %r7, %r4, %r5, %r6": lambda a, b, c: ((a & m32) >> (b & 31)) + c,
        "vmad.s32.s32.u32.shr7 %r7, %r4.h1, %r5.b1, %r6": lambda a, b, c: (
            scalar(a, "h1", "s") * scalar(b, "b1", "u") + signed(c, 32) >> 7
        ),
        "vmad.u32.u32.u32.sat %r7, %r4.h1, %r5.h0, %r6": lambda a, b, c: clamp(
            scalar(a, "h1", "u") * scalar(b, "h0", "u") + (c & m32), 32, False
        ),
    }  # fmt: skip
    check(models, 9)


def test_predicates_and_packed_words() -> None:
    def three(pick: Callable[..., float], nan: bool, absolute: bool) -> Model:
        def model(a: int, b: int, c: int) -> int:
            values = [to_float(v & 0xFFFFFFFF, 32) for v in (a, b, c)]
            numbers = [abs(v) if absolute else v for v in values if not math.isnan(v)]
            if not numbers or (nan and len(numbers) < 3):
                return 0x7FFFFFFF
            # -0 is less than +0
            best = pick(numbers, key=lambda v: (v, math.copysign(1, v)))
            return from_float(best, 32)

        return model

    def relu(pick: Callable[..., int]) -> Model:
        return lambda a, b, c: sum(
            (max(0, pick(signed(a >> k, 16), signed(b >> k, 16))) & 0xFFFF) << k for k in (0, 16)
        )

    models: dict[str, Model] = {
        "max.f32 %r7, %r4, %r5, %r6": three(max, False, False),
        "min.f32 %r7, %r4, %r5, %r6": three(min, False, False),
        "min.NaN.f32 %r7, %r4, %r5, %r6": three(min, True, False),
        "max.NaN.abs.f32 %r7, %r4, %r5, %r6": three(max, True, True),
        "min.s16x2.relu %r7, %r4, %r5": relu(min),
        "max.s16x2.relu %r7, %r4, %r5": relu(max),
        "setp.lt.u32 %p0, %r4, %r5; lop3.or.b32 %r6|%p1, %r4, %r5, %r6, 0x80, %p0; selp.u32 %r7, 1, 0, %p1":
            lambda a, b, c: (a & b & c & 0xFFFFFFFF) != 0 or (a & 0xFFFFFFFF) < (b & 0xFFFFFFFF),
        "setp.lt.u32 %p0, %r4, %r5; lop3.and.b32 _|%p1, %r4, %r5, %r6, 0x96, !%p0; selp.u32 %r7, 1, 0, %p1":
            lambda a, b, c: ((a ^ b ^ c) & 0xFFFFFFFF) != 0 and (a & 0xFFFFFFFF) >= (b & 0xFFFFFFFF),
        "setp.ltu.f16x2 %p0|%p1, %r4, %r5; selp.u32 %r7, 1, 0, %p0; @%p1 add.u32 %r7, %r7, 2": lambda a, b, c: sum(
            (not to_float(a >> k, 16) >= to_float(b >> k, 16)) << k // 16 for k in (0, 16)),
        "set.gt.f16x2.f16x2 %r7, %r4, %r5": lambda a, b, c: sum(
            (0x3C00 if to_float(a >> k, 16) > to_float(b >> k, 16) else 0) << k for k in (0, 16)),
        "set.nan.u32.f16x2 %r7, %r4, %r5": lambda a, b, c: sum(
            (0xFFFF if math.isnan(to_float(a >> k, 16) + to_float(b >> k, 16)) and not (
                math.isinf(to_float(a >> k, 16)) and math.isinf(to_float(b >> k, 16))) else 0) << k for k in (0, 16)),
        "set.neu.bf16x2.bf16x2 %r7, %r4, %r5": lambda a, b, c: sum(
            (0x3F80 if brain(a >> k) != brain(b >> k) else 0) << k for k in (0, 16)),
        "set.le.f16.f16 %h7, %h4, %h5; cvt.u32.u16 %r7, %h7": lambda a, b, c: (
            0x3C00 if to_float(a, 16) <= to_float(b, 16) else 0),
        "set.ge.u16.f16 %h7, %h4, %h5; cvt.u32.u16 %r7, %h7": lambda a, b, c: (
            0xFFFF if to_float(a, 16) >= to_float(b, 16) else 0),
    }  # fmt: skip
    floats = [
        0,
        0x80000000,
        0x3F800000,
        0xBF800000,
        0x7F800000,
        0xFF800000,
        0x7FC00000,
        0x3C003C00,
        0x7E007C00,
        0xFC00BC01,
    ]
    check(models, 4, WORDS + floats)


def brain(bits: int) -> float:
    return to_float((bits & 0xFFFF) << 16, 32)


def half_model(function: Callable[[float], float], name: str, flush: bool) -> Model:
    """The function, exact to double precision, rounded once; on one half."""

    def model(a: int, _b: int, _c: int) -> int:
        bits = a & 0xFFFF
        exponent = 0x7F80 if name == "bf16" else 0x7C00
        if flush and not bits & exponent:
            bits &= 0x8000
        x = brain(bits) if name == "bf16" else to_float(bits, 16)
        if math.isnan(x):
            return 0x7FFF
        try:
            y = function(x)
        except OverflowError:
            y = math.inf
        if math.isinf(y):
            return 0x7F80 if name == "bf16" else 0x7C00
        out = round_exact(Fraction(y), name) if y else (0x8000 if math.copysign(1, y) < 0 else 0)
        return out & 0x8000 if flush and not out & exponent else out

    return model


def test_functions_of_halves() -> None:
    def both(model: Model) -> Model:
        return lambda a, b, c: model(a >> 16, 0, 0) << 16 | model(a, 0, 0)

    models: dict[str, Model] = {}
    for name, function, prefix in (
        ("f16", lambda x: 2.0**x, "ex2.approx"), ("bf16", lambda x: 2.0**x, "ex2.approx.ftz"),
        ("f16", math.tanh, "tanh.approx"), ("bf16", math.tanh, "tanh.approx"),
    ):  # fmt: skip
        model = half_model(function, name, "ftz" in prefix)
        models[f"{prefix}.{name} %h7, %h4; cvt.u32.u16 %r7, %h7"] = model
        models[f"{prefix}.{name}x2 %r7, %r4"] = both(model)
    halves = [n << 16 | (n * 77 & 0xFFFF) for n in range(0, 0x10000, 977)]
    check(models, 5, [*WORDS[:6], *halves])


def fp8_value(bits: int, e5m2: bool) -> float:
    fraction, bias = (2, 15) if e5m2 else (3, 7)
    e, m = bits >> fraction & (31 if e5m2 else 15), bits & ((1 << fraction) - 1)
    if e5m2 and e == 31:
        value = math.inf if not m else math.nan
    elif not e5m2 and bits & 0x7F == 0x7F:
        value = math.nan
    else:
        value = math.ldexp(m + ((1 << fraction) if e else 0), max(e, 1) - bias - fraction)
    return -value if bits & 0x80 else value


FINITE = {
    e5m2: [fp8_value(n, e5m2) for n in range(0x7C if e5m2 else 0x7F)] for e5m2 in (False, True)
}


@functools.cache
def nearest_magnitude(x: float, e5m2: bool) -> int:
    """The nearest finite number; of two the even one."""
    numbers = FINITE[e5m2]
    return min(
        range(len(numbers)), key=lambda n: (abs(numbers[n] - min(x, 2 * numbers[-1])), n & 1)
    )


def nearest_fp8(x: float, e5m2: bool) -> int:
    """NaN stays NaN."""
    if math.isnan(x):
        return 0x7F
    return (0x80 if math.copysign(1, x) < 0 else 0) | nearest_magnitude(abs(x), e5m2)


@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
def test_conversions_to_and_from_8_bits(kind: str) -> None:
    e5m2 = kind == "e5m2"

    def to(x: float, relu: bool = False) -> int:
        return nearest_fp8(0.0 if relu and x <= 0 else x, e5m2)

    def half(a: int, n: int) -> float:
        return to_float(a >> 16 * n, 16)

    def back(a: int, n: int) -> int:
        x = fp8_value(a >> 8 * n & 255, e5m2)
        return 0x7FFF if math.isnan(x) else from_float(x, 16)

    store = "cvt.u32.u16 %r7, %h7"
    models: dict[str, Model] = {
        f"cvt.rn.satfinite.{kind}x2.f32 %h7, %r4, %r5; {store}": lambda a, b, c: (
            to(to_float(a & 0xFFFFFFFF, 32)) << 8 | to(to_float(b & 0xFFFFFFFF, 32))),
        f"cvt.rn.satfinite.relu.{kind}x2.f32 %h7, %r4, %r5; {store}": lambda a, b, c: (
            to(to_float(a & 0xFFFFFFFF, 32), True) << 8 | to(to_float(b & 0xFFFFFFFF, 32), True)),
        f"cvt.rn.satfinite.{kind}x2.f16x2 %h7, %r4; {store}": lambda a, b, c: to(half(a, 1)) << 8 | to(half(a, 0)),
        f"cvt.rn.satfinite.{kind}x2.bf16x2 %h7, %r4; {store}": lambda a, b, c: (
            to(brain(a >> 16)) << 8 | to(brain(a))),
        f"cvt.rn.f16x2.{kind}x2 %r7, %h4": lambda a, b, c: back(a, 1) << 16 | back(a, 0),
    }  # fmt: skip
    values = [
        0.1,
        1.0625,
        -1.1875,
        448.0,
        464.0,
        465.0,
        -57344.0,
        61440.0,
        1e9,
        -(2**-9),
        2**-10,
        1.5 * 2**-9,
        2**-17,
        5e-6,
    ]
    words = [struct.unpack("<I", struct.pack("<f", v))[0] for v in values] + [
        0x7F800000,
        0xFFC00000,
        0x80000000,
    ]
    rng = random.Random(kind)
    words += [
        rng.randrange(115, 145) << 23 | rng.getrandbits(23) | rng.getrandbits(1) << 31
        for _ in range(30)
    ]
    check(models, 6, words + [0x3C00BC00, 0x7C00FC00, 0x5F005F80])


def test_tf32_keeps_ten_bits() -> None:
    def tf32(bits: int, mode: str) -> int:
        x, bits = to_float(bits & 0xFFFFFFFF, 32), bits & 0xFFFFFFFF
        if math.isnan(x):
            return 0x7FFFFFFF
        low, rest = bits & ~0x1FFF, bits & 0x1FFF
        if mode == "rna":
            low += 0x2000 if rest >= 0x1000 else 0
        elif mode == "rn":
            low += 0x2000 if rest > 0x1000 or (rest == 0x1000 and low & 0x2000) else 0
        if mode == "relu" and bits >> 31:
            return 0
        return (
            0x7F7FE000 | bits & 0x80000000
            if mode == "finite" and low & 0x7FFFFFFF >= 0x7F800000
            else low
        )

    models: dict[str, Model] = {
        "cvt.rna.tf32.f32 %r7, %r4": lambda a, b, c: tf32(a, "rna"),
        "cvt.rn.tf32.f32 %r7, %r4": lambda a, b, c: tf32(a, "rn"),
        "cvt.rz.tf32.f32 %r7, %r4": lambda a, b, c: tf32(a, "rz"),
        "cvt.rz.relu.tf32.f32 %r7, %r4": lambda a, b, c: tf32(a, "relu"),
        "cvt.rz.satfinite.tf32.f32 %r7, %r4": lambda a, b, c: tf32(a, "finite"),
    }
    ties = [
        0x3F801000,
        0x3F803000,
        0xBF801000,
        0x3F800FFF,
        0x3F801001,
        0x7F7FFFFF,
        0x00001000,
        0x7F800000,
        0xFFC00001,
    ]
    check(models, 7, WORDS + ties)


def test_packing() -> None:
    def pack(bits: int, is_signed: bool, third: bool) -> Model:
        def model(a: int, b: int, c: int) -> int:
            low, high = (clamp(signed(v, 32), bits, is_signed) & ((1 << bits) - 1) for v in (b, a))
            return (c << 2 * bits if third else 0) | high << bits | low

        return model

    models: dict[str, Model] = {
        "cvt.pack.sat.u16.s32 %r7, %r4, %r5": pack(16, False, False),
        "cvt.pack.sat.s16.s32 %r7, %r4, %r5": pack(16, True, False),
    }
    for bits, kind in itertools.product((8, 4, 2), "us"):
        models[f"cvt.pack.sat.{kind}{bits}.s32.b32 %r7, %r4, %r5, %r6"] = pack(
            bits, kind == "s", True
        )
    check(models, 8, [*WORDS, 3, 0xFFFFFFFD])


def test_two_floats_in_one_register() -> None:
    """Each half is what the single instruction gives."""
    forms = [
        "add{m}.f32{x} %r7, %r4, %r5",
        "sub{m}.f32{x} %r7, %r4, %r5",
        "mul{m}.f32{x} %r7, %r4, %r5",
    ]
    forms += ["fma{m}.f32{x} %r7, %r4, %r5, %r6"]
    values = [*WORDS, 0x3F800001, 0xBF800001, 0x00000001, 0x7F7FFFFF, 0x34000000]
    rng = random.Random(3)
    inputs = [
        tuple(rng.choice(values) | rng.choice(values) << 32 for _ in range(3)) for _ in range(300)
    ]
    for form, mode in itertools.product(forms, (".rn", ".rz", ".rp.ftz", ".rm")):
        single, packed = form.format(m=mode, x=""), form.format(m=mode, x="x2").replace("%r", "%rd")
        want = evaluate([single + "; cvt.u64.u32 %rd7, %r7;"], [(a, b, c) for a, b, c in inputs])[0]
        high = evaluate(
            [single + "; cvt.u64.u32 %rd7, %r7;"],
            [(a >> 32, b >> 32, c >> 32) for a, b, c in inputs],
        )[0]
        (got,) = evaluate([packed + ";"], [(a, b, c) for a, b, c in inputs])
        assert got == [x | y << 32 for x, y in zip(want, high, strict=True)], packed


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (UNSUPPORTED, "vadd2.s32.s32 %r0, %r1, %r2, %r3;"),
        (UNSUPPORTED, "vadd2.s32.s32.s32.min %r0, %r1, %r2, %r3;"),
        (UNSUPPORTED, "vset4.s32.s32 %r0, %r1, %r2, %r3;"),
        (UNSUPPORTED, "vshl.u32.u32.s32.clamp %r0, %r1, %r2;"),
        (UNSUPPORTED, "vshl.u32.u32.u32 %r0, %r1, %r2;"),
        (UNSUPPORTED, "vavrg.s32.s32.s32 %r0, %r1, %r2;"),
        (UNSUPPORTED, "ex2.approx.ftz.f16 %h0, %h1;"),
        (UNSUPPORTED, "ex2.approx.bf16 %h0, %h1;"),
        (UNSUPPORTED, "tanh.f16 %h0, %h1;"),
        (UNSUPPORTED, "cvt.rn.e4m3x2.f32 %h0, %r1, %r2;"),
        (UNSUPPORTED, "cvt.rna.relu.tf32.f32 %r0, %r1;"),
        (UNSUPPORTED, "cvt.tf32.f32 %r0, %r1;"),
        (UNSUPPORTED, "cvt.pack.u8.s32.b32 %r0, %r1, %r2, %r3;"),
        (SYNTAX, "max.xorsign.abs.f32 %r0, %r1, %r2, %r3;"),
        (UNSUPPORTED, "set.eq.f16x2.f16 %r0, %h1, %h2;"),
        (UNSUPPORTED, "add.sat.f32x2 %rd0, %rd1, %rd2;"),
        (UNSUPPORTED, "redux.sync.add.f32 %r0, %r1, -1;"),
        (UNSUPPORTED, "atom.global.add.v2.u32 {%r0, %r1}, [%rd0], {%r0, %r1};"),
        (SYNTAX, "atom.global.add.v2.f32 %r0, [%rd0], {%r0, %r1};"),
        (SYNTAX, "red.global.add.v4.f32 [%rd0], {%r0, %r1};"),
        (SYNTAX, "vadd2.s32.s32.s32 %r0, %r1, %r2;"),
        (SYNTAX, "vadd4.s32.s32.s32 %r0, %r1.b0, %r2, %r3;"),
        (SYNTAX, "vadd.s32.s32.s32 %r0.h0, %r1, %r2;"),
        (SYNTAX, "add.u32 %r0, %r1.b0, %r2;"),
        (SYNTAX, "add.u32 %r0.h0, %r1, %r2;"),
        (SYNTAX, "vadd.s32.s32.s32 %r0, %r99.b0, %r2;"),
        (SYNTAX, "cvt.rn.satfinite.e4m3x2.f32 %r0, %r1, %r2;"),
        (SYNTAX, "lop3.or.b32 %r0|%p0, %r1, %r2, %r3, 0x80;"),
        (SYNTAX, "max.f32 %r0, %r1, %r2, %r3, %r4;"),
    ],
)
def test_other_forms_are_refused(status: int, code: str) -> None:
    registers = ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .b16 %h<9>; .reg .pred %p<9>;"
    with pytest.raises(PtxError, match=r"line 5: ") as caught:
        Module(f"{HEADER}.visible .entry k() {{{registers}\n{code}\nret; }}\n")
    assert caught.value.status == status


@pytest.mark.cuda
def test_headers_of_the_toolkit_compile_to_what_runs() -> None:
    """Every kernel of narrow.cu checks itself and counts what is wrong."""
    module = Module(compile_ptx("narrow.cu", "compute_90"))
    for name in ("simd", "fp8", "halves"):
        wrong = module.alloc(4)
        module.run(name, 1, 256, "Q", wrong)
        assert module.read(wrong, "i", 1) == [0], name
