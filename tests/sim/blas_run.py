# SPDX-License-Identifier: Apache-2.0
"""Calls every function of cublas.yaml with random operands, and compares with numpy.

``python -m tests.sim.blas_run SEED [-v]``; with -v each call is named before it is made.
"""

from __future__ import annotations

import copy
import sys
import zlib
from typing import Any

import numpy as np

from tests.sim.blas_cases import find_maker
from tests.sim.blas_client import DEVICE, HOST, PRECISION, Gpu, Place, Strided, decode
from tests.sim.blas_draw import Draw

VARIANTS = 16
PLAIN_VARIANTS = 3


def raws(value: Any) -> list[tuple[np.ndarray, int | None]]:
    """All that a value has in memory, with the type of its elements."""
    if isinstance(value, list):
        return [pair for part in value for pair in raws(part)]
    if isinstance(value, Strided):
        return [pair for part in value.parts for pair in raws(part)]
    if isinstance(value, np.ndarray):
        return [(value, None)]
    if isinstance(value, Place):
        return [(value.raw, None)]
    return [(value.raw, value.code)] if hasattr(value, "raw") else []


def compare(name: str, argument: str, got: Any, want: Any) -> None:
    """The same within the type's precision; room between elements has not changed at all."""
    for (a, code), (b, _) in zip(raws(got), raws(want), strict=True):
        if code is None:
            assert np.array_equal(a, b), f"{name}: {argument}: {a} is not {b}"
            continue
        x, y = decode(a, code), decode(b, code)
        allowed = PRECISION[code] * 8 * (1 + np.abs(y))
        if np.array_equal(x, y) or np.all(np.abs(x - y) <= allowed):
            continue
        raise AssertionError(f"{name}: {argument} (type {code}):\n{x}\nis not\n{y}")


def run_one(gpu: Gpu, rng: np.random.Generator, name: str, variant: int, mode: int) -> None:
    """One call."""
    maker = find_maker(name)
    assert maker, f"{name} has no case"
    values, expect = maker(Draw(rng, name, variant))
    wanted = copy.deepcopy(values)
    with np.errstate(all="ignore"):
        expect(wanted)
    status = gpu.call(name, values, mode)
    assert status == 0, f"{name}: status {status}"
    for argument in (a for _, _, a in gpu.specification[name]):
        compare(f"{name} {variant} {mode}", argument, values[argument], wanted[argument])


def main(seed: int) -> int:
    """Every function; what failed is said at the end."""
    gpu, failures = Gpu(), []
    for name in gpu.specification:
        variants = VARIANTS if "Ex" in name else PLAIN_VARIANTS
        for variant in range(variants):
            if "-v" in sys.argv:
                print(name, variant, flush=True)
            rng = np.random.default_rng([seed, variant, zlib.crc32(name.encode())])
            try:
                run_one(gpu, rng, name, variant, (HOST, DEVICE)[variant % 2])
            except Exception as error:
                failures.append(f"{name} ({variant}): {type(error).__name__}: {error}")
                break
    print("\n".join(failures), file=sys.stderr)
    print(f"reached {len(gpu.reached)} of {len(gpu.specification)}, {len(failures)} failed")
    return len(failures) > 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
