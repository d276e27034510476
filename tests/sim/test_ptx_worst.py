"""Approximate instructions that are as wrong as they may be: within the bounds of the PTX ISA, and close to them."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from tests.sim.ptx_models import from_float, to_float
from tests.sim.test_ptx_instructions import evaluate, widen

pytestmark = [pytest.mark.native, pytest.mark.cuda]

VALUES = [to_float(from_float(0.013 + n * 0.377, 32), 32) for n in range(400)]
FUNCTIONS: dict[str, Callable[[float], float]] = {
    "sin": math.sin, "cos": math.cos, "lg2": math.log2, "ex2": lambda x: 2.0**x, "rcp": lambda x: 1 / x,
    "sqrt": math.sqrt, "rsqrt": lambda x: 1 / math.sqrt(x), "tanh": math.tanh,
}  # fmt: skip
#: errors by the result, where there is one for all operands
RELATIVE = {"ex2": 2**-22.5, "sqrt": 2**-23, "rsqrt": 2**-22.9, "tanh": 2**-11}


def bound(name: str, x: float, y: float) -> float:
    """The greatest error of the result y for x."""
    if name in ("sin", "cos"):
        return 2**-20.5 if x <= 2 * math.pi else 2**-14.7
    if name == "lg2":
        return 2**-22 * (1 if 0.5 < x < 2 else abs(y))
    return math.ulp(y) * 2**29 if name == "rcp" else RELATIVE[name] * y


@pytest.fixture
def worst(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGPUMGR_SIM_APPROX", "worst")


@pytest.mark.usefixtures("worst")
def test_single_precision_is_off_by_the_documented_error() -> None:
    values = [x for x in VALUES if x < 100]
    codes = [f"{name}.approx.f32 %r7, %r4; {widen(32, 7)}" for name in FUNCTIONS]
    got = evaluate(codes, [(from_float(x, 32), 0, 0) for x in values])
    for (name, function), results in zip(FUNCTIONS.items(), got, strict=True):
        shares = []
        for x, bits in zip(values, results, strict=True):
            y, out = function(x), to_float(bits, 32)
            shares.append((out - y) / bound(name, x, y))
        assert max(map(abs, shares)) <= 1, name
        # on both sides, and a good part of what is allowed: what is no number of single precision is lost
        assert min(shares) < -0.5 < 0.5 < max(shares), name
        assert sum(abs(share) > 0.4 for share in shares) > 0.5 * len(shares), name


@pytest.mark.usefixtures("worst")
def test_quotients_are_off_by_two_units() -> None:
    codes = [f"div.{how}.f32 %r7, %r4, %r5; {widen(32, 7)}" for how in ("approx", "full")]
    pairs = [(x, y) for x in VALUES[:40] for y in VALUES[5:400:17]]
    inputs = [(from_float(x, 32), from_float(y, 32), 0) for x, y in pairs]
    for results in evaluate(codes, inputs):
        units = [
            (to_float(bits, 32) - x / y) / (math.ulp(x / y) * 2**29)
            for (x, y), bits in zip(pairs, results, strict=True)
        ]
        assert min(units) >= -2
        assert max(units) <= 2
        assert min(units) < -1.5 < 1.5 < max(units)


@pytest.mark.usefixtures("worst")
def test_halves_are_off_within_their_bounds() -> None:
    functions = {"ex2.approx.f16": FUNCTIONS["ex2"], "tanh.approx.f16": math.tanh}
    values = [to_float(from_float(-3 + n * 0.0131, 16), 16) for n in range(400)]
    codes = [f"{name} %h7, %h4; cvt.u64.u16 %rd7, %h7;" for name in functions]
    got = evaluate(codes, [(from_float(x, 16), 0, 0) for x in values])
    for (name, function), results in zip(functions.items(), got, strict=True):
        shares = []
        for x, bits in zip(values, results, strict=True):
            y = function(x)
            most = 2**-10.987 if function is math.tanh else 2**-9.9 * y
            shares.append((to_float(bits, 16) - y) / most)
        assert max(map(abs, shares)) <= 1, name
        assert min(shares) < -0.5 < 0.5 < max(shares), name


@pytest.mark.usefixtures("worst")
def test_what_the_manual_has_in_its_tables_is_exact() -> None:
    cases = {
        "sin": (-0.0, -0.0), "cos": (0.0, 1.0), "lg2": (0.0, -math.inf), "ex2": (0.0, 1.0), "rcp": (-math.inf, -0.0),
        "sqrt": (-0.0, -0.0), "rsqrt": (math.inf, 0.0), "tanh": (math.inf, 1.0),
    }  # fmt: skip
    for name, (x, y) in cases.items():
        code = f"{name}.approx.f32 %r7, %r4; {widen(32, 7)}"
        (((bits,),)) = evaluate([code], [(from_float(x, 32), 0, 0)])
        assert bits == from_float(y, 32), name
    exact = [f"{name}.rn.f32 %r7, %r4; {widen(32, 7)}" for name in ("rcp", "sqrt")]
    for (bits,), y in zip(evaluate(exact, [(from_float(0.25, 32), 0, 0)]), (4.0, 0.5), strict=True):
        assert to_float(bits, 32) == y
