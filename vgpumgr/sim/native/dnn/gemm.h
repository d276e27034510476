/* SPDX-License-Identifier: Apache-2.0 */
/* Products of matrices with rows first. */
#ifndef VGPUMGR_SIM_DNN_GEMM_H
#define VGPUMGR_SIM_DNN_GEMM_H

#include <stdbool.h>
#include <stdint.h>

struct dn_matrix {
	const void *data;
	int64_t ld;
	bool transposed;
};

/* C (m x n) = A (m x k) * B (k x n), or C += where it is added. Doubles if wide, else floats. */
void dn_gemm(bool wide, int64_t m, int64_t n, int64_t k, struct dn_matrix a, struct dn_matrix b, void *c, int64_t ldc, bool add);

#endif
