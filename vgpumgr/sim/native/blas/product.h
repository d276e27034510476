/* SPDX-License-Identifier: Apache-2.0 */
/* A product of matrices of any types: what GemmEx and cuBLASLt share. */
#ifndef VGPUMGR_SIM_BLAS_PRODUCT_H
#define VGPUMGR_SIM_BLAS_PRODUCT_H

#include "blas.h"

/* C = alpha * op(A) * op(B) + beta * C, columns first. C has the type in which it is computed where it differs from its own. */
struct product {
	int64_t m, n, k;
	int op_a, op_b;
	const void *a, *b;
	int a_type, b_type, c_type;
	int64_t lda, ldb;
	double complex alpha, beta;
	void *c;
	int64_t ldc;
};

/* The type in which it is computed. */
int bl_product_base(const struct product *p);
/* False: there is no memory. */
bool bl_product(const struct product *p);

#endif
