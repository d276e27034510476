/* SPDX-License-Identifier: Apache-2.0 */
/* What the families do: the functions that functions.txt names. */
#ifndef VGPUMGR_SIM_BLAS_RUNS_H
#define VGPUMGR_SIM_BLAS_RUNS_H

#include "tables.h"
#include "families.h"

/* plain.c */
void run_blas(const struct call *c);

/* reductions.c */
void run_nrm2(const struct call *c);
void run_nrm2_ex(const struct call *c);
void run_asum(const struct call *c);
void run_asum_ex(const struct call *c);
void run_dot(const struct call *c);
void run_dotc(const struct call *c);
void run_dot_ex(const struct call *c);
void run_dotc_ex(const struct call *c);
void run_amax(const struct call *c);
void run_amin(const struct call *c);
void run_amax_ex(const struct call *c);
void run_amin_ex(const struct call *c);

/* vectors.c */
void run_scal_ex(const struct call *c);
void run_axpy_ex(const struct call *c);
void run_copy_ex(const struct call *c);
void run_swap_ex(const struct call *c);
void run_rot_ex(const struct call *c);
void run_rotm_ex(const struct call *c);

/* products.c */
void run_gemm_t(const struct call *c);
void run_gemm_ex(const struct call *c);
void run_gemm_batched_ex(const struct call *c);
void run_gemm_strided_ex(const struct call *c);
void run_syrk_ex(const struct call *c);
void run_herk_ex(const struct call *c);
void run_syrkx(const struct call *c);
void run_cherkx(const struct call *c);
void run_zherkx(const struct call *c);

/* halves.c */
void run_gemv_mixed_batched(const struct call *c);
void run_gemv_mixed_strided(const struct call *c);
void run_hgemm(const struct call *c);
void run_hgemm_batched(const struct call *c);
void run_hgemm_strided(const struct call *c);

/* matrices.c */
void run_syr2(const struct call *c);
void run_trmm(const struct call *c);
void run_geam(const struct call *c);
void run_dgmm(const struct call *c);
void run_tpttr(const struct call *c);
void run_trttp(const struct call *c);

/* solvers.c */
void run_matinv(const struct call *c);
void run_geqrf(const struct call *c);
void run_gels(const struct call *c);
void run_getrf(const struct call *c);
void run_getri(const struct call *c);
void run_getrs(const struct call *c);

#endif
