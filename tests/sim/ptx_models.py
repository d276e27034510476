# ruff: noqa: ARG005 - a model takes three operands whether it looks at them or not
"""What single PTX instructions compute: the ISA manual in Python's integers and fractions."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from fractions import Fraction

Model = Callable[[int, int, int], int]


def signed(value: int, bits: int) -> int:
    """The low bits as a two's complement number."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def to_float(bits: int, width: int) -> float:
    """A float from its bits."""
    code = {16: "<He", 32: "<If", 64: "<Qd"}[width]
    return struct.unpack("<" + code[2], struct.pack(code[:2], bits & ((1 << width) - 1)))[0]


def from_float(value: float, width: int) -> int:
    """Bits of a float that is exact in this width."""
    code = {16: "<He", 32: "<If", 64: "<Qd"}[width]
    return struct.unpack(code[:2], struct.pack("<" + code[2], value))[0]


FORMATS = {"f16": (10, 5), "bf16": (7, 8), "f32": (23, 8), "f64": (52, 11)}


def round_exact(value: Fraction, name: str, mode: str = "rn") -> int:
    """Bits of the number of a format nearest to an exact value in a rounding mode; 0 gives +0."""
    fraction, exponent = FORMATS[name]
    sign = 1 if value < 0 else 0
    magnitude = abs(value)
    if not magnitude:
        return 0
    least = 2 - (1 << (exponent - 1))
    e = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** e > magnitude:
        e -= 1
    e = max(e, least)
    scaled = magnitude / Fraction(2) ** (e - fraction)
    n = scaled.numerator // scaled.denominator
    rest = scaled - n
    up = {
        "rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and n & 1 == 1),
        "rz": False,
        "rm": bool(sign) and rest > 0,
        "rp": not sign and rest > 0,
    }[mode]
    bits = n + int(up) + ((e - least) << fraction)
    infinity = ((1 << exponent) - 1) << fraction
    if bits >= infinity:
        inward = mode == "rz" or (mode == "rm" and not sign) or (mode == "rp" and sign)
        bits = infinity - 1 if inward else infinity
    return sign << (fraction + exponent) | bits


def c_div(a: int, b: int) -> int:
    """Division that truncates."""
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def integer_models(bits: int) -> dict[str, Model]:
    """Instructions with operands of one width; results are compared modulo that width."""
    full = (1 << bits) - 1

    def s(v: int) -> int:
        return signed(v, bits)

    def u(v: int) -> int:
        return v & full

    models: dict[str, Model] = {
        f"add.u{bits}": lambda a, b, c: a + b,
        f"sub.s{bits}": lambda a, b, c: a - b,
        f"mul.lo.u{bits}": lambda a, b, c: a * b,
        f"mul.hi.u{bits}": lambda a, b, c: u(a) * u(b) >> bits,
        f"mul.hi.s{bits}": lambda a, b, c: s(a) * s(b) >> bits,
        f"mad.lo.s{bits}": lambda a, b, c: a * b + c,
        f"mad.hi.u{bits}": lambda a, b, c: (u(a) * u(b) >> bits) + c,
        f"mad.hi.s{bits}": lambda a, b, c: (s(a) * s(b) >> bits) + c,
        f"div.u{bits}": lambda a, b, c: u(a) // u(b) if u(b) else full,
        f"div.s{bits}": lambda a, b, c: c_div(s(a), s(b)) if u(b) else full,
        f"rem.u{bits}": lambda a, b, c: u(a) % u(b) if u(b) else u(-1),
        f"rem.s{bits}": lambda a, b, c: s(a) - s(b) * c_div(s(a), s(b)) if u(b) else -1,
        f"min.u{bits}": lambda a, b, c: min(u(a), u(b)),
        f"min.s{bits}": lambda a, b, c: min(s(a), s(b)),
        f"max.u{bits}": lambda a, b, c: max(u(a), u(b)),
        f"max.s{bits}": lambda a, b, c: max(s(a), s(b)),
        f"abs.s{bits}": lambda a, b, c: abs(s(a)),
        f"neg.s{bits}": lambda a, b, c: -a,
        f"sad.u{bits}": lambda a, b, c: c + abs(u(a) - u(b)),
        f"sad.s{bits}": lambda a, b, c: c + abs(s(a) - s(b)),
        f"and.b{bits}": lambda a, b, c: a & b,
        f"or.b{bits}": lambda a, b, c: a | b,
        f"xor.b{bits}": lambda a, b, c: a ^ b,
        f"not.b{bits}": lambda a, b, c: ~a,
        f"cnot.b{bits}": lambda a, b, c: 0 if u(a) else 1,
    }
    return models


def bit_field(a: int, pos: int, length: int, bits: int, is_signed: bool) -> int:
    """bfe, as the manual's pseudo code has it."""
    pos, length, msb = pos & 255, length & 255, bits - 1
    a &= (1 << bits) - 1
    sign = 0 if not is_signed or not length else a >> min(pos + length - 1, msb) & 1
    out = 0
    for i in range(bits):
        bit = a >> (pos + i) & 1 if i < length and pos + i <= msb else sign
        out |= bit << i
    return out


def bit_insert(a: int, b: int, pos: int, length: int, bits: int) -> int:
    """bfi, likewise."""
    pos, length, out = pos & 255, length & 255, b
    for i in range(length):
        if pos + i < bits:
            out = (out & ~(1 << (pos + i))) | (a >> i & 1) << (pos + i)
    return out


