# SPDX-License-Identifier: Apache-2.0
"""Who makes the operands of which function: a maker returns the call's values, and a function that changes them to what
is expected."""

from __future__ import annotations

import re

from tests.sim import blas_matrices, blas_products, blas_solvers, blas_vectors
from tests.sim.blas_draw import Maker

#: by the function's name without the suffix of its version
MAKERS: list[tuple[str, Maker]] = [
    (r"(Nrm2|Asum)Ex", blas_vectors.reduction_ex),
    (r"([SDCZ]|Sc|Dz)(nrm2|asum)", blas_vectors.reduction),
    (r"Dotc?Ex", blas_vectors.dot_ex),
    (r"[SDCZ]dot[uc]?", blas_vectors.dot),
    (r"ScalEx", blas_vectors.scal_ex),
    (r"([SDCZ]|Cs|Zd)scal", blas_vectors.scal),
    (r"AxpyEx", blas_vectors.axpy_ex),
    (r"[SDCZ]axpy", blas_vectors.axpy),
    (r"(Copy|Swap)Ex|[SDCZ](copy|swap)", blas_vectors.copy),
    (r"I.*am(ax|in)(Ex)?", blas_vectors.extreme),
    (r"RotmEx|[SD]rotm", blas_vectors.rotm),
    (r"RotEx", blas_vectors.rot_ex),
    (r"([SDCZ]|Cs|Zd)rot", blas_vectors.rot),
    (r"[SDCZ]rotg", blas_vectors.rotg),
    (r"[SD]rotmg", blas_vectors.rotmg),
    (r"[SDCZ]gemv", blas_matrices.gemv),
    (r"([SDCZ]|[HT]S[HTS])gemv(Strided)?Batched", blas_matrices.gemv_batch),
    (r"[SDCZ]gbmv", blas_matrices.gbmv),
    (r"[SDCZ]t[rbp][ms]v", blas_matrices.triangular),
    (r"[SDCZ](sy|he|sb|hb|sp|hp)mv", blas_matrices.symmetric_mv),
    (r"[SDCZ]ger[uc]?", blas_matrices.ger),
    (r"[SDCZ](sy|he|sp|hp)r2?", blas_matrices.rank_update),
    (r"([SDCZH]gemm|Cgemm3m|Zgemm3m|Gemm)(Strided)?(Batched)?(Ex)?", blas_products.gemm),
    (r"[SDCZ](syr|her)(k|k3m|2k|kx)(Ex)?", blas_products.rank_k),
    (r"[SDCZ](sy|he)mm", blas_products.symm),
    (r"[SDCZ]tr[ms]m(Batched)?", blas_products.triangular_m),
    (r"[SDCZ]geam", blas_products.geam),
    (r"[SDCZ]dgmm", blas_products.dgmm),
    (r"[SDCZ](tpttr|trttp)", blas_products.packing),
    (r"[SDCZ]getrfBatched", blas_solvers.getrf),
    (r"[SDCZ]getriBatched", blas_solvers.getri),
    (r"[SDCZ]getrsBatched", blas_solvers.getrs),
    (r"[SDCZ]matinvBatched", blas_solvers.matinv),
    (r"[SDCZ]geqrfBatched", blas_solvers.geqrf),
    (r"[SDCZ]gelsBatched", blas_solvers.gels),
]


def find_maker(name: str) -> Maker | None:
    """Who makes the operands of a function."""
    plain = name.removesuffix("_64").removesuffix("_v2")
    return next((maker for pattern, maker in MAKERS if re.fullmatch(pattern, plain)), None)