def prmt(a: int, b: int, c: int) -> int:
    """Byte permutation with sign replication."""
    data = (a & 0xFFFFFFFF).to_bytes(4, "little") + (b & 0xFFFFFFFF).to_bytes(4, "little")
    out = []
    for k in range(4):
        selector = c >> 4 * k & 15
        byte = data[selector & 7]
        out.append((255 if byte & 128 else 0) if selector & 8 else byte)
    return int.from_bytes(bytes(out), "little")


def dot4(a: int, b: int, c: int, sa: bool, sb: bool) -> int:
    """dp4a."""

    def byte(v: int, k: int, is_signed: bool) -> int:
        return signed(v >> 8 * k, 8) if is_signed else v >> 8 * k & 255

    return c + sum(byte(a, k, sa) * byte(b, k, sb) for k in range(4))


def saturate(value: int) -> int:
    """To the range of s32."""
    return max(-(2**31), min(2**31 - 1, value))


def first_bit(value: int, bits: int, is_signed: bool) -> int:
    """bfind."""
    value = signed(value, bits) if is_signed else value & ((1 << bits) - 1)
    if value < 0:
        value = ~value
    return value.bit_length() - 1


def word_models() -> dict[str, Model]:
    """32-bit instructions that stand alone."""
    m32 = 0xFFFFFFFF

    def funnel(a: int, b: int, n: int, left: bool) -> int:
        v = (b & m32) << 32 | (a & m32)
        return (v << n >> 32 if left else v >> n) & m32

    return {
        "add.sat.s32": lambda a, b, c: saturate(signed(a, 32) + signed(b, 32)),
        "sub.sat.s32": lambda a, b, c: saturate(signed(a, 32) - signed(b, 32)),
        "mad.hi.sat.s32": lambda a, b, c: saturate(
            (signed(a, 32) * signed(b, 32) >> 32) + signed(c, 32)
        ),
        "mul24.lo.u32": lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF),
        "mul24.hi.u32": lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) >> 16,
        "mul24.lo.s32": lambda a, b, c: signed(a, 24) * signed(b, 24),
        "mul24.hi.s32": lambda a, b, c: signed(a, 24) * signed(b, 24) >> 16,
        "mad24.lo.s32": lambda a, b, c: signed(a, 24) * signed(b, 24) + c,
        "mad24.hi.u32": lambda a, b, c: ((a & 0xFFFFFF) * (b & 0xFFFFFF) >> 16) + c,
        "shl.b32": lambda a, b, c: a << min(b & m32, 32),
        "shr.u32": lambda a, b, c: (a & m32) >> min(b & m32, 32),
        "shr.b32": lambda a, b, c: (a & m32) >> min(b & m32, 32),
        "shr.s32": lambda a, b, c: signed(a, 32) >> min(b & m32, 32),
        "shf.l.clamp.b32": lambda a, b, c: funnel(a, b, min(c & m32, 32), True),
        "shf.l.wrap.b32": lambda a, b, c: funnel(a, b, c & 31, True),
        "shf.r.clamp.b32": lambda a, b, c: funnel(a, b, min(c & m32, 32), False),
        "shf.r.wrap.b32": lambda a, b, c: funnel(a, b, c & 31, False),
        "bfe.u32": lambda a, b, c: bit_field(a, b, c, 32, False),
        "bfe.s32": lambda a, b, c: bit_field(a, b, c, 32, True),
        "prmt.b32": prmt,
        "popc.b32": lambda a, b, c: (a & m32).bit_count(),
        "clz.b32": lambda a, b, c: 32 - (a & m32).bit_length(),
        "brev.b32": lambda a, b, c: int(f"{a & m32:032b}"[::-1], 2),
        "bfind.u32": lambda a, b, c: first_bit(a, 32, False),
        "bfind.s32": lambda a, b, c: first_bit(a, 32, True),
        "bfind.shiftamt.u32": lambda a, b, c: 31 - first_bit(a, 32, False) if a & m32 else -1,
        "dp4a.u32.u32": lambda a, b, c: dot4(a, b, c, False, False),
        "dp4a.s32.u32": lambda a, b, c: dot4(a, b, c, True, False),
        "dp4a.s32.s32": lambda a, b, c: dot4(a, b, c, True, True),
        "min.s16x2": lambda a, b, c: sum(
            (min(signed(a >> k, 16), signed(b >> k, 16)) & 0xFFFF) << k for k in (0, 16)
        ),
        "add.u16x2": lambda a, b, c: sum(((a >> k) + (b >> k) & 0xFFFF) << k for k in (0, 16)),
    }


def float_exact(name: str, op: str, operands: list[float], mode: str) -> int | None:
    """Bits of an arithmetic result on finite numbers; None where IEEE has a special rule."""
    if not all(map(math.isfinite, operands)):
        return None
    x = [Fraction(v) for v in operands]
    if op == "div" and not x[1]:
        return None
    exact = {
        "add": lambda: x[0] + x[1],
        "sub": lambda: x[0] - x[1],
        "mul": lambda: x[0] * x[1],
        "fma": lambda: x[0] * x[1] + x[2],
        "div": lambda: x[0] / x[1],
    }[op]()
    return round_exact(exact, name, mode) if exact else None
